//! The classes of `phpprof dump --memory`, of real PHP: counts and bytes are those that the program
//! has planted and measured itself, and nothing of its values is in them.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};

use anyhow::{Context as _, Result, anyhow, ensure};
use phpprof::run::own_cpu;
use phpprof::target::process::{ProcessMemory, maps};
use phpprof_testing::{Running, wait_for};
use phpprof_zend::engine::{Engine, find};
use phpprof_zend::heap::account::{self, MmReading};
use phpprof_zend::heap::holders::{HeldMemory, HeldObjects};
use phpprof_zend::heap::objects::{HeapObjects, ObjectsWalk};
use phpprof_zend::memory::Memory as _;
use serde_json::Value;

use super::memory::{dumped, memory};
use super::scene::{PHP, Scene};

/// Plants objects, and says of each class how many it has and by how much they made the heap grow,
/// or 0 if other blocks came with them. All is done twice, so that the second time allocates
/// nothing else. Then it waits in `fgets`. It needs no extension: Debian's 7.4 has JSON as one.
const PLANTS: &str = r#"<?php
namespace Shop;
class Order { public $a = 'secret-of-a-property'; public $b; public $c; public $d; public $e; }
class Line { public $n; }
class Node { public $next; }
class Cart {
    public static $held = ['secret-static-key' => 'secret-static-value'];
    function total($bound) { return function () { return 1; }; }
    function bound($secret) { return function () use ($secret) { return $secret; }; }
    function items() { $local = 'secret-local'; yield 'secret-yielded' => $local; }
}
class Loose extends \stdClass {}
function keeps(array $of) { return $of; }
$properties = '';
for ($i = 0; $i < 300; $i++) $properties .= "public \$p$i; ";
eval("namespace Shop; class Wide { $properties }");
$has_8_1 = PHP_VERSION_ID >= 80100;
if ($has_8_1) eval('namespace Shop; enum Suit: string { case Hearts = "secret-case"; case Spades = "S"; }');
$cart = new Cart;
$plants = [
    'Shop\Order' => [10007, true, function () { return new Order; }],
    'Shop\Line' => [5003, true, function () { return new Line; }],
    'Shop\Wide' => [3, true, function () { return new Wide; }],
    'ArrayObject' => [201, false, function () { return new \ArrayObject; }],
    'SplObjectStorage' => [77, true, function () { return new \SplObjectStorage; }],
    'Generator' => [50, false, function () use ($cart) { $it = $cart->items(); $it->current(); return $it; }],
    'anonymous' => [7, true, function () { return new class { public $secret_property; }; }],
    'closure' => [1009, false, function () use ($cart) { return $cart->total('secret-argument'); }],
    'bound' => [11, false, function () use ($cart) { return $cart->bound('secret-bound-' . rand()); }],
    'function' => [5, false, function () { return \Closure::fromCallable('strlen'); }],
];
if ($has_8_1) $plants['Fiber'] = [4, false, function () { $it = new \Fiber(function () { \Fiber::suspend('secret-fiber'); }); $it->start(); return $it; }];
$said = [];
$keep = [];
foreach ($plants as $name => $plant) $keep[$name] = new \SplFixedArray($plant[0]);
for ($round = 0; $round < 2; $round++) {
    foreach ($plants as $name => $plant) {
        $into = $keep[$name];
        [$count, $is_whole, $make] = $plant;
        for ($i = 0; $i < $count; $i++) $into[$i] = null;
        $before = memory_get_usage();
        for ($i = 0; $i < $count; $i++) $into[$i] = $make();
        $grown = memory_get_usage() - $before;
        $said[$name] = [$count, $is_whole ? $grown : 0];
    }
}
$loose = [];
for ($i = 0; $i < 13; $i++) { $loose["secret-array-key-$i"] = $it = new Loose; $it->{"secret_dynamic_$i"} = "secret-dynamic-value-$i"; }
$said['Shop\Loose'] = [13, 0];
$one = new Node; $one->next = new Node; $one->next->next = $one; $one = null;
$said['Shop\Node'] = [2, 0];
if ($has_8_1) { $suits = [Suit::Hearts, Suit::Spades]; $said['Shop\Suit'] = [2, 0]; }
define('SECRET_CONSTANT', keeps(['secret-constant']));
$lines = [];
foreach ($said as $name => $it) $lines[] = '"' . addslashes($name) . "\":[$it[0],$it[1]]";
fwrite(STDOUT, '{' . implode(',', $lines) . "}\n");
fgets(STDIN);
"#;

/// A PHP that waits after it has planted its objects.
pub struct Planted {
    pub running: Running,
    /// What it said.
    pub said: String,
    pub commands: ChildStdin,
    _scene: Scene,
}

