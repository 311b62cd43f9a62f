//! The operator's grants: what the sampler may write. They come from its environment
//! (`contract/env.json`).
//!
//! Invariant: errors do not quote grants.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use serde::{Deserialize, Serialize};

use super::addresses::ResolvedRelay;
use crate::failure::{Reason, SamplerFailure};

/// The environment variable with the grants. It, [`CHECKPOINTS`] and [`REQUESTS`] are the only
/// secrets in a target pod.
pub const GRANTS: &str = "PHPPROF_GRANTS";
/// The variable with the grants of checkpoints.
pub const CHECKPOINTS: &str = "PHPPROF_CHECKPOINTS";
/// The variable that says when each checkpoint is due. Older operators do not set it.
pub const CHECKPOINT_TIMES: &str = "PHPPROF_CHECKPOINT_TIMES";
/// The variable with the grants of the list of requests.
pub const REQUESTS: &str = "PHPPROF_REQUESTS";
/// The variable with the checksum of uploads to a store: MD5, or else none.
pub const DIRECT_CHECKSUM: &str = "PHPPROF_DIRECT_CHECKSUM";
/// The largest number of routes, and of pins.
const AT_MOST: usize = 4;
const CHECKPOINTS_AT_MOST: usize = 30;
/// What to do about a variable that this sampler does not understand: only an operator sets them.
pub const NEXT: &str = "use the sampler's image of the operator's release";
/// The largest size of the unpacked JSON of [`CHECKPOINTS`].
const JSON_AT_MOST: u64 = 1 << 20;

/// What the sampler may write.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteGrants {
    /// Routes for the profile, in the order in which they are tried.
    pub profile: Vec<WriteGrant>,
}

/// How the list of requests is stored.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestGrants {
    /// Routes for the list, in the order in which they are tried.
    pub requests: Vec<WriteGrant>,
}

/// When the samples so far are stored, and how.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct CheckpointGrants {
    every_seconds: u64,
    /// The routes of each checkpoint, in the order in which they are tried.
    pub checkpoints: Vec<Vec<WriteGrant>>,
}

/// A way to deliver a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
pub enum DeliveryRoute {
    /// To the store directly.
    Direct,
    /// Through the operator's relay.
    Relay,
}

/// Permission for a create-only write of one key, and the URL that tells whether to stop.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteGrant {
    /// The server that receives the write.
    pub route: DeliveryRoute,
    /// The HTTP method: PUT.
    pub method: String,
    /// It contains the grant, so it is never logged.
    pub url: String,
    /// Sent unchanged, because some are part of the signature.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Empty for a checkpoint and a list of requests.
    #[serde(default)]
    pub stop: String,
    /// The URL for each second's samples, if somebody reads them; else empty.
    #[serde(default)]
    pub live: String,
    /// SHA-256 of the keys that the server may have, in base64url. If there is none, the server
    /// needs a certificate of a CA.
    #[serde(default)]
    pub pins: Vec<String>,
    /// Addresses of the relay, from [`RELAY_ADDRESSES`](super::addresses::RELAY_ADDRESSES).
    #[serde(skip)]
    pub addresses: ResolvedRelay,
    /// Whether an upload to a store has the header `content-md5`, from [`DIRECT_CHECKSUM`].
    #[serde(skip)]
    pub sends_md5: bool,
}

/// Only what is no grant.
impl std::fmt::Debug for WriteGrant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grant")
            .field("route", &self.route)
            .finish_non_exhaustive()
    }
}

impl WriteGrants {
    /// Parses the environment variable.
    ///
    /// # Errors
    /// A [`SamplerFailure`] that quotes nothing of the grant.
    pub fn parse(text: &str) -> Result<Self, SamplerFailure> {
        let grants: Self = from_json(GRANTS, text)?;
        check_routes(GRANTS, &grants.profile)?;
        let asks = |grant: &WriteGrant| grant.stop.starts_with("https://");
        if grants.profile.iter().all(asks) {
            Ok(grants)
        } else {
            Err(bad(GRANTS, "the URLs of a grant begin with https://"))
        }
    }
}

