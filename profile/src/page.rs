//! The flame graph page: one HTML file that needs nothing else, whoever serves it and wherever it
//! is saved.
//!
//! It neither chooses nor lays out anything: `assets/page` does this in the browser.
//!
//! Invariant: names from the target are in the page as JSON without a `<`, and the page's script
//! displays them as text. The page's policy allows only the two scripts and the style of this file,
//! and no requests.

mod findings;
mod lines;
mod rows;
mod texts;
mod verdict;

use std::borrow::Cow;
use std::collections::HashMap;
use std::io;

use serde::Serialize;

use crate::embed::{Text, element};
use crate::findings::findings;
use crate::noise::NoiseScale;
use crate::proto::Profile;
use crate::source::SampleSource;
use crate::stacks::{View, ViewError};
use crate::text::xml;
use crate::timeline::Timeline;
use findings::{PageFinding, said};
use lines::PageLines;
use rows::PageTables;
pub use texts::{MOST_TEXT, SourceTexts, beginning};
pub use verdict::{PageVerdict, VerdictFunction, VerdictLine};

/// See `assets/README.md`.
const COMPONENT: &str = include_str!("../assets/d3-flame-graph.min.js");
/// The most bytes of a page, unless the caller has less room. The longest string of a browser has
/// about 512 MiB.
pub const LARGEST: usize = 256 << 20;
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
    include_str!("../assets/page/lines.js"),
    include_str!("../assets/page/folder.js"),
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
    include_str!("../assets/page/time.css"),
    include_str!("../assets/page/lines.css")
);
const BODY: &str = include_str!("../assets/page/page.html");

/// The value for the header of the same name. The page contains it too. A test compares the hashes
/// with the files.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; \
    script-src 'sha256-5iOQzc865Jtghd3XQdzy/l0HEzOcbbCRdMKxyApaeHk=' \
    'sha256-nAUsdLpZkrixGuQnrItRnP9tScQLWaPYC8XlzrJG4MA='; \
    style-src 'sha256-AEN9QiOQJaOCnpH3a1KnJJTPN4HwZoRy6g7lATwHGbk='; \
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
    files: Vec<&'a str>,
    /// Name, number of the file, start line. Many functions share a file.
    functions: Vec<(&'a str, usize, i64)>,
    /// Parent and function of each node except the root, which is node 0. Parents come first.
    nodes: Vec<u32>,
    /// Key and value.
    labels: Vec<(&'a str, Cow<'a, str>)>,
    /// The sets of labels that samples have.
    sets: Vec<Vec<usize>>,
    /// Node, set and values of each sample, in sequence.
    samples: Vec<i64>,
    /// The same for the other profile of a comparison.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<Vec<i64>>,
    /// How many standard errors by samples a difference by chance may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<f64>,
    /// The HTTP requests of the two profiles, if their time per request is compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    requests: Option<[u64; 2]>,
    findings: Vec<PageFinding>,
    /// What stands above the findings, in place of their number.
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lines: Option<PageLines<'a>>,
}

/// The page of one profile. It first shows this view, and the reader can choose another. With a
/// timeline, it also shows what ran when, up to
/// [`LARGEST_TIMELINE`](crate::embed::LARGEST_TIMELINE) bytes of it.
///
/// # Errors
/// A [`ViewError`] if the profile has no such sample type, or the page would be longer than
/// [`LARGEST`].
pub fn page<S: SampleSource + ?Sized>(
    source: &S,
    view: &View,
    title: &str,
    timeline: Option<&Timeline>,
) -> Result<String, ViewError> {
    page_within(source, view, title, timeline, LARGEST)
}

/// The same with at most this many bytes.
///
/// # Errors
/// A [`ViewError`] if the profile has no such sample type, or the page would be longer.
pub fn page_within<S: SampleSource + ?Sized>(
    source: &S,
    view: &View,
    title: &str,
    timeline: Option<&Timeline>,
    room: usize,
) -> Result<String, ViewError> {
    let texts = SourceTexts::default();
    page_with(
        source,
        view,
        title,
        PageExtras {
            timeline,
            texts: &texts,
            room,
        },
    )
}

