//! A proxy of each kind: CONNECT, CONNECT inside of TLS, SOCKS5, each with and without a password.
//!
//! Invariant: a name is looked up by the proxy; the client need not be able to.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::authority::{Pair, text};

/// Tunnels that were opened.
pub static TUNNELS: AtomicUsize = AtomicUsize::new(0);
/// `user:password` in base64.
const BASIC: &str = "dXNlcjpwYXNzd29yZA==";

/// Starts a proxy, and returns its port. Every name is the one server.
pub fn start(serve: fn(TcpStream, SocketAddr) -> Option<()>, server: SocketAddr) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream, server));
        }
    });
    port
}

/// TLS before another proxy. It ends with this program.
pub fn tls_before(port: u16, pair: &Pair) -> (u16, Child) {
    let own = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let listen = format!(
        "OPENSSL-LISTEN:{own},bind=127.0.0.1,reuseaddr,fork,verify=0,cert={},key={}",
        text(&pair.certificate),
        text(&pair.key)
    );
    let child = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--", "socat", &listen])
        .arg(format!("TCP:127.0.0.1:{port}"))
        .spawn()
        .unwrap();
    (own, child)
}

fn piped(client: TcpStream, server: SocketAddr) -> Option<()> {
    let upstream = TcpStream::connect(server).ok()?;
    TUNNELS.fetch_add(1, Ordering::SeqCst);
    let (mut from, mut to) = (client.try_clone().ok()?, upstream.try_clone().ok()?);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Write);
    });
    let (mut from, mut to) = (upstream, client);
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(std::net::Shutdown::Both);
    Some(())
}

fn connect_if(mut stream: TcpStream, server: SocketAddr, opens: fn(&str) -> bool) -> Option<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && head.len() < 8192 {
        stream.read_exact(&mut byte).ok()?;
        head.extend(byte);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    if !head.starts_with("CONNECT ") || !opens(&head) {
        stream
            .write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
            .ok()?;
        return None;
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").ok()?;
    piped(stream, server)
}

pub fn connect(stream: TcpStream, server: SocketAddr) -> Option<()> {
    connect_if(stream, server, |_| true)
}

pub fn connect_with_password(stream: TcpStream, server: SocketAddr) -> Option<()> {
    connect_if(stream, server, |head| {
        let wanted = format!("proxy-authorization: basic {}", BASIC.to_lowercase());
        head.to_lowercase().contains(&wanted) && head.contains(BASIC)
    })
}

pub fn socks(stream: TcpStream, server: SocketAddr) -> Option<()> {
    socks_by(stream, server, 0)
}

pub fn socks_with_password(stream: TcpStream, server: SocketAddr) -> Option<()> {
    socks_by(stream, server, 2)
}

/// RFC 1928, and RFC 1929 for the method 2.
fn socks_by(mut stream: TcpStream, server: SocketAddr, method: u8) -> Option<()> {
    let methods = counted(&mut stream, 1)?;
    if !methods.contains(&method) {
        stream.write_all(&[5, 255]).ok()?;
        return None;
    }
    stream.write_all(&[5, method]).ok()?;
    if method == 2 {
        let user = counted(&mut stream, 1)?;
        let password = counted(&mut stream, 0)?;
        let right = user == b"user" && password == b"password";
        stream.write_all(&[1, u8::from(!right)]).ok()?;
        if !right {
            return None;
        }
    }
    let mut head = [0; 4];
    stream.read_exact(&mut head).ok()?;
    match head[3] {
        1 => stream.read_exact(&mut [0; 4]).ok()?,
        3 => drop(counted(&mut stream, 0)?),
        _ => stream.read_exact(&mut [0; 16]).ok()?,
    }
    stream.read_exact(&mut [0; 2]).ok()?;
    stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).ok()?;
    piped(stream, server)
}

/// Bytes behind their number, which stands behind `skipped` bytes.
fn counted(stream: &mut TcpStream, skipped: usize) -> Option<Vec<u8>> {
    let mut head = vec![0; skipped + 1];
    stream.read_exact(&mut head).ok()?;
    let mut bytes = vec![0; usize::from(*head.last()?)];
    stream.read_exact(&mut bytes).ok()?;
    Some(bytes)
}
