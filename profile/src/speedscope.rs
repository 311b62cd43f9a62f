//! speedscope's own format (speedscope.app/file-format-schema.json): one sampled profile for each
//! sample type.
//!
//! It keeps functions with file and start line. Samples in a pprof have no order in time, so they
//! have none here either.
//!
//! Invariant: the weights of each profile add up to the total of its sample type.

use serde::Serialize;

use crate::stacks::Stacks;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SpeedscopeFile<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: &'static str,
    name: &'a str,
    active_profile_index: usize,
    shared: SharedFrames<'a>,
    profiles: Vec<Sampled<'a>>,
}

#[derive(Serialize)]
struct SharedFrames<'a> {
    frames: Vec<SpeedscopeFrame<'a>>,
}

#[derive(Serialize)]
struct SpeedscopeFrame<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    file: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<i64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Sampled<'a> {
    r#type: &'static str,
    name: &'a str,
    unit: &'static str,
    start_value: i64,
    end_value: i64,
    samples: Vec<Vec<usize>>,
    weights: Vec<i64>,
}

pub fn speedscope(stacks: &Stacks<'_>, name: &str) -> String {
    let frames = stacks.functions.iter().map(|function| SpeedscopeFrame {
        name: function.name,
        file: function.file,
        line: Some(function.start_line).filter(|line| *line > 0),
    });
    let file = SpeedscopeFile {
        schema: "https://www.speedscope.app/file-format-schema.json",
        exporter: concat!("phpprof ", env!("CARGO_PKG_VERSION")),
        name,
        active_profile_index: stacks.chosen,
        shared: SharedFrames {
            frames: frames.collect(),
        },
        profiles: (0..stacks.sample_types.len())
            .map(|index| sampled(stacks, index))
            .collect(),
    };
    // Serialising strings and numbers cannot fail.
    serde_json::to_string(&file).unwrap_or_default()
}

fn sampled<'a>(stacks: &Stacks<'a>, index: usize) -> Sampled<'a> {
    let (name, unit) = stacks.sample_types.get(index).copied().unwrap_or_default();
    let (samples, weights) = stacks
        .stacks
        .iter()
        .filter_map(|(steps, values)| {
            // speedscope refuses a file with a negative weight.
            let value = values.get(index).copied().filter(|value| *value > 0)?;
            Some((steps.iter().map(|(function, _)| *function).collect(), value))
        })
        .unzip::<_, i64, Vec<_>, Vec<_>>();
    Sampled {
        r#type: "sampled",
        name,
        unit: known(unit),
        start_value: 0,
        end_value: weights.iter().copied().fold(0, i64::saturating_add),
        samples,
        weights,
    }
}

/// The unit, if the schema has it.
fn known(unit: &str) -> &'static str {
    [
        "nanoseconds",
        "microseconds",
        "milliseconds",
        "seconds",
        "bytes",
    ]
    .into_iter()
    .find(|known| *known == unit)
    .unwrap_or("none")
}