impl Planted {
    /// Starts the command in a folder that has the script.
    pub fn start(script: &str, command: impl Fn(&Path) -> Command) -> Result<Self> {
        let scene = Scene::new()?;
        let script = scene.file("plants.php", script)?;
        let mut command = command(&script);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let commands = child.stdin.take().context("no stdin")?;
        let answers = child.stdout.take().context("no stdout")?;
        let mut planted = Self {
            running: Running(child),
            said: String::new(),
            commands,
            _scene: scene,
        };
        BufReader::new(answers).read_line(&mut planted.said)?;
        Ok(planted)
    }

    pub fn host(script: &str) -> Result<Self> {
        Self::start(script, |script| {
            let mut command = Command::new(PHP);
            command.args(["-n", "-d", "memory_limit=-1"]).arg(script);
            command
        })
    }

    /// The classes of a moment in which it waits.
    pub fn classes(&self) -> Result<Value> {
        wait_for("classes of one moment", || {
            let classes = memory(self.running.pid())?["classes"].clone();
            Ok((classes["isMoment"] == true).then_some(classes))
        })
    }
}

/// How a PHP runs a script.
pub type ScriptRun = Box<dyn Fn(&Path) -> Command>;

/// Each PHP of this machine and of the tests' cache, with its name.
pub fn runtimes() -> Vec<(&'static str, ScriptRun)> {
    let cache = std::env::var_os("PHPPROF_CACHE").filter(|cache| !cache.is_empty());
    let cache = PathBuf::from(cache.unwrap_or_else(|| "/var/cache/phpprof".into()));
    let runtimes = cache.join("runtimes");
    let plain = |path: PathBuf| {
        let run = move |script: &Path| {
            let mut command = Command::new(&path);
            command.arg("-n").arg(script);
            command
        };
        Box::new(run) as ScriptRun
    };
    let mut all = vec![("host", plain(PHP.into()))];
    for name in ["php-8.2-zts", "php-8.2-musl"] {
        let path = runtimes.join(name).join("usr/local/bin/php");
        if path.exists() {
            all.push((name, plain(path)));
        }
    }
    for (name, program) in [
        ("debian-bullseye", "/usr/bin/php7.4"),
        ("debian-trixie", "/usr/bin/php8.4"),
        ("debian-experimental", "/usr/bin/php8.5"),
        ("debian-experimental", "/usr/bin/php8.6"),
    ] {
        let root = runtimes.join(name);
        if root.join(&program[1..]).exists() {
            let run = move |script: &Path| {
                let enter = Path::new(env!("CARGO_MANIFEST_DIR")).join("bench/in-root");
                let mut command = Command::new(enter);
                command.arg(&root).args([program, "-n", "plants.php"]);
                command.current_dir(script.parent().unwrap_or(script));
                command
            };
            all.push((program, Box::new(run)));
        }
    }
    all
}

/// The rows whose name contains this.
pub fn rows<'a>(classes: &'a Value, name: &str) -> Vec<&'a Value> {
    let rows = classes["byClass"].as_array().into_iter().flatten();
    let is_it = |row: &&Value| row["name"].as_str().is_some_and(|it| it.contains(name));
    rows.filter(is_it).collect()
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or(u64::MAX)
}

fn check_plants(planted: &Planted) -> Result<()> {
    let said: Value = serde_json::from_str(&planted.said).context("it said nothing")?;
    let classes = planted.classes()?;
    ensure!(classes["lost"].is_null(), "{classes:#}");
    let expected = said.as_object().context("no object")?;
    for (name, expected) in expected {
        let [count, bytes] = [&expected[0], &expected[1]].map(|it| it.as_u64().unwrap_or(0));
        let (kind, name) = match name.as_str() {
            "anonymous" => ("class", "class@anonymous:"),
            "function" => ("closure", "strlen(...)"),
            "closure" | "bound" => continue,
            "Generator" => ("generator", "Generator"),
            "Fiber" => ("fiber", "Fiber"),
            "Shop\\Suit" => ("enum", "Shop\\Suit"),
            name => ("class", name),
        };
        let found = rows(&classes, name);
        let [row] = found[..] else {
            return Err(anyhow!("{name} has {} rows: {classes:#}", found.len()));
        };
        ensure!(row["kind"] == kind, "{row:#}");
        ensure!(number(row, "instances") == count, "{count}: {row:#}");
        ensure!(
            bytes == 0 || number(row, "bytes") == bytes,
            "{bytes}: {row:#}"
        );
    }
    // By the lines of their declarations.
    let closure = |line: usize| {
        let place = format!("/plants.php:{line}");
        let mut rows = classes["byClass"].as_array().into_iter().flatten();
        let row = rows.find(|row| row["place"].as_str().is_some_and(|it| it.ends_with(&place)));
        row.map(|row| number(row, "instances"))
    };
    let line_of = |text: &str| {
        1 + PLANTS
            .lines()
            .position(|line| line.contains(text))
            .unwrap_or(0)
    };
    ensure!(
        closure(line_of("function total")) == Some(1009),
        "{classes:#}"
    );
    ensure!(
        closure(line_of("function bound")) == Some(11),
        "{classes:#}"
    );
    ensure!(!classes.to_string().contains("secret"), "{classes:#}");
    Ok(())
}

