//! The flame graph page: one HTML file that needs nothing else, whoever serves it and wherever it is saved.
//!
//! It neither chooses nor lays out anything: `assets/page` does this in the browser.
//!
//! Invariant: names from the target are in the page as JSON without a `<`, and the page's script displays them as text. The page's policy
//! allows only the two scripts and the style of this file, and no requests.

use std::collections::HashMap;

use serde::Serialize;

use crate::embed;
use crate::findings::{Finding, Measure, findings};
use crate::lookup::Lookup;
use crate::proto::Profile;
use crate::source::Source;
use crate::stacks::{Numbers, Step, View, ViewError, label_value};
use crate::text::xml;
use crate::timeline::Timeline;
use crate::waiting::{self, Waiting};

/// See `assets/README.md`.
const COMPONENT: &str = include_str!("../assets/d3-flame-graph.min.js");
/// The most samples for which the page has labels.
const TOLD_APART: usize = 200_000;
/// One scope around all parts of the script.
const SCRIPT: &str = concat!(
    "\n(() => {\n\"use strict\";\n",
    include_str!("../assets/page/profile.js"),
    include_str!("../assets/page/pattern.js"),
    include_str!("../assets/page/colour.js"),
    include_str!("../assets/page/noise.js"),
    include_str!("../assets/page/tree.js"),
    include_str!("../assets/page/shapes.js"),
    include_str!("../assets/page/graph.js"),
    include_str!("../assets/page/save.js"),
    include_str!("../assets/page/table.js"),
    include_str!("../assets/page/findings.js"),
    include_str!("../assets/page/time.js"),
    include_str!("../assets/page/canvas.js"),
    include_str!("../assets/page/strip.js"),
    include_str!("../assets/page/span.js"),
    include_str!("../assets/page/moments.js"),
    include_str!("../assets/page/requests.js"),
    include_str!("../assets/page/calls.js"),
    include_str!("../assets/page/course.js"),
    include_str!("../assets/page/request.js"),
    include_str!("../assets/page/labels.js"),
    include_str!("../assets/page/settings.js"),
    include_str!("../assets/page/address.js"),
    include_str!("../assets/page/keys.js"),
    include_str!("../assets/page/controls.js"),
    "})();\n"
);
const STYLE: &str = concat!(
    include_str!("../assets/theme.css"),
    include_str!("../assets/page/page.css"),
    include_str!("../assets/page/time.css")
);
const BODY: &str = include_str!("../assets/page/page.html");

/// The value for the header of the same name. The page contains it too. A test compares the hashes with the files.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; \
    script-src 'sha256-5iOQzc865Jtghd3XQdzy/l0HEzOcbbCRdMKxyApaeHk=' \
    'sha256-iTAL3XHNae0lyv4VaKV5xxRrCs13M1b2ezwgkhKPQn0='; \
    style-src 'sha256-OrZpm6KZJ5kts5QK1lHC3Yh0l3GlsoWj3C+VtkSGDH8='; \
    img-src data:; base-uri 'none'; form-action 'none'";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Data<'a> {
    title: &'a str,
    types: Vec<(&'a str, &'a str)>,
    chosen: usize,
    duration_nanos: i64,
    time_nanos: i64,
    comments: Vec<&'a str>,
    /// Name, file, start line.
    functions: Vec<(&'a str, &'a str, i64)>,
    /// Parent and function of each node except the root, which is node 0. Parents come first.
    nodes: Vec<usize>,
    /// Key and value.
    labels: Vec<(&'a str, String)>,
    /// The sets of labels that samples have.
    sets: Vec<Vec<usize>>,
    /// Node, set and values of each sample, in sequence.
    samples: Vec<i64>,
    /// The same for the other profile of a comparison.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<Vec<i64>>,
    findings: Vec<Said>,
}

/// A finding, and its place on the page.
#[derive(Serialize)]
struct Said {
    id: &'static str,
    share: f64,
    of: &'static str,
    sentence: String,
    /// The finding's function, and the sample type of its share.
    function: Option<usize>,
    r#type: Option<usize>,
}

