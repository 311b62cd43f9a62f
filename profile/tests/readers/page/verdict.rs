//! The page of a verdict: what it says, and the functions that it names.

use phpprof_profile::page::{PageVerdict, VerdictFunction, VerdictLine, verdict_page};
use phpprof_profile::{NoiseScale, View};

use super::{HIGHLIGHTED, frame, saved};
use crate::profiles::shop;

/// The colour of what the verdict names.
const NAMED: &str = "#ffba1a";

fn page() -> String {
    let line = |amount: &str, sentence: &str, function: Option<&str>| VerdictLine {
        amount: amount.to_owned(),
        sentence: sentence.to_owned(),
        function: function.map(|name| VerdictFunction {
            name: name.to_owned(),
            file: "/srv/app/src/Product.php".to_owned(),
        }),
    };
    let verdict = PageVerdict {
        summary: "Worse: a request takes 458 ms of wall time instead of 202 ms".to_owned(),
        requests: Some([100, 200]),
        scale: NoiseScale::BY_SAMPLES,
        lines: vec![
            line(
                "+90.0 ms",
                "of a request in price",
                Some(r"Shop\Product::price"),
            ),
            line("", "no more than <b>that</b>", None),
        ],
    };
    let title = "after: verdict on what changed since before";
    verdict_page(&shop(200), &shop(900), &View::default(), title, &verdict).unwrap()
}

#[test]
fn a_verdict_marks_and_shows_its_functions() {
    let mut page = saved(&page());
    assert!(page.browser.text("#said").starts_with("Worse: a request"));
    let list = page.browser.text("#list");
    assert_eq!(
        list,
        "+90.0 ms of a request in price no more than <b>that</b>"
    );
    let fill = format!(
        "{}.querySelector('rect').getAttribute('fill')",
        frame(r"Shop\Product::price")
    );
    assert_eq!(page.browser.eval(&fill), NAMED);
    assert!(
        page.browser
            .text("#legend")
            .starts_with("named by the verdict")
    );
    let facts = page.browser.text("#facts");
    assert!(facts.contains("100 requests before, 200 after"), "{facts}");
    page.picture("verdict.png");
    page.browser.click("document.querySelector('#list button')");
    page.browser.wait_for(&format!("{HIGHLIGHTED} > 0"));
    page.check_quiet();
}

/// Twice the time for twice the requests is no change.
#[test]
fn times_of_requests_are_compared_not_shares() {
    let mut page = saved(&page());
    page.browser.hover(&frame("[gc]"));
    let tip = page.browser.text("#tip");
    assert!(tip.contains(" of what a request took before"), "{tip}");
    page.check_quiet();
}
