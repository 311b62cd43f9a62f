//! Compares two profiles, for users and for pipelines: by shares of their time, or by the time of
//! one HTTP request.
//!
//! It is pure.
//!
//! Invariant: points are always hundredths of the earlier profile's total: of its time, or of the
//! time of one of its requests.

use std::cmp::Reverse;

use phpprof_profile::alike::Likeness;
use phpprof_profile::change::{BoundOf, ChangeBounds, ChangeMeasure};
use phpprof_profile::in_use::is_in_use;
use phpprof_profile::timeline::CellTable;
use phpprof_profile::{Diff, FunctionChange, NoiseScale, ONLY, Profile, View, diff, plain_name};
use serde_json::Value;

use crate::cli::Per;
use crate::failure::{Exit, Failure};
use crate::table::printable;
use crate::view::wrong_view;

/// A comparison, and the real total of the later profile.
pub struct Compared {
    /// Per request, its later total is the earlier total scaled to the later number of requests.
    pub diff: Diff,
    pub total_after: i64,
    /// The requests seen in samples, before and after, if they count.
    pub requests: Option<(u64, u64)>,
    /// How much functions differ by chance, if the cells of both runs are known.
    bounds: Option<ChangeBounds>,
    scale: NoiseScale,
    /// How the profiles were recorded; the caller has checked it.
    pub likeness: Likeness,
    is_of_heaps: bool,
}

impl Compared {
    pub fn of(before: &Profile, after: &Profile, view: &View, per: Per) -> Result<Self, Failure> {
        if per == Per::Request && !view.labels.is_empty() {
            return Err(Failure::new(
                Exit::Usage,
                "--per request cannot be used with --label: profiles count all their requests, not by label",
                "leave --label out, or compare with --per share",
            ));
        }
        let mut diff = diff(before, after, view).map_err(wrong_view)?;
        let is_of_heaps = is_in_use(before) && is_in_use(after);
        if is_of_heaps && per == Per::Request {
            return Err(Failure::new(
                Exit::Usage,
                "what is in heaps belongs to no HTTP request, so it cannot be compared per request",
                "leave --per out",
            ));
        }
        if is_of_heaps {
            sort_by_growth(&mut diff);
        }
        let total_after = diff.total_after;
        let requests = match per {
            Per::Share => None,
            Per::Request => Some((
                seen_requests(before, "before")?,
                seen_requests(after, "after")?,
            )),
        };
        if let Some((before, after)) = requests {
            let expected = diff.total_before as f64 * after as f64 / before as f64;
            diff.total_after = expected as i64;
            let (before, after) = (diff.total_before, diff.total_after);
            let size = |change: &FunctionChange| points(before, after, change).abs();
            diff.changes
                .sort_by(|one, other| size(other).total_cmp(&size(one)));
        }
        Ok(Compared {
            diff,
            total_after,
            requests,
            bounds: None,
            scale: NoiseScale::BY_SAMPLES,
            likeness: Likeness::default(),
            is_of_heaps,
        })
    }

    /// With the cells of both runs, which say how much functions differ by chance. They have wall
    /// and CPU time, and no labels but the route.
    #[must_use]
    pub fn with_cells(self, [before, after]: [&CellTable; 2], view: &View) -> Self {
        let measure = match self.diff.sample_type.as_str() {
            "wall" => ChangeMeasure::Wall,
            "cpu" => ChangeMeasure::Cpu,
            _ => return self,
        };
        if !view.labels.is_empty() {
            return self;
        }
        let of = match self.requests {
            None => BoundOf::Share,
            Some(_) => BoundOf::Request,
        };
        let with_bounds = Compared {
            bounds: ChangeBounds::of(before, after, measure, of),
            ..self
        };
        Compared {
            scale: with_bounds.middle_scale(),
            ..with_bounds
        }
    }

    /// Whether both sides are of what is in heaps. All of it was counted, so nothing of their
    /// difference is chance, and it is growth that counts, not a share.
    pub fn is_of_heaps(&self) -> bool {
        self.is_of_heaps
    }

