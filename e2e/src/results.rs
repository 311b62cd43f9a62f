//! Reads results as users do: by links, through the API server's proxy to the operator's service.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use http::{HeaderMap, Method, Request};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::client::Body;
use kube::{Api, ResourceExt as _};
use phpprof_crds::ProfileRequest;
use ring::hmac;
use serde_json::{Value, json};

use crate::Fixture;
use crate::release::{NAMESPACE, SERVICE};
use crate::requests::{folder, status};

/// An HTTP response.
pub struct Reply {
    /// The HTTP status code.
    pub status: u16,
    /// The headers that the API server passed on.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Vec<u8>,
}

impl Reply {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The first header of this name; empty if there is none.
    pub fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }
}

impl Fixture {
    /// Calls the operator's service.
    pub async fn ask(&self, method: Method, path: &str, body: Value) -> Result<Reply> {
        let proxy = format!("/api/v1/namespaces/{NAMESPACE}/services/{SERVICE}:results/proxy");
        let body = match body {
            Value::Null => Vec::new(),
            body => body.to_string().into_bytes(),
        };
        let request = Request::builder()
            .method(method)
            .uri(proxy + path)
            .header("content-type", "application/json")
            .body(Body::from(body))?;
        let (head, body) = self.client.send(request).await?.into_parts();
        Ok(Reply {
            status: head.status.as_u16(),
            headers: head.headers,
            body: body.collect().await?.to_bytes().to_vec(),
        })
    }

    /// Gets a path of the operator's service.
    pub async fn get(&self, path: &str) -> Result<Reply> {
        self.ask(Method::GET, path, Value::Null).await
    }

    /// What an access key gives of a request.
    pub async fn open(&self, request: &ProfileRequest, access_key: &str) -> Result<Reply> {
        let path = format!("/r/{}/{}", self.namespace, request.name_any());
        self.ask(Method::POST, &path, json!({"accessKey": access_key}))
            .await
    }

    /// The links of a request, by name.
    pub async fn links(&self, request: &ProfileRequest) -> Result<BTreeMap<String, String>> {
        let access_key = access_key(request)?;
        let reply = self.open(request, &access_key).await?;
        ensure!(reply.status == 200, "{}: {}", reply.status, reply.text());
        let answer: Value = serde_json::from_slice(&reply.body)?;
        let text = |value: &Value| value.as_str().map(str::to_owned).context("no text");
        let links = answer["links"].as_array().context("no links")?;
        links
            .iter()
            .map(|link| Ok((text(&link["name"])?, text(&link["path"])?)))
            .collect()
    }

    /// A link with any expiry, signed as the operator signs it. The cluster's administrator can
    /// read the signing key.
    pub async fn signed_link(
        &self,
        request: &ProfileRequest,
        file: &str,
        expires: i64,
    ) -> Result<String> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        let secret = secrets.get(&format!("{SERVICE}-keys")).await?;
        let mut data = secret.data.unwrap_or_default();
        let signing = data.remove("access").context("no signing key")?;
        let signing = hmac::Key::new(hmac::HMAC_SHA256, &signing.0);
        let folder = folder(request)?;
        let text = format!("link\n{expires}\n{folder}/{file}");
        let signature = crate::store::base64url(hmac::sign(&signing, text.as_bytes()).as_ref());
        Ok(format!("/l/{expires}.{signature}/{folder}/{file}"))
    }
}

/// The access key of a request's merged profile, from its status.
pub fn access_key(request: &ProfileRequest) -> Result<String> {
    let profile = status(request).profile.context("no merged profile")?;
    ensure!(!profile.access_key.is_empty(), "no access key");
    Ok(profile.access_key.to_string())
}
