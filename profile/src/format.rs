//! The formats in which a profile can be written, and the format for a file's name.
//!
//! It writes no file.
//!
//! Invariant: a sample type has the same total in all formats that contain it.

use crate::callgrind::callgrind;
use crate::encode::encode_gzip;
use crate::firefox::firefox;
use crate::folded::folded;
use crate::page::page;
use crate::proto::Profile;
use crate::speedscope::speedscope;
use crate::stacks::{Stacks, View, ViewError};
use crate::svg::flame_graph;
use crate::timeline::Timeline;

/// The formats of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// All sample types, for `go tool pprof`.
    Pprof,
    /// `root;caller;leaf value`: one sample type, names only.
    Folded,
    /// All sample types.
    Speedscope,
    /// All sample types, by line.
    Callgrind,
    /// One sample type and CPU time, by worker, with requests as markers.
    Firefox,
    /// A picture of one sample type.
    Svg,
    /// The page with all sample types.
    Html,
}

/// The ends of file names and their formats. Longer ends come first.
const EXTENSIONS: [(&str, Format); 14] = [
    (".speedscope.json", Format::Speedscope),
    (".pb.gz", Format::Pprof),
    (".pprof.gz", Format::Pprof),
    (".pprof", Format::Pprof),
    (".pb", Format::Pprof),
    (".folded", Format::Folded),
    (".collapsed", Format::Folded),
    (".txt", Format::Folded),
    (".json.gz", Format::Firefox),
    (".json", Format::Speedscope),
    (".callgrind", Format::Callgrind),
    (".svg", Format::Svg),
    (".html", Format::Html),
    (".htm", Format::Html),
];

/// The names of the formats.
const NAMES: [(&str, Format); 7] = [
    ("pprof", Format::Pprof),
    ("folded", Format::Folded),
    ("speedscope", Format::Speedscope),
    ("callgrind", Format::Callgrind),
    ("firefox", Format::Firefox),
    ("svg", Format::Svg),
    ("html", Format::Html),
];

impl Format {
    /// The name of the format.
    pub fn name(self) -> &'static str {
        let named = NAMES.iter().find(|(_, format)| *format == self);
        named.map_or("", |(name, _)| name)
    }

    /// The format with this name.
    pub fn named(name: &str) -> Option<Self> {
        let named = NAMES.iter().find(|(other, _)| *other == name);
        named.map(|(_, format)| *format)
    }

    /// All names, as text.
    pub fn names() -> String {
        NAMES.map(|(name, _)| name).join(", ")
    }

    /// The format for a file of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let base = name.rsplit('/').next().unwrap_or(&name);
        if base.starts_with("callgrind.out") || base.starts_with("cachegrind.out") {
            return Some(Format::Callgrind);
        }
        EXTENSIONS
            .into_iter()
            .find(|(end, _)| base.ends_with(end))
            .map(|(_, format)| format)
    }

    /// The known ends of file names, as text.
    pub fn extensions() -> String {
        let ends: Vec<_> = EXTENSIONS.iter().map(|(end, _)| *end).collect();
        format!(
            "{} or a name that begins with callgrind.out",
            ends.join(", ")
        )
    }

    /// Writes the samples in the view in this format. Only the page and the Firefox
    /// Profiler show a timeline.
    pub fn write(
        self,
        profile: &Profile,
        view: &View,
        title: &str,
        timeline: Option<&Timeline>,
    ) -> Result<Vec<u8>, ViewError> {
        let stacks = || Stacks::of(profile, view);
        Ok(match self {
            Format::Pprof => encode_gzip(&view.kept(profile)),
            Format::Folded => folded(&stacks()?).into_bytes(),
            Format::Speedscope => speedscope(&stacks()?, title).into_bytes(),
            Format::Callgrind => callgrind(&stacks()?).into_bytes(),
            Format::Firefox => firefox(profile, view, title, timeline)?,
            Format::Svg => flame_graph(&stacks()?, title).into_bytes(),
            Format::Html => page(profile, view, title, timeline)?.into_bytes(),
        })
    }
}
