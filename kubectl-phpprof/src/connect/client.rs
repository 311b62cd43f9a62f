//! Makes a client that takes a plan's way: through its proxy, with its TLS, as its user.
//!
//! It opens no connection before the first request.
//!
//! Invariant: the layers are kube's own (`ClientBuilder`), but for the proxy, TLS and renewed credentials, which kube cannot be given.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::header::{AUTHORIZATION, HeaderValue};
use http::{Request, Uri};
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::ResponseFuture;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connect, Connection, HttpConnector};
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt as _};
use kube::{Client, Config};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tower::filter::{AsyncFilterLayer, AsyncPredicate};
use tower::{BoxError, Service, ServiceBuilder};

use super::identity::Files;
use super::login::Renewed;
use super::proxy::{Kind, Proxy};
use super::tls::Current;

/// How a server is reached.
#[derive(Clone)]
pub struct Way {
    pub proxy: Option<Proxy>,
    pub tls: ClientConfig,
    pub server_name: Option<String>,
    pub connect_timeout: Option<Duration>,
    pub answer_timeout: Option<Duration>,
    /// The user's certificate, and the files to look at for another one.
    pub identity: Current,
    pub files: Option<Arc<Mutex<Files>>>,
}

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("tls-server-name {0} is no name of a host")]
    ServerName(String),
    #[error("the user's headers cannot be sent")]
    Headers(#[from] kube::Error),
    #[error("the proxy's user name or password cannot be sent")]
    Credentials,
}

/// A client of `config`'s server, as its user. `config` has neither proxy nor TLS.
pub fn client(way: &Way, config: &Config, login: Option<Renewed>) -> Result<Client, ClientError> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    let Some(proxy) = &way.proxy else {
        return finished(tcp, way, config, login);
    };
    match proxy.kind {
        Kind::Socks => {
            let mut socks = SocksV5::new(proxy.address.clone(), tcp);
            if let Some((name, password)) = &proxy.credentials {
                if name.len() > 255 || password.len() > 255 {
                    return Err(ClientError::Credentials); // RFC 1929 has one byte for each length
                }
                socks = socks.with_auth(name.clone(), password.clone());
            }
            finished(socks, way, config, login)
        }
        Kind::Http => finished(tunnel(proxy, tcp)?, way, config, login),
        // Go uses one configuration of TLS for the proxy and the server: net/http `dialConn`, `addTLS`.
        Kind::Https => {
            let outer = https(tcp, way)?;
            finished(tunnel(proxy, outer)?, way, config, login)
        }
    }
}

fn tunnel<C>(proxy: &Proxy, connector: C) -> Result<Tunnel<C>, ClientError> {
    use base64::Engine as _;
    let tunnel = Tunnel::new(proxy.address.clone(), connector);
    let Some((name, password)) = &proxy.credentials else {
        return Ok(tunnel);
    };
    let basic = base64::engine::general_purpose::STANDARD.encode(format!("{name}:{password}"));
    let header = HeaderValue::try_from(format!("Basic {basic}"));
    Ok(tunnel.with_auth(header.map_err(|_| ClientError::Credentials)?))
}

fn https<C>(connector: C, way: &Way) -> Result<hyper_rustls::HttpsConnector<C>, ClientError> {
    let mut builder = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(way.tls.clone())
        .https_or_http();
    if let Some(name) = &way.server_name {
        let name = ServerName::try_from(name.clone())
            .map_err(|_| ClientError::ServerName(name.clone()))?;
        builder =
            builder.with_server_name_resolver(hyper_rustls::FixedServerNameResolver::new(name));
    }
    Ok(builder.enable_http1().wrap_connector(connector))
}

fn finished<C>(
    connector: C,
    way: &Way,
    config: &Config,
    login: Option<Renewed>,
) -> Result<Client, ClientError>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: std::error::Error + Send + Sync + 'static,
{
    let mut connector = TimeoutConnector::new(https(connector, way)?);
    connector.set_connect_timeout(way.connect_timeout);
    connector.set_read_timeout(way.answer_timeout);
    connector.set_write_timeout(way.answer_timeout);
    let client = Fresh {
        turn: way.identity.turn(),
        client: pool(connector.clone()),
        connector,
        identity: way.identity.clone(),
        files: way.files.clone(),
    };
    // Clones share the connections of the moment.
    let client = Shared(Arc::new(Mutex::new(client)));
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .option_layer(login.map(AsyncFilterLayer::new))
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(client);
    Ok(Client::new(service, config.default_namespace.clone()))
}

type Pool<C> = hyper_util::client::legacy::Client<C, Body>;

fn pool<C: Connect + Clone>(connector: C) -> Pool<C> {
    hyper_util::client::legacy::Builder::new(TokioExecutor::new()).build(connector)
}

/// Connections of the user's certificate of the moment, and what makes others. client-go closes all when it has changed
/// (`connDialer.CloseAll`); here those that are idle end, and an answer that is under way comes to its end.
struct Fresh<C> {
    connector: C,
    client: Pool<C>,
    turn: u64,
    identity: Current,
    files: Option<Arc<Mutex<Files>>>,
}

impl<C: Connect + Clone> Fresh<C> {
    fn client(&mut self) -> Pool<C> {
        if let Some(files) = &self.files {
            files.lock().unwrap_or_else(PoisonError::into_inner).look();
        }
        let turn = self.identity.turn();
        if turn != self.turn {
            (self.turn, self.client) = (turn, pool(self.connector.clone()));
        }
        self.client.clone()
    }
}

struct Shared<C>(Arc<Mutex<Fresh<C>>>);

impl<C> Clone for Shared<C> {
    fn clone(&self) -> Self {
        Shared(Arc::clone(&self.0))
    }
}

impl<C> Service<Request<Body>> for Shared<C>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    type Response = http::Response<Incoming>;
    type Error = hyper_util::client::legacy::Error;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let mut fresh = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        fresh.client().request(request)
    }
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

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
