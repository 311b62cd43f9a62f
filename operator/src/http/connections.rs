//! Connections of a port: bounded in number and in time.
//!
//! A connection that has shown a grant is known. All others are strangers. If there are too many
//! strangers, the oldest one is closed, so silent clients keep nobody out. Invariant: no connection
//! lasts longer than its bound, and no more are open than the bound allows.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::{Extension, Router};
use futures::future::BoxFuture;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use crate::metrics::{End, PortMetrics};

/// The bounds of a port.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub connections: usize,
    /// The most connections that have not shown a grant.
    pub strangers: usize,
    /// The longest life of a connection.
    pub lives: Duration,
    /// Bytes of the longest header of a request, and of a body's part that is read at once.
    pub buffer: usize,
}

impl Bounds {
    /// This many connections with this lifetime and this buffer. A quarter of them may be
    /// strangers.
    #[must_use]
    pub const fn new(connections: usize, lives: Duration, buffer: usize) -> Self {
        Self {
            connections,
            strangers: connections / 4,
            lives,
            buffer,
        }
    }
}

const HEADERS: Duration = Duration::from_secs(10);

/// Makes a stream of a connection, within its own time limit. `None` if that fails.
pub type Handshake<S> = Arc<dyn Fn(TcpStream) -> BoxFuture<'static, Option<S>> + Send + Sync>;

/// The strangers of a port, oldest first.
#[derive(Clone, Default)]
struct Strangers(Arc<Mutex<BTreeMap<u64, AbortHandle>>>);

impl Strangers {
    fn with<T>(&self, act: impl FnOnce(&mut BTreeMap<u64, AbortHandle>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, id: u64, task: AbortHandle, most: usize) {
        let oldest = self.with(|all| {
            all.insert(id, task);
            (all.len() > most).then(|| all.pop_first())
        });
        if let Some((_, task)) = oldest.flatten() {
            task.abort();
        }
    }
}

/// The connection of a request.
#[derive(Clone)]
pub struct Connection {
    /// The other side's address.
    pub peer: IpAddr,
    id: u64,
    strangers: Strangers,
}

impl Connection {
    /// Marks the connection as known, because it has shown a grant. Silent clients no longer close
    /// it.
    pub fn know(&self) {
        self.strangers.with(|all| all.remove(&self.id));
    }
}

/// Removes the connection from the strangers when it has ended.
struct EndedConnection(Connection);

impl Drop for EndedConnection {
    fn drop(&mut self) {
        self.0.know();
    }
}

/// Serves until the process ends.
pub async fn serve<S>(
    listener: TcpListener,
    handshake: Handshake<S>,
    bounds: Bounds,
    router: Router,
    metrics: PortMetrics,
) -> std::convert::Infallible
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let open = Arc::new(Semaphore::new(bounds.connections));
    let ids = AtomicU64::new(0);
    let strangers = Strangers::default();
    loop {
        // This always gives a permit, because the semaphore is never closed.
        let permit = open.clone().acquire_owned().await;
        let (stream, peer) = match listener.accept().await {
            Ok((stream, peer)) => (stream, peer.ip()),
            Err(error) => {
                tracing::warn!(%error, "accepting a connection failed");
                metrics.refused();
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let connection = Connection {
            peer,
            id: ids.fetch_add(1, Ordering::Relaxed),
            strangers: strangers.clone(),
        };
        let router = router.clone().layer(Extension(connection.clone()));
        let (handshake, ended) = (handshake.clone(), EndedConnection(connection.clone()));
        let open_one = metrics.open();
        // The task waits until it is in the list of strangers. So a task that ends at once is
        // removed from it.
        let (listed, wait) = tokio::sync::oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let _held = (permit, ended);
            let _ = wait.await;
            let served = one(stream, handshake, bounds.buffer, router);
            let served = tokio::time::timeout(bounds.lives, served);
            open_one.ends(served.await.unwrap_or(End::Expired));
        });
        strangers.add(connection.id, task.abort_handle(), bounds.strangers);
        // A task that was aborted already does not wait any more.
        let _ = listed.send(());
    }
}

