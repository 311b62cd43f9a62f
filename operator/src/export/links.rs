//! Links of a status, from the administrator's templates.
//!
//! Invariant: values in a template are percent-encoded, so no name can change the structure of the
//! link.

use jiff::Timestamp;
use kube::ResourceExt as _;
use phpprof_crds::{ProfileLink, ProfileMode, ProfileRequest};
use url::form_urlencoded::byte_serialize;

use crate::export::series::{service, workload};

/// A link's name, and its URL with placeholders: {namespace}, {name}, {uid}, {workload}, {service},
/// {accessKey}, and {from} and {to} in Unix milliseconds. {from-86400000} is that many milliseconds
/// earlier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkTemplate {
    /// The name that users see.
    pub name: String,
    /// With its placeholders.
    pub url: String,
    /// It shows the series of the profile's time, which what is in heaps does not have.
    pub needs_series: bool,
}

impl std::str::FromStr for LinkTemplate {
    type Err = String;

    /// Reads NAME=URL.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, url)) if !name.is_empty() && url.contains("://") => Ok(LinkTemplate {
                name: name.to_owned(),
                url: url.to_owned(),
                needs_series: false,
            }),
            _ => Err("a link must be NAME=URL".to_owned()),
        }
    }
}

/// The link to the merged profile's page, if the results are at this address.
pub fn page(base: &str) -> LinkTemplate {
    LinkTemplate {
        name: "Flame graph".to_owned(),
        url: format!(
            "{}/r/{{namespace}}/{{name}}#{{accessKey}}",
            base.trim_end_matches('/')
        ),
        needs_series: false,
    }
}

/// The templates, filled in for one request.
pub fn links(
    templates: &[LinkTemplate],
    request: &ProfileRequest,
    access_key: &str,
    now: Timestamp,
) -> Vec<ProfileLink> {
    let status = request.status.clone().unwrap_or_default();
    // Sampling ended a moment ago.
    let started = status.start_time.as_ref().map_or(now, |time| time.0);
    let instants = [
        ("{from", started.as_millisecond()),
        ("{to", now.as_millisecond()),
    ];
    let values = [
        ("{namespace}", request.namespace().unwrap_or_default()),
        ("{name}", request.name_any()),
        ("{uid}", request.uid().unwrap_or_default()),
        ("{workload}", workload(&request.spec.target)),
        ("{service}", service(request)),
        ("{accessKey}", access_key.to_owned()),
    ];
    let dated = |template: &LinkTemplate| {
        let url = template.url.clone();
        let fill = |url: String, (opening, instant): &(&str, i64)| dates(&url, opening, *instant);
        instants.iter().fold(url, fill)
    };
    let fill = |template: &LinkTemplate| ProfileLink {
        name: template.name.clone(),
        url: values
            .iter()
            .fold(dated(template), |url, (placeholder, value)| {
                let value: String = byte_serialize(value.as_bytes()).collect();
                url.replace(placeholder, &value)
            }),
    };
    let has_series = request.spec.mode != ProfileMode::Heap;
    let shown = templates.iter().filter(|it| has_series || !it.needs_series);
    shown.map(fill).collect()
}

/// Fills in {from} and {from-86400000}, or {to}. Any other text with this beginning stays as it is.
fn dates(url: &str, opening: &str, instant: i64) -> String {
    let mut parts = url.split(opening);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let offset = part.split_once('}').and_then(|(offset, rest)| {
            let before = match offset {
                "" => 0,
                _ => offset.strip_prefix('-')?.parse::<u64>().ok()?,
            };
            let before = i64::try_from(before).ok()?;
            Some((instant.saturating_sub(before), rest))
        });
        text += &match offset {
            Some((instant, rest)) => format!("{instant}{rest}"),
            None => format!("{opening}{part}"),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, request};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use phpprof_crds::ProfileRequestStatus;
    use serde_json::json;

    #[track_caller]
    fn check(template: &str, expected: &str) {
        let mut request = request(json!({"target": {"podName": "web"}}));
        request.metadata.name = Some("first&x".to_owned());
        request.status = Some(ProfileRequestStatus {
            start_time: Some(Time(at(0))),
            ..ProfileRequestStatus::default()
        });
        let templates = [template.parse().unwrap()];
        let links = links(&templates, &request, "k_-y", at(31));
        assert_eq!(
            (links[0].name.as_str(), links[0].url.as_str()),
            ("A", expected)
        );
    }

    #[test]
    fn a_template_is_filled_with_encoded_values() {
        check(
            "A=https://g/explore?ns={namespace}&r={name}&from={from}&to={to}#{accessKey}",
            "https://g/explore?ns=shop&r=first%26x&from=1790000000000&to=1790000031000#k_-y",
        );
        check(
            "A=https://g/{uid}/{unknown}",
            "https://g/0b1c2d3e-4f50-4a6b-8c7d-9e0f1a2b3c4d/{unknown}",
        );
    }

    #[test]
    fn an_instant_can_be_so_long_before() {
        check(
            "A=https://g/?from={from-1}&to={to-86400000}&x={from-x}&y={from--1}&z={fromage}&w={to",
            "https://g/?from=1789999999999&to=1789913631000&x={from-x}&y={from--1}&z={fromage}&w={to",
        );
    }

    #[test]
    fn pods_are_linked_to_by_their_workload() {
        check(
            "A=https://g/{workload}?service={service}",
            "https://g/web?service=shop%2Fweb",
        );
    }

    #[test]
    fn heaps_have_no_series_to_open() {
        let series = LinkTemplate {
            needs_series: true,
            ..page("https://grafana.example.org")
        };
        let templates = [page("https://phpprof.example.org"), series];
        let count = |mode: &str| {
            let spec = json!({"target": {"podName": "web"}, "mode": mode, "durationSeconds": 1});
            links(&templates, &request(spec), "k", at(31)).len()
        };
        assert_eq!([count("Profile"), count("Heap")], [2, 1]);
    }

    #[test]
    fn the_fragment_hides_the_page_from_logs() {
        let template = page("https://phpprof.example.org/");
        assert_eq!(
            template.url,
            "https://phpprof.example.org/r/{namespace}/{name}#{accessKey}"
        );
    }

    #[test]
    fn what_is_no_link_is_refused() {
        assert!("https://x".parse::<LinkTemplate>().is_err());
        assert!("=https://x".parse::<LinkTemplate>().is_err());
    }
}
