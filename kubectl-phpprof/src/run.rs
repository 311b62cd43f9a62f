//! `run`: creates a request, waits for it, shows what takes most.
//!
//! Invariant: a request that was created is named on the screen before anything is waited for; Ctrl-C never leaves the user in
//! doubt about what goes on running.

use std::io::Write;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kube::api::{DynamicObject, PostParams};
use serde_json::Value;

use crate::cli::{DryRun, Global, ObjectForm, Run, TopForm, TopSort};
use crate::connect::Cluster;
use crate::failure::{Exit, Failure};
use crate::list::{names, yaml};
use crate::progress::{Progress, ending};
use crate::request::{Outcome, Request};
use crate::screen::{Screen, interactive};
use crate::show::TopTable;
use crate::{cancel, source, target};

const POLL: Duration = Duration::from_millis(700);
/// What a request may take beyond its duration: start, upload, verify, merge.
const SLACK: u64 = 20 * 60;

pub async fn run(global: &Global, arguments: &Run, screen: Screen) -> Result<(), Failure> {
    let mut object = wanted(arguments)?;
    if arguments.dry_run == Some(DryRun::Client) {
        print!(
            "{}",
            printed(&object, arguments.output.unwrap_or(ObjectForm::Yaml))?
        );
        return Ok(());
    }
    let cluster = Cluster::of(global).await?;
    let cluster = match object.metadata.namespace.take() {
        Some(namespace) if global.namespace.is_none() => Cluster {
            namespace,
            ..cluster
        },
        _ => cluster,
    };
    let parameters = PostParams {
        dry_run: arguments.dry_run == Some(DryRun::Server),
        field_manager: Some("kubectl-phpprof".to_owned()),
    };
    let action = format!("create profilerequests in namespace {}", cluster.namespace);
    let created = cluster
        .requests()
        .create(&parameters, &object)
        .await
        .map_err(|error| Failure::of_api(&action, &error))?;
    match arguments.output {
        Some(form) => print!("{}", printed(&created, form)?),
        None => println!(
            "profilerequest.phpprof.dev/{} created{}",
            Request::of(&created).name(),
            if parameters.dry_run {
                " (server dry run)"
            } else {
                ""
            }
        ),
    }
    if parameters.dry_run || !arguments.wait {
        return Ok(());
    }
    let _ = std::io::stdout().flush();
    let ended = wait(&cluster, &created, arguments).await?;
    finish(&cluster, &ended, arguments, screen).await
}

/// The request of the command line or of the file.
fn wanted(arguments: &Run) -> Result<DynamicObject, Failure> {
    let Some(path) = &arguments.filename else {
        let request = target::request(arguments)?;
        return as_object(serde_json::to_value(request), "the command line");
    };
    let text = if path == "-" {
        std::io::read_to_string(std::io::stdin().lock())
    } else {
        std::fs::read_to_string(path)
    };
    let text = text.map_err(|error| Failure::of_file(path, &error))?;
    let wrong = |error: String| {
        Failure::new(
            Exit::Usage,
            format!("{path} is no ProfileRequest: {error}"),
            "print one to begin with: kubectl phpprof run deploy/web --dry-run=client",
        )
    };
    let value: Value = serde_yaml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    if value["kind"] != "ProfileRequest" {
        return Err(wrong("its kind is another".to_owned()));
    }
    if let Ok(request) = serde_json::from_value(value.clone()) {
        target::check(&request)?;
    }
    as_object(Ok(value), path)
}

fn as_object(
    value: Result<Value, serde_json::Error>,
    place: &str,
) -> Result<DynamicObject, Failure> {
    value
        .and_then(|mut value| {
            // An empty status and no name at all are what the type has where there is none.
            if let Some(fields) = value.as_object_mut() {
                fields.remove("status");
            }
            serde_json::from_value(value)
        })
        .map_err(|error| {
            Failure::new(
                Exit::Usage,
                format!("{place} makes no ProfileRequest: {error}"),
                "kubectl phpprof run --help says what each flag may be",
            )
        })
}

fn printed(object: &DynamicObject, form: ObjectForm) -> Result<String, Failure> {
    let value = serde_json::to_value(object)
        .map_err(|error| Failure::new(Exit::Failed, error.to_string(), "try --output=name"))?;
    Ok(match form {
        ObjectForm::Name => names(std::slice::from_ref(object)),
        ObjectForm::Yaml => yaml(&value),
        ObjectForm::Json => serde_json::to_string_pretty(&value).unwrap_or_default() + "\n",
    })
}

