//! Certificates of all kinds, by the openssl command.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A certificate authority in a folder.
pub struct Authority {
    pub folder: PathBuf,
}

/// A certificate and its key, in PEM files.
#[derive(Clone)]
pub struct Pair {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

pub const SERVER: &str = "basicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n";
pub const CLIENT: &str = "basicConstraints=CA:FALSE\nextendedKeyUsage=clientAuth\n";

/// Options of `openssl genpkey`.
pub const P256: &[&str] = &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"];
pub const P384: &[&str] = &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384"];
pub const P521: &[&str] = &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-521"];
pub const ED25519: &[&str] = &["-algorithm", "ED25519"];
pub const RSA_1024: &[&str] = &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:1024"];
pub const RSA_2048: &[&str] = &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"];
pub const RSA_4096: &[&str] = &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:4096"];

pub fn openssl(arguments: &[&str]) {
    let output = Command::new("openssl").args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "openssl {}: {said}",
        arguments.join(" ")
    );
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

impl Authority {
    pub fn new(folder: &Path, kind: &[&str]) -> Self {
        let authority = Authority {
            folder: folder.to_owned(),
        };
        authority.key("ca", kind);
        let (key, certificate) = (folder.join("ca.key"), folder.join("ca.crt"));
        openssl(&[
            "req",
            "-x509",
            "-new",
            "-key",
            text(&key),
            "-days",
            "2",
            "-subj",
            "/CN=phpprof-test-ca",
            "-addext",
            "keyUsage=critical,keyCertSign",
            "-out",
            text(&certificate),
        ]);
        authority
    }

    pub fn certificate(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    fn key(&self, name: &str, kind: &[&str]) -> PathBuf {
        let path = self.folder.join(format!("{name}.key"));
        openssl(&[&["genpkey", "-out", text(&path)], kind].concat());
        path
    }

    /// Signs a certificate. Without extensions, OpenSSL 3.0 makes it version 1; later ones would
    /// need `-x509v1`.
    pub fn pair(
        &self,
        name: &str,
        kind: &[&str],
        subject: &str,
        extensions: &str,
        days: &str,
    ) -> Pair {
        let key = self.key(name, kind);
        self.pair_of(name, &key, subject, extensions, days)
    }

    /// The same for a key that is there.
    pub fn pair_of(
        &self,
        name: &str,
        key: &Path,
        subject: &str,
        extensions: &str,
        days: &str,
    ) -> Pair {
        let path = |ending: &str| self.folder.join(format!("{name}.{ending}"));
        let (request, certificate, file) = (path("csr"), path("crt"), path("ext"));
        openssl(&[
            "req",
            "-new",
            "-key",
            text(key),
            "-subj",
            subject,
            "-out",
            text(&request),
        ]);
        std::fs::write(&file, extensions).unwrap();
        let (ca, secret) = (self.certificate(), self.folder.join("ca.key"));
        let serial = path("serial");
        let mut sign = vec![
            "x509",
            "-req",
            "-in",
            text(&request),
            "-CA",
            text(&ca),
            "-CAkey",
            text(&secret),
            "-sha256",
            "-CAcreateserial",
            "-CAserial",
            text(&serial),
            "-days",
            days,
            "-out",
            text(&certificate),
        ];
        if !extensions.is_empty() {
            sign.extend(["-extfile", text(&file)]);
        }
        openssl(&sign);
        Pair {
            certificate,
            key: key.to_owned(),
        }
    }

    /// A certificate that signs itself, as `openssl req -x509` makes one: marked as an authority.
    pub fn own(&self, name: &str, host: &str) -> Pair {
        let key = self.key(name, P256);
        let certificate = self.folder.join(format!("{name}.crt"));
        let subject = format!("/CN={host}");
        let names = format!("subjectAltName=DNS:{host}");
        openssl(&[
            "req",
            "-x509",
            "-new",
            "-key",
            text(&key),
            "-days",
            "2",
            "-subj",
            &subject,
            "-addext",
            &names,
            "-out",
            text(&certificate),
        ]);
        Pair { certificate, key }
    }
}
