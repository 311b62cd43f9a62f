//! The rules: what each looks for, from which share on it speaks, and what it says.
//!
//! Thresholds are where the time is worth an engineer's: lower ones would speak of programs that are as they should be.
//! `docs/reference/findings.md` has a section for each id; a test holds the two together.
//!
//! Invariant: a sentence is true of all that its rule can match, and says what to do.

use serde::Serialize;

/// What a share is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// The wall time of the samples.
    Wall,
    /// Their CPU time.
    Cpu,
    /// The turns at which workers were looked at.
    Workers,
    /// `memory_limit`, by the highest heap.
    Limit,
}

impl Measure {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Measure::Wall => "of the time",
            Measure::Cpu => "of the CPU time",
            Measure::Workers => "of the workers",
            Measure::Limit => "of memory_limit",
        }
    }
}

/// What is looked for, and what is said where it is found.
#[derive(Debug)]
pub struct Rule {
    /// Also the section of `docs/reference/findings.md`.
    pub id: &'static str,
    /// What its share is of.
    pub measure: Measure,
    /// From this share on it speaks.
    pub least: f64,
    pub(crate) shows: Shows,
    pub(crate) only: Only,
    /// It is silent where one of these earlier rules speaks.
    pub(crate) unless: &'static [&'static str],
    /// `{function}` is the function that has most of it, `{request}` what request it was.
    pub sentence: &'static str,
}

/// Where a rule holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Only {
    Everywhere,
    /// Where PHP serves requests: a command begins anew each time, and may sleep.
    Serving,
    /// The same, from PHP 7.4 on.
    Preloading,
}

/// What a stack, or the whole profile, must show.
#[derive(Debug)]
pub(crate) enum Shows {
    /// One of these is the leaf.
    Leaf(&'static [&'static str]),
    /// It waits for this.
    Waits(&'static str),
    /// It waits, for whatever it may be, while one of these is on the stack.
    WaitsBelow(&'static [&'static str]),
    /// One of these is on the stack, and the leaf is none of the others.
    Below(&'static [&'static str], &'static [&'static str]),
    /// One of the latter is the leaf below one of the former, or one of the third ones is on the stack.
    LeafBelow {
        below: &'static [&'static str],
        leaf: &'static [&'static str],
        or_below: &'static [&'static str],
    },
    /// One of these has called it.
    CalledBy(&'static [&'static str]),
    /// One of these is the leaf, and its calls are long: the function that calls it has next to no time of its own.
    LongCalls(&'static [&'static str]),
    /// A function that prepares a statement about as often as it runs it.
    PreparesAgain,
    /// The JIT is on, and PHP's own code has less than the share.
    LittleForTheJit,
    /// No worker was ever idle.
    AllBusy,
    /// Scripts are compiled, and opcache is so in each pod.
    Compiles(Opcache),
    /// Xdebug runs the calls of some pods' workers.
    Xdebug,
    /// The highest heap has the share of its limit.
    NearTheLimit,
}

/// What is wrong with opcache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opcache {
    Off,
    Full,
    /// It began anew because it was full.
    Restarted,
}

pub(super) const COMPILING: &[&str] = &["[compiling]"];
const AUTOLOAD: &[&str] = &["[autoload]"];

