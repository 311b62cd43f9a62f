//! The flame graph page: one HTML file that needs nothing else, whoever serves it and wherever it was saved.
//!
//! It does not choose or lay out anything: `assets/page` does, in the reader's browser.
//!
//! Invariant: names from the target reach the page as JSON without a `<`, and the page's script puts them on the screen as
//! text. Its policy lets only the two scripts and the style of this file run, and no request leave.

use std::collections::HashMap;

use serde::Serialize;

use crate::lookup::Lookup;
use crate::proto::Profile;
use crate::source::Source;
use crate::stacks::{Numbers, Step, View, ViewError, label_value};
use crate::text::xml;

/// See `assets/README.md`.
const COMPONENT: &str = include_str!("../assets/d3-flame-graph.min.js");
/// Samples of which the page has the labels.
const TOLD_APART: usize = 200_000;
/// One scope of its own around all parts.
const SCRIPT: &str = concat!(
    "\n(() => {\n\"use strict\";\n",
    include_str!("../assets/page/profile.js"),
    include_str!("../assets/page/graph.js"),
    include_str!("../assets/page/table.js"),
    include_str!("../assets/page/controls.js"),
    "})();\n"
);
const STYLE: &str = include_str!("../assets/page/page.css");
const BODY: &str = include_str!("../assets/page/page.html");

/// For the header of the same name; the page itself carries it too. A test holds the hashes against the files.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; \
    script-src 'sha256-5iOQzc865Jtghd3XQdzy/l0HEzOcbbCRdMKxyApaeHk=' \
    'sha256-40ehtggBckvEr1RMePUDY2NyxV/uA4obWoCm2bCVFD0='; \
    style-src 'sha256-IVQmB+1d+LYtkAB9Je3uiimDp7quvSou4j7Ud0/7W1w='; \
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
    /// Parent and function of each node but the root, which is node 0; parents come first.
    nodes: Vec<usize>,
    /// Key and value.
    labels: Vec<(&'a str, String)>,
    /// Labels that samples have together.
    sets: Vec<Vec<usize>>,
    /// Node, set and values of each sample, one after the other.
    samples: Vec<i64>,
    /// The same of the profile that this one is compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<Vec<i64>>,
}

/// The page of one profile, at first in this view; the reader can choose another.
pub fn page<S: Source + ?Sized>(source: &S, view: &View, title: &str) -> Result<String, ViewError> {
    let profile = source.head();
    let chosen = view.index(profile)?;
    let mut tables = Tables {
        // More rows than a browser shows at ease: nobody can be told apart then.
        together: source.count() > TOLD_APART,
        ..Tables::default()
    };
    let samples = tables.samples(source, view, &[]);
    let title = match tables.together {
        true => format!("{title} (all pods together)"),
        false => title.to_owned(),
    };
    Ok(html(profile, &title, chosen, tables, samples, None))
}

/// The page of a profile beside an earlier one: red took more than before, blue less.
pub fn differential(
    before: &Profile,
    after: &Profile,
    view: &View,
    title: &str,
) -> Result<String, ViewError> {
    let chosen = view.index(after)?;
    let mut order = Vec::new();
    for (name, _) in after.sample_types() {
        let same = View {
            sample_type: Some(name.to_owned()),
            ..View::default()
        };
        order.push(same.index(before)?);
    }
    let mut tables = Tables {
        compared: true,
        ..Tables::default()
    };
    let samples = tables.samples(after, view, &[]);
    let earlier = tables.samples(before, view, &order);
    Ok(html(after, title, chosen, tables, samples, Some(earlier)))
}

fn html(
    profile: &Profile,
    title: &str,
    chosen: usize,
    tables: Tables<'_>,
    samples: Vec<i64>,
    before: Option<Vec<i64>>,
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
    };
    // Strings and numbers alone: nothing of it can fail to be written.
    let json = serde_json::to_string(&data).unwrap_or_default();
    // Inside a script element only `<` can begin its end or a comment; in JSON it stands in strings alone.
    let json = json.replace('<', "\\u003c");
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{CONTENT_SECURITY_POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{}</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>{STYLE}</style>\n</head>\n{BODY}\
         <script type=\"application/json\" id=\"profile\">{json}</script>\n\
         <script>{COMPONENT}</script>\n<script>{SCRIPT}</script>\n</body>\n</html>\n",
        xml(title)
    )
}

/// What the samples point to, each once.
#[derive(Default)]
struct Tables<'a> {
    /// Start lines are left out: they move with every edit, and would tell equal functions of two profiles apart.
    compared: bool,
    /// Labels are left out.
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
    /// Node, set and values of each sample, equal ones added up; `order` says where each value stands, if elsewhere.
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
        // Of each row: node, set and values.
        let mut rows: Vec<i64> = Vec::new();
        let mut known: HashMap<(usize, usize), usize> = HashMap::new();
        let number = |index: usize| i64::try_from(index).unwrap_or(0);
        source.each(&mut |sample| {
            if !view.has_labels(profile, sample) {
                return;
            }
            let steps = self.numbers.steps(&lookup, sample, self.compared);
            let node = self.node(&steps);
            let set = self.set(profile, sample);
            let next = rows.len();
            let row = *known.entry((node, set)).or_insert(next);
            if row == next {
                rows.extend([number(node), number(set)]);
                rows.resize(next + 2 + width, 0);
            }
            let place = |index: usize| order.get(index).copied().unwrap_or(index);
            let values = (0..width).map(|index| sample.value.get(place(index)));
            for (sum, value) in rows.iter_mut().skip(row + 2).zip(values) {
                *sum = sum.saturating_add(value.copied().unwrap_or(0));
            }
        });
        rows
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

    fn set(&mut self, profile: &'a Profile, sample: &crate::proto::Sample) -> usize {
        let mut set = Vec::new();
        let labels = sample.label.iter().filter(|_| !self.together);
        for label in labels {
            let label = (profile.string(label.key), label_value(profile, label));
            let next = self.labels.len();
            let number = *self.label_numbers.entry(label.clone()).or_insert(next);
            if number == next {
                self.labels.push(label);
            }
            set.push(number);
        }
        set.sort_unstable();
        let next = self.sets.len();
        let number = *self.set_numbers.entry(set.clone()).or_insert(next);
        if number == next {
            self.sets.push(set);
        }
        number
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
            ("page/page.css", STYLE),
        ] {
            let source = format!("'sha256-{}'", hash(text));
            assert!(
                CONTENT_SECURITY_POLICY.contains(&source),
                "{file} has changed: put {source} into CONTENT_SECURITY_POLICY"
            );
        }
    }
}
