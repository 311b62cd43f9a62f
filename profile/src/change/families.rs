//! What only moved: time that some functions lost and others below the same caller gained, as after
//! a rename, an extracted method or a moved file.
//!
//! Invariant: a move has functions that lost time and functions that gained it, and what all of
//! them gained together is not more than chance. Each function is in at most one move.

use super::estimate::{ChangeEstimate, ClusterMean};
use super::explain::{CallersOf, NameAndFile};

/// The part of the moved time that may be gained or lost on the way, whatever chance is.
const MOST_CHANGED: f64 = 0.25;
/// The most functions that may be in moves: those with the largest changes. Each is compared with
/// each.
const MOST_SHIFTED: usize = 2_048;

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

/// What decides whether functions are related.
struct ShiftedFacts<'a> {
    index: usize,
    difference: f64,
    name: &'a NameAndFile,
    /// The name without its namespace.
    short: &'a str,
    /// The direct callers before and after.
    callers: [Option<&'a NameAndFile>; 2],
    is_used: bool,
}

/// Finds moves. Functions that lost time come first, largest first: each takes the related ones
/// that gained, as long as that brings their sum closer to zero.
pub(super) fn families(all: &[Shifted], callers: &CallersOf) -> Vec<MoveGroup> {
    let facts = all.iter().enumerate().map(|(index, it)| ShiftedFacts {
        index,
        difference: it.estimate().difference(),
        name: &it.name,
        short: it.name.0.rsplit('\\').next().unwrap_or_default(),
        callers: callers.direct(&it.name),
        is_used: false,
    });
    let mut facts: Vec<ShiftedFacts<'_>> = facts.collect();
    facts.sort_by(|one, other| other.difference.abs().total_cmp(&one.difference.abs()));
    facts.truncate(MOST_SHIFTED);
    let mut families = Vec::new();
    for first in 0..facts.len() {
        let Some((chosen, family)) = family_of(first, &facts, all) else {
            continue;
        };
        for place in chosen {
            if let Some(used) = facts.get_mut(place) {
                used.is_used = true;
            }
        }
        families.push(family);
    }
    families
}

/// The move with this function as the largest one, and the places of its functions.
fn family_of(
    first: usize,
    facts: &[ShiftedFacts<'_>],
    all: &[Shifted],
) -> Option<(Vec<usize>, MoveGroup)> {
    let one = facts.get(first).filter(|one| !one.is_used)?;
    let sign = one.difference.signum();
    let (mut places, mut chosen, mut rest) = (vec![first], Vec::new(), one.difference);
    for (place, other) in facts.iter().enumerate() {
        let is_other = other.difference.signum() == -sign && !other.is_used;
        let (lost, gained) = if sign < 0.0 {
            (one, other)
        } else {
            (other, one)
        };
        let new = rest + other.difference;
        if is_other && new.abs() < rest.abs() && lost.is_related(gained) {
            places.push(place);
            chosen.push(other.index);
            rest = new;
        }
    }
    let members = chosen.iter().chain([&one.index]);
    let net = sum(members.filter_map(|index| all.get(*index)))?;
    let small = MOST_CHANGED * one.difference.abs();
    if chosen.is_empty() || net.difference().abs() > net.margin(0.99).min(small) {
        return None;
    }
    let (from, to) = if sign < 0.0 {
        (vec![one.index], chosen)
    } else {
        (chosen, vec![one.index])
    };
    Some((places, MoveGroup { from, to, net }))
}

impl ShiftedFacts<'_> {
    /// Whether time that this function lost may be in the other one now: it has the same name, or
    /// one calls the other, or both have the same caller.
    fn is_related(&self, gained: &Self) -> bool {
        let ([lost_below, _], [_, gained_below]) = (self.callers, gained.callers);
        let has_same_caller = lost_below.is_some() && lost_below == gained_below;
        self.short == gained.short
            || has_same_caller
            || gained_below == Some(self.name)
            || lost_below == Some(gained.name)
    }
}
