//! Makes the profiles of two releases comparable: functions whose name changed by an edit or
//! another folder get the same name again.
//!
//! It is pure. It changes names and files of functions, and no value.
//!
//! Invariant: a name without a given prefix and without a closure stays unchanged.

use crate::proto::Profile;
use crate::timeline::CellTable;
use crate::top_levels::moved_name;

/// A text that is not a folder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a folder that begins with /, for instance /srv/releases/20261101 or /srv/releases/*"
)]
pub struct PrefixError(String);

/// The beginning of paths, as folders. `*` matches any one folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix(Vec<String>);

impl Prefix {
    /// Reads a folder, for instance `/srv/releases/*`.
    ///
    /// # Errors
    /// It does not begin with a slash, or names no folder.
    pub fn parse(text: &str) -> Result<Self, PrefixError> {
        let folders: Vec<String> = text
            .split('/')
            .filter(|folder| !folder.is_empty())
            .map(str::to_owned)
            .collect();
        if text.starts_with('/') && !folders.is_empty() {
            Ok(Prefix(folders))
        } else {
            Err(PrefixError(text.to_owned()))
        }
    }

    /// The path without the prefix.
    fn trimmed<'t>(&self, path: &'t str) -> Option<&'t str> {
        let mut rest = path.strip_prefix('/')?;
        for wanted in &self.0 {
            let (folder, behind) = rest.split_once('/')?;
            if wanted != "*" && wanted != folder {
                return None;
            }
            rest = behind;
        }
        Some(rest)
    }
}

/// The profile without those prefixes, and without the lines in the names of closures.
#[must_use]
pub(crate) fn normalized(mut profile: Profile, prefixes: &[Prefix]) -> Profile {
    for at in 0..profile.function.len() {
        let Some(function) = profile.function.get(at).copied() else {
            break;
        };
        let whole = profile.string(function.filename);
        let filename = file(whole, prefixes).to_owned();
        let [name, system_name] = [function.name, function.system_name].map(|name| {
            let name = profile.string(name);
            let moved = (filename != whole).then(|| moved_name(name, whole, &filename));
            moved.flatten().unwrap_or_else(|| closures(name, prefixes))
        });
        let (name, system_name, filename) = (
            number(&mut profile, function.name, name),
            number(&mut profile, function.system_name, system_name),
            number(&mut profile, function.filename, filename),
        );
        if let Some(function) = profile.function.get_mut(at) {
            (function.name, function.system_name, function.filename) =
                (name, system_name, filename);
        }
    }
    profile
}

/// The same for the functions of cells.
#[must_use]
pub(crate) fn normalized_cells(mut cells: CellTable, prefixes: &[Prefix]) -> CellTable {
    for function in &mut cells.functions {
        let to = file(&function.file, prefixes).to_owned();
        let moved = (function.file != to).then(|| moved_name(&function.name, &function.file, &to));
        function.name = moved
            .flatten()
            .unwrap_or_else(|| closures(&function.name, prefixes));
        function.file = to;
    }
    cells
}

/// The index of a string in the table: the old one if the string is unchanged.
fn number(profile: &mut Profile, old: i64, text: String) -> i64 {
    if profile.string(old) == text {
        return old;
    }
    profile.string_table.push(text);
    i64::try_from(profile.string_table.len() - 1).unwrap_or(old)
}

fn file<'t>(path: &'t str, prefixes: &[Prefix]) -> &'t str {
    let mut trimmed = prefixes.iter().filter_map(|prefix| prefix.trimmed(path));
    trimmed.next().unwrap_or(path)
}

/// The name of a closure has its place: `{closure:Cart::total():12}`,
/// `{closure:/srv/app/index.php:12}`, `{closure:pfa:/srv/app/index.php:12}`.
fn closures(name: &str, prefixes: &[Prefix]) -> String {
    const BEGIN: &str = "{closure:";
    /// What a partial application of PHP 8.6 has before its place.
    const APPLICATION: &str = "pfa:";
    let mut parts = name.split(BEGIN);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str(BEGIN);
        let path = part.strip_prefix(APPLICATION);
        if path.is_some() {
            text.push_str(APPLICATION);
        }
        text.push_str(&without_lines(file(path.unwrap_or(part), prefixes)));
    }
    text
}

/// Replaces `:12}` by `}`.
fn without_lines(text: &str) -> String {
    let mut kept = String::new();
    for (at, part) in text.split('}').enumerate() {
        if at > 0 {
            let end = kept
                .trim_end_matches(|letter: char| letter.is_ascii_digit())
                .len();
            let is_line = end < kept.len() && kept.get(..end).is_some_and(|it| it.ends_with(':'));
            kept.truncate(if is_line { end - 1 } else { kept.len() });
            kept.push('}');
        }
        kept.push_str(part);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Builder, FrameRef, Settings};

    #[track_caller]
    fn check(name: &str, expected: &str) {
        let prefix = Prefix::parse("/srv/releases/*/").unwrap();
        assert_eq!(closures(name, &[prefix]), expected);
    }

    #[test]
    fn closures_are_the_same_on_another_line() {
        check("{closure:Cart::total():12}", "{closure:Cart::total()}");
        check(r"Shop\{closure}", r"Shop\{closure}");
        check(
            "{closure:/srv/releases/7/src/a.php:3}",
            "{closure:src/a.php}",
        );
        check(
            "{closure:{closure:Cart::a():3}:40}",
            "{closure:{closure:Cart::a()}}",
        );
        check(
            "{closure:pfa:/srv/releases/7/a.php:3}",
            "{closure:pfa:a.php}",
        );
        check("Cart::a:12", "Cart::a:12");
        check("{main}", "{main}");
    }

    #[test]
    fn scripts_have_the_trimmed_file_in_their_names() {
        let mut builder = Builder::new(Settings::default());
        for (name, file) in [
            ("{main}", "/srv/releases/7/public/index.php"),
            ("include /srv/releases/7/a.php", "/srv/releases/7/a.php"),
            ("include /srv/b.php", "/srv/b.php"),
        ] {
            let frame = FrameRef {
                name,
                file,
                ..FrameRef::default()
            };
            builder.add(&[frame], &[1, 1, 1], &[]);
        }
        let prefix = Prefix::parse("/srv/releases/*/").unwrap();
        let profile = normalized(builder.finish(), &[prefix]);
        let rows = profile.function.iter();
        let names: Vec<&str> = rows.map(|row| profile.string(row.name)).collect();
        assert_eq!(
            names,
            [
                "{main} public/index.php",
                "include a.php",
                "include /srv/b.php"
            ]
        );
    }

    #[test]
    fn folders_of_releases_are_trimmed_whole() {
        let prefixes: Vec<Prefix> = ["/srv/releases/20261101", "/opt/*/app/"]
            .into_iter()
            .map(|text| Prefix::parse(text).unwrap())
            .collect();
        for (path, expected) in [
            ("/srv/releases/20261101/src/Cart.php", "src/Cart.php"),
            (
                "/srv/releases/202611011/a.php",
                "/srv/releases/202611011/a.php",
            ),
            ("/opt/v2/app/a.php", "a.php"),
            ("/opt/v2/a.php", "/opt/v2/a.php"),
            ("", ""),
        ] {
            assert_eq!(file(path, &prefixes), expected);
        }
        for wrong in ["", "/", "srv/releases"] {
            assert!(Prefix::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
