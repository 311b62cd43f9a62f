//! The call paths of a run at a moment, as lines: what a profile shows of the tree.
//!
//! Invariant: a path's parent has a smaller number.

use super::PathId;
use crate::stack::names::{FunctionNames, NameId};

#[derive(Debug, Clone, Copy)]
pub(super) struct PathLine {
    pub parent: u32,
    pub name: NameId,
    pub line: u32,
    pub is_hidden: bool,
    pub is_proven: bool,
    /// The first path with the same lines: two ops can be on one line, and hidden frames have none.
    pub shown: u32,
    /// The `shown` of the nearest path, itself or a caller, that is proven.
    pub proven: u32,
}

impl Default for PathLine {
    fn default() -> Self {
        Self {
            parent: 0,
            name: FunctionNames::UNSTABLE,
            line: 0,
            is_hidden: true,
            is_proven: true,
            shown: 0,
            proven: 0,
        }
    }
}

/// The call paths of a run at a moment.
#[derive(Debug)]
pub struct CallPaths(pub(super) Vec<PathLine>);

impl CallPaths {
    /// Whether all edges of a path are proven, and none of its calls is a mixture of two.
    #[must_use]
    pub fn is_proven(&self, path: PathId) -> bool {
        let line = self.0.get(path.0 as usize);
        line.is_none_or(|line| line.is_proven)
    }

    /// The part of a path that is proven: the same for paths that are shown with the same lines.
    #[must_use]
    pub fn proven(&self, path: PathId) -> PathId {
        PathId(self.0.get(path.0 as usize).map_or(0, |line| line.proven))
    }

    /// How many lines each path has, by its number.
    #[must_use]
    pub fn depths(&self) -> Vec<u16> {
        let mut depths: Vec<u16> = Vec::with_capacity(self.0.len());
        for line in &self.0 {
            let above = depths.get(line.parent as usize).copied().unwrap_or(0);
            depths.push(above.saturating_add(u16::from(!line.is_hidden)));
        }
        depths
    }

    /// Writes the lines of a path, root first: function and line.
    pub fn lines(&self, path: PathId, lines: &mut Vec<(NameId, u32)>) {
        lines.clear();
        let mut at = path.0;
        while at != 0 {
            let Some(line) = self.0.get(at as usize) else {
                break;
            };
            if !line.is_hidden {
                lines.push((line.name, line.line));
            }
            at = line.parent;
        }
        lines.reverse();
    }
}
