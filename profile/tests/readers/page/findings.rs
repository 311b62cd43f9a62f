//! The findings and waits that the page shows after a click or a key.

use phpprof_profile::page::page;
use phpprof_profile::{DecodeLimits, View, decode};

use super::{HIGHLIGHTED, Saved, saved, saved_shop};

/// The page of a recorded program with a problem.
fn saved_with(problem: &str) -> Saved {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/findings");
    let bytes = std::fs::read(format!("{folder}/{problem}-has.pb.gz")).unwrap();
    let profile = decode(&bytes, &DecodeLimits::default()).unwrap();
    saved(&page(&profile, &View::default(), problem, None).unwrap())
}

#[test]
fn a_finding_shows_its_function_in_the_graph() {
    let mut page = saved_with("gc");
    assert_eq!(page.browser.text("#said"), "1 finding");
    let said = page.browser.text("#list");
    assert!(
        said.contains(" % of the CPU time PHP's garbage collector runs often"),
        "{said}"
    );
    assert_eq!(page.browser.eval(HIGHLIGHTED), 0);
    page.browser
        .eval("document.querySelector('#list button').focus()");
    page.browser.key("Enter");
    page.browser.wait_for(&format!("{HIGHLIGHTED} > 0"));
    let pressed = "document.querySelector('#list button').getAttribute('aria-pressed')";
    assert_eq!(page.browser.eval(pressed), "true");
    let facts = page.browser.text("#facts");
    assert!(facts.ends_with(" cpu"), "the share is of CPU time: {facts}");
    page.picture("finding.png");
    page.browser.key("Escape");
    page.browser.wait_for(&format!("{HIGHLIGHTED} === 0"));
    assert_eq!(page.browser.eval(pressed), "false");
    page.check_quiet();
}

#[test]
fn one_click_shows_what_waits_for_the_database() {
    let mut page = saved_with("waiting-database");
    let button = "[...document.querySelectorAll('#waits button')].find((one) => one.textContent === 'Waits: database')";
    page.browser.click(button);
    page.browser
        .wait_for(&format!("{button}.getAttribute('aria-pressed') === 'true'"));
    let rows = "[...document.querySelectorAll('#rows tr')].map((row) => nameOfRow(row)).join(' ')";
    let rows = rows.replace(
        "nameOfRow(row)",
        "row.querySelector('td.name button').textContent",
    );
    assert_eq!(page.browser.eval(&rows), "PDO::exec Orders::store {main}");
    page.picture("waiting.png");
    page.browser
        .click("document.querySelector('#waits button')");
    page.browser
        .wait_for(&format!("{rows} !== 'PDO::exec Orders::store {{main}}'"));
    page.check_quiet();
}

#[test]
fn a_page_without_findings_says_nothing() {
    let mut page = saved_shop();
    for hidden in ["#findings", "#waits"] {
        let hidden = format!("document.querySelector('{hidden}').hidden");
        assert_eq!(page.browser.eval(&hidden), true);
    }
    page.check_quiet();
}
