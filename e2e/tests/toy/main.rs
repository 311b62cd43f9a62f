//! Tests phpprof's promises that need no container, on a cluster whose pods a toy plays: `make
//! api`.

mod alerts;
mod archive;
mod comparisons;
mod ends;
mod examples;
mod halts;
mod helms;
mod keys;
mod policies;
mod presets;
mod queue;
mod refusals;
mod replicas;
mod restarts;
mod specs;
mod verdicts;
