//! `phpprof heap` of real PHP: what is in a heap, by the path that holds it, compared with what the
//! program has planted and says of its own memory; and nothing of keys, values and names of
//! variables in what is written.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use phpprof_profile::{DecodeLimits, Lookup, decode};
use phpprof_testing::wait_for;
use serde_json::Value;

use super::classes::{Planted, runtimes};
use super::scene::{Scene, run, said};

/// Plants arrays, strings, objects, closures, cycles and a reference, and says by how many bytes
/// the heap has grown meanwhile. At each further line of its input, it leaks.
const PLANTS: &str = r#"<?php
namespace Shop;
class Bag { public static $texts = []; public static $keys = []; public static $shared = []; public static $all = []; }
class Item { public $name; private $tags; function __construct($name, $tags) { $this->name = $name; $this->tags = $tags; } }
class Cell { public $other; }
class Loose extends \stdClass {}
class Leak { public $text; public static $kept = []; }
class Events { public static $listeners = []; }
function leak() { for ($i = 0; $i < 2000; $i++) { $it = new Leak; $it->text = \str_repeat('secret-leak', 50); Leak::$kept[] = $it; } }
$before = memory_get_usage();
(function () {
    for ($i = 0; $i < 20000; $i++) Bag::$texts[] = str_repeat('secret-text', 20) . $i;
    for ($i = 0; $i < 5000; $i++) Bag::$keys["secret-key-of-$i"] = $i;
    $shared = str_repeat('secret-shared', 100);
    for ($i = 0; $i < 10; $i++) Bag::$shared[] = $shared;
    for ($i = 0; $i < 3000; $i++) Bag::$all[4111111111110000 + $i] = new Item("secret-name-$i", ["secret-tag-$i", $i]);
    for ($i = 0; $i < 100; $i++) { $bound = "secret-bound-$i"; Events::$listeners['secret-event'][] = function () use ($bound) { return $bound; }; }
    for ($i = 0; $i < 50; $i++) { $one = new Cell; $other = new Cell; $one->other = $other; $other->other = $one; }
    $one = $other = null;
})();
$grown = memory_get_usage() - $before;
$secret_loose = new Loose; $secret_loose->secret_property = str_repeat('secret-dynamic', 9);
$secret_text = 'secret-global'; $secret_reference = &$secret_text;
fwrite(STDOUT, "$grown\n");
while (fgets(STDIN) !== false) leak();
"#;

/// A path, what it leads to, how many of these, and the bytes of each, if all have as many.
const HELD: [(&str, &str, i64, i64); 10] = [
    ("Shop\\Bag::$texts/[n]", "string", 20_000, 256),
    ("Shop\\Bag::$texts", "array", 1, 0),
    ("Shop\\Bag::$keys/[string key]", "string", 5000, 0),
    ("Shop\\Bag::$shared/[n]", "string", 1, 1536),
    ("Shop\\Bag::$all/[int key]", "Shop\\Item", 3000, 80),
    (
        "Shop\\Bag::$all/[int key]/Shop\\Item::$name",
        "string",
        3000,
        0,
    ),
    (
        "Shop\\Bag::$all/[int key]/Shop\\Item::$tags",
        "array",
        3000,
        0,
    ),
    (
        "Shop\\Bag::$all/[int key]/Shop\\Item::$tags/[n]",
        "string",
        3000,
        40,
    ),
    (
        "Shop\\Events::$listeners/[string key]/[n]/[bound variable]",
        "string",
        100,
        40,
    ),
    ("[no path]", "Shop\\Cell", 100, 56),
];

/// `phpprof heap` with these arguments, of a process.
fn heap(planted: &Planted, arguments: &[&str]) -> Result<Vec<u8>> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_phpprof"));
    let pid = planted.running.pid().to_string();
    command.args(["heap", "-p", &pid]).args(arguments);
    let output = run(command.stdin(Stdio::null()))?;
    ensure!(output.status.success(), "{}", said(&output));
    Ok(output.stdout)
}

/// Counts and bytes by path and kind.
type Rows = BTreeMap<(String, String), [i64; 2]>;

/// The rows of a profile; none of its bytes may be a secret.
fn rows(pprof: &[u8]) -> Result<Rows> {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(pprof).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    for secret in ["secret", "4111"] {
        ensure!(!text.contains(secret), "{secret} is in the profile");
    }
    let profile = decode(pprof, &DecodeLimits::default())?;
    let lookup = Lookup::new(&profile);
    let mut rows = Rows::new();
    for sample in &profile.sample {
        let mut frames: Vec<_> = lookup.frames(sample).map(|it| it.name).collect();
        let kind = frames.remove(0).to_owned();
        frames.reverse();
        let sums = rows.entry((frames.join("/"), kind)).or_default();
        for (sum, value) in sums.iter_mut().zip(&sample.value) {
            *sum += value;
        }
    }
    Ok(rows)
}

