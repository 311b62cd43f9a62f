//! The calls of the kernel that no library wraps safely: all unsafe code of the sampler.
//!
//! Invariant: each function is safe for all arguments.

#![expect(
    unsafe_code,
    reason = "madvise(2) is unsafe for memory that others use, and no library has sched_setattr(2)"
)]

use std::ffi::c_void;
use std::ops::Range;

use nix::libc::{SYS_sched_getattr, SYS_sched_setattr, syscall};
use rustix::mm::{Advice, madvise};

/// Mapped text of this program, which is never written: found in `/proc/self/maps` only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramText(Range<usize>);

impl ProgramText {
    /// The text mappings of a program, by lines of `/proc/self/maps` that end with its path.
    pub fn of<'a>(maps: &'a str, program: &'a str) -> impl Iterator<Item = Self> + 'a {
        maps.lines().filter_map(move |line| {
            let (range, rest) = line.split_once(' ')?;
            let rest = rest.strip_prefix("r-xp ")?;
            let path = rest.splitn(4, ' ').nth(3)?.trim_start();
            let (begin, end) = range.split_once('-')?;
            let begin = usize::from_str_radix(begin, 16).ok()?;
            let end = usize::from_str_radix(end, 16).ok()?;
            (path == program && begin < end).then_some(Self(begin..end))
        })
    }

    /// Returns its mapped pages.
    pub fn shed(&self) {
        let Range { start, end } = self.0;
        let begin = std::ptr::without_provenance_mut::<c_void>(start);
        // SAFETY: the range is a private mapping of the program's file, readable and executable and
        // never writable. So its pages are those of the file, and the kernel maps the same bytes at
        // the next access: proc(5), madvise(2) on MADV_DONTNEED. After an error everything is as
        // before.
        let _ = unsafe { madvise(begin, end - start, Advice::LinuxDontNeed) };
    }
}

/// `struct sched_attr` in its first version (include/uapi/linux/sched/types.h).
#[repr(C)]
#[derive(Debug, Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Asks for time slices of this many nanoseconds for the calling thread. A thread with shorter
/// slices takes the CPU as soon as it wakes up, also from one that has woken up itself a moment
/// ago. It needs no right. Kernels before 6.12 ignore it (`__setparam_fair`, kernel/sched/fair.c).
pub fn shorten_slices(nanoseconds: u64) {
    let mut attributes = SchedAttr::default();
    let size = size_of::<SchedAttr>();
    // SAFETY: the kernel writes at most `size` bytes of a structure that is so large and has no
    // invalid values: sched_setattr(2).
    let got = unsafe { syscall(SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    if got != 0 {
        return;
    }
    attributes.size = u32::try_from(size).unwrap_or(0);
    attributes.runtime = nanoseconds;
    // SAFETY: the kernel reads `attributes.size` bytes of a structure that is so large.
    let _ = unsafe { syscall(SYS_sched_setattr, 0, &raw const attributes, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_programs_text_is_given_back() {
        let maps = "\
7f11d3000000-7f11d3017000 r--p 00000000 fd:00 12   /phpprof
7f11d3017000-7f11d31f8000 r-xp 00017000 fd:00 12   /phpprof
7f11d31f8000-7f11d32ba000 r--p 001f8000 fd:00 12   /phpprof
7f11d32ba000-7f11d32ce000 rw-p 002b9000 fd:00 12   /phpprof
7f11d3400000-7f11d3500000 rwxp 00000000 fd:00 12   /phpprof
7f11d3351000-7f11d3353000 r-xp 00000000 00:00 0    [vdso]
7f11d3500000-7f11d3600000 r-xp 00000000 fd:00 13   /lib/other /phpprof
broken
";
        let found: Vec<_> = ProgramText::of(maps, "/phpprof").collect();
        assert_eq!(found, [ProgramText(0x7f11_d301_7000..0x7f11_d31f_8000)]);
    }

    #[test]
    fn shorter_slices_keep_the_thread_as_it_is() {
        let of_thread = std::thread::spawn(|| {
            shorten_slices(100_000);
            shorten_slices(100_000);
            (0..1000_u32).sum::<u32>()
        });
        assert_eq!(of_thread.join().ok(), Some(499_500));
    }
}
