//! The plot: CPU per sample over depth, and over busy workers, for each profiler. It is drawn from
//! `results.csv`, so that a page can be drawn again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// The sizes of the whole picture, and of a panel's plot area, in pixels.
const SIZE: [f64; 2] = [960.0, 450.0];
const PANEL: [f64; 2] = [370.0, 300.0];
const COLOURS: [(&str, &str); 3] = [
    ("phpprof", "#1f6feb"),
    ("pfp", "#d1630c"),
    ("phpspy", "#6e7781"),
];

/// One line of a panel: profiler and rate.
type PlotLine = (String, u32);

/// A place on the horizontal axis: the numbers by which places are ordered, and the place's name.
type PlotPlace = ([u32; 2], String);

/// The costs of a line, by place.
#[derive(Debug, Default, PartialEq)]
struct Panel {
    title: &'static str,
    axis: &'static str,
    lines: BTreeMap<PlotLine, BTreeMap<PlotPlace, f64>>,
}

/// Draws the results of a file into another.
pub fn redraw(csv: &Path, svg: &Path) -> Result<()> {
    let text = fs::read_to_string(csv).with_context(|| format!("reading {}", csv.display()))?;
    fs::write(svg, draw(&panels(&text)?)).with_context(|| format!("writing {}", svg.display()))
}

fn panels(csv: &str) -> Result<[Panel; 2]> {
    let mut lines = csv.lines();
    let names: Vec<&str> = lines.next().context("an empty file")?.split(',').collect();
    let mut depth = Panel {
        title: "deep: a chain of handlers",
        axis: "handlers",
        ..Panel::default()
    };
    let mut workers = Panel {
        title: "DokuWiki under php-fpm",
        axis: "busy workers of all",
        ..Panel::default()
    };
    for line in lines {
        let row: BTreeMap<&str, &str> = names.iter().copied().zip(line.split(',')).collect();
        let get = |name: &str| row.get(name).copied().unwrap_or("");
        let Ok(cpu) = get("cpu_us_per_sample").parse::<f64>() else {
            continue;
        };
        let (panel, names) = match (get("workload"), get("mode")) {
            ("deep", "vm_readv") => (&mut depth, ["depth", "depth"]),
            ("dokuwiki", "vm_readv") => (&mut workers, ["workers", "busy"]),
            _ => continue,
        };
        let [first, second] = [get(names[0]).parse()?, get(names[1]).parse()?];
        let name = if names[0] == names[1] {
            format!("{first}")
        } else {
            format!("{second} of {first}")
        };
        let key = (get("profiler").to_owned(), get("rate_hz").parse()?);
        let line = panel.lines.entry(key).or_default();
        line.insert(([first, second], name), cpu);
    }
    for panel in [&mut depth, &mut workers] {
        // One point is not a line.
        panel.lines.retain(|_, points| points.len() > 1);
    }
    Ok([depth, workers])
}

fn draw(panels: &[Panel; 2]) -> String {
    let [width, height] = SIZE;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    for (panel, left) in panels.iter().zip([70.0, 540.0]) {
        draw_panel(&mut svg, panel, left);
    }
    svg + "</svg>\n"
}

