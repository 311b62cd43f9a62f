//! What looks have shown of a recursive program, replayed: the same program is told alike, however
//! far the looks are apart.
//!
//! `runtimes/truth/cli.php` on PHP 8.2, recorded at 499 samples a second on an AMD EPYC (Linux
//! 6.18) with `near.txt` as the sampler reads, and `far.txt` with 200 kB more read between two
//! looks: a machine whose reads are slow compared with its calls. A line is `n PARENT FUNCTION OP`
//! for a new node, whose number is that of the line among these; `s STOOD NODE` for a sample, of
//! whose calls as many as STOOD from the root stood in two looks in a row; or `t NODE` for a node
//! of a quiescent read.

use super::*;
use crate::stack::names::FunctionName;

/// A replayed recording: its tree, and the node of each sample.
struct Recording {
    tree: CallTree,
    samples: Vec<PathId>,
}

fn replayed(lines: &str) -> Recording {
    let (mut tree, mut names, mut samples) =
        (CallTree::default(), FunctionNames::default(), Vec::new());
    for line in lines.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |index: usize| words[index].parse::<u32>().unwrap();
        match words[0] {
            "n" => {
                let name = names.intern(FunctionName {
                    name: words[2],
                    file: "",
                    start_line: 0,
                });
                let (parent, op) = (PathId(number(1)), number(3));
                tree.add(parent, name, op, op, CallPath::default()).unwrap();
            }
            "s" => {
                let path = PathId(number(2));
                count(&mut tree, path, number(1) as usize);
                samples.push(path);
            }
            _ => tree.trust(PathId(number(1))),
        }
    }
    Recording { tree, samples }
}

/// As a sample is counted: from the leaf to the first call that is beyond doubt.
fn count(tree: &mut CallTree, path: PathId, stood: usize) {
    let parent = |tree: &CallTree, path: PathId| tree.nodes[path.0 as usize].parent;
    let up = |tree: &CallTree, path| Some(parent(tree, path)).filter(|&it| it != PathId::NONE);
    let callers: Vec<_> = successors(Some(path), |&path| up(tree, path)).collect();
    for (index, path) in callers.iter().enumerate() {
        if tree.is_trusted(*path) {
            return;
        }
        tree.count(*path, callers.len() - index <= stood);
    }
}

impl Recording {
    fn percent(&self, counts: impl Fn(PathId) -> bool) -> f64 {
        let samples = self.samples.iter().filter(|&&path| counts(path)).count();
        100.0 * samples as f64 / self.samples.len() as f64
    }
}

#[test]
fn recursion_is_no_mixture_at_any_distance() {
    for lines in [include_str!("near.txt"), include_str!("far.txt")] {
        let recording = replayed(lines);
        let paths = recording.tree.settle(&Edges::default());
        assert!(recording.samples.len() > 3000);
        assert_eq!(recording.percent(|path| !paths.is_proven(path)), 0.0);
    }
}

/// Else the recording above shows nothing.
#[test]
fn far_looks_show_calls_that_rarely_stand() {
    let Recording { tree, .. } = &replayed(include_str!("far.txt"));
    let trusted = tree.trusted();
    let is_doubtful = |path: PathId| {
        let known = tree.known_at(path);
        let call = tree.call_at(&tree.nodes[path.0 as usize]);
        known.is_some_and(KnownCall::is_doubtful)
            && call.is_some_and(|call| trusted.calls.contains(&call))
    };
    let nodes = (1..tree.nodes.len() as u32).map(PathId);
    assert!(nodes.filter(|&path| is_doubtful(path)).count() > 5);
}
