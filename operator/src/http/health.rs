//! /healthz, /readyz and /metrics on a port of their own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::{StatusCode, header::CONTENT_TYPE};
use axum::{Router, extract::State, routing::get};

use crate::http::connections::{self, Bounds, plain};
use crate::http::listen::listen;
use crate::metrics::PortMetrics;

pub(crate) const BOUNDS: Bounds = Bounds::new(64, Duration::from_secs(60), 16 << 10);

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Whether all requests have been listed once.
#[derive(Clone, Default)]
pub struct Readiness(Arc<AtomicBool>);

impl Readiness {
    /// From now on `/readyz` answers 200.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Serves until the process ends.
pub async fn serve(
    address: SocketAddr,
    readiness: Readiness,
    metrics: impl Fn() -> String + Clone + Send + Sync + 'static,
    connections: PortMetrics,
) -> std::io::Result<()> {
    let told = move || async move { ([(CONTENT_TYPE, OPEN_METRICS)], metrics()) };
    let router = Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/metrics", get(told))
        .route("/readyz", get(ready))
        .with_state(readiness);
    let listener = listen(address).await?;
    match connections::serve(listener, plain(), BOUNDS, router, connections).await {}
}

async fn ready(State(readiness): State<Readiness>) -> StatusCode {
    if readiness.0.load(Ordering::Relaxed) {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    }
}
