//! The settings of an S3 bucket, from the administrator's values and the environment.
//!
//! Invariant: a given value overrides the environment.

use http::{HeaderName, HeaderValue};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, Checksum};

use super::{OpenError, StoreConfig, quick_retry};

/// All settings except those of the HTTP client.
pub(super) fn settings(config: &StoreConfig, bucket: String) -> Result<AmazonS3Builder, OpenError> {
    super::client::provide_tls();
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_virtual_hosted_style_request(!config.path_style)
        // The operator deletes one object at a time, and some servers have no other way.
        .with_disable_bulk_delete(true)
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
    for (name, key, value) in [
        ("encryption", ENCRYPTION, &config.encryption),
        ("KMS key", KMS_KEY, &config.kms_key),
    ] {
        if let Some(value) = value {
            let key = key.parse().map_err(OpenError::Build)?;
            builder = builder.with_config(key, value_of(name, value)?);
        }
    }
    if let Some(checksum) = &config.checksum {
        let wrong = |()| OpenError::Setting("checksum", checksum.clone());
        let algorithm: Checksum = checksum.parse().map_err(wrong)?;
        builder = builder.with_checksum_algorithm(algorithm);
    }
    Ok(builder)
}

const ENCRYPTION: &str = "aws_server_side_encryption";
const KMS_KEY: &str = "aws_sse_kms_key_id";
const BUCKET_KEY: &str = "aws_sse_bucket_key_enabled";

/// The headers that a sampler's PUT must have, so that the bucket's policy lets it pass: those of
/// the operator's own writes.
pub(super) fn encryption_headers(
    settings: &AmazonS3Builder,
) -> Result<Vec<(HeaderName, HeaderValue)>, OpenError> {
    let mut headers = Vec::new();
    for (key, header) in [
        (ENCRYPTION, "x-amz-server-side-encryption"),
        (KMS_KEY, "x-amz-server-side-encryption-aws-kms-key-id"),
        (
            BUCKET_KEY,
            "x-amz-server-side-encryption-bucket-key-enabled",
        ),
    ] {
        let key: AmazonS3ConfigKey = key.parse().map_err(OpenError::Build)?;
        // object_store would print a missing value as an empty one.
        let value = settings.get_config_value(&key).filter(|it| !it.is_empty());
        if let Some(value) = value {
            let wrong = |_| OpenError::Setting(header, value.clone());
            let value = HeaderValue::from_str(&value).map_err(wrong)?;
            headers.push((HeaderName::from_static(header), value));
        }
    }
    Ok(headers)
}

/// A value for a header.
fn value_of<'a>(name: &'static str, value: &'a str) -> Result<&'a str, OpenError> {
    if value.bytes().all(|byte| byte.is_ascii_graphic()) {
        Ok(value)
    } else {
        Err(OpenError::Setting(name, value.to_owned()))
    }
}

const CREDENTIALS: [(&str, AmazonS3ConfigKey); 3] = [
    ("AWS_ACCESS_KEY_ID", AmazonS3ConfigKey::AccessKeyId),
    ("AWS_SECRET_ACCESS_KEY", AmazonS3ConfigKey::SecretAccessKey),
    ("AWS_SESSION_TOKEN", AmazonS3ConfigKey::Token),
];

/// Trims a credential, because a Secret made from a file often ends with a newline. object_store
/// 0.14 would panic at the first request.
pub(super) fn credential<'a>(name: &'static str, value: &'a str) -> Result<&'a str, OpenError> {
    let value = value.trim();
    if value.bytes().all(|byte| byte.is_ascii_graphic()) {
        Ok(value)
    } else {
        Err(OpenError::Credential(name))
    }
}
