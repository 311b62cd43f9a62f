//! Files over HTTP on this machine, for what a browser does not open from a folder.
//!
//! It serves what it was given and nothing else, one request at a time, and ends with the tests.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};

pub struct File {
    pub kind: &'static str,
    pub policy: Option<&'static str>,
    pub bytes: Vec<u8>,
}

/// Serves the files by their paths, and gives the origin.
pub fn serve(files: HashMap<String, File>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = answer(stream, &files);
        }
    });
    origin
}

fn answer(mut stream: TcpStream, files: &HashMap<String, File>) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    while lines
        .next()
        .transpose()?
        .is_some_and(|line| !line.is_empty())
    {}
    let path = request.split(' ').nth(1).unwrap_or("/");
    let Some(file) = files.get(path) else {
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
