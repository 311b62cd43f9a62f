//! What a store's answer to a write means, and why a store refuses, in words.
//!
//! Pure and total: every status and body has a meaning. Sources: the error responses of the Amazon
//! S3 API reference, and object_store 0.14, which has an answer in its error's message only.
//!
//! Invariant: nothing of an answer reaches the words but its status, its code and a region, each of
//! a bounded length and of plain characters.

/// What an answer to a create-only write means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The object is written.
    Stored,
    /// An object of this key exists, and stays as it is.
    Exists,
    /// The same write may succeed in a moment.
    Again,
    /// The store has no create-only writes.
    NotImplemented,
    /// The same write would be refused again.
    Refused,
}

/// The parts of an answer that say something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreAnswer {
    /// The HTTP status.
    pub status: u16,
    /// S3's code of the error; empty if the body has none.
    pub code: String,
    /// The region that the bucket is in, if the store tells.
    region: String,
    /// The store's own words. They are searched, and never repeated.
    message: String,
}

/// The longest code and region that are repeated.
const LONGEST: usize = 48;
/// The longest part of a body that is searched.
const SEARCHED: usize = 4096;

impl StoreAnswer {
    /// An answer with S3's error in XML, or with any other body.
    pub fn new(status: u16, body: &str) -> Self {
        let end = (0..=SEARCHED.min(body.len())).rfind(|&end| body.is_char_boundary(end));
        let body = body.get(..end.unwrap_or(0)).unwrap_or_default();
        StoreAnswer {
            status,
            code: plain(element(body, "Code")),
            region: plain(element(body, "Region")),
            message: element(body, "Message").to_ascii_lowercase(),
        }
    }

    /// A store's answer as a sampler says it: `HTTP 403 ExpiredToken`. An answer without a code may
    /// be the relay's, except for those that the relay never gives.
    pub fn said(text: &str) -> Option<Self> {
        let (status, code) = match text.strip_prefix("HTTP ")?.split_once(' ') {
            Some((status, code)) => (status, code),
            None => (text.strip_prefix("HTTP ")?, ""),
        };
        let answer = StoreAnswer {
            status: status.parse().ok()?,
            code: plain(code),
            ..StoreAnswer::default()
        };
        let is_of_a_store = !answer.code.is_empty() || [301, 307, 501].contains(&answer.status);
        is_of_a_store.then_some(answer)
    }

    /// What the answer means for a create-only write.
    pub fn meaning(&self) -> Meaning {
        match (self.status, self.code.as_str()) {
            (200 | 201, _) => Meaning::Stored,
            // AWS answers so if another write of the key was under way.
            (409, "ConditionalRequestConflict" | "OperationAborted") => Meaning::Again,
            // The client was too slow, or other bytes arrived than it had sent; it may try again.
            (400, "RequestTimeout" | "BadDigest") => Meaning::Again,
            (409 | 412, _) => Meaning::Exists,
            (501, _) => Meaning::NotImplemented,
            (408 | 425 | 429 | 500..=599, _) => Meaning::Again,
            _ => Meaning::Refused,
        }
    }

    /// What to tell people: the cause, and what to change where that is known.
    pub fn words(&self) -> String {
        let StoreAnswer { status, code, .. } = self;
        let said = match code.as_str() {
            "" => format!("HTTP {status}"),
            code => format!("HTTP {status} {code}"),
        };
        match self.cause() {
            Some(cause) => format!("{cause} ({said})"),
            None => format!("the store answers {said}"),
        }
    }

