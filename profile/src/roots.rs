//! Tells the top levels of several scripts apart where a reader has names only.
//!
//! The top level of a script is `{main}`, and its file tells which script it is. Folded stacks,
//! flame graphs and `go tool pprof -top` know names only, so that index.php and cron.php would be
//! one tower: a profile that has several scripts names each as `{main} (FILE)`.
//! Invariant: whoever compares or merges profiles does so by the [`plain`] name and the file,
//! because the other scripts decide the rest.

use std::collections::{BTreeMap, BTreeSet};

use crate::proto::Profile;

/// The top level of a script.
const MAIN: &str = "{main}";

/// The name of a function without its script, which only a profile of several scripts has in the
/// name.
#[must_use]
pub fn plain<'a>(name: &'a str, file: &str) -> &'a str {
    let script = name
        .strip_prefix(MAIN)
        .and_then(|rest| rest.strip_prefix(" ("))
        .and_then(|rest| rest.strip_suffix(')'));
    match script {
        Some(script) if script == file => MAIN,
        _ => name,
    }
}

/// Names each script's top level with its file, if the profile has several. Its system name stays
/// `{main}`.
pub(crate) fn name_apart(profile: &mut Profile) {
    let is_main = |index: i64| profile.string(index) == MAIN;
    let mains = profile.function.iter().filter(|row| is_main(row.name));
    let files: BTreeSet<i64> = mains.map(|row| row.filename).collect();
    if files.len() < 2 {
        return;
    }
    let strings = &mut profile.string_table;
    let names: BTreeMap<i64, i64> = files
        .into_iter()
        .filter_map(|file| {
            let path = strings.get(usize::try_from(file).ok()?)?;
            let name = format!("{MAIN} ({path})");
            strings.push(name);
            Some((file, strings.len() as i64 - 1))
        })
        .collect();
    let main = strings.iter().position(|text| text == MAIN);
    for row in &mut profile.function {
        if usize::try_from(row.name).ok() == main
            && let Some(name) = names.get(&row.filename)
        {
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

    const INDEX: &str = "/srv/index.php";
    const CRON: &str = "/srv/cron.php";

    /// A profile of the function `render` below the top level of each of these scripts.
    fn profile(scripts: &[&str]) -> Profile {
        let mut builder = Builder::new(Settings::default());
        for file in scripts {
            builder.add(&stack(file), &[1, 10, 10], &[]);
        }
        builder.finish()
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

    const APART: [&str; 2] = ["{main} (/srv/cron.php)", "{main} (/srv/index.php)"];

    #[test]
    fn formats_of_names_give_each_script_a_root() {
        let text = |scripts: &[&str]| {
            let view = View::default();
            let folded = Format::Folded
                .write(&profile(scripts), &view, "", None)
                .unwrap();
            String::from_utf8(folded).unwrap()
        };
        assert_eq!(text(&[INDEX]), "{main};render 10\n");
        assert_eq!(
            text(&[INDEX, CRON]),
            "{main} (/srv/cron.php);render 10\n{main} (/srv/index.php);render 10\n"
        );
    }

    #[test]
    fn a_profile_written_by_sample_tells_scripts_apart() {
        let mut writer = Writer::new(Settings::default());
        for file in [INDEX, CRON] {
            writer.add(&stack(file), &[1, 10, 10], &[]);
        }
        let profile = decode(&writer.finish(), &DecodeLimits::default()).unwrap();
        assert_eq!(names(&profile), APART);
        let systems = profile.function.iter().map(|row| row.system_name);
        let mains = systems.filter(|&system| profile.string(system) == MAIN);
        assert_eq!(mains.count(), 2);
    }

    /// One pod has only served one of the scripts, so that its profile does not name it.
    #[test]
    fn a_merge_has_each_script_once_and_apart() {
        let all = [profile(&[INDEX]), profile(&[INDEX, CRON]), profile(&[CRON])];
        let merged = merge(&all).unwrap();
        assert_eq!(names(&merged), APART);
        assert_eq!(merged.function.len(), 4);
        let one = merge(&[profile(&[INDEX]), profile(&[INDEX])]).unwrap();
        assert_eq!(names(&one), [MAIN]);
    }

    #[test]
    fn a_script_is_compared_with_itself_alone() {
        let view = View::default();
        let (one, two) = (profile(&[INDEX]), profile(&[INDEX, CRON]));
        for (before, after) in [(&one, &two), (&two, &one)] {
            let found = diff(before, after, &view).unwrap();
            let mains = found.changes.iter().filter(|it| it.file == INDEX);
            let mut mains = mains.filter(|it| it.name.starts_with(MAIN));
            let main = mains.next().unwrap();
            assert_eq!((main.cum_before, main.cum_after), (10, 10));
            assert!(mains.next().is_none());
        }
    }

    #[test]
    fn only_the_own_file_leaves_a_name() {
        assert_eq!(plain("{main} (/srv/index.php)", INDEX), MAIN);
        for name in ["{main}", "{main} (/srv/cron.php)", "{main} (", "main"] {
            assert_eq!(plain(name, INDEX), name);
        }
    }
}
