//! Delivers a profile by its grants: create-only PUTs, tried route by route until one is stored or
//! the deadline has passed.
//!
//! [`pause`], a pure function, gives the time to wait. [`put`] makes a single try.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ring::rand::{SecureRandom, SystemRandom};
use ureq::Agent;

use super::grants::{DeliveryRoute, WriteGrant};
use super::put::{CA_BUNDLE, PutVerdict, put, said};
use crate::failure::{Reason, SamplerFailure};
use crate::run::stop::StopSwitch;

/// The operator refuses larger objects without reading them.
pub const MAX_BYTES: usize = 32 << 20;
/// Tries in a row before another route is tried.
const TRIES_OF_A_ROUTE: u32 = 3;
/// Seconds for finding PHP, closing open edges at the end, encoding, and a first try.
const LEFT_FOR_UPLOAD: u64 = 10;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How long to sample, in seconds: the requested time, but short enough to leave time for the
/// upload before the grant expires. A sampler that starts just before its `--not-after` would
/// otherwise sample past it.
#[must_use]
pub fn time_to_sample(asked: u64, now: u64, upload_until: Option<u64>) -> u64 {
    let left = upload_until.map_or(asked, |until| {
        until.saturating_sub(now + LEFT_FOR_UPLOAD).max(1)
    });
    asked.min(left)
}

/// How long to wait before try number `tries` (from 1): it grows exponentially, and one half is
/// random. `chance` is from 0 to 255.
#[must_use]
pub fn pause(tries: u32, chance: u8) -> Duration {
    let longest = FIRST_PAUSE
        .saturating_mul(1 << tries.min(16))
        .min(LONGEST_PAUSE);
    longest / 2 + longest.mul_f64(f64::from(chance) / 255.0) / 2
}

/// Uploads `body` until `until` (Unix seconds), route by route; returns the route that stored it.
///
/// # Errors
/// A [`SamplerFailure`] with the last error. Then nothing was stored, or the answer was lost.
pub fn upload(
    routes: &[WriteGrant],
    agents: &[Agent],
    body: &[u8],
    until: u64,
    stop: &StopSwitch,
) -> Result<DeliveryRoute, SamplerFailure> {
    if body.len() > MAX_BYTES {
        let message = format!(
            "the profile has {} bytes, over the limit of {MAX_BYTES}",
            body.len()
        );
        return Err(SamplerFailure::new(
            Reason::ProfileTooLarge,
            body.len().to_string(),
            message,
        ));
    }
    let mut routes = Routes {
        routes,
        at: 0,
        tries: 0,
        tries_here: 0,
        refusals: vec![None; routes.len()],
    };
    loop {
        if stop.is_drop() {
            return Err(dropped());
        }
        let grant = routes.grant();
        let Some((wait, why)) = routes.answered(put(agents, grant, body))? else {
            return Ok(grant.route);
        };
        if unix_seconds() + wait.as_secs() >= until {
            return Err(routes.too_late(why));
        }
        eprintln!(
            "phpprof: upload, {:?}: {why}; next try in {:.1} s",
            grant.route,
            wait.as_secs_f64()
        );
        std::thread::sleep(wait);
    }
}

/// The failure that the profile is not wanted any more.
#[must_use]
pub fn dropped() -> SamplerFailure {
    SamplerFailure::new(Reason::Cancelled, "", "the request was deleted")
}

/// The routes, and which is tried next.
struct Routes<'a> {
    routes: &'a [WriteGrant],
    at: usize,
    tries: u32,
    tries_here: u32,
    /// The refusals of routes that are not tried any more.
    refusals: Vec<Option<SamplerFailure>>,
}

impl<'a> Routes<'a> {
    fn grant(&self) -> &'a WriteGrant {
        &self.routes[self.at]
    }

    /// Takes the answer of the route that was tried. Returns nothing if it stored the profile, else
    /// the time until the next try and the cause; a failure if no route is left.
    fn answered(
        &mut self,
        verdict: PutVerdict,
    ) -> Result<Option<(Duration, String)>, SamplerFailure> {
        self.tries += 1;
        self.tries_here += 1;
        let pause = pause(self.tries, random_byte());
        match verdict {
            PutVerdict::Stored => Ok(None),
            PutVerdict::Again(why) if self.tries_here < TRIES_OF_A_ROUTE => Ok(Some((pause, why))),
            PutVerdict::Again(why) | PutVerdict::Unreachable(why) => {
                let round = self.next();
                Ok(Some((if round { pause } else { Duration::ZERO }, why)))
            }
            verdict => {
                let failure = refusal(&verdict);
                let why = failure.detail.clone();
                self.refusals[self.at] = Some(failure);
                if let Some(first) = self.first_refusal_of_all() {
                    return Err(first);
                }
                let round = self.next();
                Ok(Some((if round { pause } else { Duration::ZERO }, why)))
            }
        }
    }

    /// Goes to the next route that is still tried; returns whether it began again with the first.
    fn next(&mut self) -> bool {
        self.tries_here = 0;
        let count = self.routes.len();
        let before = self.at;
        self.at = (1..=count)
            .map(|step| (before + step) % count)
            .find(|&route| self.refusals[route].is_none())
            .unwrap_or(before);
        self.at <= before
    }

    fn first_refusal_of_all(&self) -> Option<SamplerFailure> {
        if self.refusals.iter().all(Option::is_some) {
            self.refusals[0].clone()
        } else {
            None
        }
    }

    /// The failure after the deadline. A refusal is reported first, because it says more than that
    /// another route was not reached.
    fn too_late(self, why: String) -> SamplerFailure {
        let refusal = self.refusals.into_iter().flatten().next();
        refusal.unwrap_or_else(|| {
            let message = format!("the profile could not be stored in time: {why}");
            SamplerFailure::new(Reason::UploadDeadlineExceeded, why, message)
        })
    }
}

