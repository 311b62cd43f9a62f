//! The rules: what each looks for, above which share it reports, and its text.
//!
//! A threshold is a share that is worth an engineer's time. Lower ones would report healthy
//! programs. `docs/reference/findings.md` has a section for each id, and a test compares both.
//!
//! Invariant: a sentence is true for everything that its rule can match, and says what to do.

use serde::Serialize;

/// The measure of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// The wall time of the samples.
    Wall,
    /// Their CPU time.
    Cpu,
    /// The turns at which workers were sampled.
    Workers,
    /// `memory_limit`, compared with the highest heap.
    Limit,
    /// The number of samples that are not idle; no rule has it.
    Samples,
}

impl Measure {
    /// The measure's name for users.
    pub fn words(self) -> &'static str {
        match self {
            Measure::Wall => "of the time",
            Measure::Cpu => "of the CPU time",
            Measure::Workers => "of the workers",
            Measure::Limit => "of memory_limit",
            Measure::Samples => "of the samples",
        }
    }
}

/// What to look for, and the text of the finding.
#[derive(Debug)]
pub struct FindingRule {
    /// Also the anchor in `docs/reference/findings.md`.
    pub id: &'static str,
    /// The measure of its share.
    pub measure: Measure,
    /// The smallest share that is reported.
    pub least: f64,
    pub(crate) shows: Shows,
    pub(crate) only: Only,
    /// The rule reports nothing if one of these earlier rules does.
    pub(crate) unless: &'static [&'static str],
    /// `{function}` is the function with most of the share, `{request}` describes the request, and
    /// `{places}` lists the code that raises errors.
    pub sentence: &'static str,
}

/// Where a rule applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Only {
    Everywhere,
    /// Only if PHP serves requests. A command starts from scratch each time, and may sleep.
    Serving,
    /// The same, from PHP 7.4 on.
    Preloading,
}

/// What a stack, or the whole profile, must have.
#[derive(Debug)]
pub(crate) enum Shows {
    /// One of these is the leaf.
    Leaf(&'static [&'static str]),
    /// The stack waits for this.
    Waits(&'static str),
    /// The stack waits for anything while one of these is on it.
    WaitsBelow(&'static [&'static str]),
    /// One of the first is on the stack, and the leaf is none of the second.
    Below(&'static [&'static str], &'static [&'static str]),
    /// The leaf is one of `leaf` below one of `below`, or one of `or_below` is on the stack.
    LeafBelow {
        below: &'static [&'static str],
        leaf: &'static [&'static str],
        or_below: &'static [&'static str],
    },
    /// One of these called the function.
    CalledBy(&'static [&'static str]),
    /// One of these is the leaf, and its calls are long: its caller has almost no self time.
    LongCalls(&'static [&'static str]),
    /// A function that prepares a statement about as often as it runs it.
    PreparesAgain,
    /// The JIT is on, and PHP's own code has less than the share.
    LittleForTheJit,
    /// No worker was ever idle.
    AllBusy,
    /// Scripts are compiled, and opcache is in this state in each pod.
    Compiles(Opcache),
    /// Xdebug runs in the workers of some pods.
    Xdebug,
    /// The highest heap has this share of its limit.
    NearTheLimit,
    /// A function that handles PHP's errors is on the stack, or an error becomes an exception.
    HandlesErrors,
}

/// What is wrong with opcache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opcache {
    Off,
    Full,
    /// It restarted: because it was full, or it was told to.
    Restarted,
}

/// What makes an exception of an error.
pub(super) const CONSTRUCTS_ERRORS: &[&str] = &["ErrorException::__construct"];
/// Functions written in PHP whose purpose is to raise an error of their caller (the package
/// symfony/deprecation-contracts).
pub(super) const RAISES_ERRORS: &[&str] = &["trigger_deprecation"];

pub(super) const COMPILING: &[&str] = &["[compiling]"];
const AUTOLOAD: &[&str] = &["[autoload]"];

