//! Waiting until something is so.
//!
//! Invariant: each wait ends, and its error says what was waited for.

use std::time::Duration;

use anyhow::{Context as _, Result};

/// Asks repeatedly until there is an answer.
pub async fn poll<T>(
    what: &str,
    limit: Duration,
    mut ask: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let asking = async {
        loop {
            if let Some(answer) = ask().await? {
                return Ok(answer);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(limit, asking)
        .await
        .with_context(|| format!("waited {limit:?} for this: {what}"))?
}
