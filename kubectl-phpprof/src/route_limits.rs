//! Limits of single routes on the command line: `/users/{id}=5%,2ms`.
//!
//! Invariant: a limit has a percentage, milliseconds or both, each once and within the bounds of a
//! ProfileComparison.

use phpprof_profile::change::RouteLimit;

/// The most percent of a limit, and the most milliseconds.
const MOST_PERCENT: f64 = 1_000.0;
const MOST_MILLISECONDS: f64 = 3_600_000.0;
/// The most bytes of a route.
const LONGEST_ROUTE: usize = 512;

/// What is accepted of a request's time: whichever is more.
#[derive(Debug, PartialEq)]
pub struct AcceptedIncrease {
    /// In percent.
    pub percent: f64,
    /// In nanoseconds.
    pub nanoseconds: f64,
}

/// A route with its limits.
///
/// # Errors
/// What to write instead.
pub fn parse(text: &str) -> Result<RouteLimit, String> {
    let (route, limits) = text.rsplit_once('=').ok_or_else(wrong)?;
    if !route.starts_with('/') || route.len() > LONGEST_ROUTE {
        return Err(
            "a route begins with /, as in a verdict, for instance /users/{id}=5%".to_owned(),
        );
    }
    let accepted = accepted(limits)?;
    Ok(RouteLimit {
        route: route.to_owned(),
        accepted_percent: accepted.percent,
        accepted_nanoseconds: accepted.nanoseconds,
    })
}

fn wrong() -> String {
    "write a route and what to accept of it, for instance /users/{id}=5%,2ms".to_owned()
}

/// A percentage, milliseconds or both: `5%,2ms`.
///
/// # Errors
/// What to write instead.
pub fn accepted(limits: &str) -> Result<AcceptedIncrease, String> {
    let (mut percent, mut milliseconds) = (None, None);
    for limit in limits.split(',') {
        let (place, number, most) = match (limit.strip_suffix('%'), limit.strip_suffix("ms")) {
            (Some(number), _) => (&mut percent, number, MOST_PERCENT),
            (None, Some(number)) => (&mut milliseconds, number, MOST_MILLISECONDS),
            (None, None) => return Err(wrong()),
        };
        let number: f64 = number.trim().parse().map_err(|_| wrong())?;
        if !(0.0..=most).contains(&number) {
            return Err(format!("{limit} is not from 0 to {most}"));
        }
        if place.replace(number).is_some() {
            return Err(format!(
                "{limit}: there is another one of its kind; name one"
            ));
        }
    }
    Ok(AcceptedIncrease {
        percent: percent.unwrap_or(0.0),
        nanoseconds: milliseconds.unwrap_or(0.0) * 1e6,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_takes_percent_milliseconds_or_both() {
        for (text, route, percent, nanoseconds) in [
            ("/a=5%", "/a", 5.0, 0.0),
            ("/users/{id}=0.5%,2ms", "/users/{id}", 0.5, 2e6),
            ("/a=b=2ms", "/a=b", 0.0, 2e6),
            ("/=0%", "/", 0.0, 0.0),
        ] {
            let limit = parse(text).unwrap();
            let found = (limit.accepted_percent, limit.accepted_nanoseconds);
            assert_eq!(
                (limit.route.as_str(), found),
                (route, (percent, nanoseconds))
            );
        }
    }

    #[test]
    fn parse_says_what_to_write_instead() {
        for (text, words) in [
            ("/a", "for instance /users/{id}=5%,2ms"),
            ("/a=5", "for instance /users/{id}=5%,2ms"),
            ("/a=%", "for instance"),
            ("/a=NaN%", "not from 0 to 1000"),
            ("a=5%", "begins with /"),
            ("/a=-1%", "not from 0 to 1000"),
            ("/a=1001%", "not from 0 to 1000"),
            ("/a=5%,6%", "name one"),
        ] {
            let refusal = parse(text).unwrap_err();
            assert!(refusal.contains(words), "{text}: {refusal}");
        }
        assert!(parse(&format!("/{}=5%", "a".repeat(LONGEST_ROUTE))).is_err());
    }
}
