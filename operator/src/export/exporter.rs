//! Exports the profile of a finished request to services outside the cluster: the push to
//! Pyroscope and by OTLP, the annotation in Grafana.
//!
//! It decides nothing about a request. Events report its results.
//!
//! Invariant: it sends only to the URLs that the administrator set, and the files of profiles in
//! memory have at most [`LARGEST_TOLD`] together. Whatever the other side does, it ends after a
//! while, and the request stays as it is.

use std::time::Duration;

use axum::body::Bytes;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use http::HeaderMap;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use phpprof_crds::{EventReason, ProfileMode, ProfileRequest, Secret};
use phpprof_decide::limits::AdminLimits;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;
use url::Url;

use crate::export::exported::{ExportError, Exported, below, plain};
use crate::export::grafana::{Grafana, annotation};
use crate::export::links::LinkTemplate;
use crate::export::otlp::{OtlpArgs, OtlpTarget};
use crate::export::retry::{ExportCall, accepts_all, client, deliver, is_temporary, secret_header};
use crate::export::series::{self, ExtraLabel, MOST_LABELS, Naming};
use crate::storage::collector::{Collector, LARGEST_TOLD};

/// The time from a request's end until the operator gives up an export.
const PATIENCE: Duration = Duration::from_secs(300);
/// The most requests that wait for their turn.
const WAITING: usize = 64;
const ROOM_UNIT: usize = 1 << 20;
const TENANT: HeaderName = HeaderName::from_static("x-scope-orgid");

/// Flags and variables; the chart's `pyroscope`, `grafana` and `export`.
#[derive(Args, Clone, Debug, Default)]
pub struct ExportArgs {
    /// URL to push completed requests' profiles to, for instance
    /// http://pyroscope.monitoring.svc:4040
    #[arg(long)]
    pyroscope_url: Option<Url>,
    /// Tenant of the pushed profiles
    #[arg(long)]
    pyroscope_tenant: Option<String>,
    /// Label of every pushed series, as NAME=VALUE. May be repeated
    #[arg(long)]
    pyroscope_label: Vec<ExtraLabel>,
    /// Push the pods of a request as one series
    #[arg(long)]
    pyroscope_merge_pods: bool,
    /// Give every pushed series the label profile_request; each request then creates new series
    #[arg(long)]
    pyroscope_request_label: bool,
    #[arg(long, env = "PHPPROF_PYROSCOPE_USERNAME", hide = true)]
    pyroscope_username: Option<String>,
    #[arg(
        long,
        env = "PHPPROF_PYROSCOPE_PASSWORD",
        hide = true,
        hide_env_values = true
    )]
    pyroscope_password: Option<Secret>,
    #[arg(
        long,
        env = "PHPPROF_PYROSCOPE_TOKEN",
        hide = true,
        hide_env_values = true
    )]
    pyroscope_token: Option<Secret>,
    /// URL of Grafana for people, for instance https://grafana.example.org
    #[arg(long)]
    grafana_url: Option<Url>,
    /// Organisation of the links to Grafana
    #[arg(long, default_value_t = 1)]
    grafana_org_id: u32,
    /// Uid of the Pyroscope data source; each request's status then links to Grafana
    #[arg(long)]
    grafana_datasource: Option<String>,
    /// How many seconds before its request the baseline of a difference is
    #[arg(long, default_value_t = 86_400)]
    grafana_baseline_seconds: u32,
    /// Annotate this dashboard only
    #[arg(long)]
    grafana_dashboard: Option<String>,
    #[arg(
        long,
        env = "PHPPROF_GRAFANA_TOKEN",
        hide = true,
        hide_env_values = true
    )]
    grafana_token: Option<Secret>,
    #[command(flatten)]
    otlp: OtlpArgs,
}

struct Pyroscope {
    push: Url,
    headers: HeaderMap,
    naming: Naming,
}

struct Annotations {
    url: Url,
    headers: HeaderMap,
    dashboard: Option<String>,
}

/// One push at a time for each receiver. A receiver that does not answer keeps its turn until the
/// deadline, and so delays only the other pushes to itself.
struct ReceiverTurns {
    pyroscope: Semaphore,
    otlp: Semaphore,
}

/// The services that get results.
pub struct Exporter {
    client: reqwest::Client,
    pyroscope: Option<Pyroscope>,
    otlp: Option<OtlpTarget>,
    annotations: Option<Annotations>,
    places: Semaphore,
    turns: ReceiverTurns,
    /// For the files of both turns, in units of [`ROOM_UNIT`].
    room: Semaphore,
    patience: Duration,
}

