//! The tool `list_profiles`: requests and stored profiles of the namespace, or files.
//!
//! Invariant: a name in the list is one that the other tools accept.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kube::api::DynamicObject;
use serde::Serialize;
use serde_json::json;

use super::answer::{AgentAnswer, AgentNexts, AgentPlace};
use super::files::AgentFile;
use super::quote::{quoted, quoted_path};
use crate::cli::ListFlags;
use crate::connect::Cluster;
use crate::duration::age;
use crate::failure::Failure;
use crate::request::{RequestView, ShownOutcome};
use crate::stored::{StoredEntry, StoredProfiles};
use crate::watch::listed;

const ROWS: usize = 50;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListBody {
    profiles: Vec<ListRow>,
    left_out: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ListRow {
    profile: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    target: String,
    /// Of a request: why it is in its state.
    #[serde(skip_serializing_if = "String::is_empty")]
    state: String,
    age: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    samples: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip)]
    seconds: i64,
    /// Whether there is a profile to read.
    #[serde(skip)]
    is_there: bool,
}

/// What a namespace has.
pub async fn of_cluster(
    cluster: &Cluster,
    place: &AgentPlace,
    allows_run: bool,
) -> Result<AgentAnswer, Failure> {
    let objects = listed(cluster, &ListFlags::default()).await?;
    // Only an addition: a user may be allowed to list requests, and not to read the archive.
    let stored = StoredProfiles::of(cluster).await.ok();
    let rows = rows(&objects, stored.as_ref(), Timestamp::now());
    answer(rows, 0, place, allows_run)
}

fn rows(
    objects: &[DynamicObject],
    stored: Option<&StoredProfiles>,
    now: Timestamp,
) -> Vec<ListRow> {
    let mut rows: Vec<ListRow> = objects.iter().map(|object| row(object, now)).collect();
    let uids = objects.iter().filter_map(|it| it.metadata.uid.as_deref());
    let uids: BTreeSet<&str> = uids.collect();
    let entries = stored.map(StoredProfiles::entries).unwrap_or_default();
    let gone = entries.iter().filter(|it| !uids.contains(it.words("uid")));
    rows.extend(gone.map(|entry| stored_row(*entry, now)));
    rows.sort_by(|one, other| {
        let key = |row: &ListRow| (row.seconds, row.profile.clone());
        key(one).cmp(&key(other))
    });
    rows
}

fn row(object: &DynamicObject, now: Timestamp) -> ListRow {
    let request = RequestView::of(object);
    let seconds = request.age(now);
    let has_url = !request.words("/status/profile/url").is_empty();
    ListRow {
        profile: request.name(),
        target: quoted(&request.target_words()),
        state: match request.reason() {
            "" => "Waiting".to_owned(),
            reason => quoted(reason),
        },
        age: age(seconds),
        samples: request.at("/status/profile/samples").as_i64(),
        bytes: None,
        seconds,
        is_there: has_url && request.outcome() == ShownOutcome::Complete,
    }
}

fn stored_row(entry: StoredEntry<'_>, now: Timestamp) -> ListRow {
    let seconds = entry.until("startTime", now).map_or(i64::MAX, |it| -it);
    ListRow {
        profile: entry.full_name(),
        target: quoted(entry.words("target")),
        state: "stored, its request is deleted".to_owned(),
        age: match seconds {
            i64::MAX => String::new(),
            seconds => age(seconds),
        },
        samples: Some(entry.number("samples")),
        bytes: None,
        seconds,
        is_there: true,
    }
}

/// What the files are.
pub fn of_files(
    files: &[AgentFile],
    left_out: usize,
    place: &AgentPlace,
) -> Result<AgentAnswer, Failure> {
    let now = Timestamp::now().as_second();
    let rows = files.iter().map(|file| {
        let modified = i64::try_from(file.modified / 1_000_000_000).unwrap_or(now);
        ListRow {
            profile: quoted_path(&file.name),
            age: age(now.saturating_sub(modified)),
            bytes: Some(file.bytes),
            seconds: now.saturating_sub(modified),
            is_there: !file.name.ends_with("requests.json.gz"),
            ..ListRow::default()
        }
    });
    answer(rows.collect(), left_out, place, false)
}

fn answer(
    rows: Vec<ListRow>,
    left_out: usize,
    place: &AgentPlace,
    allows_run: bool,
) -> Result<AgentAnswer, Failure> {
    let mut next = AgentNexts::default();
    let readable: Vec<&ListRow> = rows.iter().filter(|row| row.is_there).collect();
    if readable.len() == 2 {
        // Whoever has two has them to compare.
        compare(&mut next, &readable);
    }
    for row in readable.iter().take(2) {
        let name = json!({"profile": row.profile});
        next.add(
            "describe_profile",
            "whether the profile is good enough",
            name,
        );
    }
    compare(&mut next, &readable);
    let running = rows.iter().find(|row| !row.is_there && !place.local_files);
    if let Some(row) = running {
        let name = json!({"profile": row.profile});
        next.add("describe_profile", "why it has no profile yet", name);
    }
    let lists = rows
        .iter()
        .filter(|row| row.profile.ends_with("requests.json.gz"));
    for row in lists.take(1) {
        let name = json!({"profile": row.profile});
        next.add("requests", "the slowest HTTP requests", name);
    }
    let note = match (readable.is_empty(), allows_run, place.local_files) {
        (false, ..) => None,
        (true, true, _) => Some("There is no profile to read yet: take one with the tool run."),
        (true, false, true) => Some("None of the files is a profile."),
        (true, false, false) => Some(
            "There is no profile to read yet. A user takes one with: kubectl phpprof run TYPE/NAME",
        ),
    };
    let body = |count: usize| ListBody {
        profiles: rows.iter().take(count).cloned().collect(),
        left_out: left_out + rows.len().saturating_sub(count),
        note,
    };
    AgentAnswer::fitted(place, rows.len().min(ROWS), body, &next)
}

/// Suggests a verdict on the newest two, if they are of one target.
fn compare(next: &mut AgentNexts, readable: &[&ListRow]) {
    if let [after, before, ..] = readable
        && after.target == before.target
    {
        let both = json!({"before": before.profile, "after": after.profile});
        let why = "whether requests differ between the newest two";
        next.add("verdict", why, both);
    }
}
