//! Checks a list of requests: its cells add up to the profile's time, and each request's moments
//! are in order.

use anyhow::{Context as _, Result, ensure};
use phpprof_profile::timeline::{Timeline, TimelineCell, TimelineRequest};

use super::recorded::Recorded;

/// In percentage points: both are of the same samples, but a cell of the list has whole
/// milliseconds.
const ROUNDED: f64 = 3.0;

fn total(cells: &[TimelineCell]) -> i64 {
    cells.iter().map(|cell| cell.busy + cell.waiting).sum()
}

/// Checks that requests whose route is known have their wall and CPU time in the table that
/// verdicts are from.
fn check_cell_table(recorded: &Recorded, timeline: &Timeline) -> Result<()> {
    let table = timeline.cells.as_ref().context("no table of cells")?;
    let sums = [
        (
            "wall",
            table.times.iter().map(|time| time.wall).sum::<i64>(),
        ),
        ("cpu", table.times.iter().map(|time| time.cpu).sum()),
    ];
    for (sample_type, sum) in sums {
        let all = recorded.with_label("route", sample_type);
        let all = all.with_context(|| format!("no {sample_type}"))?;
        ensure!(
            (sum - all).abs() * 20 < all,
            "{sum} ns of {sample_type} in the cells in place of {all}"
        );
    }
    Ok(())
}

/// Checks that the cells of the routes, and those of this many workers, are the wall time of the
/// profile.
pub fn check_cells(recorded: &Recorded, workers: usize) -> Result<()> {
    let timeline = recorded.timeline.as_ref().context("no list")?;
    let wall = recorded.profile.value_index("wall").unwrap_or(0);
    let all: i64 = recorded
        .profile
        .sample
        .iter()
        .map(|it| it.value[wall])
        .sum();
    let by_worker: i64 = timeline.workers.iter().map(|row| total(&row.cells)).sum();
    let routes: i64 = timeline.routes.iter().map(|row| total(&row.cells)).sum();
    for sum in [by_worker, routes] {
        ensure!((sum - all).abs() * 100 < all, "{sum} in place of {all}");
    }
    ensure!(
        timeline.workers.len() == workers,
        "{} workers",
        timeline.workers.len()
    );
    check_cell_table(recorded, timeline)?;
    let with_route = || timeline.routes.iter().filter(|row| !row.route.is_empty());
    let told: i64 = with_route().map(|row| total(&row.cells)).sum();
    let listed = |route: &str| -> i64 {
        let rows = with_route().filter(|row| row.route == route);
        rows.map(|row| total(&row.cells)).sum()
    };
    for (route, share) in recorded.shares("route") {
        let in_list = 100.0 * listed(&route) as f64 / told as f64;
        ensure!(
            (in_list - share).abs() < ROUNDED,
            "{route}: {in_list:.1} % in the list, {share:.1} % in the profile"
        );
    }
    Ok(())
}

/// The names of a request's moments in order, without consecutive repetitions.
pub fn order(timeline: &Timeline, request: &TimelineRequest) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for moment in &request.moments {
        let mut at = Some(moment.node);
        while let Some(node) = at.and_then(|node| timeline.nodes.get(node as usize)) {
            let name = &timeline.functions[node.function as usize].name;
            if name.starts_with("serve_") && names.last() != Some(name) {
                names.push(name.clone());
            }
            at = node.parent;
        }
    }
    names
}
