//! Errors of the store, as text for users and by cause for metrics.

use std::error::Error;
use std::io;
use std::iter::successors;

use object_store::client::{HttpError, HttpErrorKind};

use crate::sampler::store_answer::{StoreAnswer, certificate_in_message, in_message};

/// Why a call to the store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The message without parts that differ between tries, because it goes into a status.
    #[error("{0}")]
    Store(String),
    /// Usually because of the bucket's policy. Has the cause in words.
    #[error("{0}")]
    Denied(String),
    /// The store has no create-only writes. Has what the probe found.
    #[error(
        "{0}; use another store, or allow it with store.allowOverwrite in the chart (docs/security.md says what that weakens)"
    )]
    Overwrites(&'static str),
    /// The key.
    #[error("object {0} does not exist")]
    Missing(String),
    /// Nothing of the object was kept.
    #[error("object {key} has more than {limit} bytes")]
    TooLarge {
        /// The object's key.
        key: String,
        /// The limit for this kind of object.
        limit: u64,
    },
    /// `file://` and Azure cannot sign, and neither can some credentials.
    #[error("this store cannot sign create-only writes")]
    CannotSign,
}

impl From<object_store::Error> for StoreError {
    fn from(error: object_store::Error) -> Self {
        let cause = deepest(&error);
        let answer = in_message(&cause);
        let words = answer.as_ref().map(StoreAnswer::words);
        let certificate = certificate_in_message(&cause).map(ToOwned::to_owned);
        let words = words.or(certificate);
        match error {
            object_store::Error::PermissionDenied { .. } => {
                StoreError::Denied(words.unwrap_or_else(|| DENIED.to_owned()))
            }
            _ => StoreError::Store(words.unwrap_or(cause)),
        }
    }
}

/// Of a volume.
const DENIED: &str = "the store denies access; check the permissions of the operator's credentials";

/// The words of the deepest cause. The others differ between tries: they have times.
pub(super) fn deepest(error: &object_store::Error) -> String {
    let cause = causes(error).last().map(ToString::to_string);
    cause.unwrap_or_default()
}

/// The calls to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Head,
    Get,
    Put,
    List,
    Delete,
    Sign,
}

impl Operation {
    pub(crate) const ALL: [Operation; 6] = [
        Operation::Head,
        Operation::Get,
        Operation::Put,
        Operation::List,
        Operation::Delete,
        Operation::Sign,
    ];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Operation::Head => "head",
            Operation::Get => "get",
            Operation::Put => "put",
            Operation::List => "list",
            Operation::Delete => "delete",
            Operation::Sign => "sign",
        }
    }
}

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    Timeout,
    /// The store could not be reached, or the connection broke.
    Connection,
    NotFound,
    Denied,
    Throttled,
    /// An error of the store itself: 5xx.
    Server,
    Full,
    Other,
}

impl Trouble {
    pub(crate) const ALL: [Trouble; 8] = [
        Trouble::Timeout,
        Trouble::Connection,
        Trouble::NotFound,
        Trouble::Denied,
        Trouble::Throttled,
        Trouble::Server,
        Trouble::Full,
        Trouble::Other,
    ];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Trouble::Timeout => "timeout",
            Trouble::Connection => "connection",
            Trouble::NotFound => "not_found",
            Trouble::Denied => "denied",
            Trouble::Throttled => "throttled",
            Trouble::Server => "server",
            Trouble::Full => "full",
            Trouble::Other => "other",
        }
    }

    pub(crate) fn of(error: &object_store::Error) -> Self {
        match error {
            object_store::Error::NotFound { .. } => Trouble::NotFound,
            object_store::Error::PermissionDenied { .. }
            | object_store::Error::Unauthenticated { .. } => Trouble::Denied,
            _ => causes(error).find_map(of_cause).unwrap_or(Trouble::Other),
        }
    }
}

/// The error and its causes, the deepest last.
fn causes(error: &object_store::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    let first: &(dyn Error + 'static) = error;
    successors(Some(first), |&error| error.source())
}

fn of_cause(cause: &(dyn Error + 'static)) -> Option<Trouble> {
    if let Some(http) = cause.downcast_ref::<HttpError>() {
        return match http.kind() {
            HttpErrorKind::Timeout => Some(Trouble::Timeout),
            HttpErrorKind::Connect | HttpErrorKind::Request | HttpErrorKind::Interrupted => {
                Some(Trouble::Connection)
            }
            _ => None,
        };
    }
    if let Some(file) = cause.downcast_ref::<io::Error>() {
        return match file.kind() {
            io::ErrorKind::TimedOut => Some(Trouble::Timeout),
            io::ErrorKind::NotFound => Some(Trouble::NotFound),
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Some(Trouble::Denied)
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Some(Trouble::Full),
            _ => None,
        };
    }
    answered(&cause.to_string())
}

/// By the status of the answer. object_store 0.14 has it only in the message.
fn answered(words: &str) -> Option<Trouble> {
    const BEFORE: &str = "Server returned non-2xx status code: ";
    let status = words.strip_prefix(BEFORE)?;
    let code: u16 = status.get(..3)?.parse().ok()?;
    match code {
        429 => Some(Trouble::Throttled),
        // S3 throttles with this code.
        503 if status.contains("SlowDown") => Some(Trouble::Throttled),
        507 => Some(Trouble::Full),
        401 | 403 => Some(Trouble::Denied),
        408 | 504 => Some(Trouble::Timeout),
        500.. => Some(Trouble::Server),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
