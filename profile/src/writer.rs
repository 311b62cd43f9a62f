//! A profile that is packed while it is made, so that its samples are never held together.
//!
//! It sums nothing: each sample is a row of its own. Invariant: what it writes is what [`crate::encode_gzip`] would write of the same
//! rows, but that the samples come first.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message as _;
use prost::encoding::message;

use crate::builder::{Builder, FrameRef, Label, Settings};

/// `Profile.sample`.
const SAMPLE: u32 = 2;

pub struct Writer {
    builder: Builder,
    gzip: GzEncoder<Vec<u8>>,
    record: Vec<u8>,
}

impl Writer {
    pub fn new(settings: Settings) -> Self {
        Writer {
            builder: Builder::new(settings),
            gzip: GzEncoder::new(Vec::new(), Compression::default()),
            record: Vec::new(),
        }
    }

    /// Writes a sample: a stack (leaf first), its values in the order of the sample types, and its labels.
    pub fn add(&mut self, stack: &[FrameRef<'_>], values: &[i64], labels: &[Label<'_>]) {
        let sample = self.builder.sample(stack, values, labels);
        self.record.clear();
        message::encode(SAMPLE, &sample, &mut self.record);
        // As in `finish`.
        let _ = self.gzip.write_all(&self.record);
    }

    pub fn comment(&mut self, text: impl AsRef<str>) {
        self.builder.comment(text);
    }

    /// The file.
    pub fn finish(mut self) -> Vec<u8> {
        let rest = self.builder.finish().encode_to_vec();
        // A `Vec` takes every write. Were it ever not so, the answer is empty, which every reader refuses.
        let written = self.gzip.write_all(&rest);
        written
            .and_then(|()| self.gzip.finish())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, decode};

    #[test]
    fn what_is_written_is_what_is_built() {
        let (mut writer, mut builder) = (
            Writer::new(Settings::default()),
            Builder::new(Settings::default()),
        );
        let frame = |name| FrameRef {
            name,
            file: "/a.php",
            start_line: 3,
            line: 7,
        };
        let labels = [Label::Str("php", "8.2.1"), Label::Num("pid", 42, "")];
        // The builder gives its samples in the order of their locations.
        for (stack, value) in [(&["main"][..], 1), (&["f", "main"], 2), (&["g", "main"], 3)] {
            let stack: Vec<_> = stack.iter().map(|name| frame(name)).collect();
            writer.add(&stack, &[value, 5], &labels);
            builder.add(&stack, &[value, 5], &labels);
        }
        writer.comment("said");
        builder.comment("said");
        let mut written = decode(&writer.finish(), &Limits::default()).unwrap();
        written
            .sample
            .sort_by(|one, other| one.location_id.cmp(&other.location_id));
        assert_eq!(written, builder.finish());
    }
}
