//! Stored profiles of a namespace, for clients with the access key of its archive: a list, and
//! links to the files of each request.
//!
//! Invariant: a key opens something only if it belongs to the current namespace and the current
//! archive, and only in the folder of that namespace's uid.

use std::convert::Infallible;
use std::iter::once;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use futures::stream;
use serde::Deserialize;

use super::{
    COMPARISON, KeyQuestion, LinkedFile, Results, away, busy, files, held, no_question, private,
    question, refuse,
};
use crate::http::keyring::ArchiveRef;
use crate::sampler::object_keys::{UID_LENGTH, namespace_folder, request_folder};
use crate::storage::archive::ArchiveListing;

const NEW_KEY: &str = "this accessKey does not open what is stored of this namespace; it stands in the namespace's archive: \
    kubectl get profilearchive profiles -o jsonpath='{.status.accessKey}'";
const NO_REQUEST: &str = "that is not the name and uid of a request";
/// The longest name of a Kubernetes object.
const LONGEST_NAME: usize = 253;

/// Another request, to compare the opened one with.
#[derive(Deserialize)]
pub(super) struct Before {
    name: String,
    uid: String,
}

pub(super) async fn list(
    State(results): State<Arc<Results>>,
    Path(namespace): Path<String>,
    body: Body,
) -> Response {
    let namespace_uid = match opened(&results, &namespace, body).await {
        Ok((namespace_uid, _)) => namespace_uid,
        Err(refusal) => return refusal,
    };
    let folder = namespace_folder(&namespace, &namespace_uid);
    let Some(share) = results.shares.take(folder) else {
        return busy();
    };
    match results.archive.list(&namespace, &namespace_uid).await {
        Ok(listing) => held(private(written(listing), "application/json"), share),
        Err(error) => away(error),
    }
}

/// The format of contract/archive.json. Rows are written as the client reads them, so a slow client
/// does not hold a copy of the list.
fn written(listing: ArchiveListing) -> Body {
    let ArchiveListing {
        profiles,
        left_out,
        bytes,
    } = listing;
    let head = format!(r#"{{"bytes":{bytes},"leftOut":{left_out},"profiles":["#);
    let rows = profiles.into_iter().enumerate().map(|(place, profile)| {
        // Serialising strings and numbers cannot fail.
        let row = serde_json::to_string(&*profile).unwrap_or_default();
        match place {
            0 => row,
            _ => format!(",{row}"),
        }
    });
    let pieces = once(head).chain(rows).chain(once("]}".to_owned()));
    Body::from_stream(stream::iter(pieces.map(Ok::<_, Infallible>)))
}

pub(super) async fn open(
    State(results): State<Arc<Results>>,
    Path((namespace, name, uid)): Path<(String, String, String)>,
    body: Body,
) -> Response {
    let (namespace_uid, question) = match opened(&results, &namespace, body).await {
        Ok(opened) => opened,
        Err(refusal) => return refusal,
    };
    let before = question.before;
    let asked = before.iter().map(|it| (&*it.name, &*it.uid));
    if !asked
        .chain([(&*name, &*uid)])
        .all(|(name, uid)| is_request(name, uid))
    {
        return refuse(StatusCode::BAD_REQUEST, NO_REQUEST);
    }
    let within = namespace_folder(&namespace, &namespace_uid);
    let folder = format!("{within}/{}", request_folder(&name, &uid));
    let Some(_share) = results.shares.take(folder.clone()) else {
        return busy();
    };
    let stored = match results.archive.open(&folder).await {
        Ok(stored) => stored,
        Err(error) => return away(error),
    };
    let pods = stored.uploaded().map(|target| {
        let (pod, container) = (&*target.pod_name, &*target.container_name);
        (pod, container, &*target.object_key)
    });
    let mut files = files(stored.merged.is_some(), stored.requests.is_some(), pods);
    if let Some(before) = before.filter(|_| stored.merged.is_some()) {
        let before = request_folder(&before.name, &before.uid);
        match results.archive.open(&format!("{within}/{before}")).await {
            Ok(stored) => files.extend(stored.merged.is_some().then(|| comparison(&before))),
            Err(error) => return away(error),
        }
    }
    results.answer(&folder, files)
}

/// The page that compares a request with the one in this folder.
fn comparison(before: &str) -> LinkedFile {
    let (begin, end) = COMPARISON;
    LinkedFile {
        link: "diff".to_owned(),
        name: format!("{begin}{before}{end}"),
    }
}

/// The uid of the namespace whose archive the posted key opens, and the question. A missing
/// namespace gets the same answer as a wrong key.
async fn opened(
    results: &Results,
    namespace: &str,
    body: Body,
) -> Result<(String, KeyQuestion), Response> {
    let question = question(body).await.ok_or_else(no_question)?;
    let archive = (results.find_archive)(namespace);
    let opened = archive.and_then(|archive| {
        let namespace_uid = archive.status.as_ref()?.namespace_uid.clone();
        let bound = ArchiveRef::new(&archive, &namespace_uid);
        let opens = results.keyring.is_archive_key(&bound, &question.access_key);
        opens.then_some(namespace_uid)
    });
    match opened {
        Some(namespace_uid) => Ok((namespace_uid, question)),
        None => Err(refuse(StatusCode::FORBIDDEN, NEW_KEY)),
    }
}

/// Whether they form one folder name, and no path out of it.
fn is_request(name: &str, uid: &str) -> bool {
    let plain = |text: &str, more: &str| {
        let is_plain = |letter: char| {
            letter.is_ascii_lowercase() || letter.is_ascii_digit() || more.contains(letter)
        };
        !text.is_empty() && text.chars().all(is_plain)
    };
    name.len() <= LONGEST_NAME && uid.len() == UID_LENGTH && plain(name, "-.") && plain(uid, "-")
}
