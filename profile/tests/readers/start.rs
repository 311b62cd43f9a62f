//! The start page in a real browser. The answers replace the operator's, in the form of
//! `contract/archive.json` and `contract/results.json`. The cluster's tests use the operator
//! itself.

use std::collections::HashMap;

use phpprof_profile::page::{differential, page};
use phpprof_profile::start;
use phpprof_profile::{NoiseScale, View};
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::page::{found, pictures, with_axe};
use crate::profiles::shop;
use crate::server::{ServedFile, serve};

/// The path of the service.
const BASE: &str = "/proxy";
const KEY: &str = "q1w2e3r4t5y6u7i8o9p0aA";
/// A user's name that looks like markup.
const HOSTILE: &str = "<img src=x onerror=alert(1)>";

fn uid(number: usize) -> String {
    format!("0b1c2d3e-4f50-4a6b-8c7d-{number:012}")
}

/// This many stored requests, one minute apart, newest first.
fn listed(count: usize) -> Value {
    let profiles = (0..count).rev().map(|number| {
        json!({
            "name": format!("web-{number}"), "uid": uid(number),
            "target": if number % 2 == 0 { "deployment/web" } else { "deployment/import" },
            "requestedBy": if number == 2 { HOSTILE } else { "alice@example.com" },
            "startTime": format!("2026-09-21T{:02}:{:02}:20.5Z", 10 + number / 60, number % 60),
            "durationSeconds": 30, "pods": 2, "samples": 100 * number, "sizeBytes": 48_211 * (number + 1),
            "expiresAt": "2026-09-28T14:13:20Z",
        })
    });
    json!({"bytes": 1_048_576, "leftOut": 3, "profiles": profiles.collect::<Vec<_>>()})
}

fn json_file(value: &Value) -> ServedFile {
    ServedFile {
        kind: "application/json",
        policy: None,
        bytes: value.to_string().into_bytes(),
    }
}

fn html_file(html: String, policy: &'static str) -> ServedFile {
    ServedFile {
        kind: "text/html; charset=utf-8",
        policy: Some(policy),
        bytes: html.into_bytes(),
    }
}

/// The start page, opened with this state after the key in its URL.
fn opened(list: &Value, state: &str) -> (Browser, String) {
    let policy = phpprof_profile::page::CONTENT_SECURITY_POLICY;
    let flame = page(&shop(40), &View::default(), "shop/web-1", None).unwrap();
    let diff = differential(
        &shop(20),
        &shop(90),
        &View::default(),
        "before → after",
        NoiseScale::BY_SAMPLES,
    )
    .unwrap();
    let links = json!({"expiresAt": "2026-09-21T14:08:00Z", "links": [
        {"name": "profile", "path": "/l/1.x/merged.pb.gz"}, {"name": "flame", "path": "/l/1.x/flame.html"},
        {"name": "diff", "path": "/l/1.x/diff-from-x.html"}, {"name": "pod/web-1/fpm", "path": "/l/1.x/web-1.pb.gz"},
    ]});
    let mut files = HashMap::from([
        (
            format!("{BASE}/a/shop"),
            html_file(start::page(), start::CONTENT_SECURITY_POLICY),
        ),
        (format!("POST {BASE}/a/shop"), json_file(list)),
        (format!("{BASE}/l/1.x/flame.html"), html_file(flame, policy)),
        (
            format!("{BASE}/l/1.x/diff-from-x.html"),
            html_file(diff, policy),
        ),
    ]);
    for number in 0..3 {
        let path = format!("POST {BASE}/a/shop/web-{number}/{}", uid(number));
        files.insert(path, json_file(&links));
    }
    let url = format!("{}{BASE}/a/shop#{KEY}{state}", serve(files));
    let mut browser = Browser::start(1360, 620);
    browser.prefer("light");
    browser.open(&url);
    (browser, url)
}

const ROWS: &str = "[...document.querySelectorAll('#rows tr')].map((row) => row.children[2].textContent).join(' ')";

/// The questions that the page has posted.
fn posted(browser: &mut Browser) -> Vec<Value> {
    browser.eval("0");
    let events = browser.events.iter();
    let texts = events.filter_map(|event| event["params"]["request"]["postData"].as_str());
    texts
        .map(|text| serde_json::from_str(text).unwrap())
        .collect()
}

