//! What ran when: the strip, by mouse and by keyboard, and the page with timelines: dark, narrow,
//! large and hostile.

mod requests;

use std::time::{Duration, Instant};

use phpprof_profile::page::page;
use phpprof_profile::timeline::{Moment, Timeline, TimelineNode, TimelinePart, TimelineRequest};
use phpprof_profile::{LARGEST_TIMELINE, View};
use serde_json::json;

use super::{FRAMES, Saved, button, saved, saved_shop};
use crate::profiles::{HOSTILE, shop};
use crate::timelines::{RECORDED, largest_timeline, shop_timeline};

const LANES: &str = "document.querySelectorAll('#lanes .lane').length";
const STRIP: &str = "document.querySelector('#axis')";
/// The nodes of a call tree with one long path.
const MAX_DEEP: usize = 131_072;
const VIEW: &str = "document.body.dataset.view";

fn saved_with(timeline: &Timeline) -> Saved {
    saved(&page(&shop(400), &View::default(), "shop/first", Some(timeline)).unwrap())
}

/// Whether a canvas has a pixel of this colour, a variable in the page's style.
fn has_colour(page: &mut Saved, canvas: &str, name: &str) -> bool {
    let found = format!(
        "(() => {{ const canvas = new OffscreenCanvas({canvas}.width, {canvas}.height); const pen = canvas.getContext('2d', {{ willReadFrequently: true }}); \
         pen.drawImage({canvas}, 0, 0); const points = pen.getImageData(0, 0, canvas.width, canvas.height).data; \
         const hex = getComputedStyle(document.documentElement).getPropertyValue({name:?}).trim(); \
         const want = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)); \
         for (let i = 0; i < points.length; i += 4) if (want.every((value, at) => Math.abs(points[i + at] - value) < 3)) return true; \
         return false; }})()"
    );
    page.browser.eval(&found) == true
}

impl Saved {
    fn resize(&mut self, width: u32, height: u32) {
        self.browser.call(
            "Emulation.setDeviceMetricsOverride",
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}),
        );
        std::thread::sleep(Duration::from_millis(300));
    }

    fn focus(&mut self, element: &str) {
        self.browser.eval(&format!("({element}).focus()"));
    }

    fn opens(&mut self, address: &str) {
        self.browser.eval(&format!("location.hash = {address:?}"));
        self.browser.wait_for(&format!(
            "location.hash === '#' + {address:?} && {VIEW} !== 'both'"
        ));
    }
}

#[test]
fn without_a_timeline_strip_and_list_are_absent() {
    let mut page = saved_shop();
    for hidden in ["#time", "#timeless"] {
        let hidden = format!("document.querySelector('{hidden}').hidden");
        assert_eq!(page.browser.eval(&hidden), true);
    }
    let views = page.browser.text("#views");
    assert_eq!(views, "TableBothFlame graphLines");
    page.browser.key("r");
    assert_eq!(page.browser.eval(VIEW), "both");
    page.check_quiet();
}

#[test]
fn the_strip_shows_the_largest_routes_first() {
    let mut page = saved_with(&shop_timeline());
    assert_eq!(page.browser.eval(LANES), 5);
    let first = page.browser.text("#lanes .lane:first-child .label");
    assert!(
        first.starts_with("/cart/{id}/checkout") && first.contains(" workers"),
        "{first}"
    );
    let canvas = "document.querySelector('#lanes canvas')";
    for name in ["--busy", "--waiting-line", "--heap"] {
        assert!(has_colour(&mut page, canvas, name), "{name} is drawn");
    }
    page.picture("time-light.png");
    page.browser.click(&button("#time", "Show all (9)"));
    assert_eq!(page.browser.eval(LANES), 9);
    assert!(page.browser.text("#lanes").contains("(route not known)"));
    page.browser.click(&button("#kinds", "By worker"));
    assert_eq!(page.browser.eval(LANES), 5);
    let first = page.browser.text("#lanes .lane:first-child .label");
    assert!(
        first.starts_with("web-7d9f5c6b8-x2x4") && first.contains("pid ") && first.ends_with('%'),
        "{first}"
    );
    page.browser.hover(canvas);
    let tip = page.browser.text("#tip");
    assert!(
        tip.contains("busy ") && tip.contains("waiting ") && tip.contains("heap "),
        "{tip}"
    );
    page.picture("time-workers.png");
    page.check_quiet();
}

/// The leaf node of this function.
fn node_of(timeline: &Timeline, name: &str) -> u32 {
    let node = timeline.nodes.iter().position(|node| {
        let function = &timeline.functions[node.function as usize];
        function.name == name
    });
    u32::try_from(node.unwrap()).unwrap()
}