async fn one<S>(stream: TcpStream, handshake: Handshake<S>, buffer: usize, router: Router) -> End
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Some(stream) = handshake(stream).await else {
        return End::Handshake;
    };
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_buf_size(buffer)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .await;
    let Err(error) = served else {
        return End::Closed;
    };
    tracing::debug!(%error, "a connection ended early");
    if error.is_timeout() {
        End::Silent
    } else {
        End::Broken
    }
}

/// No handshake: HTTP without TLS.
pub fn plain() -> Handshake<TcpStream> {
    Arc::new(|stream| Box::pin(std::future::ready(Some(stream))))
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::metrics::{Metrics, Now, Port};

    const BUFFER: usize = 16 << 10;

    async fn port(router: Router, metrics: &Metrics) -> std::net::SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let bounds = Bounds {
            connections: 20,
            strangers: 5,
            lives: Duration::from_secs(60),
            buffer: BUFFER,
        };
        let metrics = metrics.port(Port::Results);
        tokio::spawn(serve(listener, plain(), bounds, router, metrics));
        address
    }

    async fn ask(stream: &mut TcpStream) -> String {
        let question = b"GET /word HTTP/1.1\r\nhost: x\r\n\r\n";
        stream.write_all(question).await.unwrap();
        let mut answer = [0; 4096];
        let length = stream.read(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer[..length]).into_owned()
    }

    /// Whether an answer comes in less time than silent clients get for their headers.
    async fn answered(stream: &mut TcpStream) -> bool {
        let answer = tokio::time::timeout(HEADERS / 2, ask(stream)).await;
        answer.is_ok_and(|answer| answer.ends_with("word"))
    }

    #[tokio::test]
    async fn a_flood_of_silent_connections_keeps_nobody_out() {
        let word = async |Extension(connection): Extension<Connection>| {
            connection.know();
            "word"
        };
        let metrics = Metrics::default();
        let address = port(Router::new().route("/word", get(word)), &metrics).await;
        let mut known = TcpStream::connect(address).await.unwrap();
        assert!(answered(&mut known).await);
        let mut silent = Vec::new();
        for _ in 0..30 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let mut honest = TcpStream::connect(address).await.unwrap();
        assert!(answered(&mut honest).await);
        assert!(answered(&mut known).await);
        // Four silent connections remain open, and so does the honest one, which was a stranger
        // until it asked.
        check(&metrics, "open{port=\"results\"} 6").await;
        let closed = "closed_total{port=\"results\",reason=";
        check(&metrics, &format!("{closed}\"displaced\"}} 26")).await;
        drop((known, honest));
        check(&metrics, &format!("{closed}\"closed\"}} 2")).await;
        let mut other = TcpStream::connect(address).await.unwrap();
        other.write_all(b"no HTTP\r\n\r\n").await.unwrap();
        check(&metrics, &format!("{closed}\"broken\"}} 1")).await;
    }

    /// A GET with a header of this length, or as much of it as the port reads.
    async fn answer_to_header_of(address: std::net::SocketAddr, length: usize) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let start = "GET /word HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx: ";
        let end = "\r\n\r\n";
        let filling = "x".repeat(length - start.len() - end.len());
        // The port may close the connection before it has read everything.
        let _ = stream
            .write_all(format!("{start}{filling}{end}").as_bytes())
            .await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[tokio::test]
    async fn a_header_over_the_connections_memory_is_refused() {
        let metrics = Metrics::default();
        let word = async || "word";
        let address = port(Router::new().route("/word", get(word)), &metrics).await;
        let most = answer_to_header_of(address, BUFFER - 1).await;
        assert!(most.ends_with("word"), "{most}");
        let answer = answer_to_header_of(address, 2 * BUFFER).await;
        assert!(!answer.contains("word"), "{answer}");
    }

    #[tokio::test]
    async fn large_bodies_are_read_and_answered_whole() {
        let echo = async |body: axum::body::Bytes| body;
        let router = Router::new().route("/word", axum::routing::post(echo));
        let address = port(router, &Metrics::default()).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        let body = vec![b'x'; 1 << 20];
        let head = format!(
            "POST /word HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&body).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        assert!(answer.ends_with(&body));
    }

    /// Tasks that are aborted end a moment later.
    async fn check(metrics: &Metrics, expected: &str) {
        let mut text = String::new();
        for _ in 0..100 {
            text = metrics.text(Now::default());
            if text.contains(&format!("phpprof_connections_{expected}\n")) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{expected} is not in\n{text}");
    }
}
