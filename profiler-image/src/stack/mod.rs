//! What is known of the program: its functions and their names, the calls and the call paths that it has.

pub mod call_tree;
pub mod edges;
pub mod functions;
pub mod names;
pub mod stand;
pub mod trace;
