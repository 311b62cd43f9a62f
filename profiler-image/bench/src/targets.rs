//! The programs, and every call that each of them can make.

/// A program whose calls are known.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    pub name: &'static str,
    /// Its script in `targets/`.
    pub script: &'static str,
    /// `PHP_VERSION_ID` of the first version that can run it.
    pub since: u32,
    /// Argument of the script: frames of recursion below the work.
    pub depth: u32,
    /// It prints, when it is ended, how long its small calls and its long internal functions took.
    pub states_shares: bool,
    /// Caller and callee, by their names in the profile.
    pub edges: &'static [(&'static str, &'static str)],
    /// Those that PHP 7 has besides.
    pub edges_of_7: &'static [(&'static str, &'static str)],
    /// Grand-caller, caller and callee that never stand on one stack, though both edges exist.
    pub never: &'static [(&'static str, &'static str, &'static str)],
    /// Leaves, with their callers, that are at least a tenth of the samples where no JIT runs the target.
    pub leaves: &'static [(&'static str, &'static str)],
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
        edges: SMALL,
        ..PLAIN
    }
}

const ATTACK: &[(&str, &str)] = &[
    ("{main}", "closures"),
    ("closures", "{closure:attack.php:21}"),
    ("closures", "{closure:attack.php:22}"),
    ("{closure:attack.php:21}", "alpha"),
    ("{closure:attack.php:22}", "beta"),
    ("{main}", "made"),
    ("made", "eval attack.php(27) : eval()'d code"),
    ("made", "eval attack.php(28) : eval()'d code"),
    ("made", "{closure:attack.php(27) : eval()'d code:1}"),
    ("made", "{closure:attack.php(28) : eval()'d code:1}"),
    ("{closure:attack.php(27) : eval()'d code:1}", "gamma"),
    ("{closure:attack.php(28) : eval()'d code:1}", "delta"),
    ("{main}", "evals"),
    ("evals", "eval attack.php(33) : eval()'d code"),
    ("evals", "eval attack.php(34) : eval()'d code"),
    ("eval attack.php(33) : eval()'d code", "epsilon"),
    ("eval attack.php(34) : eval()'d code", "zeta"),
    ("{main}", "spell"),
    ("{main}", "count_"),
    ("spell", "letters"),
    ("count_", "numbers"),
    ("letters", "eta"),
    ("numbers", "theta"),
    ("{main}", "objects"),
    ("objects", "class@anonymous:attack.php:42::run"),
    ("objects", "class@anonymous:attack.php:43::run"),
    ("class@anonymous:attack.php:42::run", "iota"),
    ("class@anonymous:attack.php:43::run", "kappa"),
    ("{main}", "classes"),
    ("classes", "eval attack.php(47) : eval()'d code"),
    (
        "classes",
        "class@anonymous:attack.php(47) : eval()'d code:1::run",
    ),
    (
        "class@anonymous:attack.php(47) : eval()'d code:1::run",
        "lambda",
    ),
    ("{main}", "included"),
    ("included", "include included.php"),
    ("include included.php", "mu"),
    ("{main}", "ghosts"),
    ("ghosts", "str_repeat"),
    ("alpha", "step"),
    ("beta", "step"),
    ("gamma", "step"),
    ("delta", "step"),
    ("epsilon", "step"),
    ("zeta", "step"),
    ("eta", "step"),
    ("theta", "step"),
    ("iota", "step"),
    ("kappa", "step"),
    ("lambda", "step"),
    ("mu", "step"),
];

/// What most targets have in common.
const PLAIN: Target = Target {
    name: "",
    script: "",
    since: 0,
    depth: 0,
    states_shares: false,
    edges: &[],
    edges_of_7: &[],
    never: &[],
    leaves: &[],
};

