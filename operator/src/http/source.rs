//! Compares the address that uses a grant with the addresses of the grant's pod.
//!
//! A grant is in a pod's spec, where others may read it. So the grant contains the addresses of its
//! pod. This file only decides.

use std::net::IpAddr;

/// A pod has one address of each family. Addresses beyond this number are dropped.
const MOST: usize = 4;

/// What the operator does about a grant that comes from an address that is not its pod's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum VerifySource {
    /// It is refused.
    #[value(name = "Enforce")]
    Enforce,
    /// The log says so. Masquerading and meshes change what an address is seen as, so this is the
    /// default.
    #[default]
    #[value(name = "Warn")]
    Warn,
    /// Nothing is compared.
    #[value(name = "Off")]
    Off,
}

/// A pod's addresses in the form that a grant contains. Empty if the pod had none yet, or if an
/// older operator made the grant.
#[must_use]
pub fn named(addresses: &[IpAddr]) -> String {
    let names: Vec<_> = addresses
        .iter()
        .take(MOST)
        .map(|address| address.to_canonical().to_string())
        .collect();
    names.join(",")
}

/// Why a peer is not the pod of a grant; `None` if it is, or if the grant contains no address.
#[must_use]
pub fn mismatch(peer: IpAddr, named: &str) -> Option<String> {
    let peer = peer.to_canonical();
    let is_own = |name: &str| name.parse() == Ok(peer);
    let is_fine = named.is_empty() || named.split(',').any(is_own);
    (!is_fine).then(|| format!("{peer} is not {named}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_holds_for_all_its_pods_addresses() {
        let addresses = ["10.244.0.5", "fd00::5"].map(|address| address.parse().unwrap());
        let named = named(&addresses);
        assert_eq!(named, "10.244.0.5,fd00::5");
        let judge = |peer: &str| mismatch(peer.parse().unwrap(), &named);
        // A socket of both families shows IPv4 peers in the second form.
        for own in ["10.244.0.5", "::ffff:10.244.0.5", "fd00::5"] {
            assert_eq!(judge(own), None);
        }
        let words = "10.244.0.50 is not 10.244.0.5,fd00::5";
        assert_eq!(judge("10.244.0.50"), Some(words.to_owned()));
    }

    #[test]
    fn a_grant_without_addresses_accepts_any_source() {
        assert_eq!(mismatch("10.0.0.1".parse().unwrap(), &named(&[])), None);
    }
}
