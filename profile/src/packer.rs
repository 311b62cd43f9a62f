//! Writes a pprof file while it is compressed, so that its samples are never all in memory.
//!
//! Invariant: equal samples and tables give equal bytes (no name and no time in the gzip header).

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message as _;
use prost::encoding::message;

use crate::proto::{Profile, Sample};

/// `Profile.sample`.
const SAMPLE: u32 = 2;

pub(crate) struct Packer {
    gzip: GzEncoder<Vec<u8>>,
    record: Vec<u8>,
}

impl Default for Packer {
    fn default() -> Self {
        Packer {
            gzip: GzEncoder::new(Vec::new(), Compression::default()),
            record: Vec::new(),
        }
    }
}

impl Packer {
    pub fn sample(&mut self, sample: &Sample) {
        self.record.clear();
        message::encode(SAMPLE, sample, &mut self.record);
        // Writing to a `Vec` cannot fail, as in `finish`.
        let _ = self.gzip.write_all(&self.record);
    }

    /// The file. `rest` has everything except the samples.
    pub fn finish(mut self, rest: &Profile) -> Vec<u8> {
        // Writing to a `Vec` cannot fail. If it did, the result would be empty, which every reader
        // refuses.
        let written = self.gzip.write_all(&rest.encode_to_vec());
        written
            .and_then(|()| self.gzip.finish())
            .unwrap_or_default()
    }
}
