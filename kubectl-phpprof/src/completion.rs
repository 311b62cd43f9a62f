//! Completion: of verbs, flags and values from the definition of the command line, of names from
//! the cluster.
//!
//! kubectl runs `kubectl_complete-phpprof` with the words so far, the last one incomplete. It
//! expects one line for each proposal, and a last line `:4` (no files) or `:0` (files too).
//!
//! Invariant: it ends within two seconds, never prints an error, and changes nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::{Arg, Command, CommandFactory, Parser};
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use phpprof_crds::ProfileTarget;
use phpprof_decide::pod::view;

use crate::cli::{Cli, Shell};
use crate::connect::Cluster;
use crate::doctor::observe;
use crate::global::Global;
use crate::output::FORMS;
use crate::stored::StoredProfiles;
use crate::target;

const PATIENCE: Duration = Duration::from_secs(2);
/// The time for names of stored profiles, which the operator reads from its store. Completion of
/// requests' names does not wait longer for them.
const STORED_PATIENCE: Duration = Duration::from_secs(1);
/// The most names of one kind.
const MOST: usize = 500;

/// The script with which a shell, or kubectl, calls this program.
pub fn script(shell: Shell) -> &'static str {
    match shell {
        Shell::Kubectl => "#!/bin/sh\nexec kubectl-phpprof __complete \"$@\"\n",
        Shell::Bash => {
            "_kubectl_phpprof() {\n  local IFS=$'\\n'\n  COMPREPLY=($(kubectl-phpprof __complete \"${COMP_WORDS[@]:1:COMP_CWORD}\" 2>/dev/null | sed -e '/^:/d' -e 's/\\t.*//'))\n}\n\
             complete -o default -F _kubectl_phpprof kubectl-phpprof\n"
        }
        Shell::Zsh => {
            "#compdef kubectl-phpprof\n_kubectl_phpprof() {\n  local -a found\n  found=(${(f)\"$(kubectl-phpprof __complete \"${words[@]:1}\" 2>/dev/null | sed -e '/^:/d' -e 's/\\t.*//')\"})\n  compadd -a found\n}\n\
             compdef _kubectl_phpprof kubectl-phpprof\n"
        }
        Shell::Fish => {
            "complete -c kubectl-phpprof -f -a '(set -l words (commandline -opc) (commandline -ct); kubectl-phpprof __complete $words[2..-1] 2>/dev/null | string match -rv \"^:\")'\n"
        }
    }
}

/// What can come next, decided by the words alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextWords {
    /// These words, each with a description.
    Words(Vec<(String, String)>),
    /// A request's name. If the verb accepts them, also files and names of deleted requests.
    Requests {
        files: bool,
        stored: bool,
    },
    /// TYPE/NAME.
    Targets,
    /// A container of this TYPE/NAME.
    Containers(String),
    Schedules,
    Namespaces,
    Files,
    Nothing,
}

