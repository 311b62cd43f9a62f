//! How a run delivers its profile and the checkpoints before it, from the variables that the
//! operator has set.

use std::sync::Arc;
use std::time::Duration;

use phpprof::contract;
use phpprof::deliver::addresses::{RELAY_ADDRESSES, ResolvedRelay};
use phpprof::deliver::checkpoints::Checkpoints;
use phpprof::deliver::deltas::Deltas;
use phpprof::deliver::environment::Environment;
use phpprof::deliver::grants::{
    CHECKPOINT_TIMES, CHECKPOINTS, CheckpointGrants, DIRECT_CHECKSUM, GRANTS, REQUESTS,
    RequestGrants, WriteGrant, WriteGrants, at,
};
use phpprof::deliver::live::LiveRoute;
use phpprof::deliver::pprof::{OfSampler, output};
use phpprof::deliver::{put, server_time, upload};
use phpprof::failure::{Reason, SamplerFailure};
use phpprof::run::snapshot::Keep;
use phpprof::run::stop::StopSwitch;
use phpprof_profile::timeline::{MAX_BYTES, Timeline, encode_within};
use ureq::Agent;

use super::{of_sampler, say};

/// The grants, and the HTTP clients for a store.
pub struct Delivery {
    pub grants: WriteGrants,
    pub agents: Vec<Agent>,
    /// The number of the contract that is spoken with the operator.
    pub spoken: u32,
    /// The checkpoints of a long run.
    checkpoints: Option<(CheckpointGrants, Vec<Duration>)>,
    /// Grants for the list of requests; empty if no list is wanted.
    requests: Vec<WriteGrant>,
}

/// The longest time for the upload of the list of requests, in seconds: the profile, which ends the
/// run, waits for it.
const LIST_TAKES: u64 = 20;

impl Delivery {
    /// Reads the variables.
    pub fn new(environment: &Environment) -> Result<Self, SamplerFailure> {
        let spoken = contract::spoken(environment.get(contract::VARIABLE))?;
        let grants = environment.get(GRANTS).unwrap_or_default();
        let mut grants = WriteGrants::parse(grants).map_err(|failure| {
            let message = format!("{failure}, or -o FILE to write the profile to a file");
            SamplerFailure { message, ..failure }
        })?;
        let checkpoints = environment.get(CHECKPOINTS).map(|text| {
            let granted = CheckpointGrants::parse(text)?;
            let times = granted.times(environment.get(CHECKPOINT_TIMES))?;
            Ok::<_, SamplerFailure>((granted, times))
        });
        let requests = environment.get(REQUESTS).map(RequestGrants::parse);
        let mut checkpoints = checkpoints.transpose()?;
        let mut requests = requests.transpose()?;
        let addresses = ResolvedRelay::parse(environment.get(RELAY_ADDRESSES));
        let checksum = environment.get(DIRECT_CHECKSUM);
        at(&addresses, checksum, &mut grants.profile);
        at(
            &addresses,
            checksum,
            checkpoints
                .iter_mut()
                .flat_map(|(granted, _)| &mut granted.checkpoints)
                .flatten(),
        );
        at(
            &addresses,
            checksum,
            requests.iter_mut().flat_map(|it| &mut it.requests),
        );
        Ok(Self {
            grants,
            spoken,
            agents: put::agents(environment.get(put::CA_BUNDLE))?,
            checkpoints,
            requests: requests.map_or_else(Vec::new, |granted| granted.requests),
        })
    }

    /// Stores the list of requests if it is wanted and there is one. Returns whether it is stored.
    /// The run keeps its profile if it is not.
    pub fn store_requests(
        &self,
        list: Option<Timeline>,
        until: u64,
        stop: &StopSwitch,
    ) -> Option<bool> {
        if self.requests.is_empty() {
            return None;
        }
        let Some(list) = list else {
            return Some(false);
        };
        let now = upload::unix_seconds();
        // Half of the time that is left is for the profile.
        let until = now + (until.saturating_sub(now) / 2).min(LIST_TAKES);
        let file = encode_within(list, MAX_BYTES).map_err(|error| error.to_string());
        let stored = file.and_then(|file| {
            let stored = upload::upload(&self.requests, &self.agents, &file, until, stop);
            stored.map(|_| file.len()).map_err(|failure| failure.detail)
        });
        match &stored {
            Ok(size) => say(&format!("the list of requests: {size} bytes")),
            Err(why) => say(&format!("storing the list of requests failed: {why}")),
        }
        Some(stored.is_ok())
    }

    /// The time of the server that receives the profile.
    pub fn server_now(&self) -> Option<u64> {
        server_time::server_now(&self.grants.profile, &self.agents)
    }

    /// Sends each second's samples to a reader. If no grant has a route for that, the run is like
    /// any other.
    ///
    /// # Errors
    /// There is no room for another thread.
    pub fn live(
        &self,
        labels: &[(String, String)],
        stop: &StopSwitch,
    ) -> Result<Option<Arc<dyn Keep>>, SamplerFailure> {
        let Some(mut way) = LiveRoute::of(&self.grants.profile, stop) else {
            return Ok(None);
        };
        let labels = labels.to_vec();
        let of_sampler = OfSampler {
            contract: self.spoken,
            ..OfSampler::default()
        };
        let deltas = Deltas::begin(move |delta| {
            way.bring(&output(&delta, &labels, of_sampler).bytes);
        });
        let deltas = deltas.map_err(|error| {
            let message = format!("starting a thread for the live profile failed: {error}");
            SamplerFailure::new(Reason::Internal, "live", message)
        })?;
        Ok(Some(Arc::new(deltas)))
    }

    /// Uploads each checkpoint like the last profile. It tries until the next checkpoint is due.
    pub fn checkpoints(
        &self,
        labels: &[(String, String)],
        stop: &StopSwitch,
    ) -> Option<Checkpoints> {
        let (granted, times) = self.checkpoints.clone()?;
        let (checkpoints, due) = (granted.checkpoints, times.clone());
        let (agents, labels, stop) = (self.agents.clone(), labels.to_vec(), stop.clone());
        let spoken = self.spoken;
        let make = move |snapshot| output(&snapshot, &labels, of_sampler(spoken)).bytes;
        let keep = move |number: u32, bytes: &[u8]| {
            let index = usize::try_from(number - 1).unwrap_or(usize::MAX);
            let routes = checkpoints.get(index).ok_or("there is no grant for it")?;
            let until = upload::unix_seconds() + until_next(&due, index).as_secs();
            let stored = upload::upload(routes, &agents, bytes, until, &stop);
            stored.map(drop).map_err(|failure| failure.message)
        };
        Some(Checkpoints::new(times, make, keep))
    }
}

/// How long after a checkpoint the next one is due; after the last one, as long as before it.
fn until_next(times: &[Duration], index: usize) -> Duration {
    let at = |index: usize| times.get(index).copied();
    let this = at(index).unwrap_or_default();
    let before = index.checked_sub(1).and_then(at).unwrap_or_default();
    at(index + 1).map_or_else(|| this.saturating_sub(before), |next| next - this)
}
