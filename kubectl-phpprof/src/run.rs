//! `run`: creates a request, waits for it, shows the top functions and findings.
//!
//! Invariant: the name of a created request is printed before any waiting; a wrong command line
//! fails before anything is created, and a stored profile that cannot be shown is not a failure.

use std::io::Write as _;

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::{Api, DynamicObject, PostParams};
use phpprof_crds::REQUESTED_BY;
use phpprof_profile::{Profile, View};
use serde_json::Value;

use crate::cli::{DryRun, ObjectForm, RequestArguments, RunFlags, TopSort};
use crate::connect::Cluster;
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::list::names;
use crate::output::OutputForm;
use crate::output::yaml;
use crate::progress::ending;
use crate::request::{RequestView, ShownOutcome};
use crate::screen::Screen;
use crate::show::table_of;
use crate::source::ProfileSource;
use crate::suggest::Suggest;
use crate::{findings, labels, source, stdout, target, wait};

pub async fn run(global: &Global, arguments: &RunFlags, screen: Screen) -> Result<(), Failure> {
    match perform(global, arguments, screen).await {
        Err(failure) if arguments.allow_failure && may_be_ignored(failure.exit) => {
            eprintln!("{failure}");
            eprintln!("There is no profile. The exit code is 0 because of --allow-failure.");
            Ok(())
        }
        outcome => outcome,
    }
}

/// Whether a failure depends on the state of the cluster. A wrong command line would fail each
/// time, and Ctrl-C is not a failure.
fn may_be_ignored(exit: Exit) -> bool {
    !matches!(exit, Exit::Usage | Exit::Interrupted)
}

async fn perform(global: &Global, arguments: &RunFlags, screen: Screen) -> Result<(), Failure> {
    let mut object = request_object(&arguments.request, arguments.name.clone())?;
    check_type(arguments, &object)?;
    if let Some(key) = &arguments.by {
        labels::check(&object, key)?;
    }
    if arguments.dry_run == Some(DryRun::Client) {
        let form = arguments.output.unwrap_or(ObjectForm::Yaml);
        return stdout::say(&printed(&object, form)?);
    }
    // From here on, Ctrl-C asks. It must not end the program between the creation and the waiting.
    let mut interrupts = wait::interrupts()?;
    let cluster = Cluster::of(global).await?;
    let cluster = match object.metadata.namespace.take() {
        Some(namespace) if global.namespace.is_none() => cluster.in_namespace(namespace),
        _ => cluster,
    };
    let is_dry = arguments.dry_run == Some(DryRun::Server);
    let created = create(&cluster, object, is_dry).await?;
    stdout::say(&match arguments.output {
        Some(form) => printed(&created, form)?,
        None => format!(
            "profilerequest.phpprof.dev/{} created{}\n",
            RequestView::of(&created).name(),
            if is_dry { " (server dry run)" } else { "" }
        ),
    })?;
    if is_dry || !arguments.wait {
        return Ok(());
    }
    let ended = wait::wait(&cluster, &created, arguments.timeout, &mut interrupts).await?;
    finish(&cluster, &ended, arguments, screen).await
}

/// Creates a request, with the user's name in an annotation.
pub async fn create(
    cluster: &Cluster,
    mut object: DynamicObject,
    is_dry: bool,
) -> Result<DynamicObject, Failure> {
    let parameters = PostParams {
        dry_run: is_dry,
        field_manager: Some("kubectl-phpprof".to_owned()),
    };
    let action = format!("create profilerequests in namespace {}", cluster.namespace);
    sign(cluster, &mut object).await;
    let created = cluster.requests().create(&parameters, &object).await;
    created.map_err(|error| Failure::of_api(&cluster.suggest, &action, &error))
}