/// All targets.
pub const TARGETS: &[Target] = &[
    small(0),
    small(30),
    small(100),
    Target {
        name: "paths",
        script: "paths.php",
        edges: &[
            ("{main}", "h1"),
            ("{main}", "h2"),
            ("h1", "w"),
            ("h2", "w"),
            ("w", "left"),
            ("w", "right"),
        ],
        never: &[("h1", "w", "right"), ("h2", "w", "left")],
        ..PLAIN
    },
    Target {
        name: "methods",
        script: "methods.php",
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
        ..PLAIN
    },
    Target {
        name: "callbacks",
        script: "callbacks.php",
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
        ..PLAIN
    },
    Target {
        name: "closures",
        script: "closures.php",
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
        ..PLAIN
    },
    Target {
        name: "fibers",
        script: "fibers.php",
        since: 80_100,
        edges: &[
            ("{main}", "one"),
            ("{main}", "two"),
            ("one", "Fiber::__construct"),
            ("one", "Fiber::start"),
            ("one", "Fiber::resume"),
            ("one", "ended"),
            ("two", "Fiber::__construct"),
            ("two", "Fiber::start"),
            ("two", "Fiber::resume"),
            ("two", "ended"),
            ("Fiber::start", "nested"),
            ("Fiber::resume", "nested"),
            ("Fiber::start", "inner"),
            ("Fiber::resume", "inner"),
            ("nested", "Fiber::__construct"),
            ("nested", "Fiber::start"),
            ("nested", "Fiber::suspend"),
            ("nested", "Fiber::resume"),
            ("nested", "ended"),
            ("inner", "halved"),
            ("inner", "reversed"),
            ("halved", "reversed"),
            ("halved", "Fiber::suspend"),
            ("reversed", "strrev"),
            ("ended", "Fiber::getReturn"),
        ],
        ..PLAIN
    },
    Target {
        name: "hooks",
        script: "hooks.php",
        since: 80_400,
        edges: &[
            ("{main}", "read"),
            ("{main}", "write"),
            ("{main}", "virtual"),
            ("read", "Shelf::$title::get"),
            ("read", "Front::$title::get"),
            ("Front::$title::get", "Shelf::$title::get"),
            ("Front::$title::get", "trimmed"),
            ("write", "Shelf::$title::set"),
            ("virtual", "Shelf::$twice::get"),
            ("Shelf::$twice::get", "Shelf::$title::get"),
            ("Shelf::$twice::get", "repeated"),
            ("Shelf::$title::get", "upper"),
            ("Shelf::$title::set", "lower"),
            ("upper", "strtoupper"),
            ("lower", "strtolower"),
            ("repeated", "str_repeat"),
            ("trimmed", "trim"),
        ],
        ..PLAIN
    },
    Target {
        name: "frameless",
        script: "frameless.php",
        since: 80_400,
        edges: &[
            ("{main}", "found"),
            ("{main}", "joined"),
            ("found", "strpos"),
            ("joined", "implode"),
            ("implode", "Title::__toString"),
            ("Title::__toString", "text"),
        ],
        leaves: &[("found", "strpos")],
        ..PLAIN
    },
    Target {
        name: "generators",
        script: "generators.php",
        edges: &[
            ("{main}", "first"),
            ("{main}", "second"),
            ("first", "iterating"),
            ("first", "used"),
            ("second", "delegating"),
            ("second", "used"),
            ("iterating", "shelf"),
            ("delegating", "shelf"),
            ("shelf", "title"),
            ("title", "ucwords"),
        ],
        ..PLAIN
    },
    Target {
        name: "magic",
        script: "magic.php",
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
        ..PLAIN
    },
    Target {
        name: "autoload",
        script: "autoload.php",
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
        // The engine called an internal function there, which called the autoloaders.
        edges_of_7: &[
            ("create", "spl_autoload_call"),
            ("class_exists", "spl_autoload_call"),
            ("[autoload]", "spl_autoload_call"),
            ("spl_autoload_call", "load"),
        ],
        ..PLAIN
    },
    Target {
        name: "attack",
        script: "attack.php",
        edges: ATTACK,
        ..PLAIN
    },
    Target {
        name: "shares",
        script: "shares.php",
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
        ..PLAIN
    },
];
