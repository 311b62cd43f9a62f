//! A profile as a gzip-compressed pprof file.
//!
//! It checks nothing: it expects a complete profile and writes it unchanged.
//!
//! Invariant: equal profiles give equal bytes (no name and no time in the gzip header).

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use crate::proto::Profile;

/// The profile as a file for every reader of pprof.
pub fn encode_gzip(profile: &Profile) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    let written = gzip.write_all(&profile.encode_to_vec());
    // Writing to a `Vec` cannot fail. If it did, the result would be empty, which every reader
    // refuses.
    written.and_then(|()| gzip.finish()).unwrap_or_default()
}
