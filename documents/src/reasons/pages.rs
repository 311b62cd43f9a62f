//! The pages that have reasons and exit codes.
//!
//! Invariant: a page's prose is its own, and all of its tables come from the list. Writing it again
//! changes nothing.

use super::{PodRow, Reasons, ReasonsError};

const HEAD: &str = "<!-- Generated from contract/reasons.yaml by `make generate`; do not edit. -->

# Reasons

What each reason of a request, a comparison, a trigger, a pod or an event means, and what to do about it. `kubectl phpprof explain REASON` prints the same, and the message of a
failure ends with it. The plugin's flags are in brackets.
";
pub const TABLE: &str = "| reason | exit code | meaning | what to do |\n|---|---|---|---|\n";
const EXIT_CODES: &str = "| exit code | reason | meaning |\n|---|---|---|\n";
/// Before a table of reasons of pods; the names follow.
pub const BEGIN: &str = "<!-- Reasons, generated from contract/reasons.yaml by `make generate`: ";
const MARK_END: &str = " -->";
pub const END: &str = "<!-- End of the reasons. -->";
pub const CODES: &str =
    "<!-- Exit codes, generated from contract/reasons.yaml by `make generate`. -->";
pub const END_OF_CODES: &str = "<!-- End of the exit codes. -->";

/// `docs/reference/reasons.md`.
pub fn reference(reasons: &Reasons) -> String {
    let mut page = String::from(HEAD);
    page += "\n## Reasons of a request\n\n";
    page += "The conditions Complete and Failed carry the same reason; `kubectl get` shows it.\n\n";
    page += "| reason | outcome | meaning | what to do |\n|---|---|---|---|\n";
    for of in &reasons.requests {
        let remedy = of.remedy.as_deref().unwrap_or_default();
        page += &row(&[&code(&of.reason), of.outcome.words(), &of.meaning, remedy]);
    }
    page += "\n## Reasons of a comparison\n\n";
    page += "The conditions Complete and Regressed carry the same reason. `status.reasons` has all of a verdict.\n\n";
    page += "| reason | outcome | meaning | what to do |\n|---|---|---|---|\n";
    for of in &reasons.comparisons {
        let remedy = of.remedy.as_deref().unwrap_or_default();
        page += &row(&[&code(&of.reason), of.outcome.words(), &of.meaning, remedy]);
    }
    page += "\n## Reasons of a trigger\n\n";
    page += "The condition Fired has it: why the last alerts have started a request, or not.\n\n";
    page += "| reason | outcome | meaning | what to do |\n|---|---|---|---|\n";
    for of in &reasons.triggers {
        let remedy = of.remedy.as_deref().unwrap_or_default();
        page += &row(&[&code(&of.reason), of.outcome.words(), &of.meaning, remedy]);
    }
    page += "\n## Reasons of a pod\n\n";
    page += "Why there is no profile of a pod, or only its beginning.\n\n";
    page += TABLE;
    page.extend(reasons.pods.iter().map(of_pod));
    page += "\n## Reasons of events\n\n";
    page += "What `kubectl get events` shows of a request, a comparison or a trigger. The note of each event has the names and numbers.\n\n";
    page += "| reason | meaning | what to do |\n|---|---|---|\n";
    for of in &reasons.events {
        let remedy = of.remedy.as_deref().unwrap_or_default();
        page += &row(&[&code(&of.reason), &of.meaning, remedy]);
    }
    page += "\n## Exit codes of the sampler\n\n";
    page + &exit_codes(reasons)
}

/// A page with its tables written anew.
pub fn tables(reasons: &Reasons, page: &str) -> Result<String, ReasonsError> {
    let (mut written, mut rest) = (String::new(), page);
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (names, after) = (after.split_once(MARK_END)).ok_or(ReasonsError::NoEnd(MARK_END))?;
        let (_, after) = after.split_once(END).ok_or(ReasonsError::NoEnd(END))?;
        written += &format!("{before}{BEGIN}{names}{MARK_END}\n\n{TABLE}");
        for name in names.split_whitespace() {
            let found = reasons.pods.iter().find(|it| it.reason == name);
            let found = found.ok_or_else(|| ReasonsError::Unknown(name.to_owned()))?;
            written += &of_pod(found);
        }
        written += &format!("\n{END}");
        rest = after;
    }
    if let Some((before, after)) = rest.split_once(CODES) {
        let ended = after.split_once(END_OF_CODES);
        let (_, after) = ended.ok_or(ReasonsError::NoEnd(END_OF_CODES))?;
        let table = exit_codes(reasons);
        written += &format!("{before}{CODES}\n\n{table}\n{END_OF_CODES}");
        rest = after;
    }
    Ok(written + rest)
}

fn exit_codes(reasons: &Reasons) -> String {
    let mut table = EXIT_CODES.to_owned();
    for exit in reasons.sampler_exits() {
        table += &row(&[&exit.code.to_string(), &code(exit.reason), exit.meaning]);
    }
    table
}

fn of_pod(of: &PodRow) -> String {
    let exit_code = of.exit_code.map(|code| code.to_string());
    let exit_code = exit_code.unwrap_or_default();
    row(&[&code(&of.reason), &exit_code, &of.meaning, &of.remedy])
}

fn code(name: &str) -> String {
    format!("`{name}`")
}

fn row(cells: &[&str]) -> String {
    let cell = |text: &&str| {
        if text.is_empty() {
            return " |".to_owned();
        }
        format!(" {} |", text.replace('|', "\\|"))
    };
    format!("|{}\n", cells.iter().map(cell).collect::<String>())
}
