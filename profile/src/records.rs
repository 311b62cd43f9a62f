//! Reads the top-level fields of a protobuf message from a stream, one at a time.
//!
//! It knows no message and does not parse a field: the caller gives each record to prost.
//!
//! Invariant: it never holds more than `max_record` bytes, whatever lengths the stream claims.

use std::io::{ErrorKind, Read};

use crate::error::DecodeError;

/// A field with its tag, as in the stream. It is a message with one field.
pub(crate) struct ProtoRecord<'a> {
    pub field: u64,
    pub bytes: &'a [u8],
}

pub(crate) struct Records<R> {
    stream: R,
    buffer: Vec<u8>,
    max_record: usize,
}

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH_DELIMITED: u64 = 2;
const FIXED32: u64 = 5;

impl<R: Read> Records<R> {
    pub fn new(stream: R, max_record: usize) -> Self {
        Records {
            stream,
            buffer: Vec::new(),
            max_record,
        }
    }

    /// The next record; `None` if the stream ends between two records.
    pub fn next(&mut self) -> Result<Option<ProtoRecord<'_>>, DecodeError> {
        self.buffer.clear();
        let Some(tag) = self.varint()? else {
            return Ok(None);
        };
        match tag & 7 {
            VARINT => drop(self.varint()?.ok_or(DecodeError::Truncated)?),
            FIXED64 => self.payload(8)?,
            FIXED32 => self.payload(4)?,
            LENGTH_DELIMITED => {
                let length = self.varint()?.ok_or(DecodeError::Truncated)?;
                self.payload(length)?;
            }
            wire_type => return Err(DecodeError::WireType(wire_type)),
        }
        Ok(Some(ProtoRecord {
            field: tag >> 3,
            bytes: &self.buffer,
        }))
    }

    /// Reads a varint into the buffer; `None` if the stream ends before its first byte.
    fn varint(&mut self) -> Result<Option<u64>, DecodeError> {
        let mut value = 0u64;
        for position in 0..10u32 {
            let mut byte = [0u8];
            match self.stream.read_exact(&mut byte) {
                Ok(()) => {}
                Err(end) if end.kind() == ErrorKind::UnexpectedEof && position == 0 => {
                    return Ok(None);
                }
                Err(error) => return Err(DecodeError::of_read(error)),
            }
            self.buffer.push(byte[0]);
            value |= u64::from(byte[0] & 0x7f) << (7 * position);
            if byte[0] < 0x80 {
                return Ok(Some(value));
            }
        }
        Err(DecodeError::Varint)
    }

    fn payload(&mut self, length: u64) -> Result<(), DecodeError> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > self.max_record {
            return Err(DecodeError::RecordTooLarge(self.max_record));
        }
        let head = self.buffer.len();
        self.buffer.resize(head + length, 0);
        self.stream
            .read_exact(&mut self.buffer[head..])
            .map_err(DecodeError::of_read)
    }
}
