//! What a page says of a profile, each with its place in the graph.
//!
//! Invariant: a function has the number that it has on the page.

use serde::Serialize;

use super::rows::PageTables;
use crate::findings::{Finding, Measure};
use crate::proto::Profile;
use crate::top_levels::plain;

/// A finding or a function of a verdict, and its place on the page.
#[derive(Serialize)]
pub(super) struct PageFinding {
    /// How much it is, for instance `12.5 % of wall time`.
    pub amount: String,
    pub sentence: String,
    /// The finding's function, and the sample type of its share.
    pub function: Option<usize>,
    pub r#type: Option<usize>,
}

/// The number of a function by its plain name.
pub(super) fn number_of(tables: &PageTables<'_>, name: &str, file: &str) -> Option<usize> {
    let mut functions = tables.numbers.functions.iter();
    functions.position(|it| it.file == file && plain(it.name, it.file) == plain(name, file))
}

/// The findings, with the numbers of their functions.
pub(super) fn said(
    tables: &PageTables<'_>,
    profile: &Profile,
    found: Vec<Finding>,
) -> Vec<PageFinding> {
    let said = found.into_iter().map(|one| PageFinding {
        amount: format!("{:.1} % {}", one.share, one.of.words()),
        sentence: one.sentence,
        function: one
            .function
            .and_then(|it| number_of(tables, &it.name, &it.file)),
        r#type: match one.of {
            Measure::Wall => profile.value_index("wall"),
            Measure::Cpu => profile.value_index("cpu"),
            Measure::Workers => None,
            Measure::Limit => profile.value_index("heap_growth"),
            Measure::Samples => profile.value_index("samples"),
        },
    });
    said.collect()
}
