//! The scripts in opcache's table, compared with what opcache says itself. With this machine's PHP
//! 8.2, or the command in `PHP`.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use phpprof::target::process::{ProcessMemory, maps};
use phpprof_testing::Running;
use phpprof_zend::engine::find;
use phpprof_zend::function::{FunctionKey, HEAD};
use phpprof_zend::memory::Memory as _;
use phpprof_zend::opcache::read_scripts;
use phpprof_zend::text::ZendString;
use tempfile::TempDir;

const FILES: usize = 200;
/// Includes the files, one of them by another path too, lists what opcache has, and waits.
const MAIN: &str = "<?php
foreach (glob(__DIR__ . '/part*.php') as $file) { include $file; }
chdir(__DIR__);
include './part7.php';
foreach (opcache_get_status()['scripts'] as $script) { echo $script['full_path'], PHP_EOL; }
echo PHP_EOL;
sleep(60);";

#[test]
fn opcaches_scripts_are_found_by_address() -> Result<()> {
    let folder = TempDir::new()?;
    for number in 0..FILES {
        let text = format!("<?php $sum = {number} + count($argv);");
        fs::write(folder.path().join(format!("part{number}.php")), text)?;
    }
    fs::write(folder.path().join("main.php"), MAIN)?;
    let php = std::env::var("PHP").unwrap_or_else(|_| "/usr/bin/php8.2".to_owned());
    let mut words = php.split(' ');
    let mut target = Running(
        Command::new(words.next().context("no PHP")?)
            .args(words)
            .args([
                "-d",
                "opcache.enable_cli=1",
                "-d",
                "opcache.file_update_protection=0",
            ])
            .arg("main.php")
            .current_dir(&folder)
            .stdout(Stdio::piped())
            .spawn()?,
    );
    let output = target.0.stdout.take().context("no output")?;
    let lines = BufReader::new(output).lines().map_while(Result::ok);
    let mut listed: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    listed.sort();
    ensure!(
        listed.len() > FILES,
        "opcache lists {} scripts",
        listed.len()
    );

    let pid = target.pid();
    let memory = ProcessMemory::open(pid)?;
    let executable = fs::read_link(format!("/proc/{pid}/exe"))?
        .display()
        .to_string();
    let maps = maps::parse(
        &fs::read_to_string(format!("/proc/{pid}/maps"))?,
        &executable,
    );
    let layout = find(&memory, &maps.modules)?.layout;
    let (mut scripts, mut found) = (Vec::new(), Vec::new());
    read_scripts(&memory, layout, &maps.shared, &mut scripts);
    for script in scripts {
        let mut head = [0_u8; HEAD];
        memory.read(script.main_op_array, &mut head)?;
        let key =
            FunctionKey::of_script(layout, &head, script.opcodes).context("no script's code")?;
        let file = ZendString::read(&memory, layout, key.filename).context("no file's name")?;
        found.push(String::from_utf8(file.bytes.to_vec())?);
    }
    found.sort();
    assert_eq!(found, listed);
    Ok(())
}
