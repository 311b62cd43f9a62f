//! merge_many PODS FILE...: merges the files as the profiles of this many pods, each file many
//! times, and reports time and memory. merge_many make ROWS FILE...: writes profiles as hostile
//! pods could, with this many rows each. No two rows have the same stack, and the files share no
//! function.
//!
//! It shows how much of a large application's profiles a merged one has room for, and what profiles
//! with nothing in common need.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;

use phpprof_profile::{
    Builder, DecodeLimits, FrameRef, MergeLimits, Merger, Packed, SampleSource as _, Settings,
    TrustedMetadata, encode_gzip,
};

/// The functions of a generated profile. Each calls each.
const FUNCTIONS: usize = 256;

fn main() -> Result<(), Box<dyn Error>> {
    const USAGE: &str = "merge_many PODS FILE... or merge_many make ROWS FILE...";
    let mut arguments = std::env::args().skip(1);
    let first = arguments.next().ok_or(USAGE)?;
    if first == "make" {
        let rows: usize = arguments.next().ok_or(USAGE)?.parse()?;
        return arguments.try_for_each(|file| make(rows, Path::new(&file)));
    }
    let files: Vec<PathBuf> = arguments.map(PathBuf::from).collect();
    merge(first.parse()?, &files)
}

fn make(rows: usize, file: &Path) -> Result<(), Box<dyn Error>> {
    let mut builder = Builder::new(Settings::default());
    let pod = file.display();
    for row in 0..rows {
        let [caller, callee] =
            [row / FUNCTIONS, row % FUNCTIONS].map(|number| format!("{pod}::call{number}"));
        let frames = [&*callee, &*caller, "{main}"].map(|name| FrameRef {
            name,
            file: "/app/index.php",
            start_line: 1,
            line: 1,
        });
        builder.add(&frames, &[1, 0, 1_000_000], &[]);
    }
    std::fs::write(file, encode_gzip(&builder.finish()))?;
    Ok(())
}

fn merge(pods: usize, files: &[PathBuf]) -> Result<(), Box<dyn Error>> {
    let begin = Instant::now();
    let limits = DecodeLimits::default();
    let mut merger = Merger::new(
        &Settings::default(),
        pods,
        MergeLimits::default(),
        &["pid", "thread"],
    );
    let mut rows = 0;
    for (pod, file) in files.iter().cycle().take(pods).enumerate() {
        let profile = Packed::open(std::fs::read(file)?, &limits)?;
        rows += profile.count();
        let name = format!("pod-{pod}");
        let known = TrustedMetadata {
            labels: vec![("namespace", "shop"), ("pod", &name), ("container", "fpm")],
            ..TrustedMetadata::default()
        };
        merger.add(&profile, &known)?;
    }
    let merged = merger.finish()?;
    let took = begin.elapsed();
    let bounds = DecodeLimits {
        decompressed_bytes: 256 << 20,
        memory_bytes: MergeLimits::default().bytes,
        samples: MergeLimits::default().rows,
        ..limits
    };
    let bytes = merged.file.len();
    let packed = Packed::open(merged.file, &bounds)?;
    let share = merged.other.iter().zip(&merged.totals);
    let shares: Vec<String> = share
        .map(|(other, total)| format!("{:.2} %", 100.0 * *other as f64 / (*total).max(1) as f64))
        .collect();
    println!(
        "{rows} rows of {pods} pods in {took:.1?}: {} rows in {} kB; {} pods cut, [other] has {} of samples, cpu and wall",
        packed.count(),
        bytes / 1024,
        merged.cut,
        shares.join(", ")
    );
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find(|line| line.starts_with("VmHWM"));
    println!("{}", peak.unwrap_or_default());
    Ok(())
}
