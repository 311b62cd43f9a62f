//! What the kernel counts of a process's memory: `/proc/PID/smaps_rollup` (proc(5)), which is there
//! since Linux 4.14.

use phpprof_profile::dump::ResidentReport;

use crate::target::process::{proc_path, text};

/// Reads it; `None` if there is no such process, or the kernel refuses.
pub fn read(pid: i32) -> Option<ResidentReport> {
    parse(&text(
        proc_path(format_args!("{pid}/smaps_rollup")).as_str(),
    )?)
}

fn parse(text: &str) -> Option<ResidentReport> {
    let bytes = |key: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = lines.find(|(name, _)| *name == key)?;
        let kibibytes: u64 = value.trim().strip_suffix(" kB")?.parse().ok()?;
        kibibytes.checked_mul(1024)
    };
    Some(ResidentReport {
        rss: bytes("Rss")?,
        pss: bytes("Pss")?,
        private: bytes("Private_Clean")?.checked_add(bytes("Private_Dirty")?)?,
        swap: bytes("Swap")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rollup_is_read_by_its_lines() {
        let text = "55d0c0000000-7ffd00000000 ---p 00000000 00:00 0 [rollup]\n\
            Rss:                5000 kB\nPss:                3000 kB\nPss_Dirty:  1 kB\n\
            Shared_Clean:       1500 kB\nPrivate_Clean:       100 kB\nPrivate_Dirty:      900 kB\n\
            Swap:                  8 kB\nSwapPss:               8 kB\n";
        let expected = ResidentReport {
            rss: 5000 << 10,
            pss: 3000 << 10,
            private: 1000 << 10,
            swap: 8 << 10,
        };
        assert_eq!(parse(text), Some(expected));
        assert_eq!(parse(""), None);
        assert_eq!(parse("Rss: x kB\n"), None);
    }

    #[test]
    fn own_memory_is_counted() {
        let own = read(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(own.rss >= own.private && own.private > 0);
    }
}
