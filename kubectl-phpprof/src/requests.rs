//! `requests`: the slowest HTTP requests that a run saw, from its list or a file of it.
//!
//! Invariant: the list cannot move the terminal's cursor, and no rates are derived from it:
//! sampling sees short requests in proportion to their duration.

use phpprof_profile::Amount;
use phpprof_profile::timeline::{Timeline, TimelineError, TimelineRequest, decode};
use serde_json::{Value, json};

use crate::cli::RequestsFlags;
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::output::OutputForm;
use crate::screen::Screen;
use crate::source::list_of;
use crate::table::Table;

pub async fn run(
    global: &Global,
    arguments: &RequestsFlags,
    screen: Screen,
) -> Result<String, Failure> {
    let output = arguments.output.read()?;
    let bytes = list_of(global, &arguments.source).await?;
    let list = decode(&bytes).map_err(|error| unreadable(&arguments.source, &error))?;
    let chosen = chosen(&list, arguments);
    if chosen.is_empty() {
        eprintln!("No requests in {}.", arguments.source);
    }
    let more = list.requests.len().saturating_sub(chosen.len()) as u64 + list.unlisted_requests;
    if more > 0 && output.is_table() {
        eprintln!(
            "{more} more requests were seen. Sampling sees short requests in proportion to their duration."
        );
    }
    Ok(text(&list, &chosen, &output, screen.width))
}

pub fn unreadable(name: &str, error: &TimelineError) -> Failure {
    Failure::new(
        Exit::Failed,
        format!("{name} has no list of requests: {error}"),
        "name a request that has Route among its labels, or a file that ends with requests.json.gz",
    )
}

/// The slowest requests of a route, or of all.
fn chosen<'a>(list: &'a Timeline, arguments: &RequestsFlags) -> Vec<&'a TimelineRequest> {
    let route = arguments.route.as_deref();
    let requests = list.requests.iter();
    let of_route = requests.filter(|request| route.is_none_or(|route| request.route == route));
    of_route.take(arguments.limit).collect()
}

pub fn text(
    list: &Timeline,
    chosen: &[&TimelineRequest],
    output: &OutputForm,
    width: Option<usize>,
) -> String {
    let width = width.filter(|_| !output.is_wide());
    match output.of_data(|| data(list, chosen), "/requests") {
        Some(text) => text,
        None if chosen.is_empty() => String::new(),
        None => table(chosen).text(width),
    }
}

fn data(list: &Timeline, chosen: &[&TimelineRequest]) -> Value {
    // The moments of a request are for the page. Here they would be mere numbers.
    let requests: Vec<TimelineRequest> = chosen
        .iter()
        .map(|request| TimelineRequest {
            moments: Vec::new(),
            ..(*request).clone()
        })
        .collect();
    json!({
        "beganUnixNanoseconds": list.began_unix_nanoseconds,
        "durationNanoseconds": list.duration_nanoseconds,
        "unlistedRequests": list.unlisted_requests,
        "requests": requests,
    })
}

fn table(chosen: &[&TimelineRequest]) -> Table {
    let mut table = Table::new(&[
        ">DURATION",
        "?METHOD",
        "<ROUTE",
        "?WORKER",
        ">BEGIN",
        ">CPU",
        ">WAITING",
        "?>HEAP",
        "?>SAMPLES",
        "?TRACE",
    ]);
    let or_none = |text: &str| {
        if text.is_empty() {
            "-".to_owned()
        } else {
            text.to_owned()
        }
    };
    for request in chosen {
        let mark = if request.is_unfinished { ">" } else { "" };
        let waiting = request
            .wall_nanoseconds
            .saturating_sub(request.cpu_nanoseconds);
        let heap = match request.peak_heap_bytes {
            0 => "-".to_owned(),
            bytes => amount("bytes", i64::try_from(bytes).unwrap_or(i64::MAX)),
        };
        table.row(vec![
            format!("{mark}{}", time(request.duration())),
            or_none(&request.method),
            or_none(&request.route),
            worker(request),
            time(request.begin),
            time(request.cpu_nanoseconds),
            time(waiting.max(0)),
            heap,
            request.samples.to_string(),
            or_none(&request.trace_id),
        ]);
    }
    table
}

/// The pod, if it is known, with the process, and with the thread if the process has several
/// workers.
fn worker(request: &TimelineRequest) -> String {
    let TimelineRequest {
        pod, pid, thread, ..
    } = request;
    let pod = if pod.is_empty() {
        String::new()
    } else {
        format!("{pod}/")
    };
    match thread {
        0 => format!("{pod}{pid}"),
        thread => format!("{pod}{pid}/{thread}"),
    }
}

fn time(nanoseconds: i64) -> String {
    amount("nanoseconds", nanoseconds)
}

fn amount(unit: &str, value: i64) -> String {
    Amount::of(unit, value).text(value)
}

#[cfg(test)]
mod tests {
    use phpprof_profile::timeline::Moment;

    use super::*;
    use crate::output::ListForm;

    #[test]
    fn lists_of_requests_are_what_they_were() {
        let ms = 1_000_000;
        let slow = TimelineRequest {
            begin: 12_040 * ms,
            end: 14_350 * ms,
            pod: "web-7d9f5c6b8-x2x4z".to_owned(),
            pid: 17,
            method: "GET".to_owned(),
            route: "/shop/{id}/cart".to_owned(),
            trace_id: "0af7651916cd43dd8448eb211c80319c".to_owned(),
            samples: 229,
            wall_nanoseconds: 2_310 * ms,
            cpu_nanoseconds: 310 * ms,
            peak_heap_bytes: 40_000_000,
            moments: vec![Moment::default()],
            ..TimelineRequest::default()
        };
        let unfinished = TimelineRequest {
            begin: -1_400 * ms,
            end: 600 * ms,
            is_unfinished: true,
            pid: 19,
            thread: 21,
            // Text from a target stays in its line.
            route: "/\u{1b}[2J".to_owned(),
            ..TimelineRequest::default()
        };
        let list = Timeline {
            requests: vec![slow, unfinished],
            ..Timeline::default()
        };
        let all: Vec<&TimelineRequest> = list.requests.iter().collect();
        for (name, form) in [("table", ListForm::Table), ("json", ListForm::Json)] {
            for width in [80, 200] {
                let text = text(&list, &all, &OutputForm::Form(form), Some(width));
                insta::assert_snapshot!(format!("requests_{name}_{width}"), text);
            }
        }
        assert_eq!(text(&list, &[], &OutputForm::default(), None), "");
        let of = |form, width| text(&list, &all, &OutputForm::Form(form), width);
        let whole = of(ListForm::Table, None);
        assert_eq!(of(ListForm::Wide, Some(80)), whole);
        assert!(of(ListForm::Yaml, None).contains("\nrequests:\n"));
    }
}
