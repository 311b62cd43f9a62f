//! Runs the program: on files, and with an API server that answers from a script.

#[cfg(test)]
mod canary;
#[cfg(test)]
mod cluster;
#[cfg(test)]
mod failures;
#[cfg(test)]
mod files;
#[cfg(test)]
mod live;
#[cfg(test)]
mod pipes;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod runs;
#[cfg(test)]
mod schedule;
#[cfg(test)]
mod server;
#[cfg(test)]
mod shell;
#[cfg(test)]
mod stored;
