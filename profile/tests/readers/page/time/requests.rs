//! The list of requests, and the chart of one request over time.

use phpprof_profile::View;
use phpprof_profile::page::page;
use phpprof_profile::timeline::{Moment, Timeline, TimelineNode, TimelineRequest, TreeFunction};
use serde_json::json;

use super::{VIEW, button, has_colour, saved, saved_with};
use crate::profiles::shop;
use crate::timelines::shop_timeline;

const ROWS: &str = "document.querySelectorAll('#asked tr').length";

#[test]
fn the_list_sorts_filters_and_grows_on_demand() {
    let mut timeline = shop_timeline();
    timeline.unlisted_requests = 1_204;
    let mut page = saved_with(&timeline);
    page.browser.key("r");
    page.browser.wait_for(&format!("{VIEW} === 'requests'"));
    assert_eq!(page.browser.eval(ROWS), 100);
    let caution = page.browser.text("#caution");
    assert!(
        caution.contains(
            "Do not derive rates from this list. 1,204 more requests were seen; this list has the slowest. 40 requests were recorded and open"
        ),
        "{caution}"
    );
    let sorted = "document.querySelector('#columns [aria-sort]').textContent + ' ' + document.querySelector('#columns [aria-sort]').getAttribute('aria-sort')";
    assert_eq!(page.browser.eval(sorted), "Duration descending");
    page.picture("requests-light.png");
    page.browser.click(&button("#columns", "Peak heap"));
    assert_eq!(page.browser.eval(sorted), "Peak heap descending");
    page.browser.click(&button("#columns", "Peak heap"));
    assert_eq!(page.browser.eval(sorted), "Peak heap ascending");
    let least = timeline
        .requests
        .iter()
        .min_by_key(|request| request.peak_heap_bytes);
    let least = &least.unwrap().trace_id;
    assert!(
        page.browser
            .eval("document.querySelector('#asked tr:first-child td.trace button').title")
            .as_str()
            .unwrap()
            .ends_with(least)
    );
    // If the browser does not let scripts copy, the page shows the text for copying.
    page.browser
        .click("document.querySelector('#asked tr:first-child td.trace button')");
    page.browser.wait_for(&format!(
        "document.querySelector('#detail').textContent.endsWith({least:?})"
    ));
    page.browser.click(&button("#columns", "Peak heap"));
    page.browser.click(&button("#columns", "Peak heap"));
    let again = page.browser.eval("document.activeElement.textContent");
    assert_eq!(again, "Peak heap", "the focus stays where it was");
    page.browser.click("document.querySelector('#further')");
    assert_eq!(page.browser.eval(ROWS), 200);
    page.browser.key("/");
    page.browser.write("invoice");
    let invoices = timeline.requests.iter();
    let invoices = invoices
        .filter(|request| request.route.contains("invoice"))
        .count();
    page.browser.wait_for(&format!("{ROWS} === {invoices}"));
    page.check_quiet();
}

#[test]
fn what_is_not_whole_is_marked() {
    let mut timeline = shop_timeline();
    let [first, second, ..] = timeline.requests.as_mut_slice() else {
        panic!("no requests")
    };
    first.begin = -5_000_000_000;
    first.is_unfinished = false;
    second.is_unfinished = true;
    let html = page(&shop(400), &View::default(), "shop", Some(&timeline)).unwrap();
    // Recorded requests without their moments, so that the file is not too large.
    let mut page =
        saved(&html.replace("\"unlistedRequests\":0", "\"unlistedRequests\":0,\"cut\":3"));
    page.opens("view=requests");
    let caution = page.browser.text("#caution");
    assert!(
        caution.ends_with(
            "3 more were recorded but left out, because the file would have been too large."
        ),
        "{caution}"
    );
    assert!(!caution.contains("has the slowest"), "{caution}");
    let early = page.browser.text("#asked [data-request='0']");
    assert!(
        early.starts_with("≥ ") && early.contains("before the run"),
        "{early}"
    );
    assert!(early.contains("14:13:15"), "its clock time: {early}");
    let unfinished = page.browser.text("#asked [data-request='1']");
    assert!(
        unfinished.starts_with("≥ ") && unfinished.contains("not ended"),
        "{unfinished}"
    );
    page.check_quiet();
}

