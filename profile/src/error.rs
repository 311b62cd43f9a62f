//! Why a pprof file is refused.
//!
//! Invariant: a refusal says which bound it is over, or what is wrong in the file.

use std::io;

/// Why a file is refused.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Over [`crate::Limits::compressed_bytes`]. Nothing was read.
    #[error("the file has more than {0} bytes")]
    CompressedTooLarge(usize),
    /// Over [`crate::Limits::decompressed_bytes`]. Decompression stopped there.
    #[error("the file has more than {0} bytes when decompressed")]
    DecompressedTooLarge(usize),
    /// Over [`crate::Limits::memory_bytes`].
    #[error("the profile takes more than {0} bytes of memory")]
    MemoryExceeded(usize),
    /// Over [`crate::Limits::samples`].
    #[error("the profile has more than {0} samples")]
    TooManySamples(usize),
    /// One top-level field is longer than any that a sampler writes.
    #[error("a field has more than {0} bytes")]
    RecordTooLarge(usize),
    /// Over [`crate::Limits::depth`].
    #[error("a sample has more than {0} frames")]
    TooDeep(usize),
    /// Over [`crate::Limits::labels`].
    #[error("a sample has more than {0} labels")]
    TooManyLabels(usize),
    /// Over [`crate::Limits::string`].
    #[error("a string has more than {0} bytes")]
    StringTooLong(usize),
    /// It begins like gzip, but is not gzip.
    #[error("not a gzip file: {0}")]
    Gzip(#[source] io::Error),
    /// An upload that was cut off, for instance.
    #[error("the file ends in the middle of a field")]
    Truncated,
    /// A varint that no encoder writes (protobuf.dev, encoding).
    #[error("a varint has more than ten bytes")]
    Varint,
    /// Only 0, 1, 2 and 5 are read. Groups are not.
    #[error("unknown wire type {0}")]
    WireType(u64),
    /// A field that does not match the schema.
    #[error("not a pprof message: {0}")]
    Message(#[from] prost::DecodeError),
    /// Without sample types, the values have no meaning.
    #[error("the profile has no sample type")]
    NoSampleType,
    /// `profile.proto` requires that index 0 is the empty string.
    #[error("the string table does not start with the empty string")]
    StringTable,
    /// A sample must have one value for each sample type.
    #[error("a sample has {actual} values for {expected} sample types")]
    Values {
        /// Sample types.
        expected: usize,
        /// Values of the first sample that differs.
        actual: usize,
    },
    /// An id of a mapping, location or function that is 0 or not unique.
    #[error("{0} id 0 or used twice")]
    Id(&'static str),
    /// An id or a string index that does not exist.
    #[error("{kind} {id} does not exist")]
    Dangling {
        /// `location`, `function`, `string`, …
        kind: &'static str,
        /// The value in the file. The type is wider than all ids and indices.
        id: i128,
    },
}

impl DecodeError {
    /// The cap and the decompressor report through `io::Error`, because they are inside a `Read`.
    pub(crate) fn of_read(error: io::Error) -> Self {
        match error.downcast::<DecodeError>() {
            Ok(own) => own,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => DecodeError::Truncated,
            Err(error) => DecodeError::Gzip(error),
        }
    }
}
