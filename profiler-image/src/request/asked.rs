//! Which labels of requests a run has to show, and which requests it has to keep: values of the
//! command line.

use std::time::Duration;

use phpprof_profile::labels::OF_REQUESTS;
use phpprof_zend::request::{HttpRequest, Wanted};

use super::route::{RouteRules, template_of_file};

/// The largest number of values of one kind on the command line: prefixes, methods, scripts.
pub const MAX_VALUES: usize = 16;

/// A label of a sample that comes from its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum SampleLabel {
    /// GET, POST, …
    Method,
    /// The template of the request's path.
    Route,
    /// The file that serves the request.
    Script,
    /// The request's age, in bands.
    RequestAge,
    /// The ids of trace and parent span in its header `traceparent`: one value, two keys.
    TraceId,
}

impl SampleLabel {
    /// The number of labels.
    pub const COUNT: usize = 5;
    /// All, in the order of their numbers.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Method,
        Self::Route,
        Self::Script,
        Self::RequestAge,
        Self::TraceId,
    ];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        ["Method", "Route", "Script", "RequestAge", "TraceID"][self as usize]
    }

    /// Its key in a profile.
    #[must_use]
    pub fn key(self) -> &'static str {
        OF_REQUESTS[self as usize]
    }
}

/// The requested labels, by their number.
pub type SampleLabels = [bool; SampleLabel::COUNT];

/// Reads a list of names, as `Method,Route`.
///
/// # Errors
/// A name that is not a label's.
pub fn labels(text: &str) -> Result<SampleLabels, String> {
    let mut labels = SampleLabels::default();
    for name in text.split(',').filter(|name| !name.is_empty()) {
        let label = SampleLabel::ALL.iter().find(|label| label.name() == name);
        let label = label.ok_or_else(|| {
            let names = SampleLabel::ALL.map(SampleLabel::name).join(", ");
            format!("{name} is not a label of a request; use {names}")
        })?;
        labels[*label as usize] = true;
    }
    Ok(labels)
}

/// Which requests are kept; an empty list keeps all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestFilter {
    /// The path begins with this, compared byte by byte.
    pub path_prefix: Option<String>,
    /// The method is one of these, as HTTP writes them.
    pub methods: Vec<String>,
    /// The script is one of these, as in the label; a leading slash is ignored.
    pub scripts: Vec<String>,
    /// A sample is kept once its request has run this long.
    pub min_age: Option<Duration>,
    /// Also keeps the earlier samples of a request once it is old enough.
    pub include_young: bool,
}

/// The result of a filter for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterVerdict {
    /// The request matches.
    Kept,
    /// The request does not match.
    Refused,
    /// A property that the filter needs is unknown.
    Unknown,
}

impl RequestFilter {
    /// Whether it may drop anything.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.path_prefix.is_some()
            || !self.methods.is_empty()
            || !self.scripts.is_empty()
            || self.min_age.is_some()
    }

    /// The result for a request, without its age. `script` is the label's value.
    #[must_use]
    pub fn verdict(&self, request: &HttpRequest, script: Option<&str>) -> FilterVerdict {
        let plain = |script: &str| script.trim_start_matches('/').to_owned();
        let path = self.path_prefix.as_ref().map(|prefix| {
            let path = request.path.as_ref()?;
            Some(path.starts_with(prefix))
        });
        let method = (!self.methods.is_empty())
            .then(|| Some(self.methods.contains(request.method.as_ref()?)));
        let script = (!self.scripts.is_empty()).then(|| {
            let script = plain(script?);
            Some(self.scripts.iter().any(|wanted| plain(wanted) == script))
        });
        let parts = [path, method, script];
        let mut parts = parts.into_iter().flatten();
        if parts.clone().any(|part| part == Some(false)) {
            FilterVerdict::Refused
        } else if parts.any(|part| part.is_none()) {
            FilterVerdict::Unknown
        } else {
            FilterVerdict::Kept
        }
    }
}

/// The requested labels, rules and filter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestSettings {
    /// The requested labels.
    pub labels: SampleLabels,
    /// The administrator's names of routes.
    pub rules: RouteRules,
    /// Which requests are kept.
    pub filter: RequestFilter,
}

