//! Reads the merged profiles and lists of two requests, and compares them.
//!
//! Invariant: one comparison is in memory at a time, and none while a request's profiles are
//! merged. What it reads is bounded: [`OPENED`] has the sum.

use kube::ResourceExt as _;
use phpprof_crds::{
    ComparedRoute, ComparisonMeasure, ComparisonReason, ProfileComparison, ProfileRequest,
};
use phpprof_profile::change::{ChangeMeasure, ChangeSettings, ChangeSide, RouteLimit, compare};
use phpprof_profile::timeline::{self, CellTable, MAX_BYTES};
use phpprof_profile::{
    ComparedSide, ComparedSides, DecodeError, DecodeLimits, Profile, View, decode_stacks,
};

use crate::comparison::decision::ComparisonWords;
use crate::comparison::status::ComparedProfiles;
use crate::comparison::verdict::unlike;
use crate::lifecycle::checkpoints::lists_requests;
use crate::sampler::object_keys::{MERGED, REQUESTS, key};
use crate::storage::collector::{Collector, beside, merged_bounds};
use crate::storage::store::StoreError;

/// The largest file of a merged profile that is compared.
const LARGEST_COMPARED: usize = 8 << 20;
/// Of its tables, and again of its stacks. Samples of all workers with one stack and route are one.
const STACKS_COMPARED: usize = 12 << 20;
/// The label that the statistics read.
const ROUTE: &str = "route";
/// The names and cells of a list, as `storage/requests.rs` has them.
const CELLS: usize = 13 << 20;
/// What the statistics make of a side: each name twice, and each path once more.
const STATISTICS: usize = 3 * STACKS_COMPARED + STACKS_COMPARED / 4;
/// The most bytes of a comparison: two profiles, two tables of cells, and what the statistics make
/// of them. The file or the list of a side is gone before that, and is smaller.
pub const OPENED: usize = 2 * (2 * STACKS_COMPARED + CELLS + STATISTICS);

/// What is asked of two profiles.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparisonQuestion {
    /// The measure, and what is accepted.
    pub settings: ChangeSettings,
    /// Whether profiles are compared that were not recorded alike.
    pub is_forced: bool,
}

impl ComparisonQuestion {
    /// What a comparison asks.
    #[must_use]
    pub fn of(comparison: &ProfileComparison) -> Self {
        let spec = &comparison.spec;
        Self {
            settings: ChangeSettings {
                measure: match spec.measure {
                    ComparisonMeasure::Wall => ChangeMeasure::Wall,
                    ComparisonMeasure::Cpu => ChangeMeasure::Cpu,
                },
                accepted_percent: spec.max_increase_percent,
                accepted_nanoseconds: spec.min_milliseconds * 1e6,
                visible_percent: spec.visible_percent,
                routes: spec.routes.iter().map(limit).collect(),
            },
            is_forced: spec.force,
        }
    }
}

fn limit(route: &ComparedRoute) -> RouteLimit {
    RouteLimit {
        route: route.route.clone(),
        accepted_percent: route.max_increase_percent.unwrap_or(0.0),
        accepted_nanoseconds: route.min_milliseconds.unwrap_or(0.0) * 1e6,
    }
}

/// Why two profiles were not compared.
#[derive(Debug, PartialEq)]
pub enum NotCompared {
    /// It will not help to try again.
    Never(ComparisonWords),
    /// The store did not answer.
    Store(String),
}

fn never<T>(reason: ComparisonReason, found: String) -> Result<T, NotCompared> {
    Err(NotCompared::Never(ComparisonWords::new(reason, found)))
}

impl Collector {
    /// Compares the merged profiles of two finished requests. Keys begin with `prefix`.
    ///
    /// # Errors
    /// [`NotCompared`] says why not.
    pub async fn compare(
        &self,
        requests: &[ProfileRequest; 2],
        prefix: &str,
        question: &ComparisonQuestion,
    ) -> Result<ComparedProfiles, NotCompared> {
        let _alone = self.merging.acquire().await;
        let [before, after] = requests;
        let before = self.side(before, prefix).await?;
        let after = self.side(after, prefix).await?;
        let question = question.clone();
        let compared = beside(move || compared(before, after, &question)).await;
        compared.map_err(NotCompared::Store)?
    }

