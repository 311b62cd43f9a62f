use proptest::prelude::*;

use super::*;
use crate::stack::names::FunctionNames;

const MS: u64 = 1_000_000;
const HEAP: HeapSizes = HeapSizes { size: 5, peak: 9 };

fn taken(tid: i32, from: u64, to: u64) -> TakenSample {
    TakenSample {
        at: to,
        tid,
        summed_as: tid,
        from,
        to,
        ran: true,
        stack: SummedStack::of_phase(FunctionNames::COMPILING),
        leaf: FunctionNames::COMPILING,
        heap: None,
    }
}

fn of(number: u32, began: u64) -> Option<Of> {
    let mut values = Set::default();
    values[SampleLabel::Route as usize] = 3;
    Some(Of {
        number,
        began: Some(began),
        values,
        is_young: false,
    })
}

/// Busy and waiting time by route and step.
fn cells(rows: TimelineRows<u16>) -> Vec<(u16, i64, i64, i64)> {
    let (rows, other) = rows.finish();
    assert_eq!(other, []);
    let rows = rows.into_iter();
    let cells = rows.flat_map(|(route, row)| {
        let cells = row.into_iter();
        cells.map(move |it| (route, it.at, it.busy, it.waiting))
    });
    cells.collect()
}

#[test]
fn sample_counts_in_the_steps_it_spans() {
    let mut recorder = Recorder::new(1000 * MS);
    // The worker was attached before the run began.
    recorder.add(&taken(7, 990 * MS, 1010 * MS), of(1, 985 * MS));
    recorder.add(&taken(7, 1010 * MS, 1050 * MS), of(1, 985 * MS));
    let asleep = TakenSample {
        ran: false,
        ..taken(7, 1050 * MS, 1055 * MS)
    };
    recorder.add(&asleep, None);
    let ms = MS as i64;
    let expected = [
        (0, 2, 0, 5 * ms),
        (3, 0, 30 * ms, 0),
        (3, 1, 20 * ms, 0),
        (3, 2, 10 * ms, 0),
    ];
    assert_eq!(cells(recorder.routes), expected);
}

#[test]
fn each_minute_has_time_by_stack() {
    let mut recorder = Recorder::new(1000 * MS);
    for second in 0..150 {
        let from = (1000 + second * 1000) * MS;
        let stack = match second {
            0..60 => SummedStack::of_phase(FunctionNames::COMPILING),
            _ => SummedStack::of_phase(FunctionNames::LOADING),
        };
        let taken = TakenSample {
            stack,
            ran: second % 2 == 0,
            ..taken(7, from, from + 10 * MS)
        };
        recorder.add(&taken, of(1, 1000 * MS));
    }
    let number = |stack| u32::from(stack == SummedStack::of_phase(FunctionNames::LOADING));
    let parts = recorder.parts.renamed(|stack| Some(number(stack)));
    let parts = parts.finish(0, 150_000 * MS as i64);
    let stacks: Vec<_> = parts.iter().map(|part| part.stacks.clone()).collect();
    let ms = MS as i64;
    let expected = [
        (0, 300 * ms, 300 * ms),
        (1, 300 * ms, 300 * ms),
        (1, 150 * ms, 150 * ms),
    ];
    assert_eq!(stacks, expected.map(|stack| vec![stack.into()]));
    assert_eq!((parts[2].begin, parts[2].end), (120_000 * ms, 150_000 * ms));
}

#[test]
fn request_is_listed_as_last_known() {
    let mut recorder = Recorder::new(0);
    let mut unknown = of(1, 0).unwrap();
    unknown.values = Set::default();
    recorder.add(&taken(7, 0, 10), Some(unknown));
    recorder.add(&taken(7, 10, 20), of(1, 0));
    recorder.end();
    let routes = recorder
        .slowest
        .iter()
        .map(|it| it.values[SampleLabel::Route as usize]);
    assert_eq!(routes.collect::<Vec<_>>(), [3]);
}

#[test]
fn routes_that_found_no_room_are_one_row() {
    let mut recorder = Recorder::new(0);
    let mut of = of(1, 0).unwrap();
    of.values[SampleLabel::Route as usize] = OTHER_VALUE;
    recorder.add(&taken(7, 0, 10), Some(of));
    let (rows, other) = recorder.routes.finish();
    assert_eq!((rows.len(), other.len()), (0, 1));
}

#[test]
fn longer_run_has_longer_steps() {
    let mut recorder = Recorder::new(0);
    for second in 0..100 {
        recorder.add(
            &taken(7, second * 1000 * MS, (second + 1) * 1000 * MS),
            None,
        );
    }
    assert_eq!(recorder.step, 320 * MS);
    let cells = cells(recorder.routes);
    assert_eq!(cells.len(), 313);
    assert!(cells[..312].iter().all(|cell| cell.2 == 320 * MS as i64));
}

