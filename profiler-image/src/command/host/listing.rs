//! Lists the PHP on this host, for a user who has to choose what to sample.
//!
//! Invariant: at most [`MAX_LINES`] lines, one for each way to choose, none longer than a usual
//! terminal is wide.

use std::collections::BTreeMap;
use std::sync::Arc;

use phpprof::target::Scope;
use phpprof::target::diagnosis::Refused;
use phpprof::target::discovery::Discovery;
use phpprof::target::pattern::{pool_of, title};
use phpprof_zend::engine::EngineRefusal;
use phpprof_zend::memory::MemoryFault;

const MAX_LINES: usize = 20;
const MAX_TITLE: usize = 80;

/// A process that runs PHP.
#[derive(Debug, Clone)]
struct PhpProcess {
    pid: i32,
    title: String,
    /// Version and SAPI.
    php: String,
}

/// Looks once at all processes. Lists those that run PHP, and how to choose them.
pub fn say() -> String {
    let mut discovery = Discovery::new(Scope::All);
    let processes = discovery.scan().new;
    let mut found: Vec<_> = processes
        .iter()
        .map(|process| PhpProcess {
            pid: process.pid,
            title: title(process.pid).unwrap_or_default(),
            php: format!("PHP {}, {}", process.engine.version, process.engine.sapi),
        })
        .collect();
    // A process is found once for each of its threads.
    found.dedup_by_key(|found| found.pid);
    let refused = discovery.refused().filter(|refused| refused.is_final());
    words(&found, refused.map(Arc::as_ref))
}

fn words(found: &[PhpProcess], refused: Option<&Refused>) -> String {
    match refused {
        _ if !found.is_empty() => {}
        Some(Refused { pid, comm, refusal })
            if *refusal != EngineRefusal::Unreadable(MemoryFault::Denied) =>
        {
            return format!(
                "No PHP runs here that can be sampled: process {pid} ({comm}): {refusal}."
            );
        }
        _ => {
            return "No process that this user may read runs PHP. Run phpprof as root to look at all processes."
                .to_owned();
        }
    }
    let mut pools: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    let mut lines = Vec::new();
    for PhpProcess { pid, title, php } in found {
        match pool_of(title) {
            Some(pool) => pools.entry(pool).or_insert((0, php)).0 += 1,
            None => {
                let title: String = title.chars().take(MAX_TITLE).collect();
                lines.push(format!("  --pid {pid}: {title} ({php})"));
            }
        }
    }
    let pools = pools.iter().map(|(pool, (count, php))| {
        let workers = if *count == 1 { "worker" } else { "workers" };
        format!("  --php-fpm {pool}: {count} {workers} ({php})")
    });
    let lines: Vec<_> = pools.chain(lines).collect();
    let more = lines.len().saturating_sub(MAX_LINES);
    let mut words = format!(
        "PHP runs here as:\n{}",
        lines[..lines.len() - more].join("\n")
    );
    if more > 0 {
        words += &format!("\n  and {more} more");
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pid: i32, title: &str) -> PhpProcess {
        PhpProcess {
            pid,
            title: title.to_owned(),
            php: "PHP 8.2.29, cli".to_owned(),
        }
    }

    #[test]
    fn pool_is_one_line() {
        let all = [
            found(7, "php-fpm: master process (/etc/fpm.conf)"),
            found(8, "php-fpm: pool www"),
            found(9, "php-fpm: pool www"),
            found(10, "php-fpm: pool api"),
            found(11, "php work.php"),
        ];
        assert_eq!(
            words(&all, None),
            "PHP runs here as:\n  --php-fpm api: 1 worker (PHP 8.2.29, cli)\n  --php-fpm www: 2 workers (PHP 8.2.29, cli)\n  \
             --pid 7: php-fpm: master process (/etc/fpm.conf) (PHP 8.2.29, cli)\n  --pid 11: php work.php (PHP 8.2.29, cli)"
        );
    }

    #[test]
    fn list_is_cut_and_says_when_empty() {
        let many: Vec<_> = (1..=30).map(|pid| found(pid, &"x".repeat(200))).collect();
        let words_of_many = words(&many, None);
        assert!(
            words_of_many.ends_with("\n  and 10 more"),
            "{words_of_many}"
        );
        assert!(words_of_many.lines().all(|line| line.len() < 120));
        assert!(words(&[], None).contains("No process"));
    }

    #[test]
    fn unsampled_php_is_named_if_alone() {
        let refused = |refusal| Refused {
            pid: 7,
            comm: "php7.4".to_owned(),
            refusal,
        };
        let only_32_bit = refused(EngineRefusal::Only32Bit("/usr/bin/php7.4".to_owned()));
        assert_eq!(
            words(&[], Some(&only_32_bit)),
            "No PHP runs here that can be sampled: process 7 (php7.4): /usr/bin/php7.4 is a 32-bit PHP; 32-bit engines are not supported."
        );
        let denied = refused(EngineRefusal::Unreadable(MemoryFault::Denied));
        assert_eq!(words(&[], Some(&denied)), words(&[], None));
        let one = [found(8, "php work.php")];
        assert_eq!(words(&one, Some(&only_32_bit)), words(&one, None));
    }
}
