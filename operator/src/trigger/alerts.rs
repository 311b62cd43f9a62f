//! The payload of Alertmanager's webhook, version 4 (`notify/webhook/webhook.go` and
//! `template/template.go` of prometheus/alertmanager; Grafana's alerting sends the same).
//!
//! Invariant: what leaves here is bounded in number and length. Annotations are never kept.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};

use crate::sampler::receipt::printable;

/// Alerts that are looked at in one payload. The others are counted.
pub const MOST_ALERTS: usize = 1000;
/// Labels of one alert.
pub const MOST_LABELS: usize = 64;
/// Bytes of a label's name and value together.
pub const LONGEST_LABEL: usize = 4 << 10;
/// Bytes of a fingerprint. Alertmanager's has 16 (`model.Fingerprint`).
const LONGEST_FINGERPRINT: usize = 64;
/// Bytes of an error's words.
const LONGEST_WORDS: usize = 300;
const VERSION: &str = "4";
const FIRING: &str = "firing";
const RESOLVED: &str = "resolved";

/// Labels by their names.
pub type AlertLabels = BTreeMap<String, String>;

/// An alert that fires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FiringAlert {
    /// What triggers look at.
    pub labels: AlertLabels,
    /// A hash of its labels.
    pub fingerprint: String,
    /// Since when it fires. A later firing of the same labels has another start.
    pub starts_at: Timestamp,
}

impl FiringAlert {
    /// The label `alertname`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.labels.get("alertname").map_or("", String::as_str)
    }
}

/// What a payload says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceivedAlerts {
    /// In their order.
    pub firing: Vec<FiringAlert>,
    /// Those that do not fire any more.
    pub resolved: usize,
    /// Those above [`MOST_ALERTS`], and those that Alertmanager has left out itself.
    pub left_out: u64,
}

/// Reads a payload.
///
/// # Errors
/// Why it is none, in words for who sent it.
pub fn parse(payload: &[u8]) -> Result<ReceivedAlerts, String> {
    let message: WebhookMessage = serde_json::from_slice(payload).map_err(|error| {
        let error = printable(&error.to_string(), LONGEST_WORDS);
        format!("the payload is not that of Alertmanager's webhook, version 4: {error}")
    })?;
    if message.version != VERSION {
        let version = printable(&message.version, 16);
        return Err(format!(
            "the payload has version {version:?}; this understands version {VERSION} of Alertmanager's webhook"
        ));
    }
    let mut received = message.alerts.0;
    received.left_out = received.left_out.saturating_add(message.truncated_alerts);
    Ok(received)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WebhookMessage {
    version: String,
    /// By `max_alerts` of the receiver.
    #[serde(default)]
    truncated_alerts: u64,
    alerts: BoundedAlerts,
}

struct BoundedAlerts(ReceivedAlerts);

impl<'de> Deserialize<'de> for BoundedAlerts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(AlertsVisitor).map(Self)
    }
}

struct AlertsVisitor;

impl<'de> Visitor<'de> for AlertsVisitor {
    type Value = ReceivedAlerts;

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str("a list of alerts")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut alerts: A) -> Result<ReceivedAlerts, A::Error> {
        let mut received = ReceivedAlerts::default();
        for _ in 0..MOST_ALERTS {
            let Some(alert) = alerts.next_element::<WebhookAlert>()? else {
                return Ok(received);
            };
            match alert.status.as_str() {
                FIRING => received.firing.push(alert.checked()?),
                RESOLVED => received.resolved += 1,
                _ => return Err(A::Error::custom("an alert is neither firing nor resolved")),
            }
        }
        while alerts.next_element::<IgnoredAny>()?.is_some() {
            received.left_out += 1;
        }
        Ok(received)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WebhookAlert {
    status: String,
    labels: BoundedLabels,
    starts_at: Timestamp,
    fingerprint: String,
}

impl WebhookAlert {
    fn checked<E: de::Error>(self) -> Result<FiringAlert, E> {
        let is_hash = |byte: u8| byte.is_ascii_hexdigit();
        let length = self.fingerprint.len();
        if !(1..=LONGEST_FINGERPRINT).contains(&length) || !self.fingerprint.bytes().all(is_hash) {
            return Err(E::custom(format_args!(
                "an alert's fingerprint must have 1 to {LONGEST_FINGERPRINT} hexadecimal digits"
            )));
        }
        Ok(FiringAlert {
            labels: self.labels.0,
            fingerprint: self.fingerprint,
            starts_at: self.starts_at,
        })
    }
}

struct BoundedLabels(AlertLabels);

impl<'de> Deserialize<'de> for BoundedLabels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(LabelsVisitor).map(Self)
    }
}

struct LabelsVisitor;

