//! A live process's memory: by `process_vm_readv` if that is allowed, otherwise by `/proc/PID/mem`.
//!
//! Pods with Pod Security `restricted` refuse the call by seccomp, even on itself, and allow the
//! file. The file is opened once and kept: it stays bound to its memory, so a process that has
//! ended, or done an `execve`, reads as gone and never as another process. Root with only
//! CAP_SYS_PTRACE may use the call but not open the file, if the process belongs to another user
//! and is dumpable: then that user owns the file.
//!
//! The call takes a PID, which may have been reused. A caller that has to be sure reads by
//! [`ProcessMemory::bound_word`], or checks after the read whether a descriptor of the process
//! still works (`Clocks::look`).

use std::fs::File;
use std::io::{self, ErrorKind, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use phpprof_zend::memory::{Memory, MemoryFault, Piece};
use smallvec::SmallVec;

use super::calls;

/// IOV_MAX is 1024 on Linux (`UIO_MAXIOV`).
const MAX_PIECES: usize = 1024;

/// Pieces of a call that need no allocation: more than as many functions as are checked together,
/// and opcache's counters.
pub const IN_PLACE: usize = 96;

/// The memory of one process.
#[derive(Debug)]
pub struct ProcessMemory {
    pid: Pid,
    /// Absent if only the call is allowed.
    file: Option<File>,
    by_call: AtomicBool,
    /// `schedstat`, which everybody may open: without the file, it tells whether the process still
    /// exists.
    sign_of_life: Option<File>,
}

impl ProcessMemory {
    /// Opens the memory of `pid`.
    ///
    /// # Errors
    /// [`Fault::Denied`] if the kernel refuses, [`Fault::Gone`] if there is no such process,
    /// [`Fault::NoFiles`] if it cannot be opened for another reason than the process.
    pub fn open(pid: i32) -> Result<Self, MemoryFault> {
        let file = match calls::open(format!("/proc/{pid}/mem")) {
            Ok(file) => Some(file),
            Err(error) => match fault(&error) {
                MemoryFault::Denied => None,
                fault => return Err(fault),
            },
        };
        let sign_of_life = match file {
            Some(_) => None,
            None => calls::open(format!("/proc/{pid}/schedstat")).ok(),
        };
        let memory = Self {
            pid: Pid::from_raw(pid),
            file,
            by_call: AtomicBool::new(true),
            sign_of_life,
        };
        // Nothing is mapped at address 0, but the kernel checks the permission first.
        let mut probe = [0];
        let piece = Piece {
            address: 0,
            bytes: &mut probe,
        };
        match &memory.file {
            None if memory.call(&mut [piece]) == Err(MemoryFault::Denied) => {
                Err(MemoryFault::Denied)
            }
            _ => Ok(memory),
        }
    }

    /// Uses `/proc/PID/mem` from now on, as if the call were refused.
    pub fn without_the_call(&self) {
        self.by_call.store(false, Ordering::Relaxed);
    }

    /// Reads a word of this very process, and never of one that reuses its PID: [`Fault::Gone`] if
    /// it has ended.
    ///
    /// # Errors
    /// As [`Memory::read`].
    pub fn bound_word(&self, address: u64) -> Result<u64, MemoryFault> {
        let mut bytes = [0; 8];
        calls::count_file_read();
        match self.read_file(address, &mut bytes) {
            // A seccomp filter may refuse to read a file that it allows to open.
            Err(MemoryFault::Denied) => {}
            read => return read.map(|()| u64::from_le_bytes(bytes)),
        }
        let word = self.word(address)?;
        match &self.sign_of_life {
            Some(file) => {
                calls::count_file_read();
                let read = file.read_at(&mut bytes, 0);
                read.map(|_| word).map_err(|_| MemoryFault::Gone)
            }
            None => Ok(word),
        }
    }

    fn read_file(&self, address: u64, bytes: &mut [u8]) -> Result<(), MemoryFault> {
        let file = self.file.as_ref().ok_or(MemoryFault::Denied)?;
        match file.read_exact_at(bytes, address) {
            Ok(()) => Ok(()),
            // The kernel reads nothing from the memory of a process that has ended.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(MemoryFault::Gone),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(MemoryFault::Denied),
            Err(_) => Err(MemoryFault::Unmapped),
        }
    }

    fn call(&self, pieces: &mut [Piece<'_>]) -> Result<(), MemoryFault> {
        let remote: SmallVec<[RemoteIoVec; IN_PLACE]> = pieces
            .iter()
            .map(|piece| RemoteIoVec {
                base: usize::try_from(piece.address).unwrap_or(0),
                len: piece.bytes.len(),
            })
            .collect();
        let wanted: usize = remote.iter().map(|piece| piece.len).sum();
        calls::count_memory_read(remote.len(), wanted);
        let mut local: SmallVec<[IoSliceMut<'_>; IN_PLACE]> = pieces
            .iter_mut()
            .map(|piece| IoSliceMut::new(piece.bytes))
            .collect();
        match process_vm_readv(self.pid, &mut local, &remote) {
            Ok(read) if read == wanted => Ok(()),
            Ok(_) | Err(Errno::EFAULT) => Err(MemoryFault::Unmapped),
            Err(Errno::ESRCH) => Err(MemoryFault::Gone),
            // EPERM by seccomp or by the kernel, ENOSYS if the call does not exist (gVisor).
            Err(_) => Err(MemoryFault::Denied),
        }
    }
}

/// Why a file under `/proc/PID` could not be opened.
pub fn fault(error: &io::Error) -> MemoryFault {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EMFILE | Errno::ENFILE) => MemoryFault::NoFiles,
        Some(Errno::EACCES | Errno::EPERM) => MemoryFault::Denied,
        _ => MemoryFault::Gone,
    }
}

impl Memory for ProcessMemory {
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), MemoryFault> {
        self.gather(&mut [Piece { address, bytes }])
    }

    fn gather(&self, pieces: &mut [Piece<'_>]) -> Result<(), MemoryFault> {
        calls::count_gather();
        if self.by_call.load(Ordering::Relaxed) {
            let mut denied = false;
            for chunk in pieces.chunks_mut(MAX_PIECES) {
                match self.call(chunk) {
                    Err(MemoryFault::Denied) => denied = true,
                    other => other?,
                }
            }
            if !denied {
                return Ok(());
            }
            self.without_the_call();
        }
        for piece in pieces {
            calls::count_memory_read(1, piece.bytes.len());
            self.read_file(piece.address, piece.bytes)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that a test can read itself: a process may always read its own memory.
    fn check_reads_itself(memory: &ProcessMemory) {
        let (one, other) = ([7_u8; 64], [9_u8; 64]);
        let (mut first, mut second) = ([0_u8; 64], [0_u8; 64]);
        memory
            .gather(&mut [
                Piece {
                    address: one.as_ptr().addr() as u64,
                    bytes: &mut first,
                },
                Piece {
                    address: other.as_ptr().addr() as u64,
                    bytes: &mut second,
                },
            ])
            .unwrap();
        assert_eq!((first, second), (one, other));
        assert_eq!(memory.read(8, &mut [0]), Err(MemoryFault::Unmapped));
    }

    #[test]
    fn both_ways_read_the_same() {
        let memory = ProcessMemory::open(i32::try_from(std::process::id()).unwrap()).unwrap();
        check_reads_itself(&memory);
        memory.without_the_call();
        check_reads_itself(&memory);
    }

    #[test]
    fn a_lack_of_files_refuses_and_ends_nothing() {
        let check = |errno: Errno, expected: MemoryFault| {
            assert_eq!(fault(&io::Error::from(errno)), expected, "{errno}");
        };
        check(Errno::EMFILE, MemoryFault::NoFiles);
        check(Errno::ENFILE, MemoryFault::NoFiles);
        check(Errno::EACCES, MemoryFault::Denied);
        check(Errno::EPERM, MemoryFault::Denied);
        check(Errno::ENOENT, MemoryFault::Gone);
        check(Errno::ESRCH, MemoryFault::Gone);
    }

    #[test]
    fn a_process_that_is_not_there_is_gone() {
        assert_eq!(ProcessMemory::open(i32::MAX).err(), Some(MemoryFault::Gone));
    }
}
