//! What a sampler says about a store's certificate, over real TLS.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::{CertifiedKey, Signer, SigningKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, ServerConnection, SignatureAlgorithm, SignatureScheme, Stream};

use crate::deliver::grants::{DeliveryRoute, WriteGrant};
use crate::deliver::put::{PutVerdict, agents, put};

/// A store with this certificate. It answers 200 to what it understands.
fn store(certificate: &rcgen::Certificate, key: &KeyPair) -> SocketAddr {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key.into())
        .unwrap();
    serve(config)
}

/// Made by `openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-521 -nodes -subj
/// /CN=localhost -days 36500`.
const OF_P521: &str = include_str!("p521.pem");

/// A key on P-521, as far as a client sees it before it judges the signature: ring makes none.
#[derive(Debug)]
struct KeyOnP521;

impl SigningKey for KeyOnP521 {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let is_offered = offered.contains(&SignatureScheme::ECDSA_NISTP521_SHA512);
        is_offered.then(|| Box::new(KeyOnP521) as Box<dyn Signer>)
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ECDSA
    }
}

impl Signer for KeyOnP521 {
    fn sign(&self, _: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        Ok(vec![0; 132])
    }

    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::ECDSA_NISTP521_SHA512
    }
}

fn store_on_p521(versions: &[&'static rustls::SupportedProtocolVersion]) -> SocketAddr {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let certificate = CertificateDer::from_pem_slice(OF_P521.as_bytes()).unwrap();
    let key = CertifiedKey::new(vec![certificate], Arc::new(KeyOnP521));
    let config = ServerConfig::builder_with_protocol_versions(versions)
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
    serve(config)
}

fn serve(config: ServerConfig) -> SocketAddr {
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

fn put_to(address: SocketAddr, trusted: &rcgen::Certificate) -> PutVerdict {
    let grant = WriteGrant {
        route: DeliveryRoute::Direct,
        method: "PUT".into(),
        url: format!("https://localhost:{}/a", address.port()),
        headers: [].into(),
        stop: String::new(),
        live: String::new(),
        pins: Vec::new(),
        addresses: Default::default(),
        sends_md5: false,
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
        PutVerdict::Stored
    );
}

#[test]
fn what_is_wrong_is_said_of_each_certificate() {
    let check = |address, trusted: &rcgen::Certificate, expected| {
        assert_eq!(
            put_to(address, trusted),
            PutVerdict::CertificateUntrusted(expected)
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
fn a_key_on_p521_is_named() {
    let (trusted, _, _) = authority(&[]);
    let verdict = put_to(store_on_p521(&[&TLS13]), &trusted);
    assert_eq!(verdict, PutVerdict::CertificateUntrusted(super::P521));
    // With TLS 1.2, rustls's server ends without an alert; OpenSSL's and Go's send the same one.
    for versions in [&[&TLS13][..], &[&TLS12]] {
        let port = store_on_p521(versions).port();
        assert_eq!(super::look::curve("localhost", port), Some(super::P521));
    }
}

#[test]
fn a_look_names_no_other_key() {
    let (_, params, key) = authority(&[]);
    let (certificate, key) = signed("localhost", params, key);
    let port = |address: SocketAddr| address.port();
    let other = port(store(&certificate, &key));
    assert_eq!(super::look::curve("localhost", other), None);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().unwrap();
    assert_eq!(super::look::curve("localhost", port(silent)), None);
}

#[test]
fn a_ca_on_p521_is_named() {
    let certificate = CertificateDer::from_pem_slice(OF_P521.as_bytes()).unwrap();
    let parsed = rustls::server::ParsedCertificate::try_from(&certificate).unwrap();
    let error = |id: &[u8]| {
        rustls::Error::InvalidCertificate(
            rustls::CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext {
                signature_algorithm_id: Vec::new(),
                public_key_algorithm_id: id.to_vec(),
            },
        )
    };
    let by_p521 = error(&parsed.subject_public_key_info());
    let said = super::what_is_wrong(&by_p521);
    assert_eq!(said, Some(super::SIGNED_BY_P521));
    assert_eq!(super::what_is_wrong(&error(&[])), Some(super::UNSUPPORTED));
}

#[test]
fn what_is_wrong_fits_a_receipt() {
    for words in [super::P521, super::SIGNED_BY_P521, super::UNSUPPORTED] {
        assert!(words.len() <= 60, "{words}");
    }
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
