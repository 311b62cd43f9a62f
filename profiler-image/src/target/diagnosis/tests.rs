//! Each cause, from recorded facts. `tests/access` provokes those that this kernel can.

use super::*;
use crate::deliver::receipt::failed;
use crate::failure::{Reason, SamplerFailure};
use crate::target::Scope;

/// A container's uid 33 without any capability, as `/proc/PID/status` shows it.
const WWW_DATA: &str = "\
Name:\tphp-fpm8.2
Uid:\t33\t33\t33\t33
Gid:\t33\t33\t33\t33
CapPrm:\t0000000000000000
CapEff:\t0000000000000000
Seccomp:\t0
";
const LINUX: &str = "Linux version 6.8.0-45-generic (buildd@lcy02-amd64-115) (x86_64-linux-gnu-gcc-13) #45-Ubuntu SMP\n";

fn identity(status: &str) -> Option<Identity> {
    let parsed = Identity::parse(status);
    assert!(parsed.is_some(), "{status}");
    parsed
}

fn with(changes: &[(&str, &str)]) -> Option<Identity> {
    let mut status = WWW_DATA.to_owned();
    for (name, value) in changes {
        let lines: Vec<String> = status
            .lines()
            .map(|line| {
                if line.starts_with(&format!("{name}:")) {
                    format!("{name}:\t{value}")
                } else {
                    line.to_owned()
                }
            })
            .collect();
        status = lines.join("\n");
    }
    identity(&status)
}

/// Both ways are refused for the same ordinary user, without a cause yet.
fn refused() -> Facts {
    let namespace = UserNamespace {
        link: None,
        uid_map: Some("         0          0 4294967295\n".into()),
    };
    Facts {
        pid: 7,
        open: Err(Errno::EACCES),
        read: Err(Errno::EACCES),
        call: Err(Errno::EPERM),
        call_on_itself: Ok(()),
        own: identity(WWW_DATA),
        target: identity(WWW_DATA),
        owner: Some(33),
        own_namespace: namespace.clone(),
        target_namespace: namespace,
        yama: None,
        kernel: LINUX.into(),
    }
}

const ROOT: (&str, &str) = ("Uid", "0\t0\t0\t0");
const ROOTS_GROUP: (&str, &str) = ("Gid", "0\t0\t0\t0");
const TRACER: (&str, &str) = ("CapEff", "0000000000080000");
const FILTERED: (&str, &str) = ("Seccomp", "2");

#[track_caller]
fn check(facts: Facts, expected: Cause) {
    assert_eq!(cause(&facts), expected, "{facts:?}");
}

#[test]
fn another_user_or_group_is_refused() {
    let other = Facts {
        own: with(&[("Uid", "1000\t1000\t1000\t1000")]),
        ..refused()
    };
    check(other, Cause::OtherUser);
    let group = Facts {
        own: with(&[("Gid", "1000\t1000\t1000\t1000")]),
        ..refused()
    };
    check(group, Cause::OtherUser);
    // A process that can become root again counts as root's.
    let saved = Facts {
        target: with(&[("Uid", "33\t33\t0\t33")]),
        ..refused()
    };
    check(saved, Cause::OtherUser);
}

#[test]
fn file_capabilities_differ_from_a_missing_dumpable_flag() {
    let not_dumpable = Facts {
        owner: Some(0),
        ..refused()
    };
    check(not_dumpable.clone(), Cause::NotDumpable);
    let capabilities = Facts {
        target: with(&[("CapPrm", "0000000000000400")]),
        ..not_dumpable
    };
    check(capabilities, Cause::Capabilities);
}

#[test]
fn root_without_capabilities_does_not_read_privileged_root() {
    let facts = Facts {
        own: with(&[ROOT, ROOTS_GROUP]),
        target: with(&[ROOT, ROOTS_GROUP, ("CapPrm", "00000000a80425fb")]),
        owner: Some(0),
        ..refused()
    };
    check(facts, Cause::RootWithCapabilities);
}

#[test]
fn yama_refuses_the_same_user_by_its_scope() {
    let yama = |scope| Facts {
        yama: Some(scope),
        ..refused()
    };
    check(yama(1), Cause::Yama(1));
    check(yama(2), Cause::Yama(2));
    check(yama(0), Cause::SecurityModule);
    let root = Facts {
        own: with(&[ROOT, ROOTS_GROUP, TRACER]),
        ..yama(3)
    };
    check(root, Cause::Yama(3));
    // A lower scope would not help there.
    let not_dumpable = Facts {
        owner: Some(0),
        ..yama(1)
    };
    check(not_dumpable, Cause::NotDumpable);
}

