//! pprof profiles: build, decode within bounds, merge, encode, summarise, compare, convert and draw
//! them, and find problems in them.
//!
//! It does not sample, store or symbolise anything, and knows nothing of Kubernetes. Only
//! [`waiting`] and [`findings`] know PHP's functions.
//!
//! Invariant: a [`Profile`] from [`decode`], [`Builder`] or [`Merger`] is complete: every id and
//! every string index in it exists, so readers need no further checks.

#![warn(clippy::match_bool)]

pub mod alike;
mod bounds;
mod builder;
mod callgrind;
pub mod calls;
pub mod change;
mod colour;
mod comparable;
mod decode;
mod decode_stacks;
pub mod diff;
pub mod dump;
mod embed;
mod encode;
mod error;
pub mod findings;
mod firefox;
mod folded;
mod format;
pub mod in_use;
pub mod labels;
#[cfg(feature = "live")]
pub mod live;
mod lookup;
mod merge;
mod noise;
mod packed;
mod packer;
pub mod page;
mod pieces;
pub mod proto;
mod records;
mod release;
pub mod room;
mod rows;
mod same_names;
mod share;
mod source;
mod speedscope;
mod stacks;
pub mod start;
pub mod svg;
mod tables;
mod text;
pub mod timeline;
pub mod top;
mod top_levels;
mod tree;
pub mod unnamed;
pub mod waiting;
mod writer;

pub use bounds::{MAX_FRAMES, MAX_FRAMES_OF_ALL, MAX_LABELS, MAX_STRING, TRUNCATED, depth_within};
pub use builder::{Builder, FrameRef, HEAP, IN_USE, MappingInfo, SampleTag, Settings};
pub use comparable::{ComparedSide, ComparedSides};
pub use decode::{DecodeLimits, decode};
pub use decode_stacks::decode_stacks;
pub use diff::{Diff, FunctionChange, diff};
pub use embed::LARGEST_TIMELINE;
pub use encode::encode_gzip;
pub use error::DecodeError;
pub use findings::{Finding, findings};
pub use format::Format;
pub use lookup::{Lookup, SampleFrame};
pub use merge::{MergeError, MergeLimits, Merged, Merger, OTHER, TrustedMetadata, merge};
pub use noise::NoiseScale;
pub use packed::Packed;
pub use pieces::{PieceBounds, SampleType, pieces};
pub use proto::Profile;
pub use release::{Prefix, PrefixError};
pub use same_names::{Renamed, name_alike, place_name};
pub use source::SampleSource;
pub use stacks::{FunctionRef, ONLY, StackStep, Stacks, View, ViewError};
pub use text::{Amount, marked};
pub use top::{TopRow, top, total};
pub use top_levels::{moved_name, plain as plain_name};
pub use writer::Writer;
