//! An application with one front controller on php-fpm, the built-in server and others, and clients
//! that put secrets into all parts of a request.
//!
//! Invariant: everything that was started ends when its value is dropped.

pub mod listed;
pub mod others;
pub mod recorded;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use phpprof_testing::{Running, free_address, wait_for_listener, wait_for_socket};
use tempfile::TempDir;

pub const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
/// The span in the same header.
pub const SPAN: &str = "b7ad6b7169203331";
/// The secrets: in the query, a cookie, the body, the name of an upload, Authorization, the
/// environment, and path segments that are ids.
pub const SECRETS: [&str; 10] = [
    "qsecretq",
    "csecretc",
    "bsecretb",
    "asecreta",
    "esecrete",
    "usecretu",
    "6f1c0c5e-2c3b-4a56-9d0a-5b7d1c9e8f70",
    "4815162342",
    "9f86d081884c7d659a2feaa0c55ad015",
    "xK9aB3zQpLmN0rTv",
];

/// By their number: a UUID and a long hexadecimal one.
const ITEMS: [&str; 2] = [
    "6f1c0c5e-2c3b-4a56-9d0a-5b7d1c9e8f70",
    "9f86d081884c7d659a2feaa0c55ad015",
];

/// Functions that a process declares once.
const FUNCTIONS: &str = r#"<?php
function work($ms) { $end = hrtime(true) + $ms * 1e6; while (hrtime(true) < $end) { md5('x'); } }
function serve_cart() { work(20); }
function serve_item() { work(12); }
function serve_pay() { work(60); }
function serve_own() { work(8); }
function serve_home() { work(5); }
function serve_slow() { work(600); }
function serve_any() { usleep(2000); }
function serve_first() { work(200); }
function serve_second() { usleep(380000); }
function serve_third() { work(120); }
function steps() { serve_first(); serve_second(); serve_third(); }
"#;

/// The front controller uses `$_SERVER`, like real ones.
const APPLICATION: &str = r#"<?php
require_once __DIR__ . '/functions.php';
$begun = hrtime(true);
$path = parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH);
$first = explode('/', $path)[1];
match ($first) {
    'shop' => serve_cart(), 'item' => serve_item(), 'pay' => serve_pay(), 'own' => serve_own(),
    'slow' => serve_slow(), 'steps' => steps(), 'any' => serve_any(), default => serve_home(),
};
echo 'served ', hrtime(true) - $begun;
"#;

const SYMFONY: &str = include_str!("symfony.php");

/// Writes the application into an empty folder.
fn put_application(folder: &Path) -> Result<()> {
    std::fs::write(folder.join("functions.php"), FUNCTIONS)?;
    if !folder.join("index.php").exists() {
        std::fs::write(folder.join("index.php"), APPLICATION)?;
    }
    Ok(())
}

/// The kind of requests that the clients send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requested {
    /// Five routes.
    Shop,
    /// Ten thousand paths that are names.
    Any,
    /// A hundredth is slow.
    SlowAtTimes,
    /// A tenth does three things one after the other, in 700 ms.
    Steps,
}

/// The function of a route.
pub fn function_of(route: &str) -> &'static str {
    match route {
        "/shop/{id}/cart" => "serve_cart",
        "/item/{hash}" | "/item/{uuid}" => "serve_item",
        "/pay" => "serve_pay",
        "own" => "serve_own",
        "/reset/{token}" => "serve_home",
        _ => "",
    }
}