#[test]
fn seccomp_refuses_what_the_kernel_has_allowed() {
    let open = Facts {
        open: Ok(()),
        read: Err(Errno::EPERM),
        call_on_itself: Err(Errno::EPERM),
        own: with(&[FILTERED]),
        ..refused()
    };
    check(open.clone(), Cause::Seccomp);
    let unfiltered = Facts {
        own: identity(WWW_DATA),
        ..open
    };
    check(unfiltered, Cause::SecurityModule);
    // Root with only CAP_SYS_PTRACE may not open the file of an ordinary user, so it can only use
    // the call.
    let call = Facts {
        call_on_itself: Err(Errno::EPERM),
        own: with(&[ROOT, ROOTS_GROUP, TRACER, FILTERED]),
        ..refused()
    };
    check(call, Cause::Seccomp);
}

#[test]
fn a_seccomp_filter_hides_no_other_cause() {
    let facts = Facts {
        call_on_itself: Err(Errno::EPERM),
        own: with(&[FILTERED, ("Uid", "1000\t1000\t1000\t1000")]),
        ..refused()
    };
    check(facts, Cause::OtherUser);
}

#[test]
fn another_user_namespace_shows_by_link_or_map() {
    let map = Facts {
        target_namespace: UserNamespace {
            link: None,
            uid_map: Some("         0     100000      65536\n".into()),
        },
        ..refused()
    };
    check(map, Cause::OtherUserNamespace);
    let link = |number: &str| UserNamespace {
        link: Some(format!("user:[{number}]")),
        uid_map: None,
    };
    let links = Facts {
        own_namespace: link("4026531837"),
        target_namespace: link("4026532201"),
        ..refused()
    };
    check(links, Cause::OtherUserNamespace);
}

#[test]
fn gvisor_is_known_by_its_version() {
    for kernel in [
        "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016\n",
        "Linux version 4.19.0-gvisor #1 SMP Sun Jan 10 15:06:54 PST 2016\n",
    ] {
        let facts = Facts {
            call: Err(Errno::ENOSYS),
            kernel: kernel.into(),
            ..refused()
        };
        check(facts, Cause::GVisor);
    }
}

#[test]
fn refused_root_blames_a_security_module() {
    let facts = Facts {
        own: with(&[ROOT, ROOTS_GROUP, TRACER]),
        ..refused()
    };
    check(facts, Cause::SecurityModule);
}

#[test]
fn a_hidden_or_gone_process_is_no_riddle() {
    let facts = Facts {
        target: None,
        ..refused()
    };
    check(facts, Cause::Hidden);
}

#[test]
fn a_cut_status_is_no_identity() {
    assert_eq!(Identity::parse(""), None);
    assert_eq!(
        Identity::parse("Uid:\t33\t33\nGid:\t33\t33\t33\t33\n"),
        None
    );
    assert_eq!(
        Identity::parse(&WWW_DATA.replace("CapEff:\t0000000000000000\n", "CapEff:\tx\n")),
        None
    );
}

fn refused_process(pid: i32, comm: &str, refusal: EngineRefusal) -> Refused {
    Refused {
        pid,
        comm: comm.to_owned(),
        refusal,
    }
}

/// Checks which of two refusals is reported, by its PID.
#[track_caller]
fn check_telling(one: Refused, other: Refused, expected: i32) {
    for (known, new) in [(&one, &other), (&other, &one)] {
        let told = if new.tells_more_than(Some(known)) {
            new
        } else {
            known
        };
        assert_eq!(told.pid, expected);
    }
}

#[test]
fn the_most_telling_process_wins_in_any_order() {
    let denied = || EngineRefusal::Unreadable(MemoryFault::Denied);
    check_telling(
        refused_process(1, "sh", EngineRefusal::NoPhpFound),
        refused_process(2, "php-fpm8.2", denied()),
        2,
    );
    check_telling(
        refused_process(1, "supervisord", denied()),
        refused_process(2, "php-fpm8.2", denied()),
        2,
    );
    check_telling(
        refused_process(1, "php-fpm8.2", denied()),
        refused_process(2, "php-fpm8.2", denied()),
        1,
    );
    check_telling(
        refused_process(1, "php", denied()),
        refused_process(2, "x", EngineRefusal::UnsupportedVersion("9.2".into())),
        2,
    );
}

/// A lack of files may end, unlike a refusal; and it is not the process's fault.
#[test]
fn a_lack_of_files_may_pass_with_waiting() {
    let lack = EngineRefusal::Unreadable(MemoryFault::NoFiles);
    let refused = |refusal| Refused {
        pid: 7,
        comm: "php-fpm8.2".to_owned(),
        refusal,
    };
    let starting = refused(EngineRefusal::Starting);
    let lack = refused(lack);
    assert!(lack.tells_more_than(Some(&starting)) && !lack.is_final());
    assert!(refused(EngineRefusal::Unreadable(MemoryFault::Denied)).is_final());
    let failure = explain(&Scope::All, Some(&lack), |_| panic!("no fact is needed"));
    assert_eq!(
        (failure.reason, failure.detail.as_str()),
        (Reason::Internal, "open files")
    );
    assert!(failure.message.contains("ulimit -n"), "{failure}");
}

