//! The exit codes of the plugin; a script may rely on them.
//!
//! Generated from contract/reasons.yaml by `make generate`; do not edit.

/// How a command line failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Failed for a reason without an exit code of its own.
    Failed = 1,
    /// The command line is wrong, or the API server's rules refuse the request.
    Usage = 2,
    /// No such request, workload, pod or file.
    NotFound = 3,
    /// A right is missing; the message names it.
    Forbidden = 4,
    /// The request ended without a profile; the message has its reason.
    NoProfile = 5,
    /// The request did not end within `--timeout`; it goes on.
    Timeout = 6,
    /// The API server, the operator or the store does not answer.
    Unreachable = 7,
    /// `doctor`: the workload cannot be profiled as it is, you may not profile it, or you may not
    /// look at results.
    Unfit = 8,
    /// `diff --fail-above`: a function grew by more than the limit; `verdict`: requests take more
    /// time.
    Grew = 9,
    /// `verdict`: the profiles do not decide it; the message says what would.
    Undecided = 10,
    /// Ctrl-C.
    Interrupted = 130,
}

/// What each code means, for the reference.
#[rustfmt::skip] // One code a line.
pub const EXIT_CODES: &[(u8, &str)] = &[
    (0, "done"),
    (1, "failed for a reason without an exit code of its own"),
    (2, "the command line is wrong, or the API server's rules refuse the request"),
    (3, "no such request, workload, pod or file"),
    (4, "a right is missing; the message names it"),
    (5, "the request ended without a profile; the message has its reason"),
    (6, "the request did not end within `--timeout`; it goes on"),
    (7, "the API server, the operator or the store does not answer"),
    (8, "`doctor`: the workload cannot be profiled as it is, you may not profile it, or you may not look at results"),
    (9, "`diff --fail-above`: a function grew by more than the limit; `verdict`: requests take more time"),
    (10, "`verdict`: the profiles do not decide it; the message says what would"),
    (130, "Ctrl-C"),
];

/// The same in short, for `--help`.
#[rustfmt::skip]
pub const HELP: &str = "Exit codes: 1 failed, 2 usage, 3 not found, 4 forbidden, 5 no profile, 6 timeout, 7 unreachable, 8 cannot profile or look (doctor), 9 grew (diff, verdict), 10 undecided (verdict), 130 interrupted";
