//! The store, opened by its URL: grants for samplers, bounded reads, and writes that never
//! overwrite (`writes`).
//!
//! Invariant: no read is larger than the caller allows, no object is ever replaced, and a new
//! object is on the disk before the write counts as done. A store without create-only writes gets
//! no grants.

mod client;
mod counted;
mod error;
pub mod health;
mod s3;
mod seen;
mod writes;

use std::{sync::Arc, time::Duration};

use axum::body::Bytes;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use http::{HeaderName, HeaderValue, Method};
#[cfg(test)]
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::signer::{SignedUrlOptions, Signer};
use object_store::{ObjectStore, ObjectStoreExt as _, RetryConfig};
use phpprof_crds::UploadRoute;

use url::Url;

use crate::sampler::grant::KeyGrant;
use crate::sampler::object_keys::stop_key;
pub use counted::StoreErrors;

pub use error::StoreError;
pub(crate) use error::{Operation, Trouble};
use health::Health;
use seen::StoreHealth;
pub(crate) use writes::Created;

/// Where the store is and how to reach it. The credentials come from the environment.
#[derive(Clone, Debug, Default)]
pub struct StoreConfig {
    /// file:///folder, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix.
    pub url: String,
    /// For an S3 server outside AWS.
    pub endpoint: Option<String>,
    /// Whether the endpoint may begin with http://.
    pub allow_insecure: bool,
    /// The region of S3; without it, the environment's.
    pub region: Option<String>,
    /// Whether the bucket is in the path instead of the host name, for S3 without a wildcard DNS
    /// name.
    pub path_style: bool,
    /// PEM of a private CA, trusted in addition to the webpki roots.
    pub ca_bundle: Option<String>,
    /// How S3 encrypts objects: AES256, aws:kms or aws:kms:dsse; without it, the environment's,
    /// else the bucket's own setting.
    pub encryption: Option<String>,
    /// The KMS key for it, by id or ARN.
    pub kms_key: Option<String>,
    /// The checksum that the operator's writes to S3 carry: SHA256 or CRC64NVME.
    pub checksum: Option<String>,
    /// Whether to write to a store that has no create-only writes.
    pub allow_overwrite: bool,
}

impl StoreConfig {
    fn is_insecure(&self) -> bool {
        let endpoint = self.endpoint.as_deref().unwrap_or_default();
        endpoint.starts_with("http://")
    }
}

