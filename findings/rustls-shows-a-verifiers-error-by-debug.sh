#!/usr/bin/env bash
# rustls 0.23.46: a certificate verifier that explains its refusal (CertificateError::Other) is shown to users by Debug, not by Display.
# An error type whose Debug is derived reaches the terminal as a Rust struct; its own words are lost, and `source()` does not lead to it.
#
# Seen: "invalid peer certificate: Other(OtherError(Refused { bits: 1024 }))", and no source.
# Installs rustls in a temporary folder, runs it without phpprof, and fails if it prints anything else.
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
rustls = { version = "=0.23.46", default-features = false, features = ["std"] }
TOML
cat >"$folder/src/main.rs" <<'RUST'
use std::error::Error;
#[derive(Debug)]
struct Refused { #[allow(dead_code)] bits: u32 }
impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str("the key is too short") }
}
impl Error for Refused {}
fn main() {
    let other = rustls::OtherError(std::sync::Arc::new(Refused { bits: 1024 }));
    let error = rustls::Error::InvalidCertificate(rustls::CertificateError::Other(other));
    println!("{error}; source: {}", error.source().map_or("none".into(), |it| it.to_string()));
}
RUST
seen=$(cd "$folder" && CARGO_TARGET_DIR="$folder/target" cargo run --quiet)
echo "$seen"
[ "$seen" = "invalid peer certificate: Other(OtherError(Refused { bits: 1024 })); source: none" ]
