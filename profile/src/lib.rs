//! pprof profiles: build, decode within bounds, merge, encode, summarise.
//!
//! It does not sample, store or symbolise anything, and knows nothing of PHP or Kubernetes.
//!
//! Invariant: a [`Profile`] that [`decode`], [`Builder`] or [`Merger`] hands out is whole: every id and
//! every string index in it exists, so whoever reads it further needs no checks of their own.

mod builder;
mod decode;
mod encode;
mod lookup;
mod merge;
pub mod proto;
mod records;
mod tables;
pub mod top;

pub use builder::{Builder, FrameRef, Label, MappingInfo, Settings};
pub use decode::{DecodeError, Limits, decode};
pub use encode::encode_gzip;
pub use lookup::{Frame, Lookup};
pub use merge::{MergeError, Merger, merge};
pub use proto::Profile;
pub use top::{Row, top, total};
