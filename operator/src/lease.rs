//! Elects the replica that handles requests: the one that holds the Lease. The rules are those of
//! Kubernetes' own controllers (client-go, tools/leaderelection).
//!
//! Invariant: after its last renewal, a replica leads for a shorter time than the others wait. No
//! replica trusts another's clock: each measures how long it has seen the Lease unchanged. The
//! Lease keeps two replicas from doing the same work. If they still do, unique names and resource
//! versions prevent harm.

use std::future::Future;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::Instant;

/// How long the others wait for a holder that is gone without giving the Lease up.
const LASTS: Duration = Duration::from_secs(10);
/// How long a holder leads without a renewal.
const GIVE_UP: Duration = Duration::from_secs(7);
/// How often the holder renews the Lease, and how often the others read it.
const RENEW_EVERY: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The longest time for one such attempt.
const TAKES: Duration = Duration::from_secs(3);

/// Whether this replica handles requests.
pub struct Role(watch::Sender<bool>);

impl Role {
    /// The role of an operator that runs alone, or of one that waits for its turn.
    #[must_use]
    pub fn new(leads: bool) -> Self {
        Role(watch::Sender::new(leads))
    }

    #[must_use]
    pub(crate) fn leads(&self) -> bool {
        *self.0.borrow()
    }

    #[must_use]
    pub(crate) fn subscribe(&self) -> watch::Receiver<bool> {
        self.0.subscribe()
    }

    /// Ends when this replica stops leading. If it does not lead now, it ends after the replica has
    /// led and stopped.
    pub async fn lost(&self) {
        let mut turns = self.subscribe();
        for leads in [true, false] {
            // The sender lives as long as this role.
            let _ = turns.wait_for(|now| *now == leads).await;
        }
    }

    /// Starts or stops leading.
    pub fn set(&self, leads: bool) {
        let is_news = self
            .0
            .send_if_modified(|before| std::mem::replace(before, leads) != leads);
        if is_news {
            tracing::info!(leads, "the operator's lease");
        }
    }
}

/// The Lease of a release, as one replica sees it. The chart creates it, so the operator needs no
/// right to create Leases.
pub struct Election {
    leases: Api<Lease>,
    name: String,
    /// This replica: its pod's name.
    identity: String,
    /// The Lease as last seen, and since when it has been unchanged.
    seen: Option<(Lease, Instant)>,
    renewed: Option<Instant>,
}

impl Election {
    /// A replica that does not lead yet. `identity` is the pod's name and differs between replicas.
    #[must_use]
    pub fn new(client: Client, namespace: &str, name: &str, identity: String) -> Self {
        Election {
            leases: Api::namespaced(client, namespace),
            name: name.to_owned(),
            identity,
            seen: None,
            renewed: None,
        }
    }

