//! Frames that no ordinary call pushes, in profiles of this machine's PHP 8.2: fibers, code that
//! opcache has preloaded, and scripts that are changed while they run.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use phpprof::deliver::pprof::{OfSampler, output};
use phpprof::run::record;
use phpprof::target::Scope;
use phpprof_profile::{DecodeLimits, Lookup, Profile, decode, place_name};
use phpprof_testing::Running;
use tempfile::TempDir;

use crate::options::options;

/// One fiber runs another, and both continue after they were suspended.
const FIBERS: &str = r#"<?php
function work() { return md5(str_repeat('x', 50000)); }
function inner() { Fiber::suspend(); work(); }
function outer() { $fiber = new Fiber('inner'); $fiber->start(); Fiber::suspend(); work(); $fiber->resume(); }
while (true) { $fiber = new Fiber('outer'); $fiber->start(); $fiber->resume(); }
"#;

const PRELOADED: &str = "<?php
final class Preloaded { static function work() { return md5(str_repeat('x', 50000)); } }
";

const INCLUDES: &str = r#"<?php
function before() { return md5(str_repeat('x', 50000)); }
function after() { return sha1(str_repeat('x', 50000)); }
while (true) { (include __DIR__ . '/part.php')(); }
"#;

/// Half of the time is below a chain of generators, each of which delegates to the next one; and
/// half in `other`.
const DELEGATES: &str = r#"
function busy(int $us) { $end = hrtime(true) + $us * mt_rand(400, 1600); while (hrtime(true) < $end) { md5('x'); } }
function gen($depth) { global $us;
    if ($depth > 0) { yield from gen($depth - 1); } else { for ($i = 0; $i < 3; $i++) { busy($us); yield $i; } } }
function consume($depth) { foreach (gen($depth) as $value); }
function other() { global $us; busy($us); busy($us); busy($us); }
while (true) { consume($depth); other(); }
"#;

/// Two generators delegate to one; generators consume generators; and a chain of them is suspended
/// with its fiber.
const GENERATORS: &str = r#"<?php
function busy(int $us) { $end = hrtime(true) + $us * 1000; while (hrtime(true) < $end) { md5('x'); } }
function inner() { for ($i = 0; $i < 8; $i++) { busy(500); yield $i; } }
function middle($shared) { yield from $shared; }
function one($shared) { yield from middle($shared); }
function two($shared) { yield from middle($shared); }
function shares() { $shared = inner(); $a = one($shared); $b = two($shared); for ($i = 0; $i < 4; $i++) { uses_one($a); uses_two($b); } }
function uses_one($one) { $one->current(); $one->next(); }
function uses_two($two) { $two->current(); $two->next(); }
function source() { for ($i = 0; $i < 5; $i++) { busy(500); yield $i; } }
function stage($source) { foreach ($source as $value) { yield $value; } }
function filter($source) { foreach ($source as $value) { busy(200); yield $value; } }
function pipeline() { $end = source(); for ($i = 0; $i < 7; $i++) { $end = stage($end); } foreach (filter($end) as $value); }
function deep($depth) { if ($depth) { yield from deep($depth - 1); } else { foreach ([1, 2] as $value) { Fiber::suspend(); busy(1000); yield $value; } } }
function in_fiber() { foreach (deep(5) as $value) { busy(200); } }
function fibers() { $fiber = new Fiber('in_fiber'); $fiber->start(); while (!$fiber->isTerminated()) { $fiber->resume(); } }
while (true) { shares(); pipeline(); fibers(); }
"#;

/// Fifty fibers that run for 30 µs each.
const TURNS: &str = "<?php
function work() { $end = hrtime(true) + 30000; while (hrtime(true) < $end) { md5('a'); } }
function task() { while (true) { work(); Fiber::suspend(); } }
for ($i = 0; $i < 50; $i++) { $fibers[$i] = new Fiber('task'); $fibers[$i]->start(); }
while (true) foreach ($fibers as $fiber) $fiber->resume();
";

/// A closure in each kind of place: a method, a function, another closure, a trait's method, two
/// functions of one line, and outside functions.
const CLOSURES: &str = r#"<?php
namespace Shop;
function work() { return md5(str_repeat('x', 50000)); }
function called($closure) { return $closure(); }
trait Loud {
    function shout() { return called(
        function () { return work(); }); }
}
class Cart { use Loud;
    function total() {
        return called(function () { return called(fn () => work()); });
    }
    static function open() { return called(static function () { return work(); }); }
}
function sell() {
    return called(function () { return work(); });
}
function one() { called(fn () => work()); } function two() { called(fn () => work()); }
$outside = function () { return work(); };
while (true) { (new Cart)->total(); (new Cart)->shout(); Cart::open(); sell(); one(); two(); called($outside); }
"#;

