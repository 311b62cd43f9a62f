//! What only moved: time that some functions lost and others below the same caller gained, as after
//! a rename, an extracted method or a moved file.
//!
//! Invariant: a move has functions that lost time and functions that gained it, and what all of
//! them gained together is not more than chance. Each function is in at most one move.

use std::collections::BTreeSet;

use super::estimate::{ChangeEstimate, ClusterMean};
use super::explain::{CallersOf, NameAndFile};

/// The part of the moved time that may be gained or lost on the way, whatever chance is.
const MOST_CHANGED: f64 = 0.25;

/// A function with a significant change.
pub(super) struct Shifted {
    pub name: NameAndFile,
    pub before: ClusterMean,
    pub after: ClusterMean,
}

impl Shifted {
    pub fn estimate(&self) -> ChangeEstimate {
        ChangeEstimate::of(&self.before, &self.after)
    }
}

/// The indexes of a move's functions, and the change of all of them together.
pub(super) struct MoveGroup {
    pub from: Vec<usize>,
    pub to: Vec<usize>,
    pub net: ChangeEstimate,
}

/// The change of several functions together.
pub(super) fn sum<'a>(functions: impl Iterator<Item = &'a Shifted>) -> Option<ChangeEstimate> {
    let mut sum: Option<(ClusterMean, ClusterMean)> = None;
    for function in functions {
        match &mut sum {
            None => sum = Some((function.before.clone(), function.after.clone())),
            Some((before, after)) => {
                before.add(&function.before);
                after.add(&function.after);
            }
        }
    }
    sum.map(|(before, after)| ChangeEstimate::of(&before, &after))
}

/// Finds moves. Functions that lost time come first, largest first: each takes the related ones
/// that gained, as long as that brings their sum closer to zero.
pub(super) fn families(all: &[Shifted], before: &CallersOf, after: &CallersOf) -> Vec<MoveGroup> {
    let difference = |index: usize| all.get(index).map_or(0.0, |it| it.estimate().difference());
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by(|one, other| difference(*other).abs().total_cmp(&difference(*one).abs()));
    let (mut families, mut used) = (Vec::new(), BTreeSet::new());
    for &first in &order {
        if used.contains(&first) {
            continue;
        }
        let Some(one) = all.get(first) else { continue };
        let sign = difference(first).signum();
        let related = order.iter().copied().filter(|&index| {
            difference(index).signum() == -sign
                && !used.contains(&index)
                && all.get(index).is_some_and(|other| {
                    let (lost, gained) = if sign < 0.0 {
                        (one, other)
                    } else {
                        (other, one)
                    };
                    is_related(lost, gained, before, after)
                })
        });
        let (mut chosen, mut rest) = (Vec::new(), difference(first));
        for index in related {
            let new = rest + difference(index);
            if new.abs() < rest.abs() {
                chosen.push(index);
                rest = new;
            }
        }
        let members = chosen.iter().chain([&first]);
        let Some(net) = sum(members.filter_map(|index| all.get(*index))) else {
            continue;
        };
        let small = MOST_CHANGED * difference(first).abs();
        if chosen.is_empty() || net.difference().abs() > net.margin(0.99).min(small) {
            continue;
        }
        used.extend(chosen.iter().copied().chain([first]));
        let (from, to) = if sign < 0.0 {
            (vec![first], chosen)
        } else {
            (chosen, vec![first])
        };
        families.push(MoveGroup { from, to, net });
    }
    families
}

/// Whether time of the first function may be in the second now: it has the same name, or one calls
/// the other, or both have the same caller.
fn is_related(lost: &Shifted, gained: &Shifted, before: &CallersOf, after: &CallersOf) -> bool {
    let short = |name: &NameAndFile| {
        let unqualified = name.0.rsplit('\\').next().unwrap_or_default();
        unqualified.to_owned()
    };
    let (lost_below, gained_below) = (before.direct(&lost.name), after.direct(&gained.name));
    let has_same_caller = lost_below.is_some() && lost_below == gained_below;
    short(&lost.name) == short(&gained.name)
        || has_same_caller
        || gained_below == Some(&lost.name)
        || lost_below == Some(&gained.name)
}
