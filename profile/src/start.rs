//! The start page: the stored profiles of a namespace, with search, comparison, and links to the
//! files.
//!
//! It is the same for every user and namespace: its script asks the operator for the list, with the
//! key after `#` in the URL (`contract/README.md`, "Stored profiles of a namespace").
//!
//! Invariant: its policy allows only its own script and style, and requests only to its own server.

/// One scope around the whole script.
const SCRIPT: &str = include_str!("../assets/start/start.js");
const STYLE: &str = concat!(
    include_str!("../assets/theme.css"),
    include_str!("../assets/start/start.css")
);
const BODY: &str = include_str!("../assets/start/start.html");

/// The value for the header of the same name. A test compares the hashes with the files.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; \
    script-src 'sha256-b/rG553EbFzq/nzQudYKDlnabXLVjgyY7IJf9lJJy4k='; \
    style-src 'sha256-+mY8zPohvg5obPh2BzziDXuP2eR4keiDHtUr+gakNjo='; \
    connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The page. It is the same for every namespace.
#[must_use]
pub fn page() -> String {
    BODY.replace("STYLE", STYLE).replace("SCRIPT", SCRIPT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use ring::digest;

    #[test]
    fn the_policy_runs_nothing_from_outside_the_page() {
        let page = page();
        for (file, text) in [("start.js", SCRIPT), ("theme.css, start.css", STYLE)] {
            let digest = digest::digest(&digest::SHA256, text.as_bytes());
            let hash = base64::engine::general_purpose::STANDARD.encode(digest);
            let source = format!("'sha256-{hash}'");
            assert!(
                CONTENT_SECURITY_POLICY.contains(&source),
                "{file} has changed: put {source} into CONTENT_SECURITY_POLICY"
            );
            assert!(page.contains(text));
        }
    }
}
