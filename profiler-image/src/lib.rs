//! The sampler: reads the stacks of PHP workers out of their memory.
