//! pprof profiles: build, decode within bounds, merge, encode, summarise, compare, convert, draw, and say what is to be said of them.
//!
//! It does not sample, store or symbolise anything, and knows nothing of Kubernetes; PHP's names are in [`waiting`] and [`findings`] alone.
//!
//! Invariant: a [`Profile`] that [`decode`], [`Builder`] or [`Merger`] hands out is whole: every id and
//! every string index in it exists, so whoever reads it further needs no checks of their own.

mod builder;
mod callgrind;
mod colour;
mod decode;
pub mod diff;
pub mod dump;
mod embed;
mod encode;
pub mod findings;
mod folded;
mod format;
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
mod rows;
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
mod tree;
pub mod waiting;
mod writer;

pub use builder::{Builder, FrameRef, HEAP, Label, MappingInfo, Settings};
pub use decode::{DecodeError, Limits, decode};
pub use diff::{Change, Diff, diff};
pub use embed::LARGEST_TIMELINE;
pub use encode::encode_gzip;
pub use findings::{Finding, findings};
pub use format::Format;
pub use lookup::{Frame, Lookup};
pub use merge::{MergeError, MergeLimits, Merged, Merger, OTHER, TrustedMetadata, merge};
pub use packed::Packed;
pub use pieces::{PieceBounds, SampleType, pieces};
pub use proto::Profile;
pub use source::Source;
pub use stacks::{Function, Stacks, Step, View, ViewError};
pub use text::Amount;
pub use top::{Row, top, total};
pub use writer::Writer;