#[test]
fn memory_has_each_planted_class() -> Result<()> {
    for (name, command) in runtimes() {
        println!("{name}");
        let planted = Planted::start(PLANTS, &command)?;
        check_plants(&planted).with_context(|| name.to_owned())?;
    }
    Ok(())
}

#[test]
fn memory_has_names_of_classes_and_no_value() -> Result<()> {
    let planted = Planted::host(PLANTS)?;
    let pid = planted.running.pid().to_string();
    for form in [&["-p", &pid][..], &["-o", "json", "-p", &pid]] {
        let text = String::from_utf8(dumped(form)?)?;
        ensure!(text.contains("Order"), "{text}");
        ensure!(!text.to_lowercase().contains("secret"), "{text}");
    }
    Ok(())
}

/// Objects that lie anywhere in the heap: of three, two are freed after a shuffle.
fn scattered(kept: usize) -> String {
    format!(
        "<?php class Line {{ public $n; }} class Order {{ public $a; public $b; public $c; }}
        for ($i = 0; $i < 3 * {kept}; $i++) $all[] = $i % 2 ? new Line : new Order;
        shuffle($all); $all = array_slice($all, 0, {kept});
        fwrite(STDOUT, \"\\n\"); fgets(STDIN);"
    )
}

impl Planted {
    /// Its engine, and its heap.
    fn read(&self) -> Result<(ProcessMemory, Engine, MmReading)> {
        let pid = self.running.pid();
        let memory = ProcessMemory::open(pid).map_err(|fault| anyhow!("{fault}"))?;
        let text = fs::read_to_string(format!("/proc/{pid}/maps"))?;
        let exe = fs::read_link(format!("/proc/{pid}/exe"))?;
        let modules = maps::parse(&text, &exe.to_string_lossy()).modules;
        let engine = find(&memory, &modules).map_err(|refusal| anyhow!("{refusal:?}"))?;
        let (layout, globals) = (engine.layout, engine.executor_globals);
        let stack = memory.word(globals + layout.executor_globals.vm_stack as u64)?;
        let heap = phpprof_zend::heap::find(&memory, layout, stack).context("no heap")?;
        let read = account::read(&memory, layout, heap)?;
        Ok((memory, engine, read))
    }

    /// Its objects, and how much CPU time reading them took.
    fn objects(&self) -> Result<(HeapObjects, f64)> {
        let (memory, engine, read) = self.read()?;
        let walk = ObjectsWalk {
            seed: 5,
            is_over: &|| false,
        };
        let (layout, globals) = (engine.layout, engine.executor_globals);
        let before = own_cpu();
        let objects = walk.read(&memory, layout, globals, &read.blocks)?;
        Ok((objects, (own_cpu() - before) as f64 / 1e6))
    }

    /// Who holds them, and how much CPU time that took.
    pub fn held(&self) -> Result<(HeldObjects, f64)> {
        let (memory, engine, read) = self.read()?;
        let place = HeldMemory {
            memory: &memory,
            layout: engine.layout,
            blocks: &read.blocks,
            executor_globals: engine.executor_globals,
            compiler_globals: engine.phase_globals.compiler_globals.unwrap_or(0),
        };
        let before = own_cpu();
        let held = HeldObjects::read(&place, &|| false);
        Ok((held, (own_cpu() - before) as f64 / 1e6))
    }
}

#[test]
fn classes_cost_of_a_hundred_thousand_objects() -> Result<()> {
    let planted = Planted::host(&scattered(100_000))?;
    let (objects, milliseconds) = planted.objects()?;
    println!("100,000 objects: {milliseconds:.1} ms");
    let found: u64 = objects.classes.iter().map(|it| it.instances).sum();
    ensure!(found >= 100_000 && objects.free >= 200_000, "{objects:?}");
    ensure!(milliseconds < 150.0, "{milliseconds:.1} ms");
    Ok(())
}

#[test]
fn classes_of_two_million_places_are_estimated() -> Result<()> {
    let planted = Planted::host(&scattered(700_000))?;
    let (objects, milliseconds) = planted.objects()?;
    println!(
        "a million of {} places: {milliseconds:.1} ms",
        objects.places
    );
    ensure!(
        objects.places >= 2_100_000 && objects.one_of == 3,
        "{objects:?}"
    );
    let found: u64 = objects.classes.iter().map(|it| it.instances).sum();
    ensure!(found.abs_diff(700_000) < 7_000, "{objects:?}");
    let classes = planted.classes()?;
    ensure!(
        number(&classes, "sampledOf") == objects.places,
        "{classes:#}"
    );
    Ok(())
}
