//! What a sampler says about a store's certificate, over real TLS.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ServerConfig, ServerConnection, Stream};

use crate::deliver::grants::{Grant, UploadRoute};
use crate::deliver::put::{Verdict, agents, put};

/// A store with this certificate. It answers 200 to what it understands.
fn store(certificate: &rcgen::Certificate, key: &KeyPair) -> SocketAddr {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key.into())
        .unwrap();
    let (config, listener) = (Arc::new(config), TcpListener::bind("127.0.0.1:0").unwrap());
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            let mut connection = ServerConnection::new(config.clone()).unwrap();
            let mut stream = Stream::new(&mut connection, &mut socket);
            let mut question = [0; 4096];
            if stream.read(&mut question).is_ok() {
                let _ = stream.write_all(
                    b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
                );
            }
        }
    });
    address
}

fn put_to(address: SocketAddr, trusted: &rcgen::Certificate) -> Verdict {
    let grant = Grant {
        route: UploadRoute::Direct,
        method: "PUT".into(),
        url: format!("https://localhost:{}/a", address.port()),
        headers: [].into(),
        stop: String::new(),
        live: String::new(),
        pins: Vec::new(),
        addresses: Default::default(),
    };
    put(&agents(Some(&trusted.pem())).unwrap(), &grant, b"profile")
}

/// A CA, or a server's certificate that is its own authority.
fn authority(names: &[&str]) -> (rcgen::Certificate, CertificateParams, KeyPair) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    (certificate, params, key)
}

/// A server's certificate for this name, signed by an authority.
fn signed(name: &str, params: CertificateParams, key: KeyPair) -> (rcgen::Certificate, KeyPair) {
    let issuer = Issuer::new(params, key);
    let own = KeyPair::generate().unwrap();
    let server = CertificateParams::new(vec![name.to_owned()]).unwrap();
    (server.signed_by(&own, &issuer).unwrap(), own)
}

#[test]
fn a_certificate_of_the_private_ca_is_trusted() {
    let (authority, params, key) = authority(&[]);
    let (certificate, key) = signed("localhost", params, key);
    assert_eq!(
        put_to(store(&certificate, &key), &authority),
        Verdict::Stored
    );
}

#[test]
fn what_is_wrong_is_said_of_each_certificate() {
    let check = |address, trusted: &rcgen::Certificate, expected| {
        assert_eq!(
            put_to(address, trusted),
            Verdict::CertificateUntrusted(expected)
        );
    };
    let (own, _, key) = authority(&["localhost"]);
    let expected = "it is a CA's own (CA:TRUE), not a server's";
    check(store(&own, &key), &own, expected);
    let (_, params, other_key) = authority(&[]);
    let (certificate, key) = signed("localhost", params, other_key);
    check(store(&certificate, &key), &own, "no trusted CA signed it");
    let (trusted, params, trusted_key) = authority(&[]);
    let (certificate, key) = signed("s3.example.org", params, trusted_key);
    check(
        store(&certificate, &key),
        &trusted,
        "it is for another name",
    );
}

#[test]
fn what_is_wrong_fits_a_receipt() {
    // A receipt has 120 bytes, 60 of which are not the detail.
    for error in [
        rustls::CertificateError::UnknownIssuer,
        rustls::CertificateError::Expired,
        rustls::CertificateError::NotValidYet,
        rustls::CertificateError::NotValidForName,
        rustls::CertificateError::BadEncoding,
    ] {
        let words = super::what_is_wrong(&rustls::Error::InvalidCertificate(error)).unwrap();
        assert!(words.len() <= 60, "{words}");
    }
    let alert = rustls::Error::AlertReceived(rustls::AlertDescription::HandshakeFailure);
    assert_eq!(super::what_is_wrong(&alert), Some(super::UNSUPPORTED));
    let other = rustls::Error::AlertReceived(rustls::AlertDescription::InternalError);
    assert_eq!(super::what_is_wrong(&other), None);
}
