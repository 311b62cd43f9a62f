//! The common kinds of PHP, as a table.

use crate::place::Server;
use crate::runtime::Php;

/// What is sampled in one recording, and compared with the truth.
#[derive(Debug)]
pub struct Kind {
    pub name: &'static str,
    /// Not in the short form.
    pub full: bool,
    pub targets: &'static [Target],
}

#[derive(Debug, Clone, Copy)]
pub struct Target {
    pub php: Php,
    pub server: Server,
    pub workers: usize,
    pub file: File,
}

/// What happens to a program's file once it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum File {
    Stays,
    Deleted,
    /// Another program is put at its path.
    Replaced,
}

impl Kind {
    pub fn workers(&self) -> usize {
        self.targets.iter().map(|target| target.workers).sum()
    }

    /// Whether each request's route is known. In FrankenPHP's classic mode it is known if the
    /// script uses `$_SERVER`, which the truth does not.
    pub fn tells_routes(&self) -> bool {
        let tells = |target: &Target| {
            !matches!(
                target.server,
                Server::Script { .. }
                    | Server::Uwsgi
                    | Server::Embed { .. }
                    | Server::FrankenPhp { worker: false, .. }
            )
        };
        self.targets.iter().all(tells)
    }

    /// Whether there are no workers before there is load.
    pub fn is_late(&self) -> bool {
        let late = |target: &Target| {
            matches!(
                target.server,
                Server::Fpm {
                    manager: "ondemand" | "dynamic",
                    ..
                }
            )
        };
        self.targets.iter().any(late)
    }
}

const fn target(php: Php, server: Server, workers: usize) -> Target {
    Target {
        php,
        server,
        workers,
        file: File::Stays,
    }
}

const fn fpm(manager: &'static str) -> Server {
    Server::Fpm {
        manager,
        requests: 0,
    }
}

const SCRIPT: Server = Server::Script { opcache: true };
const PREFORK: Server = Server::Apache { mpm: "prefork" };
pub const ZTS: Php = built("php-8.2-zts");
const ZTS_APACHE: Php = built("php-8.2-zts-apache");
const ZTS_8_4: Php = built("php-8.4-zts");
pub const BULLSEYE: Php = Php::Root("debian-bullseye", "7.4");
pub const TRIXIE: Php = Php::Root("debian-trixie", "8.4");
pub const SID_8_5: Php = Php::Root("debian-experimental", "8.5");
pub const SID_8_6: Php = Php::Root("debian-experimental", "8.6");

const fn built(name: &'static str) -> Php {
    Php::Built(name)
}

const fn frankenphp(name: &'static str, worker: bool) -> Server {
    Server::FrankenPhp { name, worker }
}

const fn quick(name: &'static str, targets: &'static [Target]) -> Kind {
    Kind {
        name,
        full: false,
        targets,
    }
}

const fn full(name: &'static str, targets: &'static [Target]) -> Kind {
    Kind {
        name,
        full: true,
        targets,
    }
}

