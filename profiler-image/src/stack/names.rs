//! The names that samples speak of, each kept once.
//!
//! A name is what stays the same when a worker compiles a script anew or is replaced: so stacks and proofs are keyed by
//! it, and memory grows with the program's functions, not with time.

use std::collections::HashMap;
use std::sync::Arc;

/// More functions than any program has; beyond it everything is [`Names::OVERFLOW`].
const MAX_NAMES: usize = 200_000;

/// Index into [`Names`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameId(u32);

/// A function for people.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Name {
    pub name: String,
    pub file: String,
    pub start_line: u32,
}

/// All names of a run.
#[derive(Debug)]
pub struct Names {
    list: NameList,
    by_name: HashMap<Arc<Name>, NameId>,
}

/// The names by their ids; a copy is a list of pointers.
#[derive(Debug, Clone, Default)]
pub struct NameList(Vec<Arc<Name>>);

impl NameList {
    /// The name of an id.
    #[must_use]
    pub fn get(&self, id: NameId) -> &Name {
        self.0.get(id.0 as usize).unwrap_or(&self.0[0])
    }
}

impl Names {
    /// Leaf that stands for the part of a stack that could not be proven.
    pub const UNSTABLE: NameId = NameId(0);
    /// Root of a stack that is deeper than can be kept.
    pub const TRUNCATED: NameId = NameId(1);
    /// What does not fit into the memory cap.
    pub const OVERFLOW: NameId = NameId(2);
    /// Waiting for a request.
    pub const IDLE: NameId = NameId(3);
    /// Setting a request up.
    pub const STARTUP: NameId = NameId(4);
    /// Taking a request down.
    pub const SHUTDOWN: NameId = NameId(5);
    /// Compiling a script.
    pub const COMPILING: NameId = NameId(6);
    /// Finding a script and loading what opcache has of it.
    pub const LOADING: NameId = NameId(7);
    /// Looking up a class through the autoloaders.
    pub const AUTOLOAD: NameId = NameId(8);
    /// Collecting cycles.
    pub const COLLECTING: NameId = NameId(9);
    /// The engine itself, as the caller of a stack's root; not shown.
    pub const ENGINE: NameId = NameId(10);

    /// The id of a name, a new one at first sight.
    pub fn intern(&mut self, name: Name) -> NameId {
        if let Some(&id) = self.by_name.get(&name) {
            return id;
        }
        let list = &mut self.list.0;
        let Ok(index) = u32::try_from(list.len()) else {
            return Self::OVERFLOW;
        };
        if list.len() >= MAX_NAMES {
            return Self::OVERFLOW;
        }
        let name = Arc::new(name);
        list.push(Arc::clone(&name));
        self.by_name.insert(name, NameId(index));
        NameId(index)
    }

    /// The name of an id.
    #[must_use]
    pub fn get(&self, id: NameId) -> &Name {
        self.list.get(id)
    }

    /// All names that are there by now.
    #[must_use]
    pub fn list(&self) -> NameList {
        self.list.clone()
    }
}

impl Default for Names {
    fn default() -> Self {
        let mut names = Self {
            list: NameList::default(),
            by_name: HashMap::new(),
        };
        // In the order of the constants.
        for name in [
            "[unstable]",
            "[truncated]",
            "[over the memory cap]",
            "[idle]",
            "[startup]",
            "[shutdown]",
            "[compiling]",
            "[loading]",
            "[autoload]",
            "[gc]",
            "[engine]",
        ] {
            names.intern(Name {
                name: name.to_owned(),
                file: String::new(),
                start_line: 0,
            });
        }
        names
    }
}
