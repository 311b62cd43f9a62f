//! The addresses of the relay's Service, which samplers try where its name is unknown.
//!
//! The operator resolves the name itself, so it needs no right to read Services. A sampler checks
//! the relay's key at any address.
//!
//! Invariant: it never delays a grant by more than [`LOOK_UP`], and keeps the last addresses while
//! the name cannot be resolved.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use url::Url;

const LOOK_UP: Duration = Duration::from_secs(2);
/// A Service keeps its addresses for its life, so this only matters if it is made again.
const KEPT: Duration = Duration::from_secs(60);
/// After a failure.
const AGAIN: Duration = Duration::from_secs(5);
/// A Service has one address of each family.
const MOST: usize = 4;

/// The relay's host, and its addresses as last resolved.
pub struct RelayAddresses {
    /// Empty if the URL has an address: then there is nothing to add.
    host: String,
    known: Mutex<KnownService>,
}

#[derive(Default)]
struct KnownService {
    addresses: Vec<IpAddr>,
    /// When the name is resolved again.
    again: Option<Instant>,
}

impl RelayAddresses {
    /// Those of the relay at this URL.
    #[must_use]
    pub fn of(url: &str) -> Self {
        let parsed = Url::parse(url).ok();
        let host = parsed.as_ref().and_then(Url::domain).unwrap_or_default();
        Self {
            host: host.to_owned(),
            known: Mutex::default(),
        }
    }

    /// The addresses, of either family.
    pub async fn get(&self) -> Vec<IpAddr> {
        if self.host.is_empty() {
            return Vec::new();
        }
        let mut known = self.known.lock().await;
        let now = Instant::now();
        if known.again.is_none_or(|again| again <= now) {
            let found = look_up(&self.host).await;
            known.again = Some(now + if found.is_ok() { KEPT } else { AGAIN });
            match found {
                Ok(addresses) => known.addresses = addresses,
                Err(why) => tracing::warn!(
                    host = self.host,
                    why,
                    "the relay's name cannot be resolved; samplers get the last known addresses"
                ),
            }
        }
        known.addresses.clone()
    }
}

async fn look_up(host: &str) -> Result<Vec<IpAddr>, String> {
    match timeout(LOOK_UP, tokio::net::lookup_host((host, 0))).await {
        Ok(Ok(found)) => {
            let unique: BTreeSet<IpAddr> = found.map(|address| address.ip()).collect();
            Ok(unique.into_iter().take(MOST).collect())
        }
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", LOOK_UP.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_a_name_needs_resolving() {
        let found = RelayAddresses::of("https://localhost:8443").get().await;
        assert!(
            found.iter().all(IpAddr::is_loopback) && !found.is_empty(),
            "{found:?}"
        );
        for url in ["https://10.96.0.5:8443", "https://[fd00::5]:8443", "relay"] {
            assert_eq!(RelayAddresses::of(url).get().await, Vec::<IpAddr>::new());
        }
    }

    #[tokio::test]
    async fn an_unresolved_name_keeps_its_addresses() {
        let addresses = RelayAddresses::of("https://relay.phpprof.invalid:8443");
        assert!(addresses.get().await.is_empty());
        let last: Vec<IpAddr> = vec!["10.96.0.5".parse().unwrap()];
        *addresses.known.lock().await = KnownService {
            addresses: last.clone(),
            again: None,
        };
        assert_eq!(addresses.get().await, last);
    }
}