#[test]
fn a_request_opens_as_chart_and_escape_returns() {
    let mut page = saved_with(&shop_timeline());
    page.opens("view=requests");
    page.browser
        .click("document.querySelector('#asked tr.recorded td.duration')");
    page.browser.wait_for(&format!("{VIEW} === 'request'"));
    assert_eq!(page.browser.eval("document.activeElement.id"), "course");
    let paper = "document.querySelector('#paper')";
    for name in ["--busy", "--waiting-line"] {
        assert!(has_colour(&mut page, paper, name), "{name} is drawn");
    }
    let longest = page.browser.text("#spans");
    assert!(longest.contains("PDO::exec"), "{longest}");
    page.picture("request-light.png");
    // The kernel's call lasts until the view is rendered from another line of {main}, and {main} as
    // long as both.
    page.browser.key("ArrowDown");
    let detail = page.browser.text("#detail");
    assert!(
        detail.starts_with("{main} (/srv/app/index.php:12–19): begins at "),
        "{detail}"
    );
    for key in ["ArrowDown", "ArrowDown"] {
        page.browser.key(key);
    }
    page.browser.key("Enter");
    assert_eq!(
        page.browser.eval("document.querySelector('#whole').hidden"),
        false
    );
    page.picture("request-zoomed.png");
    page.browser.key("Escape");
    assert_eq!(
        page.browser.eval("document.querySelector('#whole').hidden"),
        true
    );
    page.browser.hover("document.querySelector('#depth')");
    page.browser.key("Escape");
    page.browser.wait_for(&format!("{VIEW} === 'requests'"));
    let link = page
        .browser
        .eval("document.activeElement.getAttribute('href')");
    assert!(link.as_str().unwrap().starts_with("#request="), "{link}");
    page.browser.eval("history.back()");
    page.browser.wait_for(&format!("{VIEW} === 'request'"));
    page.check_quiet();
}

#[test]
fn calls_from_different_lines_share_their_caller() {
    let node = |parent, function, line| TimelineNode {
        parent,
        function,
        line,
    };
    let moment = |begin: i64, node| Moment {
        begin: begin * 1_000_000,
        duration: 10_000_000,
        node,
        waits: false,
    };
    let function = |name: &str| TreeFunction {
        name: name.to_owned(),
        file: "/srv/a.php".to_owned(),
    };
    let timeline = Timeline {
        duration_nanoseconds: 1_000_000_000,
        step_nanoseconds: 10_000_000,
        functions: vec![function("run"), function("load")],
        nodes: vec![
            node(None, 0, 3),
            node(Some(0), 1, 8),
            node(None, 0, 4),
            node(Some(2), 1, 8),
        ],
        requests: vec![TimelineRequest {
            end: 70_000_000,
            // Nothing is known about the time between the last two.
            moments: vec![moment(0, 1), moment(10, 1), moment(20, 3), moment(60, 3)],
            ..TimelineRequest::default()
        }],
        ..Timeline::default()
    };
    let mut page = saved_with(&timeline);
    page.opens("request=0");
    let calls = page
        .browser
        .eval("[...document.querySelectorAll('#spans tr')].map((row) => row.textContent)");
    assert_eq!(
        calls,
        json!([
            "030.00 msrun/srv/a.php:3–4",
            "020.00 msload/srv/a.php:8",
            "20.00 ms10.00 msload/srv/a.php:8",
            "60.00 ms10.00 msload/srv/a.php:8",
        ])
    );
    page.check_quiet();
}
