//! The file of a timeline: gzip of JSON. It is read within bounds, and written so that it fits.
//!
//! Invariant: memory is bounded for any input (the file is decompressed and parsed as a stream, and
//! each list ends at its bound). The result of [`decode`] is complete: every index exists, cells
//! and moments are in order, and only values that may be negative are. A file of a newer version is
//! refused because of its version, whatever else it has.

use std::io::{self, BufReader, Read as _, Write};

use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};

use crate::bounds;

use super::bounded::MAX_TIME;
use super::{
    CellTable, FIRST_STEP, MAX_RECORDED, MAX_STEPS, MAX_STRING, Moment, Timeline, TimelineCell,
    TimelinePart, TimelineRequest, TimelineTree, VERSION, VERSION_WITH_CELLS,
};

/// The most bytes of the stored file. A larger one is refused unread.
pub const MAX_BYTES: usize = 4 << 20;
/// The most bytes of the JSON in it.
const MAX_INFLATED: u64 = 16 << 20;
/// Why a file is not a timeline.
#[derive(Debug, thiserror::Error)]
pub enum TimelineError {
    /// Over [`MAX_BYTES`]. Nothing was read.
    #[error("the file has more than {MAX_BYTES} bytes")]
    TooLarge,
    /// The decompressed file is too large.
    #[error("the file has more than {MAX_INFLATED} bytes when it is decompressed")]
    InflatedTooLarge,
    /// The JSON has another structure.
    #[error("the file is not a timeline: {0}")]
    Json(#[source] serde_json::Error),
    /// Another version of phpprof has written it.
    #[error(
        "the file has version {0}, but this phpprof reads versions {VERSION} to {VERSION_WITH_CELLS}"
    )]
    Version(u32),
    /// An index does not exist, or a time is out of order. The text says where.
    #[error("the timeline is incomplete: {0}")]
    NotWhole(&'static str),
}

/// Reads an untrusted file.
///
/// # Errors
/// A [`TimelineError`].
pub fn decode(file: &[u8]) -> Result<Timeline, TimelineError> {
    match decode_without_bad_cells(file)? {
        (_, Some(fault)) => Err(TimelineError::NotWhole(fault)),
        (timeline, None) => Ok(timeline),
    }
}

/// Reads an untrusted file, whose table of cells is left out if something is wrong with it. Also
/// returns what that is.
///
/// # Errors
/// A [`TimelineError`] about anything else.
pub fn decode_without_bad_cells(
    file: &[u8],
) -> Result<(Timeline, Option<&'static str>), TimelineError> {
    if file.len() > MAX_BYTES {
        return Err(TimelineError::TooLarge);
    }
    // What a newer version has besides could be anything, so its number comes first.
    let FileVersion { version } = parsed(file)?;
    if !(VERSION..=VERSION_WITH_CELLS).contains(&version) {
        return Err(TimelineError::Version(version));
    }
    let mut timeline: Timeline = parsed(file)?;
    if let Some(fault) = fault(&timeline) {
        return Err(TimelineError::NotWhole(fault));
    }
    let fault = timeline.cells.as_ref().and_then(fault_of_cells);
    timeline.cells = timeline.cells.filter(|_| fault.is_none());
    Ok((timeline, fault))
}

/// The version of a file, whatever else is in it.
#[derive(Deserialize)]
struct FileVersion {
    version: u32,
}

/// Parses the JSON in a file.
fn parsed<'de, T: Deserialize<'de>>(file: &[u8]) -> Result<T, TimelineError> {
    let mut inflated = BufReader::new(GzDecoder::new(file).take(MAX_INFLATED));
    let read = T::deserialize(&mut serde_json::Deserializer::from_reader(&mut inflated));
    if inflated.get_ref().limit() == 0 {
        return Err(TimelineError::InflatedTooLarge);
    }
    read.map_err(TimelineError::Json)
}

