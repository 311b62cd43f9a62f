//! Exports outside the cluster: links, the push to Pyroscope, the annotation in Grafana.

pub mod exporter;
mod grafana;
pub mod links;
#[cfg(test)]
pub(crate) mod receivers;
mod retry;
mod series;
