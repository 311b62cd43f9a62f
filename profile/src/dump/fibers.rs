//! The suspended fibers of workers, by their stacks.
//!
//! Invariant: each fiber that a snapshot's profile has is in one group of one worker.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{DumpFrame, DumpWorker, line};
use crate::builder::FIBERS;
use crate::labels::{OF_ENGINES, OF_WORKERS};
use crate::proto::Profile;
use crate::top_levels::plain;
use crate::{Lookup, SampleFrame, SampleTag};

/// The root of their stacks.
pub const SUSPENDED: &str = "[suspended]";
/// The most groups, and frames of each, in the text. JSON has all of them.
const GROUPS: usize = 64;
const FRAMES: usize = 16;

/// Pod, container, process and thread.
pub(super) type DumpedWorkerKey = (String, String, i64, i64);

/// Suspended fibers with the same stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SuspendedFibers {
    /// How many they are.
    pub count: i64,
    /// Leaf first.
    pub stack: Vec<DumpFrame>,
}

impl SuspendedFibers {
    /// The labels of the sample of a worker's fibers, which tell the worker.
    #[must_use]
    pub fn labels(worker: &DumpWorker) -> Vec<SampleTag<'_>> {
        let ([php, sapi], [pid, thread]) = (OF_ENGINES, OF_WORKERS);
        let mut labels = vec![
            SampleTag::Str(php, &worker.php),
            SampleTag::Str(sapi, &worker.sapi),
            SampleTag::Num(pid, worker.pid, ""),
        ];
        labels.extend(worker.thread.map(|id| SampleTag::Num(thread, id, "")));
        labels
    }
}

/// Adds the fibers of the workers, if the profile has any.
pub(super) fn add(
    profile: &Profile,
    lookup: &Lookup<'_>,
    found: &mut BTreeMap<DumpedWorkerKey, (i64, DumpWorker)>,
) {
    let Some(index) = profile.value_index(FIBERS[0].0) else {
        return;
    };
    for (_, worker) in found.values_mut() {
        worker.fibers = Some(Vec::new());
    }
    for sample in &profile.sample {
        let count = sample.value.get(index).copied().unwrap_or_default();
        let label = |key: &str| {
            let mut labels = sample.label.iter();
            labels.find(|label| profile.string(label.key) == key)
        };
        let word = |key| label(key).map(|it| profile.string(it.str).to_owned());
        let number = |key| label(key).map(|it| it.num);
        let key = (
            word("pod").unwrap_or_default(),
            word("container").unwrap_or_default(),
            number("pid").unwrap_or_default(),
            number("thread").unwrap_or_default(),
        );
        let worker = found.get_mut(&key).filter(|_| count > 0);
        let fibers = worker.and_then(|(_, worker)| worker.fibers.as_mut());
        let Some(fibers) = fibers else { continue };
        let mut stack: Vec<_> = lookup.frames(sample).map(dump_frame).collect();
        stack.pop_if(|root| root.function == SUSPENDED);
        fibers.push(SuspendedFibers { count, stack });
    }
    for (_, worker) in found.values_mut() {
        worker.fibers.iter_mut().for_each(|it| order(it));
    }
}

/// What tells a worker from others.
pub(super) fn key_of(worker: &DumpWorker) -> DumpedWorkerKey {
    (
        worker.pod.clone().unwrap_or_default(),
        worker.container.clone().unwrap_or_default(),
        worker.pid,
        worker.thread.unwrap_or_default(),
    )
}

/// A frame as a dump has it.
pub(super) fn dump_frame(frame: SampleFrame<'_>) -> DumpFrame {
    DumpFrame {
        function: plain(frame.name, frame.file).into_owned(),
        file: frame.file.to_owned(),
        line: frame.line,
    }
}

/// The part of the last line about all fibers.
pub(super) fn all(workers: &[DumpWorker]) -> String {
    let counts = workers.iter().map(count);
    match counts.fold(0_i64, i64::saturating_add) {
        0 => String::new(),
        1 => ", 1 fiber suspended".to_owned(),
        count => format!(", {count} fibers suspended"),
    }
}

