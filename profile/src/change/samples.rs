//! Clusters for profiles without cells: single samples, as if none were like another.
//!
//! Samples of one request are alike, so errors by samples alone are too small. Whoever shows them
//! says so.
//!
//! Invariant: the result depends on the profiles alone: which cluster a sample is in is drawn with
//! a fixed seed.

use std::collections::{BTreeMap, HashMap};

use super::clusters::{ClusterPair, ClusterSide, RouteTime};
use super::report::{ChangeMeasure, ChangeSide};
use crate::lookup::Lookup;
use crate::top::values;
use crate::top_levels::plain;

/// The clusters of a side. With many samples in each, the error does not depend on their number.
const CLUSTERS: usize = 64;
/// The most samples of one row that are drawn one by one; more are drawn in equal parts.
const MAX_DRAWS: i64 = 4_096;

/// Both sides; `None` if one does not say how many requests its samples saw.
pub(super) fn by_samples(
    sides: [ChangeSide<'_>; 2],
    measure: ChangeMeasure,
) -> Option<ClusterPair> {
    let mut names: HashMap<(String, String), usize> = HashMap::new();
    let mut drawn = Vec::new();
    for side in sides {
        let requests = side.requests.filter(|it| *it > 0)?;
        drawn.push(draw(side, requests as f64, measure, &mut names));
    }
    let mut functions = vec![<(String, String)>::default(); names.len()];
    for (name, index) in names {
        if let Some(place) = functions.get_mut(index) {
            *place = name;
        }
    }
    let after = drawn.pop()?;
    let before = drawn.pop()?;
    Some(ClusterPair {
        routes: vec![String::new()],
        functions,
        before,
        after,
    })
}

fn draw(
    side: ChangeSide<'_>,
    requests: f64,
    measure: ChangeMeasure,
    names: &mut HashMap<(String, String), usize>,
) -> ClusterSide {
    let lookup = Lookup::new(side.profile);
    let count = side.profile.value_index("samples");
    let even = RouteTime {
        requests: requests / CLUSTERS as f64,
        time: 0.0,
    };
    let mut row = vec![even; CLUSTERS];
    let (mut functions, mut samples) = (Vec::<BTreeMap<_, f64>>::new(), 0.0);
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    for (sample, value) in values(side.profile, measure.name()) {
        let leaf = lookup.frames(sample).next();
        let name = leaf.map(|leaf| {
            (
                plain(leaf.name, leaf.file).into_owned(),
                leaf.file.to_owned(),
            )
        });
        let next = names.len();
        let function = *names.entry(name.unwrap_or_default()).or_insert(next);
        if functions.len() <= function {
            functions.resize(function + 1, BTreeMap::new());
        }
        let count = count.and_then(|index| sample.value.get(index)).copied();
        let count = count.unwrap_or(1).max(1);
        samples += count as f64;
        let draws = count.min(MAX_DRAWS);
        for _ in 0..draws {
            let cluster = (next_random(&mut random) % CLUSTERS as u64) as usize;
            let part = value as f64 / draws as f64;
            if let Some(cell) = row.get_mut(cluster) {
                cell.time += part;
            }
            if let Some(times) = functions.get_mut(function) {
                *times.entry((0, cluster)).or_default() += part;
            }
        }
    }
    ClusterSide {
        routes: vec![row],
        samples: vec![samples],
        functions,
        pods: vec![0; CLUSTERS],
    }
}

/// The next number of a sequence (S. Vigna's `splitmix64`, public domain).
pub(super) fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
