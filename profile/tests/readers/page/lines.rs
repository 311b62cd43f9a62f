//! The heat map by line: its numbers, its text from the page or from a folder, and the ways to and
//! from the graph.

use std::path::Path;

use phpprof_profile::page::{SourceTexts, differential, page, page_with_texts};
use phpprof_profile::{NoiseScale, View};
use serde_json::{Value, json};

use super::access::{found, with_axe};
use super::{Saved, button, saved, saved_shop};
use crate::profiles::{hostile, shop};

const CART: &str = "/srv/app/src/Cart.php";

/// Fifty lines that each say their number; line 44 is hostile.
fn cart() -> String {
    let line = |number: i32| {
        match number {
        44 => "\treturn array_sum($prices); // </script><img src=x onerror=\"document.title='pwned'\">\n"
            .to_owned(),
        _ => format!("// line {number}\n"),
    }
    };
    (1..=50).map(line).collect()
}

fn with_text() -> Saved {
    let mut texts = SourceTexts::default();
    assert!(texts.add(CART, cart()));
    saved(&page_with_texts(&shop(400), &View::default(), "shop/first", None, &texts).unwrap())
}

fn open(page: &mut Saved, file: &str) {
    let fragment = format!("view=lines&file={file}");
    page.browser.eval(&format!(
        "new Promise((done) => {{ addEventListener('hashchange', () => setTimeout(done), {{ once: true }}); location.hash = {fragment:?}; }})"
    ));
}

/// The cells of a line.
fn row(page: &mut Saved, line: i64) -> Value {
    page.browser.eval(&format!(
        "[...document.querySelector('#code tr[data-line=\"{line}\"]').cells].map((cell) => cell.textContent)"
    ))
}

#[test]
fn each_line_has_its_time_and_function() {
    let mut page = saved_shop();
    page.browser.key("l");
    assert_eq!(page.browser.eval("document.body.dataset.view"), "lines");
    let files = page
        .browser
        .eval("[...document.querySelector('#file').options].map((one) => one.value)");
    assert_eq!(
        files,
        json!([
            "/srv/app/src/Product.php",
            CART,
            "/srv/app/index.php",
            "/srv/app/src/Search.php"
        ]),
        "most self time first, then most time"
    );
    assert_eq!(
        row(&mut page, 11),
        json!([
            "3.20 s34.9 %",
            "3.20 s34.9 %",
            "11",
            "",
            r"Shop\Product::price"
        ])
    );
    open(&mut page, CART);
    // A recursion counts once; 9.16 s is all wall time.
    assert_eq!(
        row(&mut page, 44),
        json!([
            "1.60 s17.5 %",
            "4.80 s52.4 %",
            "44",
            "",
            r"Shop\Cart::total"
        ])
    );
    assert_eq!(row(&mut page, 31)[1], "5.28 s57.6 %");
    let lines = page
        .browser
        .eval("document.querySelectorAll('#code tr').length");
    assert_eq!(lines, 3, "only lines with time");
    page.check_quiet();
}

#[test]
fn labels_and_types_apply_to_lines() {
    let mut page = saved_shop();
    open(&mut page, CART);
    page.browser.click(&button("#types", "cpu"));
    assert_eq!(row(&mut page, 44)[0], "1.44 s17.5 %");
    page.browser
        .eval("location.hash = 'view=lines&label=pod%3Dweb-1'");
    page.browser.wait_for(
        "document.querySelector('#code tr[data-line=\"11\"] td').textContent.startsWith('800')",
    );
    assert_eq!(row(&mut page, 11)[0], "800.0 ms34.9 %");
    page.browser.eval("location.hash = 'view=lines&only=*cart'");
    page.browser
        .wait_for("!document.querySelector('#lineless').hidden");
    page.check_quiet();
}

#[test]
fn text_in_the_page_stands_next_to_times() {
    let mut page = with_text();
    open(&mut page, CART);
    assert_eq!(
        page.browser
            .eval("document.querySelectorAll('#code tr').length"),
        51
    );
    assert_eq!(row(&mut page, 7), json!(["", "", "7", "// line 7", ""]));
    let hostile = row(&mut page, 44)[3].clone();
    assert!(
        hostile.as_str().unwrap().contains("<img src=x"),
        "{hostile}"
    );
    assert_eq!(page.browser.text("#sourced"), "");
    assert_eq!(page.browser.eval("document.title"), "shop/first");
    page.picture("lines.png");
    page.browser.prefer("dark");
    page.picture("lines-dark.png");
    page.check_quiet();
}

