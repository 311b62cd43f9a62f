//! Makes the API server's client for a user.
//!
//! It opens no connection before the first request.
//!
//! Invariant: the layers are kube's own (`ClientBuilder`), but for the connections and renewed
//! credentials, which kube cannot be given.

use futures::future::BoxFuture;
use http::Request;
use http::header::{AUTHORIZATION, HeaderValue};
use kube::client::{Body, ConfigExt as _};
use kube::{Client, Config};
use tower::filter::{AsyncFilterLayer, AsyncPredicate};
use tower::{BoxError, ServiceBuilder};

use super::login::Renewed;
use super::way::{self, Way, WayError};

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(transparent)]
    Way(#[from] WayError),
    #[error("the user's headers cannot be sent")]
    Headers(#[from] kube::Error),
}

/// A client of `config`'s server, as its user. `config` has neither proxy nor TLS.
pub fn client(way: &Way, config: &Config, login: Option<Renewed>) -> Result<Client, ClientError> {
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .option_layer(login.map(AsyncFilterLayer::new))
        .layer(config.extra_headers_layer()?)
        .service(way::connections(way)?);
    Ok(Client::new(service, config.default_namespace.clone()))
}

impl AsyncPredicate<Request<Body>> for Renewed {
    type Future = BoxFuture<'static, Result<Request<Body>, BoxError>>;
    type Request = Request<Body>;

    fn check(&mut self, mut request: Request<Body>) -> Self::Future {
        let login = self.clone();
        Box::pin(async move {
            if let Some(token) = login.token().await? {
                let mut header = HeaderValue::try_from(format!("Bearer {token}"))?;
                header.set_sensitive(true);
                request.headers_mut().insert(AUTHORIZATION, header);
            }
            Ok(request)
        })
    }
}
