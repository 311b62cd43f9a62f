//! Profiles in, rows and pictures out.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;

use super::draw::{Theme, draw};
use super::*;
use crate::{Builder, DecodeLimits, FrameRef, Profile, SampleTag, Settings, decode, total};

const SECOND: Duration = Duration::from_secs(1);
const CART: &str = "App\\Http\\Controllers\\Checkout\\Presentation\\ShoppingCartPresentationController::formatLineItemWithTaxesAndDiscounts";
const FILE: &str = "/srv/www/releases/20261123/src/Http/Controllers/Checkout/Presentation/Cart.php";

fn frame<'a>(name: &'a str, file: &'a str, line: i64) -> FrameRef<'a> {
    FrameRef {
        name,
        file,
        line,
        start_line: 0,
    }
}

/// One second in which one worker spent `share` hundredths in the cart, which calls itself, and
/// another worker slept for the rest.
fn second(number: i64, share: i64) -> Profile {
    let mut builder = Builder::new(Settings {
        time_nanos: 1_000_000_000 * (1000 + number),
        duration_nanos: 1_000_000_000,
        ..Settings::default()
    });
    let main = frame("{main}", "/srv/www/index.php", 7);
    let cart = [frame("md5", "<internal:standard>", 0)];
    let cart = [
        &cart[..],
        &[frame(CART, FILE, 42), frame(CART, FILE, 40), main],
    ]
    .concat();
    let blog = [
        frame("usleep", "<internal:standard>", 0),
        frame("query", "/srv/www/db.php", 12),
        main,
    ];
    let ns = 10_000_000;
    let labels = |pid, route| {
        [
            SampleTag::Num("pid", pid, ""),
            SampleTag::Str("method", "GET"),
            SampleTag::Str("route", route),
        ]
    };
    let cpu = share * ns;
    builder.add(&cart, &[share, cpu, cpu], &labels(11, "/shop/{id}/cart"));
    let rest = 100 - share;
    builder.add(&blog, &[rest, 0, rest * ns], &labels(12, "/blog/{id}"));
    builder.comment("{}");
    builder.finish()
}

/// Two seconds: a quarter, then half of the time in the cart.
fn top() -> LiveTop {
    let mut top = LiveTop::new("pool www".to_owned());
    top.add(vec![second(0, 25)], SECOND).unwrap();
    top.add(vec![second(1, 50)], SECOND).unwrap();
    top
}

fn press(top: &mut LiveTop, keys: &str) -> Action {
    let code = |letter| match letter {
        '\n' => KeyCode::Enter,
        '\x1b' => KeyCode::Esc,
        '\t' => KeyCode::Tab,
        letter => KeyCode::Char(letter),
    };
    let mut action = Action::None;
    for letter in keys.chars() {
        action = top.key(KeyEvent::new(code(letter), KeyModifiers::NONE));
    }
    action
}

fn names(top: &LiveTop) -> Vec<&str> {
    top.rows().iter().map(|row| row.name).collect()
}

fn row<'a>(top: &'a LiveTop, name: &str) -> LiveRow<'a> {
    let mut rows = top.rows().into_iter();
    rows.find(|row| row.name == name).unwrap()
}

const MAIN: &str = "{main} /srv/www/index.php";

#[track_caller]
fn check(top: &LiveTop, name: &str, now: [i64; 2], all: [i64; 2]) {
    let row = row(top, name);
    let ms = 1_000_000;
    assert_eq!([row.flat_now, row.cum_now], now.map(|it| it * ms), "{name}");
    assert_eq!([row.flat, row.cum], all.map(|it| it * ms), "{name}");
}

#[test]
fn a_row_counts_recursion_once_in_its_sums() {
    let mut top = top();
    check(&top, "md5", [500, 500], [750, 750]);
    check(&top, CART, [0, 500], [0, 750]);
    check(&top, MAIN, [0, 1000], [0, 2000]);
    press(&mut top, "c");
    check(&top, "usleep", [0, 0], [0, 0]);
    press(&mut top, "2");
    check(&top, "/srv/www/index.php:7", [0, 500], [0, 750]);
    check(&top, "md5", [500, 500], [750, 750]);
    press(&mut top, "c3");
    check(&top, "GET /blog/{id}", [500, 500], [1250, 1250]);
    press(&mut top, "4");
    check(&top, "11", [500, 500], [750, 750]);
    assert_eq!(row(&top, "12").place, "usleep · GET /blog/{id}");
}