/// Why a store cannot be used. The message says how to fix it.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL as given.
    #[error("the store's url {0:?} is not a URL; use for instance s3://bucket/prefix")]
    Url(String),
    /// Only the scheme.
    #[error(
        "the store's scheme {0:?} is not supported; use s3://bucket/prefix, gs://, az:// or file:///folder"
    )]
    Scheme(String),
    /// The folder of a `file://` store.
    #[error("the store's folder {0:?} cannot be used; is its volume mounted?")]
    Folder(String, #[source] object_store::Error),
    /// The endpoint as given.
    #[error(
        "the store's endpoint {0:?} is not encrypted; use https://, or allow it with --store-allow-insecure (store.allowInsecure in the chart)"
    )]
    Insecure(String),
    /// The name of the environment variable.
    #[error("{0} has a character that credentials do not have; check the store's Secret")]
    Credential(&'static str),
    /// The file contains no readable certificate.
    #[error("the CA bundle is not PEM")]
    CaBundle(#[source] object_store::Error),
    /// The name of a setting, and its value.
    #[error("the store's {0} {1:?} is not valid")]
    Setting(&'static str, String),
    /// object_store refuses the configuration.
    #[error("setting up the store failed")]
    Build(#[source] object_store::Error),
}

/// An object in a listing. Older ones sort first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ListedObject {
    /// By the store's clock, since 1970.
    pub changed_millis: i64,
    pub key: String,
    pub size: u64,
}

/// Signs create-only writes, for stores that support them.
#[derive(Clone, Debug)]
struct Presigner {
    signer: Arc<dyn Signer>,
    /// The headers of a signed PUT: the one that makes it create-only, and those for encryption.
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Presigner {
    fn new(signer: Arc<dyn Signer>, header: &'static str, value: &'static str) -> Self {
        Presigner {
            signer,
            headers: vec![(
                HeaderName::from_static(header),
                HeaderValue::from_static(value),
            )],
        }
    }

    /// Signs these headers too.
    fn with(mut self, headers: Vec<(HeaderName, HeaderValue)>) -> Self {
        self.headers.extend(headers);
        self
    }
}

/// One bucket, or a folder of it.
#[derive(Clone, Debug)]
pub struct ProfileStore {
    objects: Arc<dyn ObjectStore>,
    presigner: Option<Presigner>,
    /// Scheme and bucket, as in s3://bucket; or the folder, as in file:///folder.
    root: String,
    prefix: String,
    allow_overwrite: bool,
    seen: StoreHealth,
}

impl ProfileStore {
    /// Opens the store. A bucket is not contacted yet, but a folder must exist.
    ///
    /// # Errors
    /// An [`OpenError`] that says how to fix it.
    pub fn open(config: &StoreConfig) -> Result<Self, OpenError> {
        let url = Url::parse(&config.url).map_err(|_| OpenError::Url(config.url.clone()))?;
        if url.scheme() == "file" {
            return folder(&url);
        }
        let bucket = url.host_str().filter(|bucket| !bucket.is_empty());
        let bucket = bucket
            .ok_or_else(|| OpenError::Url(config.url.clone()))?
            .to_owned();
        let root = format!("{}://{bucket}", url.scheme());
        let is_insecure = config.is_insecure();
        let is_refused = is_insecure && !config.allow_insecure;
        if let Some(endpoint) = config.endpoint.as_ref().filter(|_| is_refused) {
            return Err(OpenError::Insecure(endpoint.clone()));
        }
        client::provide_tls();
        let options = client::options(config.ca_bundle.as_deref())?.with_allow_http(is_insecure);
        let (objects, presigner): (Arc<dyn ObjectStore>, _) = match url.scheme() {
            "s3" => {
                let settings = s3::settings(config, bucket)?.with_client_options(options);
                let encryption = s3::encryption_headers(&settings)?;
                let store = Arc::new(settings.build().map_err(OpenError::Build)?);
                let presigner = Presigner::new(store.clone(), "if-none-match", "*");
                // Samplers write only to encrypted endpoints.
                let presigner = (!is_insecure).then(|| presigner.with(encryption));
                (store, presigner)
            }
            "gs" => {
                let builder = GoogleCloudStorageBuilder::from_env()
                    .with_bucket_name(bucket)
                    .with_client_options(options)
                    .with_retry(quick_retry());
                let store = Arc::new(builder.build().map_err(OpenError::Build)?);
                let presigner = Presigner::new(store.clone(), "x-goog-if-generation-match", "0");
                (store, Some(presigner))
            }
            "az" => {
                let builder = MicrosoftAzureBuilder::from_env()
                    .with_container_name(bucket)
                    .with_client_options(options)
                    .with_retry(quick_retry());
                // A SAS signs no headers, so Azure cannot sign a create-only write.
                (Arc::new(builder.build().map_err(OpenError::Build)?), None)
            }
            scheme => return Err(OpenError::Scheme(scheme.to_owned())),
        };
        Ok(ProfileStore {
            objects,
            presigner,
            root,
            prefix: url.path().trim_matches('/').to_owned(),
            allow_overwrite: config.allow_overwrite,
            seen: StoreHealth::default(),
        })
    }

    /// Counts the store's errors there from now on.
    #[must_use]
    pub fn counted(self, errors: StoreErrors) -> Self {
        let seen = self.seen.counted(errors);
        ProfileStore { seen, ..self }
    }

    /// How the store is, as far as its answers have shown.
    pub fn health(&self) -> Health {
        self.seen.health()
    }

    /// Whether the store overwrites objects and the administrator does not allow that, so nothing
    /// may be written to it.
    pub fn is_refused(&self) -> bool {
        !self.allow_overwrite && self.seen.writes().is_unsafe()
    }

    /// Whether it can sign create-only writes, which [`ProfileStore::grant`] needs. A store that
    /// has none signs nothing: a grant would overwrite.
    pub fn signs(&self) -> bool {
        self.presigner().is_ok()
    }

    fn presigner(&self) -> Result<&Presigner, StoreError> {
        let presigner = self.presigner.as_ref();
        let presigner = presigner.filter(|_| !self.seen.writes().is_unsafe());
        presigner.ok_or(StoreError::CannotSign)
    }

    /// The folder of the bucket that contains everything; empty, or without a slash at either end.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The store's own URI of a key. It grants no access.
    pub fn uri(&self, key: &str) -> String {
        format!("{}/{key}", self.root)
    }

    /// Signs a create-only PUT of the key, and a GET of the object that tells its sampler to stop.
    pub async fn grant(&self, key: &str, valid_for: Duration) -> Result<KeyGrant, StoreError> {
        let presigner = self.presigner()?;
        let stop = Path::from(stop_key(key));
        let stop = presigner
            .signer
            .signed_url(Method::GET, &stop, valid_for)
            .await
            .map_err(failed(&self.seen, Operation::Sign))?;
        Ok(KeyGrant {
            stop: stop.into(),
            ..self.put_grant(key, valid_for).await?
        })
    }

    /// Signs only a create-only PUT of the key.
    pub async fn put_grant(&self, key: &str, valid_for: Duration) -> Result<KeyGrant, StoreError> {
        let Presigner {
            signer,
            headers: signed,
        } = self.presigner()?.clone();
        let text = |value: &HeaderValue| value.to_str().unwrap_or_default().to_owned();
        let headers = signed.iter();
        let headers = headers.map(|(name, value)| (name.to_string(), text(value)));
        let headers = headers.collect();
        let options = signed
            .into_iter()
            .fold(SignedUrlOptions::new(), |all, (name, value)| {
                all.with_signed_header(name, value)
            });
        let url = signer
            .signed_url_opts(Method::PUT, &Path::from(key), valid_for, &options)
            .await
            .map_err(failed(&self.seen, Operation::Sign))?;
        Ok(KeyGrant {
            route: UploadRoute::Direct,
            method: "PUT".to_owned(),
            url: url.into(),
            headers,
            stop: String::new(),
            live: String::new(),
            pins: Vec::new(),
        })
    }

    /// The size of an object; `None` if it does not exist.
    pub async fn size(&self, key: &str) -> Result<Option<u64>, StoreError> {
        match self.objects.head(&Path::from(key)).await {
            Ok(meta) => {
                self.seen.succeeded();
                Ok(Some(meta.size))
            }
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(failed(&self.seen, Operation::Head)(error)),
        }
    }

    /// The bytes of an object. Reading stops at the limit, whatever size the headers said.
    pub async fn read(&self, key: &str, limit: u64) -> Result<Vec<u8>, StoreError> {
        let (size, mut stream) = self.stream(key).await?;
        let expected = usize::try_from(size.min(limit)).unwrap_or_default();
        let mut bytes = Vec::with_capacity(expected);
        while let Some(chunk) = stream.next().await {
            bytes.extend_from_slice(&chunk?);
            if bytes.len() as u64 > limit {
                return Err(StoreError::TooLarge {
                    key: key.to_owned(),
                    limit,
                });
            }
        }
        Ok(bytes)
    }

    /// Whether an object has these bytes. It holds no second copy of them.
    pub async fn holds(&self, key: &str, bytes: &[u8]) -> Result<bool, StoreError> {
        let (size, mut stream) = match self.stream(key).await {
            Err(StoreError::Missing(_)) => return Ok(false),
            opened => opened?,
        };
        let mut rest = bytes;
        if size != rest.len() as u64 {
            return Ok(false);
        }
        while let Some(chunk) = stream.next().await {
            match rest.strip_prefix(chunk?.as_ref()) {
                Some(left) => rest = left,
                None => return Ok(false),
            }
        }
        Ok(rest.is_empty())
    }

    /// The size of an object, and its bytes as they arrive.
    pub async fn stream(
        &self,
        key: &str,
    ) -> Result<(u64, BoxStream<'static, Result<Bytes, StoreError>>), StoreError> {
        match self.objects.get(&Path::from(key)).await {
            Ok(object) => {
                let (size, seen) = (object.meta.size, self.seen.clone());
                seen.succeeded();
                let chunks = object.into_stream();
                let chunks = chunks.map(move |chunk| chunk.map_err(failed(&seen, Operation::Get)));
                Ok((size, chunks.boxed()))
            }
            Err(error) => {
                let missing = matches!(error, object_store::Error::NotFound { .. });
                let failure = failed(&self.seen, Operation::Get)(error);
                Err(if missing {
                    StoreError::Missing(key.to_owned())
                } else {
                    failure
                })
            }
        }
    }

    /// The keys with this ending, as the listing arrives.
    pub fn keys_ending(
        &self,
        end: &'static str,
    ) -> impl futures::Stream<Item = Result<String, StoreError>> + '_ {
        let prefix = (!self.prefix.is_empty()).then(|| Path::from(self.prefix.as_str()));
        self.objects
            .list(prefix.as_ref())
            .filter_map(move |found| async move {
                match found {
                    Ok(meta) if meta.location.as_ref().ends_with(end) => {
                        Some(Ok(meta.location.to_string()))
                    }
                    Ok(_) => None,
                    Err(error) => Some(Err(failed(&self.seen, Operation::List)(error))),
                }
            })
    }

    /// All objects of a folder below the prefix, as the listing arrives.
    pub(crate) fn objects(
        &self,
        folder: &str,
    ) -> impl futures::Stream<Item = Result<ListedObject, StoreError>> + use<> {
        let prefix = Path::from(format!("{}/{folder}", self.prefix));
        let (found, seen) = (self.objects.list(Some(&prefix)), self.seen.clone());
        found.map(move |found| {
            let found = found.map_err(failed(&seen, Operation::List))?;
            Ok(ListedObject {
                key: found.location.to_string(),
                size: found.size,
                changed_millis: found.last_modified.timestamp_millis(),
            })
        })
    }

    /// Deletes an object. A missing object is not an error.
    pub async fn delete(&self, key: &str) -> Result<(), StoreError> {
        match self.objects.delete(&Path::from(key)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(failed(&self.seen, Operation::Delete)(error)),
        }
    }

    #[cfg(test)]
    pub(crate) fn in_memory(objects: Arc<dyn ObjectStore>) -> Self {
        client::provide_tls();
        let signer = Arc::new(
            AmazonS3Builder::new()
                .with_bucket_name("profiles")
                .with_region("us-east-1")
                .with_access_key_id("test")
                .with_secret_access_key("test")
                .build()
                .expect("a signer needs no server"),
        );
        ProfileStore {
            objects,
            presigner: Some(Presigner::new(signer, "if-none-match", "*")),
            root: "s3://profiles".to_owned(),
            prefix: String::new(),
            allow_overwrite: false,
            seen: StoreHealth::default(),
        }
    }
}

/// Counts an error of the store, and keeps its cause.
fn failed(
    seen: &StoreHealth,
    operation: Operation,
) -> impl FnOnce(object_store::Error) -> StoreError + use<'_> {
    move |error| {
        let trouble = Trouble::of(&error);
        let error = StoreError::from(error);
        seen.failed(operation, trouble, &error);
        error
    }
}

/// A folder of a volume. A write counts only after the file and the folder are synced.
fn folder(url: &Url) -> Result<ProfileStore, OpenError> {
    let path = url
        .to_file_path()
        .ok()
        .filter(|path| path.parent().is_some());
    let path = path.ok_or_else(|| OpenError::Url(url.to_string()))?;
    let objects = LocalFileSystem::new_with_prefix(&path)
        .map_err(|error| OpenError::Folder(path.display().to_string(), error))?;
    Ok(ProfileStore {
        objects: Arc::new(objects.with_fsync(true).with_automatic_cleanup(true)),
        presigner: None,
        root: format!("file://{}", path.display()),
        prefix: String::new(),
        allow_overwrite: false,
        seen: StoreHealth::default(),
    })
}

/// The client retries only briefly: the reconciler retries too, and can tell the user.
fn quick_retry() -> RetryConfig {
    RetryConfig {
        max_retries: 1,
        retry_timeout: Duration::from_secs(5),
        ..RetryConfig::default()
    }
}

#[cfg(test)]
mod tests;
