//! Compares stacks with the known calls of a program: pure.
//!
//! Profilers name the same things differently: here a script's root is `{main}`, and closures have
//! one name.

/// A call that a program can make: caller and callee.
pub type NamedEdge = (&'static str, &'static str);

/// The number of wrong samples in the stacks of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wrong {
    /// Samples with a call that the program cannot make.
    pub edges: u64,
    /// Samples whose root is not the script's.
    pub truncated: u64,
}

/// Compares stacks, root first, with all calls that the program can make.
pub fn wrong<'a>(known: &[NamedEdge], stacks: impl Iterator<Item = (&'a [String], u64)>) -> Wrong {
    let mut wrong = Wrong::default();
    for (stack, samples) in stacks {
        let names: Vec<&str> = stack.iter().map(|name| canonical(name)).collect();
        let calls = match names.split_last() {
            // `[unstable]`, or an engine's phase: not a call.
            Some((leaf, callers)) if leaf.starts_with('[') => callers,
            _ => &names[..],
        };
        let is_cut = calls.first().is_some_and(|&root| root != "{main}");
        wrong.truncated += u64::from(is_cut) * samples;
        let is_wrong = calls
            .windows(2)
            .any(|pair| !known.contains(&(pair[0], pair[1])));
        wrong.edges += u64::from(is_wrong) * samples;
    }
    wrong
}

impl std::ops::AddAssign for Wrong {
    fn add_assign(&mut self, more: Self) {
        self.edges += more.edges;
        self.truncated += more.truncated;
    }
}

fn canonical(name: &str) -> &str {
    match name {
        "<main>" | "main" => "{main}",
        // A profile names the file.
        _ if name.starts_with("{main} ") => "{main}",
        _ if name.contains("{closure") => "{closure}",
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[NamedEdge] = &[("{main}", "a"), ("a", "{closure}")];

    fn of(stack: &[&str]) -> Wrong {
        let stack: Vec<String> = stack.iter().map(|&name| name.to_owned()).collect();
        wrong(KNOWN, std::iter::once((&stack[..], 2)))
    }

    #[test]
    fn impossible_call_is_wrong() {
        assert_eq!(of(&["{main}", "{closure}"]).edges, 2);
        assert_eq!(of(&["<main>", "a", "{closure:/x.php:3}"]), Wrong::default());
        assert_eq!(of(&["{main}", "a", "[unstable]"]), Wrong::default());
    }

    #[test]
    fn a_stack_without_its_root_is_truncated() {
        assert_eq!(of(&["a", "{closure}"]).truncated, 2);
    }
}