/// A profile of a moment.
fn moment(planted: &Planted, scene: &Scene, name: &str) -> Result<(Rows, Value)> {
    let file = scene.path(name);
    wait_for("a heap of one moment", || {
        heap(planted, &["-o", &file.to_string_lossy()])?;
        let pprof = fs::read(&file)?;
        let profile = decode(&pprof, &DecodeLimits::default())?;
        let receipt = profile.comments().next().context("no receipt")?;
        let in_heap = serde_json::from_str::<Value>(receipt)?["inHeap"].clone();
        let is_moment = in_heap["moments"] == 1;
        Ok(is_moment.then_some((rows(&pprof)?, in_heap)))
    })
}

fn check(planted: &Planted) -> Result<()> {
    let scene = Scene::new()?;
    let (rows, in_heap) = moment(planted, &scene, "heap.pb.gz")?;
    let row = |path: &str, kind: &str| {
        let key = (path.to_owned(), kind.to_owned());
        rows.get(&key).copied().unwrap_or_default()
    };
    for (path, kind, count, bytes) in HELD {
        let found = row(path, kind);
        let right = found[0] == count && (bytes == 0 || found[1] == count * bytes);
        ensure!(right, "{path} {kind}: {found:?}\n{rows:#?}");
    }
    let closures = rows.iter().find(|((path, kind), _)| {
        path == "Shop\\Events::$listeners/[string key]/[n]" && kind.starts_with("{closure:")
    });
    ensure!(closures.is_some_and(|(_, it)| it[0] == 100), "{rows:#?}");
    ensure!(row("[global variable]/[property]", "string")[0] == 1);
    ensure!(row("[global variable]", "reference")[0] == 1, "{rows:#?}");
    let number = |key: &str| in_heap[key].as_i64().unwrap_or(-1);
    for key in ["cut", "drawn", "late", "lostObjects", "withoutHeap"] {
        ensure!(number(key) == 0, "{in_heap}");
    }
    let sum: i64 = rows.values().map(|it| it[1]).sum();
    ensure!(sum == number("heldBytes") && sum <= number("heapBytes"));
    // What was planted is found to 2 %, beside what the program and the engine have in any case.
    let grown: i64 = planted.said.trim().parse()?;
    let paths = ["Shop\\", "[no path]"];
    let of_plants = rows
        .iter()
        .filter(|((path, _), _)| paths.iter().any(|it| path.starts_with(it)));
    let found: i64 = of_plants.map(|(_, it)| it[1]).sum();
    println!("{found} bytes of {grown}; {sum} of {}", number("heapBytes"));
    ensure!((found - grown).abs() * 50 < grown, "{found} of {grown}");
    Ok(())
}

#[test]
fn heap_has_all_that_was_planted() -> Result<()> {
    for (name, command) in runtimes() {
        println!("{name}");
        let planted = Planted::start(PLANTS, &command)?;
        check(&planted).with_context(|| name.to_owned())?;
    }
    Ok(())
}

#[test]
fn heap_of_growth_names_the_leak_first() -> Result<()> {
    let mut planted = Planted::host(PLANTS)?;
    let scene = Scene::new()?;
    let before = scene.path("before.pb.gz").to_string_lossy().into_owned();
    moment(&planted, &scene, "before.pb.gz")?;
    planted.commands.write_all(b"\n")?;
    let growth = wait_for("growth", || {
        let json = heap(&planted, &["--baseline", &before, "-o", "json"])?;
        let growth: Value = serde_json::from_slice(&json)?;
        let is_over = growth["read"]["moments"] == 1 && growth["classes"][0]["count"] != 0;
        let leaked = growth["classes"].as_array().into_iter().flatten();
        let all = leaked.filter(|it| it["class"] == "Shop\\Leak" && it["count"] == 2000);
        Ok((is_over && all.count() == 1).then_some(growth))
    })?;
    let first = |list: &str, key: &str| growth[list][0][key].clone();
    // The texts are larger than the objects that have them.
    ensure!(first("classes", "class") == "string", "{growth:#}");
    ensure!(growth["classes"][1]["class"] == "Shop\\Leak", "{growth:#}");
    let path = "Shop\\Leak::$kept[n] → Shop\\Leak::$text";
    let largest = first("paths", "path");
    let largest = largest.as_str().unwrap_or_default();
    ensure!(largest.starts_with(path), "{growth:#}");
    let text = String::from_utf8(heap(&planted, &["--baseline", &before])?)?;
    for part in [path, "grew most", "a moment", "-o heap.html"] {
        ensure!(text.contains(part), "{part}: {text}");
    }
    ensure!(!text.contains("secret"), "{text}");
    Ok(())
}

