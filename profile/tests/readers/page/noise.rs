//! A comparison of two profiles: differences that chance can cause are grey.

use phpprof_profile::page::differential;
use phpprof_profile::{NoiseScale, Profile, View, diff};

use super::saved;
use crate::profiles::shop;

pub const GREY: &str = "#cccccc";

/// Of each row of the table: the name, the points of its own share, and the bound if they are no
/// more than chance.
const ROWS: &str = r"[...document.querySelectorAll('#rows tr')].map((row) => {
    const cell = row.querySelector('td.number');
    const bound = cell.title.match(/up to ([\d.]+) points/);
    const points = cell.firstChild.textContent.replace('\u2212', '-').replace('±', '');
    return [row.querySelector('td.name button').textContent, points, bound && bound[1]];
})";

/// Splits a profile into two halves. A fixed pseudo-random series assigns each sample to one.
fn halves(profile: &Profile) -> [Profile; 2] {
    let mut halves = [profile.clone(), profile.clone()];
    let mut seed: u64 = 7;
    for at in 0..profile.sample.len() {
        let count = profile.sample[at].value[0];
        let thrown = (0..count)
            .filter(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                seed >> 63 == 1
            })
            .count() as i64;
        for (half, kept) in halves.iter_mut().zip([thrown, count - thrown]) {
            for value in &mut half.sample[at].value {
                *value = *value * kept / count.max(1);
            }
        }
    }
    halves
}

#[test]
fn halves_of_one_profile_show_no_difference() {
    let [one, other] = halves(&shop(400));
    let mut page = saved(
        &differential(
            &one,
            &other,
            &View::default(),
            "halves",
            NoiseScale::BY_SAMPLES,
        )
        .unwrap(),
    );
    let fills = page.browser.eval(
        "[...new Set([...document.querySelectorAll('#chart rect')].map((rect) => rect.getAttribute('fill')))].join()",
    );
    assert_eq!(fills, GREY);
    let same = "document.querySelectorAll('#rows td.number:not(.same)').length";
    assert_eq!(page.browser.eval(same), 0);
    let differ = "[...document.querySelectorAll('#rows small')].some((cell) => { const [from, to] = cell.textContent.split(' → '); return to && from !== to; })";
    assert_eq!(page.browser.eval(differ), true, "they are not equal");
    page.picture("noise.png");
    page.check_quiet();
}

/// The rule is written twice: for the page in its script, and for the plugin and pictures in Rust.
#[test]
fn page_and_plugin_have_the_same_bounds() {
    let [one, _] = halves(&shop(400));
    let mut other = shop(300);
    let grown = other.sample.len() / 3;
    for sample in &mut other.sample[..grown] {
        for value in &mut sample.value {
            *value *= 30;
        }
    }
    let mut page = saved(
        &differential(
            &one,
            &other,
            &View::default(),
            "changed",
            NoiseScale::BY_SAMPLES,
        )
        .unwrap(),
    );
    let rows = page.browser.eval(ROWS);
    let rows = rows.as_array().unwrap();
    let expected = diff(&one, &other, &View::default()).unwrap();
    assert_eq!(rows.len(), expected.changes.len());
    let (mut inside, mut outside) = (0, 0);
    for change in &expected.changes {
        let (points, noise) = (expected.flat_points(change), expected.flat_noise(change));
        let row = rows.iter().find(|row| row[0] == change.name.as_str());
        let row = row.unwrap_or_else(|| panic!("{} is not on the page", change.name));
        let number = |at: usize| row[at].as_str().map(|text| text.parse::<f64>().unwrap());
        assert!(
            (number(1).unwrap() - points).abs() < 0.006,
            "{row}: {points}"
        );
        match number(2) {
            Some(bound) => assert!((bound - noise).abs() < 0.006, "{row}: ± {noise}"),
            None => assert!(points.abs() > noise, "{row}: ± {noise}"),
        }
        if points.abs() <= noise {
            inside += 1
        } else {
            outside += 1
        }
    }
    assert!(inside > 0 && outside > 0, "{inside} and {outside}");
}
