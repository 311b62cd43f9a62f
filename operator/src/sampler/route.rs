//! The administrator's names for routes, in the format of the sampler's arguments.
//!
//! Invariant: the names take a few kilobytes at most, because a pod's spec has them once for each
//! sampler.

use std::fmt;
use std::str::FromStr;

/// The most names of routes.
pub const MOST: usize = 20;
/// The most bytes of a glob and of a name.
const LONGEST: usize = 128;

/// A glob of paths, and the route's name for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    glob: String,
    name: String,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.glob, self.name)
    }
}

impl FromStr for Route {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (glob, name) = text
            .split_once('=')
            .ok_or_else(|| format!("{text} is not GLOB=NAME, for instance /shop/*/cart=cart"))?;
        let is_printable = |part: &str| part.bytes().all(|byte| byte.is_ascii_graphic());
        let is_short = |part: &str| !part.is_empty() && part.len() <= LONGEST;
        if !glob.starts_with('/') || glob.contains(['?', '#']) {
            return Err(format!(
                "{glob} must be a glob of a path, with a slash first and without a query, for instance /shop/*/cart"
            ));
        }
        if is_short(glob) && is_short(name) && is_printable(glob) && is_printable(name) {
            Ok(Route {
                glob: glob.to_owned(),
                name: name.to_owned(),
            })
        } else {
            Err(format!(
                "glob and name of {text} must have 1 to {LONGEST} printable characters each, without spaces"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let said = match text.parse::<Route>() {
            Ok(route) => route.to_string(),
            Err(error) => error,
        };
        assert!(said.contains(expected), "{said}");
    }

    #[test]
    fn a_route_is_a_glob_and_a_name() {
        check("/shop/*/cart=cart", "/shop/*/cart=cart");
        check("/shop/**=/shop/{rest}", "/shop/**=/shop/{rest}");
    }

    #[test]
    fn a_wrong_route_is_refused_with_remedy() {
        check("/shop", "is not GLOB=NAME");
        check("shop=cart", "with a slash first");
        check("/shop?x=cart", "without a query");
        check("/shop=", "1 to 128 printable characters");
        check("/shop=a b", "without spaces");
        check(&format!("/{}=a", "x".repeat(128)), "1 to 128");
    }
}
