//! The connections that lead to a server: through its proxy, with its TLS, with the user's
//! certificate of the moment.
//!
//! It opens none before the first request.
//!
//! Invariant: a connection is of the user's certificate of the moment; the proxy and the server
//! have the same configuration of TLS, as in Go.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::HeaderValue;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::ResponseFuture;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connect, Connection, HttpConnector};
use hyper_util::rt::TokioExecutor;
use kube::client::Body;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceExt as _};

use super::identity::Files;
use super::proxy::{ProxyKind, ServerProxy};
use super::tls::Current;

/// How a server is reached.
#[derive(Clone)]
pub struct Way {
    pub proxy: Option<ServerProxy>,
    pub tls: ClientConfig,
    pub server_name: Option<String>,
    pub connect_timeout: Option<Duration>,
    pub answer_timeout: Option<Duration>,
    /// The user's certificate, and the files to look at for another one.
    pub identity: Current,
    pub files: Option<Arc<Mutex<Files>>>,
}

#[derive(Debug, thiserror::Error)]
pub enum WayError {
    #[error("tls-server-name {0} is no name of a host")]
    ServerName(String),
    #[error("the proxy's user name or password cannot be sent")]
    Credentials,
}

/// Sends a request, on a connection that it opens or has. Clones share the connections of the
/// moment.
pub type Connections = BoxCloneSyncService<Request<Body>, Response<Incoming>, BoxError>;

pub fn connections(way: &Way) -> Result<Connections, WayError> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    let Some(proxy) = &way.proxy else {
        return through(tcp, way);
    };
    match proxy.kind {
        ProxyKind::Socks => {
            let mut socks = SocksV5::new(proxy.address.clone(), tcp);
            if let Some((name, password)) = &proxy.credentials {
                if name.len() > 255 || password.len() > 255 {
                    return Err(WayError::Credentials); // RFC 1929 has one byte for each length
                }
                socks = socks.with_auth(name.clone(), password.clone());
            }
            through(socks, way)
        }
        ProxyKind::Http => through(tunnel(proxy, tcp)?, way),
        // Go uses one configuration of TLS for the proxy and the server: net/http `dialConn`,
        // `addTLS`.
        ProxyKind::Https => {
            let outer = https(tcp, way)?;
            through(tunnel(proxy, outer)?, way)
        }
    }
}

fn tunnel<C>(proxy: &ServerProxy, connector: C) -> Result<Tunnel<C>, WayError> {
    use base64::Engine as _;
    let tunnel = Tunnel::new(proxy.address.clone(), connector);
    let Some((name, password)) = &proxy.credentials else {
        return Ok(tunnel);
    };
    let basic = base64::engine::general_purpose::STANDARD.encode(format!("{name}:{password}"));
    let header = HeaderValue::try_from(format!("Basic {basic}"));
    Ok(tunnel.with_auth(header.map_err(|_| WayError::Credentials)?))
}

fn https<C>(connector: C, way: &Way) -> Result<hyper_rustls::HttpsConnector<C>, WayError> {
    let mut builder = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(way.tls.clone())
        .https_or_http();
    if let Some(name) = &way.server_name {
        let name =
            ServerName::try_from(name.clone()).map_err(|_| WayError::ServerName(name.clone()))?;
        builder =
            builder.with_server_name_resolver(hyper_rustls::FixedServerNameResolver::new(name));
    }
    Ok(builder.enable_http1().wrap_connector(connector))
}

fn through<C>(connector: C, way: &Way) -> Result<Connections, WayError>
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
    let client = FreshConnections {
        turn: way.identity.turn(),
        client: pool(connector.clone()),
        connector,
        identity: way.identity.clone(),
        files: way.files.clone(),
    };
    let shared = SharedConnections(Arc::new(Mutex::new(client)));
    Ok(BoxCloneSyncService::new(shared.map_err(BoxError::from)))
}

type ConnectionPool<C> = hyper_util::client::legacy::Client<C, Body>;

fn pool<C: Connect + Clone>(connector: C) -> ConnectionPool<C> {
    hyper_util::client::legacy::Builder::new(TokioExecutor::new()).build(connector)
}

/// Connections of the user's certificate of the moment, and what makes others. client-go closes all
/// when it has changed (`connDialer.CloseAll`); here those that are idle end, and an answer that is
/// under way comes to its end.
struct FreshConnections<C> {
    connector: C,
    client: ConnectionPool<C>,
    turn: u64,
    identity: Current,
    files: Option<Arc<Mutex<Files>>>,
}

impl<C: Connect + Clone> FreshConnections<C> {
    fn client(&mut self) -> ConnectionPool<C> {
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

struct SharedConnections<C>(Arc<Mutex<FreshConnections<C>>>);

impl<C> Clone for SharedConnections<C> {
    fn clone(&self) -> Self {
        SharedConnections(Arc::clone(&self.0))
    }
}

impl<C> Service<Request<Body>> for SharedConnections<C>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    type Response = Response<Incoming>;
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

#[cfg(test)]
#[path = "way_tests.rs"]
mod tests;