/// Writes the file.
///
/// # Errors
/// None that a user can fix, because the file is written to memory.
pub fn encode(timeline: &Timeline) -> io::Result<Vec<u8>> {
    let mut timeline = timeline.clone();
    timeline.set_version();
    Ok(written(&timeline)?.0)
}

/// The file, and the length of the JSON in it.
fn written(timeline: &Timeline) -> io::Result<(Vec<u8>, u64)> {
    let mut json = CountedWriter {
        gzip: GzEncoder::new(Vec::new(), Compression::default()),
        count: 0,
    };
    timeline.serialize(&mut serde_json::Serializer::new(&mut json))?;
    Ok((json.gzip.finish()?, json.count))
}

struct CountedWriter {
    gzip: GzEncoder<Vec<u8>>,
    count: u64,
}

impl Write for CountedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.gzip.write(bytes)?;
        self.count += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.gzip.flush()
    }
}

/// Writes a file of at most this many bytes, which [`decode`] takes. To make it fit, it first drops
/// the moments of the faster half of the recorded requests, repeatedly. Without moments, it halves
/// the number of stacks in the parts. Without stacks, it drops the faster half of the requests.
///
/// # Errors
/// As [`encode`].
pub fn encode_within(mut timeline: Timeline, most: usize) -> io::Result<Vec<u8>> {
    timeline.set_version();
    loop {
        let (file, json) = written(&timeline)?;
        let fits = file.len() <= most && json < MAX_INFLATED;
        if fits || timeline.requests.is_empty() {
            return Ok(file);
        }
        timeline.shrink();
    }
}

impl Timeline {
    /// Sets the first version that has all of its fields.
    pub(super) fn set_version(&mut self) {
        self.version = match self.cells {
            Some(_) => VERSION_WITH_CELLS,
            None => VERSION,
        };
    }

    /// Drops the larger part of the data that is needed least.
    fn shrink(&mut self) {
        let recorded = self.recorded().count();
        let stacks = self.parts.iter().map(|part| part.stacks.len()).max();
        if let (0, Some(stacks @ 1..)) = (recorded, stacks) {
            self.parts.iter_mut().for_each(|part| part.keep(stacks / 2));
            return TimelineTree::default().replace(self);
        }
        if recorded == 0 {
            let kept = self.requests.len() / 2;
            self.unlisted_requests += (self.requests.len() - kept) as u64;
            self.requests.truncate(kept);
            return;
        }
        let mut before = 0;
        for request in &mut self.requests {
            let is_recorded = !request.moments.is_empty();
            if is_recorded && before >= recorded / 2 {
                request.moments = Vec::new();
                self.cut += 1;
            }
            before += usize::from(is_recorded);
        }
        TimelineTree::default().replace(self);
    }

    fn recorded(&self) -> impl Iterator<Item = &TimelineRequest> {
        let requests = self.requests.iter();
        requests.filter(|request| !request.moments.is_empty())
    }
}

/// The smallest step with which this time has at most [`MAX_STEPS`] steps.
#[must_use]
pub(super) fn step_of(nanoseconds: i64) -> i64 {
    let mut step = FIRST_STEP;
    while step < MAX_TIME / 2 && nanoseconds > step.saturating_mul(MAX_STEPS as i64) {
        step *= 2;
    }
    step
}

/// The fault of a table of cells, if any.
fn fault_of_cells(cells: &CellTable) -> Option<&'static str> {
    if !cells.is_whole() {
        return Some("its table of cells");
    }
    (!cells.has_short_texts()).then_some("a name in its table of cells")
}

