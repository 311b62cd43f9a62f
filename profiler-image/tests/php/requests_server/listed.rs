//! Checks a list of requests: its cells add up to the profile's time, and each request's moments
//! are in order.

use anyhow::{Context as _, Result, ensure};
use phpprof_profile::timeline::{Timeline, TimelineCell, TimelineRequest};

use super::recorded::{Recorded, check_shares};

fn total(cells: &[TimelineCell]) -> i64 {
    cells.iter().map(|cell| cell.busy + cell.waiting).sum()
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
    let with_route = || timeline.routes.iter().filter(|row| !row.route.is_empty());
    let told: i64 = with_route().map(|row| total(&row.cells)).sum();
    let by_route = with_route().map(|row| {
        let share = 100.0 * total(&row.cells) as f64 / told as f64;
        (row.route.clone(), share)
    });
    let shares = recorded.shares("route");
    let shares = shares.iter().map(|(route, share)| (route.as_str(), *share));
    check_shares(&by_route.collect(), &shares.collect())
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
