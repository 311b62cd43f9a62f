//! No type that holds a token, a password or a key derives a Debug that prints it: such a type
//! writes its own, or the field is a `Secret` (crds), a `SecretString` or a `HeaderValue` that is
//! marked as sensitive.
//!
//! It reads the sources of all crates, by names: a field whose name is one of a credential, and
//! whose type is plain text or bytes.

use std::path::{Path, PathBuf};

use std::io::Result;

/// Words of a field's name that mean a credential, if its type can hold one.
const WORDS: [&str; 9] = [
    "token",
    "password",
    "passphrase",
    "secret",
    "access_key",
    "api_key",
    "private_key",
    "credentials",
    "authorization",
];
/// Fields that have such a word and are none.
const NONE: [&str; 3] = ["token_endpoint", "key_secret", "token_file"];
/// Types that print what they hold.
const PLAIN: [&str; 5] = ["String", "&str", "&'a str", "Vec<u8>", "HashMap<"];

fn sources(folder: &Path, into: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            sources(&path, into)?;
        } else if name.ends_with(".rs") {
            into.push(path);
        }
    }
    Ok(())
}

/// The fields of types that derive Debug, and that hold a credential as plain text.
fn shown(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut derives = false;
    let mut is_open = false;
    for line in text.lines() {
        let line = line.trim_start();
        let indent_ends = line.starts_with('}');
        if line.starts_with("#[derive(") {
            derives = line.contains("Debug");
        } else if line.contains("struct ") || line.contains("enum ") {
            let is_type = !line.starts_with("//") && line.ends_with('{');
            (is_open, derives) = (is_type && derives, false);
        } else if line.starts_with("impl") || line.contains("fn ") || indent_ends && line == "}" {
            is_open = false;
        }
        let field = line
            .trim_start_matches("pub ")
            .trim_start_matches("pub(crate) ");
        let Some((name, kind)) = field.split_once(": ").filter(|_| is_open) else {
            continue;
        };
        let is_credential = WORDS.iter().any(|word| name.contains(word)) && !NONE.contains(&name);
        let is_plain = PLAIN.iter().any(|plain| {
            let kind = kind.trim_start_matches("Option<").trim_start_matches('(');
            kind.starts_with(plain)
        });
        if is_credential && is_plain {
            found.push(field.to_owned());
        }
    }
    found
}

#[test]
fn fields_are_found_where_debug_prints_them() {
    let with = |derive: &str, field: &str| {
        shown(&format!(
            "#[derive({derive})]\n/// X.\npub struct X {{\n    {field}\n}}\n"
        ))
    };
    for field in [
        "pub access_key: String,",
        "token: Option<String>,",
        "pub(crate) password: Vec<u8>,",
        "credentials: Option<(String, String)>,",
    ] {
        assert_eq!(with("Clone, Debug", field).len(), 1, "{field}");
        assert_eq!(with("Clone", field).len(), 0, "{field}");
    }
    for field in [
        "access_key: Secret,",
        "token: Option<SecretString>,",
        "name: String,",
    ] {
        assert_eq!(with("Debug", field).len(), 0, "{field}");
    }
}

#[test]
fn no_type_shows_a_credential_by_debug() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut all = Vec::new();
    sources(&root, &mut all)?;
    assert!(all.len() > 300, "{} sources", all.len());
    let mut found = Vec::new();
    for path in all {
        let text = std::fs::read_to_string(&path)?;
        let fields = shown(&text).into_iter();
        found.extend(fields.map(|field| format!("{}: {field}", path.display())));
    }
    assert!(found.is_empty(), "these derive Debug: {}", found.join("\n"));
    Ok(())
}
