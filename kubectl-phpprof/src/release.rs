//! Makes the profiles of two releases comparable: functions whose name changed by an edit or
//! another folder get the same name again.
//!
//! It is pure. It changes names and files of functions, and no value.
//!
//! Invariant: a name without a given prefix and without a closure stays unchanged.

use phpprof_profile::Profile;
use phpprof_profile::timeline::CellTable;

/// The beginning of paths, as folders. `*` matches any one folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix(Vec<String>);

impl Prefix {
    pub fn parse(text: &str) -> Result<Self, String> {
        let folders: Vec<String> = text
            .split('/')
            .filter(|folder| !folder.is_empty())
            .map(str::to_owned)
            .collect();
        if text.starts_with('/') && !folders.is_empty() {
            Ok(Prefix(folders))
        } else {
            Err(format!(
                "{text:?} is not a folder that begins with /, for instance /srv/releases/20261101 or /srv/releases/*"
            ))
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
pub fn normalized(mut profile: Profile, prefixes: &[Prefix]) -> Profile {
    for at in 0..profile.function.len() {
        let Some(function) = profile.function.get(at).copied() else {
            break;
        };
        let name = closures(profile.string(function.name), prefixes);
        let system_name = closures(profile.string(function.system_name), prefixes);
        let filename = file(profile.string(function.filename), prefixes).to_owned();
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
pub fn normalized_cells(mut cells: CellTable, prefixes: &[Prefix]) -> CellTable {
    for function in &mut cells.functions {
        function.name = closures(&function.name, prefixes);
        function.file = file(&function.file, prefixes).to_owned();
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

/// PHP 8.4 names closures by their place: `{closure:Cart::total():12}`,
/// `{closure:/srv/app/index.php:12}`.
fn closures(name: &str, prefixes: &[Prefix]) -> String {
    const BEGIN: &str = "{closure:";
    let mut parts = name.split(BEGIN);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str(BEGIN);
        text.push_str(&without_lines(file(part, prefixes)));
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
        check("Cart::a:12", "Cart::a:12");
        check("{main}", "{main}");
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
