//! Names the php-fpm masters whose workers were sampled, if several have a pool of the name that
//! the user chose.
//!
//! Invariant: `record`, `dump` and `top` say the same, and nothing is said of one master.

use std::collections::BTreeMap;

use phpprof::target::Scope;
use phpprof::target::pattern::{Pattern, title};
use phpprof::target::process::stat::Stat;

/// What to say of these workers, if they are of several masters. Workers that have ended are left
/// out.
pub fn told(scope: &Scope, workers: impl Iterator<Item = i32>) -> Option<String> {
    let Scope::Fitting(Pattern::Pool(pool)) = scope else {
        return None;
    };
    let masters = workers.filter_map(|pid| Stat::of(pid).map(|stat| stat.parent));
    words(pool, masters, title)
}

fn words(
    pool: &str,
    masters: impl Iterator<Item = i32>,
    title: impl Fn(i32) -> Option<String>,
) -> Option<String> {
    let mut workers: BTreeMap<i32, usize> = BTreeMap::new();
    for master in masters {
        *workers.entry(master).or_default() += 1;
    }
    let named = workers.iter().map(|(pid, count)| {
        let title = title(*pid).unwrap_or_else(|| "ended".to_owned());
        format!("{count} of {pid} ({title})")
    });
    let named: Vec<_> = named.collect();
    (named.len() > 1).then(|| {
        format!(
            "{} php-fpm masters have a pool {pool}, and this has the workers of all of them: {}; choose one with --pid",
            named.len(),
            named.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn told_names_each_master_with_its_workers() {
        let title = |pid| (pid < 9).then(|| format!("php-fpm: master process (/etc/{pid}.conf)"));
        assert_eq!(words("www", [7, 7].into_iter(), title), None);
        assert_eq!(words("www", [].into_iter(), title), None);
        let told = words("www", [8, 7, 7, 9].into_iter(), title).unwrap();
        assert_eq!(
            told,
            "3 php-fpm masters have a pool www, and this has the workers of all of them: \
             2 of 7 (php-fpm: master process (/etc/7.conf)), 1 of 8 (php-fpm: master process (/etc/8.conf)), 1 of 9 (ended); choose one with --pid"
        );
    }

    #[test]
    fn told_is_of_pools_only() {
        let pid = i32::try_from(std::process::id()).unwrap();
        assert_eq!(told(&Scope::All, [pid].into_iter()), None);
    }
}