/// Method, URI and route of the request of this number.
fn request(requested: Requested, number: usize) -> (&'static str, String, &'static str) {
    let query = "?token=qsecretq";
    let letters = |mut number: usize| {
        let mut word = String::from("w");
        for _ in 0..4 {
            word.push(char::from(b'a' + (number % 10) as u8));
            word.push('e');
            number /= 10;
        }
        word
    };
    match (requested, number % 100) {
        (Requested::Any, _) => ("GET", format!("/any/{}{query}", letters(number)), "any"),
        (Requested::Steps, at) if at % 10 == 5 => ("GET", format!("/steps{query}"), "/steps"),
        (Requested::Steps, _) => ("GET", format!("/{query}"), "/"),
        (Requested::SlowAtTimes, 50) => ("GET", "/slow".to_owned(), "/slow"),
        (Requested::SlowAtTimes, _) => ("GET", format!("/{query}"), "/"),
        (Requested::Shop, at) => match at % 10 {
            0..3 => (
                "GET",
                format!("/shop/4815162342/cart{query}"),
                "/shop/{id}/cart",
            ),
            3..5 => (
                "GET",
                format!("/item/{}{query}", ITEMS[at % 2]),
                ["/item/{uuid}", "/item/{hash}"][at % 2],
            ),
            5 => ("POST", format!("/pay{query}"), "/pay"),
            6..8 => ("GET", format!("/own/4815162342/x{query}"), "own"),
            _ => (
                "GET",
                format!("/reset/xK9aB3zQpLmN0rTv{query}"),
                "/reset/{token}",
            ),
        },
    }
}

/// php-fpm with the application.
pub struct Fpm {
    running: Running,
    folder: TempDir,
    pub socket: PathBuf,
}

impl Fpm {
    pub fn start(workers: u32) -> Result<Self> {
        Self::with_include_path(workers, TempDir::new()?, ".")
    }

    /// php-fpm with the application in Symfony; none if that is not available, which is printed.
    pub fn of_symfony(workers: u32) -> Result<Option<Self>> {
        let symfony = others::runtimes().join("symfony-5.4");
        if !symfony.is_dir() {
            eprintln!("Symfony is left out: there is no {}", symfony.display());
            return Ok(None);
        }
        let folder = TempDir::new()?;
        std::fs::write(folder.path().join("index.php"), SYMFONY)?;
        Self::with_include_path(workers, folder, &symfony.to_string_lossy()).map(Some)
    }

    fn with_include_path(workers: u32, folder: TempDir, include_path: &str) -> Result<Self> {
        let socket = folder.path().join("fpm.sock");
        let configuration = folder.path().join("fpm.conf");
        put_application(folder.path())?;
        let text = format!(
            "[global]\ndaemonize=no\nerror_log=/dev/null\n[www]\nuser=root\ngroup=root\nlisten={}\npm=static\npm.max_children={workers}\nclear_env=no\n\
             access.log={}\naccess.format=%{{micro}}d %{{REQUEST_URI}}e\n\
             php_admin_value[include_path]={include_path}\n",
            socket.display(),
            folder.path().join("access.log").display()
        );
        std::fs::write(&configuration, text)?;
        let mut command = Command::new("/usr/sbin/php-fpm8.2");
        command.args(["-F", "-R", "-y"]).arg(&configuration);
        command.env("SECRET", "esecrete").stderr(Stdio::null());
        let fpm = Self {
            running: Running::start(&mut command)?,
            folder,
            socket,
        };
        wait_for_socket(&fpm.socket)?;
        Ok(fpm)
    }

    pub fn pid(&self) -> u32 {
        self.running.0.id()
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The size of the access log, in bytes.
    pub fn logged(&self) -> Result<usize> {
        Ok(std::fs::metadata(self.folder().join("access.log"))?.len() as usize)
    }

    /// The share of the time of each route since then, in percent, from the access log.
    pub fn shares(&self, since: usize) -> Result<HashMap<&'static str, f64>> {
        let mut took = HashMap::new();
        for (microseconds, uri) in self.log(since)? {
            let of = |number| request(Requested::Shop, number);
            let known = (0..10).map(of).find(|(_, asked, _)| *asked == uri);
            let (_, _, route) = known.with_context(|| format!("nobody asks for {uri}"))?;
            *took.entry(route).or_default() += microseconds as f64;
        }
        Ok(shares(&took))
    }