/// Adds the user's name as the API server knows it. If the API server does not tell the name, the
/// request is created without it.
async fn sign(cluster: &Cluster, object: &mut DynamicObject) {
    let reviews: Api<SelfSubjectReview> = Api::all(cluster.client.clone());
    let (params, question) = (PostParams::default(), SelfSubjectReview::default());
    let review = reviews.create(&params, &question).await.ok();
    let user = review.and_then(|review| review.status?.user_info?.username);
    if let Some(user) = user {
        let annotations = object.metadata.annotations.get_or_insert_default();
        annotations.entry(REQUESTED_BY.to_owned()).or_insert(user);
    }
}

/// A table of the heap needs a request that samples heaps, and one of fibers a request that shows
/// them. This is checked before the request is created.
fn check_type(arguments: &RunFlags, object: &DynamicObject) -> Result<(), Failure> {
    match arguments.sample_type {
        Some(wanted) if object.data["spec"]["mode"] == "Heap" => Err(Failure::new(
            Exit::Usage,
            format!("a request with mode Heap has no {}", wanted.name()),
            "leave --sample-type out; top --sample-type inuse_objects shows numbers",
        )),
        Some(wanted) if wanted.needs_heap() && object.data["spec"]["heap"] != true => {
            Err(Failure::new(
                Exit::Usage,
                format!("a request without heap has no {}", wanted.name()),
                "add --heap, or heap: true to the spec of the file",
            ))
        }
        Some(wanted)
            if wanted.needs_fibers() && object.data["spec"]["includeSuspended"] != true =>
        {
            Err(Failure::new(
                Exit::Usage,
                format!(
                    "a request without suspended fibers has no {}",
                    wanted.name()
                ),
                "add --fibers, or includeSuspended: true to the spec of the file",
            ))
        }
        _ => Ok(()),
    }
}

/// The request from the command line or from the file.
pub fn request_object(
    arguments: &RequestArguments,
    name: Option<String>,
) -> Result<DynamicObject, Failure> {
    let Some(path) = &arguments.filename else {
        let request = target::request(arguments, name)?;
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
            format!("{path} is not a ProfileRequest: {error}"),
            "to print an example: kubectl phpprof run deploy/web --dry-run=client",
        )
    };
    let value: Value = serde_yaml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    if value["kind"] != "ProfileRequest" {
        return Err(wrong("its kind is different".to_owned()));
    }
    if let Ok(request) = serde_json::from_value(value.clone()) {
        target::check(&request)?;
    }
    as_object(Ok(value), path)
}

