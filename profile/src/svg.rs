//! Draws a flame graph as an SVG picture, without scripts and other origins, with every name as
//! text.
//!
//! It cannot zoom or search: the page ([`crate::page`]) can. Frames narrower than a third of a
//! pixel are not drawn.
//!
//! Invariant: for any names, the picture is well-formed XML and contains no element from a name.

use std::fmt::Write;

use crate::colour::{self, Colour};
use crate::in_use::is_in_use;
use crate::noise::{self, NoisePart, NoiseScale};
use crate::proto::Profile;
use crate::stacks::{FunctionRef, Stacks, View, ViewError};
use crate::text::{Amount, beginning, columns, percent, xml};
use crate::tree::{FrameTree, TreeNode};

const WIDTH: f64 = 1200.0;
const MARGIN: f64 = 10.0;
const ROW: f64 = 18.0;
const HEAD: f64 = 44.0;
const FOOT: f64 = 12.0;
/// The average width of a letter.
const LETTER: f64 = 6.9;
const MIN_WIDTH: f64 = 0.34;

/// The picture of the chosen sample type, root at the bottom.
pub fn flame_graph(stacks: &Stacks<'_>, title: &str) -> String {
    let (name, unit) = stacks.sample_type();
    let total = stacks.total(stacks.chosen);
    let amount = Amount::of(unit, total);
    let subtitle = format!("{name}, {} in all", amount.text(total));
    let describe = |node: &TreeNode<'_>| {
        format!(
            "{}, {}",
            amount.text(node.value),
            percent(node.value, total)
        )
    };
    let fill = |node: &TreeNode<'_>| colour::of_function(node.function.as_ref());
    draw(&FrameTree::of(stacks), title, &subtitle, &describe, &fill)
}

/// As wide as `after`. Red frames have a larger share than in `before`, blue ones a smaller share;
/// grey ones differ by no more than chance.
///
/// # Errors
/// A [`ViewError`] where one of the profiles has no such sample type.
pub fn differential(
    before: &Profile,
    after: &Profile,
    view: &View,
    title: &str,
    scale: NoiseScale,
) -> Result<String, ViewError> {
    let same = view.of_same_type(after)?;
    let name = same.sample_type.as_deref().unwrap_or_default();
    let tree = FrameTree::compared(before, after, &same)?;
    let mut root = tree.nodes.first().cloned().unwrap_or_default();
    let (of, grey, same) = if is_in_use(after) {
        // It was counted, so what was there before is the measure of both.
        if root.before > 0 {
            root.value = root.before;
        }
        (
            "parts of all that was there before",
            "is the same",
            "the same",
        )
    } else {
        ("share of the total", "can be chance", "no more than chance")
    };
    let subtitle = format!(
        "{name}: {of}; red grew, blue shrank, grey {grey}; widths are of the profile after"
    );
    let describe = |node: &TreeNode<'_>| {
        let words = format!(
            "{} before, {} after",
            percent(node.before, root.before),
            percent(node.value, root.value)
        );
        if is_noise(node, &root, scale) {
            format!("{words}, {same}")
        } else {
            words
        }
    };
    let fill = |node: &TreeNode<'_>| {
        if is_noise(node, &root, scale) {
            return colour::NOISE;
        }
        let [before, after] = shares(node, &root);
        colour::of_change(before, after)
    };
    Ok(draw(&tree, title, &subtitle, &describe, &fill))
}

/// Of the total, before and after.
fn shares(node: &TreeNode<'_>, root: &TreeNode<'_>) -> [f64; 2] {
    [
        colour::share(node.before, root.before),
        colour::share(node.value, root.value),
    ]
}

