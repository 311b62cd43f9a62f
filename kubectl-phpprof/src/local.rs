//! The verbs that show a profile: `top`, `findings`, `flame`, `diff`, `download`.
//!
//! Invariant: with files as sources, they make no call to a cluster.

use std::borrow::Cow;
use std::io::IsTerminal;

use phpprof_profile::in_use::is_in_use;
use phpprof_profile::page::SourceTexts;
use phpprof_profile::timeline::Timeline;
use phpprof_profile::{ComparedSide, ComparedSides, Format, View, page, svg};

use crate::cli::{DiffFlags, Download, Findings, Flame, TopFlags};
use crate::compare::Compared;
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::output::{FORMS, NAMED, OutputFlag, OutputForm};
use crate::screen::Screen;
use crate::show::{diff_text, table_of, with_waiting_label};
use crate::source::{ProfileSource, list_of, load, timeline_of};
use crate::texts::texts_of;
use crate::verdict::{cells_in, cells_of};
use crate::view::{view, wrong_view};
use crate::written::write;
use crate::{findings, stdout, unlike};

/// How the name of a list of requests ends.
const LIST_END: &str = "requests.json.gz";

pub async fn top(global: &Global, arguments: &TopFlags, screen: Screen) -> Result<String, Failure> {
    let output = arguments.output.read()?;
    let source = load(global, &arguments.source, None).await?;
    let view = view(&arguments.view);
    let by = arguments.by.as_deref();
    let table = table_of(&source.profile, &view, arguments.sort, by)?;
    Ok(table.text(&output, arguments.count, screen.width))
}

impl ProfileSource {
    fn with_waiting_label(self, view: &View) -> Self {
        match with_waiting_label(&self.profile, view, None) {
            Cow::Borrowed(_) => self,
            Cow::Owned(profile) => ProfileSource { profile, ..self },
        }
    }
}

pub async fn findings(
    global: &Global,
    arguments: &Findings,
    screen: Screen,
) -> Result<String, Failure> {
    let output = arguments.output.read()?;
    let source = load(global, &arguments.source, None).await?;
    let view = View {
        sample_type: None,
        labels: arguments.labels.clone(),
    };
    let found = phpprof_profile::findings(&source.profile, &view);
    if is_in_use(&source.profile) {
        eprintln!(
            "{} is of what is in heaps, and findings are of time: see top and flame.",
            source.title
        );
    } else if found.is_empty() {
        eprintln!("No findings in {}.", source.title);
    }
    Ok(findings::text(&found, &output, screen.width))
}

pub async fn flame(global: &Global, arguments: &Flame) -> Result<String, Failure> {
    let source = load(global, &arguments.source, None).await?;
    let view = view(&arguments.view);
    let source = source.with_waiting_label(&view);
    let format = arguments.output.as_deref().map(drawn).transpose()?;
    let is_page = matches!(format, None | Some(Format::Html));
    if arguments.folder.is_some() && !is_page {
        return Err(Failure::new(
            Exit::Usage,
            "--source is for the page, which shows the time of each line",
            "use the extension .html, or leave out --source",
        ));
    }
    let texts = match &arguments.folder {
        Some(folder) => texts_of(&source.profile, folder)?,
        None => SourceTexts::default(),
    };
    let timeline = match format {
        None | Some(Format::Html) => timeline_of(global, &arguments.source).await,
        Some(_) => None,
    };
    let (Some(path), Some(format)) = (&arguments.output, format) else {
        return open(&source, &view, timeline.as_ref(), &texts);
    };
    let bytes = match format {
        Format::Html => html(&source, &view, timeline.as_ref(), &texts)?.into_bytes(),
        format => format
            .write(&source.profile, &view, &source.title, None)
            .map_err(wrong_view)?,
    };
    write(path, &bytes)
}

fn html(
    source: &ProfileSource,
    view: &View,
    timeline: Option<&Timeline>,
    texts: &SourceTexts,
) -> Result<String, Failure> {
    page::page_with_texts(&source.profile, view, &source.title, timeline, texts).map_err(wrong_view)
}