/// Rules that suppress others come before them.
pub static RULES: [FindingRule; 23] = [
    FindingRule {
        id: "xdebug",
        measure: Measure::Workers,
        least: 0.01,
        shows: Shows::Xdebug,
        only: Only::Everywhere,
        unless: &[],
        sentence: "Xdebug is on and handles each function call: small functions become several times slower, and this profile includes Xdebug's cost in theirs. Do not load it in production, or set xdebug.mode=off.",
    },
    FindingRule {
        id: "opcache-off",
        measure: Measure::Cpu,
        least: 0.10,
        shows: Shows::Compiles(Opcache::Off),
        only: Only::Serving,
        unless: &[],
        sentence: "opcache is off: each request compiles its scripts again. Set opcache.enable=1, and load it with zend_extension=opcache if PHP is older than 8.5.",
    },
    FindingRule {
        id: "opcache-full",
        measure: Measure::Cpu,
        least: 0.10,
        shows: Shows::Compiles(Opcache::Full),
        only: Only::Serving,
        unless: &[],
        sentence: "opcache is full: each request compiles the scripts that do not fit. Raise opcache.memory_consumption, or opcache.max_accelerated_files if there are more scripts than that.",
    },
    FindingRule {
        id: "opcache-restarts",
        measure: Measure::Cpu,
        least: 0.10,
        shows: Shows::Compiles(Opcache::Restarted),
        only: Only::Serving,
        unless: &[],
        sentence: "PHP compiles scripts while it serves requests, and opcache has dropped all scripts before, because it was full or was reset. Raise opcache.memory_consumption, or reset it and change scripts less often.",
    },
    FindingRule {
        id: "compiling",
        measure: Measure::Cpu,
        least: 0.10,
        shows: Shows::Leaf(COMPILING),
        only: Only::Serving,
        unless: &["opcache-off", "opcache-full", "opcache-restarts"],
        sentence: "PHP compiles scripts while it serves requests: scripts are new or change, opcache does not keep them (no room for a large one, eval, its blacklist, opcache.enable in the pool), or PHP has just started. See opcache_get_status().",
    },
    FindingRule {
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
        sentence: "The autoloader searches the disk for class files. A class map avoids that; with Composer: composer dump-autoload --classmap-authoritative.",
    },
    FindingRule {
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
        sentence: "Each request loads its classes again, although they are compiled. opcache.preload loads them once, when PHP starts.",
    },
    FindingRule {
        id: "session-lock",
        measure: Measure::Wall,
        least: 0.05,
        shows: Shows::WaitsBelow(&["session_start"]),
        only: Only::Everywhere,
        unless: &[],
        sentence: "Requests wait in session_start(), mostly for the session's lock, which another request of the same session holds. Call session_write_close() once the session is read, or start it with read_and_close.",
    },
    FindingRule {
        id: "waiting-database",
        measure: Measure::Wall,
        least: 0.25,
        shows: Shows::Waits("database"),
        only: Only::Everywhere,
        unless: &[],
        sentence: "PHP waits for the database, most in {function}. Look at the callers below, and at these queries in the database's slow log.",
    },
    FindingRule {
        id: "query-loop",
        measure: Measure::Wall,
        least: 0.10,
        shows: Shows::PreparesAgain,
        only: Only::Everywhere,
        unless: &[],
        sentence: "{function} prepares a statement each time it runs it, and does both often. If a loop calls it, fetch all rows with one query, or prepare once before the loop.",
    },
    FindingRule {
        id: "waiting-cache",
        measure: Measure::Wall,
        least: 0.15,
        shows: Shows::Waits("cache"),
        only: Only::Everywhere,
        unless: &[],
        sentence: "PHP waits for the cache server, most in {function}. Request many keys at once (MGET, getMulti), or keep frequent ones in APCu.",
    },
    FindingRule {
        id: "waiting-http",
        measure: Measure::Wall,
        least: 0.15,
        shows: Shows::Waits("http"),
        only: Only::Everywhere,
        unless: &[],
        sentence: "PHP waits for another HTTP service, most in {function}. Cache its responses, send several requests in parallel, and set a timeout.",
    },
    FindingRule {
        id: "waiting-process",
        measure: Measure::Wall,
        least: 0.10,
        shows: Shows::Waits("process"),
        only: Only::Everywhere,
        unless: &[],
        sentence: "PHP waits for programs that it starts, most in {function}. Use a library instead, or move this work to a queue.",
    },
    FindingRule {
        id: "waiting-lock",
        measure: Measure::Wall,
        least: 0.05,
        shows: Shows::Waits("lock"),
        only: Only::Everywhere,
        unless: &["session-lock"],
        sentence: "PHP waits for a lock in {function}. Hold the lock for less time, or lock less with it.",
    },
    FindingRule {
        id: "sleep",
        measure: Measure::Wall,
        least: 0.05,
        shows: Shows::Waits("sleep"),
        only: Only::Serving,
        unless: &[],
        sentence: "Requests sleep in {function}, and each blocks its worker. Move retries and polling to a queue or to the browser.",
    },
    FindingRule {
        id: "error-handler",
        measure: Measure::Wall,
        least: 0.03,
        shows: Shows::HandlesErrors,
        only: Only::Everywhere,
        unless: &[],
        sentence: "PHP code raises errors all the time (deprecations, notices, warnings), and {function} handles each, also those that are logged nowhere. Most are raised by {places}. Change these lines, or pass set_error_handler() the levels that it is for.",
    },
    FindingRule {
        id: "gc",
        measure: Measure::Cpu,
        least: 0.05,
        shows: Shows::Leaf(&["[gc]"]),
        only: Only::Everywhere,
        unless: &[],
        sentence: "PHP's garbage collector runs often. If code builds and keeps many objects, call gc_disable() around it.",
    },
    FindingRule {
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
        sentence: "The output buffer's callback {function} rewrites the output. Do that once, when the page is stored or sent, or in the web server.",
    },
    FindingRule {
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
        sentence: "Single calls of {function} take long: the pattern backtracks, or the text is large. Make repetitions possessive (a++), and do not nest them.",
    },
    FindingRule {
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
        sentence: "PHP serialises or parses values, most in {function}: they are large, or many. Store less in them, or keep the result.",
    },
    FindingRule {
        id: "jit",
        measure: Measure::Wall,
        least: 0.10,
        shows: Shows::LittleForTheJit,
        only: Only::Everywhere,
        unless: &[],
        sentence: "The JIT is on, but only this share of the time is in PHP code, the only code that it speeds up. Without the JIT, less can go wrong: opcache.jit=disable.",
    },
    FindingRule {
        id: "all-busy",
        measure: Measure::Workers,
        least: 0.98,
        shows: Shows::AllBusy,
        only: Only::Serving,
        unless: &[],
        sentence: "No worker was idle at any time. If no more workers can start (pm.max_children), requests wait before PHP sees them: make requests faster, or allow more workers if there is memory.",
    },
    FindingRule {
        id: "memory-limit",
        measure: Measure::Limit,
        least: 0.80,
        shows: Shows::NearTheLimit,
        only: Only::Everywhere,
        unless: &[],
        sentence: "A worker's memory{request} came near memory_limit; above it, PHP ends a request with a fatal error. The sample type heap_growth shows which functions made it grow.",
    },
];
