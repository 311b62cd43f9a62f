//! Names the top level of a file by how it runs and by its file, for readers that know names only.
//!
//! Folded stacks, flame graphs and `go tool pprof` know names only: with the same name, index.php
//! and cron.php would be one tower. So a profile names the main script `{main} FILE`, and a file
//! that another one includes `include FILE`. FILE is relative to the document root, where one that
//! contains it is known; then two releases in different folders have the same names.
//! Invariant: the file of a function stays whole. Whoever compares or merges profiles does so by
//! the [`plain`] name and the file, because the name depends on what is known of document roots.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use crate::bounds;
use crate::proto::Profile;

/// The main script.
const MAIN: &str = "{main}";
/// How another top level begins; its file follows.
const OTHERS: [&str; 2] = ["include ", "eval "];
/// The most document roots of a profile; names below further ones have the whole path.
const MAX_ROOTS: usize = 64;
/// The longest of them: `PATH_MAX` of Linux.
const MAX_ROOT: usize = 4096;

/// The top level of a file, as a name has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TopLevel<'a> {
    /// `{main}`, `include `, `eval `.
    how: &'static str,
    /// The file, or the part of it that is in the name.
    shown: &'a str,
}

impl<'a> TopLevel<'a> {
    /// The top level with this name; `None` for a function, and for a file that is not this one.
    pub(crate) fn of(name: &'a str, file: &'a str) -> Option<Self> {
        let main = || {
            let rest = name.strip_prefix(MAIN)?;
            let in_brackets = || rest.strip_prefix(" (")?.strip_suffix(')');
            let shown = match rest {
                "" => file,
                // The names of phpprof 0.1 in a profile of several scripts.
                _ if in_brackets() == Some(file) => file,
                _ => rest.strip_prefix(' ')?,
            };
            Some(TopLevel { how: MAIN, shown })
        };
        let other = || {
            let mut others = OTHERS.iter();
            others.find_map(|how| {
                let shown = name.strip_prefix(how)?;
                Some(TopLevel { how, shown })
            })
        };
        let found = main().or_else(other)?;
        (found.shown == file || found.root(file).is_some()).then_some(found)
    }

    /// The document root of this file to which its name is relative.
    fn root(&self, file: &'a str) -> Option<&'a str> {
        let root = file.strip_suffix(self.shown)?.strip_suffix('/')?;
        (root.starts_with('/') && !self.shown.is_empty()).then_some(root)
    }

    /// What it is without its file.
    pub(crate) fn how(&self) -> &'static str {
        self.how
    }

    /// The part of this file that its name has, if it is relative to a document root.
    pub(crate) fn relative(&self, file: &str) -> Option<&'a str> {
        (self.shown != file).then_some(self.shown)
    }

    /// The name for this part of its file.
    fn named(&self, shown: &str) -> String {
        let space = if self.how == MAIN { " " } else { "" };
        [self.how, space, shown].concat()
    }
}

/// The most that the name of a top level can take when a profile is finished.
pub(crate) fn name_bytes(name: &str, file: &str) -> usize {
    TopLevel::of(name, file).map_or(0, |top| top.named(file).len() + size_of::<String>())
}

/// The name of a function by which it is compared: `{main}` for a main script, and the whole path
/// of another file's top level.
#[must_use]
pub fn plain<'a>(name: &'a str, file: &'a str) -> Cow<'a, str> {
    match TopLevel::of(name, file) {
        Some(TopLevel { how: MAIN, .. }) => Cow::Borrowed(MAIN),
        Some(top) if top.shown != file => Cow::Owned(top.named(file)),
        _ => Cow::Borrowed(name),
    }
}

/// The name of a file's top level once the file has this other path; `None` for a function.
#[must_use]
pub fn moved_name(name: &str, file: &str, to: &str) -> Option<String> {
    let top = TopLevel::of(name, file).filter(|_| !file.is_empty());
    top.map(|top| top.named(to))
}

/// The name of a function with the whole path of its file, if it is a top level.
#[cfg(feature = "live")]
pub(crate) fn whole<'a>(name: &'a str, file: &'a str) -> Cow<'a, str> {
    match TopLevel::of(name, file).filter(|_| !file.is_empty()) {
        Some(top) => Cow::Owned(top.named(file)),
        None => Cow::Borrowed(name),
    }
}

/// The document roots that are known for a profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DocumentRoots(BTreeSet<String>);