impl RequestSettings {
    /// Whether anything of requests is read.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.labels.contains(&true) || self.filter.is_on()
    }

    /// Whether a label is requested.
    #[must_use]
    pub fn has(&self, label: SampleLabel) -> bool {
        self.labels[label as usize]
    }

    /// What has to be read of a request.
    #[must_use]
    pub fn wanted(&self) -> Wanted {
        let filter = &self.filter;
        Wanted {
            method: self.has(SampleLabel::Method) || !filter.methods.is_empty(),
            path: self.has(SampleLabel::Route) || filter.path_prefix.is_some(),
            script: self.has(SampleLabel::Script) || !filter.scripts.is_empty(),
            // Names of scripts are relative to it.
            root: self.is_on(),
            traceparent: self.has(SampleLabel::TraceId),
        }
    }
}

/// A script as users see it: relative to the document root if that is known to contain it, else the
/// last two segments of its path, without a user's home.
#[must_use]
pub fn shown_script(script: &str, root: Option<&str>) -> String {
    let below = root.and_then(|root| {
        let rest = script.strip_prefix(root.trim_end_matches('/'))?;
        rest.strip_prefix('/').filter(|_| root.len() > 1)
    });
    let shown = below.map_or_else(
        || {
            let mut segments: Vec<&str> =
                script.split('/').filter(|part| !part.is_empty()).collect();
            if segments.first() == Some(&"home") && script.starts_with('/') {
                segments.drain(..segments.len().min(3) - 1);
            }
            segments[segments.len().saturating_sub(2)..].join("/")
        },
        str::to_owned,
    );
    // An id in it must not be in a profile either.
    template_of_file(&shown).trim_start_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_read_by_their_names() {
        let all = labels("Method,Route,Script,RequestAge,TraceID").unwrap();
        assert_eq!(all, [true; SampleLabel::COUNT]);
        for label in SampleLabel::ALL {
            let name = label.name().to_lowercase();
            assert_eq!(label.key().replace('_', ""), name);
        }
        assert_eq!(labels("").unwrap(), SampleLabels::default());
        assert_eq!(
            labels("route").unwrap_err(),
            "route is not a label of a request; use Method, Route, Script, RequestAge, TraceID"
        );
    }

    #[test]
    fn scripts_begin_at_the_document_root_never_home() {
        let check = |script: &str, root: Option<&str>, expected: &str| {
            assert_eq!(shown_script(script, root), expected);
        };
        let script = "/srv/shop/releases/17/public/index.php";
        check(script, Some("/srv/shop/releases/17/public"), "index.php");
        check(script, Some("/srv/shop/releases/17/public/"), "index.php");
        check(script, Some("/srv/shop/releases/1"), "public/index.php");
        check(script, None, "public/index.php");
        check("/index.php", Some("/"), "index.php");
        check("/home/alice/index.php", None, "index.php");
        check("/home/alice/www/index.php", None, "www/index.php");
        check("worker.php", None, "worker.php");
        check("/srv/müller/index.php", None, "müller/index.php");
        check("/srv/m<fc>ller/i.php", Some("/srv/m<fc>ller"), "i.php");
        check("/srv/www/4815162342/cart", Some("/srv/www"), "{id}/cart");
        check(&format!("/srv/{}", "ü".repeat(500)), None, "srv/{text}");
    }

    #[test]
    fn filters_tell_refused_from_unknown() {
        let filter = RequestFilter {
            path_prefix: Some("/shop".to_owned()),
            methods: vec!["POST".to_owned()],
            scripts: vec!["/index.php".to_owned()],
            ..RequestFilter::default()
        };
        let request = |method: &str, path: Option<&str>| HttpRequest {
            method: Some(method.to_owned()),
            path: path.map(str::to_owned),
            ..HttpRequest::default()
        };
        let check = |request: HttpRequest, script, verdict| {
            assert_eq!(filter.verdict(&request, script), verdict);
        };
        let index = Some("index.php");
        check(request("POST", Some("/shop/7")), index, FilterVerdict::Kept);
        check(
            request("GET", Some("/shop/7")),
            index,
            FilterVerdict::Refused,
        );
        check(request("POST", Some("/")), index, FilterVerdict::Refused);
        check(request("POST", None), index, FilterVerdict::Unknown);
        check(request("GET", None), index, FilterVerdict::Refused);
        check(request("POST", Some("/shop")), None, FilterVerdict::Unknown);
        let all = RequestFilter::default();
        assert_eq!(
            all.verdict(&HttpRequest::default(), None),
            FilterVerdict::Kept
        );
        assert!(!all.is_on());
    }
}
