//! Two profiles made comparable, with the cells of their lists: the same for `diff` and `verdict`,
//! for users and for agents.
//!
//! It is pure.
//!
//! Invariant: profiles that were not recorded alike are refused, unless it is forced; and a
//! function has one name on both sides, in the profile and in its cells.

use phpprof_profile::alike::Likeness;
use phpprof_profile::timeline::CellTable;
use phpprof_profile::{Profile, View, name_alike};

use crate::failure::Failure;
use crate::release::{Prefix, normalized, normalized_cells};
use crate::unlike::checked;

/// A profile, and the cells of its list of requests, if they are known.
pub struct ComparedSide {
    pub profile: Profile,
    pub cells: Option<CellTable>,
}

impl ComparedSide {
    fn normalized(self, prefixes: &[Prefix]) -> Self {
        ComparedSide {
            profile: normalized(self.profile, prefixes),
            cells: self.cells.map(|it| normalized_cells(it, prefixes)),
        }
    }
}

/// Both sides, and how they were recorded.
pub struct ComparedSides {
    pub before: ComparedSide,
    pub after: ComparedSide,
    pub likeness: Likeness,
}

impl ComparedSides {
    /// `view` chooses the sample type, and `prefixes` are left out of paths.
    ///
    /// # Errors
    /// If the profiles were not recorded alike, and the comparison is not forced.
    pub fn of(
        before: ComparedSide,
        after: ComparedSide,
        view: &View,
        prefixes: &[Prefix],
        is_forced: bool,
    ) -> Result<Self, Failure> {
        let (mut before, mut after) = (before.normalized(prefixes), after.normalized(prefixes));
        let likeness = checked(&before.profile, &after.profile, view, is_forced)?;
        let renamed = name_alike(&mut before.profile, &mut after.profile);
        for (side, renamed) in [&mut before, &mut after].into_iter().zip(renamed) {
            if let Some(cells) = &mut side.cells {
                renamed.apply(cells);
            }
        }
        Ok(ComparedSides {
            before,
            after,
            likeness,
        })
    }

    /// The cells, if both sides have them.
    pub fn cells(&self) -> Option<[&CellTable; 2]> {
        let both = self.before.cells.as_ref().zip(self.after.cells.as_ref());
        both.map(|(one, other)| [one, other])
    }
}
