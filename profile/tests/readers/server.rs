//! Serves files over HTTP on this machine, for pages that a browser does not open from a folder.
//!
//! It serves only the given files, one request at a time, and ends with the tests.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

pub struct ServedFile {
    pub kind: &'static str,
    pub policy: Option<&'static str>,
    pub bytes: Vec<u8>,
}

/// Serves the files by their paths, or by `POST` and their paths. Returns the origin.
pub fn serve(files: HashMap<String, ServedFile>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = answer(stream, &files);
        }
    });
    origin
}

fn answer(mut stream: TcpStream, files: &HashMap<String, ServedFile>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut request, mut length) = (String::new(), 0);
    reader.read_line(&mut request)?;
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        line.clear();
    }
    std::io::copy(&mut reader.take(length), &mut std::io::sink())?;
    let wanted = request
        .rsplit_once(" HTTP/")
        .map_or("/", |(wanted, _)| wanted);
    let Some(file) = files.get(wanted.strip_prefix("GET ").unwrap_or(wanted)) else {
        return stream.write_all(
            b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        );
    };
    let policy = file
        .policy
        .map(|policy| format!("content-security-policy: {policy}\r\n"))
        .unwrap_or_default();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: {}\r\n{policy}content-length: {}\r\nconnection: close\r\n\r\n",
        file.kind,
        file.bytes.len()
    )?;
    stream.write_all(&file.bytes)
}
