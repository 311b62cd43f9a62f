//! AWS Signature Version 4, in the query of a URL. With it tests do what the owner of a bucket can
//! do and a grant cannot.

use jiff::Timestamp;
use ring::{digest, hmac};

use crate::store::StoreFiles;

const REGION: &str = "us-east-1";

impl StoreFiles {
    /// A URL that the owner has signed (AWS Signature Version 4, in the query), valid for five
    /// minutes. The characters of key and query must need no escape, except for slashes.
    pub fn sign(&self, method: &str, key: &str, query: &[(&str, &str)]) -> String {
        let StoreFiles {
            endpoint,
            bucket,
            access_key,
            secret_key,
            ..
        } = self;
        let now = Timestamp::now();
        let (day, time) = (
            now.strftime("%Y%m%d").to_string(),
            now.strftime("%Y%m%dT%H%M%SZ").to_string(),
        );
        let scope = format!("{day}/{REGION}/s3/aws4_request");
        let credential = format!("{access_key}/{scope}");
        let mut parameters = vec![
            ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"),
            ("X-Amz-Credential", &credential),
            ("X-Amz-Date", &time),
            ("X-Amz-Expires", "300"),
            ("X-Amz-SignedHeaders", "host"),
        ];
        parameters.extend_from_slice(query);
        parameters.sort_unstable();
        let parameters: Vec<String> = parameters
            .iter()
            .map(|(name, value)| format!("{name}={}", escape(value)))
            .collect();
        let (path, query) = (format!("/{bucket}/{key}"), parameters.join("&"));
        let path = path.trim_end_matches('/');
        let host = endpoint.trim_start_matches("https://");
        let canonical = format!("{method}\n{path}\n{query}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD");
        let hashed = hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{hashed}");
        let mut key = format!("AWS4{secret_key}").into_bytes();
        for part in [day.as_str(), REGION, "s3", "aws4_request", &text] {
            let signer = hmac::Key::new(hmac::HMAC_SHA256, &key);
            key = hmac::sign(&signer, part.as_bytes()).as_ref().to_vec();
        }
        format!("{endpoint}{path}?{query}&X-Amz-Signature={}", hex(&key))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn escape(text: &str) -> String {
    text.replace('/', "%2F")
}
