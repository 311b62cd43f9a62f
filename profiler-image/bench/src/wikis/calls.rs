//! The tree of all traced calls, and stacks that are compared with it: pure.
//!
//! Invariant: it has at most [`MAX_NODES`] nodes, whatever a trace contains.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{BufRead, Read};

use anyhow::{Result, ensure};

use super::names::TracedCall;

/// Several times the number for a wiki's pages.
const MAX_NODES: u32 = 20_000_000;
/// Longer than a line with the text of an eval.
const MAX_LINE: u64 = 16 << 20;
const ENGINE: u32 = 0;

/// All calls by their call paths.
#[derive(Debug, Default)]
pub struct CallsByPath {
    names: HashMap<String, u32>,
    /// The node of a callee, by that of its caller and its name.
    nodes: BTreeMap<(u32, u32), u32>,
    /// Names of caller and callee.
    edges: BTreeSet<(Option<u32>, u32)>,
    /// Names of destructors, which run when an object is freed.
    destructors: BTreeSet<u32>,
}

/// Where a stack differs from the traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Break {
    /// The number of frames from the root that occur as a call path.
    pub known: usize,
    /// The next call occurs, but on another call path.
    pub is_edge_known: bool,
}

/// A call that has not ended.
#[derive(Debug, Default)]
struct OpenCall {
    node: u32,
    name: Option<u32>,
    /// The call site.
    site: String,
}

impl CallsByPath {
    /// Adds the calls of a trace in Xdebug's format 1, and returns their number.
    pub fn read(&mut self, mut trace: impl BufRead) -> Result<u64> {
        let mut line = Vec::new();
        // The engine first.
        let mut path = vec![OpenCall::default()];
        let mut calls = 0;
        loop {
            line.clear();
            let length = trace.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)?;
            if length == 0 {
                return Ok(calls);
            }
            ensure!(line.ends_with(b"\n"), "a trace has a line without an end");
            let text = String::from_utf8_lossy(&line);
            let Some((level, call)) = entry(&text) else {
                continue;
            };
            ensure!(
                (1..=path.len()).contains(&level),
                "a trace goes from level {} to {level}",
                path.len() - 1
            );
            path.truncate(level);
            let name = call.name();
            let site = format!("{}:{}", call.file, call.line);
            // The engine replaces its trampoline by `__call`; Xdebug, which runs each frame by
            // itself, shows both.
            let is_behind = call.is_magic() && level > 1 && path[level - 1].site == site;
            let caller = &path[level - 1 - usize::from(is_behind)];
            let id = self.name(&name)?;
            self.edges.insert((caller.name, id));
            let node = self.node(caller.node, id)?;
            path.push(OpenCall {
                node,
                name: Some(id),
                site,
            });
            calls += 1;
        }
    }

    fn name(&mut self, name: &str) -> Result<u32> {
        if let Some(&id) = self.names.get(name) {
            return Ok(id);
        }
        let id = u32::try_from(self.names.len())?;
        self.names.insert(name.to_owned(), id);
        if name.ends_with("::__destruct") {
            self.destructors.insert(id);
        }
        Ok(id)
    }

    fn node(&mut self, parent: u32, name: u32) -> Result<u32> {
        let next = u32::try_from(self.nodes.len())? + 1;
        let node = *self.nodes.entry((parent, name)).or_insert(next);
        ensure!(node < MAX_NODES, "the traces have too many call paths");
        Ok(node)
    }

    /// How many call paths there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Where a stack, root first, differs from the traces.
    pub fn leaves_at(&self, stack: &[String]) -> Option<Break> {
        let mut nodes = vec![ENGINE];
        let mut caller = None;
        for (known, frame) in stack.iter().enumerate() {
            let name = self.names.get(frame).copied();
            nodes = name.map_or(Vec::new(), |name| self.callees(&nodes, name));
            if nodes.is_empty() {
                let is_edge_known = name.is_some_and(|name| self.has_edge(caller, name));
                return Some(Break {
                    known,
                    is_edge_known,
                });
            }
            caller = name;
        }
        None
    }

    /// Whether a call occurs at all.
    pub fn has(&self, caller: Option<&str>, callee: &str) -> bool {
        let id = |name: &str| self.names.get(name).copied();
        let caller_id = caller.and_then(id);
        let is_known = caller_id.is_some() || caller.is_none();
        is_known && id(callee).is_some_and(|callee| self.has_edge(caller_id, callee))
    }

    fn callees(&self, nodes: &[u32], name: u32) -> Vec<u32> {
        let child = |node: u32| self.nodes.get(&(node, name)).copied();
        let mut callees: Vec<u32> = nodes.iter().filter_map(|&node| child(node)).collect();
        if self.destructors.contains(&name) {
            // A function's variables are freed after it has left the stack: for the engine its
            // caller is the destructor's caller, for Xdebug it is the function.
            let returning = nodes
                .iter()
                .flat_map(|&node| self.nodes.range((node, 0)..=(node, u32::MAX)));
            callees.extend(returning.filter_map(|(_, &node)| child(node)));
        }
        callees
    }

    fn has_edge(&self, caller: Option<u32>, callee: u32) -> bool {
        let returning = || {
            let mut returning = self.edges.range((caller, 0)..=(caller, u32::MAX));
            returning.any(|&(_, function)| self.edges.contains(&(Some(function), callee)))
        };
        let is_destructor = self.destructors.contains(&callee);
        self.edges.contains(&(caller, callee)) || (is_destructor && returning())
    }
}

/// Level and call of a line about entering a function.
fn entry(line: &str) -> Option<(usize, TracedCall<'_>)> {
    let mut fields = line.trim_end_matches('\n').split('\t');
    let level = fields.next()?.parse().ok()?;
    let _number = fields.next()?;
    if fields.next()? != "0" {
        return None;
    }
    let mut fields = fields.skip(2);
    let function = fields.next()?;
    let _is_user = fields.next()?;
    let call = TracedCall {
        function,
        included: fields.next()?,
        file: fields.next()?,
        line: fields.next()?,
    };
    Some((level, call))
}

#[cfg(test)]
mod tests;
