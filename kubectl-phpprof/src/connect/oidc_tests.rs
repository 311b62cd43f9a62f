//! When a token ends, what is sent for another one, and what no provider can do.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use super::*;

fn jwt(claims: &str) -> String {
    format!("e30.{}.sig", URL_SAFE_NO_PAD.encode(claims))
}

#[test]
fn a_token_ends_when_its_exp_says() {
    let second = |claims| end_of(&jwt(claims)).map(|it| it.as_second()).ok();
    assert_eq!(second(r#"{"exp": 1700000000}"#), Some(1_700_000_000));
    assert_eq!(second(r#"{"exp": 1.7e9}"#), Some(1_700_000_000));
    assert_eq!(second(r#"{"iat": 1}"#), None);
    assert_eq!(second("x"), None);
    assert!(end_of("opaque").is_err());
}

#[tokio::test]
async fn an_expired_id_token_needs_a_refresh_token() {
    let oidc = |exp: i64| Oidc {
        config: HashMap::from([("id-token".to_owned(), jwt(&format!(r#"{{"exp": {exp}}}"#)))]),
        kept: None,
        variable: |_| None,
        limit: LIMIT,
    };
    let now = Timestamp::from_second(1000).unwrap();
    assert_eq!(oidc(1011).token(now).await.unwrap().1.as_second(), 1011);
    for over in [1010, 999] {
        let refused = oidc(over).token(now).await;
        assert!(matches!(refused, Err(OidcError::NoRefreshToken)), "{over}");
    }
}

#[test]
fn a_form_and_a_header_are_encoded() {
    assert_eq!(
        form(&[("a_b", "x y&"), ("c", "é-.~")]),
        "a_b=x%20y%26&c=%C3%A9-.~"
    );
    assert_eq!(basic("i:d", "s"), "Basic aSUzQWQ6cw==");
}

/// A provider that answers each connection by these words, again and again.
fn provider(begin: &'static str, again: &'static str, pause: Duration) -> Oidc {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let mut sent = stream.write_all(begin.as_bytes());
            while sent.is_ok() {
                std::thread::sleep(pause);
                sent = stream.write_all(again.as_bytes());
            }
        }
    });
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let config = [
        pair("idp-issuer-url", &url),
        pair("client-id", "c"),
        pair("refresh-token", "r"),
    ];
    Oidc {
        config: config.into(),
        kept: None,
        variable: |_| None,
        limit: Duration::from_millis(1500),
    }
}

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n";

#[tokio::test]
async fn a_refresh_ends_although_its_provider_goes_on() {
    let now = Timestamp::from_second(1000).unwrap();
    // Each letter comes in time.
    let mut slow = provider(HEAD, " ", Duration::from_millis(100));
    let refused = slow.token(now).await;
    assert!(
        matches!(refused, Err(OidcError::Slow { .. })),
        "{refused:?}"
    );
}

#[tokio::test]
async fn an_answer_without_an_end_is_too_long() {
    let now = Timestamp::from_second(1000).unwrap();
    let text = "                                                                ";
    let mut endless = provider(HEAD, text, Duration::ZERO);
    endless.limit = LIMIT;
    let refused = endless.token(now).await;
    assert!(matches!(refused, Err(OidcError::Answer(_))), "{refused:?}");
}
