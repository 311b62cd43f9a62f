//! Credentials that end: a plugin's or a provider's token, renewed before the request that would come too late.
//!
//! Invariant: at most one renewal runs at a time, and none while the token still holds.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::Mutex;

use super::exec::{Exec, ExecError};
use super::oidc::{Oidc, OidcError};

/// A token that ends within this time is renewed: golang.org/x/oauth2's `expiryDelta`.
pub const MARGIN: SignedDuration = SignedDuration::from_secs(10);

#[derive(Clone)]
pub struct Renewed(Arc<Mutex<Held>>);

struct Held {
    token: Option<String>,
    /// None: it does not end.
    until: Option<Timestamp>,
    giver: Giver,
}

/// Who gives credentials.
pub enum Giver {
    Exec(Box<Exec>),
    Oidc(Box<Oidc>),
}

#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    #[error("the kubeconfig's exec plugin gave no credentials")]
    Exec(#[from] ExecError),
    #[error("the kubeconfig's OIDC provider gave no token")]
    Oidc(#[from] OidcError),
}

impl Renewed {
    /// Gets the first credentials at once: a plugin may ask its user.
    pub async fn start(giver: Giver) -> Result<Self, LoginError> {
        let mut held = Held {
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

pub fn is_over(until: Timestamp, now: Timestamp) -> bool {
    now.checked_add(MARGIN).map_or(true, |soon| soon >= until)
}

impl Held {
    async fn renew(&mut self) -> Result<(), LoginError> {
        (self.token, self.until) = match &mut self.giver {
            Giver::Exec(exec) => exec.run().await?,
            Giver::Oidc(oidc) => {
                let (token, until) = oidc.token(Timestamp::now()).await?;
                (Some(token), Some(until))
            }
        };
        Ok(())
    }
}