/// How many fibers a worker's groups have.
pub(super) fn count(worker: &DumpWorker) -> i64 {
    let groups = worker.fibers.iter().flatten();
    groups.fold(0, |sum, group| sum.saturating_add(group.count))
}

/// The largest groups first.
fn order(fibers: &mut [SuspendedFibers]) {
    let places = |group: &SuspendedFibers| {
        let frames = group.stack.iter();
        frames
            .map(|it| (it.function.clone(), it.line))
            .collect::<Vec<_>>()
    };
    fibers.sort_by_cached_key(|group| (-group.count, places(group)));
}

/// The lines of a worker's fibers.
pub(super) fn text(worker: &DumpWorker) -> String {
    let groups = worker.fibers.as_deref().unwrap_or_default();
    let mut text = String::new();
    for group in groups.iter().take(GROUPS) {
        text += &match group.count {
            1 => "  1 fiber is suspended:\n".to_owned(),
            count => format!("  {count} fibers are suspended:\n"),
        };
        for frame in group.stack.iter().take(FRAMES) {
            text += &(line(frame) + "\n");
        }
        if let Some(more @ 1..) = group.stack.len().checked_sub(FRAMES) {
            text += &format!("    and {more} more\n");
        }
    }
    if let Some(more @ 1..) = groups.len().checked_sub(GROUPS) {
        text += &format!("  and {more} more stacks of suspended fibers\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::{DumpState, json, text, workers};
    use super::*;
    use crate::{Builder, FrameRef, Settings};

    /// A snapshot of a worker that is idle, with fibers in these functions.
    fn snapshot(places: &[(&str, i64)]) -> Vec<DumpWorker> {
        let mut builder = Builder::new(Settings::default().with_fibers());
        let frame = |name| FrameRef {
            name,
            file: "/srv/a.php",
            line: 3,
            ..FrameRef::default()
        };
        let worker = DumpWorker {
            pid: 7,
            ..DumpWorker::of_state(DumpState::Idle)
        };
        let memory = super::super::MemoryLabels::of(None);
        let idle = [frame("[idle]")];
        builder.add(&idle, &[1, 0, 0, 0, 0], &worker.labels(&memory));
        for (place, count) in places {
            let root = FrameRef {
                name: SUSPENDED,
                ..FrameRef::default()
            };
            let frames = [frame("Fiber::suspend"), frame(place), root];
            let labels = SuspendedFibers::labels(&worker);
            builder.add(&frames, &[0, *count, 0, 0, 0], &labels);
        }
        workers(&builder.finish())
    }

    #[test]
    fn fibers_are_lines_below_their_worker() {
        let workers = snapshot(&[("rare", 1), ("await", 25)]);
        let expected = "pid 7: is idle\n  \
            25 fibers are suspended:\n    \
            Fiber::suspend                   /srv/a.php:3\n    \
            await                            /srv/a.php:3\n  \
            1 fiber is suspended:\n    \
            Fiber::suspend                   /srv/a.php:3\n    \
            rare                             /srv/a.php:3\n\n\
            0 waiting, 0 running, 1 idle, 26 fibers suspended\n";
        assert_eq!(text(&workers, 0), expected);
    }

    #[test]
    fn programs_get_each_group_with_its_count() {
        let workers = snapshot(&[("await", 25)]);
        let document: serde_json::Value = serde_json::from_str(&json(&workers, 0)).unwrap();
        let fibers = &document["workers"][0]["fibers"];
        assert_eq!(
            (&fibers[0]["count"], &fibers[1]),
            (&25.into(), &serde_json::Value::Null)
        );
        assert_eq!(fibers[0]["stack"][1]["function"], "await");
        let none = snapshot(&[]);
        assert_eq!(none[0].fibers.as_deref(), Some(&[][..]));
    }

    #[test]
    fn text_has_so_much_of_fibers_at_most() {
        let names: Vec<_> = (0..GROUPS + 3)
            .map(|number| format!("f{number:03}"))
            .collect();
        let places: Vec<_> = names.iter().map(|name| (name.as_str(), 2)).collect();
        let text = text(&snapshot(&places), 0);
        assert!(text.contains("f063 ") && !text.contains("f064"), "{text}");
        assert!(text.contains("  and 3 more stacks of suspended fibers\n"));
    }
}
