//! The flame graph page in a real browser: drawing, search, zoom and filters, by mouse and by
//! keyboard.

mod access;
mod colours;
mod findings;
mod heaps;
mod lines;
mod noise;
mod policy;
mod state;
mod time;
mod verdict;
mod views;

pub use access::{found, with_axe};

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use phpprof_profile::page::page;
use phpprof_profile::{Profile, View, merge, top, total};

use crate::browser::Browser;
use crate::profiles::{large, shop};

/// The first frame of this function.
fn frame(name: &str) -> String {
    format!(
        "[...document.querySelectorAll('#chart g.frame')].find((frame) => frame.__data__.data.name === {name:?})"
    )
}

fn button(host: &str, text: &str) -> String {
    format!(
        "[...document.querySelectorAll('{host} button')].find((one) => one.textContent.startsWith({text:?}))"
    )
}

const FRAMES: &str = "document.querySelectorAll('#chart g.frame').length";
const HIGHLIGHTED: &str = "document.querySelectorAll(\"#chart rect[fill='#e05cff']\").length";

struct Saved {
    browser: Browser,
    url: String,
    _folder: tempfile::TempDir,
}

/// The page of this profile, opened from a file.
fn saved(html: &str) -> Saved {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a profile.html");
    std::fs::write(&path, html).unwrap();
    let mut browser = Browser::start(1360, 820);
    browser.prefer("light");
    let url = format!("file://{}", path.display().to_string().replace(' ', "%20"));
    browser.open(&url);
    Saved {
        browser,
        url,
        _folder: folder,
    }
}

fn saved_shop() -> Saved {
    saved(&page(&shop(400), &View::default(), "shop/first", None).unwrap())
}

impl Saved {
    /// Checks that nothing failed, and that only the file itself was requested.
    fn check_quiet(&mut self) {
        assert_eq!(self.browser.complaints(), Vec::<String>::new());
        assert_eq!(self.browser.requests(), [self.url.as_str()]);
    }

    fn picture(&mut self, name: &str) {
        pictures(&mut self.browser, name);
    }
}

/// Saves a screenshot of the browser.
pub fn pictures(browser: &mut Browser, name: &str) {
    let target = std::env::var_os("PHPPROF_PICTURES").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/browser"),
        PathBuf::from,
    );
    browser.screenshot(&Path::new(&target).join(name));
}

#[test]
fn a_saved_file_opens_without_error_or_request() {
    let mut page = saved_shop();
    assert_eq!(page.browser.text("#title"), "shop/first");
    let facts = page.browser.text("#facts");
    assert!(
        facts.contains("PHP 8.2.29 fpm-fcgi · 1 profile · 4 workers · 30 s"),
        "{facts}"
    );
    assert!(
        facts.ends_with(concat!(
            "UTC · 0.91 % unstable · 0.47 % over the memory cap · 0.44 % with a shorter recursion",
            " · 0.13 % with a part of the stack left out · 0.27 % without labels of their request",
            " · 0.37 % of stopped workers · 17.3 % of the time waiting for a CPU",
            " · up to 217 short-lived processes unseen, 4.87 s of CPU time of ended ones in no sample · 9.16 s wall"
        )),
        "of the busy samples, and at the rate that was asked for: {facts}"
    );
    assert!(page.browser.eval(FRAMES).as_i64().unwrap() >= 12);
    page.browser.hover(&frame("array_map"));
    assert!(page.browser.text("#tip").contains("array_map"));
    page.picture("light.png");
    page.check_quiet();
}

