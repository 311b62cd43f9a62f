//! Decodes an untrusted pprof file within bounds: gzip or raw.
//!
//! It does not judge the content of a profile, only that it is complete and small enough.
//!
//! Invariant: memory stays below `limits.memory_bytes` plus a few records for any input, because
//! the file is decompressed and decoded as a stream and never held whole. The result has no invalid
//! id, string index or value.

use std::collections::HashMap;
use std::io::{self, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use prost::Message;

use crate::bounds::{MAX_FRAMES, MAX_LABELS, MAX_RECORD, MAX_STRING};
use crate::error::DecodeError;
use crate::lookup::UniqueIds;
use crate::proto::{Label, Line, Location, Profile, Sample};
use crate::records::Records;

/// The limits above which a file is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeLimits {
    /// The size of the stored file.
    pub compressed_bytes: usize,
    /// The size after decompression. Decompression stops here.
    pub decompressed_bytes: usize,
    /// The memory of the decoded profile. It bounds locations, functions, strings and all other
    /// repeated fields, and the samples if they are held.
    pub memory_bytes: usize,
    /// Samples of the profile.
    pub samples: usize,
    /// Frames of one sample, with inlined calls.
    pub depth: usize,
    /// Labels of one sample.
    pub labels: usize,
    /// Bytes of one string.
    pub string: usize,
}

/// Far more than a sampler stores.
impl Default for DecodeLimits {
    fn default() -> Self {
        DecodeLimits {
            compressed_bytes: 32 << 20,
            decompressed_bytes: 64 << 20,
            memory_bytes: 40 << 20,
            samples: 200_000,
            depth: MAX_FRAMES,
            labels: MAX_LABELS,
            string: MAX_STRING,
        }
    }
}

impl DecodeLimits {
    /// For a profile that this process has written itself, and whose samples it holds in memory.
    #[must_use]
    pub fn of_own() -> Self {
        DecodeLimits {
            memory_bytes: 256 << 20,
            ..DecodeLimits::default()
        }
    }
}

/// The whole profile, with its samples in memory.
///
/// # Errors
/// A [`DecodeError`] if the file is not complete, or above a limit.
pub fn decode(file: &[u8], limits: &DecodeLimits) -> Result<Profile, DecodeError> {
    let mut samples = Vec::new();
    let mut memory = 0usize;
    let mut profile = read(file, limits, &mut |sample: Sample| {
        memory = memory.saturating_add(
            size_of::<Sample>()
                + (sample.location_id.len() + sample.value.len()) * size_of::<u64>()
                + sample.label.len() * size_of::<Label>(),
        );
        samples.push(sample);
        if memory > limits.memory_bytes {
            Err(DecodeError::MemoryExceeded(limits.memory_bytes))
        } else {
            Ok(())
        }
    })?;
    let checks = Checks::of(&profile, limits)?;
    samples
        .iter()
        .try_for_each(|sample| checks.sample(&profile, sample))?;
    profile.sample = samples;
    Ok(profile)
}

/// Reads everything except the samples. It passes these to the caller one by one, and checks only
/// their size.
pub(crate) fn read(
    file: &[u8],
    limits: &DecodeLimits,
    take: &mut dyn FnMut(Sample) -> Result<(), DecodeError>,
) -> Result<Profile, DecodeError> {
    if file.len() > limits.compressed_bytes {
        return Err(DecodeError::CompressedTooLarge(limits.compressed_bytes));
    }
    if file.starts_with(&[0x1f, 0x8b]) {
        read_stream(MultiGzDecoder::new(file), limits, take)
    } else {
        read_stream(file, limits, take)
    }
}

fn read_stream(
    stream: impl Read,
    limits: &DecodeLimits,
    take: &mut dyn FnMut(Sample) -> Result<(), DecodeError>,
) -> Result<Profile, DecodeError> {
    let capped = Capped {
        stream,
        cap: limits.decompressed_bytes,
        count: 0,
    };
    let mut records = Records::new(BufReader::new(capped), MAX_RECORD);
    let mut profile = Profile::default();
    let (mut memory, mut samples) = (0usize, 0usize);
    while let Some(record) = records.next()? {
        profile.merge(record.bytes)?;
        memory = memory.saturating_add(added(&profile, record.field, record.bytes.len()));
        if memory > limits.memory_bytes {
            return Err(DecodeError::MemoryExceeded(limits.memory_bytes));
        }
        let string = (record.field == 6).then(|| profile.string_table.last());
        if string.flatten().is_some_and(|it| it.len() > limits.string) {
            return Err(DecodeError::StringTooLong(limits.string));
        }
        let Some(sample) = profile.sample.pop() else {
            continue;
        };
        samples += 1;
        if samples > limits.samples {
            return Err(DecodeError::TooManySamples(limits.samples));
        }
        take(small(sample, limits)?)?;
    }
    Ok(profile)
}

