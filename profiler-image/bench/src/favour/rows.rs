//! The rows of the table: a program, and its functions whose shares are compared.

/// One row of the table.
pub struct ShareRow {
    name: &'static str,
    /// The program.
    pub script: &'static str,
    /// Older versions cannot run it.
    pub since: u32,
    /// The functions whose shares are compared.
    pub functions: Vec<String>,
    /// Their frames are on the heap, or on stacks of their own.
    pub is_beside_the_page: bool,
    /// The quiescent reader may not use the target's CPU.
    pub remote: bool,
}

impl ShareRow {
    /// Its name in the table.
    pub fn label(&self) -> String {
        format!("{} {}", self.name, self.mode())
    }

    /// Whether there are quiescent reads.
    pub fn mode(&self) -> &'static str {
        if self.remote { "remote" } else { "auto" }
    }
}

/// All rows, or those of the short form.
pub fn rows(full: bool) -> Vec<ShareRow> {
    let mut rows = vec![generators(), fibers()];
    if full {
        rows.push(loops());
    }
    for remote in [false, true] {
        rows.push(leaves(remote));
        if full || !remote {
            rows.push(paths(remote));
        }
    }
    rows
}

fn leaves(remote: bool) -> ShareRow {
    let ways = |leaf| ["Call", "Callback", "Magic", "Closure"].map(|way| format!("{leaf}By{way}"));
    ShareRow {
        name: "leaves",
        script: "favour.php",
        since: 0,
        functions: ["tiny", "small", "long"]
            .into_iter()
            .flat_map(ways)
            .collect(),
        is_beside_the_page: false,
        remote,
    }
}

fn paths(remote: bool) -> ShareRow {
    let numbered = |(letter, count)| (0..count).map(move |number| format!("{letter}{number}"));
    ShareRow {
        name: "5,000 paths",
        script: "favour_paths.php",
        since: 0,
        functions: [("a", 10), ("b", 20), ("c", 25)]
            .into_iter()
            .flat_map(numbered)
            .collect(),
        is_beside_the_page: false,
        remote,
    }
}

fn loops() -> ShareRow {
    let size = |size| ["Callee", "Caller"].map(|end| format!("{size}{end}"));
    ShareRow {
        name: "loops",
        script: "favour_loops.php",
        since: 0,
        functions: ["short", "middle", "long"]
            .into_iter()
            .flat_map(size)
            .collect(),
        is_beside_the_page: false,
        remote: false,
    }
}

fn generators() -> ShareRow {
    let functions = [
        "tinyValues",
        "smallValues",
        "smallCalls",
        "middleCalls",
        "longCalls",
        "delegating",
        "pipeline",
    ];
    ShareRow {
        name: "generators",
        script: "favour_generators.php",
        since: 0,
        functions: functions.map(str::to_owned).into(),
        is_beside_the_page: true,
        remote: false,
    }
}

fn fibers() -> ShareRow {
    let functions = [
        "tiny", "small", "middle", "long", "outer", "inner", "resume", "work",
    ];
    ShareRow {
        name: "fibers",
        script: "favour_fibers.php",
        since: 80_100,
        functions: functions.map(str::to_owned).into(),
        is_beside_the_page: true,
        remote: false,
    }
}