    /// Whether single samples say what chance is, which is too little.
    pub fn is_by_samples(&self) -> bool {
        self.bounds.is_none() && !self.is_of_heaps
    }

    /// What says how much functions differ by chance, in one word.
    pub fn noise_basis(&self) -> &'static str {
        if self.is_of_heaps {
            "none"
        } else if self.is_by_samples() {
            "samples"
        } else {
            "cells"
        }
    }

    /// By how many points a function's self time can differ by chance.
    pub fn noise(&self, change: &FunctionChange) -> f64 {
        let by_samples = self.noise_by_samples(change);
        // A function without a noticeable share has no bound of its own.
        let bound = self.bound(change);
        bound.unwrap_or(by_samples * self.scale.errors() / NoiseScale::BY_SAMPLES.errors())
    }

    fn bound(&self, change: &FunctionChange) -> Option<f64> {
        let name = plain_name(&change.name, &change.file);
        self.bounds.as_ref()?.points(&name, &change.file)
    }

    fn noise_by_samples(&self, change: &FunctionChange) -> f64 {
        match self.requests {
            None => self.diff.flat_noise(change),
            Some(_) => self.diff.flat_noise_of_fixed(change),
        }
    }

    /// How many standard errors by samples the bounds of functions are, in the middle: for pages
    /// and pictures, whose frames have no bounds of their own.
    pub fn noise_scale(&self) -> NoiseScale {
        self.scale
    }

    fn middle_scale(&self) -> NoiseScale {
        let by_samples = NoiseScale::BY_SAMPLES.errors();
        let ratios = self.diff.changes.iter().filter_map(|change| {
            let samples = Some(self.noise_by_samples(change)).filter(|it| *it > 0.0)?;
            Some(by_samples * self.bound(change)? / samples)
        });
        let mut ratios: Vec<f64> = ratios.collect();
        ratios.sort_by(f64::total_cmp);
        let middle = ratios.get(ratios.len() / 2);
        middle.map_or(NoiseScale::BY_SAMPLES, |it| NoiseScale::by_cells(*it))
    }

    /// The result for a pipeline: an error if functions grew by more than this many points, and by
    /// more than chance.
    pub fn grown(&self, limit: f64) -> Result<(), Failure> {
        if self.is_of_heaps {
            return Err(Failure::new(
                Exit::Usage,
                "--fail-above compares shares of time, and these profiles are of what is in heaps",
                "leave it out; -o json has the bytes of each class before and after, to set a limit for",
            ));
        }
        let points = |change: &FunctionChange| self.diff.flat_points(change);
        let is_grown = |it: &&FunctionChange| points(it) > limit.max(self.noise(it));
        let grown = self.diff.changes.iter().filter(is_grown);
        let worst = grown.clone().max_by(|a, b| points(a).total_cmp(&points(b)));
        let Some(worst) = worst else { return Ok(()) };
        let of = match self.requests {
            None => "points of all time",
            Some(_) => "percent of the time that a request took before",
        };
        Err(Failure::new(
            Exit::Grew,
            format!(
                "{} of the functions grew by more than {limit} {of}; {} grew most, by {:.2}",
                grown.count(),
                printable(&worst.name),
                points(worst)
            ),
            "see who calls them: the same command line with --output diff.html",
        ))
    }
}

/// The largest growth first, whether the profiles have it as their own or reach it.
fn sort_by_growth(diff: &mut Diff) {
    diff.changes.sort_by_key(|change| {
        let own = change.flat_after.saturating_sub(change.flat_before);
        let all = change.cum_after.saturating_sub(change.cum_before);
        let name = (change.name.clone(), change.file.clone());
        (Reverse((own.abs(), all.abs())), name)
    });
}

/// By how many points of these totals the function's self time has grown.
fn points(before: i64, after: i64, change: &FunctionChange) -> f64 {
    let share = |value: i64, total: i64| match total {
        0 => 0.0,
        total => value as f64 / total as f64,
    };
    share(change.flat_after, after) - share(change.flat_before, before)
}

