//! Numbers drawn from a seed: pure.
//!
//! Invariant: the same seed draws the same numbers in every version and on every machine, because
//! results name programs by their seeds. Generators of libraries may change theirs.

/// `SplitMix64` (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
pub struct Draws(u64);

impl Draws {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to `end - 1`; 0 if there is none.
    pub fn below(&mut self, end: u64) -> u64 {
        // The high half of the product: the remainder would prefer small numbers.
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// Whether something of this probability in percent happens.
    pub fn happens(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of a list, which is not empty.
    pub fn one<'list, T>(&mut self, list: &'list [T]) -> &'list T {
        &list[self.below(list.len() as u64) as usize]
    }

    /// A number from `least` to `least << octaves`, each doubling as probable as another.
    pub fn scaled(&mut self, least: u64, octaves: u64) -> u64 {
        let begin = least << self.below(octaves);
        begin + self.below(begin)
    }

    /// A number in `0.0..1.0`.
    pub fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A pause whose end is at no moment more probable than at another: exponential.
    pub fn pause(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.fraction()).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_draws_known_numbers() {
        // The first numbers of the published algorithm for this seed.
        let mut draws = Draws::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| draws.next()).collect();
        assert_eq!(
            first,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }

    #[test]
    fn every_doubling_is_drawn_equally() {
        let mut draws = Draws::new(5);
        let mut octaves = [0; 10];
        for _ in 0..10_000 {
            let value = draws.scaled(50, 10);
            octaves[(value / 50).ilog2() as usize] += 1;
        }
        assert!(
            octaves.iter().all(|&count| (850..1150).contains(&count)),
            "{octaves:?}"
        );
    }

    #[test]
    fn pauses_have_their_mean() {
        let mut draws = Draws::new(9);
        let mean = (0..10_000).map(|_| draws.pause(3.0)).sum::<f64>() / 10_000.0;
        assert!((mean - 3.0).abs() < 0.1, "{mean}");
        assert_eq!(Draws::new(1).below(0), 0);
    }
}