/// The page of one profile. It first shows this view, and the reader can choose another. With a timeline, it also shows what ran when, up
/// to [`LARGEST_TIMELINE`](crate::embed::LARGEST_TIMELINE) bytes of it.
pub fn page<S: Source + ?Sized>(
    source: &S,
    view: &View,
    title: &str,
    timeline: Option<&Timeline>,
) -> Result<String, ViewError> {
    let profile = source.head();
    let chosen = view.index(profile)?;
    let mut tables = Tables {
        // There are more rows than a browser can show quickly, so the page does not distinguish pods and workers.
        together: source.count() > TOLD_APART,
        ..Tables::default()
    };
    // For so many rows, findings would take too long for the reader who waits for the page.
    let found = match tables.together {
        true => Vec::new(),
        false => findings(source, view),
    };
    let samples = tables.samples(source, view, &[]);
    let said = tables.said(profile, found);
    let title = match tables.together {
        true => format!("{title} (all pods together)"),
        false => title.to_owned(),
    };
    let json = json(profile, &title, chosen, tables, (samples, None), said);
    Ok(html(&title, &json, &embed::element(timeline)))
}

/// The page that compares a profile with an earlier one. Red took more than before, blue took less, and grey did not change beyond chance.
pub fn differential<S: Source + ?Sized>(
    before: &S,
    after: &S,
    view: &View,
    title: &str,
) -> Result<String, ViewError> {
    let chosen = view.index(after.head())?;
    let mut order = Vec::new();
    for (name, _) in after.head().sample_types() {
        let same = View {
            sample_type: Some(name.to_owned()),
            ..View::default()
        };
        order.push(same.index(before.head())?);
    }
    let mut tables = Tables {
        compared: true,
        together: before.count() + after.count() > TOLD_APART,
        ..Tables::default()
    };
    let samples = tables.samples(after, view, &[]);
    let earlier = tables.samples(before, view, &order);
    let both = (samples, Some(earlier));
    let json = json(after.head(), title, chosen, tables, both, Vec::new());
    Ok(html(title, &json, &embed::element(None)))
}

/// The page script's data of a profile.
fn json(
    profile: &Profile,
    title: &str,
    chosen: usize,
    tables: Tables<'_>,
    (samples, before): (Vec<i64>, Option<Vec<i64>>),
    findings: Vec<Said>,
) -> String {
    let functions = tables.numbers.functions.iter();
    let data = Data {
        title,
        types: profile.sample_types().collect(),
        chosen,
        duration_nanos: profile.duration_nanos,
        time_nanos: profile.time_nanos,
        comments: profile.comments().collect(),
        functions: functions
            .map(|function| (function.name, function.file, function.start_line))
            .collect(),
        nodes: tables.nodes,
        labels: tables.labels,
        sets: tables.sets,
        samples,
        before,
        findings,
    };
    // Serialising strings and numbers cannot fail.
    let json = serde_json::to_string(&data).unwrap_or_default();
    // In a script element, only `<` can begin its end or a comment. In JSON, it occurs only in strings.
    json.replace('<', "\\u003c")
}

fn html(title: &str, json: &str, timeline: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{CONTENT_SECURITY_POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{}</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>{STYLE}</style>\n</head>\n{BODY}\
         <script type=\"application/json\" id=\"profile\">{json}</script>\n\
         {timeline}<script>{COMPONENT}</script>\n<script>{SCRIPT}</script>\n</body>\n</html>\n",
        xml(title)
    )
}

