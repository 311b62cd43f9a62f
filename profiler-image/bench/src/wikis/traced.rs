//! The calls of an application's pages, from the traces that Xdebug writes of them.
//!
//! Invariant: each trace is read completely, or the run fails; at most one is on the disk.

use std::fs::{self, File, Permissions};
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use phpprof_bench::load::LoadServer;
use phpprof_bench::target::BenchTarget;
use phpprof_bench::workload::Application;
use tempfile::TempDir;

use super::calls::CallsByPath;

/// The time after a page's answer until its trace is written.
const TRACED_WITHIN: Duration = Duration::from_secs(120);

/// php-fpm with an application and Xdebug, and one worker.
pub struct Traced {
    // It ends before the folder that it writes to is removed.
    _target: BenchTarget,
    server: LoadServer,
    folder: TempDir,
}

impl Traced {
    pub fn start(application: &'static Application, xdebug: &Path) -> Result<Self> {
        ensure!(
            xdebug.exists(),
            "{} is not there: profiler-image/runtimes/build xdebug-8.2",
            xdebug.display()
        );
        let folder = tempfile::Builder::new()
            .prefix("phpprof-traces-")
            .tempdir()?;
        // The workers run as another user.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777))?;
        let (_target, server) =
            BenchTarget::serve(application, 1, &settings(xdebug, folder.path()))?;
        Ok(Self {
            _target,
            server,
            folder,
        })
    }

    /// Asks for each page twice, because a cache may have expired since the round before; returns
    /// the number of calls.
    pub fn read(&self, calls: &mut CallsByPath) -> Result<u64> {
        let mut read = 0;
        for page in (0..self.server.pages()).flat_map(|page| [page, page]) {
            self.server.ask(page)?;
            let taken = self.take(calls);
            read += taken.with_context(|| format!("the trace of page {page}"))?;
        }
        Ok(read)
    }

    /// Reads the one trace, and removes it.
    fn take(&self, calls: &mut CallsByPath) -> Result<u64> {
        let path = self.folder.path().join("trace.xt");
        let until = Instant::now() + TRACED_WITHIN;
        while !is_whole(&path) {
            ensure!(
                Instant::now() < until,
                "{} has no end in time",
                path.display()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        let read = calls.read(BufReader::new(File::open(&path)?))?;
        fs::remove_file(&path)?;
        Ok(read)
    }
}

/// Lines for php.ini. Values of arguments are not written, to keep lines short.
fn settings(xdebug: &Path, folder: &Path) -> String {
    format!(
        "zend_extension={}\nxdebug.mode=trace\nxdebug.start_with_request=yes\nxdebug.trace_format=1\nxdebug.use_compression=0\n\
         xdebug.output_dir={}\nxdebug.trace_output_name=trace\nxdebug.var_display_max_data=0\n\
         xdebug.var_display_max_children=0\nxdebug.var_display_max_depth=0\nmax_execution_time=600\n",
        xdebug.display(),
        folder.display()
    )
}

/// Whether a trace has its last line.
fn is_whole(path: &PathBuf) -> bool {
    const TAIL: i64 = 64;
    let mut text = Vec::new();
    let read = File::open(path).and_then(|mut file| {
        file.seek(SeekFrom::End(-TAIL))?;
        file.read_to_end(&mut text)
    });
    read.is_ok() && String::from_utf8_lossy(&text).contains("\nTRACE END")
}
