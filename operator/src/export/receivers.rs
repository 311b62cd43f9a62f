//! The pushes that Pyroscope and Parca refuse, according to their source, for tests.
//!
//! Pyroscope 2.2.1 (df3c0391b7df): `pkg/validation/validate.go` (labels, profiles), the defaults in
//! `pkg/validation/limits.go`, the rate limiter in `pkg/distributor/distributor.go`. Parca 0.28.0
//! (2f973236aa16): `pkg/normalizer/normalizer.go` (labels), `pkg/normalizer/validate.go`
//! (profiles), `pkg/profilestore/profilecolumnstore.go` (profile types). Both check label names by
//! the rules of `model.LabelName` of github.com/prometheus/common.
//!
//! Invariant: the real servers accept what passes here, in their default settings. They accept
//! more: label names with UTF-8, which Pyroscope refuses in other settings.
//! docs/measurements/exports.md has their answers.

use std::collections::BTreeMap;

use jiff::Timestamp;
use phpprof_profile::Profile;
use prost::Message as _;

pub type SeriesLabels = [(String, String)];

/// Labels of a series.
const MOST_LABELS: usize = 30;
const LONGEST_NAME: usize = 1024;
const LONGEST_VALUE: usize = 2048;
/// `distributor.ingestion-burst-size-mb`: a push above it never passes the rate limiter.
const BURST: usize = 2 << 20;
const MOST_SAMPLES: usize = 16_000;
const LONGEST_STRING: usize = 65_535;
const MOST_SAMPLE_LABELS: usize = 100;
/// `validation.reject-older-than` and `-newer-than`.
const WINDOW: [i64; 2] = [-3_600_000_000_000, 600_000_000_000];

fn need(is: bool, words: impl FnOnce() -> String) -> Result<(), String> {
    if is { Ok(()) } else { Err(words()) }
}

/// Pyroscope's answer to a push at this time.
pub fn pyroscope(labels: &SeriesLabels, profile: &Profile, now: Timestamp) -> Result<(), String> {
    let named = names(labels)?;
    need(labels.len() <= MOST_LABELS, || {
        format!("{} label names", labels.len())
    })?;
    for (name, value) in labels {
        let fits = name.len() <= LONGEST_NAME && value.len() <= LONGEST_VALUE;
        need(fits, || format!("label {name} is too long"))?;
        // Pyroscope's own labels, such as __session_id__ and __order__: it sets or drops them.
        let own = name.starts_with("__") && name != "__name__";
        need(!own, || format!("label {name} is reserved"))?;
    }
    let has = |name| named.get(name).is_some_and(|value| !value.is_empty());
    need(has("__name__"), || "invalid metric name".to_owned())?;
    need(has("service_name"), || {
        "service name is not provided".to_owned()
    })?;
    let of_labels: usize = labels
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    let size = profile.encoded_len() + of_labels;
    need(size <= BURST, || {
        format!("push rate limit exceeded while adding {size}")
    })?;
    let count = profile.sample.len();
    need(count <= MOST_SAMPLES, || format!("{count} samples"))?;
    let now = i64::try_from(now.as_nanosecond()).map_err(|error| error.to_string())?;
    let [oldest, newest] = WINDOW.map(|from_now| now + from_now);
    let in_time = (oldest + 1..newest).contains(&profile.time_nanos);
    need(in_time, || "outside of the ingestion window".to_owned())?;
    let mut strings = profile.string_table.iter();
    let fit = strings.all(|string| string.len() <= LONGEST_STRING);
    need(fit, || "a string that would be cut".to_owned())?;
    for (kind, _) in profile.sample_types() {
        need(!kind.contains('-'), || format!("sample type {kind}"))?;
    }
    for sample in &profile.sample {
        need(sample.label.len() <= MOST_SAMPLE_LABELS, || {
            "too many labels of a sample".to_owned()
        })?;
        // Pyroscope would leave such a sample out, and the total would be wrong.
        let counts = sample.value.iter().all(|value| *value >= 0);
        need(counts, || "a negative value".to_owned())?;
    }
    well_formed(profile)
}

/// Parca's answer to a push. It keeps the labels of series, and drops those of samples.
pub fn parca(labels: &SeriesLabels, profile: &Profile) -> Result<(), String> {
    let named = names(labels)?;
    let name = named.get("__name__").copied().unwrap_or_default();
    need(!name.is_empty(), || "missing __name__ label".to_owned())?;
    well_formed(profile)?;
    // Parca reads the period's type without checking that there is one.
    let period = profile.period_type.ok_or("no period type")?;
    let ids = |ids: &mut dyn Iterator<Item = u64>| ids.zip(1..).all(|(id, place)| id == place);
    let in_order = ids(&mut profile.mapping.iter().map(|it| it.id))
        && ids(&mut profile.function.iter().map(|it| it.id))
        && ids(&mut profile.location.iter().map(|it| it.id));
    need(in_order, || "ids are not sequential".to_owned())?;
    for (kind, unit) in profile.sample_types() {
        let [period, of] = [period.r#type, period.unit].map(|it| profile.string(it));
        let selector = format!("{name}:{kind}:{unit}:{period}:{of}:delta");
        // The rules for a metric's name in PromQL.
        let legal = legal(&selector.replace(':', "_"));
        need(legal, || format!("invalid profile type {selector}"))?;
    }
    Ok(())
}

/// The labels, if their names are legal and unique.
fn names(labels: &SeriesLabels) -> Result<BTreeMap<&str, &str>, String> {
    let mut named = BTreeMap::new();
    for (name, value) in labels {
        need(legal(name), || format!("invalid label name {name:?}"))?;
        let first = named.insert(&**name, &**value).is_none();
        need(first, || format!("duplicate label name {name}"))?;
    }
    Ok(named)
}

fn legal(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty() && name.bytes().all(plain) && !name.starts_with(|it: char| it.is_ascii_digit())
}

/// What both check: sample types, an empty first string, and valid indexes and ids.
fn well_formed(profile: &Profile) -> Result<(), String> {
    let types = profile.sample_type.len();
    need(types > 0, || "no sample type".to_owned())?;
    let first = profile.string_table.first().map(String::as_str);
    need(first == Some(""), || "string 0 should be empty".to_owned())?;
    let strings = i64::try_from(profile.string_table.len()).unwrap_or(i64::MAX);
    let named = |index: i64| (0..strings).contains(&index);
    let kinds = profile.sample_type.iter().chain(&profile.period_type);
    let strings_are = kinds.clone().all(|it| named(it.r#type) && named(it.unit))
        && profile
            .mapping
            .iter()
            .all(|it| named(it.filename) && named(it.build_id))
        && profile
            .function
            .iter()
            .all(|it| [it.name, it.system_name, it.filename].map(named) == [true; 3]);
    need(strings_are, || {
        "a string's index is out of range".to_owned()
    })?;
    let within = |id: u64, count: usize| id <= count as u64;
    let places_are = profile.location.iter().all(|it| {
        let mut lines = it.line.iter();
        it.id > 0
            && within(it.mapping_id, profile.mapping.len())
            && lines.all(|line| within(line.function_id, profile.function.len()))
    });
    need(places_are, || "an id is out of range".to_owned())?;
    for sample in &profile.sample {
        let locations = profile.location.len();
        let mut ids = sample.location_id.iter();
        let is = sample.value.len() == types
            && ids.all(|id| *id > 0 && within(*id, locations))
            && sample
                .label
                .iter()
                .all(|it| it.key > 0 && named(it.key) && named(it.str));
        need(is, || "a sample is not whole".to_owned())?;
    }
    Ok(())
}
