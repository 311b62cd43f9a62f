//! Gives the functions of two profiles the same names where only their form differs: pure.
//!
//! Profiles differ in what was known: the document root, to which names of scripts are relative,
//! and the function around a closure. PHP 8.4 and later name a closure by it
//! (`{closure:Shop\Cart::total():12}`); before, the sampler finds it, or names the closure by its
//! file (`{closure:/srv/Cart.php:12}`), as older samplers always do.
//! Invariant: no two functions of one profile become one, except closures of one file: all of them
//! count as one if only one of the profiles names them by their functions.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::proto::{Function, Profile};
use crate::timeline::CellTable;
use crate::top_levels::{TopLevel, plain};

const CLOSURE: &str = "{closure:";
/// A partial application, of 8.6 and later, is a closure that no source has:
/// `{closure:pfa:f():12}`.
const APPLICATION: &str = "pfa:";
/// The most parts of one path that a name may have: those with the fewest folders.
const MAX_FOLDERS: usize = 64;
/// The most parts of all paths together, of 100 bytes each. Scripts without room are the same only
/// if their whole paths are.
const MAX_PARTS: usize = 1 << 18;

/// Renames functions of both profiles so that equal ones have the same name and file. Those of the
/// later profile keep theirs, except closures. Returns what has another name now.
pub fn name_alike(before: &mut Profile, after: &mut Profile) -> [Renamed; 2] {
    let old = [&*before, &*after].map(plain_names);
    name_scripts_alike(before, after);
    let forms = [&*before, &*after].map(closure_forms);
    name_closures(before, &forms);
    name_closures(after, &forms);
    let [one, other] = old;
    [Renamed::of(one, before), Renamed::of(other, after)]
}

/// A function's name and its file.
type NameInFile = (String, String);

/// The functions of a profile that have another name or file now.
#[derive(Debug, Default)]
pub struct Renamed(BTreeMap<NameInFile, NameInFile>);

impl Renamed {
    fn of(old: Vec<NameInFile>, profile: &Profile) -> Self {
        let rows = profile.function.iter();
        let new = rows.map(|row| {
            let texts = [row.name, row.filename].map(|it| profile.string(it).to_owned());
            <NameInFile>::from(texts)
        });
        let changed = old.into_iter().zip(new).filter(|(old, new)| old != new);
        Self(changed.collect())
    }

    /// Renames the same functions in the cells of that run.
    pub fn apply(&self, cells: &mut CellTable) {
        for function in &mut cells.functions {
            let name = plain(&function.name, &function.file).into_owned();
            if let Some((name, file)) = self.0.get(&(name, function.file.clone())) {
                (function.name, function.file) = (name.clone(), file.clone());
            }
        }
    }
}

/// The plain names and files of a profile's functions, in the order of its rows.
fn plain_names(profile: &Profile) -> Vec<NameInFile> {
    let rows = profile.function.iter();
    let texts = rows.map(|row| (profile.string(row.name), profile.string(row.filename)));
    texts
        .map(|(name, file)| (plain(name, file).into_owned(), file.to_owned()))
        .collect()
}

/// A function's name by its place, which is the same whatever was known: a closure's file and line,
/// and the [`plain_name`](crate::plain_name) of others.
#[must_use]
pub fn place_name<'a>(name: &'a str, file: &'a str, start_line: i64) -> Cow<'a, str> {
    match ClosureName::of(name) {
        Some(_) => Cow::Owned(format!("{CLOSURE}{file}:{start_line}}}")),
        None => plain(name, file),
    }
}

/// Changes names and files of functions; `None` for one that stays as it is.
fn rename(
    profile: &mut Profile,
    renamed: impl Fn(&Profile, &Function) -> Option<(String, String)>,
) {
    let mut known: BTreeMap<String, i64> = BTreeMap::new();
    for index in 0..profile.function.len() {
        let Some(row) = profile.function.get(index).copied() else {
            return;
        };
        let Some((name, file)) = renamed(profile, &row) else {
            continue;
        };
        let strings = &mut profile.string_table;
        let mut number = |text: String| {
            *known.entry(text).or_insert_with_key(|text| {
                strings.push(text.clone());
                i64::try_from(strings.len() - 1).unwrap_or(0)
            })
        };
        let (name, filename) = (number(name), number(file));
        if let Some(row) = profile.function.get_mut(index) {
            (row.name, row.filename) = (name, filename);
        }
    }
}

