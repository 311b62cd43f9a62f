use proptest::prelude::*;

use super::*;

/// A request of a worker: when it began, its route, and the time of one function.
#[derive(Debug, Clone)]
struct CellRequest {
    group: u32,
    began: i64,
    route: u32,
    function: u32,
    wall: i64,
}

fn all_seen() -> impl Strategy<Value = Vec<CellRequest>> {
    let one = (0..16_u32, 0..600_i64, 0..3_u32, 0..40_u32, 0..1_000_i64);
    let one = one.prop_map(|(group, began, route, function, wall)| CellRequest {
        group,
        began: began * 1_000_000_000,
        route,
        function,
        wall,
    });
    prop::collection::vec(one, 0..200)
}

fn table_of(all: &[CellRequest], limits: CellLimits) -> CellTable {
    let mut sums = CellSums::new(limits);
    for seen in all {
        let owner = CellOwner {
            pod: 0,
            group: seen.group,
        };
        let at = sums.place(owner, seen.began, seen.route);
        sums.add_time(at, Some(seen.function), seen.wall, seen.wall / 2);
        sums.add_requests(at, 1, 2);
        sums.fit();
        assert!(sums.cells.len() <= limits.cells && sums.times.len() <= limits.times);
    }
    let function = |key: u32| TreeFunction {
        name: format!("f{key}"),
        file: String::new(),
    };
    sums.finish(
        &[String::new()],
        |key| ["", "/a", "/b"][key as usize],
        function,
    )
}

fn sums(table: &CellTable) -> [i64; 4] {
    let requests: u64 = table.cells.iter().map(|it| it.requests).sum();
    let samples: u64 = table.cells.iter().map(|it| it.samples).sum();
    let wall = table.times.iter().map(|it| it.wall).sum();
    let cpu = table.times.iter().map(|it| it.cpu).sum();
    [requests as i64, samples as i64, wall, cpu]
}

fn expected(all: &[CellRequest]) -> [i64; 4] {
    let count = all.len() as i64;
    let wall = all.iter().map(|it| it.wall).sum();
    let cpu = all.iter().map(|it| it.wall / 2).sum();
    [count, 2 * count, wall, cpu]
}

proptest! {
    #[test]
    fn no_time_or_request_is_lost(all in all_seen(), cells in 3_usize..50, times in 50_usize..90) {
        let table = table_of(&all, CellLimits { cells, times });
        prop_assert!(table.is_whole());
        prop_assert_eq!(sums(&table), expected(&all));
    }

    #[test]
    fn merged_tables_have_all_of_both(one in all_seen(), other in all_seen(), began in 0_i64..90) {
        let mut merger = CellMerger::default();
        merger.add(&table_of(&one, CellLimits::FILE), "a", 0);
        merger.add(&table_of(&other, CellLimits::FILE), "b", began * 1_000_000_000);
        let table = merger.finish().unwrap();
        prop_assert!(table.is_whole());
        prop_assert_eq!(&table.pods, &["a", "b"]);
        let both: Vec<CellRequest> = one.into_iter().chain(other).collect();
        prop_assert_eq!(sums(&table), expected(&both));
    }
}

#[test]
fn cells_without_room_become_coarser_first() {
    let all: Vec<CellRequest> = (0..640)
        .map(|index| CellRequest {
            group: index % 16,
            began: i64::from(index) * 1_000_000_000,
            route: 0,
            function: index % 3,
            wall: 10,
        })
        .collect();
    let table = table_of(
        &all,
        CellLimits {
            cells: 64,
            times: 190,
        },
    );
    assert!(table.cells.len() > 16, "{}", table.cells.len());
    assert_eq!(table.other_nanoseconds, 0);
    assert!(table.slice_nanoseconds > FIRST_SLICE);
}

#[test]
fn functions_without_room_are_in_other() {
    let all: Vec<CellRequest> = (0..100)
        .map(|function| CellRequest {
            group: 0,
            began: 0,
            route: 0,
            function,
            wall: i64::from(function),
        })
        .collect();
    let table = table_of(
        &all,
        CellLimits {
            cells: 4,
            times: 60,
        },
    );
    // Twice, the half with the least time was moved there.
    assert_eq!(table.other_nanoseconds, (0..=60).sum::<i64>());
    assert_eq!(table.functions.len(), 40);
    assert_eq!(table.functions[0].name, OTHER);
}

#[test]
fn coarse_slices_of_a_pod_leave_others_fine() {
    let seen = |began| CellRequest {
        group: 0,
        began,
        route: 0,
        function: 0,
        wall: 10,
    };
    let all: Vec<CellRequest> = (0..20).map(|it| seen(it * FIRST_SLICE)).collect();
    let mut coarse = table_of(&all[..1], CellLimits::FILE);
    coarse.slice_nanoseconds = FIRST_SLICE << 20;
    let mut merger = CellMerger::default();
    merger.add(&coarse, "a", 0);
    merger.add(&table_of(&all, CellLimits::FILE), "b", 0);
    let table = merger.finish().unwrap();
    assert_eq!(table.slice_nanoseconds, FIRST_SLICE);
    assert_eq!(table.cells.iter().filter(|it| it.pod == 1).count(), 20);
}

#[test]
fn functions_of_a_pod_leave_names_to_others() {
    let name = |key: u32| TreeFunction {
        name: format!("f{key}"),
        file: String::new(),
    };
    let of_pod = |functions: std::ops::Range<u32>, wall: i64| {
        let mut sums = CellSums::new(CellLimits::FILE);
        let owner = CellOwner { pod: 0, group: 0 };
        for function in functions {
            let at = sums.place(owner, 0, 0);
            sums.add_time(at, Some(function), wall, 0);
        }
        sums.finish(&[String::new()], |_| "/", name)
    };
    let mut merger = CellMerger::default();
    merger.add(&of_pod(100..3_000, MAX_TIME / 4_000), "hostile", 0);
    merger.add(&of_pod(0..40, 1_000), "web", 0);
    let table = merger.finish().unwrap();
    let web = table.each().find(|(cell, _)| cell.pod == 1);
    let (_, times) = web.unwrap();
    assert_eq!(times.len(), 40);
    assert!(times.iter().all(|time| time.function > 0));
}

#[test]
fn none_is_merged_of_none() {
    assert_eq!(CellMerger::default().finish(), None);
}
