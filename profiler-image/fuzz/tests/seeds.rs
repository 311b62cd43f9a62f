//! The seeds of the fuzzer: memory of real PHP, read again and compared with the stack from which
//! it was recorded.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use phpprof_fuzz::{answer, engine, maps, stack};
use phpprof_zend::unwind::UnwindEnd;

/// The functions of seeds/shop.php, leaf first.
const NAMES: [&str; 14] = [
    "usleep",
    "Shop\\wait",
    "eval /srv/shop.php(15) : eval()'d code",
    "Shop\\Cart@anonymous:/srv/shop.php:15::last",
    "Shop\\Cart::__call",
    "Shop\\Cart::inner",
    "Shop\\Cart::outer",
    "Shop\\Cart::deep",
    "Shop\\Cart::shout",
    CLOSURE,
    "array_map",
    "Shop\\Cart::walk",
    "Shop\\Cart::price",
    "include /srv/shop.php",
];
/// A closure, and its name from 8.4 on.
const CLOSURE: &str = "{closure:/srv/shop.php:10}";
const NAMED_CLOSURE: &str = "{closure:Shop\\Cart::walk():10}";
/// Calls that no site names, by their callees: of a generator, and of a callback.
const OPEN: [&str; 3] = ["Shop\\Cart::inner", "Shop\\Cart::outer", CLOSURE];

/// The seeds of a fuzz target: name and bytes.
fn seeds(target: &str) -> Result<Vec<(String, Vec<u8>)>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("seeds")
        .join(target);
    let mut seeds = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        seeds.push((name, fs::read(entry.path())?));
    }
    ensure!(seeds.len() >= 9, "seeds are missing");
    Ok(seeds)
}

/// `X.Y` of `php-X.Y-…`.
fn version(seed: &str) -> Result<&str> {
    seed.split('-').nth(1).context("a seed without a version")
}

#[test]
fn recorded_stacks_are_read_as_php_prints() -> Result<()> {
    for (seed, bytes) in seeds("stack")? {
        let (layout, stack) = stack::of_image(&bytes).context("no row")?;
        assert_eq!(
            format!("{}.{}", layout.major, layout.minor),
            version(&seed)?
        );
        // Up to 7.4 a trait's method has its first name, and an anonymous class does not show its
        // parent.
        let closure = if (layout.major, layout.minor) < (8, 4) {
            CLOSURE
        } else {
            NAMED_CLOSURE
        };
        let names: Vec<String> = NAMES
            .iter()
            .map(|name| match layout.major {
                7 => name
                    .replace("::shout", "::say")
                    .replace("Shop\\Cart@", "class@"),
                _ => name.replace(CLOSURE, closure),
            })
            .collect();
        assert_eq!(stack.names, names, "{seed}");
        for (name, file) in stack.names.iter().zip(&stack.files) {
            let is_internal = ["usleep", "array_map"].contains(&name.as_str());
            assert_eq!(is_internal, file == "<internal:standard>", "{seed}: {name}");
        }
        assert_eq!(stack.end, UnwindEnd::Root, "{seed}");
        assert!(!stack.includes, "{seed}");
        let open: Vec<&str> = stack
            .names
            .iter()
            .zip(&stack.proven)
            .filter(|(_, proven)| !**proven)
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(
            open,
            OPEN.map(|name| name.replace(CLOSURE, closure)),
            "{seed}"
        );
    }
    Ok(())
}

#[test]
fn each_recorded_engine_is_found() -> Result<()> {
    for (seed, bytes) in seeds("engine")? {
        let found = engine::of_image(&bytes).with_context(|| seed.clone())?;
        let engine = &found.engine;
        assert!(engine.version.starts_with(version(&seed)?), "{seed}");
        assert_eq!(engine.sapi, "cli", "{seed}");
        assert_eq!(engine.is_thread_safe(), seed.contains("zts"), "{seed}");
        assert_eq!(found.threads.len(), usize::from(seed.contains("zts")));
    }
    Ok(())
}

#[test]
fn the_executable_comes_first_in_each_recorded_map() -> Result<()> {
    for (seed, bytes) in seeds("maps")? {
        let first = maps::read(&bytes).modules.into_iter().next();
        let path = first.context("no modules")?.path;
        assert!(path.contains("/php"), "{seed}: {path}");
    }
    Ok(())
}

#[test]
fn the_answer_of_the_contract_is_a_seed() -> Result<()> {
    let seed = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds/answer/contract");
    let answer = answer::read(&fs::read(seed)?).map_err(anyhow::Error::msg)?;
    assert!(answer.runs.len() == 1 && answer.runs[0].work.is_ok());
    Ok(())
}
