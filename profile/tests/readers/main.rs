//! What other programs make of what the writers write: browsers of the page, readers of the formats.
//!
//! `make browser` runs it, since it needs Chromium, speedscope, axe-core, Go and callgrind_annotate; `tools/browser` installs them. The
//! pictures of the page are left in `target/browser`.

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
