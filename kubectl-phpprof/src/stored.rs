//! The stored profiles of a namespace, including those of deleted requests: `list --stored`, and
//! names that no request has any more.
//!
//! The namespace's ProfileArchive has the key. The operator lists and opens what is stored
//! (`contract/README.md`, "What is stored of a namespace").
//!
//! Invariant: JSON and YAML have the operator's answer, field by field.

use jiff::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject};
use phpprof_crds::{ARCHIVE, ProfileArchive};
use serde_json::Value;

use crate::connect::Cluster;
use crate::duration::age;
use crate::failure::{Exit, Failure};
use crate::jsonpath::Path;
use crate::output::ListForm;
use crate::output::yaml;
use crate::output::{self, OutputForm, columns_table};
use crate::results::{self, AccessKey, ResultPart};
use crate::suggest::Suggest;
use crate::table::Table;

/// The characters of a uid that distinguish requests of one name.
const SHORT: usize = 8;

/// The requested name: NAME, or NAME@ and the beginning of a uid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedName<'a> {
    pub name: &'a str,
    pub uid: Option<&'a str>,
}

impl<'a> AskedName<'a> {
    pub fn of(text: &'a str) -> Self {
        match text.split_once('@') {
            Some((name, uid)) => AskedName {
                name,
                uid: Some(uid),
            },
            None => AskedName {
                name: text,
                uid: None,
            },
        }
    }
}

/// The stored profiles of a namespace, newest first.
pub struct StoredProfiles {
    answer: Value,
    access_key: AccessKey,
    suggest: Suggest,
}

/// The stored profile of one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StoredEntry<'a>(pub &'a Value);

impl<'a> StoredEntry<'a> {
    pub fn words(&self, field: &str) -> &'a str {
        self.0[field].as_str().unwrap_or_default()
    }

    pub fn number(&self, field: &str) -> i64 {
        self.0[field].as_i64().unwrap_or(0)
    }

    /// The seconds from now to this field, if it is a time.
    pub fn until(&self, field: &str, now: Timestamp) -> Option<i64> {
        let time: Timestamp = self.words(field).parse().ok()?;
        Some(time.as_second() - now.as_second())
    }

    /// The name with the beginning of the uid, as a user can type it.
    pub fn full_name(&self) -> String {
        let uid: String = self.words("uid").chars().take(SHORT).collect();
        format!("{}@{uid}", self.words("name"))
    }
}

impl StoredProfiles {
    pub async fn of(cluster: &Cluster) -> Result<Self, Failure> {
        let access_key = access_key(cluster).await?;
        let answer = results::ask_archive(cluster, &access_key).await?;
        let suggest = cluster.suggest.clone();
        Ok(StoredProfiles {
            answer,
            access_key,
            suggest,
        })
    }

    pub fn entries(&self) -> Vec<StoredEntry<'_>> {
        let profiles = self.answer["profiles"].as_array();
        profiles.into_iter().flatten().map(StoredEntry).collect()
    }

    /// The newest match, with a note for the user.
    pub fn find(&self, asked: AskedName<'_>) -> Result<(StoredEntry<'_>, String), Failure> {
        pick(&self.entries(), asked, &self.suggest)
    }

    /// Completions of the typed text, newest first: names, or after an `@` names with uids. Each
    /// says how long it is kept.
    pub fn proposals(&self, typed: &str, most: usize, now: Timestamp) -> Vec<(String, String)> {
        let mut proposals: Vec<(String, String)> = Vec::new();
        for entry in self.entries() {
            let name = if typed.contains('@') {
                entry.full_name()
            } else {
                entry.words("name").to_owned()
            };
            let is_there = proposals.iter().any(|(there, _)| *there == name);
            if is_there || !name.starts_with(typed) || !name.chars().all(is_of_a_name) {
                continue;
            }
            let left = entry.until("expiresAt", now);
            let kept = left.map(|left| format!(", for {} more", age(left)));
            proposals.push((name, format!("stored{}", kept.unwrap_or_default())));
            if proposals.len() == most {
                break;
            }
        }
        proposals
    }

    /// A file of one request from the store.
    pub async fn fetch(
        &self,
        cluster: &Cluster,
        entry: StoredEntry<'_>,
        part: ResultPart<'_>,
    ) -> Result<Vec<u8>, Failure> {
        let (name, uid) = (entry.words("name"), entry.words("uid"));
        let path = format!("{}/{name}/{uid}", self.access_key.path);
        let access_key = AccessKey {
            path,
            key: self.access_key.key.clone(),
        };
        results::download(cluster, &access_key, &entry.full_name(), part).await
    }
}

