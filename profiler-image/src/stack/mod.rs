//! What is known of the program: its functions and their names, its calls and its call paths.

pub mod call_tree;
pub mod deep;
pub mod edges;
pub mod functions;
pub mod names;
pub mod pauses;
pub mod stand;
pub mod trace;
pub(crate) mod volume;