#[test]
fn a_long_runs_span_uses_whole_parts() {
    let mut timeline = shop_timeline();
    let (work, wait) = (
        node_of(&timeline, "similar_text"),
        node_of(&timeline, "PDO::exec"),
    );
    let third = timeline.duration_nanoseconds / 3;
    let second = 1_000_000_000;
    let stacks = [
        ((work, 4 * second, 0), 0),
        ((wait, 0, 6 * second), 2 * second),
        ((work, second, 0), 0),
    ];
    let parts = stacks.into_iter().zip(0..);
    timeline.parts = parts
        .map(|((stack, other), number)| TimelinePart {
            begin: number * third,
            end: (number + 1) * third,
            stacks: vec![stack.into()],
            other,
        })
        .collect();
    let mut page = saved_with(&timeline);
    page.browser.drag(STRIP, 0.402, 0.598);
    let said = page.browser.text("#span");
    assert!(
        said.contains("only whole parts of the run narrow it"),
        "{said}"
    );
    let all = "Flame graph of all from 14:13:30.000 to 14:13:40.000";
    page.browser.click(&button("#span", all));
    let ends =
        |text: &str| format!("document.querySelector('#facts').textContent.endsWith('{text}')");
    page.browser
        .wait_for(&ends(" 6.00 s of wall time in whole parts of the run"));
    let table = page.browser.text("#rows");
    assert!(
        table.contains("PDO::exec") && !table.contains("similar_text"),
        "{table}"
    );
    let said = page.browser.text("#unfiltered");
    assert!(
        said.contains("from 14:13:30.000 to 14:13:40.000 UTC")
            && said.contains("25.0 % of the time"),
        "{said}"
    );
    page.picture("time-parts.png");
    // The URL opens the same view again. A URL with another profile's times selects nothing.
    let shown = "['#facts', '#spanned', '#unfiltered', '#rows'].map((one) => document.querySelector(one).textContent).join()";
    let (before, link) = (page.browser.eval(shown), page.browser.eval("location.href"));
    let link = link.as_str().unwrap();
    assert!(link.ends_with("#span=48-71&of=parts"), "{link}");
    page.browser.open("about:blank#");
    page.browser.open(link);
    assert_eq!(page.browser.eval(shown), before);
    for words in [
        "span=71-48",
        "span=48-9999",
        "span=-1-2&of=x",
        "of=constructor",
    ] {
        page.browser.eval(&format!("location.hash = '{words}'"));
        page.browser
            .wait_for("document.querySelector('#span').hidden");
    }
    page.browser
        .eval("history.replaceState(null, '', '#'), location.hash = 'span=48-71&of=parts'");
    page.browser
        .wait_for(&ends(" 6.00 s of wall time in whole parts of the run"));
    page.browser.click(&button("#span", "Clear"));
    page.browser
        .wait_for(&ends(" 11.00 s of wall time in whole parts of the run"));
    page.browser
        .click(&button("#span", "Flame graph of the whole profile"));
    page.browser
        .wait_for("document.querySelector('#span').hidden");
    page.check_quiet();
}

