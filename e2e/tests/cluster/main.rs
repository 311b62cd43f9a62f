//! What phpprof promises, tried on a real cluster: `make e2e`.

mod checkpoints;
mod crowd;
mod dokuwiki;
mod ends;
mod grants;
mod hostile;
mod latency;
mod outages;
mod outlets;
mod plugin;
mod profiles;
mod refusals;
mod restarts;
mod runtimes;
mod schedules;
mod volume;
