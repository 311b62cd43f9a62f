//! How programs are run and sampled: pure.

use super::draws::Draws;
use super::sample::ReadBy;

/// The programs of the long form.
pub const PROGRAMS: u64 = 50;
/// The same of a mode that is not the first.
const DRAWN: usize = 10;
/// Programs of the short form.
const FEW: u64 = 2;

/// A way to run and sample programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mode {
    pub name: &'static str,
    pub rate: u32,
    pub reads: ReadBy,
    /// Settings of PHP.
    settings: &'static [&'static str],
    /// The seeds of its programs.
    pub seeds: Vec<u64>,
}

const CACHED: &[&str] = &["opcache.enable_cli=1", "opcache.file_update_protection=0"];
const COMPILED: &[&str] = &[
    "opcache.enable_cli=1",
    "opcache.file_update_protection=0",
    "opcache.jit_buffer_size=64M",
    "opcache.jit=tracing",
];
const PLAIN: &[&str] = &["opcache.enable_cli=0"];

impl Mode {
    /// PHP's options.
    pub fn options(&self) -> Vec<String> {
        let options = self.settings.iter();
        options
            .flat_map(|option| ["-d".to_owned(), (*option).to_owned()])
            .collect()
    }
}

/// The modes: all of them for the PHP that most results are of, one for another. `seeds` replaces
/// the programs.
pub fn modes(is_usual: bool, full: bool, seeds: &[u64]) -> Vec<Mode> {
    let mode = |name, rate, reads, settings| Mode {
        name,
        rate,
        reads,
        settings,
        seeds: Vec::new(),
    };
    let mut modes = vec![mode("opcache", 999, ReadBy::Call, CACHED)];
    if is_usual && full {
        modes.extend([
            mode("99 Hz", 99, ReadBy::Call, CACHED),
            mode("jit", 999, ReadBy::Call, COMPILED),
            mode("plain", 999, ReadBy::Call, PLAIN),
            mode("mem", 999, ReadBy::Mem, CACHED),
            mode("remote", 999, ReadBy::Remote, CACHED),
        ]);
    }
    for (number, mode) in modes.iter_mut().enumerate() {
        mode.seeds = if !seeds.is_empty() {
            seeds.to_vec()
        } else if !full {
            (1..=FEW).collect()
        } else if is_usual && number == 0 {
            (1..=PROGRAMS).collect()
        } else {
            drawn(number as u64)
        };
    }
    modes
}

/// Ten of all programs, each once.
fn drawn(number: u64) -> Vec<u64> {
    let mut draws = Draws::new(number);
    let mut all: Vec<u64> = (1..=PROGRAMS).collect();
    let mut seeds: Vec<u64> = (0..DRAWN)
        .map(|_| all.swap_remove(draws.below(all.len() as u64) as usize))
        .collect();
    seeds.sort_unstable();
    seeds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mode_has_its_programs() {
        let modes = modes(true, true, &[]);
        assert_eq!(modes[0].seeds.len(), 50);
        for mode in &modes[1..] {
            let mut seeds = mode.seeds.clone();
            seeds.dedup();
            assert_eq!(seeds.len(), 10, "{mode:?}");
        }
        assert_ne!(modes[1].seeds, modes[2].seeds);
        assert_eq!(super::modes(true, false, &[])[0].seeds.len(), 2);
        assert_eq!(super::modes(false, true, &[7])[0].seeds, [7]);
    }
}
