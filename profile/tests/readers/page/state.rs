//! The page's state: search by text and by regular expression, filters and choices. They are in the
//! URL, which opens the same view again.

use super::{FRAMES, HIGHLIGHTED, Saved, button, frame, label, saved_shop};

fn search(page: &mut Saved, text: &str) {
    page.browser.click("document.querySelector('#search')");
    page.browser.write(text);
    page.browser.wait_for("location.hash.includes('search=')");
}

/// The visible parts of the state.
const SHOWN: &str = "['#facts', '#kept', '#path', '#matches', '#rows', '#filters summary', '#shapes [aria-pressed=true]', '#types [aria-pressed=true]']\
    .map((selector) => document.querySelector(selector).textContent).join('\\n') + document.querySelector('#search').value + document.body.dataset.view";

#[test]
fn a_search_takes_regular_expressions_and_names_errors() {
    let mut page = saved_shop();
    page.browser.click("document.querySelector('#regex')");
    search(&mut page, r"^Shop.*::(total|find");
    assert_eq!(page.browser.text("#matches"), "not a regular expression");
    assert_eq!(page.browser.eval(HIGHLIGHTED), 0);
    let invalid = "document.querySelector('#search').getAttribute('aria-invalid')";
    assert_eq!(page.browser.eval(invalid), "true");
    page.browser.write(")$");
    page.browser.wait_for(&format!("{HIGHLIGHTED} === 3"));
    assert_eq!(page.browser.eval(invalid), "false");
    page.browser.click("document.querySelector('#regex')");
    assert_eq!(page.browser.text("#matches"), "not found");
    page.check_quiet();
}

#[test]
fn stacks_are_kept_and_left_out() {
    let mut page = saved_shop();
    search(&mut page, "cart::");
    page.browser.click("document.querySelector('#keep')");
    let facts = page.browser.text("#facts");
    assert!(facts.ends_with(" · 5.28 s wall"), "57.6 %: {facts}");
    assert_eq!(page.browser.text("#kept"), "only with “cart::” ×");
    page.browser.click(&frame("[gc]"));
    page.browser.key("x");
    assert_eq!(
        page.browser.text("#kept"),
        "only with “cart::” ×without [gc] ×"
    );
    let facts = page.browser.text("#facts");
    assert!(facts.ends_with(" · 4.80 s wall"), "{facts}");
    page.picture("kept.png");
    for _ in 0..2 {
        page.browser.click("document.querySelector('#kept button')");
    }
    assert_eq!(page.browser.text("#kept"), "");
    let facts = page.browser.text("#facts");
    assert!(facts.ends_with(" · 9.16 s wall"), "{facts}");
    page.check_quiet();
}

#[test]
fn a_link_opens_the_same_view_again() {
    let mut page = saved_shop();
    page.browser
        .click("document.querySelectorAll('#filters summary')[1]");
    page.browser.click(&label("route", "checkout"));
    page.browser.key("Escape");
    page.browser.click(&button("#types", "cpu"));
    page.browser.click(&frame(r"Shop\Cart::checkout"));
    page.browser.click(&frame("[gc]"));
    page.browser.key("x");
    page.browser.click("document.querySelector('#regex')");
    search(&mut page, "to+al");
    page.browser.click(&button("#heads", "Function"));
    page.browser
        .wait_for("location.hash.includes('sort=name.up')");
    page.browser.click(&button("#views", "Flame graph"));
    let shown = page.browser.eval(SHOWN);
    assert!(page.browser.text("#path").ends_with(r"Shop\Cart::checkout"));
    let link = page.browser.eval("location.href");
    let link = link.as_str().unwrap();
    page.browser.open("about:blank#");
    page.browser.open(link);
    assert_eq!(page.browser.eval(SHOWN), shown, "{link}");
    page.browser
        .eval("location.hash = 'type=none&label=a%3Db&only=~(&function=x&zoom=9.a.b&graph=__proto__&width=x&view=x'");
    page.browser
        .wait_for("!document.querySelector('#facts').textContent.endsWith('cpu')");
    assert!(page.browser.eval(FRAMES).as_i64().unwrap() >= 12);
    assert_eq!(page.browser.complaints(), Vec::<String>::new());
}

#[test]
fn zoom_and_selection_survive_other_types_and_labels() {
    let mut page = saved_shop();
    page.browser
        .click("document.querySelectorAll('#rows tr')[1].querySelector('button')");
    page.browser.click(&frame(r"Shop\Cart::checkout"));
    let path = page.browser.text("#path");
    page.browser.click(&button("#types", "cpu"));
    assert_eq!(page.browser.text("#path"), path);
    page.browser
        .click("document.querySelectorAll('#filters summary')[0]");
    page.browser.click(&label("pod", "web-1"));
    assert_eq!(page.browser.text("#path"), path);
    assert_eq!(
        page.browser
            .eval("document.querySelectorAll('#rows tr.chosen').length"),
        1
    );
    page.browser.click(&label("pod", "web-2"));
    let words = page.browser.text("#filters summary");
    assert_eq!(words, "pod: 2 values");
    page.picture("labels.png");
    page.browser.key("Escape");
    assert_eq!(
        page.browser
            .eval("document.querySelectorAll('#filters details[open]').length"),
        0
    );
    assert_eq!(page.browser.text("#path"), path);
    page.check_quiet();
}