#[test]
fn a_line_leads_to_callers_and_back() {
    let mut page = with_text();
    open(&mut page, CART);
    page.browser
        .click("document.querySelector('#code tr[data-line=\"44\"] button')");
    assert_eq!(page.browser.eval("document.body.dataset.view"), "both");
    assert!(
        page.browser
            .eval("location.hash")
            .as_str()
            .unwrap()
            .contains("graph=sandwich")
    );
    assert_eq!(page.browser.text("#picked"), r"Shop\Cart::total");
    page.browser.click("document.querySelector('#source')");
    assert_eq!(page.browser.eval("document.body.dataset.view"), "lines");
    assert_eq!(
        page.browser
            .eval("document.activeElement.closest('tr').dataset.line"),
        "44",
        "the keyboard is where the function is"
    );
    page.browser.key("Enter");
    assert_eq!(page.browser.eval("document.body.dataset.view"), "both");
    page.check_quiet();
}

/// Gives the page a folder, as its dialog would.
fn choose(page: &mut Saved, folder: &Path) {
    let found = page.browser.call(
        "Runtime.evaluate",
        json!({"expression": "document.querySelector('#chooser')"}),
    );
    let files = json!({"objectId": found["result"]["objectId"], "files": [folder]});
    page.browser.call("DOM.setFileInputFiles", files);
}

#[test]
fn a_folder_in_the_browser_gives_the_text() {
    let folder = tempfile::tempdir().unwrap();
    let checkout = folder.path().join("checkout");
    std::fs::create_dir_all(checkout.join("src")).unwrap();
    std::fs::write(checkout.join("src/Cart.php"), cart()).unwrap();
    std::fs::write(checkout.join("index.php"), "<?php\n").unwrap();
    let mut page = saved_shop();
    open(&mut page, CART);
    assert!(
        page.browser
            .text("#sourced")
            .starts_with("Choose the folder")
    );
    choose(&mut page, &checkout);
    page.browser
        .wait_for("document.querySelectorAll('#code tr').length === 51");
    assert_eq!(row(&mut page, 7)[3], "// line 7");
    open(&mut page, "/srv/app/index.php");
    // The profile has line 12, and this text has two.
    page.browser
        .wait_for("!document.querySelector('#outdated').hidden");
    open(&mut page, "/srv/app/src/Product.php");
    assert_eq!(
        page.browser.text("#sourced"),
        "The folder does not have this file."
    );
    page.check_quiet();
}

#[test]
fn axe_finds_nothing_in_lines() {
    let mut page = with_text();
    with_axe(&mut page.browser);
    for (theme, rules) in [("light", ""), ("dark", ", runOnly: ['color-contrast']")] {
        page.browser.prefer(theme);
        page.browser.wait_for(&format!(
            "document.documentElement.dataset.theme === '{theme}'"
        ));
        for file in [CART, "/srv/app/src/Product.php"] {
            open(&mut page, file);
            assert_eq!(found(&mut page.browser, rules), "", "{theme} {file}");
        }
    }
    page.check_quiet();
}

#[test]
fn pages_without_lines_have_no_such_view() {
    let (before, after) = (shop(200), shop(900));
    let scale = NoiseScale::BY_SAMPLES;
    let html = differential(&before, &after, &View::default(), "shop", scale).unwrap();
    let mut page = saved(&html);
    let views = "[...document.querySelectorAll('#views button')].map((one) => one.textContent)";
    assert_eq!(
        page.browser.eval(views),
        json!(["Table", "Both", "Flame graph"])
    );
    page.browser.key("l");
    assert_eq!(page.browser.eval("document.body.dataset.view"), "both");
    page.check_quiet();
}

#[test]
fn hostile_names_stay_text_in_lines() {
    let html = page(&hostile(), &View::default(), "hostile", None).unwrap();
    let mut page = saved(&html);
    page.browser.key("l");
    let files = page
        .browser
        .eval("document.querySelector('#file').options.length");
    for _ in 0..files.as_i64().unwrap() {
        page.browser.eval(
            "(() => { const list = document.querySelector('#file'); list.selectedIndex = (list.selectedIndex + 1) % list.options.length; \
             list.dispatchEvent(new Event('change')); })()",
        );
    }
    assert_eq!(page.browser.eval("document.title"), "hostile");
    page.check_quiet();
}
