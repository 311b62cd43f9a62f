//! Draws a program from a seed: pure.

use super::draws::Draws;
use super::internals::{Internal, internals};
use super::plan::{
    Callee, Plan, PlannedCall, PlannedWork, Unit, UnitKind, Via, WorkStep, cost_of_one,
    cost_of_unit,
};

/// The shortest leaf, and how many doublings the longest is away: 50 ns to 51 µs.
const SHORTEST: u64 = 50;
const OCTAVES: u64 = 10;
/// A function above the leaves takes no longer than this, if its parts allow it.
const LONGEST: u64 = 40_000;
const KINDS: [UnitKind; 8] = [
    UnitKind::Function,
    UnitKind::Function,
    UnitKind::Method,
    UnitKind::Method,
    UnitKind::StaticMethod,
    UnitKind::Closure,
    UnitKind::Generator,
    UnitKind::Include,
];

/// The program of a seed.
pub fn draw(seed: u64) -> Plan {
    let mut drawing = Drawing {
        draws: Draws::new(seed),
        internals: internals(),
        units: Vec::new(),
        costs: Vec::new(),
    };
    for _ in 0..5 + drawing.draws.below(5) {
        let leaf = drawing.leaf();
        drawing.add(leaf);
    }
    for _ in 0..3 + drawing.draws.below(6) {
        let caller = drawing.caller();
        drawing.add(caller);
    }
    drawing.plan(seed)
}

struct Drawing {
    draws: Draws,
    internals: Vec<Internal>,
    units: Vec<Unit>,
    /// What a call of each unit takes.
    costs: Vec<u64>,
}

impl Drawing {
    fn add(&mut self, unit: Unit) {
        self.costs.push(cost_of_unit(&unit, &self.costs));
        self.units.push(unit);
    }

    fn leaf(&mut self) -> Unit {
        let kind = *self.draws.one(&KINDS);
        let values = self.values(kind);
        let cost = self.draws.scaled(SHORTEST, OCTAVES);
        Unit {
            kind,
            work: Some(self.work(cost / values.max(1))),
            values,
            calls: Vec::new(),
        }
    }

    fn caller(&mut self) -> Unit {
        let kind = *self.draws.one(&KINDS);
        let values = self.values(kind);
        let cost = self.draws.scaled(20, 6);
        let work = self.draws.happens(60).then(|| self.work(cost));
        let wanted = 1 + self.draws.below(4);
        let mut calls: Vec<PlannedCall> = Vec::new();
        let mut left = LONGEST / values.max(1);
        for _ in 0..wanted {
            let Some(call) = self.call(left) else {
                continue;
            };
            left = left.saturating_sub(call.times * cost_of_one(&call, &self.costs));
            calls.push(call);
        }
        Unit {
            kind,
            work,
            values,
            calls,
        }
    }

    fn values(&mut self, kind: UnitKind) -> u64 {
        match kind {
            UnitKind::Generator => 2 + self.draws.below(12),
            _ => 0,
        }
    }

    /// Work that takes about this long.
    fn work(&mut self, cost: u64) -> PlannedWork {
        let is_loop = cost > 600 || self.draws.happens(40);
        let steps = [WorkStep::Empty, WorkStep::Adding, WorkStep::Storing];
        let step = *self.draws.one(if is_loop { &steps } else { &steps[1..] });
        PlannedWork {
            turns: (cost / step.cost(is_loop)).max(1),
            is_loop,
            step,
        }
    }

    /// The shorter of two that are drawn: otherwise the long ones take nearly all the time.
    fn callee(&mut self) -> Callee {
        let mut shorter = (Callee::Unit(0), u64::MAX);
        for _ in 0..2 {
            let (callee, cost) = if self.draws.happens(45) {
                let internal = *self.draws.one(&self.internals);
                (Callee::Internal(internal), internal.cost)
            } else {
                let unit = self.draws.below(self.units.len() as u64) as usize;
                (Callee::Unit(unit), self.costs[unit])
            };
            if cost < shorter.1 {
                shorter = (callee, cost);
            }
        }
        shorter.0
    }

    /// A call by a unit, of what is there already; `None` if none is short enough.
    fn call(&mut self, longest: u64) -> Option<PlannedCall> {
        let callee = self.callee();
        let via = match callee {
            Callee::Unit(unit) if self.units[unit].is_callback() => match self.draws.below(6) {
                0 => Via::Map(1 << (1 + self.draws.below(3))),
                1 => Via::Sort(2 + self.draws.below(4)),
                _ => Via::Direct,
            },
            _ => Via::Direct,
        };
        let once = PlannedCall {
            callee,
            via,
            times: 1,
            is_loop: false,
        };
        let cost = cost_of_one(&once, &self.costs);
        let is_long = cost > longest;
        let wanted = self.draws.scaled(1, 6).min(longest / cost.max(1));
        let is_loop = wanted > 4 || (wanted > 1 && self.draws.happens(50));
        (!is_long).then_some(PlannedCall {
            times: wanted.max(1),
            is_loop,
            ..once
        })
    }