#[test]
fn keys_choose_the_sorted_column_and_the_order() {
    let mut top = top();
    assert_eq!(names(&top)[..2], ["usleep", "md5"]);
    press(&mut top, ">");
    assert_eq!(top.sorted(), (SortColumn::CumNow, false));
    assert_eq!(names(&top)[0], MAIN);
    press(&mut top, ">>>>>>");
    assert_eq!(names(&top), [CART, "md5", "query", "usleep", MAIN]);
    press(&mut top, "i");
    assert_eq!(names(&top)[0], MAIN);
    // Each table has its own order.
    press(&mut top, "\t");
    assert_eq!(top.sorted(), (SortColumn::FlatNow, false));
}

#[test]
fn a_filter_matches_the_name_or_the_place() {
    let mut top = top();
    press(&mut top, "/CART.php");
    assert!(top.is_typing);
    assert_eq!(names(&top), [CART]);
    // While the filter is typed, keys are letters.
    assert_eq!(press(&mut top, "q"), Action::None);
    assert!(top.rows().is_empty());
    press(&mut top, "\x1b");
    assert_eq!(names(&top).len(), 5);
    press(&mut top, "/md5\n");
    assert_eq!((names(&top), top.is_typing), (vec!["md5"], false));
    assert_eq!(press(&mut top, "q"), Action::Quit);
}

#[test]
fn a_pause_freezes_the_table_and_loses_nothing() {
    let mut top = top();
    press(&mut top, "p");
    top.add(vec![second(2, 100)], SECOND).unwrap();
    check(&top, "md5", [500, 500], [750, 750]);
    press(&mut top, "p");
    check(&top, "md5", [1000, 1000], [1750, 1750]);
}

#[test]
fn all_samples_are_saved_as_one_profile() {
    let mut top = top();
    assert_eq!(press(&mut top, "s"), Action::Save);
    let saved = decode(&top.file().unwrap(), &DecodeLimits::default()).unwrap();
    assert_eq!(total(&saved, "samples"), 200);
    assert_eq!(total(&saved, "cpu"), 750_000_000);
    assert_eq!(saved.sample.len(), 2);
    let (begin, long) = (saved.time_nanos, saved.duration_nanos);
    assert_eq!((begin, long), (1_000_000_000_000, 2_000_000_000));
    assert_eq!(saved.comments().count(), 0);
    top.add(vec![second(2, 1)], SECOND).unwrap();
    let saved = decode(&top.file().unwrap(), &DecodeLimits::default()).unwrap();
    assert_eq!(total(&saved, "samples"), 300);
    assert!(LiveTop::new(String::new()).file().is_err());
}

#[test]
fn ctrl_c_ends_it_whatever_is_typed() {
    let mut top = top();
    press(&mut top, "/");
    let key = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(top.key(key), Action::Quit);
}

#[test]
fn rows_beyond_the_bound_are_one() {
    let mut top = LiveTop::new(String::new());
    let half = MAX_ROWS / 2 + 100;
    for tick in 0..2 {
        let mut builder = Builder::new(Settings::default());
        for number in 0..half {
            let name = format!("{tick}-{number}");
            builder.add(&[frame(&name, "a.php", 1)], &[1, 1, 1], &[]);
        }
        top.add(vec![builder.finish()], SECOND).unwrap();
    }
    let rows = top.rows();
    assert_eq!(rows.len(), MAX_ROWS + 1);
    let all: i64 = rows.iter().map(|row| row.flat).sum();
    assert_eq!(all, 2 * half as i64);
    assert_eq!(row(&top, "(other)").flat, 200);
}

/// Two windows: a quarter, then another share of the time in the cart.
fn windows(share: i64) -> LiveTop {
    let mut top = LiveTop::new("pool www".to_owned());
    for number in 0..10 {
        let share = if number < 5 { 25 } else { share };
        top.add(vec![second(number, share)], SECOND).unwrap();
    }
    top
}

#[test]
fn arrows_show_changes_beyond_chance() {
    let mut top = windows(50);
    let trend = |top: &LiveTop, name: &str| row(top, name).trend;
    assert_eq!(trend(&top, "md5"), Some(ShareTrend::Rose));
    assert_eq!(trend(&top, "usleep"), Some(ShareTrend::Fell));
    // It has no self time.
    assert_eq!(trend(&top, CART), None);
    press(&mut top, "3");
    assert_eq!(trend(&top, "GET /blog/{id}"), Some(ShareTrend::Fell));
    press(&mut top, "4");
    assert_eq!(trend(&top, "11"), Some(ShareTrend::Rose));
    // All CPU time is in the cart, before and after.
    press(&mut top, "1c");
    assert_eq!(trend(&top, "md5"), None);
    // For 500 samples in each window, three standard errors are 8 points.
    assert_eq!(trend(&windows(32), "md5"), None);
    assert_eq!(trend(&windows(18), "md5"), None);
    assert_eq!(trend(&windows(36), "md5"), Some(ShareTrend::Rose));
}