    /// Takes part until `end`. Then it gives the Lease up, so that another replica need not wait.
    pub async fn run(mut self, role: &Role, end: impl Future<Output = ()>) {
        tokio::select! {
            () = self.stand(role) => {}
            () = end => {}
        }
        role.set(false);
        match tokio::time::timeout(TAKES, self.release()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "releasing the lease failed"),
            Err(_) => tracing::warn!("the API server did not release the lease in time"),
        }
    }

    async fn stand(&mut self, role: &Role) {
        loop {
            let begin = Instant::now();
            let mut by = begin + TAKES;
            if let Some(renewed) = self.renewed.filter(|_| role.leads()) {
                by = by.min(renewed + GIVE_UP);
            }
            match tokio::time::timeout_at(by, self.look()).await {
                Ok(Ok(holds)) => {
                    self.renewed = holds.then_some(begin);
                    role.set(holds);
                }
                Ok(Err(error)) => tracing::warn!(%error, "reading the lease failed"),
                Err(_) => tracing::warn!("the API server did not answer about the lease in time"),
            }
            if self
                .renewed
                .is_none_or(|renewed| renewed.elapsed() >= GIVE_UP)
            {
                role.set(false);
            }
            tokio::time::sleep(if role.leads() {
                RENEW_EVERY
            } else {
                LOOK_EVERY
            })
            .await;
        }
    }

    /// Whether this replica holds the Lease. Renews it, or takes it if no replica holds it.
    async fn look(&mut self) -> Result<bool, kube::Error> {
        let found = self.leases.get(&self.name).await?;
        let is_same = |(seen, _): &(Lease, Instant)| seen.spec == found.spec;
        let since = match self.seen.take().filter(is_same) {
            Some((_, since)) => since,
            None => Instant::now(),
        };
        let spec = found.spec.clone().unwrap_or_default();
        let next = next(&self.identity, spec, since.elapsed(), Timestamp::now());
        self.seen = Some((found.clone(), since));
        match next {
            Some(spec) => self.write(found, spec).await,
            None => Ok(false),
        }
    }

    /// Writes only over the version that was read. If two replicas want the Lease, one gets it.
    async fn write(&mut self, mut lease: Lease, spec: LeaseSpec) -> Result<bool, kube::Error> {
        lease.spec = Some(spec);
        let params = PostParams::default();
        match self.leases.replace(&self.name, &params, &lease).await {
            Ok(written) => {
                self.seen = Some((written, Instant::now()));
                Ok(true)
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn release(&mut self) -> Result<(), kube::Error> {
        let found = self.leases.get(&self.name).await?;
        let spec = found.spec.clone().unwrap_or_default();
        if holder(&spec) == Some(self.identity.as_str()) {
            let free = LeaseSpec {
                holder_identity: None,
                ..spec
            };
            self.write(found, free).await?;
        }
        Ok(())
    }
}

fn holder(spec: &LeaseSpec) -> Option<&str> {
    let holder = spec.holder_identity.as_deref();
    holder.filter(|holder| !holder.is_empty())
}

/// What a replica writes into a Lease that has been unchanged for this time; `None` if another
/// replica holds it.
fn next(identity: &str, spec: LeaseSpec, unchanged: Duration, now: Timestamp) -> Option<LeaseSpec> {
    let lasts = u64::try_from(spec.lease_duration_seconds.unwrap_or_default()).unwrap_or_default();
    let is_mine = match holder(&spec) {
        Some(holder) if holder == identity => true,
        Some(_) if unchanged < Duration::from_secs(lasts) => return None,
        _ => false,
    };
    let transitions = spec.lease_transitions.unwrap_or_default();
    Some(LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: i32::try_from(LASTS.as_secs()).ok(),
        acquire_time: if is_mine {
            spec.acquire_time
        } else {
            Some(MicroTime(now))
        },
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(transitions.saturating_add(i32::from(!is_mine))),
        ..spec
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    fn held_by(holder: &str) -> LeaseSpec {
        next(holder, LeaseSpec::default(), Duration::ZERO, at(0)).unwrap()
    }

    #[test]
    fn a_lease_that_nobody_holds_is_taken() {
        let taken = held_by("a");
        assert_eq!(holder(&taken), Some("a"));
        assert_eq!(taken.lease_transitions, Some(1));
        assert_eq!(taken.acquire_time, Some(MicroTime(at(0))));
        let free = LeaseSpec {
            holder_identity: Some(String::new()),
            ..taken
        };
        let again = next("b", free, Duration::ZERO, at(1)).unwrap();
        assert_eq!(
            (holder(&again), again.lease_transitions),
            (Some("b"), Some(2))
        );
    }

    #[test]
    fn the_holder_renews_and_keeps_its_acquire_time() {
        let renewed = next("a", held_by("a"), LASTS * 9, at(5)).unwrap();
        assert_eq!(renewed.renew_time, Some(MicroTime(at(5))));
        assert_eq!(renewed.acquire_time, Some(MicroTime(at(0))));
        assert_eq!(renewed.lease_transitions, Some(1));
    }

    /// This holds even if the clock that wrote it is wrong.
    #[test]
    fn others_wait_while_they_see_the_lease_change() {
        let wait = |unchanged| next("b", held_by("a"), unchanged, at(1_000_000));
        assert_eq!(wait(LASTS - Duration::from_millis(1)), None);
        assert_eq!(holder(&wait(LASTS).unwrap()), Some("b"));
    }

    #[test]
    fn a_holder_gives_up_before_others_take_over() {
        assert!(GIVE_UP + LOOK_EVERY < LASTS && RENEW_EVERY + TAKES < GIVE_UP);
    }

    #[tokio::test(start_paused = true)]
    async fn a_role_is_lost_by_who_had_it() {
        let (leader, follower) = (Role::new(true), Role::new(false));
        let soon = Duration::from_secs(1);
        let is_lost = async |role: &Role| tokio::time::timeout(soon, role.lost()).await.is_ok();
        assert!(!is_lost(&leader).await && !is_lost(&follower).await);
        let change = async {
            tokio::time::sleep(soon / 2).await;
            leader.set(false);
            follower.set(true);
        };
        let (lost, gained, ()) = tokio::join!(is_lost(&leader), is_lost(&follower), change);
        assert!(lost && !gained);
    }

    #[test]
    fn a_change_of_role_is_news_once() {
        let role = Role::new(false);
        let mut seen = role.subscribe();
        role.set(true);
        role.set(true);
        assert!(*seen.borrow_and_update() && role.leads());
        assert!(!seen.has_changed().unwrap());
        role.set(false);
        assert!(seen.has_changed().unwrap() && !role.leads());
    }
}
