//! Calls that a profile may have and the traces need not, and why: pure.

/// What the traces may lack.
struct Explained {
    /// The call, below any callers.
    caller: &'static str,
    callee: &'static str,
    why: &'static str,
}

const EXPLAINED: &[Explained] = &[
    Explained {
        caller: "io_lock",
        callee: "usleep",
        why: "DokuWiki waits for the lock of a file that another request writes; the traces are of one request at a time",
    },
    Explained {
        caller: "SqlBagOStuff::occasionallyGarbageCollect",
        callee: "DeferredUpdates::addCallableUpdate",
        why: "MediaWiki removes what has expired with one of ten writes to its cache, by chance",
    },
];

/// Why the traces may lack the last call of a path.
pub fn explanation(path: &[String]) -> Option<&'static str> {
    let [.., caller, callee] = path else {
        return None;
    };
    let found = EXPLAINED
        .iter()
        .find(|one| one.caller == caller && one.callee == callee);
    found.map(|one| one.why)
}