/// Decides how the last word can be completed.
pub fn next(words: &[String]) -> NextWords {
    let mut command = Cli::command();
    command.build();
    let (last, before) = match words.split_last() {
        Some((last, before)) => (last.as_str(), before),
        None => ("", [].as_slice()),
    };
    let verb = verb(&command, before);
    let scope = verb.unwrap_or(&command);
    if let Some(flag) = before
        .last()
        .and_then(|word| flag(scope, word))
        .filter(|flag| takes_value(flag))
    {
        let target = before.iter().find(|word| word.contains('/'));
        return match (flag.get_id().as_str(), target) {
            ("container", Some(target)) => NextWords::Containers(target.clone()),
            _ => value(flag),
        };
    }
    if last.starts_with('-') {
        return NextWords::Words(flags(scope));
    }
    let Some(verb) = verb.filter(|verb| !verb.has_subcommands()) else {
        let verbs = scope.get_subcommands();
        let shown = verbs.filter(|verb| !verb.is_hide_set() && verb.get_name() != "help");
        return NextWords::Words(
            shown
                .map(|verb| (verb.get_name().to_owned(), about(verb.get_about())))
                .collect(),
        );
    };
    let of_schedules = verb
        .get_bin_name()
        .is_some_and(|name| name.contains(" schedule "));
    match verb.get_name() {
        "create" => NextWords::Targets,
        "suspend" | "resume" | "run" | "delete" if of_schedules => NextWords::Schedules,
        "run" | "doctor" | "dump" | "heap" => NextWords::Targets,
        "describe" | "cancel" | "delete" | "logs" => NextWords::Requests {
            files: false,
            stored: false,
        },
        "get" => NextWords::Requests {
            files: false,
            stored: true,
        },
        "top" | "findings" | "requests" | "flame" | "diff" | "download" => NextWords::Requests {
            files: true,
            stored: true,
        },
        "explain" => NextWords::Words(
            crate::explain::reasons()
                .into_iter()
                .chain(crate::explain::findings().map(|(id, _)| (id.to_owned(), String::new())))
                .collect(),
        ),
        "completion" => NextWords::Words(
            ["kubectl", "bash", "zsh", "fish"]
                .map(|shell| (shell.to_owned(), String::new()))
                .to_vec(),
        ),
        "mcp" => NextWords::Files,
        _ => NextWords::Nothing,
    }
}

/// The verb that the words name so far. It may be one with subcommands.
fn verb<'c>(command: &'c Command, words: &[String]) -> Option<&'c Command> {
    let mut found = None;
    let mut skip = false;
    for word in words {
        if std::mem::take(&mut skip) {
            continue;
        }
        let scope = found.unwrap_or(command);
        if word.starts_with('-') {
            skip = flag(scope, word).is_some_and(takes_value) && !word.contains('=');
            continue;
        }
        match scope.find_subcommand(word) {
            Some(below) if below.has_subcommands() => found = Some(below),
            Some(below) => return Some(below),
            None => return found,
        }
    }
    found
}

fn flag<'c>(command: &'c Command, word: &str) -> Option<&'c Arg> {
    command.get_arguments().find(|arg| {
        let long = arg
            .get_long()
            .is_some_and(|long| word.strip_prefix("--") == Some(long));
        long || arg
            .get_short()
            .is_some_and(|short| word == format!("-{short}"))
    })
}

fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values() && !arg.is_require_equals_set()
}

fn value(flag: &Arg) -> NextWords {
    let possible = flag.get_possible_values();
    match flag.get_id().as_str() {
        "namespace" | "operator_namespace" => NextWords::Namespaces,
        "kubeconfig" | "filename" => NextWords::Files,
        "baseline" => NextWords::Requests {
            files: true,
            stored: true,
        },
        "output" if is_of_lists(flag) => {
            // The help names the forms that this verb has.
            let help = about(flag.get_help());
            let forms = FORMS.iter().filter(|form| help.contains(*form));
            NextWords::Words(
                forms
                    .map(|form| ((*form).to_owned(), String::new()))
                    .collect(),
            )
        }
        "output" if possible.is_empty() => NextWords::Files,
        _ if possible.is_empty() => NextWords::Nothing,
        _ => NextWords::Words(
            possible
                .iter()
                .map(|value| (value.get_name().to_owned(), about(value.get_help())))
                .collect(),
        ),
    }
}

/// Whether a flag gives the form of a list. Its parser has no list of values, because a form can be
/// a template.
fn is_of_lists(flag: &Arg) -> bool {
    let names = flag.get_value_names().unwrap_or_default();
    names.iter().any(|name| name.as_str() == "FORM") && flag.get_possible_values().is_empty()
}

fn flags(command: &Command) -> Vec<(String, String)> {
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    shown
        .filter_map(|arg| Some((format!("--{}", arg.get_long()?), about(arg.get_help()))))
        .collect()
}

