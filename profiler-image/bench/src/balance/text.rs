//! The text of a program in PHP: pure.
//!
//! A program has three files of code: its functions (`pN-kit.php`), the endless loop (`pN.php`) and
//! its clocks (`pN-clock.php`), and a file for each include. `$x` is an integer below 65,536
//! everywhere, and a function returns a negative one, so that `usort` finds each list sorted.

use std::fmt::Write as _;

use super::clocks::{clock_script, clock_text};
use super::internals::CONSTANTS;
use super::plan::{Plan, Unit, UnitKind};
use super::statement::{Place, made, work_text};

/// A program's files and functions.
#[derive(Debug, PartialEq, Eq)]
pub struct DrawnText {
    /// Names and contents.
    pub files: Vec<(String, String)>,
    /// The name of each unit's frames.
    pub names: Vec<String>,
}

/// The file that runs for ever.
pub fn script(seed: u64) -> String {
    format!("p{seed}.php")
}

/// Renders a program.
pub fn render(plan: &Plan) -> DrawnText {
    let mut text = functions(plan, false);
    let Plan { seed, .. } = plan;
    text.files.push((script(*seed), loop_text(plan, false)));
    text.files.push((clock_script(*seed), clock_text(plan)));
    text
}

/// The files of a program that counts the calls of its units in one round, and prints them by
/// number.
pub fn render_counted(plan: &Plan) -> Vec<(String, String)> {
    let mut text = functions(plan, true);
    text.files.push((script(plan.seed), loop_text(plan, true)));
    text.files
}

/// The beginning of the file of all functions: what they work on.
fn constants() -> String {
    let mut kit = format!("<?php\n{CONSTANTS}");
    for length in [2, 4, 8] {
        let list: Vec<String> = (1..=length).map(|number| number.to_string()).collect();
        let _ = writeln!(kit, "define('M{length}', [{}]);", list.join(", "));
    }
    for length in 2..=5 {
        let list: Vec<String> = (1..=length).map(|number| number.to_string()).collect();
        let _ = writeln!(kit, "define('Q{length}', [{}]);", list.join(", "));
    }
    kit
}

/// The files of all functions, and their names.
fn functions(plan: &Plan, is_counted: bool) -> DrawnText {
    let Plan { seed, units, .. } = plan;
    let mut names: Vec<String> = (0..units.len()).map(|number| name(plan, number)).collect();
    let kit_name = format!("p{seed}-kit.php");
    let mut kit = constants();
    let numbered = |kind: UnitKind| {
        units
            .iter()
            .enumerate()
            .filter(move |(_, unit)| unit.kind == kind)
    };
    for kind in [UnitKind::Function, UnitKind::Generator] {
        for (number, unit) in numbered(kind) {
            let _ = write!(
                kit,
                "function f{number}($x, $y = 0)\n{{\n{}}}\n",
                body(plan, number, unit, "    ", is_counted)
            );
        }
    }
    kit.push_str("class Box\n{\n    public static $it;\n");
    for (number, unit) in numbered(UnitKind::Method) {
        let body = body(plan, number, unit, "        ", is_counted);
        let _ = write!(
            kit,
            "    public function f{number}($x, $y = 0)\n    {{\n{body}    }}\n"
        );
    }
    kit.push_str("}\nclass Kit\n{\n");
    if is_counted {
        kit.push_str("    public static $calls = [];\n");
    }
    for (number, _) in numbered(UnitKind::Closure) {
        let _ = writeln!(kit, "    public static $f{number};");
    }
    for (number, unit) in numbered(UnitKind::StaticMethod) {
        let body = body(plan, number, unit, "        ", is_counted);
        let _ = write!(
            kit,
            "    public static function f{number}($x, $y = 0)\n    {{\n{body}    }}\n"
        );
    }
    kit.push_str("}\nBox::$it = new Box();\n");
    for (number, unit) in numbered(UnitKind::Closure) {
        let line = kit.matches('\n').count() + 1;
        names[number] = format!("{{closure:{kit_name}:{line}}}");
        let body = body(plan, number, unit, "    ", is_counted);
        let _ = write!(
            kit,
            "Kit::$f{number} = static function ($x, $y = 0) {{\n{body}}};\n"
        );
    }
    let include = |(number, unit)| {
        let body = body(plan, number, unit, "", is_counted);
        (format!("p{seed}-f{number}.php"), format!("<?php\n{body}"))
    };
    let mut files: Vec<_> = numbered(UnitKind::Include).map(include).collect();
    files.push((kit_name, kit));
    DrawnText { files, names }
}