pub fn as_object(
    value: Result<Value, serde_json::Error>,
    place: &str,
) -> Result<DynamicObject, Failure> {
    value
        .and_then(|mut value| {
            // Without a status and a name, the type has an empty status and no name. They are
            // removed.
            if let Some(fields) = value.as_object_mut() {
                fields.remove("status");
            }
            serde_json::from_value(value)
        })
        .map_err(|error| {
            Failure::new(
                Exit::Usage,
                format!("{place} is not a valid ProfileRequest: {error}"),
                "kubectl phpprof run --help describes each flag",
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

/// Creates a request that looks at its workers once, and waits for its profile. Returns its name.
pub async fn looked(
    cluster: &Cluster,
    object: DynamicObject,
    timeout: u64,
    interrupts: &mut tokio::signal::unix::Signal,
) -> Result<String, Failure> {
    let created = create(cluster, object, false).await?;
    let name = RequestView::of(&created).name();
    eprintln!("profilerequest.phpprof.dev/{name} created");
    let _ = std::io::stderr().flush();
    let ended = wait::wait(cluster, &created, Some(timeout), interrupts).await?;
    let request = RequestView::of(&ended);
    require_profile(&request, &cluster.suggest)?;
    tell_failed(&request);
    Ok(name)
}

/// Fails if a finished request has no profile.
pub fn require_profile(request: &RequestView<'_>, suggest: &Suggest) -> Result<(), Failure> {
    if request.outcome() != ShownOutcome::Failed {
        return Ok(());
    }
    // Where all pods failed, the reason is that of a pod.
    let mut failed = request
        .targets()
        .filter(|target| target.state() == "Failed");
    let reason = match request.reason() {
        "AllTargetsFailed" => failed.next().map_or("AllTargetsFailed", |it| it.reason()),
        reason => reason,
    };
    Err(Failure::new(
        Exit::NoProfile,
        ending(request),
        format!(
            "see each pod: {}; what it means: kubectl phpprof explain {reason}",
            suggest.phpprof(&format!("describe {}", request.name())),
        ),
    ))
}

/// Lists the pods without a profile.
pub fn tell_failed(request: &RequestView<'_>) {
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
}

/// The requested table.
fn top(profile: &Profile, arguments: &RunFlags, screen: Screen) -> Result<String, Failure> {
    let view = View {
        sample_type: arguments.sample_type.map(|it| it.name().to_owned()),
        labels: Vec::new(),
    };
    let table = table_of(profile, &view, TopSort::Flat, arguments.by.as_deref())?;
    Ok(table.text(&OutputForm::default(), 10, screen.width))
}

async fn finish(
    cluster: &Cluster,
    object: &DynamicObject,
    arguments: &RunFlags,
    screen: Screen,
) -> Result<(), Failure> {
    let request = RequestView::of(object);
    let name = request.name();
    require_profile(&request, &cluster.suggest)?;
    eprintln!("{}", ending(&request));
    tell_failed(&request);
    let loaded = source::of_request(cluster, &name, None).await;
    if arguments.output.is_none() {
        match &loaded {
            Ok(source) => show(cluster, source, &name, arguments, screen)?,
            Err(failure) => cannot_show(failure),
        }
    }
    eprintln!(
        "the profile is stored at {}",
        request.words("/status/profile/url")
    );
    if loaded.is_ok() {
        eprintln!(
            "look at it: {}",
            cluster.suggest.phpprof(&format!("flame {name}"))
        );
    }
    Ok(())
}

/// Prints the requested table and the findings.
fn show(
    cluster: &Cluster,
    source: &ProfileSource,
    name: &str,
    arguments: &RunFlags,
    screen: Screen,
) -> Result<(), Failure> {
    match top(&source.profile, arguments, screen) {
        Ok(table) => stdout::say(&table)?,
        Err(failure) => cannot_show(&failure),
    }
    let found = phpprof_profile::findings(&source.profile, &View::default());
    let brief = findings::brief(&found, name, &cluster.suggest, screen.width);
    stdout::say(&brief)
}

fn cannot_show(failure: &Failure) {
    eprintln!(
        "warning: the profile cannot be shown here: {}\nhint: {}",
        failure.message, failure.hint
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_hook_ignores_cluster_failures_but_no_misuse() {
        for exit in [
            Exit::NoProfile,
            Exit::Timeout,
            Exit::Unreachable,
            Exit::Forbidden,
        ] {
            assert!(may_be_ignored(exit), "{exit:?}");
        }
        for exit in [Exit::Usage, Exit::Interrupted] {
            assert!(!may_be_ignored(exit), "{exit:?}");
        }
    }
    fn failed(reason: &str, targets: serde_json::Value) -> String {
        let object = json!({
            "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileRequest", "metadata": {"name": "web"},
            "status": {"conditions": [{"type": "Failed", "status": "True", "reason": reason, "message": "no"}], "targets": targets}
        });
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let failure = require_profile(&RequestView::of(&object), &Suggest::default()).unwrap_err();
        failure.hint
    }

    #[test]
    fn when_all_fail_a_pods_reason_is_explained() {
        let pods = json!([{"podName": "a", "state": "Failed", "reason": "NoPhpFound"}]);
        let hint = failed("AllTargetsFailed", pods);
        assert!(hint.ends_with("explain NoPhpFound"), "{hint}");
        let hint = failed("NamespaceNotEnabled", json!([]));
        assert!(hint.ends_with("explain NamespaceNotEnabled"), "{hint}");
    }
}