pub async fn compare(
    global: &Global,
    arguments: &DiffFlags,
    screen: Screen,
) -> Result<String, Failure> {
    let before = load(global, &arguments.before, None).await?;
    let after = load(global, &arguments.after, None).await?;
    let view = view(&arguments.view);
    let titles = [before.title.clone(), after.title.clone()];
    let sides = unlike::compared_sides(
        side(global, before, &arguments.before, &view).await,
        side(global, after, &arguments.after, &view).await,
        &view,
        &arguments.trim_path,
        arguments.force,
    )?;
    for line in unlike::warnings(&sides.likeness) {
        eprintln!("{line}");
    }
    let [before, after] = [&sides.before.profile, &sides.after.profile];
    let mut compared = Compared::of(before, after, &view, arguments.per)?;
    if let Some(cells) = sides.cells() {
        compared = compared.with_cells(cells, &view);
    }
    compared.likeness = sides.likeness.clone();
    let text = compared_text(arguments, screen, &sides, &titles, &compared)?;
    match arguments.fail_above.map(|limit| compared.grown(limit)) {
        Some(Err(misused)) if misused.exit == Exit::Usage => Err(misused),
        Some(Err(grown)) => {
            stdout::say(&text)?;
            Err(grown)
        }
        _ => Ok(text),
    }
}

/// A side of the comparison. A list that cannot be read is no reason against it: its bounds are by
/// samples alone then.
async fn side(global: &Global, source: ProfileSource, name: &str, view: &View) -> ComparedSide {
    let cells = match cells_of(global, name, None).await {
        Ok(cells) => cells,
        Err(failure) => {
            eprintln!("warning: compared by samples alone: {failure}");
            None
        }
    };
    let source = source.with_waiting_label(view);
    ComparedSide {
        profile: source.profile,
        cells,
    }
}

/// A table or data as text, or the page or picture that was written.
fn compared_text(
    arguments: &DiffFlags,
    screen: Screen,
    sides: &ComparedSides,
    titles: &[String; 2],
    compared: &Compared,
) -> Result<String, Failure> {
    let output = arguments.output.as_deref().unwrap_or("table");
    match list_form(output)? {
        Some(form) => Ok(diff_text(compared, &form, arguments.count, screen.width)),
        None => draw_both(output, sides, titles, &view(&arguments.view), compared),
    }
}

/// The form of the list; `None` for a file to draw.
fn list_form(text: &str) -> Result<Option<OutputForm>, Failure> {
    let is_template = |form: &str| form.ends_with('=') && text.starts_with(form);
    match OutputFlag::parse(text, NAMED) {
        Ok(asked) => asked.read().map(Some),
        Err(refusal) if FORMS.iter().any(|form| is_template(form)) => Err(Failure::new(
            Exit::Usage,
            refusal,
            "kubectl phpprof diff --help names the forms",
        )),
        Err(_) => Ok(None),
    }
}

fn draw_both(
    path: &str,
    sides: &ComparedSides,
    [of_before, of_after]: &[String; 2],
    view: &View,
    compared: &Compared,
) -> Result<String, Failure> {
    let [before, after] = [&sides.before.profile, &sides.after.profile];
    let note = compared.likeness.note();
    let note = note.map_or_else(String::new, |note| format!(" ({note})"));
    let title = format!("{of_after}: what changed since {of_before}{note}");
    let scale = compared.noise_scale();
    let page = match drawn(path)? {
        Format::Html => {
            page::differential(before, after, view, &title, scale).map_err(wrong_view)?
        }
        _ => svg::differential(before, after, view, &title, scale).map_err(wrong_view)?,
    };
    write(path, page.as_bytes())
}