/// The page of [`page`] with these source files.
///
/// # Errors
/// The same as for [`page`].
pub fn page_with_texts<S: SampleSource + ?Sized>(
    source: &S,
    view: &View,
    title: &str,
    timeline: Option<&Timeline>,
    texts: &SourceTexts,
) -> Result<String, ViewError> {
    let room = LARGEST;
    page_with(
        source,
        view,
        title,
        PageExtras {
            timeline,
            texts,
            room,
        },
    )
}

/// What a page has apart from the profile, and its most bytes.
#[derive(Clone, Copy)]
struct PageExtras<'a> {
    timeline: Option<&'a Timeline>,
    texts: &'a SourceTexts,
    room: usize,
}

fn page_with<S: SampleSource + ?Sized>(
    source: &S,
    view: &View,
    title: &str,
    extras: PageExtras<'_>,
) -> Result<String, ViewError> {
    let room = extras.room;
    let profile = source.head();
    let chosen = view.index(profile)?;
    let mut tables = PageTables::within(room);
    // There are more rows than a browser can show quickly, so the page does not distinguish pods
    // and workers.
    tables.together = source.count() > TOLD_APART;
    // For so many rows, findings would take too long for the reader who waits for the page.
    let found = if tables.together {
        Vec::new()
    } else {
        findings(source, view)
    };
    let samples = tables.samples(source, view, &[])?;
    let said = said(&tables, profile, found);
    let title = if tables.together {
        format!("{title} (all pods together)")
    } else {
        title.to_owned()
    };
    let mut data = data(profile, &title, chosen, tables, samples, said);
    let whole = html(&data, extras);
    if whole.is_ok() || data.lines.is_none() {
        return whole;
    }
    // A page that was not too large without its lines still opens.
    data.lines = None;
    html(&data, extras)
}

/// The page that compares a profile with an earlier one. Red took more than before, blue took less,
/// and grey did not change beyond chance.
///
/// # Errors
/// A [`ViewError`] if one of the profiles has no such sample type, or the page would be longer than
/// [`LARGEST`].
pub fn differential<S: SampleSource + ?Sized>(
    before: &S,
    after: &S,
    view: &View,
    title: &str,
    scale: NoiseScale,
) -> Result<String, ViewError> {
    differential_within(before, after, view, title, scale, LARGEST)
}

/// The page that compares two profiles and says what a verdict says. What the verdict names has a
/// colour of its own.
///
/// # Errors
/// The same as for [`differential`].
pub fn verdict_page<S: SampleSource + ?Sized>(
    before: &S,
    after: &S,
    view: &View,
    title: &str,
    verdict: &PageVerdict,
) -> Result<String, ViewError> {
    let room = LARGEST;
    both(
        before,
        after,
        view,
        title,
        BothExtras {
            scale: verdict.scale,
            verdict: Some(verdict),
            room,
        },
    )
}

/// The same with at most this many bytes.
///
/// # Errors
/// A [`ViewError`] if one of the profiles has no such sample type, or the page would be longer.
pub fn differential_within<S: SampleSource + ?Sized>(
    before: &S,
    after: &S,
    view: &View,
    title: &str,
    scale: NoiseScale,
    room: usize,
) -> Result<String, ViewError> {
    both(
        before,
        after,
        view,
        title,
        BothExtras {
            scale,
            verdict: None,
            room,
        },
    )
}

/// What a page of two profiles has apart from them, and its most bytes.
#[derive(Clone, Copy)]
struct BothExtras<'a> {
    scale: NoiseScale,
    verdict: Option<&'a PageVerdict>,
    room: usize,
}

