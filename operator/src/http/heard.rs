//! When the relay last heard from a sampler in each pod. A sampler asks all the time whether to
//! stop, so silence says that it does not reach the relay.
//!
//! Invariant: only a call with a valid grant counts, and what is kept is bounded: old entries go
//! before new ones are refused.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};

/// More pods than run samplers at the same time.
const MOST: usize = 4096;
/// An older entry says no more than none.
const KEPT: SignedDuration = SignedDuration::from_mins(10);

/// By the uid of the pod.
#[derive(Default)]
pub struct Heard(Mutex<HashMap<String, Timestamp>>);

impl Heard {
    /// Records that a sampler of the pod has called.
    pub fn hear(&self, pod_uid: &str, now: Timestamp) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MOST && !all.contains_key(pod_uid) {
            all.retain(|_, at| now.duration_since(*at) < KEPT);
            if all.len() >= MOST {
                // Pods that were heard of long ago matter least, but all are recent: losing them
                // costs a wrong word in a status.
                all.clear();
            }
        }
        all.insert(pod_uid.to_owned(), now);
    }

    /// When a sampler of the pod has last called.
    pub fn last(&self, pod_uid: &str) -> Option<Timestamp> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(pod_uid).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    #[test]
    fn a_bounded_number_of_last_calls_is_kept() {
        let heard = Heard::default();
        heard.hear("a", at(0));
        heard.hear("a", at(7));
        assert_eq!((heard.last("a"), heard.last("b")), (Some(at(7)), None));
        for number in 0..2 * MOST {
            heard.hear(&format!("pod {number}"), at(700));
        }
        let kept = heard.0.lock().unwrap().len();
        assert!((1..=MOST).contains(&kept), "{kept}");
        assert_eq!(heard.last("a"), None);
        assert_eq!(heard.last(&format!("pod {}", 2 * MOST - 1)), Some(at(700)));
    }
}
