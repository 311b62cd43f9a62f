//! A pprof file that is packed while it is made, so that its samples are never held together.
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
        // As in `finish`.
        let _ = self.gzip.write_all(&self.record);
    }

    /// The file, with everything but samples from `rest`.
    pub fn finish(mut self, rest: &Profile) -> Vec<u8> {
        // A `Vec` takes every write. Were it ever not so, the answer is empty, which every reader refuses.
        let written = self.gzip.write_all(&rest.encode_to_vec());
        written
            .and_then(|()| self.gzip.finish())
            .unwrap_or_default()
    }
}
