//! The messages of pprof's `profile.proto` (github.com/google/pprof, `proto/profile.proto`),
//! written by hand, so that no `protoc` is needed. Field names, numbers and types are those of the
//! file, which documents their meaning.
//!
//! It checks nothing: [`crate::decode`] does.
//!
//! Invariant: decoding drops fields that are not here. The schema has no others.

/// A whole profile.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Profile {
    /// The type of each value in a sample, in order.
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<ValueType>,
    /// The samples.
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<Sample>,
    /// The files that contain the locations. The first is the main program.
    #[prost(message, repeated, tag = "3")]
    pub mapping: Vec<Mapping>,
    /// The locations for the ids in a sample's stack.
    #[prost(message, repeated, tag = "4")]
    pub location: Vec<Location>,
    /// The functions for the ids in a location's lines.
    #[prost(message, repeated, tag = "5")]
    pub function: Vec<Function>,
    /// All strings. Other fields are indexes into this list, and 0 is the empty string.
    #[prost(string, repeated, tag = "6")]
    pub string_table: Vec<String>,
    /// A regular expression for frames that readers drop, together with their callees.
    #[prost(int64, tag = "7")]
    pub drop_frames: i64,
    /// An exception from `drop_frames`.
    #[prost(int64, tag = "8")]
    pub keep_frames: i64,
    /// Unix time of the beginning.
    #[prost(int64, tag = "9")]
    pub time_nanos: i64,
    /// How long was sampled.
    #[prost(int64, tag = "10")]
    pub duration_nanos: i64,
    /// The type of `period`.
    #[prost(message, optional, tag = "11")]
    pub period_type: Option<ValueType>,
    /// The interval between two samples.
    #[prost(int64, tag = "12")]
    pub period: i64,
    /// Free text; the first of phpprof's is the receipt (`contract/README.md`).
    #[prost(int64, repeated, tag = "13")]
    pub comment: Vec<i64>,
    /// The name of the type that readers show first.
    #[prost(int64, tag = "14")]
    pub default_sample_type: i64,
    /// A page that describes the profile.
    #[prost(int64, tag = "15")]
    pub doc_url: i64,
}

/// The type and unit of a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct ValueType {
    /// Index of a text, for instance `wall`.
    #[prost(int64, tag = "1")]
    pub r#type: i64,
    /// Index of a text, for instance `nanoseconds`.
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

/// The values of one stack with one set of labels.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Sample {
    /// The stack, leaf first.
    #[prost(uint64, repeated, tag = "1")]
    pub location_id: Vec<u64>,
    /// One for each `Profile::sample_type`.
    #[prost(int64, repeated, tag = "2")]
    pub value: Vec<i64>,
    /// The labels of these samples.
    #[prost(message, repeated, tag = "3")]
    pub label: Vec<Label>,
}

/// A key with a text or a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Message)]
pub struct Label {
    /// Index of a text.
    #[prost(int64, tag = "1")]
    pub key: i64,
    /// Index of a text; 0 where the label is a number.
    #[prost(int64, tag = "2")]
    pub str: i64,
    /// 0 where the label is a text.
    #[prost(int64, tag = "3")]
    pub num: i64,
    /// Index of a text; 0 where there is no unit.
    #[prost(int64, tag = "4")]
    pub num_unit: i64,
}

/// A file that is mapped into the program's memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct Mapping {
    /// Never 0.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Its first address.
    #[prost(uint64, tag = "2")]
    pub memory_start: u64,
    /// The first address after it.
    #[prost(uint64, tag = "3")]
    pub memory_limit: u64,
    /// The offset of its first address in the file.
    #[prost(uint64, tag = "4")]
    pub file_offset: u64,
    /// Index of its path.
    #[prost(int64, tag = "5")]
    pub filename: i64,
    /// Index of a text that names this build of the file.
    #[prost(int64, tag = "6")]
    pub build_id: i64,
    /// Its locations have names, so readers need not look up symbols.
    #[prost(bool, tag = "7")]
    pub has_functions: bool,
    /// Its locations have files.
    #[prost(bool, tag = "8")]
    pub has_filenames: bool,
    /// Its locations have lines.
    #[prost(bool, tag = "9")]
    pub has_line_numbers: bool,
    /// Its locations include inlined calls.
    #[prost(bool, tag = "10")]
    pub has_inline_frames: bool,
}

/// A place in the program.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct Location {
    /// Never 0.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The mapping that it lies in; 0 where it is not known.
    #[prost(uint64, tag = "2")]
    pub mapping_id: u64,
    /// The instruction's address; 0 for PHP, which has none.
    #[prost(uint64, tag = "3")]
    pub address: u64,
    /// More than one if calls were inlined, the innermost first.
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<Line>,
    /// Several addresses of the same code share this location.
    #[prost(bool, tag = "5")]
    pub is_folded: bool,
}

/// A line of a function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct Line {
    /// The function.
    #[prost(uint64, tag = "1")]
    pub function_id: u64,
    /// The line in its file.
    #[prost(int64, tag = "2")]
    pub line: i64,
    /// The column in that line; 0 where it is not known.
    #[prost(int64, tag = "3")]
    pub column: i64,
}

/// A function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct Function {
    /// Never 0.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Index of the name for people.
    #[prost(int64, tag = "2")]
    pub name: i64,
    /// Index of the system's name.
    #[prost(int64, tag = "3")]
    pub system_name: i64,
    /// Index of the path of its file.
    #[prost(int64, tag = "4")]
    pub filename: i64,
    /// The line of its declaration.
    #[prost(int64, tag = "5")]
    pub start_line: i64,
}

impl Profile {
    /// The string at an index; empty if the index does not exist.
    pub fn string(&self, index: i64) -> &str {
        usize::try_from(index)
            .ok()
            .and_then(|index| self.string_table.get(index))
            .map_or("", String::as_str)
    }

    /// The free-text comments, in their order.
    pub fn comments(&self) -> impl Iterator<Item = &str> {
        self.comment.iter().map(|&index| self.string(index))
    }

    /// Type and unit of each value of a sample, in their order.
    pub fn sample_types(&self) -> impl Iterator<Item = (&str, &str)> {
        self.sample_type
            .iter()
            .map(|kind| (self.string(kind.r#type), self.string(kind.unit)))
    }

    /// The index of this sample type in a sample's values.
    pub fn value_index(&self, sample_type: &str) -> Option<usize> {
        self.sample_types()
            .position(|(name, _)| name == sample_type)
    }
}
