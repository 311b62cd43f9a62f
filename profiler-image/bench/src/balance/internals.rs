//! Internal functions that programs call, with what a call takes on an ordinary machine: it decides
//! how often they are called, and is not taken for true.

/// A call of an internal function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Internal {
    /// The name of its frame.
    pub name: &'static str,
    /// The call; `#` is the argument's size.
    template: &'static str,
    size: u32,
    /// What a call takes, in nanoseconds.
    pub cost: u64,
}

impl Internal {
    /// The call in PHP. Its arguments are constants that only exist at run time, because opcache
    /// evaluates calls of literals itself.
    pub fn expression(&self) -> String {
        self.template.replace('#', &self.size.to_string())
    }
}

/// A function, the call with a size as `#`, and the nanoseconds by size.
type BalanceRow = (&'static str, &'static str, &'static [(u32, u64)]);

const TEXTS: [(u32, [u64; 12]); 4] = [
    (16, [69, 28, 160, 380, 68, 17, 54, 105, 91, 44, 277, 34]),
    (
        128,
        [116, 68, 384, 915, 74, 24, 172, 593, 473, 164, 1612, 32],
    ),
    (
        1024,
        [
            603, 391, 1948, 4562, 149, 77, 1127, 4518, 3352, 1033, 12_664, 81,
        ],
    ),
    (
        8192,
        [
            4333, 2902, 14_476, 33_949, 774, 512, 8886, 36_760, 26_313, 8168, 0, 463,
        ],
    ),
];

/// In the order of the columns of [`TEXTS`].
const OF_TEXTS: [(&str, &str); 12] = [
    ("str_replace", "str_replace('qu', 'x', S#)"),
    ("strrev", "strrev(S#)"),
    ("md5", "md5(S#)"),
    ("hash", "hash('sha256', S#)"),
    ("hash", "hash('crc32b', S#)"),
    ("substr_count", "substr_count(S#, 'o')"),
    ("ucwords", "ucwords(S#)"),
    ("htmlspecialchars", "htmlspecialchars(S#)"),
    ("explode", "explode(' ', S#)"),
    ("wordwrap", "wordwrap(S#, 20)"),
    ("similar_text", "similar_text(S#, 'lazy dogs')"),
    ("base64_encode", "base64_encode(S#)"),
];

const OTHERS: [BalanceRow; 16] = [
    (
        "preg_match",
        "preg_match('/(\\d+)-([a-z]+)z/', S#)",
        &[(16, 47), (128, 160), (1024, 1014)],
    ),
    (
        "str_repeat",
        "$x = strlen(str_repeat(S16, #) . $x) & 65535",
        &[(2, 70), (128, 158), (1024, 543)],
    ),
    (
        "array_sum",
        "array_sum(A#)",
        &[(8, 44), (64, 237), (512, 1802)],
    ),
    (
        "implode",
        "implode(',', A#)",
        &[(8, 92), (64, 593), (512, 4591)],
    ),
    (
        "array_reverse",
        "array_reverse(A#)",
        &[(8, 42), (64, 146), (512, 945)],
    ),
    ("range", "range(1, #)", &[(8, 45), (64, 126), (512, 764)]),
    (
        "json_encode",
        "json_encode(A#)",
        &[(8, 130), (64, 753), (512, 5602)],
    ),
    (
        "array_unique",
        "array_unique(A#)",
        &[(8, 293), (64, 3569), (512, 15_937)],
    ),
    (
        "serialize",
        "serialize(W#)",
        &[(8, 206), (64, 1162), (512, 9357)],
    ),
    (
        "array_keys",
        "array_keys(A#)",
        &[(8, 38), (64, 99), (512, 617)],
    ),
    ("file_exists", "file_exists('/etc/hostname')", &[(0, 1123)]),
    ("is_readable", "is_readable('/etc/none')", &[(0, 878)]),
    (
        "number_format",
        "number_format(12345.678, $x & 3)",
        &[(0, 238)],
    ),
    (
        "levenshtein",
        "levenshtein('kitten sitting', S#)",
        &[(16, 300)],
    ),
    ("intdiv", "intdiv($x, 3)", &[(0, 16)]),
    ("getcwd", "getcwd()", &[(0, 611)]),
];

/// All calls.
pub fn internals() -> Vec<Internal> {
    let of_texts = TEXTS.iter().flat_map(|&(size, costs)| {
        OF_TEXTS
            .iter()
            .zip(costs)
            .map(move |(&(name, template), cost)| Internal {
                name,
                template,
                size,
                cost,
            })
    });
    let others = OTHERS.iter().flat_map(|&(name, template, sizes)| {
        sizes.iter().map(move |&(size, cost)| Internal {
            name,
            template,
            size,
            cost,
        })
    });
    // What takes a tenth of a millisecond has no cost.
    of_texts
        .chain(others)
        .filter(|internal| internal.cost > 0)
        .collect()
}

/// The constants of the calls' arguments.
pub const CONSTANTS: &str = "\
foreach ([16, 128, 1024, 8192] as $size) {
    define(\"S$size\", substr(str_repeat('the quick brown fox 42-jumps over lazy dogs, ', 200), 0, $size));
}
foreach ([8, 64, 512] as $size) {
    define(\"A$size\", array_map(fn ($i) => $i * 7919 % 1000, range(1, $size)));
    define(\"W$size\", array_map(fn ($i) => 'w' . $i * 7919 % 1000, range(1, $size)));
}
";
