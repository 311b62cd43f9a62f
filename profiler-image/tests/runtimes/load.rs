//! The load on a server, and its answers: clients that each wait for an answer before they send the
//! next request.
//!
//! Invariant: an invalid answer is an error of the whole run, and never left out.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// The protocol of a server.
#[derive(Debug, Clone)]
pub enum Protocol {
    Http,
    /// With the path of the script, as the server sees it.
    FastCgi(PathBuf),
}

/// Clients that are busy until they are told to stop.
pub struct Load {
    stop: Arc<AtomicBool>,
    answers: Arc<AtomicU64>,
    clients: Vec<JoinHandle<Result<Vec<String>>>>,
}

impl Load {
    /// Starts the clients.
    pub fn start(address: SocketAddr, protocol: &Protocol, clients: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let answers = Arc::new(AtomicU64::new(0));
        let client = || {
            let (stop, answers, protocol) =
                (Arc::clone(&stop), Arc::clone(&answers), protocol.clone());
            std::thread::spawn(move || {
                let mut bodies = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    bodies.push(ask(address, &protocol)?);
                    answers.fetch_add(1, Ordering::Relaxed);
                }
                Ok(bodies)
            })
        };
        let clients = (0..clients).map(|_| client()).collect();
        Self {
            stop,
            answers,
            clients,
        }
    }

    /// The number of answers so far. Fails if a client has ended, because the caller would wait
    /// without end.
    pub fn answers(&self) -> Result<u64> {
        ensure!(
            !self.clients.iter().any(JoinHandle::is_finished),
            "a client has failed"
        );
        Ok(self.answers.load(Ordering::Relaxed))
    }

    /// Waits for the last answers, and returns all.
    pub fn stop(self) -> Result<Vec<String>> {
        self.stop.store(true, Ordering::Relaxed);
        let mut bodies = Vec::new();
        for client in self.clients {
            bodies.extend(
                client
                    .join()
                    .map_err(|_| anyhow::anyhow!("a client panicked"))??,
            );
        }
        Ok(bodies)
    }
}

/// One request, and the body of its answer.
pub fn ask(address: SocketAddr, protocol: &Protocol) -> Result<String> {
    let mut stream = TcpStream::connect(address).context("connecting to the server")?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let bytes = match protocol {
        Protocol::Http => {
            stream.write_all(b"GET /index.php HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes)?;
            bytes
        }
        Protocol::FastCgi(script) => {
            stream.write_all(&fastcgi_request(script))?;
            fastcgi_answer(&mut stream)?
        }
    };
    let text = String::from_utf8(bytes)?;
    let (_, body) = text
        .split_once("\r\n\r\n")
        .with_context(|| format!("the answer has no head: {text:?}"))?;
    ensure!(!body.is_empty(), "the answer has no body: {text:?}");
    Ok(body.to_owned())
}

const BEGIN: u8 = 1;
const END: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;

fn fastcgi_request(script: &Path) -> Vec<u8> {
    let script = script.to_string_lossy();
    let mut parameters = Vec::new();
    for (name, value) in [
        ("SCRIPT_FILENAME", &*script),
        ("REQUEST_METHOD", "GET"),
        ("REQUEST_URI", "/index.php"),
        ("REDIRECT_STATUS", "200"),
    ] {
        parameters.extend([short(name.len()), short(value.len())]);
        parameters.extend(name.bytes().chain(value.bytes()));
    }
    // Role 1, a responder; the connection is closed after the answer.
    let begin = record(BEGIN, &[0, 1, 0, 0, 0, 0, 0, 0]);
    [
        begin,
        record(PARAMS, &parameters),
        record(PARAMS, &[]),
        record(STDIN, &[]),
    ]
    .concat()
}

/// A length of one byte; the paths of a test are not longer.
fn short(length: usize) -> u8 {
    u8::try_from(length)
        .ok()
        .filter(|&length| length < 128)
        .expect("a short parameter")
}

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len())
        .expect("a short record")
        .to_be_bytes();
    let mut record = vec![1, kind, 0, 1, length[0], length[1], 0, 0];
    record.extend(content);
    record
}

fn fastcgi_answer(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let mut answer = Vec::new();
    loop {
        let mut head = [0; 8];
        stream
            .read_exact(&mut head)
            .context("the server closed the connection before its answer")?;
        let mut content = vec![0; usize::from(u16::from_be_bytes([head[4], head[5]]))];
        stream.read_exact(&mut content)?;
        stream.read_exact(&mut vec![0; usize::from(head[6])])?;
        match head[1] {
            STDOUT => answer.extend(content),
            END => return Ok(answer),
            _ => eprintln!("{}", String::from_utf8_lossy(&content)),
        }
    }
}
