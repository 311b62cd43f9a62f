//! The HTTP client of a bucket: its provider of TLS, whom it trusts, and its deadlines.

use std::time::Duration;

use object_store::{Certificate, ClientOptions};

use super::OpenError;

/// What the clients of a bucket need. The binary has it already; in a test, whoever opens a store
/// first has not.
pub(super) fn provide_tls() {
    // Only a second call fails.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

/// The webpki roots are in the binary, because its image has no certificates.
pub(super) fn options(ca_bundle: Option<&str>) -> Result<ClientOptions, OpenError> {
    let mut options = ClientOptions::new()
        .with_no_system_certificates(true)
        .with_connect_timeout(Duration::from_secs(3))
        .with_read_timeout(Duration::from_secs(10))
        .with_timeout(Duration::from_secs(60));
    for root in webpki_root_certs::TLS_SERVER_ROOT_CERTS {
        options = options
            .with_root_certificate(Certificate::from_der(root).map_err(OpenError::CaBundle)?);
    }
    if let Some(pem) = ca_bundle {
        for root in Certificate::from_pem_bundle(pem.as_bytes()).map_err(OpenError::CaBundle)? {
            options = options.with_root_certificate(root);
        }
    }
    Ok(options)
}
