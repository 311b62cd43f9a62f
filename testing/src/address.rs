//! Where a server of a test listens on this machine.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::Result;

use crate::wait::wait_for;

/// An address that is free now; no test uses fixed ports.
///
/// # Errors
/// Those of the socket.
pub fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// Waits until something listens there.
///
/// # Errors
/// As [`wait_for`].
pub fn wait_for_listener(address: SocketAddr) -> Result<()> {
    let what = format!("server at {address}");
    wait_for(&what, || Ok(TcpStream::connect(address).ok())).map(drop)
}

/// The same for a socket in the file system.
///
/// # Errors
/// As [`wait_for`].
pub fn wait_for_socket(path: &Path) -> Result<()> {
    let what = format!("server at {}", path.display());
    wait_for(&what, || Ok(UnixStream::connect(path).ok())).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_for_listener_returns_once_it_listens() -> Result<()> {
        let address = free_address()?;
        let listener = TcpListener::bind(address)?;
        wait_for_listener(address)?;
        drop(listener);
        Ok(())
    }
}
