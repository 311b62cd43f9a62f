//! The plot: our share of a function over its true share, one point a function: pure.
//!
//! It is drawn from the CSV of functions, so that a page can be drawn again.

use std::fmt::Write as _;

use anyhow::{Context, Result};

use super::check::class_name;
use super::compared::{CLASSES, class};

/// The sizes of the whole picture, and of a panel's plot area, in pixels.
const SIZE: [f64; 2] = [960.0, 520.0];
const PANEL: f64 = 390.0;
const TOP: f64 = 50.0;
/// The axes go from 0.01 to 100 %. What is less is on the edge.
const LEAST: f64 = 0.01;
const DECADES: f64 = 4.0;
/// From the shortest calls to the longest.
const COLOURS: [&str; CLASSES] = [
    "#b3261e", "#e8710a", "#c9a400", "#2e8b57", "#1f6feb", "#6e7781",
];

/// A function in the plot.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    class: usize,
    truth: f64,
    ours: f64,
}

/// Draws self and total shares of the functions of all generated programs.
pub fn draw_plot(functions: &str) -> Result<String> {
    let panels = [
        ("Self time", "true_self", "our_self"),
        ("Time with callees", "true_total", "our_total"),
    ];
    let [width, height] = SIZE;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    for ((title, truth, ours), left) in panels.into_iter().zip([60.0, 530.0]) {
        draw_panel(&mut svg, title, &points(functions, truth, ours)?, left);
    }
    for (class, colour) in COLOURS.into_iter().enumerate() {
        let x = 60.0 + 150.0 * class as f64;
        let _ = writeln!(
            svg,
            "<circle cx=\"{x}\" cy=\"500\" r=\"4\" fill=\"{colour}\"/>"
        );
        text(&mut svg, x + 9.0, 504.0, "start", &class_name(class));
    }
    Ok(svg + "</svg>\n")
}

/// The functions of generated programs that have these shares. A name with a comma is quoted; no
/// field before the name has one.
fn points(functions: &str, truth: &str, ours: &str) -> Result<Vec<Point>> {
    let mut lines = functions.lines();
    let names: Vec<&str> = lines.next().context("an empty file")?.split(',').collect();
    let from_end = |name: &str| {
        let place = names.iter().position(|one| *one == name);
        Ok::<usize, anyhow::Error>(
            names.len() - place.with_context(|| format!("no column {name}"))?,
        )
    };
    let columns = [
        from_end("kind")?,
        from_end("nanoseconds_a_call")?,
        from_end(truth)?,
        from_end(ours)?,
    ];
    let mut points = Vec::new();
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        let field = |column: usize| {
            fields
                .len()
                .checked_sub(column)
                .map_or("", |place| fields[place])
        };
        let [kind, taken, truth, ours] = columns.map(field);
        if kind == "unknown" || kind == "script" {
            continue;
        }
        points.push(Point {
            class: class(taken.parse().ok()),
            truth: truth.parse().with_context(|| line.to_owned())?,
            ours: ours.parse().with_context(|| line.to_owned())?,
        });
    }
    Ok(points)
}

fn draw_panel(svg: &mut String, title: &str, points: &[Point], left: f64) {
    let part = |share: f64| (share.clamp(LEAST, 100.0) / LEAST).log10() / DECADES;
    let x = |share: f64| left + PANEL * part(share);
    let y = |share: f64| TOP + PANEL * (1.0 - part(share));
    text(svg, left, TOP - 25.0, "start", title);
    text(svg, left, TOP - 9.0, "start", "phpprof's share, %");
    text(
        svg,
        left + PANEL,
        TOP + PANEL + 34.0,
        "end",
        "true share, %",
    );
    for share in [0.01, 0.1, 1.0, 10.0, 100.0] {
        text(
            svg,
            x(share),
            TOP + PANEL + 18.0,
            "middle",
            &format!("{share}"),
        );
        text(svg, left - 6.0, y(share) + 4.0, "end", &format!("{share}"));
        let _ = writeln!(
            svg,
            "<path d=\"M{left} {0:.1}H{1:.1}M{2:.1} {TOP}V{3:.1}\" stroke=\"#d0d7de\" stroke-width=\"0.7\"/>",
            y(share),
            left + PANEL,
            x(share),
            TOP + PANEL
        );
    }
    let _ = writeln!(
        svg,
        "<path d=\"M{left} {0:.1}L{1:.1} {TOP}\" stroke=\"#1f2328\" stroke-width=\"0.7\"/>",
        TOP + PANEL,
        left + PANEL
    );
    for point in points {
        let _ = writeln!(
            svg,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2\" fill=\"{}\" fill-opacity=\"0.7\"/>",
            x(point.truth),
            y(point.ours),
            COLOURS[point.class]
        );
    }
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"#1f2328\">{words}</text>"
    );
}

#[cfg(test)]
mod tests {
    use super::super::report::FUNCTION_COLUMNS;
    use super::*;

    fn csv() -> String {
        format!(
            "{FUNCTION_COLUMNS}\n\
             program 1,opcache,999,f1,function,120,130,11.5,4,11.5,4.5,0.1,0.1\n\
             program 1,opcache,999,{{main}},script,,,2,2,100,100,0.1,0.1\n\
             dokuwiki,php-fpm,999,\"{{closure:a,b.php:1}}\",unknown,,,1,1,1,1,0.1,0.1\n\
             program 1,opcache,999,\"a,b\",method,,,1,3,5,6,0.1,0.1\n"
        )
    }

    #[test]
    fn a_function_of_a_program_is_a_point() {
        let point = |class, truth, ours| Point { class, truth, ours };
        assert_eq!(
            points(&csv(), "true_self", "our_self").unwrap(),
            [point(1, 11.5, 4.0), point(5, 1.0, 3.0)]
        );
        assert!(points(&csv(), "true_self", "nothing").is_err());
    }

    #[test]
    fn both_panels_have_all_points() {
        let svg = draw_plot(&csv()).unwrap();
        // Two functions twice, and the legend.
        assert_eq!(svg.matches("<circle").count(), 2 * 2 + CLASSES);
        // A share of 11.5 % is at 3.06 of 4 decades.
        assert!(svg.contains("cx=\"358.4\""), "{svg}");
    }
}
