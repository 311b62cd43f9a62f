//! Runs the program, and has a profile for it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use phpprof_profile::{Builder, FrameRef, Profile, SampleTag, Settings, encode_gzip};

pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-phpprof"));
    command
        .env_remove("KUBECONFIG")
        .env_remove("DISPLAY")
        .env_remove("WAYLAND_DISPLAY")
        .env("HOME", "/nonexistent")
        .stdin(Stdio::null());
    command
}

pub struct ShellOutput {
    pub code: i32,
    pub out: String,
    pub err: String,
}

pub fn said(output: &Output) -> ShellOutput {
    ShellOutput {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

pub fn run(folder: &Path, line: &str) -> ShellOutput {
    let words = line.split_whitespace();
    said(&program().args(words).current_dir(folder).output().unwrap())
}

/// Two pods. The second takes twice as much time.
pub fn profile(price: i64) -> Profile {
    let mut builder = Builder::new(Settings::default());
    let frame = |name, file| FrameRef {
        name,
        file,
        start_line: 3,
        line: 7,
    };
    for (pod, weight) in [("web-1", 1), ("web-2", 2)] {
        let labels = [
            SampleTag::Str("pod", pod),
            SampleTag::Num("pid", weight, ""),
        ];
        let main = frame("{main}", "/srv/app/index.php");
        let mut add = |stack: &[FrameRef<'_>], milliseconds: i64| {
            let nanoseconds = milliseconds * weight * 1_000_000;
            builder.add(
                stack,
                &[
                    milliseconds * weight / 10,
                    nanoseconds * 9 / 10,
                    nanoseconds,
                ],
                &labels,
            );
        };
        add(
            &[frame(r"Shop\Cart::price", "/srv/app/src/Cart.php"), main],
            price,
        );
        add(&[frame("similar_text", ""), main], 300);
    }
    builder.finish()
}

/// A folder with `before.pb.gz` and `after.pb.gz`.
pub fn files() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    for (name, price) in [("before.pb.gz", 500), ("after.pb.gz", 900)] {
        std::fs::write(folder.path().join(name), encode_gzip(&profile(price))).unwrap();
    }
    let path = folder.path().to_owned();
    (folder, path)
}
