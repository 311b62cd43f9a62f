//! How often a thread has left its CPU.

/// How often a thread left its CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Departures {
    /// To sleep.
    pub voluntary: u64,
    /// While it could run on.
    pub involuntary: u64,
}

impl Departures {
    /// The counts in a `status`. Its name, which the target chooses, has no line breaks
    /// (`proc_task_name`, fs/proc/array.c).
    #[must_use]
    pub fn parse(status: &[u8]) -> Option<Self> {
        let number = |key: &[u8]| {
            let mut lines = status.rsplit(|&byte| byte == b'\n');
            let value = lines.find_map(|line| line.strip_prefix(key))?;
            std::str::from_utf8(value).ok()?.trim().parse().ok()
        };
        Some(Self {
            voluntary: number(b"voluntary_ctxt_switches:")?,
            involuntary: number(b"nonvoluntary_ctxt_switches:")?,
        })
    }

    /// Both.
    #[must_use]
    pub fn all(self) -> u64 {
        self.voluntary.saturating_add(self.involuntary)
    }
}