impl ExportArgs {
    /// Templates of links to Grafana.
    pub fn templates(&self) -> Result<Vec<LinkTemplate>, ExportError> {
        let (Some(url), Some(datasource)) = (&self.grafana_url, &self.grafana_datasource) else {
            return Ok(Vec::new());
        };
        let base = plain(url, "--grafana-url")?;
        let grafana = Grafana {
            base: base.as_str().trim_end_matches('/').to_owned(),
            org_id: self.grafana_org_id,
            datasource: datasource.clone(),
            baseline_seconds: self.grafana_baseline_seconds,
            request_label: self.pyroscope_request_label,
        };
        Ok(grafana.templates())
    }

    /// The exporter that these flags describe. Without a URL it exports nothing.
    ///
    /// # Errors
    /// An [`ExportError`] that names the flag.
    pub fn open(self, ca_bundle: Option<&str>) -> Result<Exporter, ExportError> {
        Ok(Exporter {
            client: client(ca_bundle)?,
            pyroscope: self.pyroscope()?,
            otlp: self.otlp.target(ca_bundle)?,
            annotations: self.annotations()?,
            places: Semaphore::new(WAITING),
            turns: ReceiverTurns {
                pyroscope: Semaphore::new(1),
                otlp: Semaphore::new(1),
            },
            room: Semaphore::new(LARGEST_TOLD / ROOM_UNIT),
            patience: PATIENCE,
        })
    }

    fn pyroscope(&self) -> Result<Option<Pyroscope>, ExportError> {
        let Some(url) = &self.pyroscope_url else {
            return Ok(None);
        };
        let mut names: Vec<&str> = self
            .pyroscope_label
            .iter()
            .map(|label| &*label.name)
            .collect();
        names.sort_unstable();
        if names.len() > MOST_LABELS || names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(ExportError::Labels);
        }
        let credentials = match (&self.pyroscope_token, &self.pyroscope_username) {
            (Some(_), Some(_)) => return Err(ExportError::TwoCredentials),
            (Some(token), None) => Some(format!("Bearer {}", token.trim())),
            (None, Some(user)) => {
                let password = self.pyroscope_password.as_deref().unwrap_or_default();
                let pair = format!("{}:{}", user.trim(), password.trim());
                Some(format!("Basic {}", STANDARD.encode(pair)))
            }
            (None, None) => None,
        };
        let mut headers = headers(credentials.as_deref())?;
        if let Some(tenant) = &self.pyroscope_tenant {
            let wrong =
                |_| ExportError::Header("--pyroscope-tenant is not a valid header value".into());
            headers.insert(TENANT, HeaderValue::from_str(tenant).map_err(wrong)?);
        }
        Ok(Some(Pyroscope {
            push: below(url, "--pyroscope-url", "push.v1.PusherService/Push")?,
            headers,
            naming: Naming {
                labels: self.pyroscope_label.clone(),
                per_pod: !self.pyroscope_merge_pods,
                request_label: self.pyroscope_request_label,
            },
        }))
    }

    fn annotations(&self) -> Result<Option<Annotations>, ExportError> {
        let (Some(url), Some(token)) = (&self.grafana_url, &self.grafana_token) else {
            return Ok(None);
        };
        Ok(Some(Annotations {
            url: below(url, "--grafana-url", "api/annotations")?,
            headers: headers(Some(&format!("Bearer {}", token.trim())))?,
            dashboard: self.grafana_dashboard.clone(),
        }))
    }
}

fn headers(credentials: Option<&str>) -> Result<HeaderMap, ExportError> {
    let mut headers = HeaderMap::new();
    let json = HeaderValue::from_static("application/json");
    headers.insert(CONTENT_TYPE, json);
    if let Some(credentials) = credentials {
        let (name, value) =
            secret_header(AUTHORIZATION, credentials).map_err(ExportError::Header)?;
        headers.insert(name, value);
    }
    Ok(headers)
}

impl Exporter {
    /// Exports the stored profile of a request, and returns the results.
    pub(crate) async fn tell(
        &self,
        collector: &Collector,
        request: &ProfileRequest,
        limits: &AdminLimits,
    ) -> Vec<Exported> {
        let until = Instant::now() + self.patience;
        let Ok(_place) = self.places.try_acquire() else {
            let note = format!("{WAITING} others are waiting to be sent");
            return vec![Exported::failed(EventReason::NotSent, note)];
        };
        let (pushed, annotated) = tokio::join!(
            self.push(collector, request, limits, until),
            self.annotate(request, until)
        );
        pushed.into_iter().chain(annotated).collect()
    }

