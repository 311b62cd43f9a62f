//! The markers of a thread: requests, and in their moments waits and phases of the engine.
//!
//! Invariant: each marker's data has only the fields of its schema.

use serde::Serialize;
use serde_json::{Value, json};

use super::milliseconds;
use super::tables::{FrameCategory, SharedTables, is_phase};
use crate::bounds::beginning;
use crate::timeline::{Moment, Timeline, TimelineRequest};
use crate::waiting::kind;

/// The most bytes of a function's name in the data of a marker, of which each moment can have one.
/// Stacks have the whole name.
const MAX_NAME: usize = 512;
/// A marker with a beginning and an end.
const INTERVAL: u8 = 1;

/// The table of markers.
#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
pub(super) struct MarkerColumns {
    length: usize,
    data: Vec<MarkerData>,
    name: Vec<usize>,
    start_time: Vec<f64>,
    end_time: Vec<f64>,
    phase: Vec<u8>,
    category: Vec<usize>,
}

/// The data of a marker. Its type is the name of its schema.
#[derive(Serialize)]
#[serde(tag = "type", rename_all_fields = "camelCase")]
enum MarkerData {
    Request {
        #[serde(skip_serializing_if = "String::is_empty")]
        method: String,
        #[serde(skip_serializing_if = "String::is_empty")]
        route: String,
        #[serde(skip_serializing_if = "String::is_empty")]
        script: String,
        #[serde(skip_serializing_if = "String::is_empty")]
        trace_id: String,
        /// Milliseconds. The same applies to the next two.
        took: f64,
        wall: f64,
        cpu: f64,
        samples: u64,
        #[serde(skip_serializing_if = "is_zero")]
        heap: u64,
        #[serde(skip_serializing_if = "str::is_empty")]
        note: &'static str,
    },
    Wait {
        function: String,
        #[serde(skip_serializing_if = "str::is_empty")]
        kind: &'static str,
    },
    Phase {
        phase: String,
    },
    Untimed {},
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// How the Firefox Profiler shows each type of marker.
pub(super) fn schemas() -> Value {
    let field = |key: &str, label: &str, format: &str| json!({"key": key, "label": label, "format": format});
    let places = json!(["marker-chart", "marker-table", "timeline-overview"]);
    json!([
        {
            "name": "Request",
            "tooltipLabel": "{marker.data.method} {marker.data.route}",
            "tableLabel": "{marker.data.method} {marker.data.route} {marker.data.script}",
            "chartLabel": "{marker.data.method} {marker.data.route}",
            "display": places,
            "fields": [
                // These may have personal data, so they are removed where a profile is shared
                // without it.
                field("method", "Method", "string"),
                field("route", "Route", "sanitized-string"),
                field("script", "Script", "file-path"),
                field("traceId", "Trace", "sanitized-string"),
                field("took", "Duration", "duration"),
                field("wall", "Wall time in samples", "duration"),
                field("cpu", "CPU time in samples", "duration"),
                field("samples", "Samples", "integer"),
                field("heap", "Largest heap", "bytes"),
                field("note", "Note", "string"),
            ],
            "description": "An HTTP request, or a script",
        },
        {
            "name": "Wait",
            "tooltipLabel": "Waits in {marker.data.function}",
            "tableLabel": "{marker.data.function}",
            "chartLabel": "{marker.data.function}",
            "display": places,
            "fields": [field("function", "Function", "string"), field("kind", "Waits for", "string")],
            "description": "The worker slept in this function",
        },
        {
            "name": "Phase",
            "tooltipLabel": "{marker.data.phase}",
            "tableLabel": "{marker.data.phase}",
            "chartLabel": "{marker.data.phase}",
            "display": places,
            "fields": [field("phase", "Phase", "string")],
            "description": "What the engine did besides running PHP code",
        },
        {
            "name": "Untimed",
            "tooltipLabel": "Samples without times",
            "tableLabel": "after the end of the run, in the order of their stacks",
            "chartLabel": "Samples without times",
            "display": places,
            "fields": [],
            "description": "The profile has only the sums of these samples, not when they were taken. \
                They are after the end of the run, in the order of their stacks",
        },
    ])
}

impl MarkerColumns {
    /// Adds a request, with the waits and phases of its moments.
    pub fn add_request(
        &mut self,
        tables: &mut SharedTables<'_>,
        timeline: &Timeline,
        request: &TimelineRequest,
    ) {
        let data = MarkerData::Request {
            method: request.method.clone(),
            route: request.route.clone(),
            script: request.script.clone(),
            trace_id: request.trace_id.clone(),
            took: milliseconds(request.end.saturating_sub(request.begin)),
            wall: milliseconds(request.wall_nanoseconds),
            cpu: milliseconds(request.cpu_nanoseconds),
            samples: request.samples,
            heap: request.peak_heap_bytes,
            note: match (request.begin < 0, request.is_unfinished) {
                (true, true) => "it began before the run, and was still running at its end",
                (true, false) => "it began before the run",
                (false, true) => "it was still running when the run ended",
                (false, false) => "",
            },
        };
        // A request that began long ago would leave no room for the run.
        let span = [request.begin, request.end];
        self.add(tables, "Request", FrameCategory::Php, span, data);
        for seen in spans(timeline, request) {
            let span = [seen.begin, seen.end];
            let function = beginning(seen.function, MAX_NAME).to_owned();
            if is_phase(seen.function) {
                let data = MarkerData::Phase { phase: function };
                self.add(tables, "Phase", FrameCategory::Engine, span, data);
            } else if seen.waits {
                let kind = kind(seen.function).unwrap_or_default();
                let data = MarkerData::Wait { function, kind };
                self.add(tables, "Wait", FrameCategory::Waiting, span, data);
            }
        }
    }

    /// Marks the samples without times.
    pub fn add_untimed(&mut self, tables: &mut SharedTables<'_>, begin: i64, end: i64) {
        let (name, data) = ("Samples without times", MarkerData::Untimed {});
        self.add(tables, name, FrameCategory::Other, [begin, end], data);
    }

    fn add(
        &mut self,
        tables: &mut SharedTables<'_>,
        name: &str,
        category: FrameCategory,
        span: [i64; 2],
        data: MarkerData,
    ) {
        let [begin, end] = span.map(|time| time.max(0));
        self.length += 1;
        self.data.push(data);
        self.name.push(tables.string(name));
        self.start_time.push(milliseconds(begin));
        self.end_time.push(milliseconds(end.max(begin)));
        self.phase.push(INTERVAL);
        self.category.push(category as usize);
    }
}

/// Moments of one leaf in sequence.
struct LeafSpan<'t> {
    function: &'t str,
    waits: bool,
    begin: i64,
    end: i64,
}

fn spans<'t>(timeline: &'t Timeline, request: &TimelineRequest) -> Vec<LeafSpan<'t>> {
    let mut spans: Vec<LeafSpan<'t>> = Vec::new();
    for moment in &request.moments {
        let Some(function) = leaf(timeline, moment) else {
            continue;
        };
        let begin = request.begin.saturating_add(moment.begin);
        let end = begin.saturating_add(moment.duration);
        match spans.last_mut() {
            Some(last) if last.function == function && last.waits == moment.waits => last.end = end,
            _ => spans.push(LeafSpan {
                function,
                waits: moment.waits,
                begin,
                end,
            }),
        }
    }
    spans
}

fn leaf<'t>(timeline: &'t Timeline, moment: &Moment) -> Option<&'t str> {
    let node = timeline.nodes.get(moment.node as usize)?;
    let function = timeline.functions.get(node.function as usize)?;
    Some(&function.name)
}
