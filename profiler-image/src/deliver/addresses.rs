//! Addresses of the relay in addition to its name, for pods that cannot resolve it: in the node's
//! network, with DNS servers of their own, or with a list of search domains that is too long for
//! the resolver.
//!
//! The server is identified by its key, so it does not matter how its address was found.
//!
//! Invariant: the name is tried first, within [`LOOK_UP`], until it has failed once and an address
//! has worked.

use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use nix::sys::signal::SigSet;

/// The environment variable with the addresses, separated by commas. Operators before it set none,
/// and samplers before it ignore it.
pub const RELAY_ADDRESSES: &str = "PHPPROF_RELAY_ADDRESSES";
/// A Service has two at most.
const AT_MOST: usize = 4;
const CONNECT: Duration = Duration::from_secs(3);
/// A resolver that reaches no server takes longer: musl gives up after ten seconds.
const LOOK_UP: Duration = Duration::from_secs(2);
const STACK: usize = 128 << 10;

/// The relay's addresses. Clones share what was learned of the name.
#[derive(Debug, Clone, Default)]
pub struct ResolvedRelay(Arc<KnownAddresses>);

#[derive(Debug, Default)]
struct KnownAddresses {
    given: Vec<IpAddr>,
    /// The name has failed, and an address has worked.
    is_name_useless: AtomicBool,
}

impl ResolvedRelay {
    /// Reads the variable. What is no address is left out.
    #[must_use]
    pub fn parse(text: Option<&str>) -> Self {
        let words = text.unwrap_or_default().split(',');
        let given = words.filter_map(|word| word.trim().parse().ok());
        Self::of(given.take(AT_MOST).collect())
    }

    /// These addresses.
    #[must_use]
    pub fn of(given: Vec<IpAddr>) -> Self {
        Self(Arc::new(KnownAddresses {
            given,
            is_name_useless: AtomicBool::new(false),
        }))
    }

    /// The addresses as they were given.
    #[must_use]
    pub fn given(&self) -> &[IpAddr] {
        &self.0.given
    }

    /// Connects to a host by its name, then by the addresses.
    ///
    /// # Errors
    /// What was tried, and why it failed.
    pub fn connect(&self, host: &str, port: u16) -> Result<TcpStream, String> {
        let mut failures = Vec::new();
        let named = if self.0.is_name_useless.load(Ordering::Relaxed) {
            Vec::new()
        } else {
            self.look_up(host, port).unwrap_or_else(|why| {
                failures.push(format!("{host}: {why}"));
                Vec::new()
            })
        };
        let given = self.0.given.iter().map(|ip| SocketAddr::new(*ip, port));
        let given = given.filter(|address| !named.contains(address));
        let named_ones = named.iter().copied().map(|address| (address, true));
        for (address, is_named) in named_ones.chain(given.map(|address| (address, false))) {
            match TcpStream::connect_timeout(&address, CONNECT) {
                Ok(stream) => {
                    if !is_named {
                        self.0.is_name_useless.store(true, Ordering::Relaxed);
                    }
                    return Ok(stream);
                }
                Err(error) => failures.push(format!("{address}: {}", error.kind())),
            }
        }
        // Whatever was learned of the name is in doubt.
        self.0.is_name_useless.store(false, Ordering::Relaxed);
        Err(failures.join(", "))
    }

    /// Resolves a name. If there are other addresses, it does not wait longer than [`LOOK_UP`].
    fn look_up(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
        if self.0.given.is_empty() {
            return resolve(host, port);
        }
        let (sender, receiver) = mpsc::channel();
        let name = host.to_owned();
        let resolver = std::thread::Builder::new()
            .name("resolver".to_owned())
            .stack_size(STACK)
            .spawn(move || {
                // Signals are for the thread that samples.
                let _ = SigSet::all().thread_block();
                // Nobody may listen any more.
                drop(sender.send(resolve(&name, port)));
            });
        match resolver {
            Err(error) => Err(error.kind().to_string()),
            Ok(_) => receiver
                .recv_timeout(LOOK_UP)
                .unwrap_or_else(|_| Err("the name server does not answer".to_owned())),
        }
    }
}

fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    match (host, port).to_socket_addrs() {
        Ok(found) => Ok(found.take(AT_MOST).collect()),
        Err(error) => {
            let words = error.to_string();
            // Before it stands only that a look-up failed.
            let why = words.rsplit(": ").next().unwrap_or_default();
            Err(why.to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// RFC 6761: no resolver knows it.
    const UNKNOWN: &str = "relay.phpprof.invalid";

    #[test]
    fn addresses_are_read_and_others_left_out() {
        let check = |text, expected: &[&str]| {
            let found = ResolvedRelay::parse(text);
            let found: Vec<String> = found.given().iter().map(IpAddr::to_string).collect();
            assert_eq!(found, expected, "{text:?}");
        };
        check(None, &[]);
        check(Some("10.96.0.5"), &["10.96.0.5"]);
        check(Some("10.96.0.5,fd00::5, "), &["10.96.0.5", "fd00::5"]);
        check(Some("x,[fd00::5],10.96.0.5:8443"), &[]);
        check(Some("::1,::2,::3,::4,::5"), &["::1", "::2", "::3", "::4"]);
    }

    #[test]
    fn the_addresses_of_the_contract_are_understood() {
        for golden in [
            include_str!("../../../contract/env.json"),
            include_str!("../../../contract/resident.json"),
        ] {
            let golden: serde_json::Value = serde_json::from_str(golden).unwrap();
            let inner = golden.get("environment").unwrap_or(&golden);
            let found = ResolvedRelay::parse(inner[RELAY_ADDRESSES].as_str());
            let families: Vec<bool> = found.given().iter().map(IpAddr::is_ipv6).collect();
            assert_eq!(families, [false, true]);
        }
    }

    #[test]
    fn unknown_host_is_reached_by_address() {
        for ip in ["127.0.0.1", "::1"] {
            let Ok(server) = TcpListener::bind((ip, 0)) else {
                // Without IPv6 there is nothing to reach.
                assert_eq!(ip, "::1");
                continue;
            };
            let port = server.local_addr().unwrap().port();
            let addresses = ResolvedRelay::parse(Some(ip));
            assert!(addresses.connect(UNKNOWN, port).is_ok());
            // The second time it loses no time with the name.
            assert!(addresses.clone().0.is_name_useless.load(Ordering::Relaxed));
            drop(server);
            let why = addresses.connect(UNKNOWN, port).unwrap_err();
            assert!(!why.contains(UNKNOWN), "{why}");
            assert!(!addresses.0.is_name_useless.load(Ordering::Relaxed));
        }
    }

    #[test]
    fn a_failure_names_the_name_and_each_address() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let nobody = ResolvedRelay::default().connect(UNKNOWN, port).unwrap_err();
        assert!(nobody.starts_with(&format!("{UNKNOWN}: ")), "{nobody}");
        let both = ResolvedRelay::parse(Some("127.0.0.1")).connect(UNKNOWN, port);
        let both = both.unwrap_err();
        let last = format!(", 127.0.0.1:{port}: connection refused");
        assert!(both.starts_with(UNKNOWN) && both.ends_with(&last), "{both}");
    }

    #[test]
    fn a_name_that_works_is_used() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        let addresses = ResolvedRelay::parse(Some("192.0.2.1"));
        assert!(addresses.connect("127.0.0.1", port).is_ok());
        assert!(!addresses.0.is_name_useless.load(Ordering::Relaxed));
    }
}
