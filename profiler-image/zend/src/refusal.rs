//! Why a process cannot be sampled, in words.
//!
//! Invariant: a refusal names what is missing, or what does not hold.

use std::fmt;

use crate::layouts::known_versions;
use crate::memory::MemoryFault;

/// Why a process cannot be sampled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineRefusal {
    /// None of the modules defines an engine's symbols.
    NoPhpFound,
    /// No row has this version of PHP.
    UnsupportedVersion(String),
    /// A PHP without symbols: its path.
    NoEngineSymbols(String),
    /// A 32-bit PHP: its path. No row has one.
    Only32Bit(String),
    /// PHP that an emulator runs, whose memory is not that of a known engine: the emulator's path.
    Emulated(String),
    /// The check that failed, for instance because of a patch of the distribution.
    LayoutMismatch(&'static str),
    /// The engine is starting, and has to be checked again later.
    Starting,
    /// Usually for lack of rights.
    Unreadable(MemoryFault),
}

impl fmt::Display for EngineRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPhpFound => f.write_str("no PHP engine is mapped"),
            Self::UnsupportedVersion(version) => {
                write!(
                    f,
                    "PHP {version} is not known to this version of phpprof (known: {})",
                    known_versions()
                )
            }
            Self::NoEngineSymbols(path) => {
                write!(
                    f,
                    "{path} is PHP, but has no dynamic symbols: it was linked statically or without -export-dynamic"
                )
            }
            Self::Only32Bit(path) => {
                write!(
                    f,
                    "{path} is a 32-bit PHP; 32-bit engines are not supported"
                )
            }
            Self::Emulated(emulator) => {
                write!(
                    f,
                    "an emulator runs its PHP ({emulator}), and its memory does not look like an engine's"
                )
            }
            Self::LayoutMismatch(what) => write!(
                f,
                "the engine's memory does not have the layout of its version: {what}"
            ),
            Self::Starting => f.write_str("the PHP engine has not started yet"),
            Self::Unreadable(fault) => write!(f, "{fault}"),
        }
    }
}

impl std::error::Error for EngineRefusal {}
