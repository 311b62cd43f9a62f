//! The calls of `targets/small.php`, with which `make truth` and `make bench` compare its stacks.

/// Every call that it can make: caller and callee.
pub const SMALL_CALLS: &[(&str, &str)] = &[
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