/// Puts the main script into the folder, and starts it with these settings.
fn start(folder: &TempDir, script: &str, settings: &[&str]) -> Result<Running> {
    let path = folder.path().join("main.php");
    fs::write(&path, script)?;
    let settings = settings.iter().flat_map(|setting| ["-d", setting]);
    let child = Command::new("php8.2")
        .args(settings)
        .arg(&path)
        .stdout(Stdio::null())
        .spawn()
        .context("starting php8.2")?;
    // Until the compiler has run.
    std::thread::sleep(Duration::from_millis(200));
    Ok(Running(child))
}

/// Samples by their stack, root first, without the folder of files.
fn sampled(target: &Running, folder: &Path) -> Result<HashMap<String, i64>> {
    sampled_for(target, folder, Duration::from_secs(2))
}

/// The same for so long.
fn sampled_for(
    target: &Running,
    folder: &Path,
    duration: Duration,
) -> Result<HashMap<String, i64>> {
    let profile = profile_of(target, duration)?;
    let lookup = Lookup::new(&profile);
    let mut stacks = HashMap::new();
    for sample in &profile.sample {
        let names = lookup.frames(sample);
        let names = names.map(|frame| place_name(frame.name, frame.file, frame.start_line));
        let mut names: Vec<_> = names.collect();
        names.reverse();
        let stack = names
            .join(";")
            .replace(&format!("{}/", folder.display()), "");
        *stacks.entry(stack).or_default() += sample.value[0];
    }
    Ok(stacks)
}

fn profile_of(target: &Running, duration: Duration) -> Result<Profile> {
    profile_in(Scope::Pids(vec![target.pid()]), duration)
}

fn profile_in(scope: Scope, duration: Duration) -> Result<Profile> {
    let options = options(scope, 499, duration);
    // On a busy machine it takes long to start.
    let mut recording = record(&options);
    for _ in 0..40 {
        if recording.is_ok() {
            break;
        }
        std::thread::sleep(Duration::from_millis(250));
        recording = record(&options);
    }
    let recording = recording?;
    Ok(decode(
        &output(&recording.snapshot(), &[], OfSampler::default()).bytes,
        &DecodeLimits::default(),
    )?)
}

/// Checks that each of the stacks has at least that many samples.
fn check(stacks: &HashMap<String, i64>, expected: &[&str], at_least: i64) -> Result<()> {
    for stack in expected {
        let samples = stacks.get(*stack).copied().unwrap_or(0);
        ensure!(
            samples >= at_least,
            "{samples} samples of {stack}: {stacks:?}"
        );
    }
    Ok(())
}

/// Checks that no stack has one of these calls.
fn check_without(stacks: &HashMap<String, i64>, calls: &[&str]) -> Result<()> {
    let has = |stack: &&String| calls.iter().any(|call| stack.contains(call));
    let wrong: Vec<_> = stacks.keys().filter(has).collect();
    ensure!(wrong.is_empty(), "{wrong:?}");
    Ok(())
}

#[test]
fn fiber_is_called_by_its_starter_or_resumer() -> Result<()> {
    let folder = TempDir::new()?;
    let target = start(&folder, FIBERS, &[])?;
    let stacks = sampled(&target, folder.path())?;
    check(
        &stacks,
        &[
            "{main};Fiber::resume;outer;work;md5",
            "{main};Fiber::resume;outer;Fiber::resume;inner;work;md5",
        ],
        50,
    )?;
    check_without(
        &stacks,
        &[
            "{main};outer",
            "{main};inner",
            "{main};work",
            "outer;inner",
            "{main};Fiber::resume;inner",
            "{main};Fiber::start;inner",
            "Fiber::start;outer;work",
            "Fiber::start;inner;work",
            "Fiber::start;outer;Fiber::resume",
            "Fiber::start;outer;Fiber::suspend;inner",
        ],
    )
}