fn about(text: Option<&clap::builder::StyledStr>) -> String {
    text.map(ToString::to_string)
        .unwrap_or_default()
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// The lines for kubectl.
pub async fn complete(words: &[String]) -> String {
    let last = words.last().map_or("", String::as_str);
    let next = next(words);
    let files = matches!(
        next,
        NextWords::Files | NextWords::Requests { files: true, .. }
    );
    let global = global(words);
    let found = tokio::time::timeout(PATIENCE, proposals(next, &global, last))
        .await
        .unwrap_or_default();
    let mut text = String::new();
    for (word, meaning) in found.iter().filter(|(word, _)| word.starts_with(last)) {
        text.push_str(word);
        if !meaning.is_empty() {
            text.push_str(&format!("\t{meaning}"));
        }
        text.push('\n');
    }
    text + if files { ":0\n" } else { ":4\n" }
}

/// The flags that select a cluster, from a line that may be incomplete.
fn global(words: &[String]) -> Global {
    let mut line = vec!["kubectl-phpprof".to_owned(), "version".to_owned()];
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let name = word.split('=').next().unwrap_or(word);
        if [
            "-n",
            "--namespace",
            "--context",
            "--kubeconfig",
            "--cluster",
            "--user",
            "--as",
            "--as-group",
            "--request-timeout",
        ]
        .contains(&name)
        {
            line.push(word.clone());
            if !word.contains('=') {
                line.extend(words.next().cloned());
            }
        }
    }
    Cli::try_parse_from(line)
        .map(|cli| cli.global)
        .unwrap_or_default()
}

async fn proposals(next: NextWords, global: &Global, last: &str) -> Vec<(String, String)> {
    match next {
        NextWords::Words(words) => return words,
        NextWords::Files | NextWords::Nothing => return Vec::new(),
        NextWords::Requests { .. }
        | NextWords::Targets
        | NextWords::Containers(_)
        | NextWords::Schedules
        | NextWords::Namespaces => {}
    }
    if next == NextWords::Targets && !last.contains('/') {
        return target::short_names()
            .map(|(short, kind)| (format!("{short}/"), kind.to_owned()))
            .collect();
    }
    let Ok(cluster) = Cluster::of(global).await else {
        return Vec::new();
    };
    if next == NextWords::Schedules {
        return crate::schedule::names(&cluster).await;
    }
    if let NextWords::Containers(target) = &next {
        return match target::parse(target) {
            Ok(target) => containers(&cluster, &target).await,
            Err(_) => Vec::new(),
        };
    }
    let api = match &next {
        NextWords::Requests { .. } => cluster.requests(),
        NextWords::Namespaces => Api::all_with(
            cluster.client.clone(),
            &ApiResource::from_gvk_with_plural(
                &GroupVersionKind::gvk("", "v1", "Namespace"),
                "namespaces",
            ),
        ),
        _ => match of_kind(&cluster, last) {
            Some(api) => api,
            None => return Vec::new(),
        },
    };
    let prefix = if next == NextWords::Targets {
        last.split_once('/')
            .map_or_else(String::new, |(kind, _)| format!("{kind}/"))
    } else {
        String::new()
    };
    let (listed, stored) = tokio::join!(listed(&api, &prefix), stored(&cluster, &next, last));
    let is_new = |(name, _): &(String, String)| !listed.iter().any(|(listed, _)| listed == name);
    let stored: Vec<_> = stored.into_iter().filter(is_new).collect();
    listed.into_iter().chain(stored).collect()
}

/// The containers of the target's pods, native sidecars among them.
async fn containers(cluster: &Cluster, target: &ProfileTarget) -> Vec<(String, String)> {
    let pods = observe::pods(cluster, target).await.unwrap_or_default();
    let pods = pods.iter().take(MOST).map(view);
    let names = pods.flat_map(|pod| pod.containers.into_iter().map(|it| it.name));
    let names: BTreeSet<String> = names.collect();
    let names = names.into_iter().map(|name| (name, String::new()));
    names.take(MOST).collect()
}

