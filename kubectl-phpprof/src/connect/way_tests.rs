//! Which connections a request takes.

use std::sync::atomic::{AtomicUsize, Ordering};

use kube::Config;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::super::client::client;
use super::super::tls::{self, Authorities, Pem};
use super::*;

/// A server on this machine, and how many connections it got.
async fn server() -> (Uri, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                let mut question = [0; 4096];
                while stream.read(&mut question).await.is_ok_and(|it| it > 0) {
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
                    stream.write_all(answer).await.unwrap();
                }
            });
        }
    });
    (uri.parse().unwrap(), count)
}

fn pair(name: &str) -> Arc<rustls::sign::CertifiedKey> {
    let folder = tempfile::tempdir().unwrap();
    let path = |end: &str| folder.path().join(end);
    let made = std::process::Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt"])
        .args(["ec_paramgen_curve:P-256", "-nodes", "-subj"])
        .arg(format!("/CN={name}"))
        .arg("-keyout")
        .arg(path("key"))
        .arg("-out")
        .arg(path("crt"))
        .output()
        .unwrap();
    assert!(made.status.success());
    let pem = |end: &str| Pem {
        name: end.to_owned(),
        bytes: std::fs::read(path(end)).unwrap(),
    };
    tls::identity(&pem("crt"), &pem("key")).unwrap()
}

#[tokio::test]
async fn another_certificate_takes_another_connection() {
    let (uri, count) = server().await;
    let identity = Current::default();
    identity.set(pair("first"));
    let way = Way {
        proxy: None,
        tls: tls::config(&Authorities::Anyone, identity.clone()).unwrap(),
        server_name: None,
        connect_timeout: None,
        answer_timeout: None,
        identity: identity.clone(),
        files: None,
    };
    let client = client(&way, &Config::new(uri), None).unwrap();
    let ask = async || {
        let request = Request::get("/").body(Vec::new()).unwrap();
        client.request_text(request).await.unwrap();
        count.load(Ordering::SeqCst)
    };
    assert_eq!((ask().await, ask().await), (1, 1));
    identity.set(pair("second"));
    assert_eq!((ask().await, ask().await), (2, 2));
}
