//! Refuses a system call to this process, as seccomp does in restricted pods.

use std::collections::BTreeMap;

use anyhow::Result;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// Refuses `process_vm_readv` to this thread and those that it starts.
pub fn refuse_process_vm_readv() -> Result<()> {
    const PROCESS_VM_READV: i64 = if cfg!(target_arch = "x86_64") {
        310
    } else {
        270
    };
    const EPERM: u32 = 1;
    let filter = SeccompFilter::new(
        BTreeMap::from([(PROCESS_VM_READV, Vec::new())]),
        SeccompAction::Allow,
        SeccompAction::Errno(EPERM),
        std::env::consts::ARCH.try_into()?,
    )?;
    let program: BpfProgram = filter.try_into()?;
    Ok(seccompiler::apply_filter(&program)?)
}
