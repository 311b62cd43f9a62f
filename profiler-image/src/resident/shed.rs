//! Unmaps the pages of the program's text in a process that waits for hours.
//!
//! The kernel maps sixteen pages or more of a program's file if one is needed, so that a process
//! that has parsed one answer has most of its program's text in its resident memory. This module
//! returns these pages; they stay in the page cache, which all samplers of a node share, and are
//! mapped again when they are needed.
//!
//! Invariant: it only returns text, which is never written: its pages are those of the file.

use std::fs;

use crate::raw::ProgramText;

/// Returns the mapped pages of the program's text.
pub fn shed() {
    let Ok(program) = fs::read_link("/proc/self/exe") else {
        return;
    };
    let Ok(maps) = fs::read_to_string("/proc/self/maps") else {
        return;
    };
    ProgramText::of(&maps, &program.to_string_lossy()).for_each(|text| text.shed());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_goes_on_after_it() {
        let before: u32 = (0..1000).sum();
        shed();
        assert_eq!((0..1000).sum::<u32>(), before);
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let program = fs::read_link("/proc/self/exe").unwrap();
        assert!(ProgramText::of(&maps, &program.to_string_lossy()).count() >= 1);
    }
}