impl RequestGrants {
    /// Parses the environment variable.
    ///
    /// # Errors
    /// A [`SamplerFailure`] that quotes nothing of the grant.
    pub fn parse(text: &str) -> Result<Self, SamplerFailure> {
        let grants: Self = from_json(REQUESTS, text)?;
        check_routes(REQUESTS, &grants.requests).map(|()| grants)
    }
}

impl CheckpointGrants {
    /// Parses the environment variable: JSON, compressed by gzip and encoded in base64.
    ///
    /// # Errors
    /// A [`SamplerFailure`] that quotes nothing of the grants.
    pub fn parse(text: &str) -> Result<Self, SamplerFailure> {
        let not_packed = || bad(CHECKPOINTS, "not base64 of gzip");
        let bytes = STANDARD.decode(text).map_err(|_| not_packed())?;
        let mut json = String::new();
        GzDecoder::new(&bytes[..])
            .take(JSON_AT_MOST)
            .read_to_string(&mut json)
            .map_err(|_| not_packed())?;
        let grants: Self = from_json(CHECKPOINTS, &json)?;
        if grants.every_seconds == 0 || grants.checkpoints.len() > CHECKPOINTS_AT_MOST {
            let what = format!("at least a second apart, and at most {CHECKPOINTS_AT_MOST}");
            return Err(bad(CHECKPOINTS, &what));
        }
        for routes in &grants.checkpoints {
            check_routes(CHECKPOINTS, routes)?;
        }
        Ok(grants)
    }

    /// When each checkpoint is due: at the times of [`CHECKPOINT_TIMES`], seconds separated by
    /// commas, or without it each interval.
    ///
    /// # Errors
    /// A [`SamplerFailure`] if there is not one time for each checkpoint, each later than the one
    /// before.
    pub fn times(&self, text: Option<&str>) -> Result<Vec<Duration>, SamplerFailure> {
        let Some(text) = text else {
            let times = 1..=u32::try_from(self.checkpoints.len()).unwrap_or(0);
            let every = Duration::from_secs(self.every_seconds);
            return Ok(times.map(|number| every.saturating_mul(number)).collect());
        };
        let seconds = text.split(',').map(str::parse::<u32>);
        let seconds: Result<Vec<u32>, _> = seconds.collect();
        let seconds = seconds.map_err(|_| bad(CHECKPOINT_TIMES, "not a list of seconds"))?;
        let rise = seconds.first().is_some_and(|first| *first > 0)
            && seconds.is_sorted_by(|one, next| one < next);
        if !rise || seconds.len() != self.checkpoints.len() {
            let what = "not a later time for each checkpoint";
            return Err(bad(CHECKPOINT_TIMES, what));
        }
        Ok(seconds
            .into_iter()
            .map(|seconds| Duration::from_secs(seconds.into()))
            .collect())
    }
}

fn bad(variable: &str, what: &str) -> SamplerFailure {
    let message = format!("{variable}: {what}; {NEXT}");
    SamplerFailure::new(Reason::Usage, "grants", message)
}

fn from_json<'a, T: Deserialize<'a>>(variable: &str, text: &'a str) -> Result<T, SamplerFailure> {
    serde_json::from_str(text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let what = format!("not JSON of the expected form (line {line}, column {column})");
        bad(variable, &what)
    })
}

fn check_routes(variable: &str, routes: &[WriteGrant]) -> Result<(), SamplerFailure> {
    if routes.is_empty() || routes.len() > AT_MOST {
        return Err(bad(variable, &format!("there are 1 to {AT_MOST} grants")));
    }
    let check = |grant: &WriteGrant| grant.check().map_err(|what| bad(variable, what));
    routes.iter().try_for_each(check)
}

/// Tells the routes the relay's addresses, and the checksum of uploads to a store, by its name.
pub fn at<'a>(
    addresses: &ResolvedRelay,
    checksum: Option<&str>,
    grants: impl IntoIterator<Item = &'a mut WriteGrant>,
) {
    for grant in grants {
        grant.addresses = addresses.clone();
        grant.sends_md5 = checksum == Some("MD5");
    }
}

