//! The steps of a path through a heap.
//!
//! Invariant: a step has addresses and numbers of the engine, and no text.

/// From what holds something to what is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HoldingStep {
    /// A static property: its class, and its number.
    StaticProperty { class: u64, number: u32 },
    /// A static variable of a function.
    StaticVariable { function: u64 },
    /// A global variable.
    Global,
    /// A variable of a call, which is running or stands in a generator.
    Variable { function: u64 },
    /// A call of a closure, which holds it.
    Running,
    /// A call's or a closure's `$this`.
    This,
    /// A declared property: the class of its object, and its offset there.
    Property { class: u64, offset: u32 },
    /// A property that no class declares.
    DynamicProperty,
    /// A variable that a closure has bound.
    Bound,
    /// An element of a list.
    Position,
    /// An element of an array by an integer.
    NumberKey,
    /// An element of an array by a string.
    TextKey,
}

impl HoldingStep {
    /// Whether it leads from an array to an element.
    pub fn is_key(self) -> bool {
        matches!(self, Self::Position | Self::NumberKey | Self::TextKey)
    }
}
