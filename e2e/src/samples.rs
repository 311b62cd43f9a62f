//! Reads labels and frames of a profile's samples.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use phpprof_profile::proto::{Label, Sample};
use phpprof_profile::{Lookup, Profile, plain_name, top};

fn label<'a>(profile: &Profile, sample: &'a Sample, key: &str) -> Result<&'a Label> {
    let mut labels = sample.label.iter();
    labels
        .find(|label| profile.string(label.key) == key)
        .with_context(|| format!("a sample has no label {key}"))
}

/// The values of a label. An error if a sample does not have the label.
pub fn labels(profile: &Profile, key: &str) -> Result<BTreeSet<String>> {
    let of_sample = |sample| Ok(profile.string(label(profile, sample, key)?.str).to_owned());
    profile.sample.iter().map(of_sample).collect()
}

/// How many samples each process or thread has in a function, by a label. An error if a sample does
/// not have the label.
pub fn samples_by(profile: &Profile, key: &str, function: &str) -> Result<BTreeMap<i64, i64>> {
    let index = profile.value_index("samples").context("no samples")?;
    let lookup = Lookup::new(profile);
    let mut samples = BTreeMap::new();
    for sample in &profile.sample {
        let number = label(profile, sample, key)?.num;
        if lookup
            .frames(sample)
            .any(|frame| plain_name(frame.name, frame.file) == function)
        {
            *samples.entry(number).or_default() += sample.value[index];
        }
    }
    Ok(samples)
}

/// How many samples a function has, with its callees.
pub fn samples_of(profile: &Profile, function: &str) -> i64 {
    let rows = top(profile, "samples");
    let of_function = rows.iter().filter(|row| row.name == function);
    of_function.map(|row| row.cum).sum()
}
