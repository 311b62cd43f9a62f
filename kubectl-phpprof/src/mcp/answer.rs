//! What a tool answers: where the data is from, the data, and what to ask next; within a bound.
//!
//! It is pure.
//!
//! Invariant: an answer has at most [`LARGEST_ANSWER`] bytes. What was left out is counted. Texts
//! of the plugin have no word of the profiled program: those are in fields of their own, quoted.
//! Only a refusal names, as quoted, what is near a name that was not found.

use rmcp::model::{CallToolResult, ContentBlock};
use serde::Serialize;
use serde_json::Value;

use super::quote::quoted;
use crate::failure::{Exit, Failure};

/// The most bytes of an answer: 2,000 tokens of four bytes.
pub const LARGEST_ANSWER: usize = 8_000;
/// The most characters of each part of a failure.
const LONGEST_MESSAGE: usize = 2_000;
/// The most bytes of the arguments of a suggestion. Longer ones are not suggested.
const LARGEST_NEXT: usize = 900;
/// The most suggestions.
const MOST_NEXT: usize = 5;

/// Where an answer's data is from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentPlace {
    /// The context of the kubeconfig; `None` for files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Files of this machine, and no cluster.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub local_files: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
}

impl AgentPlace {
    pub fn of_profile(&self, name: &str) -> Self {
        AgentPlace {
            profile: Some(quoted(name)),
            ..self.clone()
        }
    }
}

/// A call that may help next.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AgentNext {
    pub tool: &'static str,
    pub arguments: Value,
    pub why: &'static str,
}

/// The suggestions of an answer, the best first.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct AgentNexts(Vec<AgentNext>);

impl AgentNexts {
    /// Adds a suggestion, unless it is there already, is too long, or there are enough.
    pub fn add(&mut self, tool: &'static str, why: &'static str, arguments: Value) {
        let is_short = arguments.to_string().len() <= LARGEST_NEXT;
        let is_new = |one: &AgentNext| (one.tool, &one.arguments) != (tool, &arguments);
        if is_short && self.0.len() < MOST_NEXT && self.0.iter().all(is_new) {
            self.0.push(AgentNext {
                tool,
                arguments,
                why,
            });
        }
    }
}

/// An answer as text, which is JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentAnswer(String);

#[derive(Serialize)]
struct WholeAnswer<'a, B> {
    #[serde(flatten)]
    place: &'a AgentPlace,
    #[serde(flatten)]
    body: B,
    next: &'a AgentNexts,
}

impl AgentAnswer {
    /// The answer with as many rows as there is room for, of at most `rows`. The body says how many
    /// it leaves out.
    pub fn fitted<B: Serialize>(
        place: &AgentPlace,
        rows: usize,
        body: impl Fn(usize) -> B,
        next: &AgentNexts,
    ) -> Result<Self, Failure> {
        let mut count = rows;
        loop {
            let body = body(count);
            let text = serde_json::to_string(&WholeAnswer { place, body, next });
            let text = text.map_err(|error| {
                Failure::new(
                    Exit::Failed,
                    format!("the answer cannot be written: {error}"),
                    "report this as a fault of phpprof",
                )
            })?;
            if text.len() <= LARGEST_ANSWER || count == 0 {
                return Ok(AgentAnswer(text));
            }
            count = count * 3 / 4;
        }
    }

    /// The text, and the same as data.
    pub fn result(self) -> CallToolResult {
        let data = serde_json::from_str(&self.0).ok();
        let mut result = CallToolResult::success(vec![ContentBlock::text(self.0)]);
        result.structured_content = data;
        result
    }

    #[cfg(test)]
    pub fn data(&self) -> Value {
        serde_json::from_str(&self.0).unwrap()
    }
}

/// A failure as text alone: a client may check structured content against the schema of successful
/// answers, and drop a failure that has another shape.
pub fn refused(place: &AgentPlace, failure: &Failure, next: &AgentNexts) -> CallToolResult {
    let shown = |text: &str| {
        let lines: Vec<String> = text.lines().map(|line| cut(&seen(line))).collect();
        cut(&lines.join("\n"))
    };
    let mut text = format!(
        "error: {}\nhint: {}\n",
        shown(&failure.message),
        shown(&failure.hint)
    );
    // Serialising strings cannot fail.
    let place = serde_json::to_string(place).unwrap_or_default();
    text.push_str(&format!("place: {place}\n"));
    let next = serde_json::to_string(next).unwrap_or_default();
    text.push_str(&format!("next: {next}\n"));
    CallToolResult::error(vec![ContentBlock::text(text)])
}

fn seen(line: &str) -> String {
    let words = line.split(' ').map(quoted);
    words.collect::<Vec<_>>().join(" ")
}

fn cut(text: &str) -> String {
    text.chars().take(LONGEST_MESSAGE).collect()
}

/// Hundredths of a value, in percent of the total.
pub fn percent(value: i64, total: i64) -> f64 {
    if total == 0 {
        return 0.0;
    }
    hundredths(100.0 * value as f64 / total as f64)
}

pub fn hundredths(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rows(count: usize) -> Value {
        json!({"rows": vec!["x".repeat(200); count], "leftOut": 1_000 - count})
    }

    #[test]
    fn fitted_leaves_out_rows_and_counts_them() {
        let mut next = AgentNexts::default();
        next.add("top", "to see more", json!({"profile": "web"}));
        let place = AgentPlace::default().of_profile("web");
        let answer = AgentAnswer::fitted(&place, 1_000, rows, &next).unwrap();
        assert!(answer.0.len() <= LARGEST_ANSWER, "{}", answer.0.len());
        assert!(answer.0.starts_with("{\"profile\":\"web\",\"leftOut\":"));
        let data = answer.data();
        let shown = data["rows"].as_array().unwrap().len();
        assert!(shown > 20, "{shown}");
        assert_eq!(data["leftOut"], 1_000 - shown);
        assert_eq!(data["next"][0]["tool"], "top");
    }

    #[test]
    fn suggestions_are_few_short_and_distinct() {
        let mut next = AgentNexts::default();
        let long = "x".repeat(LARGEST_NEXT);
        next.add("lines", "", json!({"function": long}));
        assert_eq!(next, AgentNexts::default());
        for _ in 0..3 {
            for number in 0..9 {
                next.add("lines", "", json!({"function": number.to_string()}));
            }
        }
        assert_eq!(next.0.len(), MOST_NEXT);
    }

    #[test]
    fn refused_is_text_without_hidden_characters() {
        let failure = Failure::new(
            Exit::NotFound,
            format!("no function \u{202e}{}", "y".repeat(9_000)),
            "ask top",
        );
        let result = refused(&AgentPlace::default(), &failure, &AgentNexts::default());
        assert_eq!(result.is_error, Some(true));
        assert_eq!(result.structured_content, None);
        let text = serde_json::to_value(&result.content).unwrap();
        let text = text[0]["text"].as_str().unwrap();
        assert!(
            text.starts_with("error: no function <e2><80><ae>yyy"),
            "{text}"
        );
        assert!(
            text.ends_with("\nhint: ask top\nplace: {}\nnext: []\n"),
            "{text}"
        );
        assert!(text.len() < LARGEST_ANSWER);
    }
}
