//! The `auth-provider` oidc of a kubeconfig: the ID token, and a new one by the refresh token when
//! it ends, as client-go does (plugin/pkg/client/auth/oidc).
//!
//! Invariant: a refresh token that a provider gave out is written back into the kubeconfig, because
//! the old one may be worth nothing now, for kubectl as well; where that fails, the user is told.

use std::collections::HashMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Limited};
use jiff::Timestamp;
use kube::client::{Body, ConfigExt as _};
use kube::{Client, Config};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use tower::ServiceBuilder;

use super::expiry::is_over;
use super::keep::{self, KeepError, KeptUser};
use super::plan::{PemSource, Trust};
use super::proxy::{self, ProxyError};
use super::source::{self, SourceError};
use super::tls::{self, Current, TlsError};
use super::way::{self, Way, WayError};

/// A provider's metadata or tokens are a few kilobytes.
const ANSWER: usize = 1 << 20;
/// The time limit of all answers for one refresh: metadata, and tokens once or twice.
pub const LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub enum OidcError {
    #[error("auth-provider oidc has no {0}")]
    Missing(&'static str),
    #[error("the id-token has expired, and there is no refresh-token")]
    NoRefreshToken,
    #[error("the id-token is not a JWT with an `exp`")]
    NoJwt,
    #[error("{0} is not a URL")]
    Url(String),
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Way(#[from] WayError),
    #[error("{url} does not answer")]
    Unreachable {
        url: String,
        #[source]
        error: Box<kube::Error>,
    },
    #[error("{url} answered {status}{why}")]
    Refused {
        url: String,
        status: StatusCode,
        /// What RFC 6749 5.2 calls `error`, after a colon.
        why: String,
    },
    #[error("{url} has given no tokens within {seconds} s")]
    Slow { url: String, seconds: u64 },
    #[error("the answer of {0} is too long, cut off or not as expected")]
    Answer(String),
    #[error(
        "{0} answered without an id_token: the scope openid was not asked for at the login, or this provider gives none for a refresh token"
    )]
    NoIdToken(String),
}

/// A user's provider.
pub struct Oidc {
    pub config: HashMap<String, String>,
    /// Where new tokens are written to.
    pub kept: Option<KeptUser>,
    pub variable: fn(&str) -> Option<String>,
    pub limit: Duration,
}

#[derive(Deserialize)]
struct Metadata {
    token_endpoint: String,
}

#[derive(Deserialize)]
struct Tokens {
    id_token: Option<String>,
    refresh_token: Option<String>,
}

#[derive(Deserialize)]
struct OidcRefusal {
    error: String,
}

impl Oidc {
    /// A token that holds now, and when it ends.
    pub async fn token(&mut self, now: Timestamp) -> Result<(String, Timestamp), OidcError> {
        if let Some(token) = self.value("id-token") {
            let until = end_of(token)?;
            if !is_over(until, now) {
                return Ok((token.to_owned(), until));
            }
        }
        let refreshed = tokio::time::timeout(self.limit, self.refreshed()).await;
        let tokens = refreshed.map_err(|_| OidcError::Slow {
            url: self.value("idp-issuer-url").unwrap_or_default().to_owned(),
            seconds: self.limit.as_secs(),
        })??;
        let Some(token) = tokens.id_token else {
            return Err(OidcError::NoIdToken(
                self.required("idp-issuer-url")?.to_owned(),
            ));
        };
        let until = end_of(&token)?;
        self.keep(&token, tokens.refresh_token);
        Ok((token, until))
    }

    fn keep(&mut self, token: &str, refresh: Option<String>) {
        let mut new = vec![("id-token", token.to_owned())];
        if let Some(refresh) = refresh.filter(|it| !it.is_empty()) {
            new.push(("refresh-token", refresh));
        }
        for (name, value) in &new {
            self.config.insert((*name).to_owned(), value.clone());
        }
        let kept = self.kept.as_ref().map(|place| keep::write(place, &new));
        if let Some(Err(error)) = kept {
            warn(&error);
        }
    }

    async fn refreshed(&self) -> Result<Tokens, OidcError> {
        let refresh = self
            .value("refresh-token")
            .ok_or(OidcError::NoRefreshToken)?;
        let issuer = self.required("idp-issuer-url")?.trim_end_matches('/');
        let (id, secret) = (self.required("client-id")?, self.value("client-secret"));
        let client = self.client(issuer, issuer)?;
        let well_known = "/.well-known/openid-configuration";
        let asked = request(Method::GET, well_known, None, String::new());
        let url = format!("{issuer}{well_known}");
        let metadata: Metadata = sent(&client, asked, &url).await?;
        let endpoint = metadata.token_endpoint;
        let uri: Uri = endpoint
            .parse()
            .map_err(|_| OidcError::Url(endpoint.clone()))?;
        let origin = match (uri.scheme_str(), uri.authority()) {
            (Some(scheme), Some(authority)) => format!("{scheme}://{authority}"),
            _ => return Err(OidcError::Url(endpoint)),
        };
        let client = self.client(&origin, &endpoint)?;
        let path = uri.path_and_query().map_or("/", |it| it.as_str());
        // RFC 6749 2.3.1: a provider takes the header; golang.org/x/oauth2 tries the form where it
        // does not.
        let form = form(&[("grant_type", "refresh_token"), ("refresh_token", refresh)]);
        let basic = basic(id, secret.unwrap_or_default());
        let first = request(Method::POST, path, Some(basic), form.clone());
        match sent(&client, first, &endpoint).await {
            Err(OidcError::Refused { .. }) => {
                let mut named = vec![("client_id", id)];
                named.extend(secret.map(|secret| ("client_secret", secret)));
                let form = format!("{form}&{}", self::form(&named));
                sent(&client, request(Method::POST, path, None, form), &endpoint).await
            }
            other => other,
        }
    }

