//! The tokens of the namespaces: files of a mounted Secret, each named after its namespace.
//!
//! The kubelet replaces the files when the Secret changes, so each question reads the file anew.
//!
//! Invariant: how long a comparison takes says nothing of a token, not even whether there is one.

use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use axum::http::{HeaderMap, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Shorter tokens could be guessed, and are not used.
pub const SHORTEST_TOKEN: usize = 16;
const LONGEST_TOKEN: u64 = 1 << 10;
/// The most characters of a namespace's name (RFC 1123).
const LONGEST_LABEL: usize = 63;

/// Where the tokens are.
#[derive(Clone, Debug)]
pub struct NamespaceTokens {
    folder: PathBuf,
}

impl NamespaceTokens {
    /// The tokens in a folder.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Whether this is the token of that namespace.
    pub async fn opens(&self, namespace: &str, presented: Option<String>) -> bool {
        let expected = if is_label(namespace) {
            let file = self.folder.join(namespace);
            let read = tokio::task::spawn_blocking(move || read(&file));
            read.await.ok().flatten()
        } else {
            None
        };
        let [one, other] = [&expected, &presented].map(|token| {
            let token = token.as_deref().unwrap_or_default();
            digest(&SHA256, token.as_bytes())
        });
        let is_equal = verify_slices_are_equal(one.as_ref(), other.as_ref()).is_ok();
        is_equal && expected.is_some() && presented.is_some()
    }
}

/// So that a name leads to a file of the folder.
fn is_label(name: &str) -> bool {
    let is_one = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=LONGEST_LABEL).contains(&name.len()) && name.bytes().all(is_one)
}

/// The token in a file, without the end of its line.
fn read(file: &PathBuf) -> Option<String> {
    let mut text = String::new();
    let opened = File::open(file).ok()?;
    opened
        .take(LONGEST_TOKEN + 1)
        .read_to_string(&mut text)
        .ok()?;
    let token = text.trim();
    let fits = (SHORTEST_TOKEN..=LONGEST_TOKEN as usize).contains(&token.len());
    if !fits {
        tracing::warn!(
            file = %file.display(),
            "a token of a namespace must have {SHORTEST_TOKEN} to {LONGEST_TOKEN} characters; it opens nothing"
        );
    }
    fits.then(|| token.to_owned())
}

/// The token of a request: a bearer's, or the password of a URL, which is all that Flagger can
/// send (fluxcd/flagger issue 1192).
pub(super) fn presented(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, credentials) = value.split_once(' ')?;
    let credentials = credentials.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(credentials.to_owned());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(STANDARD.decode(credentials).ok()?).ok()?;
    let (_user, password) = decoded.split_once(':')?;
    Some(password.to_owned())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    fn folder() -> (tempfile::TempDir, NamespaceTokens) {
        let folder = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("shop", &format!("{TOKEN}\n"));
        write("blog", "another-token-of-some-length");
        write("short", "secret");
        write("empty", "");
        write("long", &"x".repeat(2000));
        let tokens = NamespaceTokens::new(folder.path().to_owned());
        (folder, tokens)
    }

    #[tokio::test]
    async fn a_token_opens_its_own_namespace_only() {
        let (_folder, tokens) = folder();
        let opens = async |namespace: &str, token: &str| {
            tokens.opens(namespace, Some(token.to_owned())).await
        };
        assert!(opens("shop", TOKEN).await);
        assert!(opens("blog", "another-token-of-some-length").await);
        for (namespace, token) in [
            ("blog", TOKEN),
            ("shop", ""),
            ("shop", &TOKEN[1..]),
            ("other", TOKEN),
            ("other", ""),
            ("empty", ""),
            ("short", "secret"),
            ("long", &"x".repeat(2000)),
            ("../shop", TOKEN),
            (".", ""),
            ("", ""),
        ] {
            assert!(!opens(namespace, token).await, "{namespace}");
        }
        assert!(!tokens.opens("shop", None).await);
        assert!(!tokens.opens("empty", None).await);
    }

    #[tokio::test]
    async fn a_changed_token_counts_at_once() {
        let (folder, tokens) = folder();
        std::fs::write(folder.path().join("shop"), "the-next-token-of-shop").unwrap();
        assert!(!tokens.opens("shop", Some(TOKEN.to_owned())).await);
        let next = "the-next-token-of-shop".to_owned();
        assert!(tokens.opens("shop", Some(next)).await);
    }

    #[test]
    fn bearers_and_passwords_are_tokens() {
        let presented = |value: &str| {
            let mut headers = HeaderMap::new();
            let value = HeaderValue::from_str(value).unwrap();
            headers.insert(header::AUTHORIZATION, value);
            presented(&headers)
        };
        let some = |token: &str| Some(token.to_owned());
        assert_eq!(presented("Bearer abc"), some("abc"));
        assert_eq!(presented("bearer  abc "), some("abc"));
        let basic = format!("Basic {}", STANDARD.encode("flagger:a:b"));
        assert_eq!(presented(&basic), some("a:b"));
        for none in ["abc", "Digest abc", "Basic !", "Basic YWJj"] {
            assert_eq!(presented(none), None, "{none}");
        }
        assert_eq!(super::presented(&HeaderMap::new()), None);
    }
}
