//! One name for a function, from the sampler's and from Xdebug's: pure.
//!
//! | function | ours | Xdebug | here |
//! |---|---|---|---|
//! | method | `A::m` | `A->m`, `A::m` | `A::m` |
//! | closure, by its place | `{closure:FILE:7}` | `A->N\{closure:FILE:7-9}` | `{closure:FILE:7}` |
//! | method of an anonymous class | `P@anonymous:FILE:7::m` | `{anonymous-class:FILE:7-9}->m` | `@anonymous:FILE:7::m` |
//! | script | `include FILE` | `require_once`, and FILE | `include FILE` |
//! | eval()'d code | `eval FILE(7) : eval()'d code` | `eval`, called at FILE and 7 | as ours |
//! | callback by a dispatcher | `call_user_func` | `call_user_func:{FILE:7}` | `call_user_func` |

use std::borrow::Cow;

/// The call of a line of a trace, by its fields in Xdebug's format 1.
#[derive(Debug, Clone, Copy)]
pub struct TracedCall<'a> {
    pub function: &'a str,
    /// The file that `include` and similar statements include.
    pub included: &'a str,
    /// The file of the call.
    pub file: &'a str,
    pub line: &'a str,
}

impl TracedCall<'_> {
    /// Whether it is a method that PHP calls instead of a missing one.
    pub fn is_magic(&self) -> bool {
        self.function.ends_with("->__call") || self.function.ends_with("::__callStatic")
    }

    /// The callee's name.
    pub fn name(&self) -> Cow<'_, str> {
        match self.function {
            "include" | "include_once" | "require" | "require_once" => {
                format!("include {}", self.included).into()
            }
            "eval" => format!("eval {}({}) : eval()'d code", self.file, self.line).into(),
            function => match (function.find("{closure:"), function.split_once(":{")) {
                (Some(begin), _) => format!("{}}}", without_last_line(&function[begin..])).into(),
                (None, Some((dispatcher, _))) if !function.contains("->") => dispatcher.into(),
                _ => method(function),
            },
        }
    }
}

/// The name of one of our frames.
pub fn sampled(name: &str) -> Cow<'_, str> {
    if name.starts_with("{main} ") {
        // A profile names the file.
        return "{main}".into();
    }
    match name.find("@anonymous:") {
        Some(begin) if !name.starts_with('{') => name[begin..].into(),
        _ => name.into(),
    }
}

fn method(name: &str) -> Cow<'_, str> {
    let Some((class, method)) = name.split_once("->") else {
        return name.into();
    };
    match class.strip_prefix("{anonymous-class:") {
        Some(place) => format!("@anonymous:{}::{method}", without_last_line(place)).into(),
        None => format!("{class}::{method}").into(),
    }
}

/// `FILE:7` of `FILE:7-9}`.
fn without_last_line(place: &str) -> &str {
    place.rsplit_once('-').map_or(place, |(begin, _)| begin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_has_one_name_here_and_there() {
        let check = |function, ours: &str| {
            let call = TracedCall {
                function,
                included: "/x.php",
                file: "/a.php",
                line: "7",
            };
            assert_eq!(call.name(), sampled(ours), "{function}");
        };
        check("{main}", "{main}");
        check("{main}", "{main} /srv/load.php");
        check("N\\f", "N\\f");
        check("N\\A->m", "N\\A::m");
        check("N\\A::m", "N\\A::m");
        check("require_once", "include /x.php");
        check("eval", "eval /a.php(7) : eval()'d code");
        check("call_user_func:{/a.php:7}", "call_user_func");
        check("{closure:/a.php:7-9}", "{closure:/a.php:7}");
        check("N\\A->N\\{closure:/a-b.php:7-9}", "{closure:/a-b.php:7}");
        check(
            "A::{closure:/a.php(7) : eval()'d code:1-166}",
            "{closure:/a.php(7) : eval()'d code:1}",
        );
        check(
            "{anonymous-class:/a-b.php:7-9}->m",
            "A@anonymous:/a-b.php:7::m",
        );
    }

    #[test]
    fn different_functions_keep_different_names() {
        let ours = [
            "A@anonymous:/a.php:7::m",
            "A@anonymous:/a.php:8::m",
            "{closure:/x@anonymous:7}",
        ];
        let expected = [
            "@anonymous:/a.php:7::m",
            "@anonymous:/a.php:8::m",
            "{closure:/x@anonymous:7}",
        ];
        assert_eq!(ours.map(|name| sampled(name).into_owned()), expected);
    }
}
