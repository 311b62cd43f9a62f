//! Grants, bounded reads and writes that never overwrite, with a store in memory.

use super::*;
use crate::testing::store_in;
use object_store::memory::InMemory;

#[tokio::test]
async fn a_grant_signs_one_keys_put_and_precondition() {
    let grant = ProfileStore::in_memory(Arc::new(InMemory::new()))
        .grant("a/b.pb.gz", Duration::from_secs(60))
        .await
        .unwrap();
    assert_eq!(grant.method, "PUT");
    assert_eq!(grant.headers["if-none-match"], "*");
    let url = Url::parse(&grant.url).unwrap();
    let query: std::collections::HashMap<_, _> = url.query_pairs().collect();
    assert!(url.path().ends_with("/a/b.pb.gz"), "{url}");
    assert_eq!(query["X-Amz-SignedHeaders"], "host;if-none-match");
    assert_eq!(query["X-Amz-Expires"], "60");
    assert!(grant.stop.contains("/a/b.pb.gz.stop?"), "{}", grant.stop);
    assert!(!grant.stop.contains("if-none-match"), "{}", grant.stop);
}

#[tokio::test]
async fn a_grant_is_signed_for_the_named_region() {
    let config = StoreConfig {
        region: Some("eu-central-1".into()),
        ..StoreConfig::default()
    };
    let bucket = s3::settings(&config, "profiles".into()).unwrap();
    let bucket = bucket.with_access_key_id("test");
    let bucket = bucket.with_secret_access_key("test").build().unwrap();
    let presigner = Presigner::new(Arc::new(bucket), "if-none-match", "*");
    let store = ProfileStore {
        presigner: Some(presigner),
        ..ProfileStore::in_memory(Arc::new(InMemory::new()))
    };
    let grant = store.grant("a", Duration::from_secs(60)).await.unwrap();
    let url = Url::parse(&grant.url).unwrap();
    let host = url.host_str().unwrap_or_default();
    assert!(host.contains("eu-central-1"), "{url}");
    assert!(url.as_str().contains("%2Feu-central-1%2Fs3%2F"), "{url}");
}

#[tokio::test]
async fn a_grant_signs_the_administrators_encryption() {
    let config = StoreConfig {
        url: "s3://profiles/p".into(),
        endpoint: Some("https://s3.example.org".into()),
        encryption: Some("aws:kms".into()),
        kms_key: Some("arn:aws:kms:eu-west-1:123456789012:key/1234".into()),
        ..StoreConfig::default()
    };
    let settings = s3::settings(&config, "profiles".into()).unwrap();
    let encryption = s3::encryption_headers(&settings).unwrap();
    let bucket = settings.with_access_key_id("test");
    let bucket = bucket.with_secret_access_key("test").build().unwrap();
    let presigner = Presigner::new(Arc::new(bucket), "if-none-match", "*").with(encryption);
    let store = ProfileStore {
        presigner: Some(presigner),
        ..ProfileStore::in_memory(Arc::new(InMemory::new()))
    };
    let grant = store.grant("a", Duration::from_secs(60)).await.unwrap();
    assert_eq!(grant.headers["if-none-match"], "*");
    assert_eq!(grant.headers["x-amz-server-side-encryption"], "aws:kms");
    let key = &grant.headers["x-amz-server-side-encryption-aws-kms-key-id"];
    assert_eq!(Some(key), config.kms_key.as_ref());
    let url = Url::parse(&grant.url).unwrap();
    let query: std::collections::HashMap<_, _> = url.query_pairs().collect();
    assert_eq!(
        query["X-Amz-SignedHeaders"],
        "host;if-none-match;x-amz-server-side-encryption;x-amz-server-side-encryption-aws-kms-key-id"
    );
}

#[test]
fn a_setting_unknown_to_s3_is_refused() {
    let open = |change: fn(&mut StoreConfig)| {
        let mut config = StoreConfig {
            url: "s3://profiles/p".into(),
            ..StoreConfig::default()
        };
        change(&mut config);
        ProfileStore::open(&config).unwrap_err().to_string()
    };
    let checksum = open(|config| config.checksum = Some("MD5".into()));
    assert_eq!(checksum, "the store's checksum \"MD5\" is not valid");
    let key = open(|config| config.kms_key = Some("a\nb".into()));
    assert!(key.starts_with("the store's KMS key"), "{key}");
}