/// The memory of the record that was just merged.
fn added(profile: &Profile, field: u64, wire_bytes: usize) -> usize {
    match field {
        // A sample is passed to the caller.
        2 => 0,
        4 => profile.location.last().map_or(0, |location| {
            size_of::<Location>() + location.line.capacity() * size_of::<Line>()
        }),
        // An allocator takes about 32 bytes for the shortest string.
        6 => size_of::<String>() + 32 + wire_bytes,
        // The other records are flat. The largest row (a mapping) has 80 bytes. A packed comment
        // has 8 bytes for each of its encoded bytes.
        _ => 80 + 8 * wire_bytes,
    }
}

/// Refuses a sample that is too large. Frees unused capacity of the others.
fn small(mut sample: Sample, limits: &DecodeLimits) -> Result<Sample, DecodeError> {
    if sample.location_id.len() > limits.depth {
        return Err(DecodeError::TooDeep(limits.depth));
    }
    if sample.label.len() > limits.labels {
        return Err(DecodeError::TooManyLabels(limits.labels));
    }
    sample.location_id.shrink_to_fit();
    sample.value.shrink_to_fit();
    sample.label.shrink_to_fit();
    Ok(sample)
}

/// What a sample may refer to.
pub(crate) struct Checks {
    locations: UniqueIds,
    /// The further frames of a location with inlined calls.
    inlined: HashMap<u64, usize>,
    depth: usize,
}

impl Checks {
    /// Refuses a profile in which anything except a sample refers to something missing.
    pub fn of(profile: &Profile, limits: &DecodeLimits) -> Result<Self, DecodeError> {
        if profile.sample_type.is_empty() {
            return Err(DecodeError::NoSampleType);
        }
        if profile
            .string_table
            .first()
            .is_none_or(|first| !first.is_empty())
        {
            return Err(DecodeError::StringTable);
        }
        check_strings(profile)?;
        let mappings = UniqueIds::of("mapping", profile.mapping.iter().map(|mapping| mapping.id))?;
        let functions = UniqueIds::of(
            "function",
            profile.function.iter().map(|function| function.id),
        )?;
        let locations = UniqueIds::of(
            "location",
            profile.location.iter().map(|location| location.id),
        )?;
        for location in &profile.location {
            if location.mapping_id != 0 {
                mappings.check(location.mapping_id)?;
            }
            location
                .line
                .iter()
                .try_for_each(|line| functions.check(line.function_id))?;
        }
        let further = profile.location.iter().map(|location| {
            let further = location.line.len().saturating_sub(1);
            (location.id, further)
        });
        Ok(Checks {
            locations,
            inlined: further.filter(|(_, further)| *further > 0).collect(),
            depth: limits.depth,
        })
    }

    pub fn sample(&self, profile: &Profile, sample: &Sample) -> Result<(), DecodeError> {
        let expected = profile.sample_type.len();
        if sample.value.len() != expected {
            return Err(DecodeError::Values {
                expected,
                actual: sample.value.len(),
            });
        }
        sample
            .label
            .iter()
            .flat_map(|label| [label.key, label.str, label.num_unit])
            .try_for_each(|index| check_string(profile, index))?;
        let ids = &sample.location_id;
        ids.iter().try_for_each(|&id| self.locations.check(id))?;
        let further = ids.iter().filter_map(|id| self.inlined.get(id));
        if ids.len() + further.sum::<usize>() > self.depth {
            Err(DecodeError::TooDeep(self.depth))
        } else {
            Ok(())
        }
    }
}

fn check_strings(profile: &Profile) -> Result<(), DecodeError> {
    let value_types = profile.sample_type.iter().chain(&profile.period_type);
    value_types
        .flat_map(|kind| [kind.r#type, kind.unit])
        .chain(
            profile
                .mapping
                .iter()
                .flat_map(|mapping| [mapping.filename, mapping.build_id]),
        )
        .chain(
            profile
                .function
                .iter()
                .flat_map(|function| [function.name, function.system_name, function.filename]),
        )
        .chain(profile.comment.iter().copied())
        .chain([
            profile.drop_frames,
            profile.keep_frames,
            profile.default_sample_type,
            profile.doc_url,
        ])
        .try_for_each(|index| check_string(profile, index))
}

fn check_string(profile: &Profile, index: i64) -> Result<(), DecodeError> {
    match usize::try_from(index) {
        Ok(position) if position < profile.string_table.len() => Ok(()),
        _ => Err(DecodeError::Dangling {
            kind: "string",
            id: index.into(),
        }),
    }
}

/// A reader that fails above the cap, which stops a gzip bomb.
struct Capped<R> {
    stream: R,
    cap: usize,
    count: usize,
}

impl<R: Read> Read for Capped<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(buffer)?;
        self.count += read;
        if self.count > self.cap {
            return Err(io::Error::other(DecodeError::DecompressedTooLarge(
                self.cap,
            )));
        }
        Ok(read)
    }
}
