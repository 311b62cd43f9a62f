//! The formats that a profile can be written in, and which of them a file's name means.
//!
//! It writes no file.
//!
//! Invariant: for each sample type that a format holds, its values add up to the same total in all of them.

use crate::callgrind::callgrind;
use crate::encode::encode_gzip;
use crate::folded::folded;
use crate::page::page;
use crate::proto::Profile;
use crate::speedscope::speedscope;
use crate::stacks::{Stacks, View, ViewError};
use crate::svg::flame_graph;
use crate::timeline::Timeline;

/// What a profile can be written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// All sample types, as `go tool pprof` reads it.
    Pprof,
    /// `root;caller;leaf value`: one sample type, names only.
    Folded,
    /// All sample types.
    Speedscope,
    /// All sample types, by line.
    Callgrind,
    /// A picture of one sample type.
    Svg,
    /// The page with all sample types.
    Html,
}

/// What a file's name ends with, and what it means; the longer ends come first.
const EXTENSIONS: [(&str, Format); 13] = [
    (".speedscope.json", Format::Speedscope),
    (".pb.gz", Format::Pprof),
    (".pprof.gz", Format::Pprof),
    (".pprof", Format::Pprof),
    (".pb", Format::Pprof),
    (".folded", Format::Folded),
    (".collapsed", Format::Folded),
    (".txt", Format::Folded),
    (".json", Format::Speedscope),
    (".callgrind", Format::Callgrind),
    (".svg", Format::Svg),
    (".html", Format::Html),
    (".htm", Format::Html),
];

/// What each is called where a name is asked for.
const NAMES: [(&str, Format); 6] = [
    ("pprof", Format::Pprof),
    ("folded", Format::Folded),
    ("speedscope", Format::Speedscope),
    ("callgrind", Format::Callgrind),
    ("svg", Format::Svg),
    ("html", Format::Html),
];

impl Format {
    /// What it is called.
    pub fn name(self) -> &'static str {
        let named = NAMES.iter().find(|(_, format)| *format == self);
        named.map_or("", |(name, _)| name)
    }

    /// The format that is called so.
    pub fn named(name: &str) -> Option<Self> {
        let named = NAMES.iter().find(|(other, _)| *other == name);
        named.map(|(_, format)| *format)
    }

    /// All names, for people.
    pub fn names() -> String {
        NAMES.map(|(name, _)| name).join(", ")
    }

    /// The format that a file of this name should have.
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

    /// The ends of names that are known, for people.
    pub fn extensions() -> String {
        let ends: Vec<_> = EXTENSIONS.iter().map(|(end, _)| *end).collect();
        format!(
            "{} or a name that begins with callgrind.out",
            ends.join(", ")
        )
    }

    /// The profile in this format, with the samples that the view lets through. The page alone shows a timeline.
    pub fn write(
        self,
        profile: &Profile,
        view: &View,
        title: &str,
        timeline: Option<&Timeline>,
    ) -> Result<Vec<u8>, ViewError> {
        let stacks = || Stacks::of(profile, view);
        Ok(match self {
            Format::Pprof => encode_gzip(&view.filtered(profile)),
            Format::Folded => folded(&stacks()?).into_bytes(),
            Format::Speedscope => speedscope(&stacks()?, title).into_bytes(),
            Format::Callgrind => callgrind(&stacks()?).into_bytes(),
            Format::Svg => flame_graph(&stacks()?, title).into_bytes(),
            Format::Html => page(profile, view, title, timeline)?.into_bytes(),
        })
    }
}
