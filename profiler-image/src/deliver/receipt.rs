//! The sampler's receipt: one line of at most 120 bytes, and an exit code (`contract/README.md`).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::grants::DeliveryRoute;
use crate::failure::Reason;

/// The kubelet limits the termination messages of a pod to 12,288 bytes, divided by its containers.
const MAX_BYTES: usize = 120;

#[derive(Serialize)]
struct StoredReceipt<'a> {
    reason: Reason,
    samples: u64,
    size: usize,
    sha256: &'a str,
}

#[derive(Serialize)]
struct FailureReceipt<'a> {
    reason: Reason,
    #[serde(skip_serializing_if = "str::is_empty")]
    detail: &'a str,
}

/// The receipt of a stored profile. `sha256` is base64url without padding. The reason names the
/// route: there is no room for another field.
#[must_use]
pub fn stored(route: DeliveryRoute, samples: u64, size: usize, sha256: &str) -> String {
    line(&StoredReceipt {
        reason: match route {
            DeliveryRoute::Direct => Reason::Uploaded,
            DeliveryRoute::Relay => Reason::Relayed,
        },
        samples,
        size,
        sha256,
    })
}

/// The receipt of a run that stored nothing. The detail is cut so that the line fits.
#[must_use]
pub fn failed(reason: Reason, detail: &str) -> String {
    // Only characters that JSON does not escape, so that each takes one byte.
    let detail: String = detail
        .chars()
        .map(|c| {
            if c.is_ascii_graphic() && !matches!(c, '"' | '\\') {
                c
            } else {
                ' '
            }
        })
        .collect();
    let room = MAX_BYTES
        - line(&FailureReceipt {
            reason,
            detail: "-",
        })
        .len()
        + 1;
    let cut = detail.get(..room.min(detail.len())).unwrap_or_default();
    line(&FailureReceipt {
        reason,
        detail: cut.trim(),
    })
}

fn line(receipt: &impl Serialize) -> String {
    serde_json::to_string(receipt).unwrap_or_default()
}

/// Whether a line has the form of a receipt: short, and JSON with a reason.
#[must_use]
pub fn is_receipt(line: &str) -> bool {
    #[derive(Deserialize)]
    struct AnyReceipt {
        #[serde(rename = "reason")]
        _reason: String,
    }
    line.len() <= MAX_BYTES && serde_json::from_str::<AnyReceipt>(line).is_ok()
}

/// RFC 4648 section 5, without padding.
#[must_use]
pub fn base64url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SHA256: &str = "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU";

    #[test]
    fn receipts_are_those_of_the_contract() {
        let ours = [
            stored(DeliveryRoute::Direct, 2970, 12345, SHA256),
            stored(DeliveryRoute::Direct, 4_294_967_295, 33_554_432, SHA256),
            stored(DeliveryRoute::Relay, 2970, 12345, SHA256),
            failed(Reason::NotAfterPassed, ""),
            failed(Reason::NoPhpFound, ""),
            failed(Reason::UnsupportedVersion, "9.2.29"),
            failed(Reason::UploadDeadlineExceeded, "connection refused"),
            failed(Reason::NoEngineSymbols, "/usr/local/bin/php"),
            failed(
                Reason::LayoutMismatch,
                "EG(function_table) is not a hash table",
            ),
            failed(
                Reason::PermissionDenied,
                "pid 7 is 33:33, phpprof is 1000:1000",
            ),
            failed(Reason::FileCapabilities, "pid 7"),
            failed(Reason::NotDumpable, "pid 7"),
            failed(Reason::YamaRestricted, "kernel.yama.ptrace_scope=1"),
            failed(
                Reason::SeccompRestricted,
                "process_vm_readv and /proc/7/mem",
            ),
            failed(Reason::OtherUserNamespace, "pid 7"),
            failed(Reason::GVisor, "pid 7 (call: ENOSYS, file: EACCES)"),
            failed(Reason::Cancelled, ""),
            failed(Reason::SourceNotPod, "192.0.2.7 is not 10.244.0.5"),
            failed(Reason::RelayUnreachable, "connection refused"),
            failed(Reason::LeaseEnded, ""),
        ];
        assert_eq!(
            ours.join("\n") + "\n",
            include_str!("../../../contract/receipts.jsonl")
        );
    }

    /// The rows of the contract's table, each as a reason and its exit code.
    fn contract() -> Vec<(String, u8)> {
        let page = include_str!("../../../contract/README.md").lines();
        let table = page
            .skip_while(|line| !line.starts_with("| exit code |"))
            .take_while(|line| line.starts_with('|'));
        let rows = table.filter_map(|line| {
            let mut cells = line.strip_prefix("| ")?.split(" | ");
            Some((cells.next()?.parse::<u8>().ok()?, cells.next()?))
        });
        let named = |(code, reasons): (u8, &str)| {
            let names: Vec<_> = reasons.split(", ").map(str::to_owned).collect();
            names
                .into_iter()
                .map(move |name| (name.trim_matches('`').to_owned(), code))
        };
        rows.flat_map(named).collect()
    }

    #[test]
    fn exit_codes_are_those_of_the_contract() {
        let ours: Vec<(String, u8)> = Reason::ALL
            .iter()
            .map(|reason| (format!("{reason:?}"), reason.exit_code()))
            .collect();
        assert_eq!(contract(), ours);
    }

    #[test]
    fn the_longest_receipt_fits() {
        assert!(
            stored(DeliveryRoute::Direct, u64::from(u32::MAX), 32 << 20, SHA256).len() <= MAX_BYTES
        );
    }

    proptest! {
        #[test]
        fn any_detail_fits(detail in ".{0,300}") {
            let line = failed(Reason::UploadDeadlineExceeded, &detail);
            prop_assert!(line.len() <= MAX_BYTES);
            prop_assert!(serde_json::from_str::<serde_json::Value>(&line).is_ok());
        }
    }
}
