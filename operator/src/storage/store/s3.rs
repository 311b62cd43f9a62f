//! The settings of an S3 bucket, from the administrator's values and the environment.
//!
//! Invariant: a given value overrides the environment.

use object_store::ClientOptions;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};

use super::{OpenError, StoreConfig, quick_retry};

/// A bucket of S3, or of a compatible server.
pub(super) fn bucket(
    config: &StoreConfig,
    bucket: String,
    options: ClientOptions,
) -> Result<AmazonS3, OpenError> {
    let builder = settings(config, bucket)?.with_client_options(options);
    builder.build().map_err(OpenError::Build)
}

/// All settings except those of the HTTP client.
pub(super) fn settings(config: &StoreConfig, bucket: String) -> Result<AmazonS3Builder, OpenError> {
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_virtual_hosted_style_request(!config.path_style)
        .with_retry(quick_retry());
    for (name, key) in CREDENTIALS {
        if let Ok(value) = std::env::var(name) {
            builder = builder.with_config(key, credential(name, &value)?);
        }
    }
    if let Some(endpoint) = &config.endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    if let Some(region) = &config.region {
        builder = builder.with_region(region);
    }
    Ok(builder)
}

const CREDENTIALS: [(&str, AmazonS3ConfigKey); 3] = [
    ("AWS_ACCESS_KEY_ID", AmazonS3ConfigKey::AccessKeyId),
    ("AWS_SECRET_ACCESS_KEY", AmazonS3ConfigKey::SecretAccessKey),
    ("AWS_SESSION_TOKEN", AmazonS3ConfigKey::Token),
];

/// Trims a credential, because a Secret made from a file often ends with a newline. object_store 0.14 would panic at the first request.
pub(super) fn credential<'a>(name: &'static str, value: &'a str) -> Result<&'a str, OpenError> {
    let value = value.trim();
    match value.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(value),
        false => Err(OpenError::Credential(name)),
    }
}
