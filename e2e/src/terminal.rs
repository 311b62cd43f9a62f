//! A program on its own terminal (script(1)), and the keys and screen of its user.
//!
//! Invariant: the program ends when its value is dropped.

use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, Command};

use crate::wait::poll;

/// A terminal of 200 columns and 50 lines.
pub struct Terminal {
    child: Child,
    keys: ChildStdin,
    drawn: Arc<Mutex<String>>,
}

impl Terminal {
    /// Starts a command on a terminal, in this folder.
    pub fn start(line: &str, folder: &std::path::Path) -> Result<Self> {
        // `exec`: otherwise the shell would get the terminal's signals, too.
        let line = format!("stty rows 50 cols 200; exec {line}");
        let mut child = Command::new("script")
            .args(["--quiet", "--return", "--command", &line, "/dev/null"])
            .env("TERM", "xterm")
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("starting script")?;
        let keys = child.stdin.take().context("no stdin")?;
        let mut stdout = child.stdout.take().context("no stdout")?;
        let drawn = Arc::new(Mutex::new(String::new()));
        let of_task = Arc::clone(&drawn);
        tokio::spawn(async move {
            let mut chunk = [0; 4096];
            while let Ok(length @ 1..) = stdout.read(&mut chunk).await {
                let text = String::from_utf8_lossy(&chunk[..length]).into_owned();
                let mut drawn = of_task.lock().unwrap_or_else(PoisonError::into_inner);
                drawn.push_str(&text);
            }
        });
        Ok(Self { child, keys, drawn })
    }

    pub async fn types(&mut self, keys: &str) -> Result<()> {
        self.keys.write_all(keys.as_bytes()).await?;
        Ok(self.keys.flush().await?)
    }

    /// Waits until this text was drawn, and returns all drawn text without the cursor's control
    /// sequences.
    pub async fn shows(&self, text: &str, limit: Duration) -> Result<String> {
        poll(&format!("{text:?} on the terminal"), limit, async || {
            let drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(drawn.contains(text).then(|| plain(&drawn)))
        })
        .await
    }

    /// Waits for its end, and returns its exit code.
    pub async fn ends(&mut self, limit: Duration) -> Result<i32> {
        let ended = tokio::time::timeout(limit, self.child.wait()).await;
        let status = ended.with_context(|| format!("it continues after {limit:?}"))??;
        Ok(status.code().unwrap_or(-1))
    }
}

/// Replaces each control sequence, from ESC to the next letter, by a space.
fn plain(text: &str) -> String {
    let mut pieces = text.split('\x1b');
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let end = piece.find(|letter: char| letter.is_ascii_alphabetic());
        plain.push(' ');
        plain += end.and_then(|end| piece.get(end + 1..)).unwrap_or_default();
    }
    plain
}
