//! What exports have in common: why flags do not allow one, what became of one, and URLs.
//!
//! Invariant: a URL has neither a user nor a query, so it can be shown, and a path can be added.

use phpprof_crds::EventReason;
use url::Url;

use crate::export::retry::ExportClientError;
use crate::export::series::MOST_LABELS;

/// Why the flags do not allow an export.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The URL of this flag is not allowed.
    #[error(
        "{0} must be http://… or https://…, with a host and without a user, a query and a fragment"
    )]
    Url(&'static str),
    /// A token or a user that cannot be in a header.
    #[error("{0}")]
    Header(String),
    /// A label of `--pyroscope-label`.
    #[error("--pyroscope-label is given more than {MOST_LABELS} times, or one name twice")]
    Labels,
    /// The endpoint, an attribute or the headers of OTLP.
    #[error("{0}")]
    Otlp(String),
    /// One header cannot have both.
    #[error("Pyroscope has a token and a username: set one of them")]
    TwoCredentials,
    /// TLS could not be set up, for instance because a CA bundle is not PEM.
    #[error(transparent)]
    Client(#[from] ExportClientError),
}

/// The result of one export, for an event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Exported {
    pub is_done: bool,
    pub reason: EventReason,
    pub note: String,
}

impl Exported {
    pub(super) fn done(reason: EventReason, note: String) -> Self {
        Exported {
            is_done: true,
            reason,
            note,
        }
    }

    pub(super) fn failed(reason: EventReason, note: String) -> Self {
        Exported {
            is_done: false,
            reason,
            note,
        }
    }
}

/// A URL to which a path can be added.
pub(super) fn plain<'a>(url: &'a Url, flag: &'static str) -> Result<&'a Url, ExportError> {
    let good = matches!(url.scheme(), "http" | "https")
        && url.has_host()
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    good.then_some(url).ok_or(ExportError::Url(flag))
}

pub(super) fn below(url: &Url, flag: &'static str, path: &str) -> Result<Url, ExportError> {
    let base = plain(url, flag)?.as_str().trim_end_matches('/');
    Url::parse(&format!("{base}/{path}")).map_err(|_| ExportError::Url(flag))
}
