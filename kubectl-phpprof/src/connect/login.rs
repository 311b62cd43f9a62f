//! Credentials that end: a plugin's or a provider's token, renewed before the request that would
//! come too late.
//!
//! Invariant: at most one renewal runs at a time, and none while the token still holds.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::Mutex;

use super::exec::{Exec, ExecError};
use super::expiry::is_over;
use super::oidc::{Oidc, OidcError};

/// A file is read again after this time: client-go's `NewCachedFileTokenSource`.
const AGAIN: SignedDuration = SignedDuration::from_mins(1);

#[derive(Clone)]
pub struct Renewed(Arc<Mutex<HeldToken>>);

struct HeldToken {
    token: Option<String>,
    /// None: it does not end.
    until: Option<Timestamp>,
    giver: Giver,
}

/// Who gives credentials.
pub enum Giver {
    Exec(Box<Exec>),
    Oidc(Box<Oidc>),
    File(TokenFile),
}

/// A file with a token, and the token for as long as the file cannot be read.
pub struct TokenFile {
    path: String,
    last: Option<SecretString>,
}

#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    #[error("the kubeconfig's exec plugin gave no credentials")]
    Exec(#[from] ExecError),
    #[error("the kubeconfig's OIDC provider gave no token")]
    Oidc(#[from] OidcError),
    #[error("the file {path} with the user's token cannot be read")]
    File {
        path: String,
        #[source]
        error: std::io::Error,
    },
    #[error("the file {0} with the user's token is empty")]
    Empty(String),
}

impl LoginError {
    /// What to do about it, if it is not another kubeconfig.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            LoginError::Exec(ExecError::NotPermitted { .. }) => Some(
                "kubectl 1.35 and later refuse it too: if you trust the program, set credentialPluginPolicy: Allowlist there, and add it to credentialPluginAllowlist",
            ),
            LoginError::File { .. } | LoginError::Empty(_) => {
                Some("log in again, or set another tokenFile in the kubeconfig")
            }
            _ => None,
        }
    }
}

impl TokenFile {
    pub fn of(path: String, otherwise: Option<SecretString>) -> Self {
        TokenFile {
            path,
            last: otherwise,
        }
    }

    /// The file's token, which may be followed by a line break (transport/token_source.go:
    /// `fileTokenSource`, `cachingTokenSource`).
    fn token(&mut self) -> Result<String, LoginError> {
        match (self.read(), &self.last) {
            (Ok(token), _) => {
                self.last = Some(token.clone().into());
                Ok(token)
            }
            (Err(_), Some(last)) => Ok(last.expose_secret().to_owned()),
            (Err(error), None) => Err(error),
        }
    }

    fn read(&self) -> Result<String, LoginError> {
        let text = std::fs::read_to_string(&self.path).map_err(|error| LoginError::File {
            path: self.path.clone(),
            error,
        })?;
        match text.trim() {
            "" => Err(LoginError::Empty(self.path.clone())),
            token => Ok(token.to_owned()),
        }
    }
}

impl Renewed {
    /// Gets the first credentials at once: a plugin may ask its user.
    pub async fn start(giver: Giver) -> Result<Self, LoginError> {
        let mut held = HeldToken {
            token: None,
            until: None,
            giver,
        };
        held.renew().await?;
        Ok(Renewed(Arc::new(Mutex::new(held))))
    }

    pub async fn token(&self) -> Result<Option<String>, LoginError> {
        let mut held = self.0.lock().await;
        if held
            .until
            .is_some_and(|until| is_over(until, Timestamp::now()))
        {
            held.renew().await?;
        }
        Ok(held.token.clone())
    }
}

impl HeldToken {
    async fn renew(&mut self) -> Result<(), LoginError> {
        (self.token, self.until) = match &mut self.giver {
            Giver::Exec(exec) => exec.run().await?,
            Giver::File(file) => {
                let until = Timestamp::now().saturating_add(AGAIN).ok();
                (Some(file.token()?), until)
            }
            Giver::Oidc(oidc) => {
                let (token, until) = oidc.token(Timestamp::now()).await?;
                (Some(token), Some(until))
            }
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_file_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let mut file = TokenFile::of(path.display().to_string(), None);
        assert!(matches!(file.token(), Err(LoginError::File { .. })));
        std::fs::write(&path, "\n").unwrap();
        assert!(matches!(file.token(), Err(LoginError::Empty(_))));
        for token in ["first", "second"] {
            std::fs::write(&path, format!("{token}\n")).unwrap();
            assert_eq!(file.token().unwrap(), token);
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(file.token().unwrap(), "second");
        let mut other = TokenFile::of(path.display().to_string(), Some("other".into()));
        assert_eq!(other.token().unwrap(), "other");
    }
}
