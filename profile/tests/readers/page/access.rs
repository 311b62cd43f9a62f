//! The page for users with a keyboard, a screen reader or another theme: axe-core finds nothing,
//! and keys can be turned off.

use phpprof_profile::page::{differential, page};
use phpprof_profile::{DecodeLimits, NoiseScale, View, decode};

use super::{saved, saved_shop};
use crate::browser::Browser;
use crate::profiles::shop;
use crate::timelines::shop_timeline;

/// The violations that axe-core finds on the current page with these rules: the rule, and its first
/// elements.
pub fn found(browser: &mut Browser, rules: &str) -> String {
    let found = browser.eval(&format!(
        "axe.run(document, {{ resultTypes: ['violations'] {rules} }}).then(({{ violations }}) => violations.map(({{ id, nodes }}) => \
         id + ': ' + nodes.slice(0, 3).map(({{ html, failureSummary }}) => html.slice(0, 160) + ' ' + failureSummary).join(' | ')).join('\\n'))"
    ));
    found.as_str().unwrap().to_owned()
}

/// Loads axe-core into the current page.
pub fn with_axe(browser: &mut Browser) {
    let file = std::env::var("PHPPROF_AXE").expect("no axe-core: run tools/browser first");
    let axe = std::fs::read_to_string(file).unwrap();
    browser.eval(&format!("(() => {{ {axe} }})(); 0"));
}

/// The lowest contrast of a frame's name. axe-core does not check it, because the frame may be
/// translucent over the background.
const CONTRAST: &str = "(() => { \
    const numbers = (colour) => colour.match(/[\\d.]+/g).slice(0, 3).map(Number); \
    const light = (channels) => channels.map((value) => value / 255).map((value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4) \
        .reduce((sum, value, at) => sum + value * [0.2126, 0.7152, 0.0722][at], 0); \
    const ground = numbers(getComputedStyle(document.body).backgroundColor); \
    return [...document.querySelectorAll('#chart g.frame')].reduce((least, frame) => { \
        const { fill, opacity } = getComputedStyle(frame.querySelector('rect')); \
        const pale = numbers(fill).map((value, at) => value * opacity + ground[at] * (1 - opacity)); \
        const [one, other] = [light(pale), light(numbers(getComputedStyle(frame.querySelector('div')).color))]; \
        return Math.min(least, (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05)); }, 21); })()";

/// Checks a page after zooming in and at these fragments, in both themes.
fn check(html: &str, fragments: &[&str]) {
    let mut page = saved(html);
    with_axe(&mut page.browser);
    // If the graph is zoomed in on a frame, its callers are pale.
    page.browser
        .eval("document.querySelector('#chart').focus()");
    for key in ["ArrowDown", "ArrowDown", "Enter"] {
        page.browser.key(key);
    }
    let zoomed = page.browser.eval("location.hash.slice(1)");
    let zoomed = zoomed.as_str().unwrap();
    assert!(zoomed.starts_with("zoom=0."), "{zoomed}");
    // The dark page differs only in its colours.
    for (theme, rules) in [("light", ""), ("dark", ", runOnly: ['color-contrast']")] {
        page.browser.prefer(theme);
        page.browser.wait_for(&format!(
            "document.documentElement.dataset.theme === '{theme}'"
        ));
        for fragment in fragments.iter().chain([&zoomed]) {
            page.browser.eval(&format!(
                "new Promise((done) => {{ addEventListener('hashchange', () => setTimeout(done), {{ once: true }}); location.hash = {fragment:?}; }})"
            ));
            assert_eq!(found(&mut page.browser, rules), "", "{theme} #{fragment}");
            let contrast = page.browser.eval(CONTRAST).as_f64().unwrap();
            assert!(contrast >= 4.5, "{theme} #{fragment}: {contrast}");
        }
    }
    page.check_quiet();
}

#[test]
fn axe_finds_nothing_in_light_and_dark() {
    let timeline = shop_timeline();
    let html = page(&shop(400), &View::default(), "shop/first", Some(&timeline)).unwrap();
    let fragments = [
        "graph=sandwich&function=Shop%5CCart%3A%3Atotal%40%2Fsrv%2Fapp%2Fsrc%2FCart.php&only=*cart",
        "graph=folders&search=~%28&label=pod%3Dweb-1",
        "view=requests",
        "request=0",
    ];
    check(&html, &fragments);
}

#[test]
fn axe_finds_nothing_in_comparisons_and_findings() {
    let html = differential(
        &shop(200),
        &shop(900),
        &View::default(),
        "shop",
        NoiseScale::BY_SAMPLES,
    )
    .unwrap();
    check(&html, &["graph=inverted"]);
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/findings/waiting-database-has.pb.gz"
    );
    let profile = decode(&std::fs::read(file).unwrap(), &DecodeLimits::default()).unwrap();
    let html = page(&profile, &View::default(), "waiting", None).unwrap();
    check(&html, &["graph=inverted"]);
}

#[test]
fn letters_are_shortcuts_until_they_are_turned_off() {
    let mut page = saved_shop();
    let view = "document.body.dataset.view";
    page.browser.key("?");
    assert_eq!(
        page.browser.eval("document.querySelector('#keys').hidden"),
        false
    );
    page.picture("keys.png");
    page.browser.key("t");
    assert_eq!(page.browser.eval(view), "graph");
    page.browser.click("document.querySelector('#shortcuts')");
    page.browser.key("t");
    assert_eq!(page.browser.eval(view), "graph", "t is not a shortcut now");
    page.browser.key("?");
    assert_eq!(
        page.browser.eval("document.querySelector('#keys').hidden"),
        false
    );
    page.browser.open(&page.url.clone());
    page.browser.key("t");
    assert_eq!(page.browser.eval(view), "both", "that is remembered");
    page.check_quiet();
}

#[test]
fn a_chosen_theme_holds_until_the_machine_agrees() {
    let mut page = saved_shop();
    let url = page.url.clone();
    let theme = "document.documentElement.dataset.theme";
    page.browser.key("d");
    page.browser.open(&url);
    assert_eq!(page.browser.eval(theme), "dark");
    page.browser.key("d");
    assert_eq!(page.browser.eval(theme), "light");
    page.browser.prefer("dark");
    page.browser.wait_for(&format!("{theme} === 'dark'"));
    // If the browser stores nothing, the page still works.
    page.browser.call(
        "Page.addScriptToEvaluateOnNewDocument",
        serde_json::json!({"source": "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('no', 'SecurityError'); } })"}),
    );
    page.browser.open(&url);
    page.browser.key("d");
    assert_eq!(page.browser.eval(theme), "light");
    page.browser.open(&url);
    assert_eq!(page.browser.eval(theme), "dark");
    page.check_quiet();
}
