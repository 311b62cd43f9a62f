//! The tables in Rust: an enum for each list, so that the compiler names each `match` that lacks a
//! new reason.
//!
//! Invariant: what is written is as rustfmt leaves it.

use std::fmt::Write as _;

use super::{ReasonOutcome, Reasons};

const GENERATED: &str =
    "//! Generated from contract/reasons.yaml by `make generate`; do not edit.\n";
/// Of a line of a comment.
const WIDTH: usize = 100;

/// The API's reasons.
pub fn crds(reasons: &Reasons) -> String {
    let mut text = "//! The closed list of reasons: of the conditions and events of a request, a comparison or a\n//! trigger, and of a pod without a profile.\n//!\n".to_owned();
    text += GENERATED;
    text += CRDS_USE;
    text += REASON;
    for of in &reasons.requests {
        let meaning = format!("{}: {}", of.outcome.words(), of.meaning);
        text += &variant(&meaning, &of.reason);
    }
    text += "}\n";
    text += OUTCOME;
    text += "impl RequestReason {\n";
    text += &all(reasons.requests.iter().map(|it| it.reason.as_str()));
    text += "\n    /// Which conditions are true with it.\n    pub fn outcome(self) -> RequestOutcome {\n        match self {\n";
    for of in &reasons.requests {
        let outcome = outcome(of.outcome);
        let _ = writeln!(
            text,
            "            Self::{} => RequestOutcome::{outcome},",
            of.reason
        );
    }
    text += "        }\n    }\n";
    text += &texts(
        "What it says, for users.",
        "meaning",
        "&'static str",
        reasons.requests.iter().map(|of| {
            let meaning = format!("{}: {}", of.outcome.words(), of.meaning);
            (of.reason.as_str(), format!("{meaning:?}"))
        }),
    );
    text += &texts(
        OPTIONAL_REMEDY,
        "remedy",
        "Option<&'static str>",
        (reasons.requests.iter()).map(|of| (of.reason.as_str(), optional(of.remedy.as_deref()))),
    );
    text += "}\n";
    text += &comparisons(reasons);
    text += &triggers(reasons);
    text += TARGET_REASON;
    for of in &reasons.pods {
        text += &variant(&of.meaning, &of.reason);
    }
    text += "}\n\nimpl TargetReason {\n";
    text += &all(reasons.pods.iter().map(|it| it.reason.as_str()));
    text += &texts(
        "What it says, for users.",
        "meaning",
        "&'static str",
        (reasons.pods.iter()).map(|of| (of.reason.as_str(), format!("{:?}", of.meaning))),
    );
    text += &texts(
        "What to do about it. Every reason has something: whoever reads it has no profile of the pod.",
        "remedy",
        "&'static str",
        (reasons.pods.iter()).map(|of| (of.reason.as_str(), format!("{:?}", of.remedy))),
    );
    text += "\n    /// The reason that a sampler's receipt names, if it is one that a sampler may give.\n";
    text += "    pub fn of_receipt(reason: &str) -> Option<Self> {\n        match reason {\n";
    for of in reasons.pods.iter().filter(|it| it.exit_code.is_some()) {
        let _ = writeln!(text, "            {0:?} => Some(Self::{0}),", of.reason);
    }
    text += "            _ => None,\n        }\n    }\n}\n";
    text += &events(reasons);
    text + DISPLAY
}

/// A reason with what it says about its object.
struct OutcomeRow<'a> {
    reason: &'a str,
    /// The outcome's variant.
    outcome: String,
    meaning: String,
    remedy: Option<&'a str>,
}

/// The reasons of comparisons.
fn comparisons(reasons: &Reasons) -> String {
    let rows = reasons.comparisons.iter().map(|of| OutcomeRow {
        reason: &of.reason,
        outcome: format!("ComparisonOutcome::{:?}", of.outcome),
        meaning: format!("{}: {}", of.outcome.words(), of.meaning),
        remedy: of.remedy.as_deref(),
    });
    let heads = [COMPARISON_REASON, COMPARISON_OUTCOME];
    of_outcomes(&rows.collect::<Vec<_>>(), "Comparison", "verdict", heads)
}