#[test]
fn the_address_keeps_the_lists_sorting_and_search() {
    let (mut browser, url) = opened(&listed(3), "");
    browser.wait_for("document.querySelectorAll('#rows tr').length === 3");
    assert_eq!(browser.text("#title"), "Profiles of shop");
    assert_eq!(
        browser.text("#facts"),
        "3 stored, 1.0 MiB; 3 older ones are in the store and are not listed"
    );
    assert_eq!(browser.eval(ROWS), "web-2 web-1 web-0");
    let first = browser.text("#rows tr");
    for part in [
        "2026-09-21 10:02:20",
        "deployment/web",
        HOSTILE,
        "30 s",
        "200",
        "141.2 KiB",
    ] {
        assert!(first.contains(part), "{part}: {first}");
    }
    browser.click("[...document.querySelectorAll('#heads button')].find((one) => one.textContent === 'Samples')");
    browser.click("[...document.querySelectorAll('#heads button')].find((one) => one.textContent === 'Samples')");
    assert_eq!(browser.eval(ROWS), "web-0 web-1 web-2");
    browser.eval("document.querySelector('#search').focus()");
    browser.write("ALICE deploy");
    browser.wait_for("document.querySelectorAll('#rows tr').length === 2");
    assert_eq!(browser.text("#found"), "2 of 3");
    assert_eq!(posted(&mut browser), [json!({"accessKey": KEY})]);
    let address = browser.eval("location.href");
    let state = format!("{url}&sort=samples-up&search=ALICE+deploy");
    assert_eq!(address, state);
    browser.open("about:blank#x");
    browser.open(&state);
    browser.wait_for("document.querySelectorAll('#rows tr').length === 2");
    assert_eq!(browser.eval(ROWS), "web-0 web-1");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn a_profile_opens_as_graph_and_back_lists() {
    let (mut browser, url) = opened(&listed(3), "&search=import");
    browser.wait_for("document.querySelectorAll('#rows tr').length === 1");
    browser.click("document.querySelector('#rows a')");
    browser.wait_for("document.querySelectorAll('#chart g.frame').length > 3");
    assert_eq!(browser.text("#title"), "shop/web-1");
    browser.eval("history.back()");
    browser.wait_for("document.querySelector('#rows tr')");
    assert_eq!(browser.eval("location.href"), format!("{url}"));
    browser.click("document.querySelector('#rows button')");
    browser.wait_for("document.querySelector('.files a')");
    let links = browser.eval("[...document.querySelectorAll('.files a')].map((one) => one.textContent + '=' + new URL(one.href).pathname).join(' ')");
    assert_eq!(
        links,
        "profile=/proxy/l/1.x/merged.pb.gz flame=/proxy/l/1.x/flame.html diff=/proxy/l/1.x/diff-from-x.html pod/web-1/fpm=/proxy/l/1.x/web-1.pb.gz"
    );
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn two_profiles_are_compared_the_older_one_first() {
    let (mut browser, _) = opened(&listed(3), "");
    browser.wait_for("document.querySelectorAll('#rows tr').length === 3");
    for row in [1, 3] {
        browser.click(&format!(
            "document.querySelector('#rows tr:nth-child({row}) input')"
        ));
    }
    assert_eq!(
        browser.eval("document.querySelector('#rows tr:nth-child(2) input').disabled"),
        true
    );
    assert_eq!(
        browser.text("#compare"),
        "Compare web-0 (2026-09-21 10:00:20) with web-2 (2026-09-21 10:02:20)"
    );
    pictures(&mut browser, "start.png");
    browser.click("document.querySelector('#compare')");
    browser.wait_for("document.querySelectorAll('#chart g.frame').length > 3");
    assert_eq!(browser.text("#title"), "before → after");
    let before = json!({"name": "web-0", "uid": uid(0)});
    assert_eq!(
        posted(&mut browser).last(),
        Some(&json!({"accessKey": KEY, "before": before}))
    );
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn a_refusal_has_the_operators_words() {
    let (mut browser, _) = opened(&listed(3), &format!("&open=gone/{}", uid(9)));
    browser.wait_for("!document.querySelector('#message').hidden");
    assert_eq!(
        browser.text("#said"),
        "the operator answered 404; try again"
    );
    browser.click("document.querySelector('#back')");
    browser.wait_for("document.querySelectorAll('#rows tr').length === 3");
    let (mut browser, _) = opened(&listed(0), "");
    browser.wait_for("!document.querySelector('#profiles').hidden");
    assert_eq!(
        browser.text("#facts"),
        "Nothing is stored. Profile a workload: kubectl phpprof run deploy/NAME -n shop"
    );
}

#[test]
fn a_thousand_profiles_are_listed_by_pages() {
    let (mut browser, _) = opened(&listed(1000), "");
    browser.wait_for("document.querySelectorAll('#rows tr').length === 200");
    browser.click("document.querySelector('#more')");
    browser.wait_for("document.querySelectorAll('#rows tr').length === 400");
}

#[test]
fn axe_finds_nothing_on_the_start_page() {
    let (mut browser, _) = opened(&listed(3), "");
    browser.wait_for("document.querySelectorAll('#rows tr').length === 3");
    with_axe(&mut browser);
    browser.click("document.querySelector('#rows input')");
    browser.click("document.querySelector('#rows button')");
    browser.wait_for("document.querySelector('.files a')");
    for theme in ["light", "dark"] {
        browser.eval(&format!(
            "document.documentElement.dataset.theme = {theme:?}"
        ));
        assert_eq!(found(&mut browser, ""), "", "{theme}");
    }
    pictures(&mut browser, "start-dark.png");
}
