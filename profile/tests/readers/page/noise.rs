//! A comparison of two profiles: differences that chance can cause are grey.

use phpprof_profile::page::differential;
use phpprof_profile::{Profile, View};

use super::saved;
use crate::profiles::shop;

pub const GREY: &str = "#cccccc";

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
fn what_two_halves_of_one_profile_differ_by_is_grey() {
    let [one, other] = halves(&shop(400));
    let mut page = saved(&differential(&one, &other, &View::default(), "halves").unwrap());
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