#[test]
fn changed_script_has_the_names_of_its_time() -> Result<()> {
    for enabled in ["opcache.enable_cli=0", "opcache.enable_cli=1"] {
        let folder = TempDir::new()?;
        let part = folder.path().join("part.php");
        fs::write(&part, "<?php return function () { return before(); };")?;
        let settings = [
            enabled,
            "opcache.revalidate_freq=0",
            "opcache.file_update_protection=0",
        ];
        let target = start(&folder, INCLUDES, &settings)?;
        let change = std::thread::spawn(move || -> Result<()> {
            std::thread::sleep(Duration::from_millis(1100));
            // In one step, as a deployment does.
            let next = part.with_extension("next");
            fs::write(&next, "<?php\n\nreturn function () { return after(); };")?;
            Ok(fs::rename(next, part)?)
        });
        let stacks = sampled(&target, folder.path())?;
        change.join().ok().context("the change has failed")??;
        check(
            &stacks,
            &[
                "{main};{closure:part.php:1};before;md5",
                "{main};{closure:part.php:3};after;sha1",
            ],
            50,
        )?;
        check_without(
            &stacks,
            &["{closure:part.php:1};after", "{closure:part.php:3};before"],
        )?;
    }
    Ok(())
}

#[test]
fn closures_are_named_by_their_functions() -> Result<()> {
    for enabled in ["opcache.enable_cli=0", "opcache.enable_cli=1"] {
        let folder = TempDir::new()?;
        let target = start(&folder, CLOSURES, &[enabled])?;
        let mut names = BTreeMap::new();
        let profile = profile_of(&target, Duration::from_secs(2))?;
        let folder = format!("{}/", folder.path().display());
        for row in &profile.function {
            let name = profile.string(row.name).replace(&folder, "");
            if name.starts_with("{closure:") {
                *names.entry(name).or_insert(0) += 1;
            }
        }
        let expected = [
            r"{closure:Shop\Cart::open():13}",
            r"{closure:Shop\Cart::shout():7}",
            r"{closure:Shop\Cart::total():11}",
            r"{closure:Shop\sell():16}",
            "{closure:main.php:18}",
            "{closure:main.php:19}",
        ];
        ensure!(names.keys().eq(expected.iter()), "{enabled}: {names:?}");
        // Each has one name, and so has each place.
        ensure!(names.values().all(|rows| *rows == 1), "{names:?}");
    }
    Ok(())
}

/// Programs that start at the same time have more closures than tables may be read in a row.
#[test]
fn closures_of_programs_started_together_have_names() -> Result<()> {
    let closures: String = (0..8)
        .map(|number| format!("function f{number}() {{\nreturn called(fn () => work());\n}}\n"))
        .collect();
    let calls: String = (0..8).map(|number| format!("f{number}(); ")).collect();
    let script = format!(
        "<?php\nfunction work() {{ return md5(str_repeat('x', 50000)); }}\n\
         function called($closure) {{ return $closure(); }}\n{closures}while (true) {{ {calls} }}\n"
    );
    let folders: Vec<TempDir> = (0..5).map(|_| TempDir::new()).collect::<Result<_, _>>()?;
    let targets = folders.iter().map(|folder| start(folder, &script, &[]));
    let targets: Vec<Running> = targets.collect::<Result<_>>()?;
    let pids = targets.iter().map(Running::pid).collect();
    let profile = profile_in(Scope::Pids(pids), Duration::from_secs(6))?;
    let rows = profile.function.iter();
    let names = rows.map(|row| profile.string(row.name));
    let names: Vec<&str> = names.filter(|it| it.starts_with("{closure:")).collect();
    let in_functions = names.iter().filter(|it| it.starts_with("{closure:f"));
    // As many are looked up at once. How soon the others are depends on how long their calls take.
    let at_once = 32;
    ensure!(
        names.len() == 40 && in_functions.count() > at_once,
        "{names:?}"
    );
    Ok(())
}

/// Samples until that is enough, or for long.
fn sampled_until(
    target: &Running,
    folder: &Path,
    is_enough: impl Fn(&HashMap<String, i64>) -> bool,
) -> Result<HashMap<String, i64>> {
    let mut all = HashMap::new();
    for _ in 0..10 {
        for (stack, samples) in sampled(target, folder)? {
            *all.entry(stack).or_default() += samples;
        }
        if is_enough(&all) {
            break;
        }
    }
    Ok(all)
}

/// How many samples have stacks that begin with these frames.
fn below(stacks: &HashMap<String, i64>, frames: &str) -> i64 {
    let below = stacks.iter().filter(|(stack, _)| stack.starts_with(frames));
    below.map(|(_, samples)| samples).sum()
}

/// Runs with `FULL=1`.
mod long {
    use super::*;