#[test]
fn a_span_filters_requests_and_draws_a_graph() {
    let timeline = shop_timeline();
    let mut page = saved_with(&timeline);
    // Steps 48 to 71 of 120, in the middle of the run.
    page.browser.drag(STRIP, 0.402, 0.598);
    let (from, to) = (
        48 * timeline.step_nanoseconds,
        72 * timeline.step_nanoseconds,
    );
    let ran = |request: &&TimelineRequest| {
        request.begin < to && request.end.max(request.begin + 1) > from
    };
    let inside = timeline.requests.iter().filter(ran).count();
    let recorded = timeline.requests.iter().filter(ran);
    let recorded = recorded
        .filter(|request| !request.moments.is_empty())
        .count();
    assert!(0 < recorded && recorded < inside && inside < timeline.requests.len());
    let said = page.browser.text("#span");
    assert!(
        said.starts_with("14:13:32.000 to 14:13:38.000 UTC (6.00 s)"),
        "{said}"
    );
    assert!(said.contains(&format!("Show {inside} requests")), "{said}");
    assert!(said.contains("this span does not narrow it"), "{said}");
    page.picture("time-span.png");
    page.browser
        .click(&button("#span", "Flame graph of the recorded"));
    page.browser
        .wait_for("document.querySelector('#facts').textContent.endsWith('of recorded requests')");
    assert!(page.browser.eval(FRAMES).as_i64().unwrap() > 10);
    let inside_span = |request: &TimelineRequest, moment: &Moment| {
        let begin = request.begin + moment.begin;
        ((begin + moment.duration).min(to) - begin.max(from)).max(0)
    };
    let took = timeline.requests.iter().flat_map(|request| {
        let moments = request.moments.iter();
        moments.map(move |moment| inside_span(request, moment))
    });
    let facts = page.browser.text("#facts");
    let sum = format!(
        " {:.2} s of recorded requests",
        took.sum::<i64>() as f64 / 1e9
    );
    assert!(facts.ends_with(&sum), "{sum}: {facts}");
    let table = page.browser.text("#rows");
    assert!(
        table.contains("PDO::exec") && !table.contains("preg_match"),
        "{table}"
    );
    let said = page.browser.text("#unfiltered");
    assert!(
        said.contains(&format!(
            "the {recorded} recorded requests (of {inside} requests)"
        )),
        "{said}"
    );
    page.picture("time-moments.png");
    page.browser.click(&button("#span", "Show "));
    page.browser.wait_for(&format!("{VIEW} === 'requests'"));
    let count = page.browser.text("#sifted");
    let expected = format!("{inside} of {} requests", timeline.requests.len());
    assert!(count.starts_with(&expected), "{count}");
    page.browser.click(&button("#span", "Clear"));
    let count = page.browser.text("#sifted");
    assert_eq!(count, format!("{} requests", timeline.requests.len()));
    page.check_quiet();
}

#[test]
fn the_keyboard_alone_reaches_all_of_it() {
    let mut page = saved_with(&shop_timeline());
    let mut reached = Vec::new();
    for _ in 0..60 {
        page.browser.key("Tab");
        let element = page
            .browser
            .eval("document.activeElement.id || document.activeElement.closest('[id]')?.id || ''");
        reached.push(element.as_str().unwrap().to_owned());
    }
    for id in ["time", "kinds", "every", "strip", "views", "chart"] {
        assert!(reached.iter().any(|other| other == id), "{id}: {reached:?}");
    }
    page.focus("document.querySelector('#strip')");
    page.browser.key("ArrowRight");
    page.browser.key("PageDown");
    let detail = page.browser.text("#detail");
    assert!(
        detail.starts_with("/cart/{id}/checkout, 14:13:22.500 to 14:13:22.750: busy "),
        "{detail}"
    );
    page.browser.key("ArrowDown");
    let detail = page.browser.text("#detail");
    assert!(
        !detail.starts_with("/cart/{id}/checkout"),
        "another row: {detail}"
    );
    for _ in 0..3 {
        page.browser.shift("ArrowRight");
    }
    let said = page.browser.text("#spanned");
    assert_eq!(said, "14:13:22.500 to 14:13:23.500 UTC (1.00 s)");
    page.picture("time-keyboard.png");
    page.browser.key("Escape");
    assert_eq!(
        page.browser.eval("document.querySelector('#span').hidden"),
        true
    );
    page.browser.key("r");
    page.browser.wait_for(&format!("{VIEW} === 'requests'"));
    page.focus("document.querySelector('#asked a')");
    page.browser.key("Enter");
    page.browser.wait_for(&format!("{VIEW} === 'request'"));
    page.focus("document.querySelector('#spans button')");
    page.browser.key("Enter");
    assert_eq!(page.browser.eval("document.activeElement.id"), "course");
    page.check_quiet();
}

#[test]
fn the_timeline_is_readable_dark_and_narrow() {
    let mut page = saved_with(&shop_timeline());
    page.resize(1400, 900);
    page.browser.prefer("dark");
    page.browser
        .wait_for("document.documentElement.dataset.theme === 'dark'");
    assert!(has_colour(
        &mut page,
        "document.querySelector('#lanes canvas')",
        "--busy"
    ));
    page.picture("time-dark.png");
    page.opens("view=requests");
    page.picture("requests-dark.png");
    page.opens("request=0");
    page.picture("request-dark.png");
    for width in [400, 360] {
        page.resize(width, 800);
        for view in ["request=0", "view=requests", ""] {
            page.browser.eval(&format!("location.hash = {view:?}"));
            page.browser
                .wait_for(&format!("({VIEW} === 'both') === ({view:?} === '')"));
            let wide = page.browser.eval("document.documentElement.scrollWidth");
            assert!(
                wide.as_i64().unwrap() <= width.into(),
                "{view} at {width}: {wide}"
            );
            let name = view.split('=').next_back().unwrap();
            page.picture(&format!("narrow-{width}-{name}.png"));
        }
    }
    page.check_quiet();
}

