//! The object store, as its owner and as the holder of a grant see it. The calls are signed here
//! and made from a pod.
//!
//! Invariant: no sampler gets what is signed here; the tests read grants from where the operator
//! put them.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use phpprof_profile::{DecodeLimits, Profile, decode};
use ring::digest;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::pods::{restricted, without_php};
use crate::release::PREFIX;
use crate::test_cluster;
use crate::{Fixture, say};

/// The pod of a fixture that calls the store.
const CALLER: &str = "caller";
/// How often calls are made that get no answer, and the pause before each further time.
const TRIES: usize = 3;
const PAUSE: Duration = Duration::from_secs(1);

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

impl Fixture {
    /// Makes calls from a pod whose image has PHP.
    pub async fn call(&self, pod: &str, calls: &[Call]) -> Result<Vec<Answer>> {
        #[derive(Deserialize)]
        struct AnswerLine {
            status: u16,
            body: String,
            sent: String,
            error: String,
        }
        let authority = &self.store.files.authority;
        let input = json!({"authority": authority, "calls": calls}).to_string();
        let command = [
            "php",
            "-d",
            "memory_limit=-1",
            "-r",
            include_str!("http.php"),
        ];
        let output = self.exec(pod, &command, input.as_bytes()).await?;
        let lines: Vec<AnswerLine> =
            serde_json::from_slice(&output).context("the answers are not JSON")?;
        let answer = |line: AnswerLine| {
            let (status, body) = (line.status, STANDARD.decode(&line.body)?);
            Ok(Answer {
                status,
                body,
                sent: URL_SAFE_NO_PAD.encode(unhex(&line.sent)?),
                error: line.error,
            })
        };
        lines.into_iter().map(answer).collect()
    }

    /// Makes calls that the store's owner has signed. Each has to succeed. The store is not what is
    /// tested, so calls are made again if one gets no answer; all of them may be repeated.
    async fn call_as_owner(&self, calls: &[Call]) -> Result<Vec<Answer>> {
        let caller = [restricted(without_php(CALLER))];
        let started = self.store.caller.get_or_try_init(|| self.start(&caller));
        started.await?;
        let mut answers = self.call(CALLER, calls).await?;
        for _ in 1..TRIES {
            let Some(lost) = answers.iter().find(|answer| answer.status == 0) else {
                break;
            };
            say(&format!("the store is called again: {}", lost.error));
            tokio::time::sleep(PAUSE).await;
            answers = self.call(CALLER, calls).await?;
        }
        for (call, answer) in calls.iter().zip(&answers) {
            let (path, _) = call.url.split_once('?').unwrap_or_default();
            ensure!(
                (200..300).contains(&answer.status),
                "{} {path}: HTTP {} {}",
                call.method,
                answer.status,
                answer.error
            );
        }
        Ok(answers)
    }

    fn signed(&self, method: &str, key: &str) -> Call {
        Call::new(method, &self.store.files.sign(method, key, &[]))
    }

    /// The bytes of an object.
    pub async fn read(&self, key: &str) -> Result<Vec<u8>> {
        let mut answers = self.call_as_owner(&[self.signed("GET", key)]).await?;
        Ok(answers.pop().context("no answer")?.body)
    }

    /// A profile, decoded within the operator's bounds.
    pub async fn profile(&self, key: &str) -> Result<Profile> {
        Ok(decode(&self.read(key).await?, &DecodeLimits::default())?)
    }

    /// Writes an object that repeats these bytes, and returns its SHA-256 in the form of receipts.
    pub async fn write(&self, key: &str, body: &[u8], times: usize) -> Result<String> {
        let call = self.signed("PUT", key).body(body, times);
        let mut answers = self.call_as_owner(&[call]).await?;
        Ok(answers.pop().context("no answer")?.sent)
    }

    /// The keys of this fixture's namespace in the store.
    pub async fn keys(&self) -> Result<Vec<String>> {
        self.keys_in(&format!("{PREFIX}/{}/", self.namespace)).await
    }

    async fn keys_in(&self, folder: &str) -> Result<Vec<String>> {
        let query = [("list-type", "2"), ("prefix", folder)];
        let list = Call::new("GET", &self.store.files.sign("GET", "", &query));
        let mut answers = self.call_as_owner(&[list]).await?;
        let list = String::from_utf8(answers.pop().context("no answer")?.body)?;
        let rests = list.split("<Key>").skip(1);
        let keys = rests.filter_map(|rest| Some(rest.split_once("</Key>")?.0.to_owned()));
        Ok(keys.collect())
    }

    /// Deletes the objects of this fixture's namespace in the store, if the fixture has used the
    /// store.
    pub async fn clear_store(&self) -> Result<()> {
        if !self.store.caller.initialized() {
            return Ok(());
        }
        self.clear_folder(&format!("{PREFIX}/{}/", self.namespace))
            .await
    }

    /// Deletes what all earlier runs have left.
    pub async fn clear_all(&self) -> Result<()> {
        self.clear_folder(&format!("{PREFIX}/")).await
    }

    async fn clear_folder(&self, folder: &str) -> Result<()> {
        let keys = self.keys_in(folder).await?;
        let calls: Vec<Call> = keys.iter().map(|key| self.signed("DELETE", key)).collect();
        self.call_as_owner(&calls).await?;
        Ok(())
    }
}

/// The store, and its owner's credentials.
pub struct Store {
    /// Its address and the credentials.
    pub files: StoreFiles,
    caller: tokio::sync::OnceCell<()>,
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

fn unhex(text: &str) -> Result<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?))
        .collect()
}
