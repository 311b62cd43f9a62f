//! Recordings: the memory that a sampler reads of PHP in a scene, in a file; and a process that has
//! it again.
//!
//! A file is gzip: a line with the length of the text, the text, and pages of 4096 bytes. The text
//! has a block for each scene: its name (`scene`), what the script said (`t`), the mappings (`m`),
//! the runs of pages (`p ADDRESS COUNT INDEX`), and the words that have the number of the process
//! (`n`). The scenes of a file share equal pages: they were recorded at the same addresses.
//! Invariant: a page that was not recorded is zero, so a reader that needs it finds no PHP or
//! another stack, and its test fails.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use tempfile::TempDir;

pub const PAGE: usize = 4096;
/// A recording has some megabytes of pages.
const MAX_BYTES: u64 = 512 << 20;

/// The scenes of one runtime.
#[derive(Debug, Default)]
pub struct Recording {
    pub scenes: Vec<Recorded>,
    pages: Vec<u8>,
    /// Where a page is, by its bytes, while a recording is made.
    known: HashMap<Vec<u8>, usize>,
}

/// One scene.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Recorded {
    pub name: String,
    /// What the script said, line by line.
    pub truth: Vec<String>,
    pub maps: Vec<Mapping>,
    pub runs: Vec<Run>,
    /// Addresses of 32-bit words that have the number of the process.
    pub numbers: Vec<u64>,
}

/// A line of `/proc/PID/maps`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub length: u64,
    /// As `mmap` takes it.
    pub protection: u8,
    pub is_shared: bool,
    pub offset: u64,
    /// `-` if it is no file.
    pub path: String,
}

/// Pages that follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    pub address: u64,
    pub count: usize,
    /// The first one, among the pages of the recording.
    pub index: usize,
}

impl Mapping {
    /// Parses a line of `/proc/PID/maps`; `None` for memory that cannot be read and what the kernel
    /// maps for itself.
    pub fn parse(line: &str) -> Option<Self> {
        let mut fields = line.splitn(6, ' ').map(str::trim);
        let (range, permissions, offset) = (fields.next()?, fields.next()?, fields.next()?);
        let path = fields.nth(2).unwrap_or_default();
        let (start, end) = range.split_once('-')?;
        let hex = |text| u64::from_str_radix(text, 16).ok();
        let start = hex(start)?;
        let bit = |letter, value| u8::from(permissions.contains(letter)) * value;
        let is_file = path.starts_with('/') && !path.starts_with("/dev/");
        let is_kernels = path.starts_with("[v");
        let is_readable = permissions.starts_with('r');
        (is_readable && !is_kernels).then_some(())?;
        Some(Self {
            start,
            length: hex(end)? - start,
            protection: bit('r', 1) | bit('w', 2) | bit('x', 4),
            is_shared: permissions.ends_with('s'),
            offset: hex(offset)?,
            path: if is_file { path } else { "-" }.to_owned(),
        })
    }
}

impl Recording {
    /// Adds a page at this address to a scene, unless it is zero.
    pub fn add_page(&mut self, scene: &mut Recorded, address: u64, page: &[u8]) {
        if page.iter().all(|&byte| byte == 0) {
            return;
        }
        let next = self.known.len();
        let index = *self.known.entry(page.to_vec()).or_insert(next);
        if index == next {
            self.pages.extend(page);
        }
        match scene.runs.last_mut() {
            Some(run)
                if run.address + (run.count * PAGE) as u64 == address
                    && run.index + run.count == index =>
            {
                run.count += 1;
            }
            _ => scene.runs.push(Run {
                address,
                count: 1,
                index,
            }),
        }
    }

    pub fn write(&self, path: &Path) -> Result<()> {
        let mut text = String::new();
        for scene in &self.scenes {
            writeln!(text, "scene {}", scene.name)?;
            for line in &scene.truth {
                writeln!(text, "t {line}")?;
            }
            for map in &scene.maps {
                writeln!(text, "{}", map_line(map, &map.path))?;
            }
            for run in &scene.runs {
                writeln!(text, "p {:x} {:x} {:x}", run.address, run.count, run.index)?;
            }
            for number in &scene.numbers {
                writeln!(text, "n {number:x}")?;
            }
        }
        let mut gzip = GzEncoder::new(File::create(path)?, Compression::best());
        writeln!(gzip, "{}", text.len())?;
        gzip.write_all(text.as_bytes())?;
        gzip.write_all(&self.pages)?;
        gzip.finish()?;
        Ok(())
    }

