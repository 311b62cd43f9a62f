//! Has a release made requests slower, and where? The statistics of a change between two profiles.
//!
//! The unit is the request. A run is cut into cells (`timeline::CellTable`), and a cluster is the
//! cells of one group of workers of one pod in one slice of time: samples within a cluster are
//! alike, clusters are not. All values are time per request, compared within each route and
//! weighted by the mix of routes before the change, so a change of the mix is not a change.
//! [`estimate`] says how far a value may be from the truth, [`compare`] says what that means.
//! `docs/adr/0015-a-verdict-counts-requests-not-samples.md` has the reasons for the statistics.
//!
//! Everything here is pure.
//!
//! Invariant: a difference without enough clusters to know its error is never significant.

mod bounds;
mod clusters;
mod estimate;
mod explain;
mod families;
mod limits;
mod report;
mod samples;
mod select;
mod verdict;
pub mod words;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

pub use bounds::{BoundOf, ChangeBounds};
pub use estimate::ChangeEstimate;
pub use report::{
    ALARM_LEVEL, ChangeBasis, ChangeMeasure, ChangeReason, ChangeReport, ChangeSettings,
    ChangeSide, ChangeVerdict, ChangedFunction, MovedTime, OneSidedRoute, RouteChange, RouteLimit,
    SideFacts,
};
pub use verdict::compare;