/// The fault of a timeline without its cells, if any.
fn fault(timeline: &Timeline) -> Option<&'static str> {
    let times = 0..=MAX_TIME;
    let step = timeline.step_nanoseconds;
    let has_step =
        times.contains(&step) && step % FIRST_STEP == 0 && (step / FIRST_STEP).count_ones() == 1;
    let has_times = times.contains(&timeline.began_unix_nanoseconds)
        && times.contains(&timeline.duration_nanoseconds);
    let texts = |request: &TimelineRequest| {
        let texts = [
            &request.pod,
            &request.method,
            &request.route,
            &request.script,
            &request.trace_id,
        ];
        texts.into_iter().all(|text| is_short(text))
    };
    let mut functions = timeline.functions.iter();
    let rows = timeline.workers.iter().all(|row| is_short(&row.pod))
        && timeline.routes.iter().all(|row| is_short(&row.route));
    let cells = timeline.workers.iter().map(|row| &row.cells);
    let mut cells = cells.chain(timeline.routes.iter().map(|row| &row.cells));
    let count = timeline.nodes.len();
    let mut nodes = timeline.nodes.iter().enumerate();
    let mut parts = timeline.parts.iter();
    let longest_first = timeline.requests.iter().map(TimelineRequest::duration);
    let checks = [
        (has_step, "its step"),
        (has_times, "its times"),
        (rows, "the name of a row"),
        (cells.all(|cells| are_ordered(cells)), "the cells of a row"),
        (
            timeline.requests.iter().all(has_sense),
            "the times of a request",
        ),
        (timeline.requests.iter().all(texts), "a text of a request"),
        (
            longest_first.is_sorted_by(|one, other| one >= other),
            "the order of its requests",
        ),
        (
            timeline.recorded().count() <= MAX_RECORDED,
            "the number of recorded requests",
        ),
        (
            timeline
                .recorded()
                .all(|it| are_moments(&it.moments, count)),
            "the moments of a request",
        ),
        (parts.all(|part| is_part(part, count)), "a part of the run"),
        (
            functions.all(|it| {
                it.name.len() <= bounds::MAX_STRING && it.file.len() <= bounds::MAX_STRING
            }),
            "the name of a function",
        ),
        (
            nodes.all(|(index, node)| {
                node.parent.is_none_or(|parent| (parent as usize) < index)
                    && (node.function as usize) < timeline.functions.len()
            }),
            "its call tree",
        ),
    ];
    let mut checks = checks.into_iter();
    checks.find_map(|(is_right, what)| (!is_right).then_some(what))
}

fn is_short(text: &str) -> bool {
    text.len() <= MAX_STRING
}

fn are_ordered(cells: &[TimelineCell]) -> bool {
    let is_right = |cell: &TimelineCell| {
        (cell.step as usize) < MAX_STEPS
            && (0..=MAX_TIME).contains(&cell.busy)
            && (0..=MAX_TIME).contains(&cell.waiting)
    };
    cells.iter().all(is_right) && cells.is_sorted_by(|one, next| one.step < next.step)
}

fn has_sense(request: &TimelineRequest) -> bool {
    (-MAX_TIME..=MAX_TIME).contains(&request.begin)
        && (request.begin..=MAX_TIME).contains(&request.end)
        && (0..=MAX_TIME).contains(&request.wall_nanoseconds)
        && (0..=MAX_TIME).contains(&request.cpu_nanoseconds)
}

fn is_part(part: &TimelinePart, nodes: usize) -> bool {
    let times = 0..=MAX_TIME;
    let is_right = |stack: &super::PartStack| {
        times.contains(&stack.busy)
            && times.contains(&stack.waiting)
            && (stack.node as usize) < nodes
    };
    (0..=part.end).contains(&part.begin)
        && times.contains(&part.end)
        && times.contains(&part.other)
        && part.stacks.iter().all(is_right)
}

fn are_moments(moments: &[Moment], nodes: usize) -> bool {
    let is_right = |moment: &Moment| {
        (0..=MAX_TIME).contains(&moment.begin)
            && (0..=MAX_TIME).contains(&moment.duration)
            && (moment.node as usize) < nodes
    };
    moments.iter().all(is_right)
        && moments.is_sorted_by(|one, next| one.begin + one.duration <= next.begin)
}

#[cfg(test)]
mod tests;