async fn listed(api: &Api<DynamicObject>, prefix: &str) -> Vec<(String, String)> {
    let params = ListParams::default().limit(MOST as u32);
    let listed = api.list_metadata(&params).await;
    let items = listed.map(|listed| listed.items).unwrap_or_default();
    items
        .iter()
        .map(|item| (format!("{prefix}{}", item.name_any()), String::new()))
        .collect()
}

/// Stored names, if the verb accepts them and the operator answers in time.
async fn stored(cluster: &Cluster, next: &NextWords, last: &str) -> Vec<(String, String)> {
    if !matches!(next, NextWords::Requests { stored: true, .. }) {
        return Vec::new();
    }
    match tokio::time::timeout(STORED_PATIENCE, StoredProfiles::of(cluster)).await {
        Ok(Ok(stored)) => stored.proposals(last, MOST, Timestamp::now()),
        Ok(Err(_)) | Err(_) => Vec::new(),
    }
}

fn of_kind(cluster: &Cluster, text: &str) -> Option<Api<DynamicObject>> {
    let (kind, _) = text.split_once('/')?;
    let target = target::parse(&format!("{kind}/x")).ok()?;
    let (kind, plural) = match &target.workload_ref {
        None => (GroupVersionKind::gvk("", "v1", "Pod"), "pods"),
        Some(workload) => {
            let (group, version) = workload
                .api_version
                .split_once('/')
                .unwrap_or(("", &workload.api_version));
            (
                GroupVersionKind::gvk(group, version, &workload.kind),
                target::plural(workload)?,
            )
        }
    };
    let resource = ApiResource::from_gvk_with_plural(&kind, plural);
    Some(Api::namespaced_with(
        cluster.client.clone(),
        &cluster.namespace,
        &resource,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> NextWords {
        next(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    fn words(line: &str) -> Vec<String> {
        match of(line) {
            NextWords::Words(words) => words.into_iter().map(|(word, _)| word).collect(),
            other => vec![format!("{other:?}")],
        }
    }

    #[test]
    fn verbs_flags_and_values_are_proposed() {
        assert!(words("").contains(&"run".to_owned()));
        assert!(!words("").contains(&"__complete".to_owned()));
        assert!(words("run --").contains(&"--samples-per-second".to_owned()));
        assert!(words("-n shop list --").contains(&"--all-namespaces".to_owned()));
        assert_eq!(words("list -o "), FORMS[1..]);
        assert_eq!(words("dump deploy/web -o ")[..3], ["text", "json", "yaml"]);
        assert!(!words("requests web -o ").contains(&"name".to_owned()));
        assert!(words("explain ").contains(&"UserUnknown".to_owned()));
        assert_eq!(
            words("schedule "),
            ["create", "list", "suspend", "resume", "run", "delete"]
        );
    }

    #[test]
    fn names_are_asked_for_where_names_stand() {
        assert_eq!(of("run "), NextWords::Targets);
        assert_eq!(of("-n shop doctor deploy/"), NextWords::Targets);
        assert_eq!(of("heap deploy/"), NextWords::Targets);
        let earlier = NextWords::Requests {
            files: true,
            stored: true,
        };
        assert_eq!(of("heap deploy/web --baseline we"), earlier);
        for (line, files, stored) in [
            ("describe ", false, false),
            ("get ", false, true),
            ("diff a ", true, true),
            ("requests ", true, true),
        ] {
            assert_eq!(of(line), NextWords::Requests { files, stored }, "{line}");
        }
        assert_eq!(of("schedule create web "), NextWords::Targets);
        assert_eq!(of("schedule run "), NextWords::Schedules);
        assert_eq!(of("run -n "), NextWords::Namespaces);
        let containers = NextWords::Containers("deploy/web".to_owned());
        assert_eq!(of("run deploy/web -d 5s -c "), containers);
        assert_eq!(of("doctor deploy/web --container ph"), containers);
        assert_eq!(of("run -c "), NextWords::Nothing);
        assert_eq!(of("flame x -o "), NextWords::Files);
        assert_eq!(of("run -d "), NextWords::Nothing);
    }
}
