//! Writes a profile while it is compressed, so that its samples are never all in memory.
//!
//! It adds up nothing: each sample is its own row. Invariant: the output equals that of
//! [`crate::encode_gzip`] for the same rows, except that the samples come first.

use crate::builder::{Builder, FrameRef, SampleTag, Settings};
use crate::packer::Packer;

/// A file that grows sample by sample.
pub struct Writer {
    builder: Builder,
    packer: Packer,
}

impl Writer {
    /// An empty profile.
    pub fn new(settings: Settings) -> Self {
        Writer {
            builder: Builder::new(settings),
            packer: Packer::default(),
        }
    }

    /// The same, whose stacks have at most this many frames ([`crate::depth_within`]).
    #[must_use]
    pub fn with_depth(mut self, depth: usize) -> Self {
        self.builder.depth = depth;
        self
    }

    /// Writes a sample: a stack (leaf first), its values in the order of the sample types, and its
    /// labels.
    pub fn add(&mut self, stack: &[FrameRef<'_>], values: &[i64], labels: &[SampleTag<'_>]) {
        let sample = self.builder.sample(stack, values, labels);
        self.packer.sample(&sample);
    }

    /// Adds a comment after the existing ones.
    pub fn comment(&mut self, text: impl AsRef<str>) {
        self.builder.comment(text);
    }

    /// The file.
    pub fn finish(self) -> Vec<u8> {
        self.packer.finish(&self.builder.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DecodeLimits, decode};

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
        let labels = [
            SampleTag::Str("php", "8.2.1"),
            SampleTag::Num("pid", 42, ""),
        ];
        // The builder returns its samples in the order of their locations.
        for (stack, value) in [(&["main"][..], 1), (&["f", "main"], 2), (&["g", "main"], 3)] {
            let stack: Vec<_> = stack.iter().map(|name| frame(name)).collect();
            writer.add(&stack, &[value, 5], &labels);
            builder.add(&stack, &[value, 5], &labels);
        }
        writer.comment("said");
        builder.comment("said");
        let mut written = decode(&writer.finish(), &DecodeLimits::default()).unwrap();
        written
            .sample
            .sort_by(|one, other| one.location_id.cmp(&other.location_id));
        assert_eq!(written, builder.finish());
    }
}