    fn cause(&self) -> Option<String> {
        let mentions = |word: &str| self.message.contains(word);
        Some(match (self.status, self.code.as_str()) {
            (_, "ExpiredToken" | "TokenRefreshRequired") => {
                "the session token of the operator's credentials has expired"
            }
            (_, "InvalidToken") => "the store does not know the session token of the credentials",
            (_, "InvalidAccessKeyId") => "the store does not know the access key",
            (_, "SignatureDoesNotMatch") => {
                "the secret key is wrong, or a proxy changes the requests"
            }
            (_, "RequestTimeTooSkewed") => {
                "the clocks of the operator's node and of the store differ by too much"
            }
            (_, "AccessDenied") if mentions("expired") || mentions("not yet valid") => {
                "the grant is not valid at this time by the store's clock"
            }
            (_, code) if code.starts_with("KMS.") => "the store cannot use the KMS key",
            (403, _) if mentions("kms") => {
                "the credentials may not use the KMS key (kms:GenerateDataKey, kms:Decrypt)"
            }
            (301 | 307, _) | (400, "AuthorizationHeaderMalformed" | "IllegalLocationConstraintException") => {
                return Some(self.other_region());
            }
            (_, "NoSuchBucket") => {
                "there is no such bucket; check store.url, and store.pathStyle in the chart"
            }
            (405, _) => {
                "this is not an address of the bucket; check store.endpoint and store.pathStyle in the chart"
            }
            (501, _) => "the store has no create-only writes (If-None-Match)",
            (401, _) => "the store does not accept the operator's credentials",
            (403, _) => {
                "the store denies access; check the permissions of the operator's credentials, and whether the bucket's policy requires encryption headers (store.encryption in the chart)"
            }
            (400, "BadDigest") => {
                "the store received other bytes than the sampler sent, according to their checksum; something in between changes uploads"
            }
            (400, "InvalidDigest") => {
                "the store does not accept the checksum of a direct upload; unset store.directChecksum in the chart"
            }
            (400, "InvalidRequest") if self.message.is_empty() || mentions("content-md5") => {
                "the store does not accept the upload as it is; a bucket with Object Lock requires checksums, so set store.checksum and store.directChecksum in the chart"
            }
            (409, "ConditionalRequestConflict" | "OperationAborted") => {
                "another write of the key was under way"
            }
            (503, "SlowDown") | (429, _) => "the store asks for fewer requests",
            (507, _) => "the store is full",
            _ => return None,
        }
        .to_owned())
    }

    fn other_region(&self) -> String {
        match self.region.as_str() {
            "" => "the bucket is in another region, or has another endpoint; set store.region or store.endpoint in the chart".to_owned(),
            region => format!("the bucket is in region {region}; set store.region in the chart"),
        }
    }
}

/// The answer in a message of object_store 0.14.
pub fn in_message(message: &str) -> Option<StoreAnswer> {
    const BARE_REDIRECT: &str = "Received redirect without LOCATION";
    const STATUS: &str = "Server returned non-2xx status code: ";
    if message.starts_with(BARE_REDIRECT) {
        return Some(StoreAnswer::new(301, ""));
    }
    let said = message.strip_prefix(STATUS)?;
    let status = said.get(..3)?.parse().ok()?;
    Some(StoreAnswer::new(status, said))
}

/// Why a TLS connection was refused, from the words of rustls, if they name it. The sampler says
/// the same (`deliver/certificate.rs`).
pub fn certificate_in_message(message: &str) -> Option<&'static str> {
    let has = |word: &str| message.contains(word);
    Some(if has("CaUsedAsEndEntity") {
        "the store's certificate is a CA's own (CA:TRUE), which TLS does not accept from a server; make a certificate for the server that the CA signs (openssl x509 -req -CA …), and keep the CA in store.caBundle"
    } else if has("UnknownIssuer") {
        "no trusted CA has signed the store's certificate; set store.caBundle in the chart to the CA's"
    } else if has("NotValidForName") {
        "the store's certificate is for another name; use the name that it has in store.endpoint"
    } else if has("Expired") {
        "the store's certificate has expired"
    } else if has("NotValidYet") {
        "the store's certificate is not valid yet; check the clocks"
    } else if has("UnsupportedSignatureAlgorithm")
        || has("UnsupportedCertVersion")
        || has("BadSignature")
    {
        "the store's certificate has a kind of key or signature that is not supported here; use a key of P-256, P-384 or RSA"
    } else {
        return None;
    })
}

/// The text of the first such element; empty if there is none.
fn element<'a>(body: &'a str, name: &str) -> &'a str {
    let open = format!("<{name}>");
    let text = body.split_once(&open).map(|(_, rest)| rest);
    text.and_then(|text| text.split('<').next())
        .unwrap_or_default()
}

/// A name as stores have them; empty for anything else.
fn plain(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    if text.len() <= LONGEST && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        String::new()
    }
}

#[cfg(test)]
mod tests;