/// A top level: how it runs, and its file or the part of it in the name.
type ScriptKey<'a> = (&'static str, &'a str);

/// The top levels of a profile.
#[derive(Default)]
struct ScriptNames<'a> {
    /// The files by the part that a name may have; `None` if several have the same.
    by_part: BTreeMap<ScriptKey<'a>, Option<&'a str>>,
    /// The same of the names that are relative to a document root.
    by_name: BTreeMap<ScriptKey<'a>, Option<&'a str>>,
    /// The names by the whole files.
    names: BTreeMap<ScriptKey<'a>, &'a str>,
}

impl<'a> ScriptNames<'a> {
    fn of(profile: &'a Profile, most: usize) -> Self {
        let mut scripts = ScriptNames::default();
        // Without room, a part that is known can still turn out to be of several files, and one
        // that is not known never is.
        let note = |map: &mut BTreeMap<ScriptKey<'a>, Option<&'a str>>, key, file| {
            let has_room = map.len() < most;
            match map.entry(key) {
                Entry::Occupied(mut known) => {
                    let same = known.get().filter(|known| *known == file);
                    known.insert(same);
                }
                Entry::Vacant(new) if has_room => {
                    new.insert(Some(file));
                }
                Entry::Vacant(_) => (),
            }
        };
        for row in &profile.function {
            let (name, file) = (profile.string(row.name), profile.string(row.filename));
            let Some(top) = TopLevel::of(name, file) else {
                continue;
            };
            scripts.names.insert((top.how(), file), name);
            match top.relative(file) {
                Some(shown) => note(&mut scripts.by_name, (top.how(), shown), file),
                None => parts(file).for_each(|part| {
                    note(&mut scripts.by_part, (top.how(), part), file);
                }),
            }
        }
        scripts
    }

    /// The name and file that an earlier profile's top level has here.
    fn same(&self, top: TopLevel<'_>, file: &str) -> Option<(String, String)> {
        let how = top.how();
        let unique = |map: &BTreeMap<ScriptKey<'_>, Option<&str>>, part: &str| {
            let file = map.get(&(how, part)).copied().flatten();
            file.map(str::to_owned)
        };
        let by_name = || match top.relative(file) {
            Some(shown) => unique(&self.by_name, shown).or_else(|| unique(&self.by_part, shown)),
            None => parts(file).find_map(|part| unique(&self.by_name, part)),
        };
        let is_here = self.names.contains_key(&(how, file));
        let file = if is_here { file.to_owned() } else { by_name()? };
        let name = *self.names.get(&(how, file.as_str()))?;
        Some((name.to_owned(), file))
    }
}

/// What a path is relative to each of its last folders, the longest first.
fn parts(path: &str) -> impl Iterator<Item = &str> {
    let folders = path.match_indices('/').count();
    path.match_indices('/')
        .skip(folders.saturating_sub(MAX_FOLDERS))
        .filter_map(|(at, _)| path.get(at + 1..))
        .filter(|part| !part.is_empty())
}

fn name_scripts_alike(before: &mut Profile, after: &Profile) {
    let scripts = ScriptNames::of(after, MAX_PARTS);
    rename(before, |before, row| {
        let (name, file) = (before.string(row.name), before.string(row.filename));
        let (new_name, new_file) = scripts.same(TopLevel::of(name, file)?, file)?;
        let is_other = name != new_name || file != new_file;
        is_other.then_some((new_name, new_file))
    });
}

/// How the closures of a file are named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ClosureForms {
    by_file: bool,
    by_function: bool,
}