    async fn side(
        &self,
        request: &ProfileRequest,
        prefix: &str,
    ) -> Result<ComparedSide, NotCompared> {
        let name = request.name_any();
        let cells = self.cells(request, &name, prefix).await?;
        let key = key(request, prefix, MERGED);
        let file = match self.store.read(&key, LARGEST_COMPARED as u64).await {
            Ok(file) => file,
            Err(StoreError::Missing(_)) => {
                let found = format!("the profile of request {name} is not in the store any more");
                return never(ComparisonReason::ProfileGone, found);
            }
            Err(StoreError::TooLarge { .. }) => return never_so_large(&name),
            Err(error) => return Err(NotCompared::Store(error.to_string())),
        };
        let decoded = beside(move || decode_stacks(&file, &bounds(), ROUTE)).await;
        match decoded.map_err(NotCompared::Store)? {
            Ok(profile) => Ok(ComparedSide {
                profile,
                cells: Some(cells),
            }),
            Err(
                DecodeError::MemoryExceeded(_)
                | DecodeError::CompressedTooLarge(_)
                | DecodeError::DecompressedTooLarge(_)
                | DecodeError::TooManySamples(_),
            ) => never_so_large(&name),
            Err(error) => {
                let found = format!("the profile of request {name} cannot be read: {error}");
                never(ComparisonReason::UnreadableProfile, found)
            }
        }
    }

    /// The cells of a request's list.
    async fn cells(
        &self,
        request: &ProfileRequest,
        name: &str,
        prefix: &str,
    ) -> Result<CellTable, NotCompared> {
        if !lists_requests(request) {
            let found = format!("request {name} has no list of HTTP requests by route");
            return never(ComparisonReason::NoCells, found);
        }
        let key = key(request, prefix, REQUESTS);
        let list = match self.store.read(&key, MAX_BYTES as u64).await {
            Ok(list) => list,
            Err(StoreError::Missing(_)) => {
                let found = format!("request {name} has no list of HTTP requests in the store");
                return never(ComparisonReason::NoCells, found);
            }
            Err(StoreError::TooLarge { .. }) => return never_so_large(name),
            Err(error) => return Err(NotCompared::Store(error.to_string())),
        };
        let decoded = beside(move || timeline::decode(&list).map(|list| list.cells)).await;
        match decoded.map_err(NotCompared::Store)? {
            Ok(cells) => match cells.filter(|cells| cells.requests() > 0) {
                Some(cells) => Ok(cells),
                None => {
                    let found = format!("the list of request {name} has no cells");
                    never(ComparisonReason::NoCells, found)
                }
            },
            Err(error) => {
                let found = format!("the list of request {name} cannot be read: {error}");
                never(ComparisonReason::UnreadableProfile, found)
            }
        }
    }
}

fn never_so_large<T>(name: &str) -> Result<T, NotCompared> {
    let found = format!(
        "the profile of request {name} has more than {} MiB of names, stacks or list",
        STACKS_COMPARED >> 20
    );
    never(ComparisonReason::TooLargeToCompare, found)
}

fn bounds() -> DecodeLimits {
    DecodeLimits {
        compressed_bytes: LARGEST_COMPARED,
        memory_bytes: STACKS_COMPARED,
        ..merged_bounds()
    }
}

fn compared(
    before: ComparedSide,
    after: ComparedSide,
    question: &ComparisonQuestion,
) -> Result<ComparedProfiles, NotCompared> {
    let view = View {
        sample_type: Some(question.settings.measure.name().to_owned()),
        ..View::default()
    };
    let sides = ComparedSides::of(before, after, &view, &[]);
    if let (Some(found), false) = (unlike(&sides.likeness), question.is_forced) {
        return never(ComparisonReason::ProfilesUnlike, found);
    }
    let [before, after] = [&sides.before, &sides.after].map(side);
    Ok(ComparedProfiles {
        report: compare(before, after, &question.settings),
        likeness: sides.likeness.clone(),
    })
}

/// Cells count the requests.
fn side(side: &ComparedSide) -> ChangeSide<'_> {
    let profile: &Profile = &side.profile;
    ChangeSide {
        profile,
        cells: side.cells.as_ref(),
        requests: None,
    }
}

#[cfg(test)]
mod tests;