#[test]
fn a_rate_that_was_not_kept_is_said() {
    let slower = |profile: &mut Profile, rate: &str| {
        for text in &mut profile.string_table {
            *text = text.replace("Second\":98.7", &format!("Second\":{rate}"));
        }
    };
    let facts = |profile: &Profile| {
        let mut page = saved(&page(profile, &View::default(), "slow", None).unwrap());
        page.check_quiet();
        page.browser.text("#facts")
    };
    let mut slow = shop(400);
    slower(&mut slow, "62.4");
    let said = facts(&slow);
    assert!(
        said.contains(" · 62.4 instead of 99 samples per second · "),
        "{said}"
    );
    let mut nearly = shop(400);
    slower(&mut nearly, "95.0");
    let said = facts(&nearly);
    assert!(!said.contains("instead"), "{said}");
    let said = facts(&merge(&[nearly, slow]).unwrap());
    assert!(
        said.contains(" · 62.4 instead of 99 samples per second in 1 of 2 profiles · "),
        "{said}"
    );
}

#[test]
fn a_search_highlights_hits_and_says_their_share() {
    let mut page = saved_shop();
    page.browser.key("/");
    page.browser.write("cart::");
    page.browser.wait_for(&format!("{HIGHLIGHTED} > 0"));
    assert_eq!(
        page.browser.eval(HIGHLIGHTED),
        3,
        "checkout and total, the latter twice"
    );
    assert_eq!(page.browser.text("#matches"), "57.6 %");
    assert_eq!(
        page.browser
            .eval("document.querySelectorAll('#rows tr').length"),
        2
    );
    page.picture("search.png");
    page.browser.key("Escape");
    page.browser.wait_for(&format!("{HIGHLIGHTED} === 0"));
    page.browser.key("/");
    page.browser.write("no such function (");
    page.browser
        .wait_for("document.querySelector('#matches').textContent === 'not found'");
    page.check_quiet();
}

#[test]
fn a_click_zooms_in_with_a_way_back() {
    let mut page = saved_shop();
    let width = |page: &mut Saved, name: &str| {
        let frame = frame(name);
        page.browser
            .eval(&format!(
                "Number({frame}?.querySelector('rect').getAttribute('width') ?? 0)"
            ))
            .as_f64()
            .unwrap()
    };
    let before = width(&mut page, r"Shop\Search::find");
    page.browser.click(&frame(r"Shop\Search::find"));
    assert!(width(&mut page, r"Shop\Search::find") > 2.0 * before);
    assert_eq!(
        width(&mut page, "array_map"),
        0.0,
        "what is not below it is gone"
    );
    assert_eq!(
        page.browser.text("#path"),
        r"all › {main} /srv/app/index.php › Shop\Search::find"
    );
    page.picture("zoom.png");
    page.browser.key("0");
    assert_eq!(width(&mut page, r"Shop\Search::find"), before);
    assert_eq!(page.browser.text("#path"), "");
    page.check_quiet();
}

#[test]
fn the_keyboard_walks_and_zooms() {
    let mut page = saved_shop();
    page.browser
        .eval("document.querySelector('#chart').focus()");
    for key in ["ArrowDown", "ArrowDown", "ArrowDown"] {
        page.browser.key(key);
    }
    let detail = page.browser.text("#detail");
    assert!(
        detail.starts_with(r"Shop\Cart::total (/srv/app/src/Cart.php:40): 4.80 s, 52.4 %"),
        "{detail}"
    );
    page.browser.key("ArrowUp");
    page.browser.key("ArrowRight");
    assert!(
        page.browser
            .text("#detail")
            .starts_with(r"Shop\Search::find")
    );
    page.browser.key("Enter");
    assert!(page.browser.text("#path").ends_with(r"Shop\Search::find"));
    page.browser.key("Escape");
    assert_eq!(page.browser.text("#path"), "");
    for (key, view) in [("t", "graph"), ("t", "table"), ("t", "both")] {
        page.browser.key(key);
        assert_eq!(page.browser.eval("document.body.dataset.view"), view);
    }
    page.check_quiet();
}

