#!/usr/bin/env bash
# object_store 0.14.2: a create-only put (PutMode::Create) to S3 says "already exists" for every 409. AWS answers 412 where the object exists,
# and 409 ConditionalRequestConflict where another request for the same key was under way, which means: try again
# (https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html). Nothing need exist then, and nothing is tried again.
#
# Seen: "409 ConditionalRequestConflict: already exists, after 1 request; 412 PreconditionFailed: already exists, after 1 request".
# Installs object_store in a temporary folder, runs it against a server of a few lines, without phpprof, and fails if it prints anything else.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/src"
cat >"$folder/Cargo.toml" <<'TOML'
[package]
name = "seen"
version = "0.0.0"
edition = "2021"
[dependencies]
object_store = { version = "=0.14.2", default-features = false, features = ["aws", "reqwest", "aws-lc-rs"] }
tokio = { version = "=1.54.1", features = ["rt", "macros"] }
TOML
cat >"$folder/src/main.rs" <<'RUST'
use object_store::{aws::AmazonS3Builder, Error, ObjectStore, PutMode, PutOptions};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::Arc;

/// Answers each request with this status, as AWS words it, and counts them.
fn server(status: &'static str, code: &'static str) -> (String, Arc<AtomicU32>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (count, counted) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let counts = (count.clone(), counted);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"content") {
                let mut bytes = [0; 4096];
                let length = stream.read(&mut bytes).unwrap();
                if length == 0 { break; }
                request.extend(&bytes[..length]);
            }
            counts.0.fetch_add(1, SeqCst);
            let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>m</Message></Error>");
            let _ = write!(stream, "HTTP/1.1 {status} x\r\nContent-Type: application/xml\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
        }
    });
    (url, count)
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut seen = Vec::new();
    for (status, code) in [("409", "ConditionalRequestConflict"), ("412", "PreconditionFailed")] {
        let (url, count) = server(status, code);
        let store = AmazonS3Builder::new()
            .with_endpoint(url).with_allow_http(true).with_bucket_name("b").with_region("us-east-1")
            .with_access_key_id("a").with_secret_access_key("s").build().unwrap();
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let result = store.put_opts(&"key".into(), "content".into(), options).await;
        let said = match result {
            Err(Error::AlreadyExists { .. }) => "already exists".to_owned(),
            other => format!("{other:?}"),
        };
        seen.push(format!("{status} {code}: {said}, after {} request", count.load(SeqCst)));
    }
    println!("{}", seen.join("; "));
}
RUST
seen=$(cd "$folder" && CARGO_TARGET_DIR="$folder/target" cargo run --quiet)
echo "$seen"
[ "$seen" = "409 ConditionalRequestConflict: already exists, after 1 request; 412 PreconditionFailed: already exists, after 1 request" ]