pub const KINDS: &[Kind] = &[
    quick("cli 8.2", &[target(Php::Host, SCRIPT, 1)]),
    quick("fpm static 8.2", &[target(Php::Host, fpm("static"), 3)]),
    quick("fpm ondemand 8.2", &[target(Php::Host, fpm("ondemand"), 3)]),
    quick("fpm dynamic 8.2", &[target(Php::Host, fpm("dynamic"), 3)]),
    quick("cgi 8.2", &[target(Php::Host, Server::Cgi, 2)]),
    quick("mod_php prefork 8.2", &[target(Php::Host, PREFORK, 3)]),
    quick(
        "built-in server 8.2",
        &[target(Php::Host, Server::BuiltIn, 3)],
    ),
    quick(
        "RoadRunner 8.2",
        &[target(Php::Host, Server::RoadRunner, 4)],
    ),
    quick(
        "fpm 8.2, file deleted",
        &[Target {
            file: File::Deleted,
            ..target(Php::Host, fpm("static"), 2)
        }],
    ),
    quick(
        "fpm 8.2, file replaced",
        &[Target {
            file: File::Replaced,
            ..target(Php::Host, fpm("static"), 2)
        }],
    ),
    quick(
        "fpm 8.2 musl, in a container",
        &[target(
            Php::Container("php-8.2-musl.stripped.container"),
            fpm("static"),
            2,
        )],
    ),
    quick(
        "FrankenPHP 8.2 ZTS",
        &[target(ZTS, frankenphp("frankenphp-8.2", false), 8)],
    ),
    quick(
        "FrankenPHP 8.2 ZTS, worker mode",
        &[target(ZTS, frankenphp("frankenphp-8.2", true), 8)],
    ),
    full("cli 7.4", &[target(BULLSEYE, SCRIPT, 1)]),
    full("fpm 7.4", &[target(BULLSEYE, fpm("static"), 3)]),
    full("mod_php prefork 7.4", &[target(BULLSEYE, PREFORK, 3)]),
    full("cli 8.4", &[target(TRIXIE, SCRIPT, 1)]),
    full("fpm 8.4", &[target(TRIXIE, fpm("static"), 3)]),
    full("cgi 8.4", &[target(TRIXIE, Server::Cgi, 2)]),
    full("mod_php prefork 8.4", &[target(TRIXIE, PREFORK, 3)]),
    full("cli 8.5", &[target(SID_8_5, SCRIPT, 1)]),
    full("fpm 8.5", &[target(SID_8_5, fpm("static"), 3)]),
    full("mod_php prefork 8.5", &[target(SID_8_5, PREFORK, 3)]),
    full("cli 8.6", &[target(SID_8_6, SCRIPT, 1)]),
    full("fpm 8.6", &[target(SID_8_6, fpm("static"), 3)]),
    full("mod_php prefork 8.6", &[target(SID_8_6, PREFORK, 3)]),
    full("uWSGI 8.2", &[target(Php::Host, Server::Uwsgi, 3)]),
    full(
        "fpm 7.4, 8.2 and 8.4 at once",
        &[
            target(BULLSEYE, fpm("static"), 2),
            target(Php::Host, fpm("static"), 2),
            target(TRIXIE, fpm("static"), 2),
        ],
    ),
    full("cli 8.2 ZTS", &[target(ZTS, SCRIPT, 1)]),
    full("fpm 8.2 ZTS", &[target(ZTS, fpm("static"), 2)]),
    full("cgi 8.2 ZTS", &[target(ZTS, Server::Cgi, 2)]),
    full(
        "fpm 8.2 ZTS, stripped",
        &[target(built("php-8.2-zts.stripped"), fpm("static"), 2)],
    ),
    full(
        "mod_php worker MPM 8.2 ZTS",
        &[target(ZTS_APACHE, Server::Apache { mpm: "worker" }, 4)],
    ),
    full(
        "mod_php event MPM 8.2 ZTS, stripped",
        &[target(
            built("php-8.2-zts-apache.stripped"),
            Server::Apache { mpm: "event" },
            4,
        )],
    ),
    full(
        "FrankenPHP 8.2 ZTS, stripped",
        &[target(ZTS, frankenphp("frankenphp-8.2.stripped", false), 8)],
    ),
    full("cli 8.4 ZTS", &[target(ZTS_8_4, SCRIPT, 1)]),
    full(
        "FrankenPHP 8.4 ZTS",
        &[target(ZTS_8_4, frankenphp("frankenphp-8.4", false), 8)],
    ),
    full(
        "FrankenPHP 8.4 ZTS, worker mode",
        &[target(ZTS_8_4, frankenphp("frankenphp-8.4", true), 8)],
    ),
    full("RoadRunner 8.2 ZTS", &[target(ZTS, Server::RoadRunner, 4)]),
    full("cli 8.2 musl", &[target(built("php-8.2-musl"), SCRIPT, 1)]),
    full(
        "fpm 8.2 musl",
        &[target(built("php-8.2-musl"), fpm("static"), 2)],
    ),
    full(
        "application with PHP inside, 8.2 musl ZTS",
        &[target(
            built("php-8.2-musl-zts"),
            Server::Embed {
                name: "embed-8.2-musl-zts",
            },
            1,
        )],
    ),
    full(
        "FrankenPHP 8.2 ZTS, libphp linked in",
        &[target(
            built("php-8.2-zts-static"),
            frankenphp("frankenphp-8.2-static", false),
            8,
        )],
    ),
    full(
        "fpm 7.4, in a chroot",
        &[target(
            Php::Chroot("debian-bullseye", "7.4"),
            fpm("static"),
            2,
        )],
    ),
    full(
        "cli 8.2 musl ZTS",
        &[target(built("php-8.2-musl-zts"), SCRIPT, 1)],
    ),
    full(
        "cli 8.2 musl ZTS, stripped",
        &[target(built("php-8.2-musl-zts.stripped"), SCRIPT, 1)],
    ),
];