/// The reasons of triggers.
fn triggers(reasons: &Reasons) -> String {
    let rows = reasons.triggers.iter().map(|of| OutcomeRow {
        reason: &of.reason,
        outcome: format!("TriggerOutcome::{:?}", of.outcome),
        meaning: format!("{}: {}", of.outcome.words(), of.meaning),
        remedy: of.remedy.as_deref(),
    });
    let heads = [TRIGGER_REASON, TRIGGER_OUTCOME];
    of_outcomes(&rows.collect::<Vec<_>>(), "Trigger", "trigger", heads)
}

/// An enum of reasons that begins with these two texts: its head, and the enum of its outcomes.
fn of_outcomes(rows: &[OutcomeRow<'_>], kind: &str, about: &str, heads: [&str; 2]) -> String {
    let [head, outcomes] = heads;
    let mut text = head.to_owned();
    for of in rows {
        text += &variant(&of.meaning, of.reason);
    }
    text += "}\n";
    text += outcomes;
    let _ = writeln!(text, "impl {kind}Reason {{");
    text += &all(rows.iter().map(|it| it.reason));
    let _ = write!(
        text,
        "\n    /// What it says about the {about}.\n    pub fn outcome(self) -> {kind}Outcome {{\n        match self {{\n"
    );
    for of in rows {
        let _ = writeln!(text, "            Self::{} => {},", of.reason, of.outcome);
    }
    text += "        }\n    }\n";
    text += &texts(
        "What it says, for users.",
        "meaning",
        "&'static str",
        rows.iter()
            .map(|of| (of.reason, format!("{:?}", of.meaning))),
    );
    text += &texts(
        OPTIONAL_REMEDY,
        "remedy",
        "Option<&'static str>",
        rows.iter().map(|of| (of.reason, optional(of.remedy))),
    );
    text + "}\n"
}

/// The reasons of events.
fn events(reasons: &Reasons) -> String {
    let mut text = EVENT_REASON.to_owned();
    for of in &reasons.events {
        text += &variant(&sentence(of.meaning.trim_end_matches('.')), &of.reason);
    }
    text += "}\n\nimpl EventReason {\n";
    text += &all(reasons.of_events());
    text += &texts(
        "What it says, for users.",
        "meaning",
        "&'static str",
        (reasons.events.iter()).map(|of| (of.reason.as_str(), format!("{:?}", of.meaning))),
    );
    text += &texts(
        OPTIONAL_REMEDY,
        "remedy",
        "Option<&'static str>",
        (reasons.events.iter()).map(|of| (of.reason.as_str(), optional(of.remedy.as_deref()))),
    );
    text + "}\n"
}

fn optional(remedy: Option<&str>) -> String {
    remedy.map_or_else(|| "None".to_owned(), |it| format!("Some({it:?})"))
}

/// The sampler's reasons and exit codes.
pub fn sampler(reasons: &Reasons) -> String {
    let exits = reasons.sampler_exits();
    let mut text = "//! Why a run gives no profile, or how it delivered one: a closed list, each with its exit code.\n//!\n".to_owned();
    text += GENERATED;
    text += "\nuse serde::Serialize;\n\n/// How a run ended. Each reason that is a failure has its own exit code.\n";
    text += "#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]\npub enum Reason {\n";
    for exit in &exits {
        text += &variant(&sentence(exit.meaning), exit.reason);
    }
    text += "}\n\nimpl Reason {\n";
    text += &all(exits.iter().map(|it| it.reason));
    text += "\n    /// The process's exit code.\n    #[must_use]\n    pub fn exit_code(self) -> u8 {\n        match self {\n";
    for exit in &exits {
        let _ = writeln!(text, "            Self::{} => {},", exit.reason, exit.code);
    }
    text + "        }\n    }\n}\n"
}

/// The plugin's exit codes.
pub fn plugin(reasons: &Reasons) -> String {
    let mut text = "//! The exit codes of the plugin; a script may rely on them.\n//!\n".to_owned();
    text += GENERATED;
    text += "\n/// How a command line failed.\n#[derive(Clone, Copy, Debug, PartialEq, Eq)]\npub enum Exit {\n";
    for of in &reasons.plugin {
        text += &comment(&sentence(&of.meaning), "    ");
        let _ = writeln!(text, "    {} = {},", of.exit, of.exit_code);
    }
    text +=
        "}\n\n/// What each code means, for the reference.\n#[rustfmt::skip] // One code a line.\n";
    text += "pub const EXIT_CODES: &[(u8, &str)] = &[\n    (0, \"done\"),\n";
    for of in &reasons.plugin {
        let _ = writeln!(text, "    ({}, {:?}),", of.exit_code, of.meaning);
    }
    text += "];\n\n/// The same in short, for `--help`.\n#[rustfmt::skip]\n";
    let short = reasons.plugin.iter();
    let short: Vec<_> = short
        .map(|of| format!("{} {}", of.exit_code, of.help))
        .collect();
    let short = format!("Exit codes: {}", short.join(", "));
    let _ = writeln!(text, "pub const HELP: &str = {short:?};");
    text
}

const CRDS_USE: &str = "
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
";
const REASON: &str = "
/// Reason of a request's conditions.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RequestReason {
";
const OUTCOME: &str = "
/// What a [`RequestReason`] says about the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// Neither accepted nor refused yet.
    Held,
    /// Accepted, and not over.
    InProgress,
    /// Over, as it was asked for or nearly so.
    Complete,
    /// Failed before any sampler was started.
    Refused,
    /// Over without a profile.
    Failed,
}