#[test]
fn the_largest_timeline_is_drawn_in_a_moment() {
    let timeline = largest_timeline();
    let html = page(&shop(400), &View::default(), "large", Some(&timeline)).unwrap();
    assert!(html.len() < LARGEST_TIMELINE);
    let mut page = saved(&html);
    let begin = Instant::now();
    page.browser.open(&page.url.clone());
    page.browser.wait_for(&format!("{LANES} === 5"));
    let opened = begin.elapsed();
    let timed = |page: &mut Saved, does: &str| {
        let took = format!(
            "(() => {{ const begin = performance.now(); {does}; document.body.offsetHeight; return performance.now() - begin; }})()"
        );
        Duration::from_secs_f64(page.browser.eval(&took).as_f64().unwrap() / 1e3)
    };
    let all = timed(&mut page, "document.querySelector('#every').click()");
    assert_eq!(page.browser.eval(LANES), 64);
    page.picture("large-strip.png");
    page.opens("view=requests");
    let sorted = timed(
        &mut page,
        "document.querySelectorAll('#columns button')[2].click()",
    );
    page.opens("request=0");
    page.picture("large-request.png");
    let walked = timed(
        &mut page,
        "document.querySelector('#course').dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowDown' }))",
    );
    println!(
        "{} KiB: opened in {opened:?}, all rows in {all:?}, sorted in {sorted:?}, a step in the chart in {walked:?}",
        html.len() >> 10
    );
    assert!(opened < Duration::from_secs(6) && all < Duration::from_secs(3));
    assert!(sorted < Duration::from_secs(2) && walked < Duration::from_secs(1));
    page.check_quiet();
}

#[test]
fn the_page_says_where_large_timelines_are() {
    let mut timeline = shop_timeline();
    timeline.requests[0].script = "x".repeat(LARGEST_TIMELINE);
    let mut page = saved_with(&timeline);
    let hidden = |id: &str| format!("document.querySelector('{id}').hidden");
    assert_eq!(page.browser.eval(&hidden("#timeless")), false);
    assert_eq!(page.browser.eval(&hidden("#time")), true);
    page.check_quiet();
}

#[test]
fn endless_recursion_is_drawn_to_a_depth() {
    let mut timeline = largest_timeline();
    let last = u32::try_from(MAX_DEEP).unwrap() - 1;
    timeline.nodes = (0..=last)
        .map(|node| TimelineNode {
            parent: node.checked_sub(1),
            function: node % 2,
            line: 7,
        })
        .collect();
    for request in &mut timeline.requests {
        for (moment, index) in request.moments.iter_mut().zip(0..) {
            moment.node = last - index;
        }
    }
    let mut page = saved_with(&timeline);
    let begin = Instant::now();
    page.opens("request=0");
    let said = page.browser.text("#its");
    assert!(
        said.ends_with("The graph shows stacks to a depth of 512 frames."),
        "{said}"
    );
    page.browser.eval("location.hash = ''");
    page.browser.wait_for(&format!("{VIEW} === 'both'"));
    page.browser.drag(STRIP, 0.1, 0.9);
    page.browser
        .click(&button("#span", "Flame graph of the recorded"));
    page.browser
        .wait_for("document.querySelector('#facts').textContent.endsWith('of recorded requests')");
    assert!(page.browser.eval(FRAMES).as_i64().unwrap() <= 513);
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
    page.check_quiet();
}

#[test]
fn names_of_requests_stay_text() {
    let mut timeline = shop_timeline();
    for (request, name) in timeline.requests.iter_mut().zip(HOSTILE) {
        request.route = name.to_owned();
        request.trace_id = name.to_owned();
        request.pod = name.to_owned();
    }
    for (row, name) in timeline.routes.iter_mut().zip(HOSTILE) {
        row.route = name.to_owned();
    }
    for function in &mut timeline.functions {
        function.name = HOSTILE[0].to_owned();
        function.file = HOSTILE[1].to_owned();
    }
    assert!(timeline.requests.len() > RECORDED);
    let mut page = saved_with(&timeline);
    page.opens("view=requests");
    let rows = page.browser.text("#asked");
    for name in &HOSTILE[..3] {
        assert!(rows.contains(name), "{name}");
    }
    page.opens("request=0");
    let elements = "document.querySelectorAll('script, img, iframe, svg svg, object').length";
    assert_eq!(page.browser.eval(elements), 4);
    assert_eq!(page.browser.eval("document.title"), "shop/first");
    page.check_quiet();
}
