//! Opens the writers' output in other programs: the page in a browser, the formats in their
//! readers.
//!
//! `make browser` runs it, because it needs Chromium, speedscope, the Firefox Profiler's loader,
//! axe-core, Go and callgrind_annotate, which `tools/browser` installs. Screenshots of the page are
//! written to `target/browser`.

#[cfg(test)]
mod browser;
#[cfg(test)]
mod page;
#[cfg(test)]
#[path = "../profiles/mod.rs"]
mod profiles;
#[cfg(test)]
mod programs;
#[cfg(test)]
mod server;
#[cfg(test)]
mod start;
#[cfg(test)]
mod timelines;