    /// A client of a URL of the provider.
    fn client(&self, base: &str, url: &str) -> Result<Client, OidcError> {
        let server: Uri = base.parse().map_err(|_| OidcError::Url(url.to_owned()))?;
        let data = self.value("idp-certificate-authority-data");
        let file = self.value("idp-certificate-authority");
        let authority = data
            .map(|it| PemSource::Data("idp-certificate-authority-data", it.to_owned()))
            .or_else(|| file.map(|it| PemSource::File(it.to_owned())));
        let trust = authority.map_or(Trust::System, Trust::Authorities);
        let way = Way {
            proxy: proxy::of_environment(&server, &self.variable)?,
            tls: tls::config(&source::authorities(&trust)?, Current::default())?,
            server_name: None,
            connect_timeout: Some(self.limit),
            answer_timeout: Some(self.limit),
            identity: Current::default(),
            files: None,
        };
        let service = ServiceBuilder::new()
            .layer(Config::new(server).base_uri_layer())
            .service(way::connections(&way)?);
        Ok(Client::new(service, "default"))
    }

    fn value(&self, name: &str) -> Option<&str> {
        let value = self.config.get(name).map(String::as_str);
        value.filter(|it| !it.is_empty())
    }

    fn required(&self, name: &'static str) -> Result<&str, OidcError> {
        self.value(name).ok_or(OidcError::Missing(name))
    }
}

fn warn(error: &KeepError) {
    eprintln!(
        "warning: {}; kubectl has the old token, which the provider may no longer accept: if so, log in again",
        phpprof_crds::chain(error)
    );
}

fn request(method: Method, path: &str, basic: Option<String>, form: String) -> Request<Body> {
    let mut request = Request::new(Body::from(form.into_bytes()));
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().unwrap_or_default();
    let headers = request.headers_mut();
    if let Some(Ok(basic)) = basic.map(header::HeaderValue::try_from) {
        headers.insert(header::AUTHORIZATION, basic);
    }
    let kind = header::HeaderValue::from_static("application/x-www-form-urlencoded");
    headers.insert(header::CONTENT_TYPE, kind);
    request
}

async fn sent<T: for<'a> Deserialize<'a>>(
    client: &Client,
    request: Request<Body>,
    url: &str,
) -> Result<T, OidcError> {
    let answer = client.send(request).await;
    let answer = answer.map_err(|error| OidcError::Unreachable {
        url: url.to_owned(),
        error: Box::new(error),
    })?;
    let status = answer.status();
    let wrong = || OidcError::Answer(url.to_owned());
    let body = Limited::new(answer.into_body(), ANSWER).collect().await;
    let bytes = body.map_err(|_| wrong())?.to_bytes();
    if status != StatusCode::OK {
        let refusal: Option<OidcRefusal> = serde_json::from_slice(&bytes).ok();
        let why = refusal.map_or(String::new(), |it| {
            let short: String = it.error.chars().take(200).collect();
            format!(": {}", short.escape_debug())
        });
        return Err(OidcError::Refused {
            url: url.to_owned(),
            status,
            why,
        });
    }
    serde_json::from_slice(&bytes).map_err(|_| wrong())
}

/// All but RFC 3986's unreserved characters. Go's `url.QueryEscape` leaves the same ones as they
/// are.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

fn form(values: &[(&str, &str)]) -> String {
    let pairs: Vec<String> = values
        .iter()
        .map(|(name, value)| format!("{name}={}", encoded(value)))
        .collect();
    pairs.join("&")
}

fn basic(id: &str, secret: &str) -> String {
    let pair = format!("{}:{}", encoded(id), encoded(secret));
    let encoded = base64::engine::general_purpose::STANDARD.encode(pair);
    format!("Basic {encoded}")
}

/// When a JWT ends. Its signature is the API server's business.
fn end_of(token: &str) -> Result<Timestamp, OidcError> {
    #[derive(Deserialize)]
    struct Claims {
        exp: f64,
    }
    let part = token.split('.').nth(1).ok_or(OidcError::NoJwt)?;
    let bytes = URL_SAFE_NO_PAD
        .decode(part.trim_end_matches('='))
        .map_err(|_| OidcError::NoJwt)?;
    let claims: Claims = serde_json::from_slice(&bytes).map_err(|_| OidcError::NoJwt)?;
    Timestamp::from_second(claims.exp as i64).map_err(|_| OidcError::NoJwt)
}

#[cfg(test)]
#[path = "oidc_tests.rs"]
mod tests;