    pub fn read(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| path.display().to_string())?;
        let mut reader = BufReader::new(GzDecoder::new(file).take(MAX_BYTES));
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let mut text = vec![0; line.trim().parse()?];
        reader.read_exact(&mut text)?;
        let mut pages = Vec::new();
        reader.read_to_end(&mut pages)?;
        let mut recording = Self {
            pages,
            ..Self::default()
        };
        for line in String::from_utf8(text)?.lines() {
            let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
            if kind == "scene" {
                recording.scenes.push(Recorded {
                    name: rest.to_owned(),
                    ..Recorded::default()
                });
                continue;
            }
            let scene = recording.scenes.last_mut().context("no scene")?;
            scene.take(kind, rest).with_context(|| line.to_owned())?;
        }
        Ok(recording)
    }

    /// The bytes of a run of pages.
    fn bytes(&self, run: &Run) -> Result<&[u8]> {
        let range = run.index * PAGE..(run.index + run.count) * PAGE;
        self.pages.get(range).context("pages are missing")
    }

    /// Starts a process with the memory of a scene.
    pub fn stand(&self, scene: &Recorded, program: &Path) -> Result<Standing> {
        let folder = TempDir::new()?;
        let mut plan = String::new();
        let mut files: HashMap<&str, (PathBuf, u64)> = HashMap::new();
        for map in &scene.maps {
            let mut path = PathBuf::from("-");
            if map.path != "-" {
                let number = files.len();
                let base = Path::new(&map.path).file_name().context("no name")?;
                let of = || (Path::new(&number.to_string()).join(base), 0);
                let (known, size) = files.entry(&map.path).or_insert_with(of);
                *size = (*size).max(map.offset + map.length);
                path.clone_from(known);
            }
            writeln!(plan, "{}", map_line(map, &path.to_string_lossy()))?;
        }
        for (path, size) in files.values() {
            let path = folder.path().join(path);
            fs::create_dir(path.parent().context("no folder")?)?;
            // Holes take no place; what was recorded of it is written into the process.
            File::create(path)?.set_len(*size)?;
        }
        let mut pages = File::create(folder.path().join("pages"))?;
        for run in &scene.runs {
            writeln!(plan, "p {:x} {:x}", run.address, run.count)?;
            pages.write_all(self.bytes(run)?)?;
        }
        for number in &scene.numbers {
            writeln!(plan, "n {number:x}")?;
        }
        fs::write(folder.path().join("plan"), plan)?;
        let child = Command::new(program)
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut standing = Standing {
            child,
            _folder: folder,
        };
        let stdout = standing.child.stdout.take().context("no output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        ensure!(line == "standing\n", "{}: it does not stand", scene.name);
        Ok(standing)
    }
}

impl Recorded {
    fn take(&mut self, kind: &str, rest: &str) -> Result<()> {
        let mut fields = rest.splitn(6, ' ');
        let mut next = || fields.next().context("a field is missing");
        let hex = |text: &str| u64::from_str_radix(text, 16);
        match kind {
            "t" => self.truth.push(rest.to_owned()),
            "m" => self.maps.push(Mapping {
                start: hex(next()?)?,
                length: hex(next()?)?,
                protection: next()?.parse()?,
                is_shared: next()? == "1",
                offset: hex(next()?)?,
                path: next()?.to_owned(),
            }),
            "p" => self.runs.push(Run {
                address: hex(next()?)?,
                count: usize::try_from(hex(next()?)?)?,
                index: usize::try_from(hex(next()?)?)?,
            }),
            "n" => self.numbers.push(hex(next()?)?),
            _ => anyhow::bail!("no such line"),
        }
        Ok(())
    }
}

fn map_line(map: &Mapping, path: &str) -> String {
    format!(
        "m {:x} {:x} {} {} {:x} {path}",
        map.start,
        map.length,
        map.protection,
        u8::from(map.is_shared),
        map.offset
    )
}

/// A process that has the memory of a scene. It ends with the test.
pub struct Standing {
    child: Child,
    _folder: TempDir,
}

impl Standing {
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(0)
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Compiles a C file of this folder.
pub fn compile(name: &str, flags: &[&str], to: &Path) -> Result<()> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/scenes")
        .join(name);
    let done = Command::new("cc")
        .args(["-O1", "-o"])
        .args([to, &source])
        .args(flags)
        .output()
        .context("cc, a C compiler")?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{name}: {said}");
    Ok(())
}
