//! A profile out of frames: what the sampler hands over at the end of a run.
//!
//! It does not resolve names and does not look at the values.
//!
//! Invariant: any input gives a whole profile. Too many values are cut, missing ones are 0, sums stop at the ends of `i64`.

use crate::proto::{self, Function, Line, Location, Mapping, Profile, ValueType};
use crate::tables::Tables;

/// One frame of a stack. `start_line` is the line of the function's declaration and part of its identity; `line` is where it is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameRef<'a> {
    /// As PHP shows it: `function`, `Class::method`, `{main}`, `{closure:file:line}`, or a phase such as `[gc]`.
    pub name: &'a str,
    /// The path as the engine has it; empty for phases.
    pub file: &'a str,
    /// 0 where it is not known.
    pub start_line: i64,
    /// 0 where it is not known.
    pub line: i64,
}

/// A label of a sample: text, or a number with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label<'a> {
    /// key, value
    Str(&'a str, &'a str),
    /// key, value, unit (may be empty)
    Num(&'a str, i64, &'a str),
}

/// The one mapping that all locations point to; it tells readers that names, files and lines are all there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MappingInfo {
    /// The path of the program that was sampled.
    pub filename: String,
    /// In hexadecimal digits, as its ELF notes have it; empty where it has none.
    pub build_id: String,
}

/// What a profile says of itself. The default is what phpprof writes: `contract/README.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// type, unit
    pub sample_types: Vec<(&'static str, &'static str)>,
    /// What readers show first: the name of one of the sample types.
    pub default_sample_type: &'static str,
    /// type, unit
    pub period_type: (&'static str, &'static str),
    /// Between two samples of a worker, in the unit of `period_type`.
    pub period: i64,
    /// Unix time of the first sample.
    pub time_nanos: i64,
    /// From the first sample to the end of the run.
    pub duration_nanos: i64,
    /// What was sampled.
    pub mapping: MappingInfo,
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
        }
    }
}

/// By how many bytes heaps became larger than before in their request, and what they still hold of it: the one is never negative, the other may
/// be.
pub const HEAP: [(&str, &str); 2] = [("heap_growth", "bytes"), ("heap_change", "bytes")];

impl Settings {
    /// The same with [`HEAP`], behind the samples: the default stays the last one.
    #[must_use]
    pub fn with_heap(mut self) -> Self {
        let at = self.sample_types.len().min(1);
        self.sample_types.splice(at..at, HEAP);
        self
    }
}

/// What such a profile says of itself, without its mapping.
pub(crate) fn head(settings: &Settings, tables: &mut Tables) -> Profile {
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

/// A profile that grows sample by sample; samples with the same stack and labels become one.
#[derive(Debug)]
pub struct Builder {
    profile: Profile,
    tables: Tables,
    mapping_id: u64,
}

impl Builder {
    /// An empty profile.
    pub fn new(settings: Settings) -> Self {
        let mut tables = Tables::new();
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
        }
    }

    /// Adds the values, in the order of the sample types, to the sample of this stack (leaf first) and these labels.
    pub fn add(&mut self, stack: &[FrameRef<'_>], values: &[i64], labels: &[Label<'_>]) {
        let sample = self.sample(stack, values, labels);
        let values = sample.value.into_iter();
        self.tables.sample(sample.location_id, sample.label, values);
    }

    /// Such a sample, whose labels are in order, without adding it.
    pub(crate) fn sample(
        &mut self,
        stack: &[FrameRef<'_>],
        values: &[i64],
        labels: &[Label<'_>],
    ) -> proto::Sample {
        let mut label: Vec<_> = labels.iter().map(|label| self.label(label)).collect();
        label.sort_unstable();
        let wanted = 0..self.profile.sample_type.len();
        proto::Sample {
            location_id: stack.iter().map(|frame| self.location(frame)).collect(),
            value: wanted
                .map(|index| values.get(index).copied().unwrap_or(0))
                .collect(),
            label,
        }
    }

    /// Adds a comment behind those that there are.
    pub fn comment(&mut self, text: impl AsRef<str>) {
        let index = self.tables.string(text.as_ref());
        self.profile.comment.push(index);
    }

    /// The profile, whose samples are in the order of their locations.
    pub fn finish(mut self) -> Profile {
        self.tables.finish_into(&mut self.profile);
        self.profile
    }

    fn location(&mut self, frame: &FrameRef<'_>) -> u64 {
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

    fn label(&mut self, label: &Label<'_>) -> proto::Label {
        match *label {
            Label::Str(key, value) => proto::Label {
                key: self.tables.string(key),
                str: self.tables.string(value),
                ..proto::Label::default()
            },
            Label::Num(key, num, unit) => proto::Label {
                key: self.tables.string(key),
                num,
                num_unit: self.tables.string(unit),
                ..proto::Label::default()
            },
        }
    }
}
