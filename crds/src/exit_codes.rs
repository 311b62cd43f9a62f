//! The sampler's exit codes, as in contract/README.md, for the reference page.

/// One row of the contract's table.
pub struct ExitCode {
    /// What the container ends with.
    pub code: u8,
    /// Reasons of receipts with this code, in Markdown.
    pub reasons: &'static str,
    /// For people.
    pub meaning: &'static str,
}

const fn row(code: u8, reasons: &'static str, meaning: &'static str) -> ExitCode {
    ExitCode {
        code,
        reasons,
        meaning,
    }
}

/// In the order of the codes; a test holds them against contract/README.md.
pub const EXIT_CODES: &[ExitCode] = &[
    row(
        0,
        "`Uploaded`, `Relayed`, `NotAfterPassed`, `LeaseEnded`",
        "stored; or started too late, nothing done; or a resident sampler whose time is over",
    ),
    row(1, "`Internal`", "a fault of the sampler itself"),
    row(2, "`Usage`", "bad flags, environment or grants"),
    row(
        10,
        "`NoPhpFound`",
        "no process of the target container maps a PHP engine",
    ),
    row(
        11,
        "`UnsupportedVersion`",
        "a PHP engine whose version has no layout row; `detail` is the version",
    ),
    row(
        12,
        "`NoEngineSymbols`",
        "a PHP engine without the symbols in `.dynsym`",
    ),
    row(
        13,
        "`LayoutMismatch`",
        "the version is known, but live structures do not hold together",
    ),
    row(
        14,
        "`PermissionDenied`",
        "the kernel refused to read the target's memory: another user's, or a security module; `detail` says which",
    ),
    row(
        15,
        "`FileCapabilities`",
        "an ordinary user's target has capabilities of its own, which hide it from that user",
    ),
    row(
        16,
        "`NotDumpable`",
        "the target is not dumpable, which hides it from its own user",
    ),
    row(
        20,
        "`UploadDeadlineExceeded`",
        "not stored before `upload-until`; `detail` is the last error",
    ),
    row(
        21,
        "`UploadRefused`",
        "the store gave a final refusal; `detail` is the HTTP status",
    ),
    row(
        22,
        "`CertificateUntrusted`",
        "the store's certificate is not signed by a trusted CA",
    ),
    row(23, "`ProfileTooLarge`", "the profile is over 32 MiB"),
    row(
        24,
        "`SourceNotPod`",
        "the relay saw another address than the pod's; `detail` has both",
    ),
    row(
        25,
        "`RelayUnreachable`",
        "the relay did not answer a resident sampler in time; `detail` is the last error",
    ),
    row(
        30,
        "`TargetExited`",
        "SIGTERM, or all workers gone, before the first sample",
    ),
    row(
        31,
        "`Cancelled`",
        "the request was cancelled before the first sample, or deleted",
    ),
    row(
        40,
        "`YamaRestricted`",
        "kernel.yama.ptrace_scope forbids to read the target; `detail` has its value",
    ),
    row(
        41,
        "`SeccompRestricted`",
        "the sampler's seccomp filter refuses both ways to the target's memory",
    ),
    row(
        42,
        "`OtherUserNamespace`",
        "the target is in a user namespace in which the sampler has no rights",
    ),
    row(
        43,
        "`GVisor`",
        "the sandbox's kernel is gVisor's, and does not let the target be read; `detail` has its errors",
    ),
];