#[test]
fn the_table_has_the_numbers_of_top() {
    let profile = shop(400);
    let mut page = saved_shop();
    let rows = top(&profile, "wall");
    let shown = page.browser.eval(
        "[...document.querySelectorAll('#rows tr')].map((row) => row.querySelector('td.name button').textContent)",
    );
    let names: Vec<_> = rows
        .iter()
        .filter(|row| row.flat > 0)
        .map(|row| row.name.as_str())
        .collect();
    assert_eq!(shown.as_array().unwrap()[..names.len()], names[..]);
    assert_eq!(shown.as_array().unwrap().len(), rows.len());
    let cells = page.browser.eval("[...document.querySelectorAll('#rows tr:first-child td.number')].map((cell) => cell.textContent)");
    assert_eq!(cells, serde_json::json!(["3.20 s34.9 %", "3.20 s34.9 %"]));
    page.browser
        .click("document.querySelectorAll('#heads button')[1]");
    assert!(
        page.browser
            .text("#rows tr:first-child td.name")
            .starts_with("{main}")
    );
    page.browser
        .click("document.querySelectorAll('#rows tr')[1]");
    assert!(
        page.browser.eval(HIGHLIGHTED).as_i64().unwrap() > 0,
        "a chosen row is shown in the graph"
    );
    page.picture("table.png");
    page.check_quiet();
}

/// The checkbox of a label's value.
fn label(key: &str, value: &str) -> String {
    format!(
        "[...document.querySelectorAll('[aria-label=\"Label {key}\"] label')].find((line) => line.textContent === {value:?}).firstChild"
    )
}

#[test]
fn labels_and_sample_types_choose_what_is_drawn() {
    let profile = shop(400);
    let mut page = saved_shop();
    let filters = page.browser.eval("[...document.querySelectorAll('#filters details > div')].map((list) => list.getAttribute('aria-label'))");
    assert_eq!(
        filters,
        serde_json::json!(["Label pod", "Label route", "Label pid"])
    );
    page.browser
        .click("document.querySelectorAll('#filters summary')[1]");
    page.browser.click(&label("route", "search"));
    let view = View {
        sample_type: None,
        labels: vec![("route".into(), "search".into())],
    };
    let expected = total(&view.filtered(&profile), "wall") as f64 / 1e9;
    let facts = page.browser.text("#facts");
    assert!(facts.ends_with(&format!("{expected:.2} s wall")), "{facts}");
    assert_eq!(
        page.browser
            .eval(&format!("Boolean({})", frame("array_map"))),
        false
    );
    page.picture("label.png");
    page.browser
        .click("document.querySelectorAll('#types button')[0]");
    assert!(page.browser.text("#facts").ends_with(&format!(
        "{} samples",
        total(&view.filtered(&profile), "samples")
    )));
    page.check_quiet();
}

#[test]
fn twenty_thousand_stacks_are_drawn_in_seconds() {
    let profile = large(20_000);
    assert_eq!(
        phpprof_profile::Stacks::of(&profile, &View::default())
            .unwrap()
            .stacks
            .len(),
        20_000
    );
    let html = page(&profile, &View::default(), "large", None).unwrap();
    let begin = Instant::now();
    let mut page = saved(&html);
    let opened = begin.elapsed();
    assert!(page.browser.eval(FRAMES).as_i64().unwrap() > 100);
    let begin = Instant::now();
    page.browser
        .click("document.querySelectorAll('#chart g.frame')[5]");
    page.browser
        .wait_for("document.querySelector('#path').textContent !== ''");
    let zoomed = begin.elapsed();
    let begin = Instant::now();
    page.browser.key("/");
    page.browser.write("Class7::");
    page.browser.wait_for(&format!("{HIGHLIGHTED} > 0"));
    let searched = begin.elapsed();
    println!(
        "20,000 stacks, {} KiB: opened in {opened:?} (with the browser), zoomed in {zoomed:?}, searched in {searched:?}",
        html.len() >> 10
    );
    page.picture("large.png");
    assert!(
        opened < Duration::from_secs(15)
            && zoomed < Duration::from_secs(6)
            && searched < Duration::from_secs(6)
    );
    page.check_quiet();
}