impl DocumentRoots {
    /// Notes a document root, if there is room.
    pub(crate) fn add(&mut self, root: &str) {
        let root = root.trim_end_matches('/');
        let has_room = self.0.len() < MAX_ROOTS && root.len() <= MAX_ROOT;
        if root.starts_with('/') && has_room && !self.0.contains(root) {
            self.0.insert(root.to_owned());
        }
    }

    /// Notes the root to which the name of this file's top level is relative.
    pub(crate) fn add_of(&mut self, name: &str, file: &str) {
        let root = TopLevel::of(name, file).and_then(|top| top.root(file));
        root.into_iter().for_each(|root| self.add(root));
    }

    /// The file as a name has it: relative to the innermost root that contains it.
    fn shown<'f>(&self, file: &'f str) -> &'f str {
        let below = self.0.iter().filter_map(|root| {
            let rest = file.strip_prefix(root.as_str())?.strip_prefix('/')?;
            (!rest.is_empty()).then_some(rest)
        });
        below.min_by_key(|rest| rest.len()).unwrap_or(file)
    }
}

/// Gives each top level its file's name. System names stay as they are.
pub(crate) fn name_files(profile: &mut Profile, roots: &DocumentRoots) {
    let mut tops: BTreeMap<(i64, i64), (TopLevel<'_>, &str)> = BTreeMap::new();
    // Two sites may both have an index.php.
    let mut of_part: BTreeMap<&str, &str> = BTreeMap::new();
    let mut ambiguous: BTreeSet<&str> = BTreeSet::new();
    for row in &profile.function {
        let (name, file) = (profile.string(row.name), profile.string(row.filename));
        let Some(top) = TopLevel::of(name, file).filter(|_| !file.is_empty()) else {
            continue;
        };
        let shown = roots.shown(file);
        if *of_part.entry(shown).or_insert(file) != file {
            ambiguous.insert(shown);
        }
        tops.insert((row.name, row.filename), (top, file));
    }
    let mut names: BTreeMap<(i64, i64), String> = BTreeMap::new();
    for ((row, of_file), (top, file)) in tops {
        let shown = roots.shown(file);
        let is_whole = ambiguous.contains(shown);
        let name = top.named(if is_whole { file } else { shown });
        if name != profile.string(row) {
            names.insert((row, of_file), name);
        }
    }
    let strings = &mut profile.string_table;
    let mut numbers: BTreeMap<(i64, i64), i64> = BTreeMap::new();
    for (row, name) in names {
        strings.push(bounds::text(&name).into_owned());
        numbers.insert(row, strings.len() as i64 - 1);
    }
    for row in &mut profile.function {
        if let Some(name) = numbers.get(&(row.name, row.filename)) {
            row.name = *name;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Builder, DecodeLimits, Format, FrameRef, Settings, View, Writer, decode, diff, merge, top,
    };

    const INDEX: &str = "/srv/app/public/index.php";
    const CRON: &str = "/srv/app/cron.php";
    const PART: &str = "/srv/app/public/part.php";

    fn below(root: &str) -> Settings {
        Settings {
            document_roots: vec![root.to_owned()],
            ..Settings::default()
        }
    }

    /// A profile of the function `render` below the top level of each of these scripts.
    fn profile_with(settings: Settings, scripts: &[&str]) -> Profile {
        let mut builder = Builder::new(settings);
        for file in scripts {
            builder.add(&stack(file), &[1, 10, 10], &[]);
        }
        builder.finish()
    }

    fn profile(scripts: &[&str]) -> Profile {
        profile_with(Settings::default(), scripts)
    }

    fn stack(file: &str) -> [FrameRef<'_>; 2] {
        ["render", MAIN].map(|name| FrameRef {
            name,
            file,
            start_line: 1,
            line: 1,
        })
    }

    fn names(profile: &Profile) -> Vec<String> {
        let rows = top(profile, "samples").into_iter().map(|row| row.name);
        let mut names: Vec<_> = rows.filter(|name| name != "render").collect();
        names.sort();
        names
    }

    #[test]
    fn every_format_names_the_main_script() {
        let view = View::default();
        let profile = profile(&[INDEX, CRON]);
        let folded = Format::Folded.write(&profile, &view, "", None).unwrap();
        assert_eq!(
            String::from_utf8(folded).unwrap(),
            "{main} /srv/app/cron.php;render 10\n{main} /srv/app/public/index.php;render 10\n"
        );
        for format in [Format::Speedscope, Format::Callgrind, Format::Svg] {
            let written = format.write(&profile, &view, "", None).unwrap();
            let written = String::from_utf8(written).unwrap().replace("\\/", "/");
            assert!(
                written.contains("{main} /srv/app/public/index.php"),
                "{format:?}"
            );
        }
    }

    #[test]
    fn names_are_relative_to_the_document_root() {
        let mut builder = Builder::new(below("/srv/app/public/"));
        for (name, file) in [
            (MAIN, INDEX),
            (MAIN, CRON),
            ("include /srv/app/public/part.php", PART),
            ("include /srv/app/src/a.php", "/srv/app/src/a.php"),
            ("eval", "/srv/app/public/e.php"),
        ] {
            let frame = FrameRef {
                name,
                file,
                ..FrameRef::default()
            };
            builder.add(&[frame], &[1, 10, 10], &[]);
        }
        let expected = [
            "eval",
            "include /srv/app/src/a.php",
            "include part.php",
            "{main} /srv/app/cron.php",
            "{main} index.php",
        ];
        let profile = builder.finish();
        assert_eq!(names(&profile), expected);
        assert!(
            profile
                .function
                .iter()
                .any(|row| profile.string(row.filename) == INDEX)
        );
        // Merged with what does not know the root, each has one name.
        let merged = merge(&[profile_with(Settings::default(), &[INDEX, CRON]), profile]).unwrap();
        assert_eq!(names(&merged), expected);
    }

    #[test]
    fn scripts_of_two_sites_have_their_whole_paths() {
        let roots = Settings {
            document_roots: ["/srv/a", "/srv/b"].map(str::to_owned).to_vec(),
            ..Settings::default()
        };
        let profile = profile_with(
            roots,
            &["/srv/a/index.php", "/srv/b/index.php", "/srv/b/x.php"],
        );
        let expected = [
            "{main} /srv/a/index.php",
            "{main} /srv/b/index.php",
            "{main} x.php",
        ];
        assert_eq!(names(&profile), expected);
    }

    #[test]
    fn a_profile_written_by_sample_names_scripts() {
        let mut writer = Writer::new(Settings::default());
        for file in [INDEX, CRON] {
            writer.add(&stack(file), &[1, 10, 10], &[]);
        }
        let profile = decode(&writer.finish(), &DecodeLimits::default()).unwrap();
        let expected = [
            "{main} /srv/app/cron.php",
            "{main} /srv/app/public/index.php",
        ];
        assert_eq!(names(&profile), expected);
        let systems = profile.function.iter().map(|row| row.system_name);
        let mains = systems.filter(|&system| profile.string(system) == MAIN);
        assert_eq!(mains.count(), 2);
    }

    /// Profiles of phpprof 0.1 name a script only where they have several.
    #[test]
    fn merges_with_older_profiles_have_each_script_once() {
        let mut old = profile(&[INDEX]);
        for row in &mut old.function {
            row.name = row.system_name;
        }
        let mut in_brackets = profile(&[INDEX, CRON]);
        for text in &mut in_brackets.string_table {
            if let Some(file) = text.strip_prefix("{main} ") {
                *text = format!("{{main}} ({file})");
            }
        }
        let merged = merge(&[old.clone(), in_brackets, profile(&[CRON])]).unwrap();
        let expected = [
            "{main} /srv/app/cron.php",
            "{main} /srv/app/public/index.php",
        ];
        assert_eq!(names(&merged), expected);
        assert_eq!(merged.function.len(), 4);
        let found = diff(&old, &profile(&[INDEX, CRON]), &View::default()).unwrap();
        let mut mains = found.changes.iter().filter(|it| it.file == INDEX);
        let main = mains.find(|it| it.name.starts_with(MAIN)).unwrap();
        assert_eq!((main.cum_before, main.cum_after), (10, 10));
    }

    #[test]
    fn plain_has_the_whole_file_or_none() {
        for name in [
            "{main}",
            "{main} index.php",
            "{main} public/index.php",
            "{main} /srv/app/public/index.php",
            "{main} (/srv/app/public/index.php)",
        ] {
            assert_eq!(plain(name, INDEX), MAIN, "{name}");
        }
        for name in ["{main} cron.php", "{main} (", "{main} dex.php", "main"] {
            assert_eq!(plain(name, INDEX), name);
        }
        let whole = "include /srv/app/public/part.php";
        for name in [whole, "include part.php"] {
            assert_eq!(plain(name, PART), whole);
        }
        let moved = |name| moved_name(name, INDEX, "public/index.php");
        for name in [
            "{main}",
            "{main} index.php",
            "{main} /srv/app/public/index.php",
        ] {
            assert_eq!(moved(name).as_deref(), Some("{main} public/index.php"));
        }
        assert_eq!(moved("Cart::total"), None);
    }
}
