//! How many of the documents' commands run: all in `make test-full`, except those that are named,
//! and a third in `make test`.

use phpprof_documents::{CommandRunner, FIRST, TUTORIAL, all_commands, runs};

#[test]
fn third_of_commands_runs_in_make_test() {
    let all = all_commands().unwrap();
    let all: Vec<_> = all
        .iter()
        .map(|(page, _, setup, command)| runs(page, *setup, command))
        .collect();
    let in_test = all
        .iter()
        .filter(|run| **run == CommandRunner::Test)
        .count();
    let none = all
        .iter()
        .filter(|run| matches!(run, CommandRunner::No(_)))
        .count();
    println!("{in_test} of {} in make test, {none} nowhere", all.len());
    assert!(in_test * 3 >= all.len(), "{in_test} of {}", all.len());
    // These are six measurements that take hours and demos on a cluster of the reader's, and two
    // for a release that is published.
    assert!(none <= 8, "{none} of {} run nowhere", all.len());
}

#[test]
fn first_profile_and_tutorial_run_in_make_test() {
    for page in [FIRST, TUTORIAL] {
        let all = all_commands().unwrap();
        let of_page = all
            .iter()
            .filter(|(of, ..)| of == std::path::Path::new(page));
        let in_test = of_page
            .filter(|(of, _, setup, command)| runs(of, *setup, command) == CommandRunner::Test);
        assert!(in_test.count() >= 10, "{page}");
    }
}
