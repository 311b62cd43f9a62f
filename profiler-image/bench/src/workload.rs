//! The sampled programs, and for constructed ones every call that they can make.

use crate::edges::NamedEdge;
use crate::small::SMALL_CALLS;

/// A program to sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BenchWorkload {
    /// Its name, in tables and on the command line.
    pub name: &'static str,
    /// How it is started.
    pub kind: WorkloadKind,
    /// The number of frames, if the program was made for a depth.
    pub depth: Option<u32>,
    /// All calls of a constructed program.
    pub edges: Option<&'static [NamedEdge]>,
}

/// How a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkloadKind {
    /// On the command line, with as many processes as there are workers; a path below `bench/`.
    Script(&'static str),
    /// One process on the command line that starts its workers.
    Parent(&'static str),
    /// Pages of an application of `workloads/applications`, by php-fpm.
    Fpm(&'static Application),
    /// A page by FrankenPHP, a thread for each worker.
    FrankenPhp(&'static str),
}

/// An application: its folder, and its pages in turn, as script and query.
#[derive(Debug, PartialEq, Eq)]
pub struct Application {
    /// Relative to the folder into which `workloads/applications` unpacks.
    pub root: &'static str,
    /// Script and query.
    pub pages: &'static [(&'static str, &'static str)],
}

const fn constructed(
    name: &'static str,
    script: &'static str,
    edges: &'static [NamedEdge],
) -> BenchWorkload {
    BenchWorkload {
        name,
        kind: WorkloadKind::Script(script),
        depth: None,
        edges: Some(edges),
    }
}

/// Nine methods deep, and asleep for 50 µs at a time.
pub const SYNTHETIC: BenchWorkload = constructed(
    "synthetic",
    "workloads/synthetic.php",
    &[
        ("{main}", "Ladder::climb"),
        ("Ladder::climb", "Ladder::step1"),
        ("Ladder::step1", "Ladder::step2"),
        ("Ladder::step2", "Ladder::step3"),
        ("Ladder::step3", "Ladder::step4"),
        ("Ladder::step4", "Ladder::step5"),
        ("Ladder::step5", "Ladder::step6"),
        ("Ladder::step6", "Ladder::step7"),
        ("Ladder::step7", "Ladder::step8"),
        ("Ladder::step8", "usleep"),
    ],
);

/// A controller that asks a repository for rows and encodes them: short methods of namespaced
/// classes.
pub const FRAMEWORK: BenchWorkload = constructed(
    "framework",
    "workloads/framework.php",
    &[
        ("{main}", "Shop\\ListController::__invoke"),
        ("Shop\\ListController::__invoke", "Shop\\Articles::byId"),
        ("Shop\\ListController::__invoke", "json_encode"),
    ],
);

/// Filters by name and priority: two closures for each of a hundred names.
pub const WORDPRESS: BenchWorkload = constructed(
    "wordpress",
    "workloads/wordpress.php",
    &[
        ("{main}", "Filters::apply"),
        ("Filters::apply", "ksort"),
        ("Filters::apply", "{closure}"),
    ],
);

/// A chain of this many handlers.
pub const fn deep(depth: u32) -> BenchWorkload {
    BenchWorkload {
        depth: Some(depth),
        ..constructed(
            "deep",
            "workloads/deep.php",
            &[
                ("{main}", "Handler::handle"),
                ("Handler::handle", "Handler::handle"),
                ("Handler::handle", "Handler::seen"),
                ("Handler::handle", "Handler::answer"),
                ("Handler::seen", "md5"),
                ("Handler::answer", "Handler::row"),
                ("Handler::row", "crc32"),
            ],
        )
    }
}

/// Nothing but small calls, above this many frames.
pub const fn small(depth: u32) -> BenchWorkload {
    BenchWorkload {
        depth: Some(depth),
        ..constructed("small", "targets/small.php", SMALL_CALLS)
    }
}

/// Four workers at a time, each of which works for 200 ms and ends.
pub const CHURN: BenchWorkload = BenchWorkload {
    kind: WorkloadKind::Parent("workloads/churn.php"),
    ..constructed(
        "churn",
        "",
        &[
            ("{main}", "pcntl_fork"),
            ("{main}", "pcntl_wait"),
            ("{main}", "work"),
            ("work", "hrtime"),
            ("work", "rows"),
            ("rows", "row"),
            ("row", "md5"),
        ],
    )
};

/// Debian's package, with its own pages.
pub const DOKUWIKI: BenchWorkload = application(
    "dokuwiki",
    &Application {
        root: "usr/share/dokuwiki",
        pages: &[
            ("doku.php", "id=wiki:syntax"),
            ("doku.php", "id=wiki:syntax&purge=true"),
            ("doku.php", "id=wiki:dokuwiki"),
            ("doku.php", "id=wiki:welcome"),
            ("doku.php", "do=index"),
            ("doku.php", "do=search&q=wiki"),
            ("doku.php", "do=recent"),
            ("doku.php", "id=wiki:syntax&do=edit"),
            ("doku.php", "id=wiki:syntax&do=export_xhtml"),
            ("doku.php", "do=media&ns=wiki"),
        ],
    },
);

/// Debian's package, with its own pages.
pub const MEDIAWIKI: BenchWorkload = application(
    "mediawiki",
    &Application {
        root: "usr/share/mediawiki",
        pages: &[
            ("index.php", "title=Main_Page"),
            ("index.php", "title=Special:Version"),
            ("index.php", "title=Special:RecentChanges"),
            ("index.php", "title=Special:SpecialPages"),
            ("index.php", "title=Special:AllPages"),
            ("index.php", "title=Main_Page&action=history"),
            ("index.php", "title=Main_Page&action=edit"),
            ("api.php", "action=query&meta=siteinfo&format=json"),
            (
                "api.php",
                "action=parse&contentmodel=wikitext&format=json&text=%27%27%27bold%27%27%27%20%5B%5Blink%5D%5D%0A*%20list",
            ),
        ],
    },
);

/// Thread-safe PHP, a thread for each worker.
pub const FRANKENPHP: BenchWorkload = BenchWorkload {
    name: "frankenphp",
    kind: WorkloadKind::FrankenPhp("workloads/served.php"),
    depth: None,
    edges: None,
};

const fn application(name: &'static str, application: &'static Application) -> BenchWorkload {
    BenchWorkload {
        name,
        kind: WorkloadKind::Fpm(application),
        depth: None,
        edges: None,
    }
}
