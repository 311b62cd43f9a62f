//! What is left of a target.

use super::*;

/// Checks what is left of these processes: whether each lives, is in scope, and is known to run no
/// PHP.
#[track_caller]
fn check(scope: &Scope, processes: &[(bool, bool, bool)], expected: Left) {
    let own_pid = i32::try_from(std::process::id()).unwrap();
    let seen = |(index, &(lives, in_scope, is_without_php)): (i32, &(bool, bool, bool))| {
        let other = Other {
            executable: None,
            is_starting: false,
            doubts: 0,
            is_without_php,
            lacks_room: false,
            may_count: true,
            look_at: 0,
        };
        let seen = Seen {
            start_time: 0,
            parent: 0,
            account: ReapedAccount::default(),
            in_scope,
            born: 0,
            verdict: Verdict::Other(other),
        };
        // No process has such a number.
        (if lives { own_pid } else { i32::MAX - index }, seen)
    };
    let processes = (0..).zip(processes).map(seen).collect();
    let lives = |pid| Stat::of(pid).is_some_and(|stat| !stat.has_ended());
    assert_eq!(
        Left::of(scope, &processes, lives),
        expected,
        "{processes:?}"
    );
}

#[test]
fn a_container_is_php_unless_known_as_another() {
    let container = Scope::Container("3f".repeat(32));
    check(&container, &[], Left::Nothing);
    check(&container, &[(false, true, true)], Left::Nothing);
    check(&container, &[(true, false, false)], Left::Nothing);
    check(&container, &[(true, true, true)], Left::Others);
    check(
        &container,
        &[(true, true, true), (false, true, true)],
        Left::Others,
    );
    // As a master of php-fpm that may not be read.
    check(&container, &[(true, true, false)], Left::Php);
    check(
        &container,
        &[(true, true, true), (false, true, false)],
        Left::Php,
    );
    // A process that the user named may start PHP whenever it likes.
    check(&Scope::Pids(vec![1]), &[(true, true, true)], Left::Php);
}
