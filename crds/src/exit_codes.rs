//! The sampler's exit codes, as contract/README.md has them, for the reference page.

/// One row of the contract's table.
pub struct ExitCode {
    pub code: u8,
    pub reasons: &'static str,
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
        "`Uploaded`, `NotAfterPassed`",
        "stored; or started too late, nothing done",
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
        "the kernel refused to read the target's memory; `detail` names why, if known",
    ),
    row(
        15,
        "`FileCapabilities`",
        "the target is not dumpable for this user",
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
        30,
        "`TargetExited`",
        "SIGTERM, or all workers gone, before the first sample",
    ),
];