    /// The loop of rounds: every unit that none calls, some of the others, and internal functions.
    fn plan(mut self, seed: u64) -> Plan {
        let called = |unit: usize| {
            let mut calls = self.units.iter().flat_map(|unit| &unit.calls);
            calls.any(|call| call.callee == Callee::Unit(unit))
        };
        let mut callees: Vec<Callee> = (0..self.units.len())
            .filter(|&unit| !called(unit))
            .map(Callee::Unit)
            .collect();
        for _ in 0..2 + self.draws.below(4) {
            callees.push(self.callee());
        }
        let round = 200_000 << self.draws.below(4);
        let weights: Vec<u64> = callees.iter().map(|_| self.draws.scaled(1, 5)).collect();
        let all: u64 = weights.iter().sum();
        let turns = self.draws.scaled(1, 5);
        let (mut in_turns, mut once) = (Vec::new(), Vec::new());
        for (callee, weight) in callees.into_iter().zip(weights) {
            let mut call = PlannedCall {
                callee,
                via: Via::Direct,
                times: 1,
                is_loop: false,
            };
            let cost = cost_of_one(&call, &self.costs).max(1);
            let times = (round * weight / all / cost).max(1);
            let calls = if times >= turns {
                call.times = times / turns;
                &mut in_turns
            } else {
                call.times = times;
                &mut once
            };
            call.is_loop = call.times > 4 || (call.times > 1 && self.draws.happens(50));
            calls.push(call);
        }
        Plan {
            seed,
            turns,
            in_turns,
            once,
            is_in_function: self.draws.happens(40),
            units: self.units,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_one_program() {
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn every_unit_runs_and_every_kind_occurs() {
        let mut seen = [0; 12];
        for seed in 1..=50 {
            let plan = draw(seed);
            let counts = plan.counts();
            assert!(counts.units.iter().all(|&calls| calls > 0), "{plan:?}");
            for unit in &plan.units {
                seen[unit.kind as usize] += 1;
                if let Some(work) = unit.work {
                    seen[6 + work.step as usize] += 1;
                }
                for call in &unit.calls {
                    seen[9 + usize::from(call.via != Via::Direct)] += 1;
                }
            }
            seen[11] += u64::from(plan.is_in_function);
        }
        assert!(seen.iter().all(|&count| count >= 10), "{seen:?}");
    }

    /// The share of each class of duration in the rounds of 50 programs, by what calls cost.
    #[test]
    fn every_class_of_duration_has_its_share() {
        let mut classes = [0.0; 6];
        let class = |cost: u64| {
            [100, 300, 1000, 3000, 10_000]
                .iter()
                .filter(|&&end| cost >= end)
                .count()
        };
        for seed in 1..=50 {
            let plan = draw(seed);
            let (counts, mut costs) = (plan.counts(), Vec::new());
            let mut own = [0.0; 6];
            for (unit, visits) in plan.units.iter().zip(&counts.units) {
                let cost = cost_of_unit(unit, &costs);
                costs.push(cost);
                let calls = visits / (1 + unit.values);
                let work = unit
                    .work
                    .map_or(0, |work| work.turns * work.step.cost(work.is_loop));
                own[class(cost / (1 + unit.values))] +=
                    (calls * (23 + unit.repeats() * work)) as f64;
                for call in &unit.calls {
                    if let Callee::Internal(internal) = call.callee {
                        own[class(internal.cost)] +=
                            (calls * unit.repeats() * call.times * internal.cost) as f64;
                    }
                }
            }
            let all: f64 = own.iter().sum();
            for (class, own) in classes.iter_mut().zip(own) {
                *class += 100.0 * own / all / 50.0;
            }
        }
        assert!(classes.iter().all(|&percent| percent > 8.0), "{classes:?}");
    }

    #[test]
    fn a_round_is_short() {
        for seed in 1..=200 {
            let plan = draw(seed);
            let mut costs = Vec::new();
            for unit in &plan.units {
                costs.push(cost_of_unit(unit, &costs));
            }
            let sum = |calls: &[PlannedCall]| -> u64 {
                calls
                    .iter()
                    .map(|call| call.times * cost_of_one(call, &costs))
                    .sum()
            };
            let round = plan.turns * sum(&plan.in_turns) + sum(&plan.once);
            assert!((50_000..5_000_000).contains(&round), "{seed}: {round} ns");
            assert!(
                costs.iter().all(|&cost| cost < 2 * LONGEST),
                "{seed}: {costs:?}"
            );
        }
    }
}
