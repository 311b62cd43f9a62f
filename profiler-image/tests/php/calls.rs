//! Compares the ops that push frames with this machine's PHP 8.2, which is stopped at random
//! moments while it makes every kind of call: a frame that is not marked as the engine's own call
//! was pushed by such an op. With FULL=1 at more moments.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use phpprof::target::process::{ProcessMemory, maps};
use phpprof_testing::{Running, wait_until};
use phpprof_zend::Memory;
use phpprof_zend::engine::{Engine, find};
use phpprof_zend::function::{FunctionKey, HEAD};
use phpprof_zend::op::{DO_ICALL, DO_UCALL, INCLUDE_OR_EVAL, Op, is_yield_from, may_push_frame};
use phpprof_zend::unwind::{Copy, Frame, UnwindEnd, unwind};
use tempfile::TempDir;

/// The number of moments if all required ops were seen: each takes 1 ms, but 30 on a busy machine.
const MOMENTS: u64 = 80;
/// The same with FULL=1.
const MANY_MOMENTS: u64 = 500;
/// The largest number if they were not all seen: rare ones are seen by chance.
const MOST_MOMENTS: u64 = 5000;
/// Ops that must have been seen to push frames.
const PUSHES: [u8; 3] = [DO_ICALL, DO_UCALL, INCLUDE_OR_EVAL];

const CALLS: &str = r#"<?php
declare(ticks=1);
function work() { return md5(str_repeat('x', 2000)); }
function alone() { work(); yield 1; work(); yield 2; }
function outer() { yield from alone(); }
class Magic implements ArrayAccess, IteratorAggregate, Countable {
    public $set = 1;
    function __construct() { work(); }
    function __destruct() { work(); }
    function __clone() { work(); }
    function __get($name) { work(); return null; }
    function __set($name, $value) { work(); }
    function __isset($name) { work(); return false; }
    function __unset($name) { work(); }
    function __call($name, $arguments) { work(); }
    static function __callStatic($name, $arguments) { work(); }
    function __invoke() { work(); }
    function __toString() { work(); return 'magic'; }
    function offsetGet($at): mixed { work(); return null; }
    function offsetSet($at, $value): void { work(); }
    function offsetExists($at): bool { work(); return true; }
    function offsetUnset($at): void { work(); }
    function getIterator(): Iterator { work(); return alone(); }
    function count(): int { work(); return 1; }
    function method() { work(); }
    static function fixed() { work(); }
}
spl_autoload_register(function ($class) { work(); });
set_error_handler(function () { work(); return true; });
register_tick_function('work');
ob_start(function ($text) { work(); return ''; }, 1);
file_put_contents(__DIR__ . '/part.php', '<?php work();');
eval('function later() { work(); }');
function all() {
    $o = new Magic; $closure = function () { work(); }; $name = 'work';
    work(); later(); $o->method(); Magic::fixed(); $closure(); $name(); $o(); [$o, 'method']();
    $o->absent(); Magic::absent(); call_user_func('work'); call_user_func_array($closure, []);
    for ($i = 0; $i < 4; $i++) { include __DIR__ . '/part.php'; eval('work();'); }
    $o->none; $o->none = 1; $o->none .= 'x'; $o->none++; isset($o->none); unset($o->none); $o->none['a'] ?? 1;
    $o['a']; $o['a'] = 1; $o['a'] .= 'x'; isset($o['a']); unset($o['a']);
    $text = "a$o"; $text = "a{$o}b$o"; $text = (string) $o; $text = $o . 'x'; $text = $o == 'x'; strlen($o); echo $o;
    foreach ($o as $one); foreach (outer() as $one); work(...alone()); $list = [...alone()];
    array_map($closure, [1]); count($o); $copy = clone $o; $copy = null; $copy = new Magic; unset($copy); new Magic;
    class_exists('None'); try { new None; } catch (Error $error) {} $undefined; $list = []; $list['none'];
}
while (true) { all(); }
"#;

/// A program in PHP, and its engine.
struct CallsProgram {
    _running: Running,
    pid: Pid,
    memory: ProcessMemory,
    engine: Engine,
    _folder: TempDir,
}

impl CallsProgram {
    fn start(settings: &[&str]) -> Result<Self> {
        let folder = TempDir::new()?;
        let path = folder.path().join("calls.php");
        fs::write(&path, CALLS)?;
        let mut command = Command::new("php8.2");
        command.args(settings.iter().flat_map(|setting| ["-d", setting]));
        let running = Running::start(command.arg(&path).stdout(Stdio::null()))?;
        let pid = running.pid();
        let part = folder.path().join("part.php");
        wait_until("file of the program", || Ok(part.exists()))?;
        let executable = fs::read_link(format!("/proc/{pid}/exe"))?;
        let text = fs::read_to_string(format!("/proc/{pid}/maps"))?;
        let modules = maps::parse(&text, &executable.to_string_lossy()).modules;
        let memory = ProcessMemory::open(pid).map_err(|fault| anyhow!("{fault:?}"))?;
        let engine = find(&memory, &modules).map_err(|refusal| anyhow!("{refusal:?}"))?;
        Ok(Self {
            _running: running,
            pid: Pid::from_raw(pid),
            memory,
            engine,
            _folder: folder,
        })
    }

