//! Reads the sums of one profile back from each format.
//!
//! Invariant: the crate's own code reads no format here except pprof.

use std::io::Read as _;

use phpprof_profile::{DecodeLimits, Format, Profile, Stacks, View, decode, total};

use crate::profiles::TYPES;

pub fn text(profile: &Profile, format: Format, view: &View) -> String {
    String::from_utf8(format.write(profile, view, "shop", None).unwrap()).unwrap()
}

pub fn of_type(name: &str) -> View {
    View {
        sample_type: Some(name.to_owned()),
        labels: Vec::new(),
    }
}

pub fn folded_sum(profile: &Profile, view: &View) -> i64 {
    let text = text(profile, Format::Folded, view);
    let value = |line: &str| line.rsplit_once(' ').unwrap().1.parse::<i64>().unwrap();
    text.lines().map(value).sum()
}

pub fn speedscope_sum(profile: &Profile, view: &View, index: usize) -> i64 {
    let json: serde_json::Value =
        serde_json::from_str(&text(profile, Format::Speedscope, view)).unwrap();
    let sampled = &json["profiles"][index];
    let weights = sampled["weights"].as_array().unwrap();
    assert_eq!(weights.len(), sampled["samples"].as_array().unwrap().len());
    let sum = weights.iter().map(|weight| weight.as_i64().unwrap()).sum();
    assert_eq!(sampled["endValue"], sum);
    sum
}

/// The own costs of functions. The lines after `calls=` have the callees' costs.
pub fn callgrind_sum(profile: &Profile, view: &View, index: usize) -> i64 {
    let text = text(profile, Format::Callgrind, view);
    let mut sum = 0;
    let mut call = false;
    for line in text.lines() {
        if line.starts_with(|letter: char| letter.is_ascii_digit()) && !call {
            sum += line
                .split(' ')
                .nth(index + 1)
                .unwrap()
                .parse::<i64>()
                .unwrap();
        }
        call = line.starts_with("calls=");
    }
    let summary = text
        .lines()
        .find_map(|line| line.strip_prefix("summary: "))
        .unwrap();
    assert_eq!(summary.split(' ').nth(index).unwrap(), sum.to_string());
    sum
}

/// The weights of all threads, which are milliseconds for times.
pub fn firefox_sum(profile: &Profile, view: &View, name: &str) -> i64 {
    let file = Format::Firefox.write(profile, view, "shop", None).unwrap();
    let mut json = String::new();
    let mut reader = flate2::read::GzDecoder::new(&file[..]);
    reader.read_to_string(&mut json).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let threads = json["threads"].as_array().unwrap().iter();
    let weights = threads.flat_map(|thread| thread["samples"]["weight"].as_array().unwrap());
    let scale = if name == "samples" { 1.0 } else { 1e6 };
    let whole = |weight: &serde_json::Value| (weight.as_f64().unwrap() * scale).round() as i64;
    weights.map(whole).sum()
}

pub fn page_data(html: &str) -> serde_json::Value {
    let json = html
        .split_once("id=\"profile\">")
        .and_then(|(_, rest)| rest.split_once("</script>"))
        .map(|(json, _)| json)
        .unwrap();
    serde_json::from_str(json).unwrap()
}

pub fn page_sum(profile: &Profile, view: &View, index: usize) -> i64 {
    let data = page_data(&text(profile, Format::Html, view));
    let samples = data["samples"].as_array().unwrap();
    let values = samples.chunks(2 + data["types"].as_array().unwrap().len());
    values
        .map(|sample| sample[2 + index].as_i64().unwrap())
        .sum()
}

pub fn check_sums(profile: &Profile, labels: &[(&str, &str)]) {
    for (index, name) in TYPES.into_iter().enumerate() {
        let mut view = of_type(name);
        view.labels = labels
            .iter()
            .map(|(key, value)| ((*key).into(), (*value).into()))
            .collect();
        let file = Format::Pprof.write(profile, &view, "shop", None).unwrap();
        let expected = total(&decode(&file, &DecodeLimits::default()).unwrap(), name);
        assert!(expected > 0);
        assert_eq!(folded_sum(profile, &view), expected, "folded {name}");
        assert_eq!(
            speedscope_sum(profile, &view, index),
            expected,
            "speedscope {name}"
        );
        assert_eq!(
            callgrind_sum(profile, &view, index),
            expected,
            "callgrind {name}"
        );
        let sum = firefox_sum(profile, &view, name);
        assert_eq!(sum, expected, "firefox {name}");
        assert_eq!(page_sum(profile, &view, index), expected, "page {name}");
        let stacks = Stacks::of(profile, &view).unwrap();
        assert_eq!(stacks.total(index), expected, "stacks {name}");
    }
}
