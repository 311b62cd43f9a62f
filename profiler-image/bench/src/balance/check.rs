//! The goals of a table of comparisons: pure.

use super::chance::{REPLICATES, deviation, independent, quantile};
use super::compared::{CLASS_ENDS, CLASSES, ComparedFunction, Comparison, slope};

/// What the sum of a class may be off, as a part of its value.
const CLASS_TOLERANCE: f64 = 0.05;
/// What the slope may be off.
const SLOPE_TOLERANCE: f64 = 0.03;
/// How far from the truth an application may be, beyond what chance does, in points.
const DISTANCE_TOLERANCE: f64 = 1.0;
/// The probability that chance breaks no limit of a function.
const FAMILY: f64 = 0.99;
/// Sums and slopes have few limits; chance passes this many deviations once in 370 of them.
const DEVIATIONS: f64 = 3.0;

/// What a table of comparisons says.
#[derive(Debug, Clone, PartialEq)]
pub struct BalanceVerdict {
    /// Within so many deviations chance leaves all functions at once.
    pub deviations: f64,
    /// True and sampled sums of each class, in percent of all programs.
    pub classes: [[f64; 2]; CLASSES],
    pub slope: f64,
    /// The goals that are missed, and by how much.
    pub missed: Vec<String>,
    /// The functions that are off, of those that are compared.
    pub off: usize,
    pub compared: usize,
}

/// The bound of all functions of these comparisons.
pub fn deviations(comparisons: &[Comparison]) -> f64 {
    let greatest = |replicate: usize| {
        let of = comparisons
            .iter()
            .filter_map(|one| one.chance.greatest.get(replicate));
        of.copied().fold(0.0, f64::max)
    };
    let greatest: Vec<f64> = (0..REPLICATES).map(greatest).collect();
    quantile(&greatest, FAMILY)
}

/// Compares a table with its goals.
pub fn verdict(comparisons: &[Comparison]) -> BalanceVerdict {
    let deviations = deviations(comparisons);
    let functions = || comparisons.iter().flat_map(|one| &one.functions);
    let mut missed = Vec::new();
    for comparison in comparisons {
        for function in comparison
            .functions
            .iter()
            .filter(|one| one.beyond(deviations) > 0.0)
        {
            missed.push(format!(
                "{}: {}",
                comparison.label,
                words(function, deviations)
            ));
        }
    }
    let off = missed.len();
    let count = comparisons.len().max(1) as f64;
    let mut classes = [[0.0; 2]; CLASSES];
    for (class, sums) in classes.iter_mut().enumerate() {
        let mut variance = 0.0;
        for comparison in comparisons {
            let of = comparison.classes()[class];
            sums[0] += of[0] / count;
            sums[1] += of[1] / count;
            variance += (deviation(
                of[0],
                comparison.stops,
                independent(comparison.samples, comparison.worth),
            ) / count)
                .powi(2);
        }
        let [truth, ours] = *sums;
        let beyond = (ours - truth).abs() - CLASS_TOLERANCE * truth - DEVIATIONS * variance.sqrt();
        if beyond > 0.0 {
            missed.push(format!(
                "functions of {} have {ours:.2} %, {truth:.2} % in truth ({:.2} of it)",
                class_name(class),
                ours / truth.max(f64::MIN_POSITIVE)
            ));
        }
    }
    let slope = slope(functions());
    let by_chance = DEVIATIONS * slope_deviation(functions());
    if (slope - 1.0).abs() > SLOPE_TOLERANCE + by_chance {
        missed.push(format!(
            "the slope of our shares on the true ones is {slope:.3}"
        ));
    }
    BalanceVerdict {
        deviations,
        classes,
        slope,
        missed,
        off,
        compared: functions().filter(|function| function.is_counted()).count(),
    }
}

/// A distance of an application that is more than a point above what chance alone makes, in words.
pub fn distance_missed(comparison: &Comparison) -> Option<String> {
    let [chance, _] = comparison.distance_by_chance();
    let distance = comparison.distance();
    (distance > chance + DISTANCE_TOLERANCE).then(|| {
        format!(
            "{}: a distance of {distance:.2} points, {chance:.2} by chance",
            comparison.label
        )
    })
}

/// The peers that are closer to the truth than the first of these, in words.
pub fn closer_peers(by_name: &[(String, Comparison)]) -> Vec<String> {
    let Some(((_, ours), peers)) = by_name.split_first() else {
        return Vec::new();
    };
    let closer = peers
        .iter()
        .filter(|(_, peer)| peer.distance() < ours.distance());
    let words = |(_, peer): &(String, Comparison)| {
        format!(
            "{}: a distance of {:.2} points, ours is {:.2}",
            peer.label,
            peer.distance(),
            ours.distance()
        )
    };
    closer.map(words).collect()
}