/// The name of a unit's frames, except of closures, whose lines are not known yet.
fn name(plan: &Plan, number: usize) -> String {
    match plan.units[number].kind {
        UnitKind::Method => format!("Box::f{number}"),
        UnitKind::StaticMethod => format!("Kit::f{number}"),
        UnitKind::Include => format!("include p{}-f{number}.php", plan.seed),
        UnitKind::Function | UnitKind::Generator | UnitKind::Closure => format!("f{number}"),
    }
}

/// The loop of rounds: one round, if calls are counted.
fn loop_text(plan: &Plan, is_counted: bool) -> String {
    let (condition, print) = if is_counted {
        (
            "!isset($done)",
            "$done = true;\necho json_encode(Kit::$calls, JSON_FORCE_OBJECT);\n",
        )
    } else {
        ("true", "")
    };
    let (begin, end) = if plan.is_in_function {
        ("function run($x)\n{\n", "}\nrun(7);\n")
    } else {
        ("$x = 7;\n", "")
    };
    let mut text = format!(
        "<?php\n// Drawn from seed {0}.\nrequire __DIR__ . '/p{0}-kit.php';\n{begin}while ({condition}) {{\n",
        plan.seed
    );
    let _ = writeln!(text, "    for ($t = 0; $t < {}; $t++) {{", plan.turns);
    for call in &plan.in_turns {
        text.push_str(&made(plan, call, &Place::OUTSIDE, "        "));
    }
    text.push_str("    }\n");
    for call in &plan.once {
        text.push_str(&made(plan, call, &Place::OUTSIDE, "    "));
    }
    text + print
        + "}
" + end
}

fn body(plan: &Plan, number: usize, unit: &Unit, indent: &str, is_counted: bool) -> String {
    let place = Place::of(number, unit);
    let is_generator = unit.kind == UnitKind::Generator;
    let inner = if is_generator {
        format!("{indent}    ")
    } else {
        indent.to_owned()
    };
    let probe = if is_counted {
        format!("{indent}Kit::$calls[{number}] = (Kit::$calls[{number}] ?? 0) + 1;\n")
    } else {
        String::new()
    };
    let mut text = probe.clone();
    if is_generator {
        let _ = writeln!(text, "{indent}for ($k = 0; $k < {}; $k++) {{", unit.values);
    }
    if let Some(work) = unit.work {
        text.push_str(&work_text(work, &inner));
    }
    for call in &unit.calls {
        text.push_str(&made(plan, call, &place, &inner));
    }
    if is_generator {
        let _ = write!(text, "{inner}yield $x;\n{probe}{indent}}}\n");
    } else {
        let _ = writeln!(text, "{indent}return -1 - $x;");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::draw::draw;
    use super::*;

    #[test]
    fn a_seed_is_one_text() {
        assert_eq!(render(&draw(3)), render(&draw(3)));
    }

    #[test]
    fn a_closure_is_named_by_its_line() {
        let plan = (1..)
            .map(draw)
            .find(|plan| plan.units.iter().any(|unit| unit.kind == UnitKind::Closure));
        let plan = plan.unwrap();
        let text = render(&plan);
        let (number, _) = plan
            .units
            .iter()
            .enumerate()
            .find(|(_, unit)| unit.kind == UnitKind::Closure)
            .unwrap();
        let (_, kit) = text
            .files
            .iter()
            .find(|(name, _)| name.ends_with("-kit.php"))
            .unwrap();
        let line: usize = text.names[number]
            .trim_end_matches('}')
            .rsplit_once(':')
            .unwrap()
            .1
            .parse()
            .unwrap();
        let there = kit.lines().nth(line - 1).unwrap();
        assert!(
            there.starts_with(&format!("Kit::$f{number} = static function")),
            "{there}"
        );
    }

    #[test]
    fn every_unit_has_a_definition_and_a_call() {
        for seed in 1..=30 {
            let plan = draw(seed);
            let text = render(&plan);
            let all: String = text
                .files
                .iter()
                .map(|(_, content)| content.as_str())
                .collect();
            for (number, unit) in plan.units.iter().enumerate() {
                let marks = match unit.kind {
                    UnitKind::Closure => {
                        vec![format!("Kit::$f{number} = "), format!("Kit::$f{number}")]
                    }
                    UnitKind::Include => {
                        vec![format!("(include __DIR__ . '/p{seed}-f{number}.php')")]
                    }
                    _ => vec![format!("function f{number}("), format!("f{number}")],
                };
                // The definition has the name, too.
                for mark in &marks {
                    let least = if mark.contains("(include") {
                        1
                    } else {
                        marks.len()
                    };
                    let least = if mark.contains("function") || mark.contains(" = ") {
                        1
                    } else {
                        least
                    };
                    assert!(
                        all.matches(mark.as_str()).count() >= least,
                        "{seed}: {mark}"
                    );
                }
            }
        }
    }
}