    /// How long the requests of a path have lasted that ended since then, in milliseconds, from the
    /// access log.
    pub fn durations(&self, since: usize, path: &str) -> Result<Vec<i64>> {
        let log = self.log(since)?.into_iter();
        let of_path = log.filter(|(_, uri)| uri.split('?').next() == Some(path));
        Ok(of_path.map(|(time, _)| time / 1000).collect())
    }

    /// The access log since then: microseconds, and the URI.
    fn log(&self, since: usize) -> Result<Vec<(i64, String)>> {
        let log = std::fs::read_to_string(self.folder().join("access.log"))?;
        let lines = log.get(since..).context("the log is shorter")?.lines();
        let line = |line: &str| {
            let (time, uri) = line.split_once(' ').context("a line without a URI")?;
            Ok((time.parse()?, uri.to_owned()))
        };
        lines.map(line).collect()
    }
}

/// The built-in server, with the application as its router.
pub struct BuiltIn {
    running: Running,
    _folder: TempDir,
}

impl BuiltIn {
    pub fn pid(&self) -> u32 {
        self.running.0.id()
    }
}

pub fn builtin() -> Result<(BuiltIn, Clients)> {
    let folder = TempDir::new()?;
    put_application(folder.path())?;
    let address = free_address()?;
    let mut command = Command::new("php8.2");
    command.args(["-S", &address.to_string()]);
    command.arg(folder.path().join("index.php"));
    command.env("SECRET", "esecrete").stderr(Stdio::null());
    let server = BuiltIn {
        running: Running::start(&mut command)?,
        _folder: folder,
    };
    wait_for_listener(address)?;
    let ask = move |method: &str, uri: &str| http(address, method, uri);
    Ok((server, Clients::asking(ask, Requested::Shop, 1)))
}

fn http(address: SocketAddr, method: &str, uri: &str) -> Result<f64> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let body = "--part\r\nContent-Disposition: form-data; name=\"file\"; filename=\"usecretu.txt\"\r\n\r\nbsecretb\r\n--part--\r\n";
    let request = format!(
        "{method} {uri} HTTP/1.0\r\nHost: localhost\r\nCookie: session=csecretc\r\nAuthorization: Bearer asecreta\r\n\
         traceparent: 00-{TRACE}-{SPAN}-01\r\nContent-Type: multipart/form-data; boundary=part\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    // A server that does not read the body may reset the connection after its answer.
    let _ = stream.read_to_end(&mut answer);
    took(&answer)
}

/// The time of an answer's request, in nanoseconds, as the application has measured it.
fn took(answer: &[u8]) -> Result<f64> {
    let answer = String::from_utf8_lossy(answer);
    let (_, rest) = answer
        .split_once("served ")
        .with_context(|| format!("no answer: {answer}"))?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Ok(digits.parse()?)
}

/// The route of each answered request, and its time in nanoseconds.
type Took = Vec<(&'static str, f64)>;

/// Clients that send requests until they are dropped, and the times of their routes.
pub struct Clients {
    stop: Arc<AtomicBool>,
    took: Arc<Mutex<Took>>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    pub fn start(socket: &Path, folder: &Path, requested: Requested, count: usize) -> Self {
        let (socket, folder) = (socket.to_owned(), folder.to_owned());
        Self::asking(
            move |method, uri| fastcgi(&socket, &folder, method, uri),
            requested,
            count,
        )
    }

    fn asking(
        ask: impl Fn(&str, &str) -> Result<f64> + Send + Sync + 'static,
        requested: Requested,
        count: usize,
    ) -> Self {
        let (stop, took) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let ask = Arc::new(ask);
        let threads = (0..count)
            .map(|client| {
                let (stop, took, ask) = (Arc::clone(&stop), Arc::clone(&took), Arc::clone(&ask));
                std::thread::spawn(move || work(&*ask, requested, client, count, &stop, &took))
            })
            .collect();
        Self {
            stop,
            took,
            threads,
        }
    }

    /// Forgets the times so far.
    pub fn mark(&self) {
        self.took.lock().expect("no client panicked").clear();
    }

    /// The share of the time of each route, in percent.
    pub fn shares(&self) -> HashMap<&'static str, f64> {
        let mut sums = HashMap::new();
        for (route, took) in &*self.took.lock().expect("no client panicked") {
            *sums.entry(*route).or_default() += took;
        }
        shares(&sums)
    }

    /// The seconds of the requests of a route that took at least so long.
    pub fn seconds_of_long(&self, route: &str, least: Duration) -> f64 {
        let took = self.took.lock().expect("no client panicked");
        let seconds = took.iter().filter(|(of, _)| *of == route);
        let seconds = seconds.map(|(_, nanoseconds)| nanoseconds / 1e9);
        let long = seconds.filter(|took| *took >= least.as_secs_f64());
        // An empty sum would be -0.
        long.fold(0.0, |sum, took| sum + took)
    }
}

