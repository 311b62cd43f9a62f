//! Where a profile is written on a host, and in which format.
//!
//! Invariant: if the output cannot be written, the run fails before it samples anything.

use std::io::{IsTerminal, Write as _};
use std::path::{Path, PathBuf};

use phpprof::deliver::output_file::OutputFile;
use phpprof::failure::{Reason, SamplerFailure};
use phpprof_profile::timeline::Timeline;
use phpprof_profile::{DecodeLimits, Format, Profile, View, decode};

/// The output and its format.
pub struct Sink {
    place: SinkPlace,
    format: Format,
}

enum SinkPlace {
    Stdout,
    File(PathBuf, OutputFile),
}

impl Sink {
    /// Opens the file, or the standard output if only a format was given; `None` if neither was
    /// given.
    ///
    /// # Errors
    /// It cannot be written to, or its format is unknown.
    pub fn open(
        output: Option<&Path>,
        format: Option<Format>,
        has_program: bool,
    ) -> Result<Option<Self>, SamplerFailure> {
        let path = match (output, format) {
            (None, None) => return Ok(None),
            (Some(path), _) if path.as_os_str() != "-" => path,
            _ => return Self::stdout(format.unwrap_or(Format::Pprof), has_program).map(Some),
        };
        let format = match format.or_else(|| Format::of_name(&path.to_string_lossy())) {
            Some(format) => format,
            // The name of a FIFO or device does not tell a format.
            None if path.exists() && !path.is_file() => Format::Pprof,
            None => {
                let message = format!(
                    "{}: the file's extension is not a known format; use one of {}, or add -f",
                    path.display(),
                    Format::extensions()
                );
                return Err(usage(message));
            }
        };
        let place = SinkPlace::File(path.to_owned(), OutputFile::open(path)?);
        Ok(Some(Self { place, format }))
    }

    fn stdout(format: Format, has_program: bool) -> Result<Self, SamplerFailure> {
        if has_program {
            return Err(usage(
                "the program uses standard output: add -o FILE".to_owned(),
            ));
        }
        let is_packed = matches!(format, Format::Pprof | Format::Firefox);
        if is_packed && std::io::stdout().is_terminal() {
            return Err(usage(format!(
                "the format {} is not text for a terminal: add -o FILE, or -f folded",
                format.name()
            )));
        }
        let place = SinkPlace::Stdout;
        Ok(Self { place, format })
    }

    /// Writes the profile; a page and the Firefox Profiler also show what ran when, if that is
    /// known. If it is a file, this
    /// prints its path and how to view it.
    ///
    /// # Errors
    /// It could not be written.
    pub fn keep(
        self,
        pprof: &[u8],
        requests: Option<&Timeline>,
    ) -> Result<Option<String>, SamplerFailure> {
        let converted = match self.format {
            Format::Pprof => None,
            format => Some(converted(pprof, format, requests)?),
        };
        let bytes = converted.as_deref().unwrap_or(pprof);
        match self.place {
            SinkPlace::Stdout => {
                let mut stdout = std::io::stdout().lock();
                let written = stdout.write_all(bytes).and_then(|()| stdout.flush());
                let failed = |error| internal(format!("the standard output: {error}"));
                written.map(|()| None).map_err(failed)
            }
            SinkPlace::File(path, file) => {
                file.keep(bytes)?;
                Ok(path.is_file().then(|| {
                    let path = path.display().to_string();
                    format!("{path}; look at it with: {}", viewer(self.format, &path))
                }))
            }
        }
    }
}

fn converted(
    pprof: &[u8],
    format: Format,
    requests: Option<&Timeline>,
) -> Result<Vec<u8>, SamplerFailure> {
    let profile = decode(pprof, &DecodeLimits::of_own());
    let profile = profile.map_err(|error| internal(format!("the profile: {error}")))?;
    let title = title(&profile);
    let written = format.write(&profile, &View::default(), &title, requests);
    written.map_err(|error| internal(format!("the profile: {error}")))
}

/// The title of a page or picture: what PHP ran, and when the run began.
fn title(profile: &Profile) -> String {
    let nanoseconds = u64::try_from(profile.time_nanos).unwrap_or(0);
    let seconds = nanoseconds / 1_000_000_000 % 86_400;
    let [hours, minutes, seconds] = [seconds / 3600, seconds / 60 % 60, seconds % 60];
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    format!("PHP on {host}, {hours:02}:{minutes:02}:{seconds:02} UTC")
}

fn viewer(format: Format, path: &str) -> String {
    match format {
        Format::Pprof => format!("go tool pprof -http=localhost:8000 {path}"),
        Format::Folded => format!("flamegraph.pl {path} >flame.svg"),
        Format::Speedscope => "https://www.speedscope.app".to_owned(),
        Format::Callgrind => format!("kcachegrind {path}"),
        Format::Firefox => "https://profiler.firefox.com".to_owned(),
        Format::Svg | Format::Html => "a browser".to_owned(),
    }
}

fn usage(message: String) -> SamplerFailure {
    SamplerFailure::new(Reason::Usage, "output", message)
}

fn internal(message: String) -> SamplerFailure {
    SamplerFailure::new(Reason::Internal, "output", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, format: Option<Format>, expected: Option<Format>) {
        let folder = tempfile::tempdir().unwrap();
        let sink = Sink::open(Some(&folder.path().join(name)), format, true);
        let found = sink.ok().flatten().map(|sink| sink.format);
        assert_eq!(found, expected, "{name}");
    }

    #[test]
    fn file_name_and_flag_choose_the_format() {
        check("x.pb.gz", None, Some(Format::Pprof));
        check("x.html", None, Some(Format::Html));
        check("callgrind.out.7", None, Some(Format::Callgrind));
        check("x.json.gz", None, Some(Format::Firefox));
        check("x.html", Some(Format::Folded), Some(Format::Folded));
        check("x.data", Some(Format::Svg), Some(Format::Svg));
        check("x.data", None, None);
    }

    #[test]
    fn program_keeps_its_standard_output() {
        assert!(Sink::open(Some(Path::new("-")), None, true).is_err());
        assert!(Sink::open(None, Some(Format::Svg), true).is_err());
        assert!(matches!(Sink::open(None, None, true), Ok(None)));
        let sink = Sink::open(None, Some(Format::Svg), false);
        assert!(matches!(sink, Ok(Some(sink)) if sink.format == Format::Svg));
    }
}
