//! The scenes: scripts that lead PHP to a place and stand still there, and what is true of that
//! place by the script itself.
//!
//! A script calls `stand` once: it writes what PHP says of the moment (its own backtrace, its heap)
//! and sleeps. Invariant: what is expected here was written by hand, from the script, and never
//! from what the sampler said.

/// How PHP is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    /// The command line, without opcache and with it.
    CommandLine { opcache: bool },
    /// One worker of php-fpm, and one request.
    Fpm,
    /// The same, after the request.
    FpmAfterwards,
}

/// A place in which PHP stands.
#[derive(Debug)]
pub struct Scene {
    /// Its kind and its name: `frames/fiber`.
    pub name: &'static str,
    pub server: Server,
    /// The script after [`PRELUDE`].
    pub code: &'static str,
    /// Settings beyond those of its server.
    pub settings: &'static [&'static str],
    /// The stack, root first, without the folder of files. `*N` behind a call stands for N of them.
    pub stack: &'static str,
    /// Labels of the sample.
    pub labels: &'static [(&'static str, &'static str)],
    /// What the findings say, at least.
    pub finding: Option<&'static str>,
    /// In MiB.
    pub memory_limit: u64,
    /// The first version that has it, and the last one: 801 for 8.1.
    pub since: u32,
    pub until: u32,
}

impl Scene {
    /// The stack, written out.
    pub fn expected(&self) -> String {
        let mut calls = Vec::new();
        for call in self.stack.split(';') {
            let (name, times) = call.split_once('*').unwrap_or((call, "1"));
            calls.extend(std::iter::repeat_n(name, times.parse().unwrap_or(1)));
        }
        calls.join(";")
    }
}

/// The calls of a stack as `debug_backtrace` has them: without phases, the script itself, and the
/// call that sleeps; of closures and evaluated code only the kind. It has an `include` also while
/// the file is not open yet, and has no frame.
pub fn calls_of(stack: &str) -> Vec<String> {
    let is_call = |call: &&str| {
        let is_phase = call.starts_with('[') || *call == "{main}";
        !is_phase && !call.starts_with("include") && !["", "sleep", "flock"].contains(call)
    };
    let kind = |call: &str| {
        if call.contains("{closure") {
            "{closure}".to_owned()
        } else {
            call.split(' ').next().unwrap_or(call).to_owned()
        }
    };
    stack.split(';').filter(is_call).map(kind).collect()
}

/// The begin of each script. `debug_backtrace` has no phases and no `{main}`.
pub const PRELUDE: &str = r#"<?php
function truth() {
    $calls = [];
    foreach (debug_backtrace(DEBUG_BACKTRACE_IGNORE_ARGS) as $call) {
        array_unshift($calls, (isset($call['class']) ? $call['class'] . '::' : '') . $call['function']);
    }
    array_pop($calls);
    $status = function_exists('opcache_get_status') ? opcache_get_status() : false;
    $scripts = $status ? array_keys($status['scripts']) : [];
    sort($scripts);
    $lines = [implode(';', $calls), PHP_VERSION, implode(';', $scripts)];
    $calls = $status = $scripts = $call = null;
    // The last ones, after all that needs memory.
    $lines[] = memory_get_usage() . ' ' . memory_get_peak_usage();
    file_put_contents('/srv/truth.new', implode("\n", $lines));
    rename('/srv/truth.new', '/srv/truth');
}
function stand() { truth(); sleep(3600); }
"#;

/// What each script may include or preload, by its name.
pub const FILES: [(&str, &str); 3] = [
    ("part.php", "<?php stand();"),
    (
        "function.php",
        "<?php\n\nreturn function () { return stand(); };",
    ),
    (
        "preloaded.php",
        "<?php final class Preloaded { static function work() { stand(); } }",
    ),
];
