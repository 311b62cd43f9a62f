//! A program with odd names, which lists its own functions, and the comparison of that list with a
//! profile.
//!
//! Invariant: a name that is shown whole is read back byte by byte; of one that is cut, both ends
//! and the length are compared.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use super::names::Random;

/// The longest name of a class or a function that is shown whole, and the longest path.
const MAX_NAME: usize = 512;
const MAX_PATH: usize = 4096;

/// A program in a folder of its own.
pub struct Program {
    pub main: PathBuf,
    /// Where it lists its functions.
    list: PathBuf,
}

/// Writes bytes with names in place of `@a`, `@b`, ...
fn filled(template: &str, names: &[Vec<u8>]) -> Vec<u8> {
    let mut text = Vec::new();
    let mut parts = template.split('@');
    text.extend(parts.next().unwrap_or_default().bytes());
    for part in parts {
        let letter = part.as_bytes()[0];
        text.extend(&names[usize::from(letter - b'a')]);
        text.extend(&part.as_bytes()[1..]);
    }
    text
}

/// `%LIST%` is the list's path, `%END%` the time that the main loop takes, `%PART%` the file that
/// it includes. Each function notes itself once, as its kind, its name, its file and its line;
/// further requests note nothing.
const MAIN: &str = r#"<?php
namespace @a;
if (!\function_exists('note')) { eval('function note($kind, $name, $file, $line) {
    $row = $kind . " " . \bin2hex($name) . " " . \bin2hex($file) . " " . $line . "\n";
    if (empty($GLOBALS["noted"][$row]) && !is_file(hex2bin("%LIST%") . ".done")) { $GLOBALS["noted"][$row] = true; \file_put_contents(hex2bin("%LIST%"), $row, FILE_APPEND | LOCK_EX); }
}'); }
function @b() { \note('f', __FUNCTION__, __FILE__, 0); $end = \hrtime(true) + 4000000; while (\hrtime(true) < $end) { \md5('x'); } }
function @c() { \note('f', __FUNCTION__, __FILE__, 0); @b(); }
function @d() { \note('f', __FUNCTION__, __FILE__, 0); @b(); }
class @e {
    function @f() { \note('m', __METHOD__, __FILE__, 0); @b(); }
    static function @g() { \note('m', __METHOD__, __FILE__, 0); @b(); }
}
$closure = function () { \note('c', '', __FILE__, __LINE__); @b(); };
$anonymous = new class { function @h() { \note('a', __FUNCTION__, __FILE__, __LINE__); @b(); } };
\note('main', '', __FILE__, 0);
// FrankenPHP makes it for scripts that use it, and it has the request's script.
\count($_SERVER);
$until = \microtime(true) + %END%;
do {
    @c(); @d(); (new @e)->@f(); @e::@g(); $closure(); $anonymous->@h();
    include \hex2bin('%PART%');
    \touch(\hex2bin('%LIST%') . '.done');
} while (\microtime(true) < $until);
echo 'done';
"#;

const PART: &str = "<?php \\note('i', '', __FILE__, 0); \\@a\\@b();\n";

fn hex(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes().iter();
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

impl Program {
    /// Writes a program whose main loop takes that many seconds; 0 runs it once.
    pub fn put(folder: &Path, random: &mut Random, main: Vec<u8>, seconds: u32) -> Result<Self> {
        let below = folder.join(std::ffi::OsStr::from_bytes(&random.file(b'd')));
        fs::create_dir(&below).context("the folder")?;
        let path = |name: Vec<u8>| below.join(std::ffi::OsStr::from_bytes(&name));
        let (main, part, list) = (path(main), path(random.file(b'i')), folder.join("list"));
        let mut names: Vec<Vec<u8>> = Vec::new();
        for own in b'a'..=b'h' {
            let length = random.length();
            names.push(random.identifier(own, length));
        }
        if random.below(2) == 0 {
            let inner = random.identifier(b'z', 9);
            names[0].push(b'\\');
            names[0].extend(inner);
        }
        let text = MAIN
            .replace("%LIST%", &hex(&list))
            .replace("%PART%", &hex(&part))
            .replace("%END%", &seconds.to_string());
        fs::write(&main, filled(&text, &names))?;
        fs::write(&part, filled(PART, &names))?;
        Ok(Self { main, list })
    }

    /// What the program has listed by now.
    pub fn listed(&self) -> Result<BTreeSet<Listed>> {
        let text = fs::read_to_string(&self.list).context("the program has listed nothing")?;
        // The last line may be written just now.
        let lines = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        lines.map(Listed::parse).collect()
    }
}

/// A function as the program knows it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    kind: String,
    name: Vec<u8>,
    file: Vec<u8>,
    line: u32,
}

impl Listed {
    fn parse(line: &str) -> Result<Self> {
        let bytes = |hex: &str| -> Result<Vec<u8>> {
            let digits = hex.as_bytes().chunks(2);
            let bytes = digits.map(|two| Ok(u8::from_str_radix(std::str::from_utf8(two)?, 16)?));
            bytes.collect()
        };
        let words: Vec<&str> = line.trim_end().split(' ').collect();
        let [kind, name, file, line] = words[..] else {
            anyhow::bail!("not a row: {line}");
        };
        Ok(Self {
            kind: kind.to_owned(),
            name: bytes(name)?,
            file: bytes(file)?,
            line: line.parse()?,
        })
    }

    /// The bytes of the longest text that the engine stores of it: the name of a function, a class
    /// or a file.
    pub fn longest_text(&self) -> usize {
        let parts = self.name.windows(2).position(|two| two == b"::");
        let class = parts.unwrap_or(0);
        let method = self.name.len() - class;
        class.max(method).max(self.file.len())
    }

    /// Whether a profile's function, by its name and file, is this one.
    pub fn is(&self, name: &str, file: &str) -> bool {
        let named = |text: &str, bytes: &[u8]| is_shown(text, bytes, MAX_NAME);
        let is_place = |text: &str| {
            let place = text.rsplit_once(':');
            place.is_some_and(|(file, line)| {
                is_shown(file, &self.file, MAX_PATH) && line == self.line.to_string()
            })
        };
        if !is_shown(file, &self.file, MAX_PATH) {
            return false;
        }
        match self.kind.as_str() {
            "main" => name == "{main}",
            "i" => name
                .strip_prefix("include ")
                .is_some_and(|path| is_shown(path, &self.file, MAX_PATH)),
            "c" => {
                let place = name.strip_prefix("{closure:");
                place
                    .and_then(|it| it.strip_suffix('}'))
                    .is_some_and(is_place)
            }
            "a" => {
                let parts = name.strip_prefix("class@anonymous:");
                let parts = parts.and_then(|it| it.rsplit_once("::"));
                parts.is_some_and(|(place, method)| is_place(place) && named(method, &self.name))
            }
            "m" => {
                let at = self.name.windows(2).position(|two| two == b"::");
                let (own_class, own_method) = self.name.split_at(at.unwrap_or(0));
                let parts = name.split_once("::");
                parts.is_some_and(|(class, method)| {
                    named(class, own_class) && named(method, &own_method[2..])
                })
            }
            _ => named(name, &self.name),
        }
    }
}

/// Whether a shown text is that of these bytes.
fn is_shown(shown: &str, bytes: &[u8], most: usize) -> bool {
    if bytes.len() <= most {
        return read_back(shown) == bytes;
    }
    let mark = format!("<{} bytes, ", bytes.len());
    let parts = shown.rsplit_once(&mark);
    let Some((begin, end)) = parts.and_then(|(text, _)| text.split_once('…')) else {
        return false;
    };
    let (begin, end) = (read_back(begin), read_back(end));
    let kept = begin.len() + end.len();
    kept + 8 > most && bytes.starts_with(&begin) && bytes.ends_with(&end)
}

/// The bytes of a text with marks.
pub fn read_back(shown: &str) -> Vec<u8> {
    let (mut rest, mut bytes) = (shown.as_bytes(), Vec::new());
    while let [first, others @ ..] = rest {
        let marked = match rest {
            [b'<', one, two, b'>', after @ ..] => {
                let digits = [*one, *two];
                let digits = std::str::from_utf8(&digits).ok().map(str::to_owned);
                let byte = digits.and_then(|it| u8::from_str_radix(&it, 16).ok());
                byte.map(|byte| (byte, after))
            }
            _ => None,
        };
        let (byte, after) = marked.unwrap_or((*first, others));
        bytes.push(byte);
        rest = after;
    }
    bytes
}

/// Compares functions of a profile, by name and file, with the program's list: what of the list is
/// missing.
pub fn compare<'a>(
    listed: &'a BTreeSet<Listed>,
    sampled: &BTreeSet<(String, String)>,
) -> Result<Vec<&'a Listed>> {
    for (name, file) in sampled {
        // The helper that notes, which eval() declares.
        let is_own = name == "note" || name.starts_with("eval ");
        let is_engines = file.starts_with("<internal") || file.is_empty();
        let is_listed = listed.iter().any(|it| it.is(name, file));
        ensure!(
            is_own || is_engines || is_listed,
            "the program has no {name:?} in {file:?}"
        );
    }
    let is_missing = |it: &&Listed| !sampled.iter().any(|(name, file)| it.is(name, file));
    Ok(listed.iter().filter(is_missing).collect())
}
