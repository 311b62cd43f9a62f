//! What the house promises of its sources, counted: parameters, matches, lengths and names.
//!
//! It reads each Rust file of the workspace as a syntax tree, and other sources by their lines.
//! Each offender is told with file and line.
//!
//! Invariant: `LEFT` only gets shorter, and its numbers smaller.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

mod read;

use read::{LINES_OF_FILE, Offence, RULES, Rule, read};

/// How many are accepted in the whole workspace; of other rules none.
const ACCEPTED: [(Rule, usize); 2] = [(Rule::TupleParameter, 4), (Rule::LongFunction, 11)];

/// What is still left, by rule and crate. A rule that is here accepts nothing else.
const LEFT: [(Rule, &str, usize); 0] = [];

/// Names that several types may have, how many, and why.
const SHARED: [(&str, usize, &str); 3] = [
    ("Error", usize::MAX, "each boundary has its own"),
    ("Arguments", 2, HOST_OR_POD),
    ("Host", 2, HOST_OR_POD),
];
const HOST_OR_POD: &str = "the sampler is built with command/host or with command/pod";

/// Files of data, and why they are long.
const DATA: [(&str, &str); 10] = [
    ("crds/profilecomparison.yaml", GENERATED),
    ("crds/profilerequest.yaml", GENERATED),
    ("crds/profiletrigger.yaml", GENERATED),
    ("crds/src/reason.rs", GENERATED),
    ("charts/phpprof/files/profilecomparison.yaml", GENERATED),
    ("charts/phpprof/files/profilerequest.yaml", GENERATED),
    ("charts/phpprof/files/profiletrigger.yaml", GENERATED),
    ("contract/reasons.yaml", "a row for each reason"),
    (
        "profiler-image/zend/src/layouts/rows.rs",
        "a row for each version of PHP",
    ),
    (
        "profiler-image/tests/standing/scenes.rs",
        "a row for each recorded scene, with its script",
    ),
];
const GENERATED: &str = "`make generate` writes it";

/// Folders of the project's own without sources of ours; folders of modules may have these names.
const SKIPPED: [&str; 2] = [".git", "target"];
/// How sources end. Files without an ending are scripts.
const SOURCES: [&str; 10] = [
    "", "rs", "js", "css", "html", "sh", "py", "go", "php", "yaml",
];

/// Files and lines where types of a name are.
type Places = BTreeMap<String, Vec<(PathBuf, usize)>>;

/// The sources below a folder, by their paths from the project's folder.
fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    let root = phpprof_documents::root();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        let path = entry.path();
        let kind = entry.file_type().expect("a kind of file");
        let name = entry.file_name();
        let end = path.extension().unwrap_or_default();
        let is_skipped = folder == root && SKIPPED.iter().any(|skipped| name == *skipped);
        if kind.is_dir() && !is_skipped {
            sources(&path, into);
        } else if kind.is_file() && SOURCES.iter().any(|source| end == *source) {
            into.push(path.strip_prefix(&root).expect("below the root").to_owned());
        }
    }
}

/// The members of the workspace, by their folders.
fn members() -> Vec<String> {
    let manifest = phpprof_documents::root().join("Cargo.toml");
    let manifest = std::fs::read_to_string(manifest).expect("the workspace's manifest");
    let members = manifest.split("members = [").nth(1).expect("members");
    let members = members.split(']').next().unwrap_or_default().split(',');
    let mut members: Vec<_> = members
        .map(|member| member.trim().trim_matches('"').to_owned())
        .collect();
    // A crate in another crate's folder comes before that one.
    members.sort_by_key(|member| std::cmp::Reverse(member.len()));
    members
}

/// All that breaks a rule in the sources.
fn offences() -> Vec<Offence> {
    let mut files = Vec::new();
    sources(&phpprof_documents::root(), &mut files);
    assert!(files.len() > 900, "{}", files.len());
    let mut found = Vec::new();
    let (mut types, mut vague) = (Places::new(), Places::new());
    for file in &files {
        let Ok(code) = std::fs::read_to_string(phpprof_documents::root().join(file)) else {
            continue;
        };
        let lines = code.lines().count();
        if lines > LINES_OF_FILE && DATA.iter().all(|(data, _)| file != Path::new(data)) {
            let what = format!("{lines} lines");
            found.push(Offence {
                rule: Rule::LongFile,
                file: file.clone(),
                line: lines,
                what,
            });
        }
        if file.extension().is_some_and(|end| end == "rs") {
            let reader = read(file, &code);
            found.extend(reader.found);
            for (name, line) in reader.types {
                types.entry(name).or_default().push((file.clone(), line));
            }
            for (name, line) in reader.vague {
                vague.entry(name).or_default().push((file.clone(), line));
            }
        }
    }
    types.retain(|name, places| {
        let shared = SHARED.iter().find(|(shared, ..)| shared == name);
        places.len() > shared.map_or(1, |(_, number, _)| *number)
    });
    vague.retain(|_, places| places.len() > 1);
    found.extend(shared(Rule::SharedTypeName, types));
    found.extend(shared(Rule::VagueTypeName, vague));
    found
}

/// An offence for each place of each name.
fn shared(rule: Rule, names: Places) -> impl Iterator<Item = Offence> {
    names.into_iter().flat_map(move |(name, places)| {
        places.into_iter().map(move |(file, line)| Offence {
            rule,
            file,
            line,
            what: name.clone(),
        })
    })
}

#[test]
fn sources_keep_the_rules() {
    let members = members();
    let mut by: BTreeMap<(Rule, &str), Vec<Offence>> = BTreeMap::new();
    for offence in offences() {
        let member = members
            .iter()
            .find(|member| offence.file.starts_with(member));
        let member = member.map_or("", |member| member.as_str());
        by.entry((offence.rule, member)).or_default().push(offence);
    }
    let mut broken = Vec::new();
    for rule in RULES {
        let of_rule = by.iter().filter(|((of, _), _)| *of == rule);
        let is_left = LEFT.iter().any(|(left, ..)| *left == rule);
        let accepted = ACCEPTED.iter().find(|(accepted, _)| *accepted == rule);
        let accepted = accepted.map_or(0, |(_, number)| *number);
        let total: usize = of_rule.clone().map(|(_, found)| found.len()).sum();
        for ((_, member), found) in of_rule {
            let left = LEFT
                .iter()
                .find(|(left, of, _)| *left == rule && of == member);
            let is_kept = match left {
                Some((.., left)) => found.len() <= *left,
                None => !is_left && total <= accepted,
            };
            if !is_kept {
                broken.push(format!("{rule:?} in {member}: {}", found.len()));
                broken.extend(found.iter().map(|offence| format!("  {offence}")));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
