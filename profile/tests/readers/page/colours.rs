//! The page's colours: themes, comparisons, and the same ones in a picture.

use phpprof_profile::page::differential;
use phpprof_profile::{Format, NoiseScale, Profile, View};

use super::{Saved, frame, noise, saved, saved_shop};
use crate::profiles::shop;

#[test]
fn the_theme_follows_the_machine_and_the_button() {
    let mut page = saved_shop();
    let ground = "getComputedStyle(document.body).backgroundColor";
    assert_eq!(page.browser.eval(ground), "rgb(255, 255, 255)");
    page.browser.prefer("dark");
    page.browser
        .wait_for(&format!("{ground} === 'rgb(15, 19, 24)'"));
    page.picture("dark.png");
    page.browser.key("d");
    assert_eq!(page.browser.eval(ground), "rgb(255, 255, 255)");
    page.browser.click("document.querySelector('#theme')");
    assert_eq!(page.browser.eval(ground), "rgb(15, 19, 24)");
    page.browser.call(
        "Emulation.setDeviceMetricsOverride",
        serde_json::json!({"width": 420, "height": 800, "deviceScaleFactor": 1, "mobile": false}),
    );
    page.browser
        .wait_for("document.querySelector('#chart svg').getAttribute('width') < 420");
    page.picture("narrow.png");
    page.check_quiet();
}

#[test]
fn two_profiles_are_compared_in_red_and_blue() {
    let mut page = saved(
        &differential(
            &shop(200),
            &shop(900),
            &View::default(),
            "shop: before and after",
            NoiseScale::BY_SAMPLES,
        )
        .unwrap(),
    );
    assert!(
        page.browser
            .text("#rows tr:first-child td.name")
            .starts_with(r"Shop\Product::price")
    );
    assert!(
        page.browser
            .text("#rows tr:first-child td.number")
            .starts_with('+')
    );
    let colour = |page: &mut Saved, name: &str| {
        let frame = frame(name);
        page.browser
            .eval(&format!(
                "{frame}.querySelector('rect').getAttribute('fill')"
            ))
            .as_str()
            .unwrap()
            .to_owned()
    };
    let channel = |colour: &str, at: usize| i64::from_str_radix(&colour[at..at + 2], 16).unwrap();
    let grew = colour(&mut page, r"Shop\Product::price");
    assert!(channel(&grew, 1) > channel(&grew, 5) + 40, "{grew} is red");
    let shrank = colour(&mut page, r"Shop\Search::find");
    assert!(
        channel(&shrank, 5) > channel(&shrank, 1) + 40,
        "{shrank} is blue"
    );
    assert_eq!(colour(&mut page, "[gc]"), noise::GREY);
    page.browser.hover(&frame("[gc]"));
    let tip = page.browser.text("#tip");
    assert!(tip.ends_with(" after, no more than chance"), "{tip}");
    assert_eq!(
        page.browser.text("#legend"),
        "takes more than beforetakes lessno more than chance"
    );
    page.picture("diff.png");
    page.browser
        .click("document.querySelectorAll('#widths button')[0]");
    page.check_quiet();
}

#[test]
fn the_picture_has_the_colours_of_the_page() {
    let profile: Profile = shop(400);
    let svg = String::from_utf8(
        Format::Svg
            .write(&profile, &View::default(), "shop", None)
            .unwrap(),
    )
    .unwrap();
    let mut page = saved_shop();
    for name in [
        r"Shop\Product::price",
        "array_map",
        "[gc]",
        "{main} /srv/app/index.php",
    ] {
        let frame = frame(name);
        let fill = page.browser.eval(&format!(
            "{frame}.querySelector('rect').getAttribute('fill')"
        ));
        let of_picture = svg
            .lines()
            .find(|line| line.contains(&format!("<title>{name}")))
            .and_then(|line| line.split("fill=\"").nth(1))
            .map(|rest| rest[..7].to_owned())
            .unwrap();
        assert_eq!(fill, of_picture, "{name}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flame.svg");
    std::fs::write(&path, svg).unwrap();
    let url = format!("file://{}", path.display());
    page.browser.open(&url);
    page.picture("picture.png");
    assert_eq!(page.browser.complaints(), Vec::<String>::new());
}
