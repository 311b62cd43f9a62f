//! Uploads that do not match their receipts, or are not profiles at all.
//!
//! While the operator is stopped, the test does what a hostile pod could: it writes an object at
//! the profile's key, and gives the container that the operator will find any receipt.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::pods::without_php;
use e2e::requests::failed_with;
use e2e::store::sha256;
use e2e::{Fixture, exclusive_on, operator, poll, release};
use flate2::{Compression, write::GzEncoder};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use phpprof_crds::{ProfileRequest, TargetReason};
use phpprof_profile::{Builder, FrameRef, SampleTag, Settings, encode_gzip};
use serde_json::json;

/// An upload, and the operator's message about it.
struct Upload {
    /// The content of the object, repeated `times` times; there is no object if that is 0.
    body: Vec<u8>,
    times: usize,
    /// The receipt's size; then its SHA-256, if it is not the object's.
    size: usize,
    sha256: Option<String>,
    reason: TargetReason,
    message: &'static str,
}

/// A profile of a gigabyte: a great many empty strings, in a gzip file of a megabyte.
fn bomb() -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&[0x32, 0x00].repeat(512 << 10))?;
    Ok(encoder.finish()?)
}

/// A profile with these sample types, and a sample with this label.
fn profile(sample_types: Vec<(&'static str, &'static str)>, label: &str) -> Vec<u8> {
    let mut builder = Builder::new(Settings {
        sample_types,
        ..Settings::default()
    });
    builder.add(
        &[FrameRef::default()],
        &[1, 1, 1],
        &[SampleTag::Str(label, "x")],
    );
    encode_gzip(&builder.finish())
}

fn uploads() -> Result<Vec<Upload>> {
    use TargetReason::*;
    let upload = |body: Vec<u8>, times: usize, reason, message| Upload {
        size: body.len() * times,
        body,
        times,
        sha256: None,
        reason,
        message,
    };
    let random: Vec<u8> = (0..1 << 20)
        .map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    let not_a_profile = || b"not a profile".to_vec();
    let ours = Settings::default().sample_types;
    Ok(vec![
        upload(
            profile(vec![("inuse_space", "bytes")], "pod"),
            1,
            InvalidProfile,
            "not a profile of phpprof: its sample types are",
        ),
        upload(
            profile(ours, "password"),
            1,
            InvalidProfile,
            "no sampler writes the label",
        ),
        upload(
            [0x12, 0x00].repeat(1_000_000),
            1,
            InvalidProfile,
            "the profile has more than 200000 samples",
        ),
        upload(vec![0; 1 << 20], 100, ProfileTooLarge, "it was not read"),
        upload(bomb()?, 1024, InvalidProfile, "not a profile within bounds"),
        upload(random, 31, InvalidProfile, "not a profile within bounds"),
        upload(
            not_a_profile(),
            1,
            InvalidProfile,
            "not a profile within bounds",
        ),
        Upload {
            size: 14,
            ..upload(
                not_a_profile(),
                1,
                SizeMismatch,
                "the object has 13 bytes, but the receipt says 14",
            )
        },
        Upload {
            sha256: Some(sha256(b"other")),
            ..upload(not_a_profile(), 1, ChecksumMismatch, "SHA-256")
        },
        Upload {
            size: 13,
            ..upload(
                not_a_profile(),
                0,
                ProfileMissing,
                "the store has no object",
            )
        },
    ])
}

/// Creates the object and the container with the receipt where the operator reads them.
async fn pretend(fixture: &Fixture, request: &ProfileRequest, upload: &Upload) -> Result<()> {
    let pods = fixture.api::<Pod>();
    let pod = pods.get("web").await?;
    let (uid, pod_uid) = (
        request.uid().unwrap_or_default(),
        pod.uid().unwrap_or_default(),
    );
    let namespaces: Api<Namespace> = Api::all(fixture.client.clone());
    let namespace = namespaces.get(&fixture.namespace).await?;
    let key = format!(
        "{}/{}/{}/{}-{uid}/web.fpm.{}.0.pb.gz",
        release::PREFIX,
        fixture.namespace,
        namespace.uid().unwrap_or_default(),
        request.name_any(),
        &pod_uid[..8]
    );
    let sha256 = match upload.times {
        0 => sha256(&upload.body),
        times => fixture.write(&key, &upload.body, times).await?,
    };
    let sha256 = upload.sha256.clone().unwrap_or(sha256);
    let receipt =
        json!({"reason": "Uploaded", "samples": 1, "size": upload.size, "sha256": sha256})
            .to_string();
    let name = format!("phpprof-{}-0", &uid[..8]);
    let container = json!({
        "name": name, "image": e2e::pods::image("demo"), "imagePullPolicy": "IfNotPresent", "targetContainerName": "fpm",
        "command": ["sh", "-c", "printf %s \"$1\" >/dev/termination-log", "sh"], "args": [receipt],
    });
    let patch = json!({"spec": {"ephemeralContainers": [container]}});
    let parameters = PatchParams::default();
    pods.patch_subresource(
        "ephemeralcontainers",
        "web",
        &parameters,
        &Patch::Strategic(patch),
    )
    .await?;
    poll(
        "the receipt is there",
        Duration::from_secs(30),
        async || {
            let pod = pods.get("web").await?;
            let statuses = pod
                .status
                .and_then(|status| status.ephemeral_container_statuses);
            let mut statuses = statuses.into_iter().flatten();
            let ended = statuses.any(|status| {
                status.name == name && status.state.is_some_and(|state| state.terminated.is_some())
            });
            Ok(ended.then_some(()))
        },
    )
    .await
}

/// These have the second cluster, one by one.
mod alone {
    use super::*;

    #[test]
    fn a_hostile_upload_fails_within_the_operators_memory() -> Result<()> {
        // The policies would refuse the test's own container, which imitates a hostile pod.
        exclusive_on(&[release::WITHOUT_POLICIES], async |fixture| {
            fixture.start(&[without_php("web")]).await?;
            release::scale(0).await?;
            let gone = async || {
                Ok(release::operator(&fixture.client)
                    .await?
                    .is_none()
                    .then_some(()))
            };
            poll("the operator has stopped", Duration::from_secs(30), gone).await?;
            let mut requests = Vec::new();
            for upload in uploads()? {
                let request = fixture
                    .apply(json!({"target": {"podName": "web"}, "durationSeconds": 1}))
                    .await?;
                pretend(fixture, &request, &upload).await?;
                requests.push((request, upload));
            }
            release::scale(1).await?;
            let operator = release::operator(&fixture.client).await?;
            let operator = operator.context("no operator")?;
            for (request, upload) in &requests {
                let target = failed_with(&fixture.ended(request).await?, upload.reason)?;
                ensure!(target.message.contains(upload.message), "{target:?}");
            }
            operator::keeps_within_its_memory(fixture, &operator).await
        })
    }
}
