use super::*;

/// A trace in which functions are entered at levels, each at a line of its own, except for those
/// that share one.
fn calls(entered: &[(usize, &str, u32)]) -> CallsByPath {
    let line = |&(level, name, line): &(usize, &str, u32)| {
        format!(
            "{level}\t7\t0\t0.1\t372096\t{name}\t1\t\t/a.php\t{line}\t0\n{level}\t7\t1\t0.2\t1\n"
        )
    };
    let trace: String = entered.iter().map(line).collect();
    let mut calls = CallsByPath::default();
    let whole = format!("Version: 3.2.0\nFile format: 4\n{trace}TRACE END   [2026-11-22]\n\n");
    assert_eq!(calls.read(whole.as_bytes()).unwrap(), entered.len() as u64);
    calls
}

fn leaves_at(calls: &CallsByPath, stack: &[&str]) -> Option<(usize, bool)> {
    let stack: Vec<String> = stack.iter().map(|&name| name.to_owned()).collect();
    let found = calls.leaves_at(&stack);
    found.map(|found| (found.known, found.is_edge_known))
}

#[test]
fn stack_leaves_traces_without_a_path() {
    let calls = calls(&[
        (1, "{main}", 1),
        (2, "f", 2),
        (3, "w", 3),
        (4, "left", 4),
        (2, "g", 5),
        (3, "w", 6),
        (4, "right", 7),
    ]);
    let check = |stack: &[&str], expected| assert_eq!(leaves_at(&calls, stack), expected);
    check(&["{main}", "f", "w", "left"], None);
    check(&["{main}", "g"], None);
    check(&["{main}", "g", "w", "left"], Some((3, true)));
    check(&["{main}", "w"], Some((1, false)));
    check(&["{main}", "g", "never"], Some((2, false)));
    check(&["w"], Some((0, false)));
    assert!(calls.has(None, "{main}") && calls.has(Some("w"), "right"));
    assert!(!calls.has(None, "w") && !calls.has(Some("never"), "w"));
}

#[test]
fn call_after_an_exit_is_its_callers() {
    // `exit` leaves functions without a line for each.
    let calls = calls(&[(1, "{main}", 1), (2, "f", 2), (3, "g", 3), (1, "atEnd", 0)]);
    assert_eq!(leaves_at(&calls, &["atEnd"]), None);
    assert_eq!(leaves_at(&calls, &["{main}", "atEnd"]), Some((1, false)));
}

#[test]
fn a_destructor_may_run_as_its_caller_returns() {
    let calls = calls(&[
        (1, "{main}", 1),
        (2, "f", 2),
        (3, "A->__destruct", 2),
        (4, "free", 9),
    ]);
    let check = |stack: &[&str], expected| assert_eq!(leaves_at(&calls, stack), expected);
    check(&["{main}", "A::__destruct", "free"], None);
    check(&["{main}", "f", "A::__destruct", "free"], None);
    check(&["{main}", "free"], Some((1, false)));
    assert!(calls.has(Some("{main}"), "A::__destruct") && !calls.has(None, "A::__destruct"));
}

#[test]
fn missing_methods_handler_is_called_instead() {
    let calls = calls(&[
        (1, "{main}", 1),
        (2, "A->missing", 7),
        (3, "A->__call", 7),
        (4, "f", 9),
        (2, "A->real", 8),
        (3, "B::__callStatic", 9),
    ]);
    let check = |stack: &[&str], expected| assert_eq!(leaves_at(&calls, stack), expected);
    check(&["{main}", "A::__call", "f"], None);
    check(&["{main}", "A::missing", "A::__call"], Some((2, false)));
    check(&["{main}", "A::real", "B::__callStatic"], None);
    check(&["{main}", "B::__callStatic"], Some((1, false)));
}

#[test]
fn a_trace_that_is_none_is_refused() {
    let read = |trace: &str| CallsByPath::default().read(trace.as_bytes());
    assert_eq!(read("Version: 3.2.0\n").unwrap(), 0);
    let entered = "3\t7\t0\t0.1\t1\tf\t1\t\t/a.php\t1\t0\n";
    assert!(read(entered).is_err(), "a level without the one below it");
    let cut = "1\t7\t0\t0.1\t1\tf\t1\t\t/a.php\t1\t0";
    assert!(read(cut).is_err(), "a line without an end");
}
