//! Builds a profile from frames: the sampler's result at the end of a run.
//!
//! It does not resolve names and does not interpret values.
//!
//! Invariant: any input gives a complete profile within [`crate::bounds`]. Extra values and labels
//! are cut, stacks and names are cut where they say so, missing values are 0, and sums saturate at
//! the limits of `i64`.

use crate::bounds::{self, MAX_FRAMES, MAX_LABELS, TRUNCATED};
use crate::proto::{self, Function, Line, Location, Mapping, Profile, ValueType};
use crate::tables::ProfileTables;

/// One frame of a stack. `start_line` is the line of the function's declaration and part of its
/// identity. `line` is the line being executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameRef<'a> {
    /// In PHP's own spelling: `function`, `Class::method`, `{main}`, `{closure:f():12}`, or a phase
    /// such as `[gc]`. A profile adds the file to the name of a main script.
    pub name: &'a str,
    /// The path in the engine's spelling; empty for phases.
    pub file: &'a str,
    /// 0 if it is not known.
    pub start_line: i64,
    /// 0 if it is not known.
    pub line: i64,
}

/// A label of a sample: text, or a number with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleTag<'a> {
    /// key, value
    Str(&'a str, &'a str),
    /// key, value, unit (may be empty)
    Num(&'a str, i64, &'a str),
}

/// The one mapping of all locations. It tells readers that names, files and lines are complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MappingInfo {
    /// The path of the program that was sampled.
    pub filename: String,
    /// In hexadecimal digits, from its ELF notes; empty if it has none.
    pub build_id: String,
}

/// A profile's own metadata. The default is what phpprof writes: `contract/README.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// type, unit
    pub sample_types: Vec<(&'static str, &'static str)>,
    /// The name of the sample type that readers show first.
    pub default_sample_type: &'static str,
    /// type, unit
    pub period_type: (&'static str, &'static str),
    /// The time between two samples of a worker, in the unit of `period_type`.
    pub period: i64,
    /// Unix time of the first sample.
    pub time_nanos: i64,
    /// From the first sample to the end of the run.
    pub duration_nanos: i64,
    /// The program that was sampled.
    pub mapping: MappingInfo,
    /// Document roots of the program, if they are known: the names of main scripts and included
    /// files are relative to them.
    pub document_roots: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            sample_types: vec![
                ("samples", "count"),
                ("cpu", "nanoseconds"),
                ("wall", "nanoseconds"),
            ],
            default_sample_type: "wall",
            period_type: ("wall", "nanoseconds"),
            period: 0,
            time_nanos: 0,
            duration_nanos: 0,
            mapping: MappingInfo::default(),
            document_roots: Vec::new(),
        }
    }
}

/// By how many bytes heaps grew in their requests, and how many of these bytes they still hold. The
/// first is never negative, the second may be.
pub const HEAP: [(&str, &str); 2] = [("heap_growth", "bytes"), ("heap_change", "bytes")];

/// How many fibers visits have seen suspended, and for how long they were: neither is of a sample.
pub const FIBERS: [(&str, &str); 2] = [("fibers", "count"), ("suspended", "nanoseconds")];

/// The sample types of what is in the heaps of workers: how many objects, arrays and strings, and
/// the bytes of their own blocks. They are Go's names, which every reader of pprof knows. Such a
/// profile has no other types, and its stacks are the paths that hold them.
pub const IN_USE: [(&str, &str); 2] = [("inuse_objects", "count"), ("inuse_space", "bytes")];

impl Settings {
    /// The same with [`FIBERS`] before CPU time. The default stays the last one.
    #[must_use]
    pub fn with_fibers(mut self) -> Self {
        let at = self.sample_types.len().saturating_sub(2);
        self.sample_types.splice(at..at, FIBERS);
        self
    }

    /// Those of a profile with [`IN_USE`]. Nothing was sampled, so the period is one byte.
    #[must_use]
    pub fn in_use() -> Self {
        let [_, space] = IN_USE;
        Settings {
            sample_types: IN_USE.to_vec(),
            default_sample_type: space.0,
            period_type: ("space", "bytes"),
            period: 1,
            ..Settings::default()
        }
    }

    /// The same with [`HEAP`] after the samples. The default stays the last one.
    #[must_use]
    pub fn with_heap(mut self) -> Self {
        let at = self.sample_types.len().min(1);
        self.sample_types.splice(at..at, HEAP);
        self
    }
}