fn both<S: SampleSource + ?Sized>(
    before: &S,
    after: &S,
    view: &View,
    title: &str,
    extras: BothExtras<'_>,
) -> Result<String, ViewError> {
    let BothExtras {
        scale,
        verdict,
        room,
    } = extras;
    let chosen = view.index(after.head())?;
    let mut order = Vec::new();
    for (name, _) in after.head().sample_types() {
        let same = View {
            sample_type: Some(name.to_owned()),
            ..View::default()
        };
        order.push(same.index(before.head())?);
    }
    let mut tables = PageTables::within(room);
    tables.compared = true;
    tables.together = before.count() + after.count() > TOLD_APART;
    let samples = tables.samples(after, view, &[])?;
    let earlier = tables.samples(before, view, &order)?;
    let said = verdict.map_or_else(Vec::new, |it| it.said(&tables, chosen));
    let mut data = data(after.head(), title, chosen, tables, samples, said);
    data.before = Some(earlier);
    data.errors = Some(scale.errors());
    data.verdict = verdict.map(|it| it.summary.as_str());
    data.requests = verdict.and_then(|it| it.requests);
    let texts = &SourceTexts::default();
    html(
        &data,
        PageExtras {
            timeline: None,
            texts,
            room,
        },
    )
}

/// The page script's data of a profile.
fn data<'a>(
    profile: &'a Profile,
    title: &'a str,
    chosen: usize,
    tables: PageTables<'a>,
    samples: Vec<i64>,
    findings: Vec<PageFinding>,
) -> Data<'a> {
    let (mut files, mut known) = (Vec::new(), HashMap::new());
    let functions = tables.numbers.functions.iter().map(|function| {
        let next = files.len();
        let file = *known.entry(function.file).or_insert(next);
        if file == next {
            files.push(function.file);
        }
        (function.name, file, function.start_line)
    });
    Data {
        title,
        types: profile.sample_types().collect(),
        chosen,
        duration_nanos: profile.duration_nanos,
        time_nanos: profile.time_nanos,
        comments: profile.comments().collect(),
        functions: functions.collect(),
        files,
        nodes: tables.nodes,
        labels: tables.labels,
        sets: tables.sets,
        samples,
        before: None,
        errors: None,
        requests: None,
        findings,
        verdict: None,
        lines: tables.lines.finish(),
    }
}

fn html(data: &Data<'_>, extras: PageExtras<'_>) -> Result<String, ViewError> {
    let mut page = Text::new(extras.room);
    // Numbers and strings are always JSON, so only the room can be the cause.
    match write(&mut page, data, extras) {
        Ok(()) => Ok(page.finish()),
        Err(_) => Err(ViewError::PageTooLarge(extras.room)),
    }
}

fn write(page: &mut Text, data: &Data<'_>, extras: PageExtras<'_>) -> io::Result<()> {
    let title = xml(data.title);
    page.html(&format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{CONTENT_SECURITY_POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>{STYLE}</style>\n</head>\n{BODY}\
         <script type=\"application/json\" id=\"profile\">"
    ))?;
    page.json(data)?;
    page.html("</script>\n")?;
    page.html(&element(extras.timeline))?;
    if !extras.texts.is_empty() {
        page.html("<script type=\"application/json\" id=\"texts\">")?;
        page.json(extras.texts)?;
        page.html("</script>\n")?;
    }
    page.html(&format!(
        "<script>{COMPONENT}</script>\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use ring::digest;

    /// A name that two parts of the script declare would stop all of it.
    #[test]
    fn parts_of_the_script_declare_other_names() {
        let declared = SCRIPT.lines().filter_map(|line| {
            let rest = ["const ", "let "]
                .into_iter()
                .find_map(|word| line.strip_prefix(word))?;
            rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
                .next()
                .filter(|name| !name.is_empty())
        });
        let mut known = std::collections::HashSet::new();
        let twice: Vec<_> = declared.filter(|name| !known.insert(*name)).collect();
        assert_eq!(twice, Vec::<&str>::new());
        assert!(known.len() > 200, "{}", known.len());
    }

    #[test]
    fn the_policy_runs_nothing_from_outside_the_page() {
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
