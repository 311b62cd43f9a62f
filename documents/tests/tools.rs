//! What the commands of the Makefile say on machines that lack programs, and whose build they take
//! for this clone's.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use phpprof_documents::root;
use tempfile::TempDir;

/// What the scripts themselves need.
const BASICS: [&str; 9] = [
    "bash", "cut", "dirname", "env", "grep", "head", "id", "sort", "uname",
];

/// A machine with these programs, each with the lines of its script.
fn machine(programs: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for name in BASICS {
        let found = ["/usr/bin", "/bin"].map(|of| Path::new(of).join(name));
        let found = found.iter().find(|path| path.exists());
        symlink(found.expect(name), folder.path().join(name)).expect("a link");
    }
    for (name, lines) in programs {
        let path = folder.path().join(name);
        fs::write(&path, format!("#!/usr/bin/env bash\n{lines}\n")).expect("a script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a script");
    }
    folder
}

/// Whether a machine has all that linting needs, and what is said.
fn lints(programs: &[(&str, &str)]) -> (bool, String) {
    let folder = machine(programs);
    let mut command = Command::new(root().join("tools/givens"));
    let output = command.arg("lint").env("PATH", folder.path()).output();
    let output = output.expect("tools/givens");
    assert!(output.stderr.is_empty(), "{output:?}");
    let said = String::from_utf8(output.stdout).expect("text");
    (output.status.success(), said)
}

/// All that linting needs: no rustup, no apt.
const ENOUGH: [(&str, &str); 9] = [
    ("git", ""),
    ("curl", ""),
    ("shellcheck", ""),
    ("make", ""),
    ("cc", ""),
    ("cargo", ""),
    ("rustc", "echo 'rustc 1.89.0 (abc 2025-08-04)'"),
    ("go", "echo 'go version go1.26.8 linux/amd64'"),
    ("gofmt", ""),
];

#[test]
fn givens_needs_no_rustup_to_lint() {
    assert_eq!(lints(&ENOUGH), (true, String::new()));
}

#[test]
fn givens_names_each_missing_program_with_its_command() {
    let (is_enough, said) = lints(&[]);
    assert!(!is_enough, "{said}");
    let lines: Vec<&str> = said.lines().collect();
    let named: Vec<&str> = lines
        .chunks(2)
        .map(|pair| {
            assert!(pair[1].starts_with("    install it with: "), "{said}");
            pair[0].strip_prefix("missing: ").expect("a name")
        })
        .collect();
    let expected = [
        "git",
        "curl",
        "shellcheck",
        "clippy",
        "rustfmt",
        "make",
        "a C compiler",
        "Rust 1.89 or later (found: none)",
        "Go 1.26 or later (found: none)",
    ];
    assert_eq!(named, expected);
    let without_curl = lines
        .iter()
        .find(|line| line.contains("curl -s") && !line.contains("apt-get install -y curl && "));
    assert_eq!(without_curl, None);
}

#[test]
fn givens_refuses_what_is_too_old() {
    let old = [
        ("rustc", "echo 'rustc 1.88.0 (abc 2025-06-23)'"),
        ("cargo", "[ \"$1\" != clippy ]"),
        ("rustup", ""),
    ];
    let others = ENOUGH
        .iter()
        .filter(|(name, _)| old.iter().all(|(it, _)| it != name));
    let programs: Vec<_> = others.copied().chain(old).collect();
    let (is_enough, said) = lints(&programs);
    assert!(!is_enough && said.contains("(found: 1.88.0)"), "{said}");
    assert!(said.contains("rustup component add clippy"), "{said}");
    assert!(!said.contains("rustfmt"), "{said}");
}

/// Clones with what `tools/own-target` needs, and the shared folder of their cache.
struct Clones {
    folder: TempDir,
}

impl Clones {
    fn new() -> Self {
        let clones = Self {
            folder: tempfile::tempdir().expect("a folder"),
        };
        clones.add("first");
        clones
    }

    /// Adds a clone. Copies the files, because the pure gate does not need git.
    fn add(&self, name: &str) {
        let tools = self.path(name).join("tools");
        fs::create_dir_all(tools.join("kubernetes/1.37")).expect("a folder");
        for name in ["own-target", "cache.sh"] {
            fs::copy(root().join("tools").join(name), tools.join(name)).expect("a copy");
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Builds a crate of the project and one that it depends on, as cargo leaves them.
    fn build(&self, manifest: &Path) {
        for name in ["phpprof-zend-1", "serde-1"] {
            let of = self.path("target/debug/.fingerprint").join(name);
            fs::create_dir_all(of).expect("a folder");
        }
        let deps = self.path("target/debug/deps");
        fs::create_dir_all(&deps).expect("a folder");
        let line = format!("# env-dep:CARGO_MANIFEST_DIR={}\n", manifest.display());
        fs::write(deps.join("phpprof_documents-1.d"), line).expect("a file");
    }

    /// Whether the crate is still there after a clone has taken the folder.
    fn keeps(&self, clone: &str) -> bool {
        let command = Command::new(self.path(clone).join("tools/own-target"))
            .env("PHPPROF_CACHE", self.path("cache"))
            .env("CARGO_TARGET_DIR", self.path("target"))
            .env_remove("KUBERNETES")
            .status();
        assert!(command.expect("tools/own-target").success());
        let fingerprints = self.path("target/debug/.fingerprint");
        assert!(fingerprints.join("serde-1").exists());
        fingerprints.join("phpprof-zend-1").exists()
    }
}

#[test]
fn own_target_takes_another_folder_for_another_clone() {
    let clones = Clones::new();
    clones.add("second");
    let build = |of: &str| clones.build(&clones.path(of).join("documents"));
    build("first");
    let is_kept = clones.keeps("first");
    assert!(!is_kept, "nobody knows who built it");
    build("first");
    assert!(clones.keeps("first"));
    assert!(!clones.keeps("second"));
    build("second");
    assert!(clones.keeps("second"));
    // The same path, but not the same files.
    fs::remove_dir_all(clones.path("second")).expect("removed");
    clones.add("second");
    assert!(!clones.keeps("second"));
}

#[test]
fn own_target_sees_builds_outside_of_make() {
    let clones = Clones::new();
    clones.build(&clones.path("first/documents"));
    clones.keeps("first");
    clones.build(&clones.path("first/documents"));
    assert!(clones.keeps("first"));
    clones.build(&clones.path("first-of-another/documents"));
    assert!(!clones.keeps("first"));
    clones.build(&clones.path("first/documents"));
    assert!(clones.keeps("first"));
}
