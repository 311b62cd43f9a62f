//! Exports outside the cluster: links, the pushes to Pyroscope and by OTLP, the annotation in
//! Grafana.

pub(crate) mod exported;
pub mod exporter;
mod grafana;
pub mod links;
mod otlp;
#[cfg(test)]
pub(crate) mod receivers;
mod retry;
mod series;
