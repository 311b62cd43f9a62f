//! Other profilers on the same program: `PEERS="phpspy=/path pfp=/path"`.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use nix::unistd::Pid;
use phpprof_bench::peers::{OneProcess, pfp_of, phpspy_of, stacks};

use super::profile::ShareProfile;

/// Another profiler, which reads one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    pub name: String,
    program: PathBuf,
}

/// The peers of `PEERS`.
pub fn peers() -> Result<Vec<Peer>> {
    let words = std::env::var("PEERS").unwrap_or_default();
    let peer = |word: &str| {
        let (name, path) = word
            .split_once('=')
            .with_context(|| format!("PEERS has NAME=PATH, not {word}"))?;
        ensure!(
            ["phpspy", "pfp"].contains(&name),
            "{name} is not a known peer"
        );
        ensure!(Path::new(path).is_file(), "{path} is not a program");
        Ok(Peer {
            name: name.to_owned(),
            program: path.into(),
        })
    };
    words.split_whitespace().map(peer).collect()
}

impl Peer {
    /// Its samples of a process.
    pub fn sample(&self, pid: Pid, rate: u32, seconds: u64) -> Result<ShareProfile> {
        let process = OneProcess::of(pid.as_raw())?;
        let out = tempfile::NamedTempFile::new()?;
        let command = match self.name.as_str() {
            "phpspy" => phpspy_of,
            _ => pfp_of,
        };
        let mut command = command(&self.program, process, rate, out.path(), seconds);
        let status = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        let status = status.with_context(|| format!("starting {}", self.program.display()))?;
        let printed = std::fs::read(out.path())?;
        let mut profile = ShareProfile::default();
        for stack in stacks(&String::from_utf8_lossy(&printed)) {
            profile.add(stack.iter().map(|name| plain(name)).collect(), 1, 1.0);
        }
        if profile.count() == 0 {
            bail!("{} has printed no stack and ended with {status}", self.name);
        }
        Ok(profile)
    }
}

/// A profile with the names that all profilers have.
pub fn plain_names(profile: &ShareProfile) -> ShareProfile {
    let mut plainer = ShareProfile::default();
    for (stack, seen) in &profile.stacks {
        let names = stack.iter().map(|name| plain(name)).collect();
        plainer.add(names, seen.count, seen.weight);
    }
    plainer
}

/// Peers name neither the files of includes nor the lines of closures.
fn plain(name: &str) -> String {
    let name = name.rsplit_once('\\').map_or(name, |(_, tail)| tail);
    if name == "{main}" || name.starts_with("include ") {
        "<main>".to_owned()
    } else if name.starts_with("{closure") || name.ends_with("{closure}") {
        "{closure}".to_owned()
    } else {
        name.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_all_profilers() {
        let check = |name, expected| assert_eq!(plain(name), expected, "{name}");
        check("{main}", "<main>");
        check("include p1-f4.php", "<main>");
        check("{closure:p1-kit.php:92}", "{closure}");
        check("Kit::{closure}", "{closure}");
        check("Box::f4", "Box::f4");
    }
}
