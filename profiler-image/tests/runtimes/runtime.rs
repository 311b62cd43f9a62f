//! The paths of a PHP's programs, and how to start one.
//!
//! It installs and builds nothing: tools/packages and profiler-image/runtimes/build do.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A PHP of some version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Php {
    /// Debian's, of this machine.
    Host,
    /// Built from source: a folder below the cache's `runtimes`.
    Built(&'static str),
    /// The same, as the root of a container that is entered.
    Container(&'static str),
    /// Debian's, of this version, in a container with another release.
    Root(&'static str, &'static str),
    /// The same, with nothing but another root.
    Chroot(&'static str, &'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    Cli,
    Fpm,
    Cgi,
    /// Apache's module.
    Module,
}

impl Php {
    /// The program's path, as seen where it runs.
    pub fn path(self, program: Program) -> PathBuf {
        let debian = |version: &str| match program {
            Program::Cli => format!("/usr/bin/php{version}"),
            Program::Fpm => format!("/usr/sbin/php-fpm{version}"),
            Program::Cgi => format!("/usr/bin/php-cgi{version}"),
            Program::Module => format!("/usr/lib/apache2/modules/libphp{version}.so"),
        };
        let built = match program {
            Program::Cli => "usr/local/bin/php",
            Program::Fpm => "usr/local/sbin/php-fpm",
            Program::Cgi => "usr/local/bin/php-cgi",
            Program::Module => "usr/lib/apache2/modules/libphp.so",
        };
        match self {
            Self::Host => debian("8.2").into(),
            Self::Root(_, version) | Self::Chroot(_, version) => debian(version).into(),
            Self::Built(name) => runtimes().join(name).join(built),
            Self::Container(_) => Path::new("/").join(built),
        }
    }

    /// The name of the module for Apache.
    pub fn module(self) -> &'static str {
        match self {
            Self::Root(_, version) | Self::Chroot(_, version) if version.starts_with('7') => {
                "php7_module"
            }
            _ => "php_module",
        }
    }

    /// `folder` as seen where the programs run.
    pub fn seen(self, folder: &Path) -> PathBuf {
        match self {
            Self::Root(..) | Self::Chroot(..) | Self::Container(_) => "/srv".into(),
            Self::Host | Self::Built(_) => folder.to_owned(),
        }
    }

    /// A command of this PHP's machine.
    pub fn command(self, folder: &Path, program: &Path) -> Command {
        // The sampler and the clients have priority if CPUs are short, because a process that waits
        // for a CPU is measured by chance.
        let mut command = Command::new("nice");
        if let Self::Root(name, _) | Self::Container(name) = self {
            command.arg(sources().join("enter"));
            command.arg(runtimes().join(name)).arg(folder);
        }
        if let Self::Chroot(name, _) = self {
            command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("bench/in-root"));
            command.arg(runtimes().join(name)).current_dir(folder);
        }
        command.arg(program);
        // A PHP from source finds its php.ini there; Debian's has its own, with opcache.
        if matches!(self, Self::Built(_) | Self::Container(_)) {
            command.env("PHPRC", self.seen(folder));
        }
        command
    }
}

/// profiler-image/runtimes of this repository.
pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("runtimes")
}

/// The folder of profiler-image/runtimes/build.
pub fn runtimes() -> PathBuf {
    let cache = std::env::var_os("PHPPROF_CACHE").filter(|cache| !cache.is_empty());
    PathBuf::from(cache.unwrap_or_else(|| "/var/cache/phpprof".into())).join("runtimes")
}
