//! Pages that are drawn from stored files.

use phpprof_profile::proto::{Function, Line, Location, Sample};
use phpprof_profile::{DecodeLimits, decode, encode_gzip, timeline};

use super::{pages, profile};

#[test]
fn a_page_is_drawn_with_or_without_timeline() {
    let list = timeline::TimelineMerger::new().finish();
    let list = timeline::encode(&list).unwrap();
    let has_timeline = |list| {
        let page = pages::draw(profile(), list, "shop/first").unwrap();
        page.contains("id=\"timeline\"")
    };
    assert!(has_timeline(Some(list)));
    assert!(!has_timeline(Some(b"no list".to_vec())));
    assert!(!has_timeline(None));
}

#[test]
fn a_small_profile_with_huge_page_is_refused() {
    let mut profile = decode(&profile(), &DecodeLimits::default()).unwrap();
    let name = "x".repeat(16 << 10);
    profile.string_table.push(name);
    for id in 2..=4_000 {
        profile.function.push(Function {
            id,
            name: 4,
            start_line: id as i64,
            ..Function::default()
        });
        profile.location.push(Location {
            id,
            line: vec![Line {
                function_id: id,
                ..Line::default()
            }],
            ..Location::default()
        });
        profile.sample.push(Sample {
            location_id: vec![id],
            value: vec![1],
            ..Sample::default()
        });
    }
    let file = encode_gzip(&profile);
    assert!(file.len() < 100 << 10, "{}", file.len());
    let refused = pages::draw(file, None, "shop/first").unwrap_err();
    let instead = "download the profile, and look at it with kubectl phpprof top";
    assert!(refused.ends_with(instead), "{refused}");
}