/// The metadata of a profile with these settings, without its mapping.
pub(crate) fn head(settings: &Settings, tables: &mut ProfileTables) -> Profile {
    for root in &settings.document_roots {
        tables.roots.add(root);
    }
    let mut value_type = |(name, unit): (&str, &str)| ValueType {
        r#type: tables.string(name),
        unit: tables.string(unit),
    };
    let types = settings.sample_types.iter().copied();
    Profile {
        sample_type: types.map(&mut value_type).collect(),
        period_type: Some(value_type(settings.period_type)),
        period: settings.period,
        time_nanos: settings.time_nanos,
        duration_nanos: settings.duration_nanos,
        default_sample_type: tables.string(settings.default_sample_type),
        ..Profile::default()
    }
}

/// A profile that grows sample by sample. Samples with the same stack and labels are added up.
#[derive(Debug)]
pub struct Builder {
    profile: Profile,
    tables: ProfileTables,
    mapping_id: u64,
    /// The most frames of a stack.
    pub(crate) depth: usize,
}

impl Builder {
    /// An empty profile.
    pub fn new(settings: Settings) -> Self {
        let mut tables = ProfileTables::new();
        let profile = head(&settings, &mut tables);
        let mapping = Mapping {
            filename: tables.string(&settings.mapping.filename),
            build_id: tables.string(&settings.mapping.build_id),
            has_functions: true,
            has_filenames: true,
            has_line_numbers: true,
            ..Mapping::default()
        };
        Builder {
            profile,
            mapping_id: tables.mapping(mapping),
            tables,
            depth: MAX_FRAMES,
        }
    }

    /// Adds the values, in the order of the sample types, to the sample of this stack (leaf first)
    /// and these labels.
    pub fn add(&mut self, stack: &[FrameRef<'_>], values: &[i64], labels: &[SampleTag<'_>]) {
        let sample = self.sample(stack, values, labels);
        let values = sample.value.into_iter();
        self.tables.sample(sample.location_id, sample.label, values);
    }

    /// A sample with its labels in order. It is not added to the profile.
    pub(crate) fn sample(
        &mut self,
        stack: &[FrameRef<'_>],
        values: &[i64],
        labels: &[SampleTag<'_>],
    ) -> proto::Sample {
        let labels = labels.iter().take(MAX_LABELS);
        let mut label: Vec<_> = labels.map(|label| self.label(label)).collect();
        label.sort_unstable();
        let wanted = 0..self.profile.sample_type.len();
        proto::Sample {
            location_id: self.stack(stack),
            value: wanted
                .map(|index| values.get(index).copied().unwrap_or(0))
                .collect(),
            label,
        }
    }

    /// Adds a comment after the existing ones.
    pub fn comment(&mut self, text: impl AsRef<str>) {
        let index = self.tables.string(text.as_ref());
        self.profile.comment.push(index);
    }

    /// The profile, with its samples in the order of their locations.
    pub fn finish(mut self) -> Profile {
        self.tables.finish_into(&mut self.profile);
        self.profile
    }

    /// The stack's locations. What is too much is left out in its middle.
    fn stack(&mut self, stack: &[FrameRef<'_>]) -> Vec<u64> {
        let most = self.depth.min(MAX_FRAMES);
        let mut all = |frames: &[FrameRef<'_>]| -> Vec<u64> {
            frames.iter().map(|frame| self.location(frame)).collect()
        };
        let Some((leaf, root)) = bounds::ends(stack.len(), most) else {
            return all(stack);
        };
        let (above, rest) = stack.split_at(leaf);
        let (_, below) = rest.split_at(rest.len() - root);
        let mark = FrameRef {
            name: TRUNCATED,
            ..FrameRef::default()
        };
        [all(above), all(&[mark]), all(below)].concat()
    }

    fn location(&mut self, frame: &FrameRef<'_>) -> u64 {
        self.tables.roots.add_of(frame.name, frame.file);
        let name = self.tables.string(frame.name);
        let filename = self.tables.string(frame.file);
        let function_id = self.tables.function(Function {
            name,
            system_name: name,
            filename,
            start_line: frame.start_line,
            ..Function::default()
        });
        self.tables.location(Location {
            mapping_id: self.mapping_id,
            line: vec![Line {
                function_id,
                line: frame.line,
                column: 0,
            }],
            ..Location::default()
        })
    }

    fn label(&mut self, label: &SampleTag<'_>) -> proto::Label {
        match *label {
            SampleTag::Str(key, value) => proto::Label {
                key: self.tables.string(key),
                str: self.tables.string(value),
                ..proto::Label::default()
            },
            SampleTag::Num(key, num, unit) => proto::Label {
                key: self.tables.string(key),
                num,
                num_unit: self.tables.string(unit),
                ..proto::Label::default()
            },
        }
    }
}
