//! The runs of a template: comparisons like it, one for each release.
//!
//! Invariant: what is created follows from the template and the run's name alone. A comparison is
//! taken for a run only if it compares what the template says.

use kube::ResourceExt as _;
use phpprof_crds::{ProfileComparison, ProfileComparisonSpec, REQUESTED_BY};

use crate::comparison::requests::{is_controlled, owner};

/// The most characters of a run's name. Hashes of pod templates have 10, those of commits 40.
pub const LONGEST_RUN: usize = 63;
/// The most characters of a comparison's name, by a rule of its kind.
const LONGEST_COMPARISON: usize = 246;

/// Whether a text may be the end of an object's name.
#[must_use]
pub fn is_run(name: &str) -> bool {
    let is_end = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = name.as_bytes();
    (1..=LONGEST_RUN).contains(&bytes.len())
        && bytes.iter().all(|it| is_end(it) || *it == b'-')
        && bytes.first().is_some_and(is_end)
        && bytes.last().is_some_and(is_end)
}

/// The name of a template's run; `None` if it would be too long.
#[must_use]
pub fn run_name(template: &str, run: &str) -> Option<String> {
    let name = format!("{template}-{run}");
    (name.len() <= LONGEST_COMPARISON).then_some(name)
}

/// The comparison that runs, with a name of [`run_name`].
#[must_use]
pub fn run_of(template: &ProfileComparison, name: &str) -> ProfileComparison {
    let mut run = ProfileComparison::new(name, spec_of_run(&template.spec));
    run.metadata.namespace = template.namespace();
    // Whose rights a policy has checked, and whom events name, is who created the template.
    if let Some(by) = template.annotations().get(REQUESTED_BY) {
        let by = by.clone();
        run.annotations_mut().insert(REQUESTED_BY.to_owned(), by);
    }
    run.metadata.owner_references = Some(vec![owner(template)]);
    run
}

/// Whether a comparison is a run of this template, and compares what it says.
#[must_use]
pub fn is_run_of(found: &ProfileComparison, template: &ProfileComparison) -> bool {
    let mut spec = spec_of_run(&template.spec);
    // These may change.
    spec.cancel = found.spec.cancel;
    spec.ttl_seconds_after_finished = found.spec.ttl_seconds_after_finished;
    is_controlled(&found.metadata, template) && found.spec == spec
}

fn spec_of_run(spec: &ProfileComparisonSpec) -> ProfileComparisonSpec {
    ProfileComparisonSpec {
        template: false,
        cancel: false,
        ..spec.clone()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn template() -> ProfileComparison {
        let pod = |name: &str| json!({"target": {"podName": name}});
        let object = json!({
            "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileComparison",
            "metadata": {"name": "web", "namespace": "shop", "uid": "t1",
                "annotations": {REQUESTED_BY: "ann", "other": "x"}},
            "spec": {"before": pod("a"), "after": pod("b"), "template": true, "maxIncreasePercent": 2},
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_run_follows_from_template_and_name() {
        let template = template();
        let run = run_of(&template, "web-7d9f");
        assert_eq!(run, run_of(&template, "web-7d9f"));
        assert_eq!(
            (run.name_any(), run.namespace()),
            ("web-7d9f".to_owned(), Some("shop".to_owned()))
        );
        assert!(!run.spec.template);
        assert_eq!(run.spec.before, template.spec.before);
        assert!((run.spec.max_increase_percent - 2.0).abs() < f64::EPSILON);
        let annotations = run.annotations().clone();
        assert_eq!(
            annotations,
            [(REQUESTED_BY.to_owned(), "ann".to_owned())].into()
        );
        assert!(is_run_of(&run, &template));
    }

    #[test]
    fn only_its_own_comparison_is_a_run() {
        let template = template();
        let run = run_of(&template, "web-7d9f");
        let mut changed = run.clone();
        changed.spec.cancel = true;
        changed.spec.ttl_seconds_after_finished = 9;
        assert!(is_run_of(&changed, &template));
        // Whoever may create comparisons may write any owner into them.
        let mut forged = run.clone();
        forged.spec.after = forged.spec.before.clone();
        assert!(!is_run_of(&forged, &template));
        let mut foreign = run.clone();
        foreign.metadata.owner_references = None;
        assert!(!is_run_of(&foreign, &template));
        let mut older = template.clone();
        older.metadata.uid = Some("t0".to_owned());
        assert!(!is_run_of(&run, &older));
    }

    #[test]
    fn a_run_is_named_like_objects() {
        for name in ["7d9f5c6b8", "a", "v1-2", &"x".repeat(63)] {
            assert!(is_run(name), "{name}");
        }
        for name in ["", "-a", "a-", "A", "a/b", "a.b", "ä", &"x".repeat(64)] {
            assert!(!is_run(name), "{name}");
        }
        assert_eq!(run_name("web", "7d9f").as_deref(), Some("web-7d9f"));
        assert_eq!(run_name(&"x".repeat(240), "7d9f5c6b8"), None);
    }
}