/// Whether the character is safe for a shell: those of requests' names, and the `@` before a uid.
fn is_of_a_name(letter: char) -> bool {
    letter.is_ascii_lowercase() || letter.is_ascii_digit() || "-.@".contains(letter)
}

/// The key of the namespace's archive.
pub async fn access_key(cluster: &Cluster) -> Result<AccessKey, Failure> {
    let namespace = &cluster.namespace;
    let action = format!("get profilearchives/{ARCHIVE} in namespace {namespace}");
    let resource = ApiResource::erase::<ProfileArchive>(&());
    let archives: Api<DynamicObject> =
        Api::namespaced_with(cluster.client.clone(), namespace, &resource);
    let archive = archives
        .get(ARCHIVE)
        .await
        .map_err(|error| match Failure::of_api(&cluster.suggest, &action, &error) {
            failure if failure.exit == Exit::NotFound => Failure {
                hint: format!(
                    "the operator makes it with the first request that it accepts in a namespace: {}",
                    cluster.suggest.phpprof("run TYPE/NAME")
                ),
                ..failure
            },
            failure => failure,
        })?;
    match archive.data["status"]["accessKey"].as_str() {
        Some(key) => Ok(AccessKey {
            path: format!("/a/{namespace}"),
            key: key.to_owned(),
        }),
        None => Err(Failure::new(
            Exit::NotFound,
            format!("the archive of namespace {namespace} has no access key yet"),
            "try again in a moment; if this persists, ask the operator's administrator to look at its log",
        )),
    }
}

fn pick<'a>(
    entries: &[StoredEntry<'a>],
    asked: AskedName<'_>,
    suggest: &Suggest,
) -> Result<(StoredEntry<'a>, String), Failure> {
    let named: Vec<StoredEntry<'_>> = entries
        .iter()
        .filter(|entry| entry.words("name") == asked.name)
        .copied()
        .collect();
    let begins = |entry: &&StoredEntry<'_>| {
        let uid = entry.words("uid");
        asked.uid.is_none_or(|beginning| uid.starts_with(beginning))
    };
    let found: Vec<&StoredEntry<'_>> = named.iter().filter(begins).collect();
    let others = |without: Option<&StoredEntry<'_>>| {
        let others = named.iter().filter(|entry| Some(*entry) != without);
        others
            .map(StoredEntry::full_name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    match (found.as_slice(), asked.uid) {
        ([only], _) => Ok((**only, taken(only))),
        ([newest, ..], None) => {
            let others = others(Some(newest));
            Ok((
                **newest,
                format!("{}; older ones with that name: {others}", taken(newest)),
            ))
        }
        ([_, ..], Some(uid)) => Err(Failure::new(
            Exit::Usage,
            format!(
                "several requests named {} have a uid that begins with {uid:?}",
                asked.name
            ),
            format!("write more of it; there are {}", others(None)),
        )),
        ([], _) if named.is_empty() => Err(Failure::new(
            Exit::NotFound,
            format!("no profile of a request {} is stored", asked.name),
            format!("see what is: {}", suggest.phpprof("list --stored")),
        )),
        ([], _) => Err(Failure::new(
            Exit::NotFound,
            format!(
                "no request named {} has a uid that begins with {:?}",
                asked.name,
                asked.uid.unwrap_or_default()
            ),
            format!("there are {}", others(None)),
        )),
    }
}

fn taken(entry: &StoredEntry<'_>) -> String {
    format!(
        "taken from the store: {}, of {}",
        entry.full_name(),
        entry.words("startTime")
    )
}

/// How stored profiles are listed.
#[derive(Clone, Debug)]
pub struct StoredListing {
    pub output: OutputForm,
    pub width: Option<usize>,
    pub now: Timestamp,
}