#[test]
fn what_is_not_supported_is_named() {
    let check = |refusal: EngineRefusal, detail: &str, expected: &str| {
        let refused = Refused {
            pid: 7,
            comm: "php-fpm7.4".to_owned(),
            refusal,
        };
        assert!(refused.is_final());
        let failure = explain(&Scope::All, Some(&refused), |_| panic!("no fact is needed"));
        assert_eq!(failure.reason, Reason::UnsupportedVersion);
        assert_eq!(failure.detail, detail);
        assert_eq!(failure.message, expected);
    };
    check(
        EngineRefusal::Only32Bit("/usr/sbin/php-fpm7.4".to_owned()),
        "32-bit engines are not supported",
        "process 7 (php-fpm7.4): /usr/sbin/php-fpm7.4 is a 32-bit PHP; 32-bit engines are not supported; run a 64-bit PHP",
    );
    check(
        EngineRefusal::Emulated("/usr/bin/qemu-aarch64".to_owned()),
        "emulated by /usr/bin/qemu-aarch64",
        "process 7 (php-fpm7.4): an emulator runs its PHP (/usr/bin/qemu-aarch64), and its memory does not look like an engine's; run an image for this machine's architecture",
    );
}

#[test]
fn among_all_processes_only_php_names_are_news() {
    let refused = |comm: &str, refusal| Refused {
        pid: 1,
        comm: comm.to_owned(),
        refusal,
    };
    let denied = EngineRefusal::Unreadable(MemoryFault::Denied);
    assert!(!refused("systemd", denied.clone()).is_news_among_all());
    assert!(refused("frankenphp", denied).is_news_among_all());
    assert!(refused("systemd", EngineRefusal::NoPhpFound).is_news_among_all());
}

fn explained(facts: Facts) -> SamplerFailure {
    let refused = Refused {
        pid: 7,
        comm: "php-fpm8.2".to_owned(),
        refusal: EngineRefusal::Unreadable(MemoryFault::Denied),
    };
    explain(&Scope::All, Some(&refused), |pid| Facts { pid, ..facts })
}

/// Checks that the receipt's reason is of the contract, and that the message names the process and
/// the remedy.
#[track_caller]
fn check_words(facts: Facts, reason: Reason, remedy: &str) {
    let failure = explained(facts);
    assert_eq!(failure.reason, reason);
    let line = failed(failure.reason, &failure.detail);
    let contract = include_str!("../../../../contract/receipts.jsonl");
    assert!(contract.lines().any(|known| known == line), "{line}");
    let message = failure.message;
    assert!(message.starts_with("process 7 (php-fpm8.2) "), "{message}");
    assert!(message.contains(remedy), "{message}");
}

#[test]
fn each_cause_has_its_reason_and_its_remedy() {
    let other_user = Facts {
        own: with(&[
            ("Uid", "1000\t1000\t1000\t1000"),
            ("Gid", "1000\t1000\t1000\t1000"),
        ]),
        ..refused()
    };
    check_words(other_user, Reason::PermissionDenied, "run phpprof as 33:33");
    let capabilities = Facts {
        target: with(&[("CapPrm", "0000000000000400")]),
        ..refused()
    };
    check_words(capabilities, Reason::FileCapabilities, "setcap -r");
    let not_dumpable = Facts {
        owner: Some(0),
        ..refused()
    };
    check_words(not_dumpable, Reason::NotDumpable, "process.dumpable = yes");
    let yama = Facts {
        yama: Some(1),
        ..refused()
    };
    check_words(
        yama,
        Reason::YamaRestricted,
        "sysctl kernel.yama.ptrace_scope=0",
    );
    let seccomp = Facts {
        open: Ok(()),
        read: Err(Errno::EPERM),
        own: with(&[FILTERED]),
        ..refused()
    };
    check_words(
        seccomp,
        Reason::SeccompRestricted,
        "a filter that allows one of them",
    );
    let namespace = Facts {
        target_namespace: UserNamespace {
            link: None,
            uid_map: Some("0 100000 65536".into()),
        },
        ..refused()
    };
    check_words(
        namespace,
        Reason::OtherUserNamespace,
        "nsenter --user --target 7",
    );
    let gvisor = Facts {
        call: Err(Errno::ENOSYS),
        kernel: "Linux version 4.19.0-gvisor".into(),
        ..refused()
    };
    check_words(gvisor, Reason::GVisor, "runtimeClassName");
}

#[test]
fn a_security_module_is_told_with_its_errors() {
    let failure = explained(refused());
    assert_eq!(failure.reason, Reason::PermissionDenied);
    assert!(
        failure.message.contains("call: EPERM, file: EACCES") && failure.message.contains("dmesg"),
        "{failure}"
    );
}
