//! Reads the PEMs that a plan names.
//!
//! Invariant: an error names the file or the field of the kubeconfig.

use super::kubeconfig;
use super::plan::{PemSource, Trust};
use super::tls::{Authorities, Pem};

#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("{path} cannot be read")]
    File {
        path: String,
        #[source]
        error: std::io::Error,
    },
    #[error("{0} is not base64")]
    Base64(&'static str),
}

pub fn pem(source: &PemSource) -> Result<Pem, SourceError> {
    let bytes = match source {
        PemSource::File(path) => std::fs::read(path).map_err(|error| SourceError::File {
            path: path.clone(),
            error,
        })?,
        PemSource::Data(field, text) => {
            kubeconfig::decoded(text).ok_or(SourceError::Base64(field))?
        }
    };
    Ok(Pem {
        name: source.name().to_owned(),
        bytes,
    })
}

pub fn authorities(trust: &Trust) -> Result<Authorities, SourceError> {
    Ok(match trust {
        Trust::System => Authorities::System,
        Trust::Anything => Authorities::Anyone,
        Trust::Authorities(source) => Authorities::Named(pem(source)?),
    })
}
