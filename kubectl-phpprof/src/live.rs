//! `top --live`: what PHP in the pods does now, by a live request whose seconds the operator keeps.
//!
//! The terminal has its own thread; this module creates the request, fetches its seconds, and ends
//! it with the terminal. Invariant: however it ends, the request is cancelled, and if that fails,
//! its samplers end by themselves, because nobody reads.

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use kube::api::DynamicObject;
use phpprof_profile::live::LiveTop as Table;
use phpprof_profile::live::screen::{self, Update};
use phpprof_profile::{
    DecodeLimits, MergeLimits, Merger, Profile, Settings, TrustedMetadata, decode,
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

use crate::cli::TopFlags;
use crate::connect::Cluster;
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::request::{RequestView, ShownOutcome};
use crate::results::{self, AccessKey, LiveSecond};
use crate::run::{as_object, create, require_profile, tell_failed};
use crate::{cancel, target, wait};

const EVERY: Duration = Duration::from_secs(1);
/// How long a fetch waits that the user asks for.
const SOONEST: Duration = Duration::from_millis(100);
/// The most failed answers in a row.
const LOST: u32 = 15;
/// The bounds for a second of one pod.
const LARGEST: MergeLimits = MergeLimits {
    rows: 20_000,
    bytes: 16 << 20,
};
/// The longest duration of a second that is accepted from a sampler.
const LONGEST: i64 = 60_000_000_000;

pub async fn run(global: &Global, arguments: &TopFlags) -> Result<String, Failure> {
    if !screen::is_there() {
        return Err(Failure::new(
            Exit::Usage,
            "top --live needs a terminal, and standard output is not one",
            "in a script, use kubectl phpprof run TARGET, then kubectl phpprof top NAME -o json",
        ));
    }
    let request = target::live(arguments)?;
    let object = as_object(serde_json::to_value(request), "the command line")?;
    // From here on a signal must not end the program before the request has ended.
    let mut signals = Signals::new()?;
    let cluster = Cluster::of(global).await?;
    let created = create(&cluster, object, false).await?;
    let name = RequestView::of(&created).name();
    let title = format!("{} by {name}", arguments.source);
    let watched = watch(&cluster, &name, title, &mut signals).await;
    end(&cluster, &name, watched).await
}

/// Shows the table until the user, the request or a signal ends it.
async fn watch(
    cluster: &Cluster,
    name: &str,
    title: String,
    signals: &mut Signals,
) -> Result<Option<DynamicObject>, Failure> {
    let (give, updates) = channel();
    let asked = Arc::new(Notify::new());
    let ask = Arc::clone(&asked);
    let mut shown = tokio::task::spawn_blocking(move || {
        let mut table = Table::new(title);
        screen::run(&mut table, &updates, &|| ask.notify_one())
    });
    let mut over = None;
    let fed = tokio::select! {
        ended = &mut shown => {
            over = Some(ended);
            Ok(None)
        }
        fed = feed(cluster, name, &give, &asked) => fed.map(Some),
        () = signals.come() => Ok(None),
    };
    // The terminal is restored before anything is printed.
    drop(give);
    let ended = match over {
        Some(ended) => ended,
        None => shown.await,
    };
    let saved = match ended {
        Ok(Ok(saved)) => saved,
        // The user has closed the terminal, and cannot read this.
        Ok(Err(error)) => {
            tell(&format!("the terminal: {error}"));
            Vec::new()
        }
        Err(error) => {
            tell(&format!("the terminal: {error}"));
            Vec::new()
        }
    };
    for path in saved {
        tell(&format!("saved {}", path.display()));
    }
    fed
}

/// Prints a message. A closed terminal must not prevent the request from being ended.
fn tell(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Ends the request, and prints the result.
async fn end(
    cluster: &Cluster,
    name: &str,
    watched: Result<Option<DynamicObject>, Failure>,
) -> Result<String, Failure> {
    if let Ok(Some(object)) = &watched {
        let request = RequestView::of(object);
        require_profile(&request, &cluster.suggest)?;
        tell_failed(&request);
        return Ok(format!(
            "{name} has ended; the whole profile: {}\n",
            cluster.suggest.phpprof(&format!("flame {name}"))
        ));
    }
    match cancel::one(cluster, name, None).await {
        Ok(_) => tell(&format!(
            "{name} is ending; the whole profile, in a moment: {}",
            cluster.suggest.phpprof(&format!("flame {name}"))
        )),
        Err(failure) => tell(&format!(
            "cancelling {name} failed: {}; its samplers end by themselves, because nobody reads their samples",
            failure.message
        )),
    }
    watched.map(|_| String::new())
}

/// Fetches the new seconds every second and when it is asked to, and sends them to the table.
/// Returns the request when it is finished.
async fn feed(
    cluster: &Cluster,
    name: &str,
    give: &Sender<Update>,
    asked: &Notify,
) -> Result<DynamicObject, Failure> {
    let (mut after, mut lost, mut has_begun) = (0, 0, false);
    let mut turns = tokio::time::interval(EVERY);
    loop {
        tokio::select! {
            _ = turns.tick() => {}
            // A key that is held down must not flood the cluster.
            () = asked.notified() => tokio::time::sleep(SOONEST).await,
        }
        let object = match cluster.request(name).await {
            Ok(object) => object,
            Err(_) if lost < LOST => {
                lost += 1;
                continue;
            }
            Err(failure) => return Err(failure),
        };
        let request = RequestView::of(&object);
        if request.outcome() != ShownOutcome::InProgress {
            return Ok(object);
        }
        let key = request.words("/status/accessKey").to_owned();
        if !has_begun {
            let _ = give.send(Update::Message(match request.message() {
                "" => request.reason().to_owned(),
                message => format!("{}: {message}", request.reason()),
            }));
        }
        if key.is_empty() {
            continue;
        }
        let path = format!("/r/{}/{name}/live", request.namespace());
        let seconds = match results::live(cluster, &AccessKey { path, key }, after).await {
            Ok(seconds) => seconds,
            Err(failure) if lost < LOST => {
                lost += 1;
                let _ = give.send(Update::Message(failure.message));
                continue;
            }
            Err(failure) => return Err(failure),
        };
        lost = 0;
        after = seconds.iter().map(|it| it.number).fold(after, i64::max);
        if seconds.is_empty() {
            continue;
        }
        if !std::mem::replace(&mut has_begun, true) {
            let _ = give.send(Update::Message(String::new()));
        }
        let _ = give.send(tick(&request.namespace(), &seconds));
    }
}

/// Combines the seconds of several pods, which cover the same time.
fn tick(namespace: &str, seconds: &[LiveSecond]) -> Update {
    let mut spans: HashMap<(&str, &str), i64> = HashMap::new();
    let mut profiles = Vec::new();
    for second in seconds {
        let profile = match labelled(namespace, second) {
            Ok(profile) => profile,
            Err(why) => {
                return Update::Message(format!("a second of {} is missing: {why}", second.pod));
            }
        };
        let span = spans.entry((&second.pod, &second.container)).or_default();
        *span += profile.duration_nanos.clamp(0, LONGEST);
        profiles.push(profile);
    }
    let longest = spans.into_values().max().unwrap_or(0);
    let span = Duration::from_nanos(u64::try_from(longest).unwrap_or(0));
    Update::Tick(profiles, span)
}

/// The second with the operator's labels. A sampler's own labels for its pod are replaced.
fn labelled(namespace: &str, second: &LiveSecond) -> Result<Profile, String> {
    let words = |error: &dyn std::error::Error| error.to_string();
    let limits = DecodeLimits::default();
    let profile = decode(&second.profile, &limits).map_err(|error| words(&error))?;
    let mut merger = Merger::new(&Settings::default(), 1, LARGEST, &[]);
    let known = TrustedMetadata {
        labels: vec![
            ("namespace", namespace),
            ("pod", &second.pod),
            ("container", &second.container),
        ],
        time_nanos: profile.time_nanos,
        duration_nanos: profile.duration_nanos,
    };
    let added = merger.add(&profile, &known);
    added.map_err(|error| words(&error))?;
    let merged = merger.finish().map_err(|error| words(&error))?;
    decode(&merged.file, &limits).map_err(|error| words(&error))
}

/// The signals that end the program.
struct Signals([Signal; 3]);

impl Signals {
    fn new() -> Result<Self, Failure> {
        let of = |kind| {
            signal(kind).map_err(|error| {
                Failure::new(
                    Exit::Failed,
                    error.to_string(),
                    "close other programs, or raise `ulimit -n`",
                )
            })
        };
        Ok(Signals([
            wait::interrupts()?,
            of(SignalKind::terminate())?,
            of(SignalKind::hangup())?,
        ]))
    }

    async fn come(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use phpprof_profile::{Builder, FrameRef, SampleTag, encode_gzip};

    use super::*;

    fn second(pod: &str, milliseconds: i64) -> LiveSecond {
        let mut builder = Builder::new(Settings {
            duration_nanos: milliseconds * 1_000_000,
            ..Settings::default()
        });
        let labels = [
            SampleTag::Str("pod", "another"),
            SampleTag::Num("pid", 7, ""),
        ];
        builder.add(&[FrameRef::default()], &[1, 2, 3], &labels);
        LiveSecond {
            number: 1,
            pod: pod.to_owned(),
            container: "fpm".to_owned(),
            profile: encode_gzip(&builder.finish()),
        }
    }

    #[test]
    fn seconds_of_several_pods_merge_with_operator_labels() {
        let seconds = [
            second("web-1", 1000),
            second("web-2", 900),
            second("web-2", 1050),
        ];
        let Update::Tick(profiles, span) = tick("shop", &seconds) else {
            panic!("no tick");
        };
        assert_eq!(span, Duration::from_millis(1950));
        let mut pods = Vec::new();
        for profile in &profiles {
            let labels = profile.sample.iter().flat_map(|sample| &sample.label);
            let labels = labels.filter(|label| profile.string(label.key) == "pod");
            pods.extend(labels.map(|label| profile.string(label.str).to_owned()));
        }
        assert_eq!(pods, ["web-1", "web-2", "web-2"]);
    }

    #[test]
    fn a_length_that_cannot_be_is_not_believed() {
        let Update::Tick(_, span) = tick("shop", &[second("web-1", 1 << 40)]) else {
            panic!("no tick");
        };
        assert_eq!(span, Duration::from_secs(60));
        let broken = LiveSecond {
            profile: vec![1, 2, 3],
            ..second("web-1", 1)
        };
        assert!(matches!(tick("shop", &[broken]), Update::Message(_)));
    }
}
