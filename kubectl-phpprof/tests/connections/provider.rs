//! An OpenID Connect provider: its metadata, its key, and new tokens for one refresh token.
//!
//! Invariant: it gives out another refresh token each time, as providers with rotation do.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::authority::{self as made, Pair, text};
use crate::proxies;

pub struct Provider {
    pub url: String,
    pub good: String,
    pub ended: String,
    _front: Child,
}

impl Provider {
    pub fn start(folder: &Path, pair: &Pair) -> Self {
        let key = folder.join("provider.key");
        made::openssl(&[&["genpkey", "-out", text(&key)], made::RSA_2048].concat());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (front, child) = proxies::tls_before(port, pair);
        let url = format!("https://idp.phpprof.test:{front}");
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() as i64;
        let token = |end: i64| {
            let claims = json!({"iss": url, "aud": "phpprof", "sub": "ann", "groups": ["admins"], "iat": now - 7200, "exp": end});
            signed(&key, folder, &claims)
        };
        let (good, ended) = (token(now + 86400), token(now - 3600));
        let answers = Arc::new([
            (
                "/.well-known/openid-configuration",
                json!({
                    "issuer": url, "jwks_uri": format!("{url}/keys"), "token_endpoint": format!("{url}/token"),
                    "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
                    "id_token_signing_alg_values_supported": ["RS256"],
                }),
            ),
            (
                "/keys",
                json!({"keys": [{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "test", "e": "AQAB", "n": modulus(&key)}]}),
            ),
            (
                "/token",
                json!({"access_token": "a", "token_type": "Bearer", "id_token": good, "refresh_token": "rotated"}),
            ),
        ]);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let answers = Arc::clone(&answers);
                std::thread::spawn(move || answer(stream, answers.as_ref()));
            }
        });
        Provider {
            url,
            good,
            ended,
            _front: child,
        }
    }

    /// A user's entry.
    pub fn user(&self, authority: &Path, id: &str, refresh: &str) -> Value {
        json!({"auth-provider": {"name": "oidc", "config": {
            "idp-issuer-url": self.url, "client-id": "phpprof", "client-secret": "secret", "id-token": id,
            "refresh-token": refresh, "idp-certificate-authority": authority,
        }}})
    }
}

fn answer(mut stream: TcpStream, answers: &[(&str, Value)]) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim().split_once(':') else {
            break;
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let body = String::from_utf8_lossy(&body);
    let found = answers.iter().find(|it| it.0 == path);
    let (code, text) = match found {
        Some((_, value)) if path != "/token" => (200, value.to_string()),
        Some((_, value))
            if body.contains("grant_type=refresh_token")
                && body.contains("refresh_token=first") =>
        {
            (200, value.to_string())
        }
        Some(_) => (400, json!({"error": "invalid_grant"}).to_string()),
        None => (404, String::new()),
    };
    write!(
        stream,
        "HTTP/1.1 {code} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
        text.len()
    )
    .ok()
}

fn signed(key: &Path, folder: &Path, claims: &Value) -> String {
    let header = json!({"alg": "RS256", "kid": "test", "typ": "JWT"});
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let whole = format!("{}.{}", part(&header), part(claims));
    let (input, output): (PathBuf, PathBuf) = (folder.join("claims"), folder.join("signature"));
    std::fs::write(&input, &whole).unwrap();
    made::openssl(&[
        "dgst",
        "-sha256",
        "-sign",
        text(key),
        "-out",
        text(&output),
        text(&input),
    ]);
    format!(
        "{whole}.{}",
        URL_SAFE_NO_PAD.encode(std::fs::read(&output).unwrap())
    )
}

fn modulus(key: &Path) -> String {
    let output = Command::new("openssl")
        .args(["rsa", "-noout", "-modulus", "-in", text(key)])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let digits = said.trim().strip_prefix("Modulus=").unwrap().as_bytes();
    let bytes: Vec<u8> = digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect();
    URL_SAFE_NO_PAD.encode(bytes)
}