impl StoredListing {
    pub fn text(&self, stored: &StoredProfiles) -> String {
        self.of(&stored.answer, &stored.entries())
    }

    /// Only this entry.
    pub fn single(&self, entry: StoredEntry<'_>) -> String {
        self.of(entry.0, &[entry])
    }

    /// A document of the operator, or a row for each of its entries.
    fn of(&self, document: &Value, entries: &[StoredEntry<'_>]) -> String {
        match &self.output {
            OutputForm::Form(ListForm::Json) => pretty(document),
            OutputForm::Form(ListForm::Yaml) => yaml(document),
            OutputForm::Form(ListForm::Table) => self.table(entries).text(self.width),
            OutputForm::Form(ListForm::Wide) => self.table(entries).text(None),
            OutputForm::Form(ListForm::Name) => {
                entries.iter().map(|it| it.full_name() + "\n").collect()
            }
            OutputForm::JsonPath(template) => template.text(document),
            OutputForm::Columns(columns) => {
                let items: Vec<Value> = entries.iter().map(|entry| entry.0.clone()).collect();
                columns_table(columns, &items).text(None)
            }
        }
    }

    fn table(&self, entries: &[StoredEntry<'_>]) -> Table {
        let wide = self.output == OutputForm::Form(ListForm::Wide);
        let mut heads = vec!["NAME", "~TARGET", ">PODS", ">SAMPLES", "AGE", "?EXPIRES"];
        if wide {
            heads.extend([">DURATION", ">BYTES", "REQUESTED-BY", "UID"]);
        }
        let mut table = Table::new(&heads);
        for entry in entries {
            let dash = |words: &str| match words {
                "" => "-".to_owned(),
                words => words.to_owned(),
            };
            let old = entry.until("startTime", self.now).map(|seconds| -seconds);
            let left = entry.until("expiresAt", self.now);
            let mut cells = vec![
                entry.full_name(),
                dash(entry.words("target")),
                entry.number("pods").to_string(),
                entry.number("samples").to_string(),
                old.map_or_else(|| "-".to_owned(), age),
                left.map_or_else(|| "-".to_owned(), |left| format!("in {}", age(left))),
            ];
            if wide {
                let duration = entry.0["durationSeconds"].as_i64();
                cells.push(duration.map_or_else(|| "-".to_owned(), |it| format!("{it}s")));
                cells.push(entry.number("sizeBytes").to_string());
                cells.push(dash(entry.words("requestedBy")));
                cells.push(entry.words("uid").to_owned());
            }
            table.row(cells);
        }
        table
    }
}

fn pretty(value: &Value) -> String {
    // Serialising a value cannot fail.
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

/// `list --stored`.
pub async fn list(
    cluster: &Cluster,
    listing: StoredListing,
    sort_by: Option<&Path>,
) -> Result<String, Failure> {
    let mut stored = StoredProfiles::of(cluster).await?;
    if let Some(profiles) = stored.answer["profiles"].as_array_mut() {
        output::sort(profiles, sort_by, Value::clone)?;
    }
    let left_out = stored.answer["leftOut"].as_u64().unwrap_or(0);
    if left_out > 0 {
        eprintln!("{left_out} older requests are not listed; the store has them.");
    }
    if listing.output.is_table() && stored.entries().is_empty() {
        eprintln!("Namespace {} has no stored profiles.", cluster.namespace);
        return Ok(String::new());
    }
    Ok(listing.text(&stored))
}

/// What a name refers to.
pub enum NamedResult {
    Request(Box<DynamicObject>),
    /// No request has this name, but a profile of a deleted one is stored.
    Stored(StoredProfiles),
}

/// The request with this name. If there is none, its stored profile.
pub async fn named(cluster: &Cluster, name: &str) -> Result<NamedResult, Failure> {
    let asked = AskedName::of(name);
    if asked.uid.is_some() {
        return Ok(NamedResult::Stored(StoredProfiles::of(cluster).await?));
    }
    let gone = match cluster.request(name).await {
        Ok(object) => return Ok(NamedResult::Request(Box::new(object))),
        Err(failure) if failure.exit == Exit::NotFound => failure,
        Err(failure) => return Err(failure),
    };
    let stored = match StoredProfiles::of(cluster).await {
        Ok(stored) => match stored.find(asked) {
            Ok(_) => Ok(stored),
            Err(failure) => Err(failure),
        },
        Err(failure) => Err(failure),
    };
    // For a mistyped name, the missing request is reported first.
    stored.map(NamedResult::Stored).map_err(|failure| Failure {
        hint: format!("{}; in the store: {}", gone.hint, failure.message),
        ..gone
    })
}

#[cfg(test)]
pub fn of_answer(profiles: Value) -> StoredProfiles {
    StoredProfiles {
        answer: serde_json::json!({"bytes": 0, "leftOut": 0, "profiles": profiles}),
        access_key: AccessKey {
            path: String::new(),
            key: String::new(),
        },
        suggest: Suggest::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn stored() -> StoredProfiles {
        of_answer(json!([
            {"name": "web", "uid": "aaaa1111-2", "startTime": "2026-09-21T14:02:00Z"},
            {"name": "web", "uid": "aaab2222-2", "startTime": "2026-09-21T14:01:00Z"},
            {"name": "api", "uid": "cccc3333-2", "startTime": "2026-09-21T14:00:00Z"},
        ]))
    }

    #[track_caller]
    fn check(text: &str, expected: Result<(&str, &str), &str>) {
        let stored = stored();
        match (stored.find(AskedName::of(text)), expected) {
            (Ok((entry, note)), Ok((uid, part))) => {
                assert!(entry.words("uid").starts_with(uid), "{entry:?}");
                assert!(note.contains(part), "{note}");
            }
            (Err(failure), Err(part)) => {
                let text = failure.to_string();
                assert!(text.contains(part) && !failure.hint.is_empty(), "{text}");
            }
            (found, _) => panic!("{found:?}"),
        }
    }

    #[test]
    fn the_newest_profile_of_a_name_is_taken() {
        check(
            "api",
            Ok((
                "cccc",
                "taken from the store: api@cccc3333, of 2026-09-21T14:00:00Z",
            )),
        );
        check(
            "web",
            Ok(("aaaa", "older ones with that name: web@aaab2222")),
        );
        check("web@aaab", Ok(("aaab", "web@aaab2222")));
        check("web@aaab2222", Ok(("aaab", "web@aaab2222")));
    }

    #[track_caller]
    fn check_proposals(typed: &str, most: usize, expected: &[&str]) {
        let now = "2026-09-21T14:00:00Z".parse().unwrap();
        let proposals = stored().proposals(typed, most, now);
        let names: Vec<&str> = proposals.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, expected, "{typed:?}");
    }

    #[test]
    fn stored_names_are_proposed_once_or_with_uids() {
        check_proposals("", 9, &["web", "api"]);
        check_proposals("w", 9, &["web"]);
        check_proposals("web@", 9, &["web@aaaa1111", "web@aaab2222"]);
        check_proposals("web@aaab", 9, &["web@aaab2222"]);
        check_proposals("", 1, &["web"]);
        check_proposals("blog", 9, &[]);
    }

    #[test]
    fn what_a_shell_could_interpret_is_not_proposed() {
        let hostile = ["$(reboot)", "a\nb", "a b", "Ä", "good.name-1"];
        let hostile = hostile.map(
            |name| json!({"name": name, "uid": "aaaa1111-2", "expiresAt": "2026-09-24T14:00:00Z"}),
        );
        let now = "2026-09-21T14:00:00Z".parse().unwrap();
        let proposals = of_answer(json!(hostile)).proposals("", 9, now);
        assert_eq!(
            proposals,
            [("good.name-1".to_owned(), "stored, for 3d more".to_owned())]
        );
    }

    #[test]
    fn a_missing_or_ambiguous_name_says_what_exists() {
        check("blog", Err("no profile of a request blog is stored"));
        check("web@ff", Err("there are web@aaaa1111, web@aaab2222"));
        check(
            "web@aaa",
            Err("write more of it; there are web@aaaa1111, web@aaab2222"),
        );
    }
}
