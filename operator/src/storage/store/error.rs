//! Errors of the store, as text for users and by cause for metrics.

use std::error::Error;
use std::io;
use std::iter::successors;

use object_store::client::{HttpError, HttpErrorKind};

/// Why a call to the store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The message without parts that differ between tries, because it goes into a status.
    #[error("{0}")]
    Store(String),
    /// Usually because of the bucket's policy.
    #[error("the store denies access; check the permissions of the operator's credentials")]
    Denied,
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
        if matches!(error, object_store::Error::PermissionDenied { .. }) {
            return StoreError::Denied;
        }
        let cause = causes(&error).last().map(ToString::to_string);
        StoreError::Store(match &error {
            object_store::Error::Unauthenticated { .. } => {
                "the store does not accept the operator's credentials".to_owned()
            }
            _ => cause.unwrap_or_default(),
        })
    }
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
