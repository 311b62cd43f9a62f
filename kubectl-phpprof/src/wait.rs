//! Waiting for a request, with each pod's progress, and what Ctrl-C does meanwhile.
//!
//! Invariant: after Ctrl-C, the user always knows what is still running.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kube::api::DynamicObject;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cancel;
use crate::connect::Cluster;
use crate::failure::{Exit, Failure};
use crate::progress::RunProgress;
use crate::request::{RequestView, ShownOutcome};
use crate::screen::interactive;

const POLL: Duration = Duration::from_millis(700);
/// The time that a request may need beyond its duration: start, upload, verify, merge.
const SLACK: u64 = 20 * 60;
/// The most polls in a row that the API server may leave unanswered.
const LOST: u32 = 30;

/// The result of waiting: the request's end, or the user's choice.
pub async fn wait(
    cluster: &Cluster,
    created: &DynamicObject,
    timeout: Option<u64>,
    interrupts: &mut Signal,
) -> Result<DynamicObject, Failure> {
    let name = RequestView::of(created).name();
    let limit = timeout.unwrap_or_else(|| {
        u64::try_from(RequestView::of(created).number("/spec/durationSeconds")).unwrap_or(0) + SLACK
    });
    let mut view = ScreenLines::new();
    let mut lost = 0;
    loop {
        match cluster.requests().get(&name).await {
            Ok(object) => {
                lost = 0;
                view.show(&RequestView::of(&object));
                if RequestView::of(&object).outcome() != ShownOutcome::InProgress {
                    return Ok(object);
                }
            }
            // A short outage of the API server is not a reason to stop.
            Err(error) if lost < LOST && !is_final(&error) => lost += 1,
            Err(error) => {
                let action = format!(
                    "get profilerequests/{name} in namespace {}",
                    cluster.namespace
                );
                return Err(Failure::of_api(&cluster.suggest, &action, &error));
            }
        }
        if view.begin.elapsed().as_secs() >= limit {
            return Err(too_late(cluster, &name, limit));
        }
        tokio::select! {
            () = tokio::time::sleep(POLL) => {}
            _ = interrupts.recv() => {
                view.clear();
                interrupted(cluster, &name, interrupts).await?;
                view.bar = bar();
            }
        }
    }
}

/// Whether another try cannot help.
fn is_final(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if [401, 403, 404].contains(&status.code))
}

fn too_late(cluster: &Cluster, name: &str, limit: u64) -> Failure {
    Failure::new(
        Exit::Timeout,
        format!("{name} did not end within {}", crate::duration::text(limit)),
        format!("it continues: {}", see_or_stop(cluster, name)),
    )
}

fn see_or_stop(cluster: &Cluster, name: &str) -> String {
    let command = |verb: &str| cluster.suggest.phpprof(&format!("{verb} {name}"));
    format!("{}; stop it: {}", command("describe"), command("cancel"))
}

/// The lines on the screen. Dropping the value removes them.
struct ScreenLines {
    begin: Instant,
    progress: RunProgress,
    bar: Option<ProgressBar>,
    last: String,
}

impl ScreenLines {
    fn new() -> Self {
        ScreenLines {
            begin: Instant::now(),
            progress: RunProgress::default(),
            bar: bar(),
            last: String::new(),
        }
    }

    fn show(&mut self, request: &RequestView<'_>) {
        let Some(bar) = &self.bar else {
            return tell(request, &mut self.last);
        };
        let width = usize::from(console::Term::stderr().size().1).saturating_sub(3);
        let lines = self.progress.lines(request, self.begin.elapsed(), width);
        bar.set_message(lines.join("\n"));
    }

    fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Drop for ScreenLines {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Without a terminal: prints a line whenever the reason or the counts change.
fn tell(request: &RequestView<'_>, last: &mut String) {
    let counts = ["selected", "succeeded", "failed"]
        .map(|field| request.number(&format!("/status/{field}")));
    let line = format!(
        "{}: {} pods, {} done, {} failed",
        match request.reason() {
            "" => "Waiting",
            reason => reason,
        },
        counts[0],
        counts[1],
        counts[2]
    );
    if line != *last {
        eprintln!("{line}");
        *last = line;
    }
}

pub fn interrupts() -> Result<Signal, Failure> {
    signal(SignalKind::interrupt()).map_err(|error| {
        Failure::new(
            Exit::Failed,
            error.to_string(),
            "close other programs, or raise `ulimit -n`",
        )
    })
}

fn bar() -> Option<ProgressBar> {
    if !interactive() {
        return None;
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{spinner} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.enable_steady_tick(Duration::from_millis(120));
    Some(bar)
}

/// Asks what to do with the request. `Ok` means to continue waiting.
async fn interrupted(
    cluster: &Cluster,
    name: &str,
    interrupts: &mut Signal,
) -> Result<(), Failure> {
    let left = || {
        Failure::new(
            Exit::Interrupted,
            format!("no longer waiting; {name} continues"),
            format!("see it: {}", see_or_stop(cluster, name)),
        )
    };
    if !interactive() {
        return Err(left());
    }
    eprint!("{name}: [c]ancel it and keep what was sampled, [l]eave it running, or [w]ait on? ");
    let answer = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        let _ = std::io::stdin().read_line(&mut line);
        line
    });
    // A second Ctrl-C counts as an answer.
    let answer = tokio::select! {
        answer = answer => answer.unwrap_or_default(),
        _ = interrupts.recv() => String::new(),
    };
    match answer.trim().to_ascii_lowercase().chars().next() {
        Some('w') => Ok(()),
        Some('c') => {
            cancel::one(cluster, name, None).await?;
            eprintln!("cancelled; waiting for the samples so far");
            Ok(())
        }
        _ => Err(left()),
    }
}