    #[test]
    fn generators_are_called_by_what_resumed_them() -> Result<()> {
        for enabled in ["opcache.enable_cli=0", "opcache.enable_cli=1"] {
            let folder = TempDir::new()?;
            let target = start(&folder, GENERATORS, &[enabled])?;
            let deep = "deep;".repeat(6);
            let fiber = format!("{{main}};fibers;Fiber::resume;in_fiber;{deep}busy");
            let stages = format!("{{main}};pipeline;filter;{}source;busy", "stage;".repeat(7));
            let expected = [
                "{main};shares;uses_one;Generator::next;one;middle;inner;busy",
                "{main};shares;uses_two;Generator::next;two;middle;inner;busy",
                "{main};pipeline;filter;busy",
                &stages,
                &fiber,
                "{main};fibers;Fiber::resume;in_fiber;busy",
            ];
            let is_missing =
                |stacks: &HashMap<String, i64>, frames: &&str| below(stacks, frames) < 3;
            let stacks = sampled_until(&target, folder.path(), |stacks| {
                !expected.iter().any(|frames| is_missing(stacks, frames))
            })?;
            for frames in &expected {
                ensure!(!is_missing(&stacks, frames), "{frames}: {stacks:?}");
            }
            check_without(
                &stacks,
                &[
                    "uses_one;Generator::next;two",
                    "uses_two;Generator::next;one",
                    "inner;middle",
                    "stage;filter",
                    "Fiber::resume;deep",
                    "{main};deep",
                ],
            )?;
        }
        Ok(())
    }

    /// Each fiber has a page of its own, and another one may run when that is read: up to 37 % have
    /// no name.
    #[test]
    fn half_of_the_fibers_samples_are_named() -> Result<()> {
        let folder = TempDir::new()?;
        let target = start(&folder, TURNS, &[])?;
        let stacks = sampled_for(&target, folder.path(), Duration::from_secs(6))?;
        let sum = |part: &str| -> i64 {
            let of = stacks.iter().filter(|(stack, _)| stack.contains(part));
            of.map(|(_, samples)| samples).sum()
        };
        let (all, unnamed) = (sum(""), sum("[unstable]"));
        eprintln!("{unnamed} of {all} without a name");
        ensure!(
            all > 200 && 2 * unnamed < all,
            "{unnamed} of {all}: {stacks:?}"
        );
        ensure!(
            2 * sum("{main};Fiber::resume;task;work") > all,
            "{stacks:?}"
        );
        check_without(
            &stacks,
            &["{main};task", "{main};work", "resume;work", "task;task"],
        )
    }

    #[test]
    fn preloaded_code_is_named_as_any_other() -> Result<()> {
        let folder = TempDir::new()?;
        let preloaded = folder.path().join("preloaded.php");
        fs::write(&preloaded, PRELOADED)?;
        let target = start(
            &folder,
            "<?php while (true) { Preloaded::work(); }",
            &[
                "opcache.enable_cli=1",
                &format!("opcache.preload={}", preloaded.display()),
                "opcache.preload_user=root",
            ],
        )?;
        let stacks = sampled(&target, folder.path())?;
        check(&stacks, &["{main};Preloaded::work;md5"], 100)?;
        check_without(&stacks, &["{main};md5"])
    }

    /// On a busy machine, many samples in a row show the same moment of a program that waits for a
    /// CPU: so the bounds are wide. In the place of a chain that cannot be followed, there would be
    /// almost nothing.
    #[test]
    fn delegating_generator_is_a_caller_at_any_depth() -> Result<()> {
        for (depth, microseconds, opcache) in [
            (1, 1000, 1),
            (8, 1000, 0),
            (26, 1000, 0),
            (26, 1000, 1),
            (100, 2000, 1),
            (1000, 400_000, 0),
        ] {
            let folder = TempDir::new()?;
            let script = format!("<?php $depth = {depth}; $us = {microseconds};{DELEGATES}");
            let setting = format!("opcache.enable_cli={opcache}");
            let target = start(&folder, &script, &[&setting])?;
            let chain = format!("{{main}};consume;{}busy", "gen;".repeat(depth + 1));
            let counts = |stacks: &HashMap<String, i64>| {
                let [chain, other] =
                    [&chain, "{main};other;busy"].map(|frames| below(stacks, frames));
                (chain, other, stacks.values().sum::<i64>())
            };
            let is_right = |stacks: &HashMap<String, i64>| {
                let (chain, other, all) = counts(stacks);
                // A debug build takes longer for a sample of the longest chain than until the next
                // turn is due: these turns are missed.
                let least = if depth < 1000 { 25 } else { 1 };
                let is_large = |count: i64| count >= 4 && count * 100 >= all * least;
                is_large(chain) && is_large(other) && all >= 60 && (chain + other) * 100 >= all * 94
            };
            let stacks = sampled_until(&target, folder.path(), is_right)?;
            let what = format!("depth {depth}: {:?} of {stacks:?}", counts(&stacks));
            let what: String = what.chars().take(4000).collect();
            ensure!(is_right(&stacks), "{what}");
        }
        Ok(())
    }
}
