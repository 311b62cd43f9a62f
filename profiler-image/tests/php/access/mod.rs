//! Which processes this kernel lets the sampler read, and its message otherwise: real processes
//! with real identities. It requires root.
//!
//! Yama, gVisor and security modules are not available on every machine: `diagnosis/tests.rs` has
//! their facts.

mod scene;

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use phpprof_testing::fpm::{Pool, configuration};
use phpprof_testing::{Running, wait_until};
use scene::{Said, Scene, quiet, run, wait_for_child_of};

/// Debian's www-data and nobody: two ordinary users that always exist.
const WWW_DATA: &str = "setpriv --reuid=33 --regid=33 --clear-groups";
const NOBODY: &str = "setpriv --reuid=65534 --regid=65534 --clear-groups";
/// Root as the operator's mode `Ptrace` makes it: SYS_PTRACE and no other capability.
const PTRACE_ALONE: &str = "setpriv --bounding-set=-all,+sys_ptrace --inh-caps=-all";
const WITHOUT_CAPABILITIES: &str = "setpriv --bounding-set=-all --inh-caps=-all";
const PHP: &str = "/usr/bin/php8.2";

/// System calls of x86_64.
const PREAD64: u32 = 17;
const PROCESS_VM_READV: u32 = 310;

/// Checks a refusal: its exit code, its reason, and the words of its remedy.
#[track_caller]
fn check(said: &Said, exit_code: i32, reason: &str, remedy: &str) -> Result<()> {
    ensure!(said.exit_code == Some(exit_code), "{said:?}");
    let named = format!(r#"{{"reason":"{reason}""#);
    ensure!(
        said.receipt.starts_with(&named) && said.receipt.len() <= 120,
        "{said:?}"
    );
    ensure!(said.stderr.contains(remedy), "{said:?}");
    Ok(())
}

fn check_profile(said: &Said) -> Result<()> {
    ensure!(said.exit_code == Some(0), "{said:?}");
    ensure!(
        said.receipt.starts_with(r#"{"reason":"Uploaded""#),
        "{said:?}"
    );
    Ok(())
}

#[test]
fn the_same_user_reads_its_own() -> Result<()> {
    let scene = Scene::new()?;
    let target = scene.busy(WWW_DATA, PHP)?;
    check_profile(&scene.record(WWW_DATA, target.pid())?)
}

#[test]
fn root_with_ptrace_reads_a_dumpable_process() -> Result<()> {
    let scene = Scene::new()?;
    let target = scene.busy(WWW_DATA, PHP)?;
    check_profile(&scene.record(PTRACE_ALONE, target.pid())?)
}

#[test]
fn another_user_is_refused() -> Result<()> {
    let scene = Scene::new()?;
    let target = scene.busy(WWW_DATA, PHP)?;
    let said = scene.record(NOBODY, target.pid())?;
    check(&said, 14, "PermissionDenied", "run phpprof as 33:33")
}

#[test]
fn weaker_root_is_refused_by_stronger_root() -> Result<()> {
    let scene = Scene::new()?;
    let target = scene.busy("", PHP)?;
    let said = scene.record(WITHOUT_CAPABILITIES, target.pid())?;
    check(&said, 14, "PermissionDenied", "as root with CAP_SYS_PTRACE")
}

#[test]
fn php_with_capabilities_hides_from_its_user() -> Result<()> {
    let scene = Scene::new()?;
    let php = scene.copy(PHP, "php")?;
    run(Command::new("setcap")
        .arg("cap_net_bind_service=ep")
        .arg(&php))?;
    let target = scene.busy(WWW_DATA, &php)?;
    let said = scene.record(WWW_DATA, target.pid())?;
    check(&said, 15, "FileCapabilities", "setcap -r")?;
    check_profile(&scene.record(PTRACE_ALONE, target.pid())?)
}

#[test]
fn worker_of_another_user_hides_from_it() -> Result<()> {
    let scene = Scene::new()?;
    let (socket, file) = (scene.path("socket"), scene.path("fpm.conf"));
    let pool = Pool {
        name: "www",
        socket: &socket,
        workers: 1,
        more: "user = www-data\n",
    };
    fs::write(&file, configuration(&[pool]))?;
    let mut fpm = Command::new("/usr/sbin/php-fpm8.2");
    let master = quiet(fpm.arg("--nodaemonize").arg("-y").arg(&file))?;
    let worker = wait_for_child_of(&master, 33)?;
    let said = scene.record(WWW_DATA, worker)?;
    check(&said, 16, "NotDumpable", "process.dumpable = yes")?;
    check(
        &scene.record(WWW_DATA, master.pid())?,
        14,
        "PermissionDenied",
        "run phpprof as 0:0",
    )
}

/// A command prefix under which these system calls are refused.
fn refusing(scene: &Scene, identity: &str, calls: &[u32]) -> Result<String> {
    let library = scene.compile("refuse", &["-shared", "-fPIC"])?;
    let calls: Vec<String> = calls.iter().map(u32::to_string).collect();
    let (calls, library) = (calls.join(","), library.display());
    Ok(format!(
        "{identity} env REFUSE={calls} LD_PRELOAD={library}"
    ))
}

#[test]
fn seccomp_may_refuse_one_way_and_not_both() -> Result<()> {
    let scene = Scene::new()?;
    let target = scene.busy(WWW_DATA, PHP)?;
    let one = refusing(&scene, WWW_DATA, &[PROCESS_VM_READV])?;
    check_profile(&scene.record(&one, target.pid())?)?;
    let both = refusing(&scene, WWW_DATA, &[PROCESS_VM_READV, PREAD64])?;
    let said = scene.record(&both, target.pid())?;
    check(
        &said,
        41,
        "SeccompRestricted",
        "a filter that allows one of them",
    )
}

#[test]
fn seccomp_may_refuse_roots_only_way() -> Result<()> {
    let scene = Scene::new()?;
    let target = scene.busy(WWW_DATA, PHP)?;
    let call = refusing(&scene, PTRACE_ALONE, &[PROCESS_VM_READV])?;
    let said = scene.record(&call, target.pid())?;
    check(&said, 41, "SeccompRestricted", "seccomp filter")
}

#[test]
fn process_outside_the_user_namespace_is_refused() -> Result<()> {
    let scene = Scene::new()?;
    let target = scene.busy("", PHP)?;
    let said = scene.record("unshare --user --map-root-user", target.pid())?;
    check(&said, 42, "OtherUserNamespace", "as root of the machine")
}

#[test]
fn roots_user_namespace_is_refused_to_its_user() -> Result<()> {
    let scene = Scene::new()?;
    let holder = namespace_of_root()?;
    let inside = format!("nsenter --user --target={} {WWW_DATA}", holder.pid());
    let target = scene.busy(&inside, PHP)?;
    let said = scene.record(WWW_DATA, target.pid())?;
    check(&said, 42, "OtherUserNamespace", "nsenter --user")?;
    check_profile(&scene.record("", target.pid())?)
}

/// A process in a user namespace that maps every user to itself, and that belongs to root.
fn namespace_of_root() -> Result<Running> {
    let holder = quiet(Command::new("unshare").args(["--user", "sleep", "60"]))?;
    let link = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/user"));
    wait_until("namespace of its own", || {
        Ok(link(&holder.pid().to_string())? != link("self")?)
    })?;
    for map in ["uid_map", "gid_map"] {
        fs::write(format!("/proc/{}/{map}", holder.pid()), "0 0 65536")?;
    }
    Ok(holder)
}

#[test]
fn what_is_no_php_is_told_at_once() -> Result<()> {
    let scene = Scene::new()?;
    let target = quiet(Command::new("sleep").arg("60"))?;
    check(
        &scene.record("", target.pid())?,
        10,
        "NoPhpFound",
        "pgrep --list-full php",
    )
}

#[test]
fn a_php_without_symbols_is_refused() -> Result<()> {
    let scene = Scene::new()?;
    let mute = scene.compile("mute", &[])?;
    let target = scene.busy("", &mute)?;
    check(
        &scene.record("", target.pid())?,
        12,
        "NoEngineSymbols",
        "exports its symbols",
    )
}

#[test]
fn an_unknown_version_is_refused_by_its_name() -> Result<()> {
    let scene = Scene::new()?;
    let php = patched(&scene, "9.2.")?;
    let target = scene.busy("", &php)?;
    let said = scene.record("", target.pid())?;
    check(&said, 11, "UnsupportedVersion", "PHP 9.2.")
}

#[test]
fn a_version_that_the_engine_contradicts_is_refused() -> Result<()> {
    let scene = Scene::new()?;
    let php = patched(&scene, "8.1.")?;
    let target = scene.busy("", &php)?;
    let said = scene.record("", target.pid())?;
    check(&said, 13, "LayoutMismatch", "please report it")
}

/// This machine's PHP, patched to another version number of the same length.
fn patched(scene: &Scene, version: &str) -> Result<std::path::PathBuf> {
    const HEADER: &[u8] = b"X-Powered-By: PHP/";
    let mut bytes = fs::read(Path::new(PHP))?;
    let found: Vec<usize> = (0..bytes.len() - 64)
        .filter(|&at| bytes[at..].starts_with(HEADER))
        .collect();
    ensure!(!found.is_empty(), "{PHP} does not say its version");
    for at in found {
        let at = at + HEADER.len();
        bytes[at..at + version.len()].copy_from_slice(version.as_bytes());
    }
    let patched = scene.path("patched");
    fs::write(&patched, bytes)?;
    scene.copy(patched, "php")
}
