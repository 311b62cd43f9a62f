//! The tables that all profiles of an OTLP message share.
//!
//! Invariant: each table begins with its zero value, so index 0 means that something is not known,
//! and no other value occurs twice (profiles.proto, `ProfilesDictionary`).

use std::collections::HashMap;

use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::profiles::v1development::{
    Function, KeyValueAndUnit, Line, Link, Location, Mapping, ProfilesDictionary, Stack,
};

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OtlpValue {
    Text(String),
    Number(i64),
}

impl From<OtlpValue> for AnyValue {
    fn from(value: OtlpValue) -> Self {
        let value = match value {
            OtlpValue::Text(text) => Value::StringValue(text),
            OtlpValue::Number(number) => Value::IntValue(number),
        };
        AnyValue { value: Some(value) }
    }
}

/// The dictionary, and where each value is in it.
pub struct DictionaryTables {
    dictionary: ProfilesDictionary,
    strings: HashMap<String, i32>,
    functions: HashMap<Function, i32>,
    locations: HashMap<Vec<Line>, i32>,
    stacks: HashMap<Stack, i32>,
    attributes: HashMap<(i32, OtlpValue), i32>,
    links: HashMap<Link, i32>,
    /// What each location has: the index of `profile.frame.type`.
    of_frames: i32,
}

/// Adds a value, and returns its index. A message has far fewer than `i32::MAX` bytes.
fn added<T>(table: &mut Vec<T>, value: T) -> i32 {
    table.push(value);
    i32::try_from(table.len() - 1).unwrap_or(i32::MAX)
}

impl DictionaryTables {
    pub fn new() -> Self {
        // The lengths of ids that the proto asks for.
        let no_link = Link {
            trace_id: vec![0; 16],
            span_id: vec![0; 8],
        };
        let mut tables = DictionaryTables {
            dictionary: ProfilesDictionary {
                mapping_table: vec![Mapping::default()],
                location_table: vec![Location::default()],
                function_table: vec![Function::default()],
                link_table: vec![no_link],
                string_table: vec![String::new()],
                attribute_table: vec![KeyValueAndUnit::default()],
                stack_table: vec![Stack::default()],
            },
            strings: HashMap::from([(String::new(), 0)]),
            functions: HashMap::from([(Function::default(), 0)]),
            locations: HashMap::new(),
            stacks: HashMap::from([(Stack::default(), 0)]),
            attributes: HashMap::new(),
            links: HashMap::new(),
            of_frames: 0,
        };
        let php = OtlpValue::Text("php".to_owned());
        tables.of_frames = tables.attribute("profile.frame.type", php);
        tables
    }

    pub fn string(&mut self, text: &str) -> i32 {
        if let Some(index) = self.strings.get(text) {
            return *index;
        }
        let index = added(&mut self.dictionary.string_table, text.to_owned());
        self.strings.insert(text.to_owned(), index);
        index
    }

    pub fn attribute(&mut self, key: &str, value: OtlpValue) -> i32 {
        let key = (self.string(key), value);
        if let Some(index) = self.attributes.get(&key) {
            return *index;
        }
        let attribute = KeyValueAndUnit {
            key_strindex: key.0,
            value: Some(key.1.clone().into()),
            unit_strindex: 0,
        };
        let index = added(&mut self.dictionary.attribute_table, attribute);
        self.attributes.insert(key, index);
        index
    }

    pub fn link(&mut self, link: Link) -> i32 {
        let table = &mut self.dictionary.link_table;
        let add = || added(table, link.clone());
        *self.links.entry(link.clone()).or_insert_with(add)
    }

    pub fn function(&mut self, function: Function) -> i32 {
        let table = &mut self.dictionary.function_table;
        let add = || added(table, function);
        *self.functions.entry(function).or_insert_with(add)
    }

    /// A location of these functions and lines, the innermost first.
    pub fn location(&mut self, lines: Vec<Line>) -> i32 {
        let location = Location {
            lines: lines.clone(),
            attribute_indices: vec![self.of_frames],
            ..Location::default()
        };
        let table = &mut self.dictionary.location_table;
        let add = || added(table, location);
        *self.locations.entry(lines).or_insert_with(add)
    }

    /// A stack of these locations, leaf first.
    pub fn stack(&mut self, location_indices: Vec<i32>) -> i32 {
        let stack = Stack { location_indices };
        let table = &mut self.dictionary.stack_table;
        let add = || added(table, stack.clone());
        *self.stacks.entry(stack.clone()).or_insert_with(add)
    }

    pub fn finish(self) -> ProfilesDictionary {
        self.dictionary
    }
}
