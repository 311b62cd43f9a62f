//! The profiles in the tests of formats, page and readers.
//!
//! Invariant: every call gives the same profile.

use phpprof_profile::{Builder, FrameRef, MappingInfo, Profile, SampleTag, Settings};

pub const TYPES: [&str; 3] = ["samples", "cpu", "wall"];

fn builder() -> Builder {
    let mut builder = Builder::new(Settings {
        period: 10_101_010,
        time_nanos: 1_790_000_000_000_000_000,
        duration_nanos: 30_000_000_000,
        mapping: MappingInfo {
            filename: "/usr/sbin/php-fpm8.2".into(),
            build_id: "abc".into(),
        },
        ..Settings::default()
    });
    builder.comment(include_str!("../../../contract/comment.json").trim());
    builder
}

fn frame<'a>(name: &'a str, file: &'a str, start_line: i64, line: i64) -> FrameRef<'a> {
    FrameRef {
        name,
        file,
        start_line,
        line,
    }
}

/// A small shop in two pods: recursion, internal functions, a closure, a phase, and time without a
/// frame. `price_milliseconds` is the time of a product's price.
pub fn shop(price_milliseconds: i64) -> Profile {
    let mut builder = builder();
    for (pod, weight) in [("web-1", 1), ("web-2", 3)] {
        for (route, weight) in [("checkout", 2 * weight), ("search", weight)] {
            let labels = [
                SampleTag::Str("pod", pod),
                SampleTag::Str("route", route),
                SampleTag::Num("pid", 7 + weight, ""),
            ];
            let mut add = |stack: &[FrameRef<'_>], milliseconds: i64| {
                let wall = milliseconds * weight * 1_000_000;
                builder.add(
                    stack,
                    &[milliseconds * weight / 10, wall * 9 / 10, wall],
                    &labels,
                );
            };
            let main = frame("{main}", "/srv/app/index.php", 0, 12);
            let checkout = frame(r"Shop\Cart::checkout", "/srv/app/src/Cart.php", 20, 31);
            let total = frame(r"Shop\Cart::total", "/srv/app/src/Cart.php", 40, 44);
            let closure = frame(
                "{closure:/srv/app/src/Cart.php:43}",
                "/srv/app/src/Cart.php",
                43,
                43,
            );
            let price = frame(r"Shop\Product::price", "/srv/app/src/Product.php", 8, 11);
            let search = frame(r"Shop\Search::find", "/srv/app/src/Search.php", 5, 9);
            if route == "checkout" {
                add(
                    &[
                        price,
                        closure,
                        frame("array_map", "", 0, 0),
                        total,
                        checkout,
                        main,
                    ],
                    price_milliseconds,
                );
                add(&[total, total, checkout, main], 200);
                add(&[frame("[gc]", "", 0, 0), checkout, main], 60);
            } else {
                add(&[frame("similar_text", "", 0, 0), search, main], 700);
                add(&[frame("preg_match", "", 0, 0), search, main], 150);
                add(&[frame("[compiling]", "", 0, 0), main], 90);
            }
            add(&[], 10);
        }
    }
    builder.finish()
}

/// Names that try to inject something in each format.
pub const HOSTILE: [&str; 9] = [
    "</script><script>document.title='pwned'</script>",
    "<img src=x onerror=\"document.title='pwned'\">",
    "<!--<script>",
    "a;b\nfn=(1) c 12\r\ncalls=9 9",
    "\"],\"x\":[\"",
    "]]></title></text></svg><svg onload=alert(1)>",
    "(1) fl=evil",
    "\u{2028}\u{0}\u{1b}[31m&amp;&#60;",
    "__proto__",
];

pub fn hostile() -> Profile {
    let mut builder = builder();
    for (index, name) in HOSTILE.into_iter().enumerate() {
        let value = 10 + index as i64;
        let stack = [
            frame(name, name, 3, 4),
            frame(name, "", 0, 0),
            frame("{main}", "/srv/app/index.php", 0, 1),
        ];
        builder.add(
            &stack,
            &[value, value * 1_000_000, value * 1_000_000],
            &[SampleTag::Str(name, name), SampleTag::Str("pod", name)],
        );
    }
    builder.comment(format!("{{\"php\":{{\"version\":{:?}}}}}", HOSTILE[0]));
    builder.finish()
}

/// This many distinct stacks, with different depths and some hundred functions.
pub fn large(stacks: usize) -> Profile {
    let mut builder = builder();
    let names: Vec<_> = (0..400)
        .map(|index| {
            format!(
                r"App\Module{}\Class{}::method{index}",
                index % 12,
                index % 60
            )
        })
        .collect();
    for stack in 0..stacks {
        let depth = 8 + stack % 33;
        let mut number = stack;
        let mut frames = vec![frame("{main}", "/srv/app/index.php", 0, 1)];
        for level in 0..depth {
            // As in real programs, many stacks share the first levels. The digits of the number
            // make each stack unique.
            let pick = if level < 4 {
                stack / 20_usize.pow(3 - level as u32) % 20
            } else {
                (number + level * 7) % 400
            };
            number /= 3;
            frames.push(frame(
                &names[pick % 400],
                "/srv/app/src/Module.php",
                1 + pick as i64,
                2 + stack as i64,
            ));
        }
        frames.reverse();
        // A few stacks have most of the time, as in real programs.
        let value = 1 + 4_000 / (1 + (stack * 7919 % 1009) as i64);
        builder.add(
            &frames,
            &[value, value * 9_000_000, value * 10_000_000],
            &[SampleTag::Str(
                "pod",
                if stack % 2 == 0 { "web-1" } else { "web-2" },
            )],
        );
    }
    builder.finish()
}
