//! A client that only follows the answers' own suggestions.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use phpprof_profile::findings::RULES;
use serde_json::{Value, json};

use super::upgrade::{STORED, upgrade};
use super::{TestAgent, recorded};

const PLANTED: &str = include_str!("../../../tests/agents/planted.json");
const PLANTED_UPGRADE: &str = include_str!("../../../tests/agents/upgrade/planted.json");
/// The bar for a client that follows answers.
const MOST_CALLS: usize = 15;
const MOST_TOKENS: usize = 30_000;

/// The place that an answer names first.
fn named(tool: &str, answer: &Value) -> Option<Value> {
    let rows = answer["rows"].as_array()?;
    let row = match tool {
        "lines" => rows.first()?,
        "callers" => rows.iter().find(|row| row["depth"] == 1)?,
        _ => return None,
    };
    let file = row["file"].as_str().unwrap_or_default();
    let file = file.rsplit('/').next();
    Some(json!({"function": row["function"], "file": file, "line": row["line"]}))
}

/// Follows the answers' own suggestions, depth first, until one names the place. Returns the calls
/// and their tokens.
async fn followed(
    files: &[PathBuf],
    place: &Value,
    first: &str,
    arguments: Value,
    uses_findings: bool,
) -> (usize, usize) {
    let agent = TestAgent::of_files(files).await;
    let mut next = vec![(first.to_owned(), arguments)];
    let (mut seen, mut calls, mut bytes) = (BTreeSet::new(), 0, 0);
    while let Some((tool, arguments)) = next.pop() {
        let is_new = seen.insert(format!("{tool} {arguments}"));
        if !is_new || (tool == "findings" && !uses_findings) {
            continue;
        }
        let answer = agent.answered(&tool, arguments).await;
        calls += 1;
        bytes += answer.to_string().len();
        if named(&tool, &answer).as_ref() == Some(place) {
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
    panic!("{files:?}: {place} is not named within {calls} calls: {seen:#?}");
}

#[tokio::test]
async fn following_answers_names_the_planted_place() {
    let places: Value = serde_json::from_str(PLANTED).unwrap();
    let mut most = (0, 0);
    for rule in &RULES {
        for uses_findings in [true, false] {
            let files = [recorded(&format!("{}-has", rule.id))];
            let (place, first) = (&places[rule.id], "list_profiles");
            let followed = followed(&files, place, first, json!({}), uses_findings);
            let (calls, tokens) = followed.await;
            most = (most.0.max(calls), most.1.max(tokens));
        }
    }
    eprintln!("at most {} calls and {} tokens", most.0, most.1);
    assert!(most.0 <= MOST_CALLS && most.1 <= MOST_TOKENS, "{most:?}");
}

/// From the list of both profiles, whichever is newer, and from the verdict on them, which is what
/// `compare` answers.
#[tokio::test]
async fn following_answers_names_what_an_upgrade_broke() {
    let place: Value = serde_json::from_str(PLANTED_UPGRADE).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let files = upgrade(folder.path());
    let both = json!({"before": files[0], "after": files[1]});
    for uses_findings in [true, false] {
        for (first, arguments) in [("list_profiles", json!({})), ("verdict", both.clone())] {
            let files = [folder.path().to_owned()];
            let followed = followed(&files, &place, first, arguments, uses_findings);
            let (calls, tokens) = followed.await;
            eprintln!("{first}, findings {uses_findings}: {calls} calls, {tokens} tokens");
            assert!(tokens <= MOST_TOKENS, "{tokens}");
        }
    }
}

#[tokio::test]
async fn an_upgrades_verdict_is_worse() {
    let agent = TestAgent::of_files(&[PathBuf::from(STORED)]).await;
    let [before, after] =
        ["before", "after"].map(|it| Path::new(STORED).join(format!("{it}.pb.gz")));
    let both = json!({"before": before, "after": after});
    let verdict = agent.answered("verdict", both.clone()).await;
    assert_eq!(verdict["verdict"], "Worse", "{verdict}");
    assert_eq!(verdict["routes"][0]["route"], "/orders");
    let mut accepted = both;
    accepted["limits"] = json!(["1000%"]);
    let all = agent.answered("verdict", accepted).await;
    assert_eq!(all["verdict"], "No change", "{all}");
    let common = &verdict["commonCaller"]["function"];
    assert_eq!(common, "trigger_error", "{verdict}");
}