/// The requests that the samplers of all pods have seen. Receipts count them only if a label or
/// filter of requests was asked for.
pub fn seen_requests(profile: &Profile, which: &str) -> Result<u64, Failure> {
    if let Some(labels) = profile.comments().find_map(|it| it.strip_prefix(ONLY)) {
        return Err(Failure::new(
            Exit::Usage,
            format!(
                "the profile {which} has only samples with {}, but counts the requests of all samples",
                printable(labels)
            ),
            "download it again without --label, or compare with --per share",
        ));
    }
    let receipt = |text: &str| serde_json::from_str(text).unwrap_or_default();
    let receipts: Vec<Value> = profile.comments().map(receipt).collect();
    // A sampler also counts the requests whose samples its filter drops.
    if receipts
        .iter()
        .any(|it| !it["requests"]["dropped"].is_null())
    {
        return Err(Failure::new(
            Exit::Usage,
            format!(
                "the profile {which} has samples of only some requests, but counts all requests"
            ),
            "record both without filters of requests, or compare with --per share",
        ));
    }
    let read = |receipt: &Value| receipt["requests"]["read"].as_u64();
    let counts: Option<Vec<u64>> = receipts.iter().map(read).collect();
    match counts.map(|counts| counts.iter().sum()) {
        Some(sum) if sum > 0 => Ok(sum),
        _ => Err(Failure::new(
            Exit::Usage,
            format!("the profile {which} does not say how many requests its samples saw"),
            "record both with labels of requests, for instance kubectl phpprof run TYPE/NAME --labels route; or compare with --per share",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use phpprof_profile::{Builder, DecodeLimits, Format, FrameRef, Settings, decode};

    fn profile(slow: i64, fast: i64, requests: Option<u64>) -> Profile {
        let mut builder = Builder::new(Settings::default());
        for (name, ms) in [("slow", slow), ("fast", fast)] {
            let frame = FrameRef {
                name,
                file: "/srv/a.php",
                start_line: 1,
                line: 2,
            };
            builder.add(&[frame], &[ms, ms * 1_000_000, ms * 1_000_000], &[]);
        }
        if let Some(read) = requests {
            builder.comment(format!(r#"{{"requests":{{"read":{read}}}}}"#));
        }
        builder.finish()
    }

    #[track_caller]
    fn check(per: Per, limit: f64, before: &Profile, after: &Profile, expected: Option<&str>) {
        let compared = Compared::of(before, after, &View::default(), per).unwrap();
        match (compared.grown(limit), expected) {
            (Ok(()), None) => {}
            (Err(failure), Some(part)) => {
                assert_eq!(failure.exit, Exit::Grew);
                assert!(failure.message.contains(part), "{}", failure.message);
            }
            (said, _) => panic!("{said:?}"),
        }
    }

    #[test]
    fn growth_beyond_its_limit_fails_a_pipeline() {
        let (before, after) = (profile(500, 500, None), profile(700, 300, None));
        check(
            Per::Share,
            19.0,
            &before,
            &after,
            Some("1 of the functions"),
        );
        check(
            Per::Share,
            19.0,
            &before,
            &after,
            Some("slow grew most, by 20.00"),
        );
        check(Per::Share, 20.5, &before, &after, None);
        check(Per::Share, 5.0, &after, &before, Some("fast"));
    }

    /// A difference of 10 points. Three standard errors are 21 points with a hundred samples each,
    /// and 2 points with ten thousand.
    #[test]
    fn a_pipeline_does_not_fail_by_chance() {
        let (before, after) = (profile(50, 50, None), profile(60, 40, None));
        check(Per::Share, 5.0, &before, &after, None);
        let (before, after) = (profile(5000, 5000, None), profile(6000, 4000, None));
        check(
            Per::Share,
            5.0,
            &before,
            &after,
            Some("slow grew most, by 10.00"),
        );
    }

    #[test]
    fn doubled_requests_in_doubled_time_are_no_growth() {
        let before = profile(50, 50, Some(100));
        check(
            Per::Request,
            0.5,
            &before,
            &profile(100, 100, Some(200)),
            None,
        );
        // Everything is slower, which shares do not show.
        let slower = profile(100, 100, Some(100));
        check(Per::Share, 0.5, &before, &slower, None);
        check(
            Per::Request,
            49.0,
            &before,
            &slower,
            Some("2 of the functions"),
        );
        check(Per::Request, 51.0, &before, &slower, None);
    }

    fn heap(orders: i64) -> Profile {
        let mut builder = Builder::new(Settings::in_use());
        for (class, count) in [("Shop\\Order", orders), ("Shop\\Kernel", 100)] {
            let path = [class, "Shop\\Cache::$items"].map(|name| FrameRef {
                name,
                ..FrameRef::default()
            });
            builder.add(&path, &[count, count * 64], &[]);
        }
        builder.finish()
    }

    #[test]
    fn growth_of_heaps_is_no_chance() {
        let of = |per| Compared::of(&heap(1), &heap(9000), &View::default(), per);
        let compared = of(Per::Share).unwrap();
        assert_eq!(compared.noise_basis(), "none");
        let names = compared.diff.changes.iter().map(|it| it.name.as_str());
        let expected = ["Shop\\Order", "Shop\\Cache::$items", "Shop\\Kernel"];
        assert_eq!(names.collect::<Vec<_>>(), expected);
        let noise = compared.diff.changes.iter().map(|it| compared.noise(it));
        assert_eq!(noise.sum::<f64>(), 0.0);
        let refused = compared.grown(1.0).unwrap_err();
        assert_eq!(refused.exit, Exit::Usage);
        let refused = of(Per::Request).map(|_| ()).unwrap_err();
        assert!(
            refused.message.contains("no HTTP request"),
            "{}",
            refused.message
        );
    }

    #[test]
    fn requests_are_not_counted_by_label() {
        let before = profile(50, 50, Some(100));
        let view = View {
            labels: vec![("route".to_owned(), "/shop".to_owned())],
            ..View::default()
        };
        let of = |per| Compared::of(&before, &before, &view, per).map(|_| ());
        assert_eq!(of(Per::Share), Ok(()));
        let refused = of(Per::Request).unwrap_err();
        assert_eq!(refused.exit, Exit::Usage);
        assert!(refused.message.contains("--label"), "{}", refused.message);
    }

    /// Such a sampler counts the requests that it drops, so the time of a request would be too
    /// short.
    #[test]
    fn a_partial_profile_is_not_compared_per_request() {
        let before = profile(50, 50, Some(100));
        let mut filtered = Builder::new(Settings::default());
        filtered.comment(r#"{"requests":{"read":100,"dropped":{"filtered":410}}}"#);
        let filtered = filtered.finish();
        for (before, after) in [(&before, &filtered), (&filtered, &before)] {
            let refused = Compared::of(before, after, &View::default(), Per::Request);
            let message = refused.map(|_| ()).unwrap_err().message;
            assert!(message.contains("only some requests"), "{message}");
        }
    }

    /// Its receipts are those of the whole profile.
    #[test]
    fn a_labels_samples_are_not_compared_per_request() {
        let before = profile(50, 50, Some(100));
        let view = View {
            labels: vec![("route".to_owned(), "/shop".to_owned())],
            ..View::default()
        };
        let bytes = Format::Pprof.write(&before, &view, "web", None).unwrap();
        let filtered = decode(&bytes, &DecodeLimits::default()).unwrap();
        let of = |per| Compared::of(&before, &filtered, &View::default(), per).map(|_| ());
        assert_eq!(of(Per::Share), Ok(()));
        let refused = of(Per::Request).unwrap_err();
        let message = "the profile after has only samples with route=/shop, but counts the requests of all samples";
        assert_eq!(
            (refused.exit, refused.message.as_str()),
            (Exit::Usage, message)
        );
    }

    #[test]
    fn uncounted_requests_are_not_compared_per_request() {
        let (counted, not) = (profile(1, 1, Some(5)), profile(1, 1, None));
        for (before, after) in [(&counted, &not), (&not, &counted)] {
            let refused = Compared::of(before, after, &View::default(), Per::Request);
            assert_eq!(refused.map(|_| ()).map_err(|it| it.exit), Err(Exit::Usage));
        }
    }
}