    /// The frames of a moment, leaf first, each with its caller's opcode if that is user code;
    /// `None` if the stack is inconsistent, as while the engine links a frame.
    fn stopped(&self) -> Result<Option<Vec<(Frame, u8)>>> {
        kill(self.pid, Signal::SIGSTOP)?;
        let status = waitpid(self.pid, Some(WaitPidFlag::WUNTRACED))?;
        ensure!(matches!(status, WaitStatus::Stopped(..)), "{status:?}");
        let frames = self.frames();
        kill(self.pid, Signal::SIGCONT)?;
        frames
    }

    fn frames(&self) -> Result<Option<Vec<(Frame, u8)>>> {
        let (memory, layout) = (&self.memory, self.engine.layout);
        let top = memory.word(self.engine.current_execute_data());
        let top = top.map_err(|fault| anyhow!("{fault:?}"))?;
        let mut frames = Vec::new();
        let end = unwind(memory, layout, &mut Copy::default(), top, &mut frames);
        if end == UnwindEnd::Torn {
            return Ok(None);
        }
        let opcode = |caller: &Frame| {
            let mut head = [0; HEAD];
            memory.read(caller.func, &mut head).ok()?;
            FunctionKey::parse(layout, &head)?.op_index(layout, caller.opline)?;
            Some(Op::read(memory, layout, caller.opline)?.opcode)
        };
        let pairs = frames.windows(2);
        Ok(Some(
            pairs
                .filter_map(|pair| Some((pair[0], opcode(&pair[1])?)))
                .collect(),
        ))
    }
}

fn check(settings: &[&str]) -> Result<()> {
    let target = CallsProgram::start(settings)?;
    let by_itself = target.engine.layout.call_info.top | target.engine.layout.call_info.generator;
    // How many frames had a caller at each opcode: pushed by it, and by the engine.
    let mut seen: BTreeMap<u8, (u64, u64)> = BTreeMap::new();
    let mut torn = 0;
    let full = std::env::var("FULL").is_ok_and(|value| value == "1");
    let calls = |seen: &BTreeMap<u8, (u64, u64)>, opcode| seen.get(&opcode).map_or(0, |it| it.0);
    let wanted = if full { MANY_MOMENTS } else { MOMENTS };
    for turn in 0..MOST_MOMENTS {
        let is_enough = PUSHES.iter().all(|&opcode| calls(&seen, opcode) > 0);
        if turn >= wanted && is_enough {
            break;
        }
        std::thread::sleep(Duration::from_micros(turn * 7919 % 1000));
        let Some(frames) = target.stopped()? else {
            torn += 1;
            continue;
        };
        for (callee, opcode) in frames {
            let counts = seen.entry(opcode).or_default();
            if callee.call_info & by_itself == 0 {
                counts.0 += 1;
            } else {
                counts.1 += 1;
            }
        }
    }
    let wrong = seen
        .iter()
        .find(|&(&opcode, counts)| counts.0 > 0 && !may_push_frame(opcode));
    ensure!(wrong.is_none(), "{settings:?}: {wrong:?} of {seen:?}");
    ensure!(torn < 10, "{settings:?}: {torn} stacks are torn");
    // Otherwise nothing was proven: the required ops must have been seen, and many calls of the
    // engine at other ops.
    for opcode in PUSHES {
        let calls = calls(&seen, opcode);
        ensure!(calls > 0, "{settings:?}: no call at {opcode}: {seen:?}");
    }
    let others = seen.iter().filter(|&(&opcode, counts)| {
        counts.1 > 0 && !may_push_frame(opcode) && !is_yield_from(opcode)
    });
    let others = others.count();
    ensure!(others >= 10, "{settings:?}: {others} others: {seen:?}");
    Ok(())
}

#[test]
fn pushing_op_is_marked_as_the_engines() -> Result<()> {
    check(&["opcache.enable_cli=0"])?;
    check(&["opcache.enable_cli=1", "opcache.file_update_protection=0"])?;
    check(&[
        "opcache.enable_cli=1",
        "opcache.file_update_protection=0",
        "opcache.jit_buffer_size=16M",
        "opcache.jit=tracing",
    ])
}