impl<'de> Visitor<'de> for LabelsVisitor {
    type Value = AlertLabels;

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str("an object of labels")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<AlertLabels, A::Error> {
        let mut labels = AlertLabels::new();
        while let Some((name, value)) = entries.next_entry::<String, String>()? {
            if name.len() + value.len() > LONGEST_LABEL {
                return Err(A::Error::custom(format_args!(
                    "a label of an alert has more than {LONGEST_LABEL} bytes"
                )));
            }
            if labels.len() == MOST_LABELS {
                return Err(A::Error::custom(format_args!(
                    "an alert has more than {MOST_LABELS} labels"
                )));
            }
            labels.insert(name, value);
        }
        Ok(labels)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn alert(fields: Value) -> Value {
        let mut alert = json!({
            "status": "firing", "labels": {"alertname": "Slow", "app": "web"},
            "annotations": {"summary": "it is slow"}, "startsAt": "2026-11-30T20:00:00.123Z",
            "endsAt": "0001-01-01T00:00:00Z", "generatorURL": "http://prometheus/graph",
            "fingerprint": "00ab34cd56ef7890",
        });
        for (name, value) in fields.as_object().into_iter().flatten() {
            alert[name] = value.clone();
        }
        alert
    }

    fn payload(alerts: &[Value]) -> Value {
        json!({
            "version": "4", "groupKey": "{}:{alertname=\"Slow\"}", "truncatedAlerts": 0,
            "status": "firing", "receiver": "phpprof", "groupLabels": {}, "commonLabels": {},
            "commonAnnotations": {}, "externalURL": "http://alertmanager", "alerts": alerts,
        })
    }

    fn read(payload: &Value) -> Result<ReceivedAlerts, String> {
        parse(payload.to_string().as_bytes())
    }

    #[test]
    fn firing_alerts_are_read_and_resolved_counted() {
        let received = read(&payload(&[
            alert(json!({})),
            alert(json!({"status": "resolved"})),
        ]));
        let received = received.unwrap();
        assert_eq!((received.resolved, received.left_out), (1, 0));
        let [firing] = received.firing.as_slice() else {
            panic!("{received:?}");
        };
        assert_eq!((firing.name(), firing.labels.len()), ("Slow", 2));
        assert_eq!(firing.fingerprint, "00ab34cd56ef7890");
        assert_eq!(firing.starts_at.to_string(), "2026-11-30T20:00:00.123Z");
    }

    #[test]
    fn alerts_above_the_bound_are_counted() {
        let many = vec![alert(json!({})); MOST_ALERTS + 7];
        let mut payload = payload(&many);
        payload["truncatedAlerts"] = json!(5);
        let received = read(&payload).unwrap();
        assert_eq!(
            (received.firing.len(), received.left_out),
            (MOST_ALERTS, 12)
        );
        payload["truncatedAlerts"] = json!(u64::MAX);
        assert_eq!(read(&payload).unwrap().left_out, u64::MAX);
    }

    #[test]
    fn an_empty_list_is_a_payload() {
        assert_eq!(read(&payload(&[])), Ok(ReceivedAlerts::default()));
    }

    #[track_caller]
    fn refused(fields: Value, words: &str) {
        let said = read(&payload(&[alert(fields)])).unwrap_err();
        assert!(said.contains(words), "{said}");
        assert!(said.len() < 400 && !said.contains("it is slow"), "{said}");
    }

    #[test]
    fn hostile_alerts_are_refused_in_few_words() {
        refused(
            json!({"labels": {"a": "x".repeat(LONGEST_LABEL)}}),
            "more than 4096 bytes",
        );
        let many: BTreeMap<_, _> = (0..=MOST_LABELS)
            .map(|it| (format!("l{it}"), "x"))
            .collect();
        refused(json!({"labels": many}), "more than 64 labels");
        refused(json!({"labels": {"a": 7}}), "expected a string");
        refused(json!({"labels": []}), "an object of labels");
        for fingerprint in ["", "../../x", "00ab 34", "é", &"a".repeat(65)] {
            refused(json!({"fingerprint": fingerprint}), "hexadecimal digits");
        }
        refused(
            json!({"startsAt": "yesterday"}),
            "not that of Alertmanager's webhook",
        );
        refused(
            json!({"startsAt": "x".repeat(100_000)}),
            "not that of Alertmanager's webhook",
        );
        refused(
            json!({"status": "y".repeat(100_000)}),
            "neither firing nor resolved",
        );
        refused(json!({"status": null}), "expected a string");
    }

    #[test]
    fn what_is_no_payload_is_refused() {
        let nested = "[".repeat(100_000);
        for text in [
            "",
            "{}",
            "[]",
            "null",
            "x",
            "{\"version\": \"4\"}",
            nested.as_str(),
        ] {
            let said = parse(text.as_bytes()).unwrap_err();
            assert!(said.starts_with("the payload is not that of"), "{said}");
        }
        assert!(parse(b"\xff\xfe").is_err());
        let mut other = payload(&[]);
        other["version"] = json!("5");
        assert!(read(&other).unwrap_err().contains("version \"5\""));
        other["version"] = json!("5".repeat(100_000));
        assert!(read(&other).unwrap_err().len() < 200);
    }
}
