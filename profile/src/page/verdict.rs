//! What the page of two profiles says of a verdict on them.
//!
//! Invariant: a line leads to the function with its name and file, or to none.

use super::findings::{PageFinding, number_of};
use super::rows::PageTables;
use crate::noise::NoiseScale;

/// A verdict in words, with the functions that it names.
#[derive(Debug, Clone, PartialEq)]
pub struct PageVerdict {
    /// The answer in one sentence.
    pub summary: String,
    /// The HTTP requests before and after. The page then compares the time per request in place of
    /// shares.
    pub requests: Option<[u64; 2]>,
    /// How many standard errors by samples a difference by chance may have.
    pub scale: NoiseScale,
    /// Reasons and functions, the most important first.
    pub lines: Vec<VerdictLine>,
}

/// One line of a verdict.
#[derive(Debug, Clone, PartialEq)]
pub struct VerdictLine {
    /// How much it is, for instance `+3.2 ms`; may be empty.
    pub amount: String,
    /// What it says.
    pub sentence: String,
    /// The function that it is about.
    pub function: Option<VerdictFunction>,
}

/// A function by what profiles tell of it.
#[derive(Debug, Clone, PartialEq)]
pub struct VerdictFunction {
    /// Its name.
    pub name: String,
    /// The file of its declaration.
    pub file: String,
}

impl PageVerdict {
    pub(super) fn said(&self, tables: &PageTables<'_>, measured: usize) -> Vec<PageFinding> {
        let said = self.lines.iter().map(|line| PageFinding {
            amount: line.amount.clone(),
            sentence: line.sentence.clone(),
            function: line
                .function
                .as_ref()
                .and_then(|it| number_of(tables, &it.name, &it.file)),
            r#type: Some(measured),
        });
        said.collect()
    }
}
