//! The statements of a program in PHP: pure.

use super::plan::{Callee, Plan, PlannedCall, PlannedWork, Unit, UnitKind, Via, WorkStep};

/// What a unit does by itself.
pub fn work_text(work: PlannedWork, indent: &str) -> String {
    let step = match work.step {
        WorkStep::Empty => "",
        WorkStep::Adding => "$x = ($x * 31 + 7) & 65535;",
        WorkStep::Storing => "$x = (int) (($x * 31 + 7) / 3) & 65535;",
    };
    if work.is_loop {
        return format!(
            "{indent}for ($j = 0; $j < {}; $j++) {{ {step} }}\n",
            work.turns
        );
    }
    (0..work.turns)
        .map(|_| format!("{indent}{step}\n"))
        .collect()
}

/// Where a call is made.
pub struct Place {
    object: &'static str,
    /// The variable that counts the calls. An include has the variables of its caller, which counts
    /// the includes.
    counter: String,
}

impl Place {
    /// Outside of all units.
    pub const OUTSIDE: Self = Self {
        object: "Box::$it",
        counter: String::new(),
    };

    /// Within a unit.
    pub fn of(number: usize, unit: &Unit) -> Self {
        Self {
            object: if unit.kind == UnitKind::Method {
                "$this"
            } else {
                "Box::$it"
            },
            counter: if unit.kind == UnitKind::Include {
                number.to_string()
            } else {
                String::new()
            },
        }
    }
}

/// A call, as often as it is made.
pub fn made(plan: &Plan, call: &PlannedCall, place: &Place, indent: &str) -> String {
    let statement = statement(plan, call, place);
    if call.is_loop {
        let i = format!("$i{}", place.counter);
        return format!(
            "{indent}for ({i} = 0; {i} < {}; {i}++) {{ {statement} }}\n",
            call.times
        );
    }
    (0..call.times)
        .map(|_| format!("{indent}{statement}\n"))
        .collect()
}

/// A call, once.
pub fn statement(plan: &Plan, call: &PlannedCall, place: &Place) -> String {
    let number = match call.callee {
        Callee::Internal(internal) => return format!("$r = {};", internal.expression()),
        Callee::Unit(number) => number,
    };
    let kind = plan.units[number].kind;
    let object = place.object;
    let callable = match kind {
        UnitKind::Method => format!("[{object}, 'f{number}']"),
        UnitKind::StaticMethod => format!("'Kit::f{number}'"),
        UnitKind::Closure => format!("Kit::$f{number}"),
        UnitKind::Function | UnitKind::Generator | UnitKind::Include => format!("'f{number}'"),
    };
    let value = match (call.via, kind) {
        (Via::Map(length), _) => return format!("$r = array_map({callable}, M{length});"),
        (Via::Sort(length), _) => return format!("$q = Q{length}; usort($q, {callable});"),
        (_, UnitKind::Generator) => {
            return format!("foreach (f{number}($x) as $v) {{ $x = ($x ^ $v) & 65535; }}");
        }
        (_, UnitKind::Function) => format!("f{number}($x)"),
        (_, UnitKind::Method) => format!("{object}->f{number}($x)"),
        (_, UnitKind::StaticMethod) => format!("Kit::f{number}($x)"),
        (_, UnitKind::Closure) => format!("(Kit::$f{number})($x)"),
        (_, UnitKind::Include) => format!("(include __DIR__ . '/p{}-f{number}.php')", plan.seed),
    };
    format!("$x = ($x ^ {value}) & 65535;")
}

#[cfg(test)]
mod tests {
    use super::super::draw::draw;
    use super::*;

    #[test]
    fn an_include_counts_by_its_own_variable() {
        let plan = draw(1);
        let call = PlannedCall {
            times: 7,
            is_loop: true,
            ..plan.in_turns[0]
        };
        let unit = |kind| Unit {
            kind,
            ..plan.units[0].clone()
        };
        let begins = |kind| {
            let text = made(&plan, &call, &Place::of(4, &unit(kind)), "");
            text.split(' ').nth(1).unwrap_or_default().to_owned()
        };
        assert_eq!(begins(UnitKind::Include), "($i4");
        assert_eq!(begins(UnitKind::Function), "($i");
    }
}
