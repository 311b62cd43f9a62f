//! The push by OTLP, the protocol of OpenTelemetry: settings, and one request's profile.
//!
//! Profiles are alpha there: the messages may change until they are stable. [`convert`] names their
//! version.
//!
//! Invariant: the messages of one engine are in memory at a time, compressed.

mod convert;
mod dictionary;
mod resource;
mod send;

use std::io::Write as _;

use aws_lc_rs::digest::{SHA256, digest};
use axum::body::Bytes;
use clap::{Args, ValueEnum};
use flate2::Compression;
use flate2::write::GzEncoder;
use kube::ResourceExt as _;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use phpprof_crds::{EventReason, ProfileRequest, Secret};
use phpprof_profile::SampleSource;
use prost::Message as _;
use tokio::time::Instant;
use url::Url;

use self::convert::{BOUNDS, EngineFacts, NotConverted, ProfiledEngine, engines, messages};
use self::resource::{MOST_ATTRIBUTES, OtlpAttribute, resource};
use self::send::{OtlpSender, headers};
use crate::export::exported::{ExportError, Exported, below, plain};
use crate::export::series::time_of;
use crate::storage::collector::Collector;

/// Below the endpoint, as OpenTelemetry's exporters have it.
const PATH: &str = "v1development/profiles";

/// Flags and variables; the chart's `export.otlp`.
#[derive(Args, Clone, Debug, Default)]
pub struct OtlpArgs {
    /// URL of an OTLP receiver to push completed requests' profiles to, for instance
    /// http://collector.monitoring.svc:4318. Alpha
    #[arg(long)]
    otlp_endpoint: Option<Url>,
    /// How the profiles are pushed there
    #[arg(long, value_enum, default_value_t)]
    otlp_protocol: OtlpProtocol,
    /// Attribute of every resource, as NAME=VALUE. May be repeated
    #[arg(long)]
    otlp_attribute: Vec<OtlpAttribute>,
    #[arg(
        long,
        env = "PHPPROF_OTLP_HEADERS",
        hide = true,
        hide_env_values = true
    )]
    otlp_headers: Option<Secret>,
}

/// The names are those of `OTEL_EXPORTER_OTLP_PROTOCOL`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OtlpProtocol {
    /// POST, to the endpoint's path and v1development/profiles.
    #[default]
    #[value(name = "http/protobuf")]
    Http,
    /// HTTP/2, to the endpoint's host.
    #[value(name = "grpc")]
    Grpc,
}

/// A receiver of OTLP.
pub struct OtlpTarget {
    host: String,
    sender: OtlpSender,
    attributes: Vec<OtlpAttribute>,
}

/// A message, compressed.
struct OtlpMessage {
    body: Bytes,
    profiles: usize,
}

impl OtlpArgs {
    /// The receiver that these flags describe, if any.
    pub(super) fn target(
        &self,
        ca_bundle: Option<&str>,
    ) -> Result<Option<OtlpTarget>, ExportError> {
        let Some(url) = &self.otlp_endpoint else {
            return Ok(None);
        };
        let endpoint = plain(url, "--otlp-endpoint")?;
        let mut names: Vec<&str> = self.otlp_attribute.iter().map(|it| &*it.name).collect();
        names.sort_unstable();
        if names.len() > MOST_ATTRIBUTES || names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(ExportError::Otlp(format!(
                "--otlp-attribute is given more than {MOST_ATTRIBUTES} times, or one name twice"
            )));
        }
        let headers = headers(self.otlp_headers.as_deref().unwrap_or_default());
        let headers = headers.map_err(ExportError::Otlp)?;
        let sender = match self.otlp_protocol {
            OtlpProtocol::Http => OtlpSender::http(below(url, "--otlp-endpoint", PATH)?, headers),
            OtlpProtocol::Grpc if endpoint.path() != "/" => {
                let words = "--otlp-endpoint must not have a path with --otlp-protocol=grpc";
                return Err(ExportError::Otlp(words.to_owned()));
            }
            OtlpProtocol::Grpc => {
                OtlpSender::grpc(endpoint, headers, ca_bundle).map_err(ExportError::Otlp)?
            }
        };
        Ok(Some(OtlpTarget {
            host: url.authority().to_owned(),
            sender,
            attributes: self.otlp_attribute.clone(),
        }))
    }
}

impl OtlpTarget {
    /// Pushes the profile of a request: one resource for each PHP of its pods, and for each of
    /// these one profile for each sample type.
    pub(super) async fn push(
        &self,
        client: &reqwest::Client,
        collector: &Collector,
        merged: Result<Bytes, String>,
        request: &ProfileRequest,
        until: Instant,
    ) -> Exported {
        let mut taken = 0;
        let sent = async {
            let merged = merged?;
            let found = collector.look(merged.clone(), engines);
            for engine in found.await?.map_err(|error| error.to_string())? {
                let facts = EngineFacts {
                    resource: resource(request, &engine, &self.attributes),
                    engine,
                };
                let request = request.clone();
                let made = collector.look(merged.clone(), move |profile| {
                    sealed(profile, &facts, &request)
                });
                for message in made.await?.map_err(|error| error.to_string())? {
                    let sent = self.sender.send(client, &message.body, until).await;
                    sent.map_err(|error| error.to_string())?;
                    taken += message.profiles;
                }
            }
            Ok::<(), String>(())
        };
        let sent = sent.await;
        let host = &self.host;
        match sent {
            Ok(()) => {
                let note = format!("{taken} profiles pushed to {host}");
                Exported::done(EventReason::OtlpPushed, note)
            }
            Err(error) => {
                let note = format!("{taken} profiles pushed to {host}, then: {error}");
                Exported::failed(EventReason::OtlpPushFailed, note)
            }
        }
    }
}

/// An engine's messages, with the times and ids of their profiles.
fn sealed<S: SampleSource + ?Sized>(
    source: &S,
    facts: &EngineFacts,
    request: &ProfileRequest,
) -> Result<Vec<OtlpMessage>, NotConverted> {
    messages(source, facts, &BOUNDS, |mut message, number| {
        let time = time_of(source.head(), request, number);
        let mut profiles = 0;
        let resources = message.resource_profiles.iter_mut();
        let scopes = resources.flat_map(|resource| &mut resource.scope_profiles);
        for profile in scopes.flat_map(|scope| &mut scope.profiles) {
            profile.time_unix_nano = u64::try_from(time).unwrap_or(0);
            profile.profile_id = id(request, &facts.engine, [number, profiles]);
            profiles += 1;
        }
        OtlpMessage {
            body: Bytes::from(compressed(&message)),
            profiles,
        }
    })
}

/// The id of a profile, from its place in the request. It is the same each time that a profile is
/// sent, so a receiver can drop one that it has.
fn id(request: &ProfileRequest, engine: &ProfiledEngine, place: [usize; 2]) -> Vec<u8> {
    let uid = request.uid().unwrap_or_default();
    let whole = format!("{uid}\n{engine:?}\n{place:?}");
    let digest = digest(&SHA256, whole.as_bytes());
    digest.as_ref().iter().copied().take(16).collect()
}

fn compressed(message: &ExportProfilesServiceRequest) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    // Writing to memory does not fail.
    let _ = packer.write_all(&message.encode_to_vec());
    packer.finish().unwrap_or_default()
}
