//! A call of the operator's results and its answer, the same by the API server's proxy and by a
//! port-forward.
//!
//! Invariant: the bodies of both ways have one type.

use std::io;

use http::{Method, Response};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Bytes;

/// An answer of either way.
pub type OperatorResponse = Response<UnsyncBoxBody<Bytes, io::Error>>;

/// One type for the bodies of both ways.
pub fn boxed<B>(body: B) -> UnsyncBoxBody<Bytes, io::Error>
where
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    body.map_err(io::Error::other).boxed_unsync()
}

/// A call of the operator's results.
pub struct OperatorCall {
    pub method: Method,
    pub path: String,
    pub body: Vec<u8>,
}
