//! The programs, and every call that each of them can make.

/// A program whose calls are known.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    pub name: &'static str,
    /// Its script in `targets/`.
    pub script: &'static str,
    /// Argument of the script: frames of recursion below the work.
    pub depth: u32,
    /// It prints, when it is ended, how long its small calls and its long internal functions took.
    pub states_shares: bool,
    /// Caller and callee, by their names in the profile.
    pub edges: &'static [(&'static str, &'static str)],
    /// Grand-caller, caller and callee that never stand on one stack, though both edges exist.
    pub never: &'static [(&'static str, &'static str, &'static str)],
}

const SMALL: &[(&str, &str)] = &[
    ("{main}", "deep"),
    ("deep", "deep"),
    ("deep", "spin"),
    ("spin", "small"),
    ("small", "a"),
    ("small", "Small::m"),
    ("a", "b"),
    ("b", "c"),
    ("b", "d"),
    ("d", "e"),
    ("e", "f"),
    ("e", "g"),
    ("g", "strrev"),
    ("Small::m", "Small::n"),
    ("Small::n", "Small::s"),
    ("Small::n", "Small::t"),
];

const fn small(depth: u32) -> Target {
    Target {
        name: "small",
        script: "small.php",
        depth,
        states_shares: false,
        edges: SMALL,
        never: &[],
    }
}

/// All targets.
pub const TARGETS: &[Target] = &[
    small(0),
    small(30),
    small(100),
    Target {
        name: "paths",
        script: "paths.php",
        depth: 0,
        states_shares: false,
        edges: &[
            ("{main}", "h1"),
            ("{main}", "h2"),
            ("h1", "w"),
            ("h2", "w"),
            ("w", "left"),
            ("w", "right"),
        ],
        never: &[("h1", "w", "right"), ("h2", "w", "left")],
    },
    Target {
        name: "methods",
        script: "methods.php",
        depth: 0,
        states_shares: false,
        edges: &[
            ("{main}", "callA"),
            ("{main}", "callB"),
            ("{main}", "goA"),
            ("{main}", "goB"),
            ("callA", "A::run"),
            ("callB", "B::run"),
            ("goA", "go"),
            ("goB", "go"),
            ("go", "A::run"),
            ("go", "B::run"),
            ("A::run", "A::inner"),
            ("B::run", "B::inner"),
            ("B::inner", "strtoupper"),
        ],
        never: &[("goA", "go", "B::run"), ("goB", "go", "A::run")],
    },
    Target {
        name: "callbacks",
        script: "callbacks.php",
        depth: 0,
        states_shares: false,
        edges: &[
            ("{main}", "mapOne"),
            ("{main}", "mapTwo"),
            ("{main}", "sorted"),
            ("mapOne", "array_map"),
            ("mapTwo", "array_map"),
            ("sorted", "usort"),
            ("array_map", "one"),
            ("array_map", "two"),
            ("usort", "compare"),
            ("one", "leaf1"),
            ("two", "leaf2"),
        ],
        never: &[
            ("mapOne", "array_map", "two"),
            ("mapTwo", "array_map", "one"),
        ],
    },
    Target {
        name: "closures",
        script: "closures.php",
        depth: 0,
        states_shares: false,
        edges: &[
            ("{main}", "callIt"),
            ("{main}", "mapIt"),
            ("callIt", "make"),
            ("callIt", "{closure:closures.php:5}"),
            ("callIt", "{closure:closures.php:6}"),
            ("mapIt", "array_map"),
            ("array_map", "{closure:closures.php:8}"),
            ("{closure:closures.php:5}", "leaf1"),
            ("{closure:closures.php:6}", "leaf2"),
            ("{closure:closures.php:8}", "leaf1"),
        ],
        never: &[],
    },
    Target {
        name: "magic",
        script: "magic.php",
        depth: 0,
        states_shares: false,
        edges: &[
            ("{main}", "read"),
            ("{main}", "call"),
            ("{main}", "callStatic"),
            ("{main}", "print_"),
            ("{main}", "invoke"),
            ("read", "Magic::__get"),
            ("call", "Magic::__call"),
            ("callStatic", "Magic::__callStatic"),
            ("print_", "Magic::__toString"),
            ("invoke", "Magic::__invoke"),
            ("Magic::__get", "got"),
            ("Magic::__call", "called"),
            ("Magic::__callStatic", "calledStatically"),
            ("Magic::__toString", "text"),
            ("Magic::__invoke", "invoked"),
        ],
        never: &[],
    },
    Target {
        name: "autoload",
        script: "autoload.php",
        depth: 0,
        states_shares: false,
        edges: &[
            ("create", "[autoload]"),
            ("class_exists", "[autoload]"),
            ("[autoload]", "load"),
            ("{main}", "ask"),
            ("{main}", "create"),
            ("ask", "class_exists"),
            ("class_exists", "load"),
            ("create", "load"),
            ("load", "find"),
        ],
        never: &[],
    },
    Target {
        name: "shares",
        script: "shares.php",
        depth: 0,
        states_shares: true,
        edges: &[
            ("{main}", "smallCalls"),
            ("{main}", "longCalls"),
            ("{main}", "hrtime"),
            ("smallCalls", "a"),
            ("smallCalls", "hrtime"),
            ("longCalls", "md5"),
            ("longCalls", "hrtime"),
            ("a", "b"),
            ("a", "c"),
            ("b", "c"),
        ],
        never: &[],
    },
];
