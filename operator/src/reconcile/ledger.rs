//! What the operator remembers between two reconciliations of a request.

pub mod entry;
pub mod running;
pub mod written;
