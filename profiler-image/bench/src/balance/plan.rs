//! What a generated program consists of, and how often a round of it calls each function: pure.
//!
//! Invariant: a unit calls only units before it, so that every program ends its round.

use std::collections::BTreeMap;

use super::internals::Internal;

/// How a function is declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitKind {
    Function,
    Method,
    StaticMethod,
    Closure,
    Generator,
    Include,
}

/// What a function does by itself before it calls others. Storing work saves its op, which is what
/// a profiler sees of a function that calls nothing; the other does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedWork {
    /// Loops, or the number of steps in a row.
    pub turns: u64,
    pub is_loop: bool,
    pub step: WorkStep,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkStep {
    /// A loop of nothing.
    Empty,
    Adding,
    Storing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Callee {
    Unit(usize),
    Internal(Internal),
}

/// How a unit is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    Direct,
    /// By `array_map`, for a list of this length.
    Map(u64),
    /// By `usort`, for a sorted list of this length, at most 5: as many calls less one.
    Sort(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedCall {
    pub callee: Callee,
    pub via: Via,
    pub times: u64,
    pub is_loop: bool,
}

/// A function of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    pub kind: UnitKind,
    pub work: Option<PlannedWork>,
    /// A generator does all that for each value.
    pub values: u64,
    pub calls: Vec<PlannedCall>,
}

/// A program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub seed: u64,
    pub units: Vec<Unit>,
    /// A round begins with so many turns.
    pub turns: u64,
    pub in_turns: Vec<PlannedCall>,
    /// After the turns.
    pub once: Vec<PlannedCall>,
    /// The loop of rounds is in a function, not in the script.
    pub is_in_function: bool,
}

/// How often a round calls the functions.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CountsOfCalls {
    /// A generator's values count as calls.
    pub units: Vec<u64>,
    pub internals: BTreeMap<&'static str, u64>,
}

impl Unit {
    /// How often a call of it does its work.
    pub fn repeats(&self) -> u64 {
        self.values.max(1)
    }

    /// How often a call of it becomes the top of the stack.
    fn visits(&self) -> u64 {
        1 + self.values
    }

    /// Whether `array_map` and `usort` can call it.
    pub fn is_callback(&self) -> bool {
        !matches!(self.kind, UnitKind::Generator | UnitKind::Include)
    }
}

impl WorkStep {
    /// Nanoseconds, on an ordinary machine.
    pub fn cost(self, is_loop: bool) -> u64 {
        let step = match self {
            Self::Empty => 0,
            Self::Adding => 8,
            Self::Storing => 24,
        };
        step + if is_loop { 3 } else { 0 }
    }
}

impl Via {
    /// How often the unit is called by one call.
    pub fn calls(self) -> u64 {
        match self {
            Self::Direct => 1,
            Self::Map(length) => length,
            Self::Sort(length) => length - 1,
        }
    }

    /// The internal function between caller and callee.
    pub fn internal(self) -> Option<&'static str> {
        match self {
            Self::Direct => None,
            Self::Map(_) => Some("array_map"),
            Self::Sort(_) => Some("usort"),
        }
    }

    fn cost(self) -> u64 {
        match self {
            Self::Direct => 0,
            Self::Map(length) => 80 + 30 * length,
            Self::Sort(length) => 100 + 50 * length,
        }
    }
}

/// What a call takes with its callees, in nanoseconds on an ordinary machine.
pub fn cost_of_unit(unit: &Unit, costs: &[u64]) -> u64 {
    let work = unit
        .work
        .map_or(0, |work| work.turns * work.step.cost(work.is_loop));
    let calls: u64 = unit
        .calls
        .iter()
        .map(|call| call.times * cost_of_one(call, costs))
        .sum();
    let own = match unit.kind {
        UnitKind::Generator => 150 + 40 * unit.values,
        UnitKind::Include => 1500,
        _ => 23,
    };
    own + unit.repeats() * (work + calls)
}

/// The same of one call of a unit or internal function.
pub fn cost_of_one(call: &PlannedCall, costs: &[u64]) -> u64 {
    let callee = match call.callee {
        Callee::Unit(unit) => costs.get(unit).copied().unwrap_or(0),
        Callee::Internal(internal) => internal.cost,
    };
    call.via.cost() + call.via.calls() * callee
}

impl Plan {
    /// How often a round calls each function.
    pub fn counts(&self) -> CountsOfCalls {
        let mut counts = CountsOfCalls {
            units: vec![0; self.units.len()],
            internals: BTreeMap::new(),
        };
        // The calls of each unit, not its visits: what its callees are multiplied by.
        let mut calls = vec![0; self.units.len()];
        counts.add(&mut calls, &self.in_turns, self.turns);
        counts.add(&mut calls, &self.once, 1);
        for (number, unit) in self.units.iter().enumerate().rev() {
            let of_unit = calls.get(number).copied().unwrap_or(0);
            counts.units[number] = of_unit * unit.visits();
            counts.add(&mut calls, &unit.calls, of_unit * unit.repeats());
        }
        counts
    }
}

impl CountsOfCalls {
    fn add(&mut self, calls: &mut [u64], made: &[PlannedCall], by: u64) {
        for call in made {
            let times = by * call.times;
            if let Some(between) = call.via.internal() {
                *self.internals.entry(between).or_default() += times;
            }
            match call.callee {
                Callee::Unit(unit) => calls[unit] += times * call.via.calls(),
                Callee::Internal(internal) => {
                    *self.internals.entry(internal.name).or_default() += times;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::internals::internals;
    use super::*;

    fn call(callee: Callee, via: Via, times: u64) -> PlannedCall {
        PlannedCall {
            callee,
            via,
            times,
            is_loop: false,
        }
    }

    #[test]
    fn calls_multiply_along_the_tree() {
        let leaf = Unit {
            kind: UnitKind::Function,
            work: None,
            values: 0,
            calls: Vec::new(),
        };
        let internal = internals()[0];
        let generator = Unit {
            kind: UnitKind::Generator,
            values: 3,
            calls: vec![
                call(Callee::Unit(0), Via::Sort(4), 2),
                call(Callee::Internal(internal), Via::Direct, 1),
            ],
            ..leaf.clone()
        };
        let plan = Plan {
            seed: 1,
            units: vec![leaf, generator],
            turns: 5,
            in_turns: vec![call(Callee::Unit(1), Via::Direct, 2)],
            once: vec![call(Callee::Unit(0), Via::Map(8), 1)],
            is_in_function: false,
        };
        let counts = plan.counts();
        // Ten generators of three values each; two sorts of three calls for each value.
        assert_eq!(counts.units, [8 + 30 * 2 * 3, 40]);
        assert_eq!(
            counts.internals,
            [("array_map", 1), ("usort", 60), (internal.name, 30)].into()
        );
    }
}