fn refusal(verdict: &PutVerdict) -> SamplerFailure {
    match verdict {
        PutVerdict::Refused(status, code) => {
            let status = said(*status, code);
            let message = format!(
                "the store refuses the upload with {status}; has the grant expired, or is the clock wrong?"
            );
            SamplerFailure::new(Reason::UploadRefused, status, message)
        }
        PutVerdict::SourceNotPod(addresses) => {
            let message =
                format!("the relay refuses the upload because of its source address: {addresses}");
            SamplerFailure::new(Reason::SourceNotPod, addresses, message)
        }
        PutVerdict::CertificateUntrusted(what) if !what.is_empty() => {
            let message = format!(
                "the store's certificate is not trusted: {what}; trusted are public CAs and those in {CA_BUNDLE}"
            );
            SamplerFailure::new(Reason::CertificateUntrusted, *what, message)
        }
        _ => {
            let message =
                format!("no trusted CA has signed the certificate; set the CA in {CA_BUNDLE}");
            SamplerFailure::new(Reason::CertificateUntrusted, "", message)
        }
    }
}

/// Seconds since 1970.
#[must_use]
pub fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs())
}

/// A random number, so that samplers do not all pause equally long.
#[must_use]
pub fn random_byte() -> u8 {
    let mut byte = [128];
    let _ = SystemRandom::new().fill(&mut byte);
    byte[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a sampler that starts this many seconds before or after its `not-after` of 1000, with
    /// this upload deadline.
    #[track_caller]
    fn check_time(asked: u64, now: u64, deadline: u64, expected: u64) {
        let until = 1000 + deadline;
        let time = time_to_sample(asked, now, Some(until));
        assert_eq!(time, expected);
        assert!(now + time < until || time == 1);
    }

    #[test]
    fn sampling_ends_before_the_grant_does() {
        check_time(300, 700, 600, 300);
        check_time(300, 1000, 600, 300);
        check_time(3600, 1000, 600, 590);
        check_time(30, 1000, 15, 5);
        check_time(30, 1000, 5, 1);
        assert_eq!(time_to_sample(86_400, 1000, None), 86_400);
    }

    #[test]
    fn pauses_grow_to_ten_seconds() {
        assert_eq!(pause(1, 0), Duration::from_millis(250));
        assert_eq!(pause(1, 255), Duration::from_millis(500));
        assert_eq!(pause(u32::MAX, 255), Duration::from_secs(10));
    }

    fn grant(route: DeliveryRoute) -> WriteGrant {
        WriteGrant {
            route,
            method: "PUT".into(),
            url: "https://x/".into(),
            headers: [].into(),
            stop: "https://x/".into(),
            live: String::new(),
            pins: Vec::new(),
            addresses: Default::default(),
            sends_md5: false,
        }
    }

    /// Checks which routes are tried after these answers, as the routes' first letters, and how it
    /// ends.
    #[track_caller]
    fn check_ladder(answers: &[PutVerdict], expected: &str) {
        let routes = [grant(DeliveryRoute::Direct), grant(DeliveryRoute::Relay)];
        let mut routes = Routes {
            routes: &routes,
            at: 0,
            tries: 0,
            tries_here: 0,
            refusals: vec![None; 2],
        };
        let mut way = String::new();
        for answer in answers {
            way.push(if routes.at == 0 { 'D' } else { 'R' });
            match routes.answered(answer.clone()) {
                Ok(None) => way += " stored",
                Ok(Some((wait, _))) => way += if wait.is_zero() { " " } else { ", " },
                Err(failure) => way += &format!(" {:?}", failure.reason),
            }
        }
        assert_eq!(way, expected);
    }

    #[test]
    fn routes_are_tried_thrice_in_turn() {
        let again = || PutVerdict::Again("HTTP 503".into());
        let nobody = || PutVerdict::Unreachable("timeout".into());
        check_ladder(&[PutVerdict::Stored], "D stored");
        check_ladder(
            &[again(), again(), again(), PutVerdict::Stored],
            "D, D, D R stored",
        );
        check_ladder(&[nobody(), nobody(), nobody()], "D R, D ");
        check_ladder(
            &[
                PutVerdict::Refused(403, String::new()),
                again(),
                again(),
                again(),
                again(),
            ],
            "D R, R, R, R, ",
        );
        check_ladder(
            &[
                PutVerdict::CertificateUntrusted(""),
                PutVerdict::Refused(403, String::new()),
            ],
            "D R CertificateUntrusted",
        );
    }
}