/// What chance alone does to the slope.
fn slope_deviation<'all>(functions: impl Iterator<Item = &'all ComparedFunction>) -> f64 {
    let (mut variance, mut square) = (0.0, 0.0);
    for function in functions {
        variance += (function.truth.own * function.spread.own).powi(2);
        square += function.truth.own.powi(2);
    }
    f64::sqrt(variance) / f64::max(square, f64::MIN_POSITIVE)
}

/// A function whose share is off, in words.
pub fn words(function: &ComparedFunction, deviations: f64) -> String {
    let ComparedFunction {
        name, truth, ours, ..
    } = function;
    let taken = function
        .taken
        .map_or(String::new(), |taken| format!(" ({taken:.0} ns)"));
    format!(
        "{name}{taken} has {:.2} % itself and {:.2} % with its callees, {:.2} and {:.2} % in truth; {:.2} points beyond",
        ours.own,
        ours.total,
        truth.own,
        truth.total,
        function.beyond(deviations)
    )
}

/// The words for a class.
pub fn class_name(class: usize) -> String {
    let end = |class: usize| {
        CLASS_ENDS
            .get(class)
            .map(|end| format!("{} µs", end / 1000.0))
    };
    match (class.checked_sub(1).and_then(end), end(class)) {
        (None, Some(end)) => format!("less than {end}"),
        (Some(begin), Some(end)) => format!("{begin} to {end}"),
        (begin, None) => format!("{} and more", begin.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::profile::ShareProfile;
    use super::super::program::ProgramFunction;
    use super::*;

    /// A program of which f takes 50 µs a call, g 0.1 µs.
    fn comparison(ours: [u64; 2]) -> Comparison {
        let profile = |counts: [u64; 2]| {
            let mut profile = ShareProfile::default();
            for (name, count) in ["f", "g"].into_iter().zip(counts) {
                profile.add(
                    vec!["{main}".to_owned(), name.to_owned()],
                    count,
                    count as f64,
                );
            }
            profile
        };
        let known = |calls| ProgramFunction {
            kind: "function",
            calls: Some(calls),
        };
        let known = [("f".to_owned(), known(1)), ("g".to_owned(), known(500))];
        let truth = profile([10_000, 10_000]);
        Comparison::of(
            "p".to_owned(),
            &truth,
            &profile(ours),
            1.0,
            &known.into(),
            100_000.0,
        )
    }

    #[test]
    fn right_shares_miss_nothing() {
        let verdict = verdict(&[comparison([10_050, 9950]), comparison([9940, 10_060])]);
        assert_eq!(verdict.missed, Vec::<String>::new());
        assert_eq!((verdict.off, verdict.compared), (0, 6));
        assert!((2.0..4.5).contains(&verdict.deviations), "{verdict:?}");
    }

    #[test]
    fn wrong_shares_miss_function_class_and_slope() {
        let verdict = verdict(&[comparison([12_000, 8000]), comparison([12_000, 8000])]);
        let has = |text: &str| verdict.missed.iter().any(|missed| missed.contains(text));
        assert!(has("f (50000 ns) has 60.00 %"), "{:?}", verdict.missed);
        assert!(has(
            "functions of 0.1 µs to 0.3 µs have 40.00 %, 50.00 % in truth (0.80 of it)"
        ));
        assert!(!has("slope"), "gains and losses of the same size leave it");
        assert_eq!(verdict.off, 4);
    }

    #[test]
    fn a_flat_slope_is_seen() {
        let mut flat = comparison([10_000, 10_000]);
        for function in &mut flat.functions {
            function.ours.own *= 0.9;
        }
        let missed = verdict(&[flat]).missed;
        assert!(
            missed.iter().any(|missed| missed.contains("slope")),
            "{missed:?}"
        );
    }

    #[test]
    fn a_peer_that_is_closer_is_named() {
        let named = |name: &str, ours| (name.to_owned(), comparison(ours));
        let by_name = [
            named("phpprof", [10_500, 9500]),
            named("phpspy", [10_600, 9400]),
            named("pfp", [10_100, 9900]),
        ];
        let closer = closer_peers(&by_name);
        assert_eq!(closer, ["p: a distance of 0.50 points, ours is 2.50"]);
        assert!(closer_peers(&[]).is_empty());
    }

    #[test]
    fn classes_are_named_by_their_ends() {
        let names: Vec<String> = (0..CLASSES).map(class_name).collect();
        assert_eq!(names[0], "less than 0.1 µs");
        assert_eq!(names[1], "0.1 µs to 0.3 µs");
        assert_eq!(names[5], "10 µs and more");
    }
}
