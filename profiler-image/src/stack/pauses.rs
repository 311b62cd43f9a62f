//! Pauses of uneven length between two looks at a program.
//!
//! Reads at even intervals can be in step with a loop of the program, so that all show the same
//! state. Invariant: a pause takes about two microseconds at most.

use std::hint::spin_loop;

/// Longest pause, in turns of a loop.
const MAX_TURNS: u64 = 64;

/// The state that determines the next pause.
#[derive(Debug, Default)]
pub struct Pauses(u64);

impl Pauses {
    /// Waits.
    pub fn pause(&mut self) {
        self.0 = uneven(self.0);
        (0..self.0 % MAX_TURNS).for_each(|_| spin_loop());
    }
}

/// The next state (xorshift).
fn uneven(state: u64) -> u64 {
    let mut state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    state ^= state << 13;
    state ^= state >> 7;
    state ^ (state << 17)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_have_every_length_and_do_not_repeat() {
        let mut state = 0;
        let pauses: Vec<u64> = (0..4096)
            .map(|_| {
                state = uneven(state);
                state % MAX_TURNS
            })
            .collect();
        for length in 0..MAX_TURNS {
            let times = pauses.iter().filter(|&&pause| pause == length).count();
            assert!((16..=160).contains(&times), "{length}: {times} times");
        }
        let row = &pauses[..12];
        let repeats = pauses[1..].windows(12).filter(|other| *other == row);
        assert_eq!(repeats.count(), 0);
    }
}
