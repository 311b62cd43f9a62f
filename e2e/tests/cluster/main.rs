//! What phpprof promises, tried on a real cluster: `make e2e`.

mod checkpoints;
mod crowd;
mod dokuwiki;
mod ends;
mod grants;
mod halts;
mod hostile;
mod keys;
mod latency;
mod metrics;
mod namespaces;
mod outages;
mod outlets;
mod plugin;
mod policies;
mod profiles;
mod queue;
mod refusals;
mod replicas;
mod restarts;
mod runtimes;
mod schedules;
mod siege;
mod sources;
mod specs;
mod volume;
