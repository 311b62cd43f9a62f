//! What answers with numbers begin with, and which files have lines to follow.
//!
//! Invariant: names of the profile are quoted.

use phpprof_profile::{Amount, IN_USE};
use serde::Serialize;

use super::quote::quoted;

/// What the frames of a profile of heaps mean.
pub const HEAP_FRAMES: &str = "What is in heaps, not time: a leaf is a class, array or string; the frames above it are the path that holds it, on a shortest path. A total is what is reached through a frame, not what would be free without it.";

/// Which numbers the rows are of.
#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TypeHead {
    sample_type: String,
    /// With its unit.
    total: String,
    /// What frames and totals are, if they are not functions and time.
    #[serde(skip_serializing_if = "Option::is_none")]
    meaning: Option<&'static str>,
}

impl TypeHead {
    pub fn of(name: &str, unit: &str, total: i64) -> Self {
        TypeHead {
            sample_type: quoted(name),
            total: Amount::of(unit, total).text(total),
            meaning: IN_USE.contains(&(name, unit)).then_some(HEAP_FRAMES),
        }
    }
}

/// Whether a file is the application's, so that its lines are known.
pub fn is_code(file: &str) -> bool {
    !file.is_empty() && !file.starts_with('<')
}
