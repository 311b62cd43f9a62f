//! Two profiles made comparable, with the cells of their lists: the same for `diff` and `verdict`,
//! for users, for agents and for the operator.
//!
//! It is pure.
//!
//! Invariant: a function has one name on both sides, in the profile and in its cells. Whether the
//! profiles were recorded alike is said, and left to the caller.

use crate::alike::{Likeness, alike};
use crate::proto::Profile;
use crate::release::{Prefix, normalized, normalized_cells};
use crate::same_names::name_alike;
use crate::stacks::View;
use crate::timeline::CellTable;

/// A profile, and the cells of its list of requests, if they are known.
pub struct ComparedSide {
    /// The profile.
    pub profile: Profile,
    /// The cells.
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
    /// The earlier run.
    pub before: ComparedSide,
    /// The later run.
    pub after: ComparedSide,
    /// What differs in how they were recorded.
    pub likeness: Likeness,
}

impl ComparedSides {
    /// `view` chooses the sample type, and `prefixes` are left out of paths.
    #[must_use]
    pub fn of(before: ComparedSide, after: ComparedSide, view: &View, prefixes: &[Prefix]) -> Self {
        let (mut before, mut after) = (before.normalized(prefixes), after.normalized(prefixes));
        let likeness = alike(&before.profile, &after.profile, view);
        let renamed = name_alike(&mut before.profile, &mut after.profile);
        for (side, renamed) in [&mut before, &mut after].into_iter().zip(renamed) {
            if let Some(cells) = &mut side.cells {
                renamed.apply(cells);
            }
        }
        ComparedSides {
            before,
            after,
            likeness,
        }
    }

    /// The cells, if both sides have them.
    #[must_use]
    pub fn cells(&self) -> Option<[&CellTable; 2]> {
        let both = self.before.cells.as_ref().zip(self.after.cells.as_ref());
        both.map(|(one, other)| [one, other])
    }
}
