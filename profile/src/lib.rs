//! pprof profiles: build, decode within bounds, merge, encode, summarise, compare, convert, draw.
//!
//! It does not sample, store or symbolise anything, and knows nothing of PHP or Kubernetes.
//!
//! Invariant: a [`Profile`] that [`decode`], [`Builder`] or [`Merger`] hands out is whole: every id and
//! every string index in it exists, so whoever reads it further needs no checks of their own.

mod builder;
mod callgrind;
mod colour;
mod decode;
pub mod diff;
mod encode;
mod folded;
mod format;
mod lookup;
mod merge;
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
pub mod svg;
mod tables;
mod text;
pub mod top;
mod tree;
mod writer;

pub use builder::{Builder, FrameRef, Label, MappingInfo, Settings};
pub use decode::{DecodeError, Limits, decode};
pub use diff::{Change, Diff, diff};
pub use encode::encode_gzip;
pub use format::Format;
pub use lookup::{Frame, Lookup};
pub use merge::{Known, MergeError, Merged, Merger, OTHER, Room, merge};
pub use packed::Packed;
pub use pieces::{PieceBounds, SampleType, pieces};
pub use proto::Profile;
pub use source::Source;
pub use stacks::{Function, Stacks, Step, View, ViewError};
pub use text::Amount;
pub use top::{Row, top, total};
pub use writer::Writer;