fn draw_panel(svg: &mut String, panel: &Panel, left: f64) {
    let [width, height] = PANEL;
    let top = 50.0;
    let points = || panel.lines.values().flatten();
    let places: BTreeSet<&PlotPlace> = points().map(|(place, _)| place).collect();
    let greatest = points().map(|(_, cpu)| *cpu).fold(1.0, f64::max);
    let decades = greatest.log10().ceil().max(1.0);
    // All places are equally far from each other.
    let x = |place: &PlotPlace| {
        let index = places.iter().position(|one| *one == place).unwrap_or(0);
        left + width * (index as f64 + 0.5) / places.len().max(1) as f64
    };
    // From 1 µs on; a logarithm, because the profilers' costs differ by orders of magnitude.
    let y = |value: f64| top + height * (1.0 - value.max(1.0).log10() / decades);
    text(svg, left, top - 25.0, "start", panel.title);
    text(svg, left, top - 9.0, "start", "µs of CPU a sample");
    text(svg, left + width, top + height + 34.0, "end", panel.axis);
    for place in &places {
        text(svg, x(place), top + height + 18.0, "middle", &place.1);
    }
    for decade in 0..=decades as i32 {
        let value = 10_f64.powi(decade);
        text(svg, left - 6.0, y(value) + 4.0, "end", &format!("{value}"));
    }
    draw_legend(svg, panel, left, top + height + 58.0);
    for decade in 0..=decades as i32 {
        let at = y(10_f64.powi(decade));
        let _ = writeln!(
            svg,
            "<line x1=\"{left}\" y1=\"{at:.1}\" x2=\"{:.1}\" y2=\"{at:.1}\" stroke=\"#d0d7de\" stroke-width=\"0.7\"/>",
            left + width
        );
    }
    for ((profiler, rate), points) in &panel.lines {
        let path: Vec<String> = points
            .iter()
            .map(|(place, &cpu)| format!("{:.1},{:.1}", x(place), y(cpu)))
            .collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" {}/>",
            path.join(" "),
            stroke(profiler, *rate)
        );
        for (place, &cpu) in points {
            let _ = writeln!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.5\" fill=\"{}\"/>",
                x(place),
                y(cpu),
                colour(profiler)
            );
        }
    }
}

/// The lines' names below the panel, two in a row.
fn draw_legend(svg: &mut String, panel: &Panel, left: f64, top: f64) {
    let [width, _] = PANEL;
    for (index, (profiler, rate)) in panel.lines.keys().enumerate() {
        let (column, row) = ((index % 2) as f64, (index / 2) as f64);
        let (at, y) = (left + column * width / 2.0, top + 16.0 * row);
        let words = format!("{profiler}, {rate} Hz");
        text(svg, at + 30.0, y, "start", &words);
        let _ = writeln!(
            svg,
            "<line x1=\"{at:.1}\" y1=\"{1:.1}\" x2=\"{0:.1}\" y2=\"{1:.1}\" {2}/>",
            at + 25.0,
            y - 4.0,
            stroke(profiler, *rate)
        );
    }
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"#1f2328\">{words}</text>"
    );
}

/// A colour for each profiler; dashed at low rates, where starting and waking up matter more.
fn stroke(profiler: &str, rate: u32) -> String {
    let dashes = match rate {
        ..500 => "stroke-dasharray=\"5 4\"",
        500.. => "",
    };
    format!(
        "stroke=\"{}\" stroke-width=\"1.6\" {dashes}",
        colour(profiler)
    )
}

fn colour(profiler: &str) -> &'static str {
    let known = COLOURS.iter().find(|(name, _)| *name == profiler);
    known.map_or("#000000", |(_, colour)| colour)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CSV: &str = "workload,depth,workers,busy,rate_hz,mode,profiler,cpu_us_per_sample\n\
        deep,100,1,1,999,vm_readv,phpprof,30\n\
        deep,30,1,1,999,vm_readv,phpprof,20\n\
        deep,30,1,1,999,mem,phpprof,25\n\
        deep,30,1,1,9999,vm_readv,phpprof,15\n\
        dokuwiki,,64,4,99,vm_readv,pfp,200\n\
        dokuwiki,,4,4,99,vm_readv,pfp,100\n\
        dokuwiki,,64,0,99,vm_readv,phpprof,\n";

    #[test]
    fn a_row_becomes_a_point_of_its_line() {
        let [depth, workers] = panels(CSV).unwrap();
        let line = |panel: &Panel, profiler: &str, rate| {
            let points = panel.lines[&(profiler.to_owned(), rate)].iter();
            points
                .map(|((_, name), cpu)| (name.clone(), *cpu))
                .collect::<Vec<_>>()
        };
        let named = |name: &str, cpu| (name.to_owned(), cpu);
        assert_eq!(
            line(&depth, "phpprof", 999),
            [named("30", 20.0), named("100", 30.0)]
        );
        assert_eq!(
            line(&workers, "pfp", 99),
            [named("4 of 4", 100.0), named("4 of 64", 200.0)]
        );
        assert_eq!((depth.lines.len(), workers.lines.len()), (1, 1));
    }

    #[test]
    fn every_line_is_drawn_and_named() {
        let svg = draw(&panels(CSV).unwrap());
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(svg.contains("pfp, 99 Hz") && svg.contains("phpprof, 999 Hz"));
    }
}
