//! Chooses the stored run of a workload that a comparison compares: the newest that ended before a
//! time.
//!
//! Invariant: what is chosen has a merged profile and a list of HTTP requests, and at most
//! [`LOOKED_AT`] manifests are opened for that.

use jiff::{SignedDuration, Timestamp};
use phpprof_crds::{ProfileTarget, StoredRun};
use phpprof_decide::limits::later;

use crate::sampler::object_keys::{namespace_folder, request_folder};
use crate::storage::archive::{Archive, MOST, Summary, words};
use crate::storage::store::StoreError;

/// The most manifests of fitting runs that are opened.
const LOOKED_AT: usize = 16;

/// Which run is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredQuestion {
    /// The workload, as a listing has it.
    target: String,
    /// Its run ended by then.
    until: Timestamp,
    /// The request of the other side, which is not compared with itself.
    except: Option<String>,
}

/// The request of a stored run. It may have been deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenRun {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

impl StoredQuestion {
    /// The newest run until `now`, unless the spec has an earlier time. `except` is the other
    /// side's request.
    #[must_use]
    pub fn of(run: &StoredRun, now: Timestamp, except: Option<&str>) -> Self {
        let target = ProfileTarget {
            workload_ref: Some(run.workload_ref.clone()),
            ..ProfileTarget::default()
        };
        Self {
            target: words(&target),
            until: run.before.as_ref().map_or(now, |it| it.0),
            except: except.map(str::to_owned),
        }
    }

    fn fits(&self, run: &Summary) -> bool {
        let took = SignedDuration::from_secs(run.duration_seconds.unwrap_or(0).into());
        run.target == self.target
            && later(run.start_time, took) <= self.until
            && self.except.as_ref() != Some(&run.name)
    }

    /// Why there is none, of this many that fit.
    fn none(&self, fitting: usize, left_out: usize) -> String {
        let (target, until) = (&self.target, self.until);
        let among = match left_out {
            0 => String::new(),
            _ => format!(", among the newest {MOST} of the namespace"),
        };
        match fitting {
            0 => {
                format!(
                    "the archive has no profile of {target} that ended before {until:.0}{among}"
                )
            }
            fitting => format!(
                "of the {fitting} stored profiles of {target} that ended before {until:.0}, none of the newest {LOOKED_AT} has a list of HTTP requests by route{among}"
            ),
        }
    }
}

impl Archive {
    /// The run that fits, or why there is none.
    ///
    /// # Errors
    /// The store does not answer in time, or does not allow listing.
    pub async fn newest(
        &self,
        namespace: &str,
        namespace_uid: &str,
        question: &StoredQuestion,
    ) -> Result<Result<ChosenRun, String>, StoreError> {
        let listing = self.list(namespace, namespace_uid).await?;
        let fitting = listing.profiles.iter().filter(|it| question.fits(it));
        let fitting: Vec<_> = fitting.collect();
        let of_namespace = namespace_folder(namespace, namespace_uid);
        for run in fitting.iter().take(LOOKED_AT) {
            let folder = format!("{of_namespace}/{}", request_folder(&run.name, &run.uid));
            match self.open(&folder).await {
                Ok(stored) if stored.merged.is_some() && stored.requests.is_some() => {
                    return Ok(Ok(ChosenRun {
                        name: stored.name,
                        uid: stored.uid,
                    }));
                }
                // It was deleted meanwhile, or cannot be compared.
                Ok(_) | Err(StoreError::Missing(_) | StoreError::TooLarge { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Err(question.none(fitting.len(), listing.left_out)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;
    use serde_json::{Value, json};

    use super::*;
    use crate::sampler::object_keys::MANIFEST;
    use crate::storage::store::ProfileStore;
    use crate::testing::{NAMESPACE_UID, at};

    fn run(name: &str, start: i64) -> Value {
        json!({
            "version": 1, "namespace": "shop", "name": name, "uid": format!("uid-of-{name}"),
            "target": {"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
            "durationSeconds": 30, "startTime": at(start), "expiresAt": at(999_999),
            "merged": {"objectKey": "x", "samples": 7, "sizeBytes": 7},
            "requests": {"objectKey": "y", "sizeBytes": 7, "pods": 1}, "targets": [],
        })
    }

    async fn archive(runs: &[Value]) -> Archive {
        let store = ProfileStore::in_memory(Arc::new(InMemory::new()));
        for run in runs {
            let words = |field: &str| run[field].as_str().unwrap_or_default();
            let folder = namespace_folder("shop", NAMESPACE_UID);
            let key = request_folder(words("name"), words("uid"));
            let key = format!("{folder}/{key}/{MANIFEST}");
            store
                .create(&key, run.to_string().into_bytes())
                .await
                .unwrap();
        }
        Archive::new(store)
    }

    fn question(before: Option<i64>) -> StoredQuestion {
        let run: StoredRun = serde_json::from_value(json!({
            "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "before": before.map(at),
        }))
        .unwrap();
        StoredQuestion::of(&run, at(0), Some("now"))
    }

    async fn chosen(runs: &[Value], question: &StoredQuestion) -> Result<String, String> {
        let archive = archive(runs).await;
        let found = archive.newest("shop", NAMESPACE_UID, question).await;
        found.unwrap().map(|run| run.name)
    }

    #[tokio::test]
    async fn newest_run_that_ended_before_is_chosen() {
        let mut other = run("other", -40);
        other["target"]["workloadRef"]["name"] = json!("api");
        let mut plain = run("plain", -50);
        plain.as_object_mut().unwrap().remove("requests");
        let runs = [
            run("old", -900),
            run("new", -300),
            // It still ran then.
            run("late", -20),
            run("now", -60),
            other,
            plain,
        ];
        for (before, expected) in [(None, "new"), (Some(-300), "old"), (Some(-270), "new")] {
            assert_eq!(chosen(&runs, &question(before)).await.unwrap(), expected);
        }
    }

    #[tokio::test]
    async fn no_run_says_what_was_looked_for() {
        let none = chosen(&[], &question(None)).await.unwrap_err();
        let words = "the archive has no profile of deployment/web that ended before 2026-";
        assert!(none.starts_with(words), "{none}");
        let mut plain = run("plain", -50);
        plain["requests"] = Value::Null;
        let none = chosen(&[plain], &question(None)).await.unwrap_err();
        assert!(
            none.contains("has a list of HTTP requests by route"),
            "{none}"
        );
    }
}
