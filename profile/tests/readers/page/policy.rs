//! What the page lets through: nothing but itself, whatever the names in a profile are.

use std::collections::HashMap;

use phpprof_profile::View;
use phpprof_profile::page::{CONTENT_SECURITY_POLICY, page};

use super::{FRAMES, frame, saved, saved_shop};
use crate::browser::Browser;
use crate::profiles::{HOSTILE, hostile, shop};
use crate::server::{ServedFile, serve};
use crate::timelines::shop_timeline;

#[test]
fn a_link_opens_under_the_header_policy() {
    let timeline = shop_timeline();
    let html = page(&shop(400), &View::default(), "shop/first", Some(&timeline)).unwrap();
    let file = ServedFile {
        kind: "text/html; charset=utf-8",
        policy: Some(CONTENT_SECURITY_POLICY),
        bytes: html.into_bytes(),
    };
    let url = serve(HashMap::from([("/r/shop/first".to_owned(), file)])) + "/r/shop/first";
    let mut browser = Browser::start(1200, 800);
    browser.open(&url);
    assert!(browser.eval(FRAMES).as_i64().unwrap() >= 12);
    assert_eq!(browser.complaints(), Vec::<String>::new());
    assert_eq!(browser.requests(), [url]);
}

#[test]
fn names_from_the_target_stay_text() {
    let mut page = saved(&page(&hostile(), &View::default(), HOSTILE[0], None).unwrap());
    assert_eq!(page.browser.eval("document.title"), HOSTILE[0]);
    assert_eq!(
        page.browser
            .eval("document.querySelectorAll('script, img, iframe, svg svg, object').length"),
        3
    );
    page.browser.hover(&frame(HOSTILE[1]));
    assert!(page.browser.text("#tip").contains(HOSTILE[1]));
    page.browser.click(&frame(HOSTILE[1]));
    page.browser.key("/");
    page.browser.write("[(*+");
    page.browser
        .wait_for("document.querySelector('#matches').textContent === 'not found'");
    assert_eq!(
        page.browser
            .eval("document.querySelectorAll('script, img, iframe, svg svg, object').length"),
        3
    );
    page.picture("hostile.png");
    page.check_quiet();
}

#[test]
fn the_policy_stops_foreign_scripts_and_requests() {
    let mut page = saved_shop();
    page.browser.eval(
        "(() => { const script = document.createElement('script'); script.textContent = 'document.title = \"pwned\"'; document.body.append(script); \
         const image = new Image(); image.src = 'http://127.0.0.1:9/'; document.body.append(image); })()",
    );
    page.browser.wait_for("true");
    assert_eq!(page.browser.eval("document.title"), "shop/first");
    let refused = page.browser.complaints();
    assert!(
        refused
            .iter()
            .filter(|complaint| complaint.contains("Content Security Policy"))
            .count()
            >= 2,
        "{refused:?}"
    );
}