/// A closure's name in its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ClosureName<'a> {
    /// The function around it, without closures in between, or its file.
    around: &'a str,
    /// The line with its colon; empty if the name has none.
    line: &'a str,
}

impl<'a> ClosureName<'a> {
    fn of(name: &'a str) -> Option<Self> {
        let inner = name.strip_prefix(CLOSURE)?.strip_suffix('}')?;
        let end = inner.trim_end_matches(|letter: char| letter.is_ascii_digit());
        let around = match end.strip_suffix(':') {
            Some(around) if end.len() < inner.len() => around,
            _ => inner,
        };
        let line = inner.get(around.len()..)?;
        if around.starts_with(APPLICATION) {
            return None;
        }
        // Each closure in another one is in its function.
        let mut innermost = around;
        while let Some(outer) = Self::without_nesting(innermost) {
            innermost = outer;
        }
        Some(ClosureName {
            around: innermost,
            line,
        })
    }

    fn without_nesting(name: &'a str) -> Option<&'a str> {
        let inner = name.strip_prefix(CLOSURE)?.strip_suffix('}')?;
        let end = inner.trim_end_matches(|letter: char| letter.is_ascii_digit());
        Some(end.strip_suffix(':').unwrap_or(inner))
    }
}

/// The forms of the closures by their files.
fn closure_forms(profile: &Profile) -> BTreeMap<String, ClosureForms> {
    let mut all: BTreeMap<String, ClosureForms> = BTreeMap::new();
    for row in &profile.function {
        let file = profile.string(row.filename);
        if let Some(closure) = ClosureName::of(profile.string(row.name)) {
            let forms = all.entry(file.to_owned()).or_default();
            let is_by_file = closure.around == file;
            forms.by_file |= is_by_file;
            forms.by_function |= !is_by_file;
        }
    }
    all
}

/// Names closures without those around them, and by their file alone where the profiles differ in
/// the form.
fn name_closures(profile: &mut Profile, forms: &[BTreeMap<String, ClosureForms>; 2]) {
    rename(profile, |profile, row| {
        let (name, file) = (profile.string(row.name), profile.string(row.filename));
        let closure = ClosureName::of(name)?;
        let [one, other] = forms.each_ref().map(|forms| forms.get(file));
        let (around, line): (Cow<'_, str>, &str) = match (one, other) {
            (Some(one), Some(other)) if one != other => (file.into(), ""),
            _ => (closure.around.into(), closure.line),
        };
        let new = format!("{CLOSURE}{around}{line}}}");
        (new != name).then(|| (new, file.to_owned()))
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Builder, FrameRef, Settings};

    /// Names and files after both have got the same names.
    #[track_caller]
    fn check(before: &[(&str, &str)], after: &[(&str, &str)], expected: [&[(&str, &str)]; 2]) {
        let mut profiles = [before, after].map(|functions| {
            let mut builder = Builder::new(Settings::default());
            for (name, file) in functions {
                let frame = FrameRef {
                    name,
                    file,
                    ..FrameRef::default()
                };
                builder.add(&[frame], &[1, 1, 1], &[]);
            }
            builder.finish()
        });
        let [one, other] = &mut profiles;
        name_alike(one, other);
        for (profile, expected) in profiles.iter().zip(expected) {
            let rows = profile.function.iter();
            let found: Vec<_> = rows
                .map(|row| (profile.string(row.name), profile.string(row.filename)))
                .collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn scripts_are_the_same_below_each_document_root() {
        let (old, new) = ("/srv/7/public/index.php", "/srv/8/public/index.php");
        let expected = [("{main} index.php", new)];
        for before in ["{main}", "{main} index.php"] {
            check(
                &[(before, old)],
                &[("{main} index.php", new)],
                [&expected, &expected],
            );
        }
        // Only the earlier profile knows the root.
        let whole = [("{main} /srv/8/public/index.php", new)];
        check(&[("{main} index.php", old)], &whole, [&whole, &whole]);
        // No root tells that these are the same.
        let apart = [("{main} /srv/7/public/index.php", old)];
        check(&apart, &whole, [&apart, &whole]);
    }

    #[test]
    fn scripts_that_several_could_be_stay_apart() {
        let sites = [
            ("{main} /srv/a/index.php", "/srv/a/index.php"),
            ("{main} /srv/b/index.php", "/srv/b/index.php"),
        ];
        let other = [("{main} index.php", "/srv/c/index.php")];
        check(&other, &sites, [&other, &sites]);
        check(&sites[..1], &sites, [&sites[..1], &sites]);
    }

    #[test]
    fn script_parts_are_bounded() {
        let deep = format!("/srv{}/index.php", "/x".repeat(8_000));
        assert_eq!(parts(&deep).count(), MAX_FOLDERS);
        assert_eq!(parts(&deep).last(), Some("index.php"));
        let mut builder = Builder::new(Settings::default());
        for name in ["a.php", "b.php", "c.php"] {
            let file = format!("/srv/{name}");
            let main = FrameRef {
                name: &format!("{{main}} {file}"),
                file: &file,
                ..FrameRef::default()
            };
            builder.add(&[main], &[1, 1, 1], &[]);
        }
        let profile = builder.finish();
        let scripts = ScriptNames::of(&profile, 3);
        assert_eq!((scripts.by_part.len(), scripts.names.len()), (3, 3));
    }

    #[test]
    fn script_without_room_leaves_none_unique() {
        let sites = ["/srv/a/index.php", "/srv/b/index.php"];
        let names = sites.map(|file| format!("{{main}} {file}"));
        let mut builder = Builder::new(Settings::default());
        for (name, file) in names.iter().zip(sites) {
            let main = FrameRef {
                name,
                file,
                ..FrameRef::default()
            };
            builder.add(&[main], &[1, 1, 1], &[]);
        }
        let profile = builder.finish();
        // Room for the parts of the first alone.
        let scripts = ScriptNames::of(&profile, 3);
        assert_eq!(scripts.by_part.get(&("{main}", "index.php")), Some(&None));
    }

    #[test]
    fn closures_have_one_form_in_a_file() {
        let file = "/srv/Cart.php";
        let by_function = [
            ("{closure:Cart::total():12}", file),
            ("{closure:{closure:Cart::total():12}:13}", file),
            ("{closure:/srv/Cart.php:40}", file),
        ];
        let flat = [
            by_function[0],
            ("{closure:Cart::total():13}", file),
            by_function[2],
        ];
        let one = [("{closure:/srv/Cart.php}", file)];
        check(&by_function, &by_function, [&flat, &flat]);
        let by_file = [("{closure:/srv/Cart.php:11}", file)];
        check(&by_file, &by_function, [&one, &one.repeat(3)]);
        check(&by_function, &by_file, [&one.repeat(3), &one]);
        check(&by_file, &by_file, [&by_file, &by_file]);
        // A profile without closures of this file says nothing of their form.
        check(&[("f", file)], &by_file, [&[("f", file)], &by_file]);
    }

    #[test]
    fn place_names_are_those_of_any_form() {
        let check = |name: &str, expected: &str| {
            assert_eq!(place_name(name, "/srv/a.php", 12), expected);
        };
        check("{closure:Cart::total():12}", "{closure:/srv/a.php:12}");
        check("{closure:/srv/a.php:12}", "{closure:/srv/a.php:12}");
        check(
            "{closure:pfa:Cart::total():12}",
            "{closure:pfa:Cart::total():12}",
        );
        check("{main} a.php", "{main}");
        check("include a.php", "include /srv/a.php");
        check("Cart::total", "Cart::total");
    }

    #[test]
    fn closures_without_lines_are_joined_too() {
        let file = "Cart.php";
        let nested = [("{closure:{closure:Cart::total()}}", file)];
        let flat = [("{closure:Cart::total()}", file)];
        check(&nested, &flat, [&flat, &flat]);
        let by_file = [("{closure:Cart.php}", file)];
        check(&by_file, &flat, [&by_file, &by_file]);
    }
}
