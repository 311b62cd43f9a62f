//! Label selectors as in kubectl's -l: `app=web,tier!=cache,stage in (a, b),canary,!old`.
//!
//! It checks the syntax only; the API server checks the names of labels.
//!
//! Invariant: a text that cannot be parsed completely is refused.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use crate::failure::{Exit, Failure};

pub fn parse(text: &str) -> Result<LabelSelector, Failure> {
    let mut labels = LabelSelector::default();
    for part in parts(text) {
        let term = term(part.trim()).ok_or_else(|| {
            Failure::new(
                Exit::Usage,
                format!("{text:?} is not a selector: {:?} is not understood", part.trim()),
                "use the syntax of kubectl get -l, for instance app=web,tier!=cache or 'tier in (web, api)'",
            )
        })?;
        match (term.operator, term.values) {
            ("Equal", mut values) => {
                let value = values.pop().unwrap_or_default();
                labels
                    .match_labels
                    .get_or_insert_default()
                    .insert(term.key, value);
            }
            (operator, values) => {
                labels
                    .match_expressions
                    .get_or_insert_default()
                    .push(LabelSelectorRequirement {
                        key: term.key,
                        operator: operator.to_owned(),
                        values: Some(values).filter(|values| !values.is_empty()),
                    })
            }
        }
    }
    Ok(labels)
}

struct Term {
    key: String,
    operator: &'static str,
    values: Vec<String>,
}

/// The parts between commas. Commas in parentheses do not separate.
fn parts(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut begin, mut depth) = (0, 0i32);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text.get(begin..at).unwrap_or_default());
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text.get(begin..).unwrap_or_default());
    parts
}

fn term(part: &str) -> Option<Term> {
    let made = |key: &str, operator, values: Vec<&str>| {
        let key = word(key.trim(), false)?;
        let values = values
            .into_iter()
            .map(|value| word(value.trim(), true))
            .collect::<Option<_>>()?;
        Some(Term {
            key,
            operator,
            values,
        })
    };
    if let Some(key) = part.strip_prefix('!') {
        return made(key, "DoesNotExist", Vec::new());
    }
    if let Some(set) = part.strip_suffix(')') {
        let (head, values) = set.split_once('(')?;
        let (key, operator) = match head.trim().split_once(' ')? {
            (key, operator) if operator.trim() == "in" => (key, "In"),
            (key, operator) if operator.trim() == "notin" => (key, "NotIn"),
            _ => return None,
        };
        return made(key, operator, values.split(',').collect());
    }
    if let Some((key, value)) = part.split_once("!=") {
        return made(key, "NotIn", vec![value]);
    }
    match part.split_once("==").or(part.split_once('=')) {
        Some((key, value)) => made(key, "Equal", vec![value]),
        None => made(part, "Exists", Vec::new()),
    }
}

/// A key or a value, with only the characters that labels allow.
fn word(text: &str, may_be_empty: bool) -> Option<String> {
    let letters = text
        .chars()
        .all(|letter| letter.is_ascii_alphanumeric() || "-_./".contains(letter));
    (letters && (may_be_empty || !text.is_empty())).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_those_of_kubectl() {
        let labels =
            parse("app=web, release==r1,tier!=cache,stage in (a, b),zone notin (c),canary,!old")
                .unwrap();
        assert_eq!(
            serde_json::to_value(labels).unwrap(),
            serde_json::json!({
                "matchLabels": {"app": "web", "release": "r1"},
                "matchExpressions": [
                    {"key": "tier", "operator": "NotIn", "values": ["cache"]},
                    {"key": "stage", "operator": "In", "values": ["a", "b"]},
                    {"key": "zone", "operator": "NotIn", "values": ["c"]},
                    {"key": "canary", "operator": "Exists"},
                    {"key": "old", "operator": "DoesNotExist"},
                ],
            })
        );
    }

    #[test]
    fn what_is_no_selector_is_refused() {
        for wrong in [
            "", "a b", "=web", "app=web,", "a in b", "a (b)", "a in (b", "a=b=c", "a>1",
        ] {
            assert_eq!(
                parse(wrong).map_err(|failure| failure.exit),
                Err(Exit::Usage),
                "{wrong:?}"
            );
        }
    }
}
