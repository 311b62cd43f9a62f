//! `doctor`: can this user profile the workload, and how; if not, why, and what to change. Without
//! a workload: does the release work.
//!
//! [`observe`] reads from the API server, and changes nothing there; [`judge`] is a pure function
//! of the observed state.
//!
//! Invariant: a check that could not be made is `unknown`, never `ok`.

pub mod checks;
pub mod observe;

use serde_json::json;

use crate::cli::Doctor;
use crate::connect::Cluster;
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::output::ListForm;
use crate::output::OutputForm;
use crate::screen::Screen;
use crate::table::printable;
use crate::{stdout, target};
use checks::{
    Check, CheckVerdict, MAY_LOOK, MAY_PROFILE, check_all, check_release, count, failed, may,
};

pub async fn run(global: &Global, arguments: &Doctor, screen: Screen) -> Result<(), Failure> {
    let target = match &arguments.target {
        Some(name) => Some(target::parse(name)?),
        None => None,
    };
    let output = arguments.output.read()?;
    let cluster = Cluster::of(global).await?;
    let checks = match target {
        Some(mut target) => {
            target.container_name = arguments.container.clone();
            target.run_as_user = arguments.run_as_user;
            check_all(&observe::observe(&cluster, &target).await?)
        }
        None => check_release(&observe::observe_release(&cluster).await?),
    };
    stdout::say(&text(&checks, &output, screen))?;
    verdict(&checks, arguments.target.as_deref())?;
    known(&checks, arguments.strict)
}

/// With `--strict`, a check that could not be made fails too.
fn known(checks: &[Check], is_strict: bool) -> Result<(), Failure> {
    let (unknown, of) = (count(checks, CheckVerdict::Unknown), checks.len());
    if unknown == 0 || !is_strict {
        return Ok(());
    }
    Err(Failure::new(
        Exit::Unfit,
        format!("{unknown} of {of} checks could not be made"),
        "do what each of them says, or leave --strict out",
    ))
}

/// Profiling and viewing are judged separately, because different users may do them.
fn verdict(checks: &[Check], target: Option<&str>) -> Result<(), Failure> {
    let (count, of) = (failed(checks), checks.len());
    let Some(target) = target else {
        return release_verdict(count, of);
    };
    let (profile, look) = (may(checks, MAY_PROFILE), may(checks, MAY_LOOK));
    let rights = [MAY_PROFILE, MAY_LOOK];
    let is_fit = !checks
        .iter()
        .any(|check| check.verdict == CheckVerdict::Bad && !rights.contains(&check.name));
    let message = match (is_fit, profile, look) {
        _ if count == 0 => return Ok(()),
        (false, ..) => format!("{target} cannot be profiled as it is"),
        (true, Some(false), Some(false)) => {
            format!("{target} can be profiled, but you may neither profile it nor look at results")
        }
        (true, Some(false), _) => {
            format!(
                "{target} can be profiled, but not by you; you may look at what others have profiled"
            )
        }
        (true, _, _) => {
            format!("{target} can be profiled, but you may not look at the result")
        }
    };
    Err(Failure::new(
        Exit::Unfit,
        format!("{message}: {count} of {of} checks failed"),
        "do what each failed check says",
    ))
}

fn release_verdict(count: usize, of: usize) -> Result<(), Failure> {
    if count == 0 {
        return Ok(());
    }
    Err(Failure::new(
        Exit::Unfit,
        format!("the release does not work: {count} of {of} checks failed"),
        "do what each failed check says",
    ))
}

pub fn text(checks: &[Check], output: &OutputForm, screen: Screen) -> String {
    let data = || {
        let rows = checks.iter().map(|check| {
            json!({"check": check.name, "verdict": word(check.verdict), "found": check.found, "remedy": check.remedy})
        });
        json!({
            "fit": failed(checks) == 0, "mayProfile": may(checks, MAY_PROFILE), "mayLook": may(checks, MAY_LOOK),
            "checks": rows.collect::<Vec<_>>(),
        })
    };
    match output {
        OutputForm::Form(ListForm::Name) => {
            let failed = checks
                .iter()
                .filter(|check| check.verdict == CheckVerdict::Bad);
            failed.map(|check| format!("{}\n", check.name)).collect()
        }
        output => output
            .of_data(data, "/checks")
            .unwrap_or_else(|| table(checks, screen)),
    }
}

/// A line for each check, with the remedy below those that did not pass.
fn table(checks: &[Check], screen: Screen) -> String {
    let mut text = String::new();
    let longest = checks
        .iter()
        .map(|check| check.name.len())
        .max()
        .unwrap_or(0);
    let room = screen.width.unwrap_or(usize::MAX);
    for check in checks {
        let word = format!("{:<7}", word(check.verdict));
        let word = match check.verdict {
            CheckVerdict::Good => screen.good(&word),
            CheckVerdict::Bad => screen.bad(&word),
            CheckVerdict::Unknown => screen.doubtful(&word),
        };
        let mut lines = wrapped(
            &printable(&check.found),
            room.saturating_sub(longest + 12).max(20),
        )
        .into_iter();
        text.push_str(&format!(
            "{word}   {:<longest$}  {}\n",
            check.name,
            lines.next().unwrap_or_default()
        ));
        let remedy = Some(&check.remedy)
            .filter(|remedy| check.verdict != CheckVerdict::Good && !remedy.is_empty());
        let remedy = remedy.map(|remedy| {
            wrapped(
                &format!("→ {}", printable(remedy)),
                room.saturating_sub(longest + 12).max(20),
            )
        });
        for line in lines.chain(remedy.into_iter().flatten()) {
            text.push_str(&format!("{:10}{:<longest$}  {line}\n", "", ""));
        }
    }
    text
}

fn word(verdict: CheckVerdict) -> &'static str {
    match verdict {
        CheckVerdict::Good => "ok",
        CheckVerdict::Bad => "FAILED",
        CheckVerdict::Unknown => "unknown",
    }
}

/// Lines of at most `width` characters, broken at spaces.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let Some(line) = lines.last_mut() else { break };
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}
