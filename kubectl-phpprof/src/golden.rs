//! Golden tests of every output, at 80 and at 200 columns.

mod examples;

use std::time::Duration;

use phpprof_profile::{View, waiting};
use serde_json::{Value, json};

use crate::cli::{Per, TopSort};
use crate::compare::Compared;
use crate::describe;
use crate::doctor::checks::OperatorFacts;
use crate::failure::Failure;
use crate::findings;
use crate::list::RequestListing;
use crate::output::ListForm;
use crate::output::{NAMED, OutputFlag, OutputForm};
use crate::progress::{RunProgress, ending};
use crate::request::RequestView;
use crate::show::{TopTable, diff_text};
use crate::stored;
use crate::suggest::Suggest;
use crate::version;
use examples::{complete, now, object, profile, running, slow_profile};

const WIDTHS: [usize; 2] = [80, 200];

#[test]
fn lists_are_what_they_were() {
    let objects = [
        complete(),
        running(&[("web-1", "Sampling")]),
        object("fresh", json!({"podName": "web-1"}), json!({})),
    ];
    for (name, form) in [
        ("table", ListForm::Table),
        ("wide", ListForm::Wide),
        ("json", ListForm::Json),
        ("yaml", ListForm::Yaml),
        ("name", ListForm::Name),
    ] {
        for width in WIDTHS {
            for namespaces in [false, true] {
                let listing = RequestListing {
                    output: OutputForm::Form(form),
                    namespaces,
                    width: Some(width),
                    now: now(),
                };
                let text = listing.text(&objects, false).unwrap();
                let of_all = if namespaces { "_all_namespaces" } else { "" };
                insta::assert_snapshot!(format!("list_{name}_{width}{of_all}"), text);
                if [ListForm::Table, ListForm::Wide].contains(&form) && width == 200 {
                    assert!(text.lines().all(|line| line.chars().count() <= width));
                }
            }
        }
    }
}

#[test]
fn lists_of_stored_profiles_stay_as_they_are() {
    let golden: Value = serde_json::from_str(include_str!("../../contract/archive.json")).unwrap();
    let mut profiles = golden["answer"]["profiles"].clone();
    profiles[0]["startTime"] = json!("2026-09-21T14:00:00Z");
    // In the form of older operators.
    let older = json!({"name": "web-x2x4z", "uid": "aaaabbbb-4f50-4a6b-8c7d-9e0f1a2b3c4d", "target": "", "startTime": "2026-09-20T14:00:00Z",
        "durationSeconds": null, "pods": 1, "samples": 12, "sizeBytes": 900, "expiresAt": "2026-09-27T14:00:00Z"});
    profiles.as_array_mut().unwrap().push(older);
    let stored = stored::of_answer(profiles);
    for (name, form) in [
        ("table", ListForm::Table),
        ("wide", ListForm::Wide),
        ("yaml", ListForm::Yaml),
        ("name", ListForm::Name),
    ] {
        let listing = stored::StoredListing {
            output: OutputForm::Form(form),
            width: Some(80),
            now: now(),
        };
        insta::assert_snapshot!(format!("stored_{name}_80"), listing.text(&stored));
    }
}

#[test]
fn one_request_is_no_list() {
    let listing = RequestListing {
        output: OutputForm::Form(ListForm::Json),
        namespaces: false,
        width: None,
        now: now(),
    };
    let value: Value = serde_json::from_str(&listing.text(&[complete()], true).unwrap()).unwrap();
    assert_eq!(value["kind"], "ProfileRequest");
    assert_eq!(value["metadata"]["managedFields"], Value::Null);
    let value: Value = serde_json::from_str(&listing.text(&[complete()], false).unwrap()).unwrap();
    assert_eq!(
        (&value["kind"], value["items"].as_array().unwrap().len()),
        (&json!("List"), 1)
    );
}

