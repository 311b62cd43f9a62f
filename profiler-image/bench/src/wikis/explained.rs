//! Calls that a profile may have although the traces do not, and why: pure.

/// A call that the traces may lack.
struct Explained {
    /// The call, below any callers; for a closure the end of its file's name.
    caller: &'static str,
    callee: &'static str,
    why: &'static str,
}

const LOCKED: &str = "DokuWiki shows its editor once the lock of an earlier request has expired (checklock, inc/common.php); the traces may be of requests that it has refused";

const EXPLAINED: &[Explained] = &[
    Explained {
        caller: "io_lock",
        callee: "usleep",
        why: "DokuWiki waits for the lock of a file that another request writes; the traces are of one request at a time",
    },
    Explained {
        caller: "dokuwiki\\Action\\Edit::preProcess",
        callee: "lock",
        why: LOCKED,
    },
    Explained {
        caller: "dokuwiki\\Action\\Edit::tplContent",
        callee: "dokuwiki\\Ui\\Editor::show",
        why: LOCKED,
    },
    Explained {
        caller: "SqlBagOStuff::occasionallyGarbageCollect",
        callee: "DeferredUpdates::addCallableUpdate",
        why: "MediaWiki removes what has expired with one of ten writes to its cache, by chance",
    },
    Explained {
        caller: "DeferredUpdatesScope::processStageQueue",
        callee: "/deferred/DeferredUpdates.php",
        why: "MediaWiki does at a request's end what it has put off, as the removal of what has expired, by chance",
    },
];

/// Why the traces may lack the last call of a path.
pub fn explanation(path: &[String]) -> Option<&'static str> {
    let [.., caller, callee] = path else {
        return None;
    };
    let is_callee = |one: &Explained| match callee.strip_prefix("{closure:") {
        Some(place) => place
            .rsplit_once(':')
            .is_some_and(|(file, _)| file.ends_with(one.callee)),
        None => callee == one.callee,
    };
    let found = EXPLAINED
        .iter()
        .find(|one| one.caller == caller && is_callee(one));
    found.map(|one| one.why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_call_is_explained() {
        let check = |path: &[&str], expected| {
            let path: Vec<String> = path.iter().map(|&name| name.to_owned()).collect();
            assert_eq!(explanation(&path).is_some(), expected, "{path:?}");
        };
        check(&["{main}", "io_lock", "usleep"], true);
        check(&["{main}", "io_lock", "sleep"], false);
        check(&["{main}", "usleep"], false);
        check(&["dokuwiki\\Action\\Edit::preProcess", "lock"], true);
        check(&["dokuwiki\\Action\\Edit::preProcess", "unlock"], false);
        let editor = "dokuwiki\\Ui\\Editor::show";
        check(&["dokuwiki\\Action\\Edit::tplContent", editor], true);
        check(&["usleep"], false);
        let queue = "DeferredUpdatesScope::processStageQueue";
        check(
            &[queue, "{closure:/w/deferred/DeferredUpdates.php:8}"],
            true,
        );
        check(&[queue, "{closure:/w/Updates.php:8}"], false);
    }
}
