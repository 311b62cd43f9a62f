//! The files that `phpprof record` has written for a server, and the expected shares of its routes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Read as _;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use flate2::read::GzDecoder;
use phpprof_profile::proto::Profile;
use phpprof_profile::timeline::{self, Timeline};
use phpprof_profile::{DecodeLimits, Lookup, decode};
use phpprof_testing::shares;

use super::SECRETS;

/// The output of a run.
pub struct Recorded {
    pub profile: Profile,
    /// The list of requests, if routes were requested, and its file.
    pub timeline: Option<Timeline>,
    list: Vec<u8>,
    bytes: Vec<u8>,
    pub said: String,
}

impl Recorded {
    /// Samples by a label's value and the route's function, whose name begins with `serve_`; both
    /// are empty for samples without them.
    pub fn by(&self, label: &str) -> BTreeMap<(String, String), i64> {
        self.sums(label, 0)
    }

    /// The same for another sample type.
    pub fn sums(&self, label: &str, of: usize) -> BTreeMap<(String, String), i64> {
        let lookup = Lookup::new(&self.profile);
        let mut sums = BTreeMap::new();
        for sample in &self.profile.sample {
            let names: Vec<&str> = lookup.frames(sample).map(|frame| frame.name).collect();
            let function = names.iter().rev().find(|name| name.starts_with("serve_"));
            let function = function.copied().unwrap_or_default();
            let value = sample.label.iter().find_map(|one| {
                let key = self.profile.string(one.key);
                (key == label).then(|| self.profile.string(one.str))
            });
            let key = (value.unwrap_or_default().to_owned(), function.to_owned());
            *sums.entry(key).or_default() += sample.value[of];
        }
        sums
    }

    /// The main scripts, as the profile names them.
    pub fn scripts(&self) -> BTreeSet<&str> {
        let names = self.profile.function.iter();
        let names = names.map(|row| self.profile.string(row.name));
        names.filter(|name| name.starts_with("{main}")).collect()
    }

    /// The shares of a label's values, in percent of the wall time with a value.
    pub fn shares(&self, label: &str) -> HashMap<String, f64> {
        let wall = self.profile.value_index("wall").unwrap_or(0);
        let sums = self.sums(label, wall);
        let all = self.with_label(label, "wall").unwrap_or(0);
        let mut shares = HashMap::new();
        for ((value, _), sum) in sums.into_iter().filter(|((value, _), _)| !value.is_empty()) {
            *shares.entry(value).or_default() += 100.0 * sum as f64 / all as f64;
        }
        shares
    }

    /// The sum of a sample type over the samples that have a value of a label.
    pub fn with_label(&self, label: &str, sample_type: &str) -> Option<i64> {
        let sums = self.sums(label, self.profile.value_index(sample_type)?);
        let with_value = sums.iter().filter(|((value, _), _)| !value.is_empty());
        Some(with_value.map(|(_, sum)| sum).sum())
    }

    pub fn samples(&self) -> i64 {
        self.profile
            .sample
            .iter()
            .map(|sample| sample.value[0])
            .sum()
    }

    /// The share of the turns that were missed.
    pub fn missed(&self) -> Result<f64> {
        let quality = &self.receipt()?["quality"];
        let count = |field: &str| quality[field].as_f64().context("no count");
        Ok(count("late")? / count("due")?.max(1.0))
    }

    pub fn receipt(&self) -> Result<serde_json::Value> {
        let comment = self.profile.comments().next().context("no receipt")?;
        Ok(serde_json::from_str(comment)?)
    }

    /// Checks that no byte contains a secret.
    pub fn check_secrets(&self) -> Result<()> {
        let mut bytes = Vec::new();
        GzDecoder::new(self.bytes.as_slice()).read_to_end(&mut bytes)?;
        if !self.list.is_empty() {
            GzDecoder::new(self.list.as_slice()).read_to_end(&mut bytes)?;
        }
        bytes.extend(self.said.bytes());
        for secret in SECRETS {
            let found = bytes
                .windows(secret.len())
                .any(|part| part == secret.as_bytes());
            ensure!(!found, "{secret} is told");
        }
        Ok(())
    }
}

/// `phpprof record` with these arguments.
pub fn record(pid: u32, seconds: u32, arguments: &[&str]) -> Result<Recorded> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("profile.pb.gz");
    let list = folder.path().join("requests.json.gz");
    let has_list = arguments.iter().any(|it| it.contains("Route"));
    let out = Command::new(env!("CARGO_BIN_EXE_phpprof"))
        .args(["record", "-d", &seconds.to_string()])
        .arg(format!("--pid={pid}"))
        .args(arguments)
        .args((!arguments.contains(&"-F")).then_some("-F199"))
        .arg("-o")
        .arg(&path)
        .args(has_list.then(|| format!("--requests={}", list.display())))
        .stdin(Stdio::null())
        .output()?;
    let said =
        String::from_utf8_lossy(&out.stderr).into_owned() + &String::from_utf8_lossy(&out.stdout);
    ensure!(out.status.success(), "{said}");
    let bytes = std::fs::read(&path)?;
    let list = if has_list {
        std::fs::read(&list)?
    } else {
        Vec::new()
    };
    Ok(Recorded {
        profile: decode(&bytes, &DecodeLimits::default())?,
        timeline: has_list.then(|| timeline::decode(&list)).transpose()?,
        list,
        bytes,
        said,
    })
}

/// A run whose routes have the shares that clients, or the server, have measured during it.
pub fn with_shares(
    run: impl FnOnce() -> Result<(Recorded, Vec<HashMap<&'static str, f64>>)>,
) -> Result<Recorded> {
    let (recorded, truths) = run()?;
    let found = recorded.shares("route");
    let (samples, missed) = (recorded.samples() as f64, recorded.missed()?);
    for (route, share) in truths.iter().flatten() {
        let told = found.get(*route).copied().unwrap_or(0.0) / 100.0;
        shares::check(route, told * samples, samples, share / 100.0, missed)?;
    }
    Ok(recorded)
}