/// What was waited for: the end, or a wish of the user.
async fn wait(
    cluster: &Cluster,
    created: &DynamicObject,
    arguments: &Run,
) -> Result<DynamicObject, Failure> {
    let name = Request::of(created).name();
    let limit = arguments.timeout.unwrap_or_else(|| {
        u64::try_from(Request::of(created).number("/spec/durationSeconds")).unwrap_or(0) + SLACK
    });
    let bar = bar();
    let begin = Instant::now();
    let mut progress = Progress::default();
    let mut last = String::new();
    let mut lost = 0;
    loop {
        match cluster.requests().get(&name).await {
            Ok(object) => {
                lost = 0;
                let request = Request::of(&object);
                let width = bar.as_ref().map_or(usize::MAX, |_| width());
                let lines = progress.lines(&request, begin.elapsed(), width);
                match &bar {
                    Some(bar) => bar.set_message(lines.join("\n")),
                    None => tell(&request, &mut last),
                }
                if request.outcome() != Outcome::InProgress {
                    clear(bar.as_ref());
                    return Ok(object);
                }
            }
            // A short outage of the API server is no reason to stop.
            Err(error) => {
                lost += 1;
                if lost > 30
                    || matches!(&error, kube::Error::Api(status) if [401, 403, 404].contains(&status.code))
                {
                    clear(bar.as_ref());
                    return Err(Failure::of_api(
                        &format!(
                            "get profilerequests/{name} in namespace {}",
                            cluster.namespace
                        ),
                        &error,
                    ));
                }
            }
        }
        if begin.elapsed().as_secs() >= limit {
            clear(bar.as_ref());
            return Err(Failure::new(
                Exit::Timeout,
                format!(
                    "{name} was not over within {}",
                    crate::duration::text(limit)
                ),
                format!(
                    "it goes on: kubectl phpprof describe {name}; stop it: kubectl phpprof cancel {name}"
                ),
            ));
        }
        tokio::select! {
            () = tokio::time::sleep(POLL) => {}
            _ = tokio::signal::ctrl_c() => {
                clear(bar.as_ref());
                interrupted(cluster, &name).await?;
            }
        }
    }
}

/// Off a terminal: a line whenever the reason or the counts change.
fn tell(request: &Request<'_>, last: &mut String) {
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

fn width() -> usize {
    usize::from(console::Term::stderr().size().1).saturating_sub(3)
}

fn clear(bar: Option<&ProgressBar>) {
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
}

/// Asks what shall become of the request; Ok means to go on waiting.
async fn interrupted(cluster: &Cluster, name: &str) -> Result<(), Failure> {
    let left = || {
        Failure::new(
            Exit::Interrupted,
            format!("no longer waiting; {name} goes on"),
            format!(
                "see it: kubectl phpprof describe {name}; stop it: kubectl phpprof cancel {name}"
            ),
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
    // A second Ctrl-C is an answer too.
    let answer = tokio::select! {
        answer = answer => answer.unwrap_or_default(),
        _ = tokio::signal::ctrl_c() => String::new(),
    };
    match answer.trim().to_ascii_lowercase().chars().next() {
        Some('w') => Ok(()),
        Some('c') => {
            cancel::one(cluster, name, None).await?;
            eprintln!("cancelled; waiting for what was sampled");
            Ok(())
        }
        _ => Err(left()),
    }
}

async fn finish(
    cluster: &Cluster,
    object: &DynamicObject,
    arguments: &Run,
    screen: Screen,
) -> Result<(), Failure> {
    let request = Request::of(object);
    let name = request.name();
    if request.outcome() == Outcome::Failed {
        return Err(Failure::new(
            Exit::NoProfile,
            ending(&request),
            format!(
                "see each pod: kubectl phpprof describe {name}; what it means: kubectl phpprof explain {}",
                request.reason()
            ),
        ));
    }
    eprintln!("{}", ending(&request));
    for target in request
        .targets()
        .filter(|target| target.state() == "Failed")
    {
        eprintln!(
            "  {} failed: {}",
            crate::table::printable(target.pod()),
            target.reason()
        );
    }
    let loaded = source::of_request(cluster, &name, None).await;
    if arguments.output.is_none() {
        match &loaded {
            Ok(source) => {
                let top = TopTable::of(
                    &source.profile,
                    &phpprof_profile::View::default(),
                    TopSort::Own,
                    None,
                );
                print!(
                    "{}",
                    top.map_err(crate::show::wrong_view)?
                        .text(TopForm::Table, 10, screen.width)
                );
            }
            Err(failure) => eprintln!(
                "the profile cannot be shown here: {}\nhint: {}",
                failure.message, failure.hint
            ),
        }
    }
    eprintln!(
        "the profile lies at {}",
        request.words("/status/profile/url")
    );
    if loaded.is_ok() {
        eprintln!(
            "look at it: kubectl phpprof flame {name} -n {}",
            cluster.namespace
        );
    }
    Ok(())
}
