//! Generates docs/reference/reasons.md and a guide's tables of reasons, from the comments on the reasons and from their remedies.
//!
//! Invariant: a guide's prose is its own, and all of its tables come from here. Generating it again changes nothing.

use crate::{EXIT_CODES, Reason, TargetReason, documented};

/// The whole page.
pub fn markdown() -> String {
    let mut page = String::from(HEAD);
    page += "\n## Reasons of a request\n\n";
    page += "The conditions Complete and Failed carry the same reason; `kubectl get` shows it.\n\n";
    page += "| reason | outcome | meaning | what to do |\n|---|---|---|---|\n";
    for (reason, comment) in documented::<Reason>() {
        let (outcome, meaning) = comment.split_once(": ").unwrap_or(("", &comment));
        let remedy = reason.remedy().unwrap_or_default();
        page += &row(&[&code(reason), outcome, meaning, remedy]);
    }
    page += "\n## Reasons of a pod\n\n";
    page += "Why there is no profile of a pod, or only its beginning.\n\n";
    page += TABLE;
    for (reason, meaning) in documented::<TargetReason>() {
        page += &of_pod(reason, &meaning);
    }
    page += "\n## Exit codes of the sampler\n\n| exit code | reason | meaning |\n|---|---|---|\n";
    for known in EXIT_CODES {
        page += &row(&[&known.code.to_string(), known.reasons, known.meaning]);
    }
    page
}

/// The guide with its tables written anew. Each stands between two marks, of which the first names the reasons of pods that it has.
pub fn guide(page: &str) -> Result<String, String> {
    let (mut written, mut rest) = (String::new(), page);
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let marks = after.split_once(MARK_END);
        let parts = marks.and_then(|(names, after)| Some((names, after.split_once(END)?)));
        let (names, (_, after)) = parts.ok_or_else(|| format!("a table has no {END}"))?;
        written += &format!("{before}{BEGIN}{names}{MARK_END}\n\n{TABLE}");
        for name in names.split_whitespace() {
            written += &named(name)?;
        }
        written += &format!("\n{END}");
        rest = after;
    }
    Ok(written + rest)
}

const HEAD: &str = "<!-- Generated from crds/src by `make generate`; do not edit. -->

# Reasons

What each reason of a request or a pod means, and what to do about it. `kubectl phpprof explain REASON` prints the same, and the message of a
failure ends with it. The plugin's flags are in brackets.
";
const TABLE: &str = "| reason | exit code | meaning | what to do |\n|---|---|---|---|\n";
const BEGIN: &str = "<!-- Reasons, generated from crds/src by `make generate`: ";
const MARK_END: &str = " -->";
const END: &str = "<!-- End of the reasons. -->";

fn named(name: &str) -> Result<String, String> {
    let mut all = documented::<TargetReason>().into_iter();
    let found = all.find(|(reason, _)| reason.to_string() == name);
    let (reason, meaning) = found.ok_or_else(|| format!("there is no reason {name}"))?;
    Ok(of_pod(reason, &meaning))
}

fn of_pod(reason: TargetReason, meaning: &str) -> String {
    let name = code(reason);
    let exit_code = EXIT_CODES
        .iter()
        .find(|known| known.reasons.split(", ").any(|known| known == name))
        .map_or_else(String::new, |known| known.code.to_string());
    row(&[&name, &exit_code, meaning, reason.remedy()])
}

fn code(name: impl ToString) -> String {
    format!("`{}`", name.to_string())
}

fn row(cells: &[&str]) -> String {
    let cell = |text: &&str| match text.is_empty() {
        true => " |".to_owned(),
        false => format!(" {} |", text.replace('|', "\\|")),
    };
    format!("|{}\n", cells.iter().map(cell).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_a_guide_is_written_anew_between_its_marks() {
        let table =
            |content| format!("before\n{BEGIN}ProfileTooLarge{MARK_END}{content}{END}\nafter\n");
        let written = guide(&table("\nold words\n")).unwrap();
        let meaning = "The profile is over 32 MiB. | Sample for a shorter time.";
        let row = format!("| `ProfileTooLarge` | 23 | {meaning} |\n");
        assert_eq!(written, table(&format!("\n\n{TABLE}{row}\n")));
        assert_eq!(guide(&written).unwrap(), written);
    }

    #[test]
    fn a_guide_with_a_wrong_mark_is_refused() {
        let unknown = format!("{BEGIN}Nothing{MARK_END}{END}");
        assert_eq!(guide(&unknown).unwrap_err(), "there is no reason Nothing");
        assert!(guide(&format!("{BEGIN}GVisor{MARK_END}")).is_err());
    }
}