/// The rows that samples refer to, each once.
#[derive(Default)]
struct Tables<'a> {
    /// Whether start lines are dropped. They move with every edit, and would make functions of two profiles differ.
    compared: bool,
    /// Whether labels are dropped.
    together: bool,
    numbers: Numbers<'a>,
    nodes: Vec<usize>,
    children: HashMap<(usize, usize), usize>,
    labels: Vec<(&'a str, String)>,
    label_numbers: HashMap<(&'a str, String), usize>,
    sets: Vec<Vec<usize>>,
    set_numbers: HashMap<Vec<usize>, usize>,
}

impl<'a> Tables<'a> {
    /// Node, set and values of each sample; equal samples are added up. `order` gives the index of each value if it differs.
    fn samples<S: Source + ?Sized>(
        &mut self,
        source: &'a S,
        view: &View,
        order: &[usize],
    ) -> Vec<i64> {
        let profile = source.head();
        let lookup = Lookup::new(profile);
        let width = if order.is_empty() {
            profile.sample_type.len()
        } else {
            order.len()
        };
        let waiting = match self.together {
            true => None,
            false => Waiting::of(source),
        };
        let mut rows = Rows {
            width,
            ..Rows::default()
        };
        let place = |index: usize| order.get(index).copied().unwrap_or(index);
        source.each(&mut |sample| {
            if !view.has_labels(profile, sample) {
                return;
            }
            let steps = self.numbers.steps(&lookup, sample, self.compared);
            let node = self.node(&steps);
            let labels = self.labels(profile, sample);
            let value =
                |values: &[i64], index: usize| values.get(place(index)).copied().unwrap_or(0);
            let all = (0..width).map(|index| value(&sample.value, index));
            let set = self.set(labels.clone());
            let Some((kind, waits)) = waiting.as_ref().and_then(|it| it.split(sample)) else {
                return rows.add(node, set, all);
            };
            let ran = all
                .zip(0..)
                .map(|(all, index)| all.saturating_sub(value(&waits, index)));
            rows.add(node, set, ran);
            let label = self.label((waiting::LABEL, kind.to_owned()));
            let set = self.set([labels, vec![label]].concat());
            rows.add(node, set, (0..width).map(|index| value(&waits, index)));
        });
        rows.values
    }

    fn node(&mut self, steps: &[Step]) -> usize {
        let mut at = 0;
        for (function, _) in steps {
            let next = self.nodes.len() / 2 + 1;
            let child = *self.children.entry((at, *function)).or_insert(next);
            if child == next {
                self.nodes.extend([at, *function]);
            }
            at = child;
        }
        at
    }

    /// The numbers of a sample's labels.
    fn labels(&mut self, profile: &'a Profile, sample: &crate::proto::Sample) -> Vec<usize> {
        let kept = if self.together { 0 } else { usize::MAX };
        let labels = sample.label.iter().take(kept);
        labels
            .map(|label| self.label((profile.string(label.key), label_value(profile, label))))
            .collect()
    }

    fn label(&mut self, label: (&'a str, String)) -> usize {
        let next = self.labels.len();
        let number = *self.label_numbers.entry(label.clone()).or_insert(next);
        if number == next {
            self.labels.push(label);
        }
        number
    }

    fn set(&mut self, mut set: Vec<usize>) -> usize {
        set.sort_unstable();
        let next = self.sets.len();
        let number = *self.set_numbers.entry(set.clone()).or_insert(next);
        if number == next {
            self.sets.push(set);
        }
        number
    }

    /// The findings, with the numbers of their functions.
    fn said(&self, profile: &Profile, found: Vec<Finding>) -> Vec<Said> {
        let functions = || self.numbers.functions.iter();
        let said = found.into_iter().map(|one| Said {
            id: one.id,
            share: one.share,
            of: one.of.words(),
            sentence: one.sentence,
            function: one.function.and_then(|it| {
                functions().position(|other| other.name == it.name && other.file == it.file)
            }),
            r#type: match one.of {
                Measure::Wall => profile.value_index("wall"),
                Measure::Cpu => profile.value_index("cpu"),
                Measure::Workers => None,
                Measure::Limit => profile.value_index("heap_growth"),
            },
        });
        said.collect()
    }
}

/// Node, set and values of each row, in sequence.
#[derive(Default)]
struct Rows {
    width: usize,
    values: Vec<i64>,
    known: HashMap<(usize, usize), usize>,
}

impl Rows {
    fn add(&mut self, node: usize, set: usize, values: impl Iterator<Item = i64>) {
        let number = |index: usize| i64::try_from(index).unwrap_or(0);
        let next = self.values.len();
        let row = *self.known.entry((node, set)).or_insert(next);
        if row == next {
            self.values.extend([number(node), number(set)]);
            self.values.resize(next + 2 + self.width, 0);
        }
        let sums = self.values.iter_mut().skip(row + 2);
        for (sum, value) in sums.zip(values) {
            *sum = sum.saturating_add(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use ring::digest;

    #[test]
    fn the_policy_lets_run_what_is_in_the_page_and_nothing_else() {
        let hash = |text: &str| {
            let digest = digest::digest(&digest::SHA256, text.as_bytes());
            base64::engine::general_purpose::STANDARD.encode(digest)
        };
        for (file, text) in [
            ("d3-flame-graph.min.js", COMPONENT),
            ("page/*.js", SCRIPT),
            ("theme.css, page/*.css", STYLE),
        ] {
            let source = format!("'sha256-{}'", hash(text));
            assert!(
                CONTENT_SECURITY_POLICY.contains(&source),
                "{file} has changed: put {source} into CONTENT_SECURITY_POLICY"
            );
        }
    }
}
