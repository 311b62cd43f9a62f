//! The cost of profiling for a program, from its work with and without it, in turn: pure.

/// The time that each of the program's counts covers, in nanoseconds.
pub const COUNTED: u64 = 20_000_000;
/// A turn with fewer counts is ignored.
pub const MIN_COUNTS: usize = 5;
/// For an interval of 95 % of a normal distribution.
const QUANTILE: f64 = 1.96;
/// With fewer pairs their deviation is unknown.
pub const MIN_PAIRS: usize = 20;

/// The work of a program between two moments.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Count {
    begin: u64,
    end: u64,
    pages: u64,
}

/// The program's output, and when profiling was switched.
#[derive(Debug, Default)]
pub struct Log {
    counts: Vec<Count>,
    /// Whether the program is profiled from then on.
    switches: Vec<(u64, bool)>,
    counted_at: Option<u64>,
    /// Whether the output of the next request is profiled.
    begins: Option<bool>,
    pub calls_per_page: Option<u64>,
}

/// The estimated cost of profiling so far.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    pub pairs: usize,
    /// How much longer a page takes, in percent.
    pub slowdown_percent: f64,
    /// The half width of the confidence interval of 95 %, in percent.
    pub half_width_percent: f64,
    /// Additional nanoseconds for each function call, if the program says how many it makes.
    pub nanoseconds_per_call: Option<f64>,
}

impl Log {
    /// Takes a line of the program: `calls NUMBER`, `TIME PAGES`, `TIME on` or `TIME off`; others
    /// are ignored.
    pub fn line(&mut self, line: &str) {
        let Some((time, word)) = line.trim().split_once(' ') else {
            return;
        };
        if let ("calls", Ok(calls)) = (time, word.parse()) {
            self.calls_per_page = Some(calls);
        }
        let Ok(time) = time.parse() else { return };
        match (word, word.parse()) {
            (_, Ok(pages)) => self.count(time, pages),
            ("on" | "off", _) => self.switch(time, word == "on"),
            _ => {}
        }
    }

    /// Notes that profiling begins or ends.
    pub fn switch(&mut self, time: u64, on: bool) {
        self.switches.push((time, on));
    }

    /// Notes that the following lines are of another request.
    pub fn request(&mut self, on: bool) {
        (self.counted_at, self.begins) = (None, Some(on));
    }

    /// Notes that the program has rendered this many pages since the last count.
    pub fn count(&mut self, end: u64, pages: u64) {
        if let Some(on) = self.begins.take() {
            self.switch(end, on);
        }
        if let Some(begin) = self.counted_at.replace(end) {
            self.counts.push(Count { begin, end, pages });
        }
    }

    /// Nanoseconds per page in each complete turn. The first count in it is left out, because
    /// switching takes time.
    fn turns(&self) -> Vec<(bool, f64)> {
        let mut turns = Vec::new();
        for pair in self.switches.windows(2) {
            let ((begin, on), (end, _)) = (pair[0], pair[1]);
            let first = self
                .counts
                .partition_point(|count| count.begin < begin + COUNTED);
            let inside: Vec<&Count> = self.counts[first..]
                .iter()
                .take_while(|count| count.end <= end)
                .collect();
            let pages: u64 = inside.iter().map(|count| count.pages).sum();
            let time: u64 = inside.iter().map(|count| count.end - count.begin).sum();
            if inside.len() >= MIN_COUNTS && pages > 0 {
                turns.push((on, time as f64 / pages as f64));
            }
        }
        turns
    }

    /// The cost of profiling; `None` while there are too few pairs of turns.
    pub fn estimate(&self) -> Option<Estimate> {
        let turns = self.turns();
        let mut pairs = Vec::new();
        for pair in turns.chunks_exact(2) {
            match *pair {
                [(false, off), (true, on)] | [(true, on), (false, off)] => pairs.push((off, on)),
                _ => {}
            }
        }
        let count = pairs.len() as f64;
        let logarithms: Vec<f64> = pairs.iter().map(|(off, on)| (on / off).ln()).collect();
        let mean = logarithms.iter().sum::<f64>() / count;
        let variance = logarithms
            .iter()
            .map(|value| (value - mean).powi(2))
            .sum::<f64>()
            / (count - 1.0);
        let off = pairs.iter().map(|(off, _)| off).sum::<f64>() / count;
        let slowdown = mean.exp() - 1.0;
        (pairs.len() >= MIN_PAIRS).then(|| Estimate {
            pairs: pairs.len(),
            slowdown_percent: 100.0 * slowdown,
            half_width_percent: 100.0 * QUANTILE * (variance / count).sqrt(),
            nanoseconds_per_call: self
                .calls_per_page
                .map(|calls| slowdown * off / (calls as f64).max(1.0)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns of 16 counts, each of this many pages.
    fn log(turns: &[(bool, u64)]) -> Log {
        let mut log = Log::default();
        log.line("calls 10");
        let mut now = 0;
        for &(on, pages) in turns {
            log.line(&format!("{now} {}", if on { "on" } else { "off" }));
            for index in 0..16 {
                now += COUNTED;
                // A count during the switch belongs to neither.
                log.line(&format!("{now} {}", if index == 0 { 1 } else { pages }));
            }
        }
        log.line(&format!("{now} off"));
        log
    }

    #[test]
    fn half_the_work_takes_twice_as_long() {
        let estimate = log(&[(false, 200), (true, 100)].repeat(30))
            .estimate()
            .unwrap();
        assert_eq!(estimate.pairs, 30);
        assert!((estimate.slowdown_percent - 100.0).abs() < 1e-9);
        assert!(estimate.half_width_percent < 1e-9);
        // 100 µs a page, of 10 calls.
        assert!((estimate.nanoseconds_per_call.unwrap() - 10_000.0).abs() < 1e-6);
    }

    #[test]
    fn the_interval_is_as_wide_as_pairs_differ() {
        let turns = [(false, 1000), (true, 1000), (false, 1000), (true, 900)].repeat(50);
        let estimate = log(&turns).estimate().unwrap();
        // ln(10/9) / 2 either way, of 100 pairs.
        assert!(
            (estimate.half_width_percent - 1.96 * 5.268 / 10.0).abs() < 0.01,
            "{estimate:?}"
        );
    }

    #[test]
    fn requests_are_turns_of_their_own() {
        let mut log = Log::default();
        let mut now = 0;
        for index in 0..60 {
            log.request(index % 2 == 1);
            // Between requests nothing is counted.
            now += 500_000_000;
            for _ in 0..16 {
                now += COUNTED;
                log.line(&format!("{now} {}", 100 + index % 2));
            }
        }
        let estimate = log.estimate().unwrap();
        assert!(
            (estimate.slowdown_percent + 100.0 / 101.0).abs() < 1e-6,
            "{estimate:?}"
        );
    }

    #[test]
    fn program_without_calls_has_no_call_cost() {
        let (mut log, mut now) = (Log::default(), 0);
        for turn in 0..60 {
            log.switch(now, turn % 2 == 1);
            for _ in 0..=MIN_COUNTS {
                now += 100_000_000 + turn % 2 * 1_000_000;
                log.count(now, 10);
            }
        }
        let estimate = log.estimate().unwrap();
        assert_eq!((estimate.pairs, estimate.nanoseconds_per_call), (29, None));
        assert!((estimate.slowdown_percent - 1.0).abs() < 1e-9);
    }

    #[test]
    fn few_pairs_say_nothing() {
        assert_eq!(
            log(&[(false, 200), (true, 100)].repeat(10)).estimate(),
            None
        );
        assert_eq!(Log::default().estimate(), None);
    }
}