#[tokio::test]
async fn an_object_is_never_overwritten() {
    let store = ProfileStore::in_memory(Arc::new(InMemory::new()));
    assert_eq!(store.create("a", vec![1]).await.unwrap(), Created::Now);
    assert_eq!(store.create("a", vec![2]).await.unwrap(), Created::Before);
    assert_eq!(store.read("a", 10).await.unwrap(), vec![1]);
}

#[tokio::test]
async fn reading_stops_at_the_limit() {
    let store = ProfileStore::in_memory(Arc::new(InMemory::new()));
    store.create("a", vec![0; 11]).await.unwrap();
    let error = store.read("a", 10).await.unwrap_err();
    assert_eq!(error.to_string(), "object a has more than 10 bytes");
}

#[test]
fn a_url_without_store_is_refused_with_example() {
    let check = |url: &str, expected: &str| {
        let config = StoreConfig {
            url: url.into(),
            ..StoreConfig::default()
        };
        assert_eq!(
            ProfileStore::open(&config).unwrap_err().to_string(),
            expected
        );
    };
    check(
        "bucket",
        "the store's url \"bucket\" is not a URL; use for instance s3://bucket/prefix",
    );
    check(
        "ftp://bucket",
        "the store's scheme \"ftp\" is not supported; use s3://bucket/prefix, gs://, az:// or file:///folder",
    );
    check(
        "file:///",
        "the store's url \"file:///\" is not a URL; use for instance s3://bucket/prefix",
    );
    check(
        "file:///no/such/folder",
        "the store's folder \"/no/such/folder\" cannot be used; is its volume mounted?",
    );
}

#[test]
fn a_credential_may_only_end_with_a_newline() {
    assert_eq!(s3::credential("KEY", "abc/+=\n").unwrap(), "abc/+=");
    let error = s3::credential("KEY", "a\nb").unwrap_err().to_string();
    assert_eq!(
        error,
        "KEY has a character that credentials do not have; check the store's Secret"
    );
}

#[test]
fn an_unencrypted_endpoint_needs_consent_and_signs_nothing() {
    let config = |endpoint: &str, allow_insecure| StoreConfig {
        url: "s3://bucket".into(),
        endpoint: Some(endpoint.into()),
        allow_insecure,
        ..StoreConfig::default()
    };
    let refused = ProfileStore::open(&config("http://minio:9000", false)).unwrap_err();
    assert!(matches!(&refused, OpenError::Insecure(_)), "{refused}");
    assert!(refused.to_string().contains("--store-allow-insecure"));
    assert!(
        !ProfileStore::open(&config("http://minio:9000", true))
            .unwrap()
            .signs()
    );
    assert!(
        ProfileStore::open(&config("https://minio:9000", true))
            .unwrap()
            .signs()
    );
}

#[tokio::test]
async fn a_folder_never_overwrites_what_was_created() {
    let folder = tempfile::tempdir().unwrap();
    let store = store_in(folder.path());
    let key = "shop/first-0b1c/web.fpm.4f9c7a1d.0.pb.gz";
    assert_eq!(store.create(key, vec![1]).await.unwrap(), Created::Now);
    assert_eq!(store.create(key, vec![2]).await.unwrap(), Created::Before);
    let reopened = store_in(folder.path());
    assert_eq!(reopened.read(key, 10).await.unwrap(), vec![1]);
    assert_eq!(reopened.size(key).await.unwrap(), Some(1));
    assert_eq!(reopened.size("shop/other").await.unwrap(), None);
    assert_eq!(
        store.uri(key),
        format!("file://{}/{key}", folder.path().display())
    );
}

#[tokio::test]
async fn a_folder_signs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = store_in(folder.path());
    assert!(!store.signs());
    let refused = store.grant("a", Duration::from_secs(1)).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "this store cannot sign create-only writes"
    );
}

/// A volume that no longer accepts writes, not even from root.
#[tokio::test]
async fn an_unwritable_folder_is_an_absent_store() {
    let folder = tempfile::tempdir().unwrap();
    let store = store_in(folder.path());
    std::fs::write(
        folder.path().join("shop"),
        "a file where a folder has to be",
    )
    .unwrap();
    let refused = store.create("shop/first/a.pb.gz", vec![1]).await;
    assert!(matches!(refused, Err(StoreError::Store(_))), "{refused:?}");
}