#[test]
fn heap_is_written_in_each_form() -> Result<()> {
    let planted = Planted::host(PLANTS)?;
    let text = String::from_utf8(heap(&planted, &[])?)?;
    for part in [
        " in use, no memory_limit; ",
        "Shop\\Bag::$texts[n]",
        "--baseline before.pb.gz",
    ] {
        ensure!(text.contains(part), "{part}: {text}");
    }
    let markdown = String::from_utf8(heap(&planted, &["-o", "md"])?)?;
    ensure!(markdown.contains("`Shop\\Bag::$texts[n]"), "{markdown}");
    let scene = Scene::new()?;
    for (name, part) in [
        ("x.html", "<!DOCTYPE html>"),
        ("x.svg", "<svg"),
        ("x.folded", "Shop\\Bag::$texts;[n];string 5120000"),
        ("x.speedscope.json", "inuse_space"),
    ] {
        let file = scene.path(name);
        heap(&planted, &["-o", &file.to_string_lossy()])?;
        let written = fs::read_to_string(&file)?;
        ensure!(written.contains(part), "{name}: {written:.300}");
        ensure!(!written.contains("secret-"), "{name}");
    }
    Ok(())
}

#[test]
fn heap_refuses_what_is_no_baseline() -> Result<()> {
    let scene = Scene::new()?;
    let file = scene.file("before.pb.gz", "no profile")?;
    let refused = |arguments: &[&str]| -> Result<String> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_phpprof"));
        let output = run(command.arg("heap").args(arguments).stdin(Stdio::null()))?;
        ensure!(output.status.code() == Some(2), "{}", said(&output));
        Ok(said(&output))
    };
    let file = file.to_string_lossy();
    let said = refused(&["-a", "--baseline", &file])?;
    ensure!(said.contains("phpprof heap -o before.pb.gz"), "{said}");
    let said = refused(&["-a", "-o", "heap.unknown"])?;
    ensure!(said.contains(".pb.gz"), "{said}");
    let said = refused(&[])?;
    ensure!(said.contains("--pid"), "{said}");
    Ok(())
}

/// A million values in a hundred megabytes, of which most are strings and lists.
const MILLION: &str = "<?php class Page { public $parts = []; }
    $all = [];
    for ($i = 0; $i < 20000; $i++) {
        $page = new Page; $all[] = $page;
        for ($j = 0; $j < 50; $j++) $page->parts[] = str_repeat('x', 80) . $i . $j;
    }
    unset($page);
    fwrite(STDOUT, \"\\n\"); fgets(STDIN);";

#[test]
fn heap_of_a_million_values_is_bounded() -> Result<()> {
    let planted = Planted::host(MILLION)?;
    let mut sampler = Command::new(env!("CARGO_BIN_EXE_phpprof"));
    let pid = planted.running.pid().to_string();
    let started = std::time::Instant::now();
    let output = run(sampler
        .args(["heap", "-p", &pid, "-o", "-"])
        .stdin(Stdio::null()))?;
    let took = started.elapsed();
    ensure!(output.status.success(), "{}", said(&output));
    let profile = decode(&output.stdout, &DecodeLimits::default())?;
    let receipt = profile.comments().next().context("no receipt")?;
    let receipt: Value = serde_json::from_str(receipt)?;
    let (cpu, peak) = (
        &receipt["samplerCPUMilliseconds"],
        &receipt["samplerPeakBytes"],
    );
    println!("{took:?}, {cpu} ms of CPU, {peak} bytes");
    let strings = rows(&output.stdout)?;
    let path = "[global variable]/[n]/Page::$parts/[n]".to_owned();
    let found = strings.get(&(path, "string".to_owned()));
    ensure!(found.is_some_and(|it| it[0] == 1_000_000), "{strings:#?}");
    ensure!(cpu.as_f64().is_some_and(|it| it < 2000.0), "{cpu} ms");
    ensure!(peak.as_u64().is_some_and(|it| it < 24 << 20), "{peak}");
    Ok(())
}
