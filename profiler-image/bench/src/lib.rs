//! The truth harness: sampled stacks held against the calls that a program can make.