";
const COMPARISON_REASON: &str = "
/// Reason of a comparison's conditions and verdict.
#[derive(
    JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord,
)]
pub enum ComparisonReason {
";
const COMPARISON_OUTCOME: &str = "
/// What a [`ComparisonReason`] says about the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparisonOutcome {
    /// There is none yet.
    InProgress,
    /// It is Better, Worse or NoChange.
    Decided,
    /// It is Inconclusive.
    Inconclusive,
    /// It accompanies another reason.
    Note,
}

";
const TRIGGER_REASON: &str = "
/// Reason of a trigger's condition.
#[derive(
    JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord,
)]
pub enum TriggerReason {
";
const TRIGGER_OUTCOME: &str = "
/// What a [`TriggerReason`] says about the trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TriggerOutcome {
    /// It has created a request.
    Fired,
    /// The request exists already.
    Repeated,
    /// It has created none.
    NotFired,
}

";
const TARGET_REASON: &str = "
/// Why there is no profile of a pod, or only its beginning.
#[derive(
    JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord,
)]
pub enum TargetReason {
";
const EVENT_REASON: &str = "
/// What an event of a request reports.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventReason {
";
const OPTIONAL_REMEDY: &str =
    "What to do about it; none if the request goes on, or ended as the user wanted.";
const DISPLAY: &str = "
impl fmt::Display for RequestReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl fmt::Display for ComparisonReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl fmt::Display for TriggerReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl fmt::Display for TargetReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl fmt::Display for EventReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
";

fn outcome(stage: ReasonOutcome) -> String {
    format!("{stage:?}")
}

fn variant(meaning: &str, name: &str) -> String {
    format!("{}    {name},\n", comment(meaning, "    "))
}

fn all<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut text = "    /// All of them.\n    pub const ALL: &[Self] = &[\n".to_owned();
    for name in names {
        let _ = writeln!(text, "        Self::{name},");
    }
    text + "    ];\n"
}

/// A function that has a text for each reason.
fn texts<'a>(
    says: &str,
    name: &str,
    gives: &str,
    rows: impl Iterator<Item = (&'a str, String)>,
) -> String {
    let mut text = format!("\n    /// {says}\n    #[rustfmt::skip] // One reason a line.\n");
    let _ = writeln!(
        text,
        "    pub fn {name}(self) -> {gives} {{\n        match self {{"
    );
    for (reason, row) in rows {
        let _ = writeln!(text, "            Self::{reason} => {row},");
    }
    text + "        }\n    }\n"
}

/// A meaning as a sentence. A word that is not one of plain English begins as it is.
fn sentence(meaning: &str) -> String {
    let first = meaning.split(' ').next().unwrap_or_default();
    let is_word = first
        .chars()
        .all(|it| it.is_ascii_lowercase() || it == '\'');
    let mut letters = meaning.chars();
    match letters.next() {
        Some(letter) if is_word => format!("{}{}.", letter.to_ascii_uppercase(), letters.as_str()),
        _ => format!("{meaning}."),
    }
}

/// A comment on an item, in lines of the code's width.
fn comment(text: &str, indent: &str) -> String {
    let mut lines = vec![format!("{indent}///")];
    for word in text.split_whitespace() {
        let has_room = |line: &&mut String| line.len() + 1 + word.len() <= WIDTH;
        match lines.last_mut().filter(has_room) {
            Some(line) => *line += &format!(" {word}"),
            None => lines.push(format!("{indent}/// {word}")),
        }
    }
    lines.join("\n") + "\n"
}
