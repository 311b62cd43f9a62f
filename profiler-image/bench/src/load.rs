//! The load that keeps workers busy: clients that each wait for an answer before they request the
//! next page.
//!
//! Invariant: an answer other than a page ends the run with an error; it is never left out.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::workload::Application;

/// Longer than any page takes with 64 workers on two cores.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server, and its pages.
#[derive(Debug, Clone)]
pub enum LoadServer {
    /// php-fpm.
    FastCgi {
        /// The pool's socket.
        socket: PathBuf,
        /// The folder that contains the application's.
        root: PathBuf,
        /// The application.
        application: &'static Application,
    },
    /// A server of its own, such as FrankenPHP, and the path of its page.
    Http(SocketAddr, String),
}

impl LoadServer {
    /// The number of different pages.
    #[must_use]
    pub fn pages(&self) -> usize {
        match self {
            Self::FastCgi { application, .. } => application.pages.len(),
            Self::Http(..) => 1,
        }
    }

    /// An error while the server accepts no requests.
    pub fn listens(&self) -> Result<()> {
        match self {
            Self::FastCgi { socket, .. } => UnixStream::connect(socket).map(drop)?,
            Self::Http(address, _) => TcpStream::connect(address).map(drop)?,
        }
        Ok(())
    }

    /// Asks for a page.
    pub fn ask(&self, page: usize) -> Result<()> {
        self.ask_with(page, "")
    }

    /// Asks for a page with a cookie; php-fpm only.
    pub fn ask_with(&self, page: usize, cookie: &str) -> Result<()> {
        let answer = match self {
            Self::FastCgi {
                socket,
                root,
                application,
            } => {
                let (script, query) = application.pages[page % application.pages.len()];
                let mut parameters = parameters(root, script, query);
                if !cookie.is_empty() {
                    parameters.push(("HTTP_COOKIE", cookie.to_owned()));
                }
                fastcgi(socket, &parameters)
                    .with_context(|| format!("asking for {script}?{query}"))?
            }
            Self::Http(address, path) => http(*address, path)?,
        };
        let text = String::from_utf8_lossy(&answer);
        let (head, body) = text
            .split_once("\r\n\r\n")
            .context("an answer without a head")?;
        ensure!(
            !body.is_empty() && !head.contains("Status: 5") && !head.starts_with("HTTP/1.1 5"),
            "the answer to page {page} is none: {}",
            text.chars().take(500).collect::<String>()
        );
        Ok(())
    }
}

/// Clients that are busy until this is dropped.
pub struct Load {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Result<()>>>,
}

impl Load {
    /// Starts this many clients, each with another page.
    #[must_use]
    pub fn start(server: &LoadServer, clients: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let client = |first: usize| {
            let (stop, server) = (Arc::clone(&stop), server.clone());
            std::thread::spawn(move || {
                let mut page = first;
                while !stop.load(Ordering::Relaxed) {
                    server.ask(page)?;
                    page += 1;
                }
                Ok(())
            })
        };
        Self {
            clients: (0..clients).map(client).collect(),
            stop,
        }
    }

    /// Waits for the last answers; an error if one was not a page.
    pub fn stop(mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            client
                .join()
                .map_err(|_| anyhow::anyhow!("a client panicked"))??;
        }
        Ok(())
    }

    /// Whether a client has ended early.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.clients.iter().any(JoinHandle::is_finished)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn http(address: SocketAddr, path: &str) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address).context("connecting to the server")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

const BEGIN: u8 = 1;
const END: u8 = 3;
const PARAMETERS: u8 = 4;
const INPUT: u8 = 5;
const OUTPUT: u8 = 6;

/// The parameters that a web server sends for a request.
fn parameters(root: &Path, script: &str, query: &str) -> Vec<(&'static str, String)> {
    vec![
        ("SCRIPT_FILENAME", root.join(script).display().to_string()),
        ("SCRIPT_NAME", format!("/{script}")),
        ("REQUEST_URI", format!("/{script}?{query}")),
        ("QUERY_STRING", query.to_owned()),
        ("REQUEST_METHOD", "GET".to_owned()),
        ("SERVER_PROTOCOL", "HTTP/1.1".to_owned()),
        ("SERVER_NAME", "localhost".to_owned()),
        ("SERVER_PORT", "80".to_owned()),
        ("SERVER_SOFTWARE", "bench".to_owned()),
        ("REMOTE_ADDR", "127.0.0.1".to_owned()),
        ("HTTP_HOST", "localhost".to_owned()),
        ("REDIRECT_STATUS", "200".to_owned()),
    ]
}

fn fastcgi(socket: &Path, parameters: &[(&str, String)]) -> Result<Vec<u8>> {
    let mut stream = UnixStream::connect(socket).context("connecting to php-fpm")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut encoded = Vec::new();
    for (name, value) in parameters {
        for length in [name.len(), value.len()] {
            // The high bit means that the length has four bytes.
            encoded.extend((u32::try_from(length)? | 1 << 31).to_be_bytes());
        }
        encoded.extend(name.bytes().chain(value.bytes()));
    }
    // Role 1, a responder; php-fpm closes the connection after the answer.
    let request = [
        record(BEGIN, &[0, 1, 0, 0, 0, 0, 0, 0])?,
        record(PARAMETERS, &encoded)?,
        record(PARAMETERS, &[])?,
        record(INPUT, &[])?,
    ];
    stream.write_all(&request.concat())?;
    let mut answer = Vec::new();
    loop {
        let mut head = [0; 8];
        stream
            .read_exact(&mut head)
            .context("php-fpm closed the connection before its answer")?;
        let mut content = vec![0; usize::from(u16::from_be_bytes([head[4], head[5]]))];
        stream.read_exact(&mut content)?;
        stream.read_exact(&mut vec![0; usize::from(head[6])])?;
        match head[1] {
            OUTPUT => answer.extend(content),
            END if content.get(4) == Some(&0) => return Ok(answer),
            END => bail!("php-fpm refuses the request"),
            // Warnings of the application.
            _ => {}
        }
    }
}

fn record(kind: u8, content: &[u8]) -> Result<Vec<u8>> {
    let length = u16::try_from(content.len())?.to_be_bytes();
    let mut record = vec![1, kind, 0, 1, length[0], length[1], 0, 0];
    record.extend(content);
    Ok(record)
}