/// In percent of all.
fn shares(took: &HashMap<&'static str, f64>) -> HashMap<&'static str, f64> {
    let all: f64 = took.values().sum();
    let share = |(route, took): (&&'static str, &f64)| (*route, 100.0 * took / all);
    took.iter().map(share).collect()
}

fn work(
    ask: &dyn Fn(&str, &str) -> Result<f64>,
    requested: Requested,
    client: usize,
    count: usize,
    stop: &AtomicBool,
    took: &Mutex<Took>,
) {
    let mut number = client;
    while !stop.load(Ordering::Relaxed) {
        let (method, uri, route) = request(requested, number);
        let nanoseconds = ask(method, &uri).expect("an answer");
        let mut took = took.lock().expect("no client panicked");
        took.push((route, nanoseconds));
        number += count;
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// One request as nginx sends it.
fn fastcgi(socket: &Path, folder: &Path, method: &str, uri: &str) -> Result<f64> {
    let root = folder.to_string_lossy();
    let (query, script) = (
        uri.split_once('?').map_or("", |(_, query)| query),
        format!("{root}/index.php"),
    );
    let trace = format!("00-{TRACE}-{SPAN}-01");
    let body = if method == "POST" { "bsecretb" } else { "" };
    let length = body.len().to_string();
    let parameters = [
        ("QUERY_STRING", query),
        ("REQUEST_METHOD", method),
        ("CONTENT_TYPE", "text/plain"),
        ("CONTENT_LENGTH", &length),
        ("SCRIPT_NAME", "/index.php"),
        ("SCRIPT_FILENAME", &script),
        ("REQUEST_URI", uri),
        ("DOCUMENT_ROOT", &root),
        ("HTTP_COOKIE", "session=csecretc"),
        ("HTTP_AUTHORIZATION", "Bearer asecreta"),
        ("HTTP_TRACEPARENT", &trace),
    ];
    let mut content = Vec::new();
    for (name, value) in parameters {
        for length in [name.len(), value.len()] {
            content.extend((u32::try_from(length)? | 1 << 31).to_be_bytes());
        }
        content.extend(name.bytes().chain(value.bytes()));
    }
    let mut stream = UnixStream::connect(socket)?;
    let mut sent = packet(1, &[0, 1, 0, 0, 0, 0, 0, 0])?;
    sent.extend(packet(4, &content)?);
    sent.extend(packet(4, &[])?);
    if !body.is_empty() {
        sent.extend(packet(5, body.as_bytes())?);
    }
    sent.extend(packet(5, &[])?);
    stream.write_all(&sent)?;
    let mut answer = Vec::new();
    stream
        .read_to_end(&mut answer)
        .context("php-fpm's answer")?;
    took(&answer)
}

fn packet(kind: u8, content: &[u8]) -> Result<Vec<u8>> {
    let [high, low] = u16::try_from(content.len())?.to_be_bytes();
    let mut packet = vec![1, kind, 0, 1, high, low, 0, 0];
    packet.extend(content);
    Ok(packet)
}
