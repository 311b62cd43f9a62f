//! Collects facts about a process that may not be read: from `/proc`, and by trying each way to
//! read it once.
//!
//! It does not judge and does not fail; it leaves out unavailable facts.

use std::fs::{File, metadata, read_link, read_to_string};
use std::io::{self, IoSliceMut};
use std::os::unix::fs::{FileExt, MetadataExt};

use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use crate::target::process::text;

use super::{Facts, Identity, Tried, UserNamespace};

/// Collects the facts.
#[must_use]
pub fn gather(pid: i32) -> Facts {
    let identity = |who: &str| {
        let status = text(&format!("/proc/{who}/status"))?;
        Identity::parse(&status)
    };
    let (open, read) = file(pid);
    let who = pid.to_string();
    Facts {
        pid,
        open,
        read,
        call: call(pid),
        call_on_itself: call(i32::try_from(std::process::id()).unwrap_or(0)),
        own: identity("self"),
        target: identity(&who),
        // The folder /proc/PID itself always belongs to the process's user (`task_dump_owner` in
        // fs/proc/base.c).
        owner: metadata(format!("/proc/{who}/status"))
            .ok()
            .map(|metadata| metadata.uid()),
        own_namespace: user_namespace("self"),
        target_namespace: user_namespace(&who),
        yama: read_to_string("/proc/sys/kernel/yama/ptrace_scope")
            .ok()
            .and_then(|text| text.trim().parse().ok()),
        kernel: read_to_string("/proc/version").unwrap_or_default(),
    }
}

fn user_namespace(who: &str) -> UserNamespace {
    UserNamespace {
        link: read_link(format!("/proc/{who}/ns/user"))
            .ok()
            .map(|link| link.to_string_lossy().into_owned()),
        uid_map: read_to_string(format!("/proc/{who}/uid_map")).ok(),
    }
}

/// Opens the file, and reads from it. Nothing is mapped at address 0, which is not a refusal.
fn file(pid: i32) -> (Tried, Tried) {
    match File::open(format!("/proc/{pid}/mem")) {
        Err(error) => (Err(errno(&error)), Err(errno(&error))),
        Ok(file) => {
            let read = file.read_at(&mut [0], 0).map_err(|error| errno(&error));
            (Ok(()), permission(read.map(|_| ())))
        }
    }
}

fn call(pid: i32) -> Tried {
    let (mut byte, remote) = ([0], [RemoteIoVec { base: 0, len: 1 }]);
    let read = process_vm_readv(
        Pid::from_raw(pid),
        &mut [IoSliceMut::new(&mut byte)],
        &remote,
    );
    permission(read.map(|_| ()))
}

/// The error for an unmapped address counts as success: the kernel checks the permission first.
fn permission(tried: Tried) -> Tried {
    match tried {
        Err(Errno::EFAULT | Errno::EIO) => Ok(()),
        other => other,
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(0))
}
