//! `/proc/PID/maps`: which files are mapped where, and which memory is shared between processes.

use std::cmp::Reverse;
use std::ops::Range;

use phpprof_zend::engine::Module;
use phpprof_zend::jit::JitBuffer;

/// Few processes have more; further ones are ignored.
const MAX_MODULES: usize = 512;
/// The sampler searches them for each function: a process with tens of thousands must not delay it.
const MAX_SHARED: usize = 64;

/// The mappings of a process that attaching needs.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Maps {
    /// Mapped files with their first page, in the order of `maps`, the main executable first.
    pub modules: Vec<Module>,
    /// The first pages of private memory without a file: a loader of its own may have put an engine
    /// there.
    pub unnamed: Vec<Module>,
    /// Memory that is shared with other processes, the largest mappings: opcache's is among it.
    pub shared: Vec<Range<u64>>,
    /// Executable shared memory: opcache has set a JIT buffer up.
    pub jit: Option<JitBuffer>,
}

/// Parses the text of `/proc/PID/maps`. `executable` is the target of `/proc/PID/exe`.
#[must_use]
pub fn parse(text: &str, executable: &str) -> Maps {
    let mut maps = Maps::default();
    for line in text.lines() {
        let mut fields = line.splitn(6, ' ').map(str::trim);
        let (Some(range), Some(permissions), Some(offset)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let path = fields.nth(2).unwrap_or_default();
        let Some(range) = parse_range(range) else {
            continue;
        };
        if permissions.starts_with('r') && permissions.ends_with('s') {
            maps.shared.push(range.clone());
        }
        // A JIT buffer is the end of opcache's memory, whatever the kind of sharing.
        if permissions.starts_with('r') && permissions.ends_with("xs") {
            maps.jit.get_or_insert(JitBuffer {
                start: range.start,
                end: range.end,
            });
        }
        if path.is_empty() && permissions.starts_with('r') && permissions.ends_with('p') {
            maps.push_unnamed(range.clone());
        }
        // Only the first page of a file can have its ELF header; devices and the kernel's own
        // mappings are not files. A program may be executed from a memfd.
        let is_file = path.starts_with('/') && !path.starts_with("/dev/");
        let seen = maps.modules.iter().any(|module| module.path == path);
        if is_file
            && !seen
            && offset.bytes().all(|digit| digit == b'0')
            && maps.modules.len() < MAX_MODULES
        {
            maps.modules.push(Module {
                base: range.start,
                path: path.to_owned(),
            });
        }
    }
    if maps.shared.len() > MAX_SHARED {
        maps.shared
            .sort_by_key(|range| Reverse(range.end.saturating_sub(range.start)));
        maps.shared.truncate(MAX_SHARED);
    }
    // The loader takes a data symbol from the main executable first, but a library may be mapped
    // below it.
    if let Some(main) = maps
        .modules
        .iter()
        .position(|module| module.path == executable)
    {
        maps.modules[..=main].rotate_right(1);
    }
    maps
}

impl Maps {
    fn push_unnamed(&mut self, range: Range<u64>) {
        if self.unnamed.len() < MAX_MODULES {
            self.unnamed.push(Module {
                base: range.start,
                path: format!("memory at {:x}", range.start),
            });
        }
    }
}

fn parse_range(text: &str) -> Option<Range<u64>> {
    let (start, end) = text.split_once('-')?;
    Some(u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    const MAPS: &str = "\
7f0000000000-7f0000001000 r--p 00000000 fe:00 12 /usr/lib/libc.so.6
7f0000001000-7f0000002000 r-xp 00001000 fe:00 12 /usr/lib/libc.so.6
7f1000000000-7f1008000000 rw-s 00000000 00:01 9  /dev/zero (deleted)
7f1008000000-7f100c000000 r-xs 08000000 00:01 9  /dev/zero (deleted)
7f2000000000-7f2000001000 r--p 00000000 fe:00 13 /usr/sbin/php-fpm8.2 (deleted)
7ffc00000000-7ffc00001000 rw-p 00000000 00:00 0  [stack]
not a line
";

    #[test]
    fn the_main_executable_comes_first_in_the_maps() {
        let maps = parse(MAPS, "/usr/sbin/php-fpm8.2 (deleted)");
        let paths: Vec<_> = maps
            .modules
            .iter()
            .map(|module| module.path.as_str())
            .collect();
        assert_eq!(
            paths,
            ["/usr/sbin/php-fpm8.2 (deleted)", "/usr/lib/libc.so.6"]
        );
        assert_eq!(
            maps.shared.first(),
            Some(&(0x7f10_0000_0000..0x7f10_0800_0000))
        );
        let jit = JitBuffer {
            start: 0x7f10_0800_0000,
            end: 0x7f10_0c00_0000,
        };
        assert_eq!(maps.jit, Some(jit));
    }

    #[test]
    fn modules_may_be_memfds_or_memory_without_file() {
        let maps = "\
55d000000000-55d000001000 r--p 00000000 00:01 7 /memfd:phpmem (deleted)
55d000001000-55d000002000 r-xp 00001000 00:01 7 /memfd:phpmem (deleted)
55d000002000-55d000003000 rw-p 00000000 00:00 0
55d000003000-55d000004000 ---p 00000000 00:00 0
7f0000000000-7f0000001000 r--p 00000000 fe:00 12 /usr/lib/libc.so.6
7f1000000000-7f1008000000 rw-s 00000000 00:01 9  /dev/zero (deleted)
7ffc00000000-7ffc00001000 rw-p 00000000 00:00 0 [stack]
";
        let maps = parse(maps, "/memfd:phpmem (deleted)");
        let paths = |modules: &[Module]| {
            let paths = modules.iter().map(|module| module.path.clone());
            paths.collect::<Vec<_>>()
        };
        assert_eq!(
            paths(&maps.modules),
            ["/memfd:phpmem (deleted)", "/usr/lib/libc.so.6"]
        );
        assert_eq!(paths(&maps.unnamed), ["memory at 55d000002000"]);
    }

    #[test]
    fn of_many_shared_mappings_the_largest_are_kept() {
        let mut text = String::new();
        for index in 0..10_000_u64 {
            let start = 0x7000_0000_0000 + index * 0x2000;
            writeln!(text, "{start:x}-{:x} r--s 00000000 00:01 9", start + 0x1000).unwrap();
        }
        text += MAPS;
        let maps = parse(&text, "");
        assert_eq!(maps.shared.len(), MAX_SHARED);
        assert!(maps.shared.contains(&(0x7f10_0000_0000..0x7f10_0800_0000)));
    }
}
