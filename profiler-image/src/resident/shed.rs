//! Unmaps the pages of the program's text in a process that waits for hours.
//!
//! The kernel maps sixteen pages or more of a program's file if one is needed, so that a process
//! that has parsed one answer has most of its program's text in its resident memory. This module
//! returns these pages; they stay in the page cache, which all samplers of a node share, and are
//! mapped again when they are needed.
//!
//! Invariant: it only returns text, which is never written: its pages are those of the file.

#![expect(
    unsafe_code,
    reason = "madvise(2) is unsafe for memory that others use; text is the same when it is mapped again"
)]

use std::ffi::c_void;
use std::fs;

use rustix::mm::{Advice, madvise};

/// Returns the mapped pages of the program's text.
pub fn shed() {
    let Ok(program) = fs::read_link("/proc/self/exe") else {
        return;
    };
    let Ok(maps) = fs::read_to_string("/proc/self/maps") else {
        return;
    };
    for (begin, length) in texts(&maps, &program.to_string_lossy()) {
        let begin = std::ptr::without_provenance_mut::<c_void>(begin);
        // SAFETY: the range is a private mapping of the program's file, readable and executable and
        // never writable (`texts`). So its pages are those of the file, and the kernel maps the
        // same bytes at the next access: proc(5), madvise(2) on MADV_DONTNEED. After an error
        // everything is as before.
        let _ = unsafe { madvise(begin, length, Advice::LinuxDontNeed) };
    }
}

/// The address and length of the program's text mappings: lines of `/proc/self/maps` that end with
/// its path.
fn texts<'a>(maps: &'a str, program: &'a str) -> impl Iterator<Item = (usize, usize)> + 'a {
    maps.lines().filter_map(move |line| {
        let (range, rest) = line.split_once(' ')?;
        let rest = rest.strip_prefix("r-xp ")?;
        let path = rest.splitn(4, ' ').nth(3)?.trim_start();
        let (begin, end) = range.split_once('-')?;
        let begin = usize::from_str_radix(begin, 16).ok()?;
        let end = usize::from_str_radix(end, 16).ok()?;
        (path == program && begin < end).then(|| (begin, end - begin))
    })
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
        let found: Vec<_> = texts(maps, "/phpprof").collect();
        assert_eq!(found, [(0x7f11_d301_7000, 0x1e_1000)]);
    }

    #[test]
    fn a_process_goes_on_after_it() {
        let before: u32 = (0..1000).sum();
        shed();
        assert_eq!((0..1000).sum::<u32>(), before);
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let program = fs::read_link("/proc/self/exe").unwrap();
        assert!(texts(&maps, &program.to_string_lossy()).count() >= 1);
    }
}