/// Those that silence others come before them.
pub static RULES: [Rule; 22] = [
    Rule {
        id: "xdebug",
        measure: Measure::Workers,
        least: 0.01,
        shows: Shows::Xdebug,
        only: Only::Everywhere,
        unless: &[],
        sentence: "Xdebug is on, and runs each call of a function: small ones become several times slower, and this profile shows its cost among theirs. Do not load it in production, or set xdebug.mode=off.",
    },
    Rule {
        id: "opcache-off",
        measure: Measure::Cpu,
        least: 0.10,
        shows: Shows::Compiles(Opcache::Off),
        only: Only::Serving,
        unless: &[],
        sentence: "opcache is off: each request compiles its scripts anew. Set opcache.enable=1, and load it with zend_extension=opcache where PHP is older than 8.5.",
    },
    Rule {
        id: "opcache-full",
        measure: Measure::Cpu,
        least: 0.10,
        shows: Shows::Compiles(Opcache::Full),
        only: Only::Serving,
        unless: &[],
        sentence: "opcache is full: what has no room in it is compiled in each request. Give it more by opcache.memory_consumption, or opcache.max_accelerated_files where there are more scripts than that.",
    },
    Rule {
        id: "opcache-restarts",
        measure: Measure::Cpu,
        least: 0.10,
        shows: Shows::Compiles(Opcache::Restarted),
        only: Only::Serving,
        unless: &[],
        sentence: "PHP compiles scripts while it serves, and opcache has forgotten all of them before, because it was full. Give it more by opcache.memory_consumption, or change scripts less often.",
    },
    Rule {
        id: "compiling",
        measure: Measure::Cpu,
        least: 0.10,
        shows: Shows::Leaf(COMPILING),
        only: Only::Serving,
        unless: &["opcache-off", "opcache-full", "opcache-restarts"],
        sentence: "PHP compiles scripts while it serves: they are new or change, opcache does not keep them (no room for a large one, eval, its blacklist, opcache.enable in the pool), or PHP was just started. See opcache_get_status().",
    },
    Rule {
        id: "class-map",
        measure: Measure::Wall,
        least: 0.03,
        shows: Shows::LeafBelow {
            below: AUTOLOAD,
            leaf: &[
                "file_exists",
                "is_file",
                "is_readable",
                "stream_resolve_include_path",
                "realpath",
            ],
            or_below: &["Composer\\Autoload\\ClassLoader::findFileWithExtension"],
        },
        only: Only::Serving,
        unless: &[],
        sentence: "The autoloader looks for the files of classes on the disk. A class map knows them; with Composer: composer dump-autoload --classmap-authoritative.",
    },
    Rule {
        id: "preloading",
        measure: Measure::Cpu,
        least: 0.15,
        shows: Shows::Below(AUTOLOAD, COMPILING),
        only: Only::Preloading,
        unless: &[
            "opcache-off",
            "opcache-full",
            "opcache-restarts",
            "compiling",
            "class-map",
        ],
        sentence: "Each request loads its classes anew, though they are compiled. opcache.preload loads them once, when PHP starts.",
    },
    Rule {
        id: "session-lock",
        measure: Measure::Wall,
        least: 0.05,
        shows: Shows::WaitsBelow(&["session_start"]),
        only: Only::Everywhere,
        unless: &[],
        sentence: "Requests wait in session_start(), mostly for another request of the same session that holds its lock. Call session_write_close() once the session is read, or start it with read_and_close.",
    },
    Rule {
        id: "waiting-database",
        measure: Measure::Wall,
        least: 0.25,
        shows: Shows::Waits("database"),
        only: Only::Everywhere,
        unless: &[],
        sentence: "PHP waits for the database, most in {function}. Look at the callers below, and at these queries in the database's slow log.",
    },
    Rule {
        id: "query-loop",
        measure: Measure::Wall,
        least: 0.10,
        shows: Shows::PreparesAgain,
        only: Only::Everywhere,
        unless: &[],
        sentence: "{function} prepares a statement each time that it runs it, and does both often. If a loop calls it, fetch all rows with one query, or prepare once before the loop.",
    },
    Rule {
        id: "waiting-cache",
        measure: Measure::Wall,
        least: 0.15,
        shows: Shows::Waits("cache"),
        only: Only::Everywhere,
        unless: &[],
        sentence: "PHP waits for the cache server, most in {function}. Ask for many keys at once (MGET, getMulti), or keep hot ones in APCu.",
    },
    Rule {
        id: "waiting-http",
        measure: Measure::Wall,
        least: 0.15,
        shows: Shows::Waits("http"),
        only: Only::Everywhere,
        unless: &[],
        sentence: "PHP waits for another HTTP service, most in {function}. Cache its answers, ask several at once, and set a timeout.",
    },
    Rule {
        id: "waiting-process",
        measure: Measure::Wall,
        least: 0.10,
        shows: Shows::Waits("process"),
        only: Only::Everywhere,
        unless: &[],
        sentence: "PHP waits for programs that it starts, most in {function}. Use a library in their place, or leave them to a queue.",
    },
    Rule {
        id: "waiting-lock",
        measure: Measure::Wall,
        least: 0.05,
        shows: Shows::Waits("lock"),
        only: Only::Everywhere,
        unless: &["session-lock"],
        sentence: "PHP waits for a lock in {function}. Hold it for less time, or lock less with it.",
    },
    Rule {
        id: "sleep",
        measure: Measure::Wall,
        least: 0.05,
        shows: Shows::Waits("sleep"),
        only: Only::Serving,
        unless: &[],
        sentence: "Requests sleep in {function}, and each holds its worker meanwhile. Leave retries and polling to a queue or to the browser.",
    },
    Rule {
        id: "gc",
        measure: Measure::Cpu,
        least: 0.05,
        shows: Shows::Leaf(&["[gc]"]),
        only: Only::Everywhere,
        unless: &[],
        sentence: "PHP looks for cycles among its objects again and again. Where many objects are built and kept, call gc_disable() around it.",
    },
    Rule {
        id: "output-buffer",
        measure: Measure::Cpu,
        least: 0.10,
        shows: Shows::CalledBy(&[
            "ob_clean",
            "ob_end_clean",
            "ob_end_flush",
            "ob_flush",
            "ob_get_clean",
            "ob_get_flush",
        ]),
        only: Only::Everywhere,
        unless: &[],
        sentence: "The output buffer's callback {function} rewrites what was printed. Do it once, when the page is stored or sent, or in the web server.",
    },
    Rule {
        id: "regex",
        measure: Measure::Cpu,
        least: 0.15,
        shows: Shows::LongCalls(&[
            "preg_match",
            "preg_match_all",
            "preg_replace",
            "preg_replace_callback",
            "preg_filter",
            "preg_grep",
            "preg_split",
        ]),
        only: Only::Everywhere,
        unless: &[],
        sentence: "Single calls of {function} take long: its pattern backtracks, or its text is large. Make repetitions possessive (a++), and do not nest them.",
    },
    Rule {
        id: "serialising",
        measure: Measure::Cpu,
        least: 0.15,
        shows: Shows::Leaf(&[
            "json_encode",
            "json_decode",
            "serialize",
            "unserialize",
            "igbinary_serialize",
            "igbinary_unserialize",
            "msgpack_pack",
            "msgpack_unpack",
            "var_export",
        ]),
        only: Only::Everywhere,
        unless: &[],
        sentence: "PHP turns values into text or back, most in {function}: they are large, or many. Keep less in them, or keep the result.",
    },
    Rule {
        id: "jit",
        measure: Measure::Wall,
        least: 0.10,
        shows: Shows::LittleForTheJit,
        only: Only::Everywhere,
        unless: &[],
        sentence: "The JIT is on, but only this much of the time is code of PHP, which is all that it makes faster. Without it there is less that can go wrong: opcache.jit=disable.",
    },
    Rule {
        id: "all-busy",
        measure: Measure::Workers,
        least: 0.98,
        shows: Shows::AllBusy,
        only: Only::Serving,
        unless: &[],
        sentence: "No worker was idle at any time. If there cannot be more of them (pm.max_children), requests wait before PHP sees them: make them shorter, or allow more where there is memory.",
    },
    Rule {
        id: "memory-limit",
        measure: Measure::Limit,
        least: 0.80,
        shows: Shows::NearTheLimit,
        only: Only::Everywhere,
        unless: &[],
        sentence: "A worker's memory{request} came near memory_limit, beyond which PHP ends a request with a fatal error. The sample type heap_growth tells which functions made it grow.",
    },
];

impl Rule {
    /// The section that explains it, as a path in the repository.
    pub fn link(&self) -> String {
        format!("docs/reference/findings.md#{}", self.id)
    }
}
