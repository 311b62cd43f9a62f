//! The object store as its owner and as the holder of a grant see it: calls are signed here and made from a pod.
//!
//! Invariant: what is signed here is never given to a sampler; grants are taken from where the operator put them.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use phpprof_profile::{Limits, Profile, decode};
use ring::digest;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::Scene;
use crate::pods::{restricted, without_php};
use crate::release::PREFIX;

/// The pod of a scene that calls the store.
const CALLER: &str = "caller";
/// Where e2e/cluster leaves them (RUN in names.sh).
const FILES: &str = "/run/phpprof-e2e/store";

/// What `STORE_FILES` names: the files endpoint, bucket, access-key, secret-key and, for a private CA, ca.crt.
#[derive(Clone)]
pub struct StoreFiles {
    pub endpoint: String,
    pub bucket: String,
    pub access_key: String,
    pub secret_key: String,
    pub authority: String,
}

impl StoreFiles {
    pub fn read() -> Result<Self> {
        let folder = PathBuf::from(std::env::var("STORE_FILES").unwrap_or(FILES.to_owned()));
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
    pub method: String,
    pub url: String,
    pub headers: std::collections::BTreeMap<String, String>,
    /// Base64.
    body: String,
    /// How often the body is sent, one after another.
    times: usize,
}

impl Call {
    pub fn new(method: &str, url: &str) -> Self {
        let (method, url) = (method.to_owned(), url.to_owned());
        Call {
            method,
            url,
            headers: Default::default(),
            body: String::new(),
            times: 1,
        }
    }

    pub fn body(mut self, body: &[u8], times: usize) -> Self {
        self.body = STANDARD.encode(body);
        self.times = times;
        self
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.insert(name.to_owned(), value.to_owned());
        self
    }
}

/// What came back; status 0 is no answer at all.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
    /// SHA-256 of the body that was sent, as receipts write it.
    pub sent: String,
}

impl Scene {
    /// Makes calls from inside a pod whose image has PHP.
    pub async fn call(&self, pod: &str, calls: &[Call]) -> Result<Vec<Answer>> {
        #[derive(Deserialize)]
        struct Line {
            status: u16,
            body: String,
            sent: String,
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
        let lines: Vec<Line> =
            serde_json::from_slice(&output).context("the answers are not JSON")?;
        let answer = |line: Line| {
            let (status, body) = (line.status, STANDARD.decode(&line.body)?);
            Ok(Answer {
                status,
                body,
                sent: URL_SAFE_NO_PAD.encode(unhex(&line.sent)?),
            })
        };
        lines.into_iter().map(answer).collect()
    }

    async fn call_as_owner(&self, call: Call) -> Result<Answer> {
        let started = self
            .store
            .caller
            .get_or_try_init(|| async { self.start(&[restricted(without_php(CALLER))]).await });
        started.await?;
        let mut answers = self.call(CALLER, &[call]).await?;
        answers.pop().context("no answer")
    }

    /// The bytes of an object.
    pub async fn read(&self, key: &str) -> Result<Vec<u8>> {
        let answer = self
            .call_as_owner(Call::new("GET", &self.store.files.sign("GET", key, &[])))
            .await?;
        ensure!(
            answer.status == 200,
            "reading {key}: HTTP {}",
            answer.status
        );
        Ok(answer.body)
    }

    /// A profile, decoded within the operator's bounds.
    pub async fn profile(&self, key: &str) -> Result<Profile> {
        Ok(decode(&self.read(key).await?, &Limits::default())?)
    }

    /// Writes an object that repeats those bytes; gives its SHA-256 as receipts write it.
    pub async fn write(&self, key: &str, body: &[u8], times: usize) -> Result<String> {
        let call = Call::new("PUT", &self.store.files.sign("PUT", key, &[])).body(body, times);
        let answer = self.call_as_owner(call).await?;
        ensure!(
            answer.status == 200,
            "writing {key}: HTTP {}",
            answer.status
        );
        Ok(answer.sent)
    }

    /// The keys of this scene's namespace, in their order.
    pub async fn keys(&self) -> Result<Vec<String>> {
        let prefix = format!("{PREFIX}/{}/", self.namespace);
        let query = [("list-type", "2"), ("prefix", prefix.as_str())];
        let answer = self
            .call_as_owner(Call::new("GET", &self.store.files.sign("GET", "", &query)))
            .await?;
        ensure!(
            answer.status == 200,
            "listing {prefix}: HTTP {}",
            answer.status
        );
        let list = String::from_utf8(answer.body)?;
        let mut keys: Vec<String> = list
            .split("<Key>")
            .skip(1)
            .filter_map(|rest| Some(rest.split_once("</Key>")?.0.to_owned()))
            .collect();
        keys.sort();
        Ok(keys)
    }

    /// Deletes what the scene's namespace has in the store, if the scene has used it.
    pub async fn clear_store(&self) -> Result<()> {
        if !self.store.caller.initialized() {
            return Ok(());
        }
        for key in self.keys().await? {
            let answer = self
                .call_as_owner(Call::new(
                    "DELETE",
                    &self.store.files.sign("DELETE", &key, &[]),
                ))
                .await?;
            ensure!(
                answer.status == 204,
                "deleting {key}: HTTP {}",
                answer.status
            );
        }
        Ok(())
    }
}

/// Where the store is and who owns it.
pub struct Store {
    pub files: StoreFiles,
    caller: tokio::sync::OnceCell<()>,
}

impl Store {
    pub fn open() -> Result<Self> {
        Ok(Store {
            files: StoreFiles::read()?,
            caller: Default::default(),
        })
    }

    /// The key in the store's own URI.
    pub fn key_of<'a>(&self, uri: &'a str) -> Result<&'a str> {
        let root = format!("s3://{}/", self.files.bucket);
        uri.strip_prefix(&root)
            .with_context(|| format!("{uri} does not begin with {root}"))
    }
}

/// SHA-256 as receipts write it.
pub fn sha256(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, bytes))
}

fn unhex(text: &str) -> Result<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?))
        .collect()
}