#[test]
fn request_has_its_samples_cpu_and_peak() {
    let mut recorder = Recorder::new(0);
    let with = |heap, from, to| TakenSample {
        heap: Some(heap),
        ..taken(7, from, to)
    };
    recorder.add(&with(HEAP, 0, 10), of(1, 4));
    recorder.add(&with(HeapSizes { size: 7, peak: 9 }, 10, 20), of(1, 3));
    let TakenSample { leaf, .. } = taken(7, 0, 10);
    recorder.give_cpu(7, 1, leaf, 6);
    recorder.idle(7);
    // It is known later, and belongs to the request that has ended.
    recorder.give_cpu(7, 1, leaf, 2);
    recorder.add(&with(HEAP, 20, 30), of(2, 21));
    recorder.add(&with(HeapSizes { size: 6, peak: 12 }, 30, 35), of(2, 21));
    recorder.end();
    let seen: Vec<_> = recorder.slowest.iter().collect();
    let told = seen.iter().map(|it| {
        (
            it.began,
            it.ended,
            it.samples,
            it.wall,
            it.cpu,
            it.peak_heap,
        )
    });
    let expected = [(3, 20, 2, 20, 8, 7), (21, 35, 2, 15, 0, 12)];
    assert_eq!(told.collect::<Vec<_>>(), expected);
    assert_eq!(
        [seen[0].is_unfinished, seen[1].is_unfinished],
        [false, true]
    );
}

#[test]
fn young_request_counts_once_old() {
    let young = |number| {
        of(number, 0).map(|of| Of {
            is_young: true,
            ..of
        })
    };
    let mut recorder = Recorder::new(0);
    recorder.add(&taken(7, 0, 10), young(1));
    recorder.add(&taken(8, 0, 10), young(2));
    assert_eq!(cells(std::mem::take(&mut recorder.routes)), []);
    recorder.add(&taken(8, 10, 20), of(2, 0));
    recorder.serves(7, 3);
    recorder.end();
    assert_eq!(cells(std::mem::take(&mut recorder.routes)), [(3, 0, 20, 0)]);
    let seen: Vec<_> = recorder
        .slowest
        .iter()
        .map(|it| (it.summed_as, it.wall))
        .collect();
    assert_eq!(seen, [(8, 20)]);
}

#[test]
fn slowest_requests_are_listed() {
    let mut recorder = Recorder::new(0);
    for number in 1..=5000_u32 {
        let duration = 1 + u64::from(number.wrapping_mul(2_654_435_761) % 100_000);
        recorder.add(&taken(7, 0, duration), of(number, 0));
        recorder.idle(7);
    }
    let slowest = recorder.slowest;
    let durations: Vec<u64> = slowest.iter().map(SeenRequest::duration).collect();
    assert!(durations.is_sorted_by(|one, other| one >= other));
    assert_eq!((durations.len(), slowest.unlisted), (MAX_REQUESTS, 3000));
    let recorded: Vec<bool> = slowest.iter().map(|it| !it.moments.is_empty()).collect();
    assert!(recorded[..MAX_RECORDED].iter().all(|it| *it));
    assert!(!recorded[MAX_RECORDED..].contains(&true));
}

#[test]
fn memory_is_bounded_whatever_requests_do() {
    let mut recorder = Recorder::new(0);
    let stacks = [FunctionNames::COMPILING, FunctionNames::LOADING].map(SummedStack::of_phase);
    let (workers, turns) = (300, 1500);
    for turn in 0..turns {
        for worker in 1..=workers {
            let at = u64::try_from(turn).unwrap() * 10 * MS;
            let mut of = of(u32::try_from(worker).unwrap(), 0).unwrap();
            of.values[SampleLabel::Route as usize] = u16::try_from(worker).unwrap();
            let stack = stacks[turn % 2];
            recorder.add(
                &TakenSample {
                    stack,
                    ..taken(worker, at, at + 10 * MS)
                },
                Some(of),
            );
        }
    }
    let live: usize = recorder
        .live
        .values()
        .map(|live| live.moments.list().len())
        .sum();
    assert!(live <= MAX_LIVE_MOMENTS, "{live}");
    recorder.end();
    let moments = recorder.slowest.iter().map(|seen| seen.moments.len());
    assert!(moments.sum::<usize>() <= MAX_RECORDED * MAX_MOMENTS);
}

proptest! {
    #[test]
    fn cells_are_the_time_of_the_samples(
        samples in prop::collection::vec((1_u64..5_000 * MS, any::<bool>(), 0_u32..4, any::<bool>()), 1..60),
    ) {
        let (mut recorder, mut at, mut times) = (Recorder::new(50 * MS), 0, (0, 0));
        for (length, ran, number, is_known) in samples {
            let taken = TakenSample { ran, ..taken(7, at, at + length) };
            recorder.add(&taken, of(number + 1, at).filter(|_| is_known));
            let length_signed = length as i64;
            times = if ran { (times.0 + length_signed, times.1) } else { (times.0, times.1 + length_signed) };
            at += length;
        }
        let sums = |cells: Vec<Slot>| cells.iter().fold((0, 0), |sum, it| (sum.0 + it.busy, sum.1 + it.waiting));
        let (workers, _) = recorder.workers.finish();
        let (routes, _) = recorder.routes.finish();
        let slots = workers.into_iter().flat_map(|(_, row)| row).collect();
        prop_assert_eq!(sums(slots), times);
        let slots = routes.into_iter().flat_map(|(_, row)| row).collect();
        prop_assert_eq!(sums(slots), times);
    }
}
