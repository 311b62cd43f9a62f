//! A profile as a gzip-compressed pprof file.
//!
//! It checks nothing: a profile that is whole is written as it stands.
//!
//! Invariant: equal profiles give equal bytes (no name and no time in the gzip header).

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use crate::proto::Profile;

/// The profile as the file that every reader of pprof takes.
pub fn encode_gzip(profile: &Profile) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    let written = gzip.write_all(&profile.encode_to_vec());
    // A `Vec` takes every write. Were it ever not so, the answer is empty, which every reader refuses.
    written.and_then(|()| gzip.finish()).unwrap_or_default()
}