#[test]
fn arrows_last_until_the_next_window() {
    let mut top = windows(50);
    for number in 10..14 {
        top.add(vec![second(number, 50)], SECOND).unwrap();
    }
    assert_eq!(row(&top, "md5").trend, Some(ShareTrend::Rose));
    top.add(vec![second(14, 50)], SECOND).unwrap();
    assert_eq!(row(&top, "md5").trend, None);
}

#[test]
fn a_reset_begins_all_sums_anew() {
    let mut top = windows(50);
    press(&mut top, "pr");
    assert!(top.rows().is_empty() && !top.is_paused() && top.file().is_err());
    top.add(vec![second(10, 25)], SECOND).unwrap();
    check(&top, "md5", [250, 250], [250, 250]);
    assert_eq!(row(&top, "md5").trend, None);
    let saved = decode(&top.file().unwrap(), &DecodeLimits::default()).unwrap();
    assert_eq!(total(&saved, "samples"), 100);
    assert_eq!(saved.time_nanos, 1_010_000_000_000);
}

#[test]
fn an_update_shows_the_newest_second() {
    let mut top = top();
    press(&mut top, "p");
    top.add(vec![second(2, 100)], SECOND).unwrap();
    assert_eq!(press(&mut top, "u"), Action::Refresh);
    check(&top, "md5", [1000, 1000], [1750, 1750]);
    assert!(top.is_paused());
    let key = KeyEvent::new(KeyCode::F(5), KeyModifiers::NONE);
    assert_eq!(top.key(key), Action::Refresh);
}

fn picture(top: &LiveTop, columns: u16, rows: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    let theme = Theme { has_colour: true };
    terminal.draw(|frame| draw(top, theme, frame)).unwrap();
    terminal.backend().to_string()
}

#[test]
fn functions_in_eighty_columns() {
    insta::assert_snapshot!(picture(&top(), 80, 12));
}

#[test]
fn arrows_in_eighty_columns() {
    let mut top = windows(50);
    let functions = picture(&top, 80, 12);
    press(&mut top, "r");
    insta::assert_snapshot!([functions, picture(&top, 80, 8)].join("\n"));
}

#[test]
fn functions_in_two_hundred_columns() {
    insta::assert_snapshot!(picture(&top(), 200, 12));
}

#[test]
fn lines_routes_and_workers() {
    let mut top = top();
    let mut pictures = Vec::new();
    for key in ["2", "3", "4"] {
        press(&mut top, key);
        pictures.push(picture(&top, 80, 10));
    }
    insta::assert_snapshot!(pictures.join("\n"));
}

#[test]
fn a_table_tells_its_pause_filter_and_emptiness() {
    let mut top = top();
    press(&mut top, "p/xyz");
    let typed = picture(&top, 80, 8);
    press(&mut top, "\x1b");
    top.said = "saved phpprof-top-120000.pb.gz".to_owned();
    let saved = picture(&top, 80, 8);
    let nothing = picture(&LiveTop::new("pid 7".to_owned()), 80, 8);
    insta::assert_snapshot!([typed, saved, nothing].join("\n"));
}

#[test]
fn any_size_can_be_drawn() {
    let mut top = top();
    for (columns, rows) in [(1, 1), (3, 2), (20, 4), (79, 5), (500, 3)] {
        for key in ["1", "2", "3", "4", "G"] {
            press(&mut top, key);
            picture(&top, columns, rows);
        }
    }
}

#[test]
fn colours_are_the_terminals_own_or_none() {
    let colours = |has_colour| {
        let mut terminal = Terminal::new(TestBackend::new(80, 12)).unwrap();
        let theme = Theme { has_colour };
        terminal.draw(|frame| draw(&top(), theme, frame)).unwrap();
        let cells = terminal.backend().buffer().content.iter();
        let mut colours: Vec<_> = cells.flat_map(|cell| [cell.fg, cell.bg]).collect();
        colours.sort_by_key(|colour| format!("{colour:?}"));
        colours.dedup();
        colours
    };
    assert_eq!(colours(true), [Color::Red, Color::Reset]);
    assert_eq!(colours(false), [Color::Reset]);
}
