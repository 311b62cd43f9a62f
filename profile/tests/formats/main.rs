//! The writers' output: the same sums in all formats, and nothing that a name injects.

#[cfg(test)]
#[path = "../profiles/mod.rs"]
mod profiles;
#[cfg(test)]
mod sums;

use phpprof_profile::{Format, NoiseScale, View, diff, page, svg};
use profiles::{HOSTILE, hostile, large, shop};
use sums::{check_sums, of_type, page_data, text};

#[test]
fn all_formats_have_the_same_sum_of_samples() {
    check_sums(&shop(400), &[]);
    check_sums(&shop(400), &[("pod", "web-2"), ("route", "search")]);
    check_sums(&hostile(), &[]);
    check_sums(&large(500), &[]);
}

#[test]
fn a_label_that_no_sample_has_leaves_nothing() {
    let view = View {
        labels: vec![("pod".into(), "db-1".into())],
        ..View::default()
    };
    assert_eq!(text(&shop(400), Format::Folded, &view), "");
    assert!(text(&shop(400), Format::Svg, &view).ends_with("</svg>\n"));
}

#[test]
fn an_unknown_sample_type_is_refused_with_suggestions() {
    let error = Format::Folded
        .write(&shop(400), &of_type("heap"), "shop", None)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the profile has no sample type heap; it has samples, cpu, wall"
    );
}

#[test]
fn each_format_reads_as_its_readers_want_it() {
    let profile = shop(400);
    for (name, format) in [
        ("folded", Format::Folded),
        ("speedscope", Format::Speedscope),
        ("callgrind", Format::Callgrind),
        ("svg", Format::Svg),
    ] {
        insta::assert_snapshot!(name, text(&profile, format, &of_type("wall")));
    }
}

#[test]
fn the_differential_picture_colours_growth_and_shrinkage() {
    let (before, after) = (shop(200), shop(900));
    let picture = svg::differential(
        &before,
        &after,
        &View::default(),
        "shop",
        NoiseScale::BY_SAMPLES,
    )
    .unwrap();
    insta::assert_snapshot!(picture);
}

#[test]
fn differences_by_chance_are_grey_in_the_picture() {
    let picture = |one, other| {
        svg::differential(
            &shop(one),
            &shop(other),
            &View::default(),
            "shop",
            NoiseScale::BY_SAMPLES,
        )
        .unwrap()
    };
    let grey = |picture: &str| picture.matches("no more than chance)</title>").count();
    let frames = |picture: &str| picture.matches("<g><title>").count();
    let near = picture(400, 401);
    assert_eq!(grey(&near), frames(&near));
    let far = picture(200, 900);
    assert!(grey(&far) < frames(&far) / 2, "{far}");
}

#[test]
fn growth_and_shrinkage_are_told_by_share() {
    let diff = diff(&shop(200), &shop(900), &View::default()).unwrap();
    let first = &diff.changes[0];
    assert_eq!(first.name, r"Shop\Product::price");
    assert!(diff.flat_points(first) > 20.0);
    let search = diff
        .changes
        .iter()
        .find(|change| change.name == "similar_text")
        .unwrap();
    assert_eq!(
        search.flat_before, search.flat_after,
        "its time has not changed"
    );
    assert!(diff.flat_points(search) < -10.0, "its share has");
}

#[test]
fn names_are_escaped_in_a_picture() {
    let svg = text(&hostile(), Format::Svg, &View::default());
    let tags: std::collections::BTreeSet<_> = svg
        .split('<')
        .skip(1)
        .map(|tag| {
            tag.split(|letter: char| !letter.is_ascii_alphanumeric() && !"/?".contains(letter))
                .next()
                .unwrap()
        })
        .collect();
    assert_eq!(
        tags.into_iter().collect::<Vec<_>>(),
        [
            "/g", "/svg", "/text", "/title", "?xml", "g", "rect", "svg", "text", "title"
        ]
    );
    assert!(!svg.contains(|letter: char| letter.is_control() && letter != '\n'));
}

#[test]
fn names_are_escaped_in_the_page() {
    let profile = hostile();
    let plain = page::page(&shop(400), &View::default(), "shop", None).unwrap();
    let html = page::page(&profile, &View::default(), HOSTILE[0], None).unwrap();
    let tags = |html: &str| html.matches('<').count();
    assert_eq!(tags(&html), tags(&plain), "no element is added");
    let names = &page_data(&html)["functions"];
    for name in HOSTILE {
        let known = names
            .as_array()
            .unwrap()
            .iter()
            .any(|function| function[0] == name);
        assert!(known, "{name:?} is there as it is");
    }
}

#[test]
fn names_start_no_line_and_no_frame() {
    let folded = text(&hostile(), Format::Folded, &View::default());
    assert_eq!(folded.lines().count(), HOSTILE.len());
    assert!(folded.lines().all(|line| line.matches(';').count() == 2));
    let callgrind = text(&hostile(), Format::Callgrind, &View::default());
    let defined = callgrind
        .lines()
        .filter(|line| line.starts_with("fn="))
        .count();
    assert_eq!(defined, 1 + 2 * HOSTILE.len());
    assert_eq!(
        callgrind
            .lines()
            .filter(|line| line.starts_with("calls=9"))
            .count(),
        0
    );
}

#[test]
fn the_page_needs_no_other_origin() {
    let html = page::page(&shop(400), &View::default(), "shop", None).unwrap();
    let references = [
        "src=",
        "href=\"http",
        "url(",
        "@import",
        "fetch(",
        "XMLHttpRequest",
        "import(",
    ];
    let found: Vec<_> = references
        .into_iter()
        .filter(|text| html.contains(text))
        .collect();
    assert_eq!(found, Vec::<&str>::new());
}

#[test]
fn the_ending_of_a_file_says_its_format() {
    for (name, expected) in [
        ("out.pb.gz", Some(Format::Pprof)),
        ("dir.svg/out.PPROF", Some(Format::Pprof)),
        ("out.folded", Some(Format::Folded)),
        ("out.speedscope.json", Some(Format::Speedscope)),
        ("out.json.gz", Some(Format::Firefox)),
        ("callgrind.out.7", Some(Format::Callgrind)),
        ("x/web.callgrind", Some(Format::Callgrind)),
        ("out.svg", Some(Format::Svg)),
        ("out.html", Some(Format::Html)),
        ("out.pdf", None),
        ("svg", None),
    ] {
        assert_eq!(Format::of_name(name), expected, "{name}");
    }
}