impl WriteGrant {
    /// Checks it against the contract; the error says what is expected.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if self.method != "PUT" {
            return Err("the method of a grant is PUT");
        }
        if !self.url.starts_with("https://") {
            return Err("the URLs of a grant begin with https://");
        }
        if is_pinned(&self.pins) != (self.route == DeliveryRoute::Relay) {
            return Err("the relay's keys are pinned, and a store's are not");
        }
        let is_live = self.live.is_empty()
            || self.route == DeliveryRoute::Relay && self.live.starts_with("https://");
        if !is_live {
            return Err("live seconds go to the relay, by https");
        }
        check_printable([&self.url, &self.stop, &self.live], &self.headers)
    }
}

/// Whether pins identify the server.
pub(crate) fn is_pinned(pins: &[String]) -> bool {
    !pins.is_empty() && pins.len() <= AT_MOST
}

/// Checks that no character can end a line of an HTTP request.
pub(crate) fn check_printable<'a>(
    urls: impl IntoIterator<Item = &'a String>,
    headers: &'a BTreeMap<String, String>,
) -> Result<(), &'static str> {
    let headers = headers.iter().flat_map(|(name, value)| [name, value]);
    let mut texts = urls.into_iter().chain(headers);
    if texts.all(|text| text.bytes().all(|byte| matches!(byte, b' '..=b'~'))) {
        Ok(())
    } else {
        Err("a grant is printable ASCII")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grants_of_the_contract_are_understood() {
        let env: serde_json::Value =
            serde_json::from_str(include_str!("../../../contract/env.json")).unwrap();
        let grants = WriteGrants::parse(env[GRANTS].as_str().unwrap()).unwrap();
        let routes: Vec<DeliveryRoute> = grants.profile.iter().map(|grant| grant.route).collect();
        assert_eq!(routes, [DeliveryRoute::Direct, DeliveryRoute::Relay]);
        assert_eq!(grants.profile[0].headers["if-none-match"], "*");
        assert_eq!(grants.profile[1].pins.len(), 2);
        assert!(grants.profile[1].live.contains("/v1/live?key="));
    }

    #[test]
    fn the_checkpoints_of_the_contract_are_understood() {
        let env: serde_json::Value =
            serde_json::from_str(include_str!("../../../contract/env.json")).unwrap();
        let unpacked = CheckpointGrants::parse(env[CHECKPOINTS].as_str().unwrap()).unwrap();
        let golden = include_str!("../../../contract/checkpoints.json");
        let golden: CheckpointGrants = serde_json::from_str(golden).unwrap();
        let seconds = |text| {
            unpacked.times(text).map(|times| {
                times
                    .into_iter()
                    .map(|time| time.as_secs())
                    .collect::<Vec<_>>()
            })
        };
        assert_eq!(seconds(env[CHECKPOINT_TIMES].as_str()).unwrap(), [5, 10]);
        assert_eq!(seconds(None).unwrap(), [60, 120]);
        for bad in ["", "5", "5,5", "0,5", "10,5", "5,10,20", "5,ten"] {
            assert_eq!(
                seconds(Some(bad)).unwrap_err().reason,
                Reason::Usage,
                "{bad}"
            );
        }
        assert_eq!(format!("{unpacked:?}"), format!("{golden:?}"));
        let routes =
            |routes: &Vec<WriteGrant>| routes.iter().map(|grant| grant.route).collect::<Vec<_>>();
        let both = vec![DeliveryRoute::Direct, DeliveryRoute::Relay];
        let found: Vec<_> = golden.checkpoints.iter().map(routes).collect();
        assert_eq!(found, [both.clone(), both]);
    }

    #[test]
    fn list_grants_are_understood_or_refused() {
        let env: serde_json::Value =
            serde_json::from_str(include_str!("../../../contract/env.json")).unwrap();
        let text = env[REQUESTS].as_str().unwrap();
        let grants = RequestGrants::parse(text).unwrap();
        let urls = grants.requests.iter();
        assert!(
            urls.map(|it| &it.url)
                .all(|url| url.contains(".requests.json.gz"))
        );
        for bad in [
            "secret",
            r#"{"requests":[]}"#,
            &text.replace("https", "http"),
        ] {
            let failure = RequestGrants::parse(bad).unwrap_err();
            assert_eq!(failure.reason, Reason::Usage);
            assert!(!failure.message.contains("secret"), "{failure}");
        }
    }

    #[test]
    fn at_turns_on_the_contracts_checksum() {
        let env: serde_json::Value =
            serde_json::from_str(include_str!("../../../contract/env.json")).unwrap();
        let mut grants = WriteGrants::parse(env[GRANTS].as_str().unwrap()).unwrap();
        let mut sent = |checksum| {
            at(&ResolvedRelay::default(), checksum, &mut grants.profile);
            grants.profile[0].sends_md5
        };
        assert!(sent(env[DIRECT_CHECKSUM].as_str()));
        assert!(!sent(Some("CRC64NVME")) && !sent(None));
    }

    fn pack(json: &str) -> String {
        use std::io::Write as _;
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(json.as_bytes()).unwrap();
        STANDARD.encode(gzip.finish().unwrap())
    }

    #[test]
    fn bad_checkpoints_are_refused_without_quoting_them() {
        let check_refused = |text: &str| {
            let failure = CheckpointGrants::parse(text).unwrap_err();
            assert_eq!(failure.reason, Reason::Usage);
            assert!(!failure.message.contains("secret"), "{failure}");
        };
        let grant = r#"{"route":"Direct","method":"PUT","url":"https://secret"}"#;
        let of = |every: u32, count: usize| {
            let checkpoints = vec![format!("[{grant}]"); count].join(",");
            pack(&format!(
                r#"{{"everySeconds":{every},"checkpoints":[{checkpoints}]}}"#
            ))
        };
        assert!(CheckpointGrants::parse(&of(60, 30)).is_ok());
        check_refused("secret");
        check_refused(&STANDARD.encode("secret"));
        check_refused(&pack("secret"));
        check_refused(&of(0, 1));
        check_refused(&of(60, 31));
        check_refused(&pack(r#"{"everySeconds":60,"checkpoints":[[]]}"#));
        check_refused(&pack(
            &format!(r#"{{"everySeconds":60,"checkpoints":[[{grant}]]}}"#).replace("https", "http"),
        ));
        check_refused(&pack(&" ".repeat(2 << 20)));
    }

    #[track_caller]
    fn check_refused(grant: &str) {
        let failure = WriteGrants::parse(grant).unwrap_err();
        assert_eq!(failure.reason, Reason::Usage);
        assert!(failure.message.ends_with(NEXT), "{failure}");
        assert!(!failure.message.contains("secret"), "{failure}");
    }

    #[test]
    fn refusal_has_a_hint() {
        let message = WriteGrants::parse(r#"{"profile":{}}"#).unwrap_err().message;
        let wrong = "PHPPROF_GRANTS: not JSON of the expected form (line 1, column 11)";
        let next = "use the sampler's image of the operator's release";
        assert_eq!(message, format!("{wrong}; {next}"));
    }

    #[test]
    fn bad_grants_are_refused_without_quoting_them() {
        let direct = |method: &str, url: &str, more: &str| {
            format!(
                r#"{{"profile":[{{"route":"Direct","method":"{method}","url":"{url}","stop":"https://secret"{more}}}]}}"#
            )
        };
        check_refused("secret");
        check_refused(r#"{"profile":[]}"#);
        check_refused(&direct("POST", "https://secret", ""));
        check_refused(&direct("PUT", "http://secret", ""));
        check_refused(&direct("PUT", "https://secret", r#","secret":1"#));
        check_refused(&direct("PUT", "https://secret", r#","pins":["secret"]"#));
        check_refused(&direct("PUT", r"https://secret\r\nx:", ""));
        check_refused(&direct("PUT", "https://s", "").replace("Direct", "Relay"));
        check_refused(&direct("PUT", "https://s", r#","live":"https://secret""#));
    }
}
