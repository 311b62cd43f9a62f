//! Finds a program as Go's os/exec does.
//!
//! Invariant: a program that is found by its name alone is not one of the working directory, which
//! `LookPath` refuses (`ErrDot`).

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// The shortest form of a path, by its letters alone (path/filepath, `Clean`).
pub fn clean(path: &str) -> String {
    let is_rooted = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|it| *it != "..") => {
                parts.pop();
            }
            ".." if is_rooted => {}
            part => parts.push(part),
        }
    }
    let joined = parts.join("/");
    match (is_rooted, joined.is_empty()) {
        (true, _) => format!("/{joined}"),
        (false, true) => ".".to_owned(),
        (false, false) => joined,
    }
}

/// The program of this name or path, with the folders of PATH.
pub fn find(program: &str, folders: Option<&OsStr>) -> Option<String> {
    if program.contains('/') {
        return is_program(Path::new(program)).then(|| program.to_owned());
    }
    let first = std::env::split_paths(folders?)
        .map(|folder| folder.join(program))
        .find(|path| is_program(path))?;
    if !first.is_absolute() {
        return None;
    }
    Some(clean(first.to_str()?))
}

fn is_program(path: &Path) -> bool {
    let metadata = std::fs::metadata(path);
    metadata.is_ok_and(|it| !it.is_dir() && it.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_cleaned_as_go_cleans_it() {
        for (path, wanted) in [
            ("", "."),
            ("a", "a"),
            ("./a", "a"),
            ("a//b/./c/", "a/b/c"),
            ("a/../../b", "../b"),
            ("../..", "../.."),
            ("/../a", "/a"),
            ("/", "/"),
        ] {
            assert_eq!(clean(path), wanted, "{path}");
        }
    }

    #[test]
    fn programs_are_never_found_in_the_working_directory() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("login");
        let wanted = program.display().to_string();
        let path = |text: String| find("login", Some(OsStr::new(&text)));
        std::fs::write(&program, "").unwrap();
        let here = folder.path().display();
        assert_eq!(path(format!("/none:{here}")), None, "it may not be run");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(path(format!("/none:{here}")), Some(wanted.clone()));
        assert_eq!(find(&wanted, None), Some(wanted));
        assert_eq!(find("login", None), None);
        // From the root, the same folder by a relative path: tests run in the crate's folder.
        let depth = std::env::current_dir().unwrap().components().count() - 1;
        let relative = format!("{}{here}", "../".repeat(depth).trim_end_matches('/'));
        assert!(is_program(&Path::new(&relative).join("login")));
        assert_eq!(path(format!("{relative}:{here}")), None);
    }
}
