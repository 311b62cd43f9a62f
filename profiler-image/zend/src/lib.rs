//! A PHP stack out of a view of memory: pure, without dependencies.
