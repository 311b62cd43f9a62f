//! The user's own certificate: where it is, and a new one when its files have changed.
//!
//! Invariant: the certificate in use was read whole with its key. Files that are just being
//! replaced, and do not fit together, change nothing.

use std::os::unix::fs::MetadataExt as _;
use std::time::SystemTime;

use super::plan::{ClientIdentity, PemSource};
use super::source::{self, SourceError};
use super::tls::{self, Current, TlsError};

#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Reads the certificate, and looks at its files again.
pub struct Files {
    identity: ClientIdentity,
    seen: Option<[Stamp; 2]>,
    current: Current,
}

/// What changes when a file is written or replaced. A link leads to its file, as in a mounted
/// Secret. Data of the kubeconfig has none.
type Stamp = Option<(Option<SystemTime>, u64, u64)>;

impl Files {
    /// Reads it for the first time.
    pub fn start(identity: ClientIdentity, current: Current) -> Result<Self, IdentityError> {
        let mut files = Files {
            identity,
            seen: None,
            current,
        };
        files.read()?;
        Ok(files)
    }

    /// Reads it again if a file has changed. client-go reads both before each connection
    /// (transport/cert_rotation.go).
    pub fn look(&mut self) {
        if self.seen != Some(self.stamps()) {
            // The next request tries again; until then the last certificate is as good as it was.
            let _ = self.read();
        }
    }

    fn read(&mut self) -> Result<(), IdentityError> {
        // Before the files: a change in between is then seen the next time.
        let seen = self.stamps();
        let certificate = source::pem(&self.identity.certificate)?;
        let key = source::pem(&self.identity.key)?;
        self.current.set(tls::identity(&certificate, &key)?);
        self.seen = Some(seen);
        Ok(())
    }

    fn stamps(&self) -> [Stamp; 2] {
        [&self.identity.certificate, &self.identity.key].map(|source| match source {
            PemSource::File(path) => std::fs::metadata(path)
                .ok()
                .map(|it| (it.modified().ok(), it.len(), it.ino())),
            PemSource::Data(..) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::*;

    fn make(folder: &Path, name: &str) {
        let path = |end: &str| folder.join(format!("{name}.{end}")).display().to_string();
        let subject = format!("/CN={name}");
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt"])
            .args(["ec_paramgen_curve:P-256", "-nodes", "-subj", &subject])
            .args(["-keyout", &path("key"), "-out", &path("crt")])
            .output()
            .unwrap();
        assert!(made.status.success());
    }

    #[test]
    fn a_certificate_is_read_again_with_its_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        make(folder.path(), "first");
        make(folder.path(), "second");
        let take = |name: &str, end: &str| {
            let part = path("part");
            std::fs::copy(path(&format!("{name}.{end}")), &part).unwrap();
            std::fs::rename(&part, path(&format!("own.{end}"))).unwrap();
        };
        let current = Current::default();
        let source = |end: &str| PemSource::File(path(&format!("own.{end}")).display().to_string());
        let identity = ClientIdentity {
            certificate: source("crt"),
            key: source("key"),
        };
        assert!(Files::start(identity.clone(), current.clone()).is_err());
        take("first", "crt");
        take("first", "key");
        let mut files = Files::start(identity, current.clone()).unwrap();
        let first = current.turn();
        files.look();
        assert_eq!(current.turn(), first, "nothing has changed");
        take("second", "crt");
        files.look();
        assert_eq!(current.turn(), first, "the key is still the old one");
        take("second", "key");
        files.look();
        assert_eq!(current.turn(), first + 1);
        std::fs::remove_file(path("own.key")).unwrap();
        files.look();
        assert_eq!(current.turn(), first + 1, "a file is not there");
        take("second", "key");
        files.look();
        assert_eq!(current.turn(), first + 1, "it is the same certificate");
    }
}
