//! The flags of `phpprof record` for requests, and what it prints about them at its end.

use std::path::Path;
#[cfg(feature = "host")]
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use phpprof::failure::{Reason, SamplerFailure};
use phpprof::request::asked::{self, RequestFilter, RequestSettings, SampleLabel, SampleLabels};
use phpprof::request::route::{RouteRule, RouteRules};
use phpprof::request::values::OTHER;
use phpprof::run::Recording;

#[cfg(feature = "host")]
use super::OUTPUT;
use super::{REQUESTS, say};

/// Labels of HTTP requests, and which requests are kept.
#[derive(Args)]
pub struct LabelArguments {
    /// Labels of a sample's HTTP request, separated by commas: Method, Route, Script, RequestAge,
    /// TraceID. Query strings, cookies, arguments, bodies and other headers are never read.
    #[arg(long, value_name = "LABELS", value_parser = asked::labels, default_value = "", help_heading = REQUESTS)]
    labels: SampleLabels,
    /// Name for the paths that match a glob, for instance /shop/*/cart=cart: * is one segment, **
    /// at the end is any rest. May be repeated. The first match applies, before the built-in rules.
    #[arg(long, value_name = "GLOB=NAME", value_parser = RouteRule::parse, help_heading = REQUESTS)]
    route: Vec<RouteRule>,
    /// Keep only requests whose path begins with this.
    #[arg(long, value_name = "PREFIX", value_parser = path_prefix, help_heading = REQUESTS)]
    path_prefix: Option<String>,
    /// Keep only requests with this method. May be repeated.
    #[arg(long, value_name = "METHOD", value_parser = method, help_heading = REQUESTS)]
    method: Vec<String>,
    /// Keep only requests of this script, written as in the label Script. May be repeated.
    #[arg(long, value_name = "PATH", help_heading = REQUESTS)]
    script: Vec<String>,
    /// Keep only the samples of requests that have run for at least this time.
    #[arg(long, value_name = "MILLISECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400_000), help_heading = REQUESTS)]
    min_request_age_ms: Option<u64>,
    /// Also keep the earlier samples of such requests.
    #[arg(long, requires = "min_request_age_ms", help_heading = REQUESTS)]
    include_young: bool,
    /// Write the slowest requests, what each did in order, and a timeline to this file, as gzipped
    /// JSON. This turns on the label Route.
    #[cfg(feature = "host")]
    #[arg(id = "requests", long = "requests", value_name = "FILE", help_heading = OUTPUT)]
    list: Option<PathBuf>,
}

impl LabelArguments {
    /// The file for the list of requests.
    #[cfg(feature = "host")]
    pub fn file(&self) -> Option<&Path> {
        self.list.as_deref()
    }

    /// A pod's list of requests is uploaded.
    #[cfg(not(feature = "host"))]
    pub fn file(&self) -> Option<&Path> {
        None
    }

    /// The values of the flags.
    pub fn asked(&self) -> Result<RequestSettings, SamplerFailure> {
        let usage = |detail: String| SamplerFailure::new(Reason::Usage, "requests", detail);
        let rules = RouteRules::new(self.route.clone()).map_err(usage)?;
        if self.method.len().max(self.script.len()) > asked::MAX_VALUES {
            let most = asked::MAX_VALUES;
            return Err(usage(format!(
                "at most {most} methods and scripts can be kept"
            )));
        }
        let mut labels = self.labels;
        labels[SampleLabel::Route as usize] |= self.file().is_some();
        Ok(RequestSettings {
            labels,
            rules,
            filter: RequestFilter {
                path_prefix: self.path_prefix.clone(),
                methods: self.method.clone(),
                scripts: self.script.clone(),
                min_age: self.min_request_age_ms.map(Duration::from_millis),
                include_young: self.include_young,
            },
        })
    }
}

/// Prints how many samples the filter dropped, and how many have no labels.
pub fn summarize(recording: &Recording) {
    let Some(told) = &recording.facts.requests else {
        return;
    };
    let counts = told.counts;
    if told.has_filter {
        say(&format!(
            "the filter dropped {} samples of other requests, {} of younger requests and {} of unknown requests",
            counts.filtered, counts.young, counts.undecided
        ));
    }
    if counts.unknown + counts.changed > 0 {
        say(&format!(
            "{} samples have no labels of a request: the request is unknown for {}, and changed during the read for {}",
            counts.unknown + counts.changed,
            counts.unknown,
            counts.changed
        ));
    }
    for label in SampleLabel::ALL {
        let other = told.table.other[label as usize];
        if other > 0 {
            say(&format!(
                "{other} requests have the value {OTHER} for {}: there were more values than the sampler keeps; name routes with --route",
                label.key()
            ));
        }
    }
}

fn path_prefix(text: &str) -> Result<String, String> {
    if text.starts_with('/') && !text.contains(['?', '#']) {
        Ok(text.to_owned())
    } else {
        Err("a path must begin with / and have no query".to_owned())
    }
}

fn method(text: &str) -> Result<String, String> {
    let may_be = |byte: u8| byte.is_ascii_uppercase() || byte == b'-';
    if !text.is_empty() && text.bytes().all(may_be) {
        Ok(text.to_owned())
    } else {
        Err("a method must be in capitals, for instance POST".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        requests: LabelArguments,
    }

    fn parsed(flags: &[&str]) -> Option<RequestSettings> {
        let words = [&["record"], flags].concat();
        Flags::try_parse_from(words).ok()?.requests.asked().ok()
    }

    #[test]
    fn nothing_is_asked_for_by_default() {
        assert_eq!(parsed(&[]), Some(RequestSettings::default()));
    }

    #[test]
    fn the_flags_of_the_contract_are_understood() {
        let asked = parsed(&[
            "--labels=Method,Route,Script,RequestAge,TraceID",
            "--route=/shop/*/cart=cart",
            "--route=/blog/**=blog",
            "--path-prefix=/shop",
            "--method=POST",
            "--method=PUT",
            "--script=index.php",
            "--min-request-age-ms=2000",
            "--include-young",
        ]);
        let asked = asked.unwrap();
        assert_eq!(asked.labels, [true; SampleLabel::COUNT]);
        assert_eq!(asked.rules.route("/shop/7/cart"), "cart");
        assert_eq!(asked.rules.route("/blog/a/b"), "blog");
        let filter = RequestFilter {
            path_prefix: Some("/shop".to_owned()),
            methods: vec!["POST".to_owned(), "PUT".to_owned()],
            scripts: vec!["index.php".to_owned()],
            min_age: Some(Duration::from_secs(2)),
            include_young: true,
        };
        assert_eq!(asked.filter, filter);
    }

    #[test]
    fn flags_that_mean_nothing_are_refused() {
        let many: Vec<String> = (0..65)
            .map(|number| format!("--route=/{number}=x"))
            .collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for flags in [
            &["--labels=Cookie"][..],
            &["--route=shop"],
            &["--path-prefix=shop"],
            &["--path-prefix=/?token"],
            &["--method=post"],
            &["--min-request-age-ms=0"],
            &["--include-young"],
            &["--method=GET"; 17],
            &many,
        ] {
            assert_eq!(parsed(flags), None, "{flags:?}");
        }
    }
}
