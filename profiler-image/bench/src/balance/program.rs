//! A generated program on disk, and its functions.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::draw::draw;
use super::plan::{Plan, UnitKind};
use super::text::{DrawnText, render};

/// A generated program.
pub struct DrawnProgram {
    pub plan: Plan,
    pub text: DrawnText,
    pub functions: BTreeMap<String, ProgramFunction>,
}

/// What is known of a function before it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramFunction {
    pub kind: &'static str,
    /// How often a round calls it; none is a call that does not end.
    pub calls: Option<u64>,
}

impl DrawnProgram {
    pub fn of(seed: u64) -> Self {
        let plan = draw(seed);
        let text = render(&plan);
        let functions = functions(&plan, &text);
        Self {
            plan,
            text,
            functions,
        }
    }

    /// Writes its files.
    pub fn write(&self, folder: &Path) -> Result<()> {
        write_files(folder, &self.text.files)
    }
}

/// Writes files, by name and content.
pub fn write_files(folder: &Path, files: &[(String, String)]) -> Result<()> {
    fs::create_dir_all(folder)?;
    for (name, content) in files {
        let path = folder.join(name);
        fs::write(&path, content).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

fn functions(plan: &Plan, text: &DrawnText) -> BTreeMap<String, ProgramFunction> {
    let counts = plan.counts();
    let mut functions = BTreeMap::new();
    let mut add = |name: &str, kind, calls| {
        functions.insert(name.to_owned(), ProgramFunction { kind, calls });
    };
    add("{main}", "script", None);
    if plan.is_in_function {
        add("run", "function", None);
    }
    for ((unit, name), calls) in plan.units.iter().zip(&text.names).zip(counts.units) {
        let kind = match unit.kind {
            UnitKind::Function => "function",
            UnitKind::Method => "method",
            UnitKind::StaticMethod => "static",
            UnitKind::Closure => "closure",
            UnitKind::Generator => "generator",
            UnitKind::Include => "include",
        };
        add(name, kind, Some(calls));
    }
    for (name, calls) in counts.internals {
        add(name, "internal", Some(calls));
    }
    functions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_names_all_its_functions() {
        for seed in 1..=20 {
            let program = DrawnProgram::of(seed);
            let internals = program.plan.counts().internals.len();
            let run = usize::from(program.plan.is_in_function);
            assert_eq!(
                program.functions.len(),
                1 + run + program.plan.units.len() + internals
            );
        }
    }
}
