//! What answers with numbers begin with, and which files have lines to follow.
//!
//! Invariant: names of the profile are quoted.

use phpprof_profile::Amount;
use serde::Serialize;

use super::quote::quoted;

/// Which numbers the rows are of.
#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TypeHead {
    sample_type: String,
    /// With its unit.
    total: String,
}

impl TypeHead {
    pub fn of(name: &str, unit: &str, total: i64) -> Self {
        TypeHead {
            sample_type: quoted(name),
            total: Amount::of(unit, total).text(total),
        }
    }
}

/// Whether a file is the application's, so that its lines are known.
pub fn is_code(file: &str) -> bool {
    !file.is_empty() && !file.starts_with('<')
}
