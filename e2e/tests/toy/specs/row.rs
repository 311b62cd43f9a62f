//! What rows of specs are made of.

use serde_json::{Value, json};

/// What is wrong, and the spec.
pub type SpecRow = (String, Value);

pub fn named<const COUNT: usize>(rows: [(&str, Value); COUNT]) -> Vec<SpecRow> {
    let owned = rows.map(|(case, spec)| (case.to_owned(), spec));
    owned.into()
}

pub fn target(target: Value) -> Value {
    json!({"target": target})
}

/// A text of this many characters.
pub fn xs(count: usize) -> String {
    "x".repeat(count)
}
