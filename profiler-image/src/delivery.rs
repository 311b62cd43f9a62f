//! With what a profile and the checkpoints before it are delivered: what the operator has put into the environment.

use phpprof::deliver::checkpoints::Checkpoints;
use phpprof::deliver::grants::{CHECKPOINTS, CheckpointGrants, GRANTS, Grants};
use phpprof::deliver::pprof::output;
use phpprof::deliver::{put, server_time, upload};
use phpprof::failure::Failure;
use phpprof::run::stop::Stop;
use ureq::Agent;

use crate::cost;

/// Grants, and the ways to a store.
pub struct Delivery {
    pub grants: Grants,
    pub agents: Vec<Agent>,
    /// Of a long run.
    checkpoints: Option<CheckpointGrants>,
}

impl Delivery {
    /// What the environment says.
    pub fn from_environment() -> Result<Self, Failure> {
        let variable = |name: &str| std::env::var(name).unwrap_or_default();
        let grants = Grants::parse(&variable(GRANTS)).map_err(|failure| {
            let message = format!("{failure}; give -o FILE to write the profile to a file");
            Failure { message, ..failure }
        })?;
        let set = |name| Some(variable(name)).filter(|text| !text.trim().is_empty());
        let checkpoints = set(CHECKPOINTS).map(|text| CheckpointGrants::parse(&text));
        Ok(Self {
            grants,
            agents: put::agents(set(put::CA_BUNDLE).as_deref())?,
            checkpoints: checkpoints.transpose()?,
        })
    }

    /// What time it is for whoever takes the profile.
    pub fn server_now(&self) -> Option<u64> {
        server_time::server_now(&self.grants.profile, &self.agents)
    }

    /// Each checkpoint is a profile as the last one is, and is tried until the next one is due.
    pub fn checkpoints(&self, labels: &[(String, String)], stop: &Stop) -> Option<Checkpoints> {
        let granted = self.checkpoints.clone()?;
        let (every, checkpoints) = (granted.every(), granted.checkpoints);
        let (agents, labels, stop) = (self.agents.clone(), labels.to_vec(), stop.clone());
        let count = u32::try_from(checkpoints.len()).unwrap_or(0);
        let make = move |snapshot| output(&snapshot, &labels, cost()).bytes;
        let keep = move |number: u32, bytes: &[u8]| {
            let index = usize::try_from(number - 1).unwrap_or(usize::MAX);
            let routes = checkpoints.get(index).ok_or("there is no grant for it")?;
            let until = upload::unix_seconds() + every.as_secs();
            let stored = upload::upload(routes, &agents, bytes, until, &stop);
            stored.map(drop).map_err(|failure| failure.message)
        };
        Some(Checkpoints::new(every, count, make, keep))
    }
}
