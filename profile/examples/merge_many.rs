//! merge_many PODS FILE...: merges the files as if they were the profiles of so many pods, each file many times, and says what it took.
//!
//! It shows how much of a large application's profiles finds room in a merged one.

use std::error::Error;
use std::path::PathBuf;

use phpprof_profile::{Known, Limits, Merger, Packed, Room, Settings, Source as _};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let pods: usize = arguments.next().ok_or("merge_many PODS FILE...")?.parse()?;
    let files: Vec<PathBuf> = arguments.map(PathBuf::from).collect();
    let limits = Limits::default();
    let mut merger = Merger::new(
        &Settings::default(),
        pods,
        Room::default(),
        &["pid", "thread"],
    );
    let mut rows = 0;
    for (pod, file) in files.iter().cycle().take(pods).enumerate() {
        let profile = Packed::open(std::fs::read(file)?, &limits)?;
        rows += profile.count();
        let name = format!("pod-{pod}");
        let known = Known {
            labels: vec![("namespace", "shop"), ("pod", &name), ("container", "fpm")],
            ..Known::default()
        };
        merger.add(&profile, &known)?;
    }
    let merged = merger.finish()?;
    let bounds = Limits {
        decompressed_bytes: 256 << 20,
        memory_bytes: Room::default().bytes,
        samples: Room::default().rows,
        ..limits
    };
    let bytes = merged.file.len();
    let packed = Packed::open(merged.file, &bounds)?;
    let share = merged.other.iter().zip(&merged.totals);
    let shares: Vec<String> = share
        .map(|(other, total)| format!("{:.2} %", 100.0 * *other as f64 / (*total).max(1) as f64))
        .collect();
    println!(
        "{rows} rows of {pods} pods: {} rows in {} kB; {} pods cut, [other] has {} of samples, cpu and wall",
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