#[test]
fn watching_keeps_to_one_form() {
    let (first, second) = (complete(), running(&[("web-1", "Sampling")]));
    let mut text = String::new();
    for form in [
        "table",
        "json",
        "yaml",
        "name",
        "jsonpath={.metadata.name}{'\\n'}",
        "custom-columns=NAME:.metadata.name,PODS:.status.selected",
    ] {
        let listing = RequestListing {
            output: OutputFlag::parse(form, NAMED).unwrap().read().unwrap(),
            namespaces: false,
            width: Some(80),
            now: now(),
        };
        let mut widths = Vec::new();
        text.push_str(&format!("-o {form}\n"));
        for object in [&first, &second] {
            let objects = std::slice::from_ref(object);
            let said = listing.watched(objects, &mut widths).unwrap();
            // The first lines of a document are enough.
            text.extend(said.lines().take(4).map(|line| format!("{line}\n")));
        }
    }
    insta::assert_snapshot!("watch", text);
}

#[test]
fn descriptions_are_what_they_were() {
    for width in WIDTHS {
        let object = complete();
        insta::assert_snapshot!(
            format!("describe_{width}"),
            describe::text(
                &RequestView::of(&object),
                &[],
                &Suggest::default(),
                Some(width),
                now()
            )
        );
    }
    let object = complete();
    let found = phpprof_profile::findings(&slow_profile(), &View::default());
    let text = describe::text(
        &RequestView::of(&object),
        &found,
        &Suggest::default(),
        Some(80),
        now(),
    );
    let silent = describe::text(
        &RequestView::of(&object),
        &[],
        &Suggest::default(),
        Some(80),
        now(),
    );
    let said = text.strip_prefix(&silent).unwrap();
    assert_eq!(
        said,
        findings::brief(
            &found,
            &RequestView::of(&object).name(),
            &Suggest::default(),
            Some(80)
        )
    );
}

#[test]
fn tops_are_what_they_were() {
    let profile = profile(500);
    let table = |by| TopTable::of(&profile, &View::default(), TopSort::Flat, by).unwrap();
    for (name, form) in [
        ("table", ListForm::Table),
        ("wide", ListForm::Wide),
        ("json", ListForm::Json),
        ("yaml", ListForm::Yaml),
        ("name", ListForm::Name),
    ] {
        for width in WIDTHS {
            insta::assert_snapshot!(
                format!("top_{name}_{width}"),
                table(None).text(&OutputForm::Form(form), 4, Some(width))
            );
        }
    }
    insta::assert_snapshot!(
        "top_by_pod_80",
        table(Some("pod")).text(&OutputForm::default(), 10, Some(80))
    );
}

#[test]
fn findings_are_what_they_were() {
    let found = phpprof_profile::findings(&slow_profile(), &View::default());
    for (name, form) in [
        ("table", ListForm::Table),
        ("wide", ListForm::Wide),
        ("json", ListForm::Json),
        ("yaml", ListForm::Yaml),
        ("name", ListForm::Name),
    ] {
        for width in WIDTHS {
            let text = findings::text(&found, &OutputForm::Form(form), Some(width));
            insta::assert_snapshot!(format!("findings_{name}_{width}"), text);
        }
    }
    for width in WIDTHS {
        let text = findings::brief(&found, "web-x2x4z", &Suggest::default(), Some(width));
        assert!(text.lines().all(|line| line.chars().count() <= width));
        insta::assert_snapshot!(format!("findings_of_run_{width}"), text);
    }
}

#[test]
fn what_is_waited_for_is_a_label() {
    let labelled = waiting::labelled(&slow_profile());
    let by = TopTable::of(&labelled, &View::default(), TopSort::Flat, Some("waiting"));
    let text = by.unwrap().text(&OutputForm::default(), 10, Some(80));
    insta::assert_snapshot!("top_by_waiting_80", text);
}

#[test]
fn diffs_are_what_they_were() {
    let diff = Compared::of(&profile(500), &profile(900), &View::default(), Per::Share).unwrap();
    for (name, form) in [
        ("table", ListForm::Table),
        ("wide", ListForm::Wide),
        ("json", ListForm::Json),
        ("yaml", ListForm::Yaml),
        ("name", ListForm::Name),
    ] {
        for width in WIDTHS {
            insta::assert_snapshot!(
                format!("diff_{name}_{width}"),
                diff_text(&diff, &OutputForm::Form(form), 3, Some(width))
            );
        }
    }
}