/// Whether the two shares differ by no more than chance, by the rule of the page.
fn is_noise(node: &TreeNode<'_>, root: &TreeNode<'_>, scale: NoiseScale) -> bool {
    let part = |value, total, side: fn([f64; 2]) -> f64| NoisePart {
        value,
        total,
        error: side(node.errors),
        error_of_all: Some(side(root.errors)),
    };
    let bound = noise::points(
        part(node.before, root.before, |[before, _]| before),
        part(node.value, root.value, |[_, after]| after),
        scale,
    );
    let [before, after] = shares(node, root);
    100.0 * (after - before).abs() <= bound
}

fn draw(
    tree: &FrameTree<'_>,
    title: &str,
    subtitle: &str,
    describe: &dyn Fn(&TreeNode<'_>) -> String,
    fill: &dyn Fn(&TreeNode<'_>) -> Colour,
) -> String {
    let rows = placed(tree);
    let depth = rows.iter().map(|(node, ..)| node.depth).max().unwrap_or(0);
    let height = HEAD + ROW * (depth as f64 + 1.0) + FOOT;
    let mut svg = head(height, title, subtitle);
    for (node, x, width) in rows {
        let y = height - FOOT - ROW * (node.depth as f64 + 1.0);
        let name = node.function.map_or("all", |function| function.name);
        let _ = write!(
            svg,
            r#"<g><title>{}{} ({})</title><rect x="{x:.2}" y="{y:.0}" width="{width:.2}" height="{:.0}" fill="{}" rx="1"/>"#,
            xml(name),
            xml(&place(node.function.as_ref())),
            xml(&describe(node)),
            ROW - 1.0,
            fill(node).hex(),
        );
        let label = fitting(name, width);
        if !label.is_empty() {
            let _ = write!(
                svg,
                r#"<text x="{:.2}" y="{:.1}">{}</text>"#,
                x + 3.0,
                y + 12.5,
                xml(&label)
            );
        }
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

fn head(height: f64, title: &str, subtitle: &str) -> String {
    format!(
        r##"<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH:.0}" height="{height:.0}" viewBox="0 0 {WIDTH:.0} {height:.0}" font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="11.5">
<rect width="100%" height="100%" fill="#ffffff"/>
<text x="{MARGIN:.0}" y="20" font-size="15" font-weight="600" fill="#1f2328">{}</text>
<text x="{MARGIN:.0}" y="36" fill="#59636e">{}</text>
"##,
        xml(title),
        xml(subtitle)
    )
}

/// The visible nodes, with left edge and width.
fn placed<'t, 'a>(tree: &'t FrameTree<'a>) -> Vec<(&'t TreeNode<'a>, f64, f64)> {
    let Some(root) = tree.nodes.first().filter(|root| root.value > 0) else {
        return Vec::new();
    };
    let scale = (WIDTH - 2.0 * MARGIN) / root.value as f64;
    let mut placed = Vec::new();
    let mut open = vec![(root, MARGIN)];
    while let Some((node, x)) = open.pop() {
        let width = node.value as f64 * scale;
        if width < MIN_WIDTH {
            continue;
        }
        placed.push((node, x, width));
        let mut left = x;
        for child in node
            .children
            .iter()
            .filter_map(|child| tree.nodes.get(*child))
        {
            open.push((child, left));
            left += child.value as f64 * scale;
        }
    }
    placed
}

/// File and line of a function, if they are known.
fn place(function: Option<&FunctionRef<'_>>) -> String {
    match function {
        // A top level has it in its name.
        Some(function) if function.name.ends_with(function.file) => String::new(),
        Some(function) if function.start_line > 0 => {
            format!(" {}:{}", function.file, function.start_line)
        }
        Some(function) => format!(" {}", function.file),
        _ => String::new(),
    }
}

/// The part of a name that fits into a frame of this width.
fn fitting(name: &str, width: f64) -> String {
    let room = ((width - 6.0) / LETTER).max(0.0) as usize;
    if columns(name) <= room {
        return name.to_owned();
    }
    if room < 3 {
        return String::new();
    }
    format!("{}…", beginning(name, room - 1))
}
