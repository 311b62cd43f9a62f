//! The documentation's commands for a host run here, with this machine's PHP 8.2. It requires root,
//! php-fpm, cgi-fcgi, script(1) and Go.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};
use phpprof_documents::{Setup, pages, script};
use phpprof_testing::Running;
use phpprof_testing::fpm::{self, Pool};
use tempfile::TempDir;

const PHPPROF: &str = env!("CARGO_BIN_EXE_phpprof");
/// The seconds that a program on a terminal runs before it is told to end.
const ON_TERMINAL: u32 = 2;
/// The files that the examples name: a program of half a second, and the pool's script.
const SCRIPT: &str = "<?php
function price($n) { for ($sum = 0; $n > 0; $n--) $sum += sqrt($n); return $sum; }
for ($end = hrtime(true) + 5e8; hrtime(true) < $end;) price(1000);
";

fn quiet(command: &mut Command) -> Result<Running> {
    Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
}

/// php-fpm with the pool `www`, and a client that sends it requests repeatedly.
fn pool(folder: &Path) -> Result<[Running; 2]> {
    let (socket, script) = (folder.join("socket"), folder.join("script.php"));
    let www = Pool {
        name: "www",
        socket: &socket,
        workers: 2,
        more: "user = root\ngroup = root\n",
    };
    let master = fpm::start("/usr/sbin/php-fpm8.2", folder, &[www], &[])?;
    let mut client = Command::new("sh");
    client.args([
        "-c",
        "while cgi-fcgi -bind -connect \"$SOCKET\"; do :; done",
    ]);
    client
        .env("SOCKET", &socket)
        .env("SCRIPT_FILENAME", script)
        .env("REQUEST_URI", "/shop/4711/cart?id=1")
        .env("REQUEST_METHOD", "GET");
    Ok([master, quiet(&mut client)?])
}

#[test]
fn host_commands_run_in_their_order() -> Result<()> {
    let folder = TempDir::new()?;
    let bin = folder.path().join("bin");
    std::fs::create_dir(&bin)?;
    std::os::unix::fs::symlink(PHPPROF, bin.join("phpprof"))?;
    std::fs::write(folder.path().join("script.php"), SCRIPT)?;
    let [_master, _client] = pool(folder.path())?;
    let path = format!(
        "{}:{}",
        bin.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let mut count = 0;
    for (page, text) in pages()? {
        if script(&text, &[Setup::Host], ON_TERMINAL).is_empty() {
            continue;
        }
        // A second is enough here for the page's five.
        let script =
            script(&text, &[Setup::Host, Setup::Terminal], ON_TERMINAL).replace("-d 5s", "-d 1s");
        let mut shell = Command::new("bash");
        shell.args(["-euxo", "pipefail", "-c", &script]);
        shell
            .current_dir(folder.path())
            .env("PATH", &path)
            .stdin(Stdio::null());
        let output = shell.output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}: {said}", page.display());
        count += 1;
    }
    ensure!(count >= 1, "no page has commands for a host");
    Ok(())
}
