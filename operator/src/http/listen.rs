//! Listening on a port, for clients of both families where the machine has IPv6.
//!
//! Invariant: an address of IPv4 or a special one is used as it is; only the wildcard of IPv6 falls
//! back, to that of IPv4.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use tokio::net::TcpListener;

/// Linux's wildcard of IPv6 takes clients of IPv4 too (`net.ipv6.bindv6only` is 0 by default). A
/// kernel without IPv6 has no such sockets.
pub async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address).await;
    let is_wildcard = address.is_ipv6() && address.ip().is_unspecified();
    match listener {
        Err(error) if is_wildcard && is_without_ipv6(&error) => {
            let ip = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
            TcpListener::bind(SocketAddr::new(ip, address.port())).await
        }
        listener => listener,
    }
}

fn is_without_ipv6(error: &io::Error) -> bool {
    /// EAFNOSUPPORT of Linux, for which `ErrorKind` has no name.
    const NO_SUCH_FAMILY: i32 = 97;
    error.raw_os_error() == Some(NO_SUCH_FAMILY) || error.kind() == io::ErrorKind::AddrNotAvailable
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn the_wildcard_takes_clients_of_both_families() {
        let listener = listen("[::]:0".parse().unwrap()).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(TcpStream::connect(("127.0.0.1", port)).await.is_ok());
        if std::net::TcpListener::bind("[::1]:0").is_ok() {
            assert!(TcpStream::connect(("::1", port)).await.is_ok());
        }
    }

    #[tokio::test]
    async fn a_port_that_is_taken_is_an_error() {
        let taken = listen("[::]:0".parse().unwrap()).await.unwrap();
        let address = taken.local_addr().unwrap();
        assert!(listen(address).await.is_err());
    }
}
