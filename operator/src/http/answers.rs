//! Answers on the port of the results. Each is only for the client that asked.

use axum::body::{Body, HttpBody as _};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use serde::Serialize;

use crate::http::shares::KeyShare;

/// Serialising strings, numbers and lists cannot fail.
pub(super) fn json(answer: &impl Serialize) -> Response {
    let json = serde_json::to_vec(answer).unwrap_or_default();
    private(json.into(), "application/json")
}

pub(super) fn refuse(status: StatusCode, message: &str) -> Response {
    let refusal = serde_json::json!({"message": message}).to_string();
    let mut response = private(refusal.into(), "application/json");
    *response.status_mut() = status;
    response
}

pub(super) fn html(page: Body, policy: &'static str) -> Response {
    let mut response = private(page, "text/html; charset=utf-8");
    response.headers_mut().insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(policy),
    );
    response
}

/// The answer to the holder of a link or a key that already has its share of requests.
pub(super) fn busy() -> Response {
    const BUSY: &str =
        "too many requests for this profile at once; try again when one of them has ended";
    let mut response = refuse(StatusCode::TOO_MANY_REQUESTS, BUSY);
    let (name, seconds) = (header::RETRY_AFTER, HeaderValue::from_static("1"));
    response.headers_mut().insert(name, seconds);
    response
}

/// Holds the share until the client has received the whole answer.
pub(super) fn held(response: Response, share: KeyShare) -> Response {
    let length = response.body().size_hint().exact();
    let held = response.map(|body| {
        let chunks = body.into_data_stream().map(move |chunk| {
            let _held = &share;
            chunk
        });
        Body::from_stream(chunks)
    });
    match length {
        Some(length) => sized(held, length),
        None => held,
    }
}

/// Adds the length of the body, which a stream does not have.
pub(super) fn sized(mut response: Response, bytes: u64) -> Response {
    response
        .headers_mut()
        .insert(header::CONTENT_LENGTH, HeaderValue::from(bytes));
    response
}

/// An answer that no cache keeps and that sends no referrer.
pub(super) fn private(body: Body, kind: &'static str) -> Response {
    let headers: [(HeaderName, &'static str); 4] = [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "private, no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    let headers: HeaderMap = headers
        .into_iter()
        .map(|(name, value)| (name, HeaderValue::from_static(value)))
        .collect();
    (headers, body).into_response()
}