    /// Whether no service gets results.
    pub fn is_empty(&self) -> bool {
        self.pyroscope.is_none() && self.otlp.is_none() && self.annotations.is_none()
    }

    /// The pushes go on at the same time, so that a receiver that does not answer delays no other.
    async fn push(
        &self,
        collector: &Collector,
        request: &ProfileRequest,
        limits: &AdminLimits,
        until: Instant,
    ) -> Vec<Exported> {
        let by_otlp = async {
            // A snapshot is not a sum of samples, and has labels that only it has. What is in heaps
            // has no time at all.
            let is_snapshot =
                [ProfileMode::Snapshot, ProfileMode::Heap].contains(&request.spec.mode);
            let otlp = self.otlp.as_ref().filter(|_| !is_snapshot)?;
            let _turn = self.turns.otlp.acquire().await;
            let _room = self.room_for(collector, request, limits).await;
            let merged = collector.merged(request, limits).await;
            let pushed = otlp.push(&self.client, collector, merged, request, until);
            Some(pushed.await)
        };
        let to_pyroscope = self.push_series(collector, request, limits, until);
        let (to_pyroscope, by_otlp) = tokio::join!(to_pyroscope, by_otlp);
        to_pyroscope.into_iter().chain(by_otlp).collect()
    }

    /// Waits until the file of the merged profile has room. That of the other receiver's turn only
    /// delays it if both together are larger than the largest one.
    async fn room_for(
        &self,
        collector: &Collector,
        request: &ProfileRequest,
        limits: &AdminLimits,
    ) -> Option<SemaphorePermit<'_>> {
        let size = collector.merged_size(request, limits).await;
        let units = size.div_ceil(ROOM_UNIT).max(1);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        self.room.acquire_many(units).await.ok()
    }

    async fn push_series(
        &self,
        collector: &Collector,
        request: &ProfileRequest,
        limits: &AdminLimits,
        until: Instant,
    ) -> Option<Exported> {
        // Its series are of CPU and wall time, which what is in heaps does not have.
        let is_of_heaps = request.spec.mode == ProfileMode::Heap;
        let pyroscope = self.pyroscope.as_ref().filter(|_| !is_of_heaps)?;
        let _turn = self.turns.pyroscope.acquire().await;
        let _room = self.room_for(collector, request, limits).await;
        let series = series::series(request, &pyroscope.naming);
        let wanted = series.len();
        let host = pyroscope.push.authority();
        let mut taken = 0;
        let sent = async {
            let merged = collector.merged(request, limits).await?;
            for one in series {
                let request = request.clone();
                let bodies = collector
                    .look(merged.clone(), move |profile| {
                        series::bodies(profile, &one, &request)
                    })
                    .await?;
                let bodies = bodies.map_err(|error| error.to_string())?;
                for body in bodies {
                    let call = ExportCall {
                        url: pyroscope.push.clone(),
                        headers: pyroscope.headers.clone(),
                        body: Bytes::from(body),
                        is_temporary,
                        refusal: accepts_all,
                    };
                    let sent = deliver(&self.client, &call, until).await;
                    sent.map_err(|error| error.to_string())?;
                }
                taken += 1;
            }
            Ok::<(), String>(())
        };
        let sent = sent.await;
        Some(match sent {
            Ok(()) => {
                let note = format!("{wanted} series pushed to {host}");
                Exported::done(EventReason::Pushed, note)
            }
            Err(error) => {
                let note = format!("{taken} of {wanted} series pushed to {host}: {error}");
                Exported::failed(EventReason::PushFailed, note)
            }
        })
    }

    async fn annotate(&self, request: &ProfileRequest, until: Instant) -> Option<Exported> {
        let annotations = self.annotations.as_ref()?;
        let body = annotation(request, annotations.dashboard.as_deref())?;
        let call = ExportCall {
            url: annotations.url.clone(),
            headers: annotations.headers.clone(),
            body: Bytes::from(body.to_string()),
            is_temporary,
            refusal: accepts_all,
        };
        let host = annotations.url.authority();
        Some(match deliver(&self.client, &call, until).await {
            Ok(()) => {
                let note = format!("annotated in Grafana at {host}");
                Exported::done(EventReason::Annotated, note)
            }
            Err(error) => {
                let note = format!("not annotated in Grafana at {host}: {error}");
                Exported::failed(EventReason::AnnotationFailed, note)
            }
        })
    }
}

#[cfg(test)]
mod tests;