/// The list of requests, which is of all pods and has its own form.
async fn download_list(
    global: &Global,
    arguments: &Download,
    path: &str,
) -> Result<String, Failure> {
    if arguments.pod.is_some() || view(&arguments.view) != View::default() {
        return Err(Failure::new(
            Exit::Usage,
            "a list of requests is of the whole run",
            "leave --pod, --label and --sample-type out",
        ));
    }
    let bytes = list_of(global, &arguments.source).await?;
    cells_in(&bytes, &arguments.source)?;
    write(path, &bytes)
}

pub async fn download(global: &Global, arguments: &Download) -> Result<String, Failure> {
    if let Some(path) = &arguments.output
        && path.ends_with(LIST_END)
    {
        return download_list(global, arguments, path).await;
    }
    let asked = arguments.output.as_deref().map(known).transpose()?;
    let source = load(global, &arguments.source, arguments.pod.as_deref()).await?;
    let path = arguments
        .output
        .clone()
        .unwrap_or_else(|| format!("{}.pb.gz", source.stem));
    let format = asked.unwrap_or(Format::Pprof);
    let view = view(&arguments.view);
    let source = source.with_waiting_label(&view);
    // The list is of all pods, and a pod's own profile does not name it.
    let timeline = match (format, &arguments.pod) {
        (Format::Html | Format::Firefox, None) => timeline_of(global, &arguments.source).await,
        _ => None,
    };
    let bytes = format
        .write(&source.profile, &view, &source.title, timeline.as_ref())
        .map_err(wrong_view)?;
    write(&path, &bytes)
}

/// The format for a path. `-` means standard output, as a pprof.
fn known(path: &str) -> Result<Format, Failure> {
    if path == "-" {
        return Ok(Format::Pprof);
    }
    Format::of_name(path).ok_or_else(|| {
        Failure::new(
            Exit::Usage,
            format!("{path}: the file's extension is not a known format"),
            format!("use one of the extensions {}", Format::extensions()),
        )
    })
}

fn drawn(path: &str) -> Result<Format, Failure> {
    match Format::of_name(path) {
        Some(format @ (Format::Html | Format::Svg)) => Ok(format),
        _ => Err(Failure::new(
            Exit::Usage,
            format!("{path}: a flame graph is a page or a picture"),
            "use the extension .html or .svg; kubectl phpprof download writes the other formats",
        )),
    }
}

/// Writes the page so that only this user can read it, and opens it on the desktop.
fn open(
    source: &ProfileSource,
    view: &View,
    timeline: Option<&Timeline>,
    texts: &SourceTexts,
) -> Result<String, Failure> {
    let html = html(source, view, timeline, texts)?;
    let folder = private_folder()?;
    let name: String = source
        .stem
        .chars()
        .map(|letter| {
            if letter.is_ascii_alphanumeric() || "-_.".contains(letter) {
                letter
            } else {
                '-'
            }
        })
        .collect();
    let path = folder.join(format!("{name}.html")).display().to_string();
    let written = write(&path, html.as_bytes())?;
    let opener = if cfg!(target_os = "macos") {
        "open"
    } else {
        "xdg-open"
    };
    let desktop = cfg!(target_os = "macos")
        || ["DISPLAY", "WAYLAND_DISPLAY"]
            .into_iter()
            .any(|name| std::env::var_os(name).is_some());
    let opened = desktop
        && std::io::stdout().is_terminal()
        && std::process::Command::new(opener)
            .arg(&path)
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
    if opened {
        Ok(written)
    } else {
        Ok(format!("{written}open it in a browser: file://{path}\n"))
    }
}

/// A new folder in the temporary one.
fn private_folder() -> Result<std::path::PathBuf, Failure> {
    use std::os::unix::fs::DirBuilderExt;
    let base = std::env::temp_dir();
    let failed = |error: std::io::Error| Failure::of_file(&base.display().to_string(), &error);
    for attempt in 0..1000 {
        let path = base.join(format!("phpprof-{}-{attempt}", std::process::id()));
        match std::fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Err(failed(std::io::ErrorKind::AlreadyExists.into()))
}