#[test]
fn progress_is_what_it_was() {
    for width in WIDTHS {
        let mut progress = RunProgress::default();
        let mut text = String::new();
        let steps = [
            (0, object("canary", json!({"podName": "web-1"}), json!({}))),
            (
                2,
                running(&[
                    ("web-7d9f5c6b8-x2x4z", "Sampling"),
                    ("web-7d9f5c6b8-q8k2m", "Pending"),
                ]),
            ),
            (
                20,
                running(&[
                    ("web-7d9f5c6b8-x2x4z", "Sampling"),
                    ("web-7d9f5c6b8-q8k2m", "Sampling"),
                ]),
            ),
            (
                33,
                running(&[
                    ("web-7d9f5c6b8-x2x4z", "Sampling"),
                    ("web-7d9f5c6b8-q8k2m", "Verifying"),
                ]),
            ),
            (
                34,
                running(&[
                    ("web-7d9f5c6b8-x2x4z", "Uploaded"),
                    ("web-7d9f5c6b8-q8k2m", "Failed"),
                ]),
            ),
        ];
        for (seconds, object) in &steps {
            for line in progress.lines(
                &RequestView::of(object),
                Duration::from_secs(*seconds),
                width,
            ) {
                assert!(line.chars().count() <= width);
                text.push_str(&line);
                text.push('\n');
            }
        }
        text.push_str(&ending(&RequestView::of(&complete())));
        insta::assert_snapshot!(format!("progress_{width}"), text);
    }
}

#[test]
fn a_pod_that_was_cut_off_says_so() {
    let mut object = running(&[("web-1", "Uploaded")]);
    object.data["status"]["targets"][0]["reason"] = json!("TargetExited");
    let lines = RunProgress::default().lines(&RequestView::of(&object), Duration::ZERO, 80);
    assert!(lines[1].ends_with(", cut off: TargetExited"), "{lines:?}");
}

#[test]
fn many_pods_are_counted_and_not_listed() {
    let names: Vec<_> = (0..40).map(|index| format!("web-{index}")).collect();
    let states: Vec<_> = names
        .iter()
        .map(|name| (name.as_str(), "Sampling"))
        .collect();
    let lines =
        RunProgress::default().lines(&RequestView::of(&running(&states)), Duration::ZERO, 80);
    assert_eq!(
        (lines.len(), lines.last().unwrap().as_str()),
        (14, "  and 28 more pods")
    );
}

#[test]
fn versions_are_what_they_were() {
    let facts = OperatorFacts {
        ready: 1,
        image: "phpprof.dev/operator:0.1.0".into(),
        arguments: vec!["--sampler-image=phpprof.dev/phpprof:0.1.0".into()],
    };
    for (name, form) in [
        ("table", ListForm::Table),
        ("json", ListForm::Json),
        ("yaml", ListForm::Yaml),
        ("name", ListForm::Name),
    ] {
        insta::assert_snapshot!(
            format!("version_{name}"),
            version::text(Some(Ok(facts.clone())), &OutputForm::Form(form))
        );
    }
    insta::assert_snapshot!(
        "version_unknown",
        version::text(
            Some(Err(
                "you may not read deployment phpprof-operator in phpprof-system".into()
            )),
            &OutputForm::default()
        )
    );
}

#[test]
fn each_api_server_failure_has_a_remedy() {
    let mut text = String::new();
    for (code, message) in [
        (400, "bad"),
        (401, "Unauthorized"),
        (
            403,
            "profilerequests.phpprof.dev is forbidden: User \"ann\" cannot create resource \"profilerequests\" in API group \"phpprof.dev\" in the namespace \"shop\"",
        ),
        (404, "profilerequests.phpprof.dev \"web\" not found"),
        (404, "the server could not find the requested resource"),
        (404, "404 page not found"),
        (409, "profilerequests.phpprof.dev \"web\" already exists"),
        (
            422,
            "ProfileRequest.phpprof.dev \"web\" is invalid: spec.durationSeconds: Invalid value",
        ),
        (429, "too many requests"),
        (503, "the server is currently unable to handle the request"),
        (418, "teapot"),
    ] {
        let status = kube::core::Status {
            code,
            message: message.to_owned(),
            ..kube::core::Status::default()
        };
        let failure = Failure::of_api(
            &Suggest::default(),
            "create profilerequests in namespace shop",
            &kube::Error::Api(Box::new(status)),
        );
        assert!(!failure.hint.is_empty());
        text.push_str(&format!("exit {}\n{failure}\n\n", failure.exit as u8));
    }
    insta::assert_snapshot!("failures", text);
}
