//! A client that only follows the answers' own suggestions.

use std::collections::BTreeSet;

use phpprof_profile::findings::RULES;
use serde_json::{Value, json};

use super::{TestAgent, recorded};

const PLANTED: &str = include_str!("../../../tests/agents/planted.json");
/// The bar for a client that follows answers.
const MOST_CALLS: usize = 15;
const MOST_TOKENS: usize = 30_000;

/// The place that an answer names first.
fn named(tool: &str, answer: &Value) -> Option<(String, String, i64)> {
    let rows = answer["rows"].as_array()?;
    let row = match tool {
        "lines" => rows.first()?,
        "callers" => rows.iter().find(|row| row["depth"] == 1)?,
        _ => return None,
    };
    let words = |field: &str| row[field].as_str().unwrap_or_default().to_owned();
    let file = words("file")
        .rsplit('/')
        .next()
        .unwrap_or_default()
        .to_owned();
    Some((words("function"), file, row["line"].as_i64()?))
}

/// Follows the answers' own suggestions, depth first, until one names the place. Returns the calls
/// and their tokens.
async fn followed(program: &str, uses_findings: bool) -> (usize, usize) {
    let places: Value = serde_json::from_str(PLANTED).unwrap();
    let place = &places[program];
    let expected = (
        place["function"].as_str().unwrap().to_owned(),
        place["file"].as_str().unwrap().to_owned(),
        place["line"].as_i64().unwrap(),
    );
    let agent = TestAgent::of_files(&[recorded(&format!("{program}-has"))]).await;
    let mut next = vec![("list_profiles".to_owned(), json!({}))];
    let (mut seen, mut calls, mut bytes) = (BTreeSet::new(), 0, 0);
    while let Some((tool, arguments)) = next.pop() {
        let is_new = seen.insert(format!("{tool} {arguments}"));
        if !is_new || (tool == "findings" && !uses_findings) {
            continue;
        }
        let answer = agent.answered(&tool, arguments).await;
        calls += 1;
        bytes += answer.to_string().len();
        if named(&tool, &answer).as_ref() == Some(&expected) {
            return (calls, bytes / 4);
        }
        if calls >= MOST_CALLS {
            break;
        }
        let suggested = answer["next"].as_array().unwrap().iter().rev();
        next.extend(suggested.map(|one| {
            let tool = one["tool"].as_str().unwrap().to_owned();
            (tool, one["arguments"].clone())
        }));
    }
    panic!("{program}: {expected:?} is not named within {calls} calls: {seen:?}");
}

#[tokio::test]
async fn following_answers_names_the_planted_place() {
    let mut most = (0, 0);
    for rule in &RULES {
        for uses_findings in [true, false] {
            let (calls, tokens) = followed(rule.id, uses_findings).await;
            most = (most.0.max(calls), most.1.max(tokens));
        }
    }
    eprintln!("at most {} calls and {} tokens", most.0, most.1);
    assert!(most.0 <= MOST_CALLS && most.1 <= MOST_TOKENS, "{most:?}");
}
