//! The object store: its address, its owner's credentials, and the calls that it gets.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::digest;
use serde::Serialize;

use crate::test_cluster;

/// The content of the folder `STORE_FILES`: the files endpoint, bucket, access-key, secret-key and,
/// for a private CA, ca.crt.
#[derive(Clone)]
pub struct StoreFiles {
    /// The store's URL.
    pub endpoint: String,
    /// The bucket's name.
    pub bucket: String,
    /// The access key's ID.
    pub access_key: String,
    /// The key that signs requests.
    pub secret_key: String,
    /// The CA certificate in PEM; empty if a public CA signed the endpoint's certificate.
    pub authority: String,
}

impl StoreFiles {
    /// Reads the folder `STORE_FILES`, or that of e2e/cluster.
    pub fn read() -> Result<Self> {
        let ours = || test_cluster::here().run().join("store");
        let folder = std::env::var_os("STORE_FILES").map_or_else(ours, PathBuf::from);
        let file = |name: &str| {
            let path = folder.join(name);
            let text = std::fs::read_to_string(&path);
            text.map(|text| text.trim_end().to_owned())
                .with_context(|| {
                    format!(
                        "reading {}; STORE_FILES names another folder",
                        path.display()
                    )
                })
        };
        let private = folder.join("ca.crt").exists();
        Ok(StoreFiles {
            endpoint: file("endpoint")?,
            bucket: file("bucket")?,
            access_key: file("access-key")?,
            secret_key: file("secret-key")?,
            authority: if private {
                file("ca.crt")? + "\n"
            } else {
                String::new()
            },
        })
    }
}

/// One HTTP call.
#[derive(Clone, Serialize)]
pub struct Call {
    /// The HTTP method.
    pub method: String,
    /// The URL, for instance of a grant.
    pub url: String,
    /// The headers, by name.
    pub headers: std::collections::BTreeMap<String, String>,
    /// The body in Base64.
    body: String,
    /// How often the body is repeated.
    times: usize,
    /// Whether the server's certificate is not verified, because no CA signed it.
    unverified: bool,
}

impl Call {
    /// A call without headers and body.
    pub fn new(method: &str, url: &str) -> Self {
        let (method, url) = (method.to_owned(), url.to_owned());
        Call {
            method,
            url,
            headers: Default::default(),
            body: String::new(),
            times: 1,
            unverified: false,
        }
    }

    /// The same call without verification of the certificate: no CA signed the relay's.
    pub fn unverified(mut self) -> Self {
        self.unverified = true;
        self
    }

    /// The same call with a body that is repeated this many times.
    pub fn body(mut self, body: &[u8], times: usize) -> Self {
        self.body = STANDARD.encode(body);
        self.times = times;
        self
    }

    /// The same call with the digest header that the relay requires in addition to its grant.
    pub fn digested(self, body: &[u8]) -> Self {
        let sum = STANDARD.encode(digest::digest(&digest::SHA256, body));
        self.body(body, 1)
            .header("content-digest", &format!("sha-256=:{sum}:"))
    }

    /// The same call with one more header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.insert(name.to_owned(), value.to_owned());
        self
    }
}

/// The answer. Status 0 means that there was none.
#[derive(Debug)]
pub struct Answer {
    /// The HTTP status code.
    pub status: u16,
    /// The whole body.
    pub body: Vec<u8>,
    /// SHA-256 of the sent body, in the form of receipts.
    pub sent: String,
    /// What PHP warned of, such as why there was no answer; empty otherwise.
    pub error: String,
}

/// The store, and its owner's credentials.
pub struct Store {
    /// Its address and the credentials.
    pub files: StoreFiles,
    pub(crate) caller: tokio::sync::OnceCell<()>,
}

impl Store {
    /// The store of these tests.
    pub fn open() -> Result<Self> {
        Ok(Store {
            files: StoreFiles::read()?,
            caller: Default::default(),
        })
    }

    /// The key of an object, from its URI in the store.
    pub fn key_of<'a>(&self, uri: &'a str) -> Result<&'a str> {
        let root = format!("s3://{}/", self.files.bucket);
        uri.strip_prefix(&root)
            .with_context(|| format!("{uri} does not begin with {root}"))
    }
}

/// SHA-256 in the form of receipts.
pub fn sha256(bytes: &[u8]) -> String {
    base64url(digest::digest(&digest::SHA256, bytes).as_ref())
}

/// RFC 4648 section 5, without padding.
pub fn base64url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
