//! `heap`: what is in the heaps of running workers, by class and by path, and what has grown since
//! an earlier look.
//!
//! `phpprof_profile::in_use` makes the report.
//!
//! Invariant: it shows the result of the request that this command created. A baseline that cannot
//! be compared is refused before anything is created.

use phpprof_profile::in_use::{InUseReport, is_in_use};
use phpprof_profile::{Format, NoiseScale, View, page, svg};

use crate::cli::{HeapFlags, HeapOutput, InUseForm};
use crate::connect::Cluster;
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::run::{as_object, looked};
use crate::screen::Screen;
use crate::source::ProfileSource;
use crate::suggest::Suggest;
use crate::table::printable;
use crate::view::wrong_view;
use crate::written::write;
use crate::{source, target, wait};

pub async fn run(global: &Global, flags: &HeapFlags, screen: Screen) -> Result<String, Failure> {
    let form = HeapDestination::of(&flags.output)?;
    let request = target::heaps(flags)?;
    let object = as_object(serde_json::to_value(request), "the command line")?;
    let baseline = match &flags.baseline {
        Some(name) => Some(heaps_of(source::load(global, name, None).await?)?),
        None => None,
    };
    // From here on, Ctrl-C asks. It must not end the program between the creation and the waiting.
    let mut interrupts = wait::interrupts()?;
    let cluster = Cluster::of(global).await?;
    let name = looked(&cluster, object, flags.timeout, &mut interrupts).await?;
    let looked = HeapLook {
        now: heaps_of(source::of_request(&cluster, &name, None).await?)?,
        baseline,
    };
    let shown = looked.shown(form, screen)?;
    for line in next(flags, &name, &cluster.suggest) {
        eprintln!("{line}");
    }
    Ok(shown)
}

/// What is shown, and where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum HeapDestination {
    /// On standard output.
    Shown(InUseForm),
    /// In this file.
    Report(InUseForm, String),
    /// The profile in this format, in this file.
    Profile(Format, String),
}

impl HeapDestination {
    fn of(output: &HeapOutput) -> Result<Self, Failure> {
        let path = match output {
            HeapOutput::Form(form) => return Ok(HeapDestination::Shown(*form)),
            HeapOutput::File(path) => path,
        };
        let is = |end: &str| path.to_ascii_lowercase().ends_with(end);
        let format = Format::of_name(path);
        let report = |form| Ok(HeapDestination::Report(form, path.clone()));
        match format {
            _ if is(".md") => report(InUseForm::Md),
            Some(Format::Html) => report(InUseForm::Html),
            Some(Format::Speedscope) if !is(".speedscope.json") => report(InUseForm::Json),
            Some(format) => Ok(HeapDestination::Profile(format, path.clone())),
            None => Err(Failure::new(
                Exit::Usage,
                format!("the name of {path} does not say its format"),
                format!("end it with .md or {}", Format::extensions()),
            )),
        }
    }
}

/// What was seen now, and earlier.
struct HeapLook {
    now: ProfileSource,
    baseline: Option<ProfileSource>,
}

impl HeapLook {
    fn shown(&self, form: HeapDestination, screen: Screen) -> Result<String, Failure> {
        match form {
            HeapDestination::Shown(form) => self.report(form, screen.width),
            HeapDestination::Report(form, path) => {
                write(&path, self.report(form, None)?.as_bytes())
            }
            HeapDestination::Profile(format, path) => write(&path, &self.profile(format)?),
        }
    }

    fn report(&self, form: InUseForm, width: Option<usize>) -> Result<String, Failure> {
        let baseline = self.baseline.as_ref();
        let report = InUseReport::of(&self.now.profile, baseline.map(|it| &it.profile));
        Ok(match form {
            InUseForm::Text => {
                let advice = report.advice().into_iter();
                let advice: String = advice.map(|it| printable(&it) + "\n").collect();
                format!("{}\n\n{}\n{advice}", self.title(), report.text(width))
            }
            InUseForm::Json => {
                let mut data = report.json();
                data["name"] = self.now.title.as_str().into();
                if let Some(baseline) = baseline {
                    data["baseline"] = baseline.title.as_str().into();
                }
                serde_json::to_string_pretty(&data).unwrap_or_default() + "\n"
            }
            InUseForm::Md => report.markdown(&self.title()),
            InUseForm::Html => self.page()?,
        })
    }

    fn title(&self) -> String {
        let now = printable(&self.now.title);
        match &self.baseline {
            Some(baseline) => format!("{now}: what grew since {}", printable(&baseline.title)),
            None => now,
        }
    }

    fn page(&self) -> Result<String, Failure> {
        let (now, view) = (&self.now.profile, View::default());
        let page = match &self.baseline {
            Some(before) => page::differential(
                &before.profile,
                now,
                &view,
                &self.title(),
                NoiseScale::BY_SAMPLES,
            ),
            None => page::page(now, &view, &self.title(), None),
        };
        page.map_err(wrong_view)
    }

    /// Only a picture shows both.
    fn profile(&self, format: Format) -> Result<Vec<u8>, Failure> {
        let (now, view) = (&self.now.profile, View::default());
        let written = match (&self.baseline, format) {
            (Some(before), Format::Svg) => svg::differential(
                &before.profile,
                now,
                &view,
                &self.title(),
                NoiseScale::BY_SAMPLES,
            )
            .map(String::into_bytes),
            _ => format.write(now, &view, &self.now.title, None),
        };
        written.map_err(wrong_view)
    }
}

/// The profile, if it is of what is in heaps.
fn heaps_of(source: ProfileSource) -> Result<ProfileSource, Failure> {
    if is_in_use(&source.profile) {
        return Ok(source);
    }
    Err(Failure::new(
        Exit::Usage,
        format!("{} is not of what is in heaps", printable(&source.title)),
        "name a request of kubectl phpprof heap, or of mode Heap; how a heap grows over time is kubectl phpprof run --heap",
    ))
}

/// What to do next, as command lines.
fn next(flags: &HeapFlags, name: &str, suggest: &Suggest) -> [String; 3] {
    let target = match (&flags.pods.target, &flags.pods.selector) {
        (Some(target), _) => target.clone(),
        (None, Some(selector)) => format!("-l {selector}"),
        (None, None) => String::new(),
    };
    let container = flags.pods.container.as_ref();
    let container = container.map_or_else(String::new, |it| format!(" -c {it}"));
    [
        format!(
            "see all paths: {}",
            suggest.phpprof(&format!("flame {name}"))
        ),
        format!(
            "see what holds most: {}",
            suggest.phpprof(&format!("top {name} --sort total"))
        ),
        format!(
            "see what grew, some requests later: {}",
            suggest.phpprof(&format!("heap {target}{container} --baseline {name}"))
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use phpprof_profile::{Builder, FrameRef, Profile, Settings};

    /// A cache with this many orders, as a sampler writes it.
    fn heap(orders: i64) -> Profile {
        let frame = |name| FrameRef {
            name,
            ..FrameRef::default()
        };
        let path = ["Shop\\Order", "[int key]", "Shop\\Cache::$items"].map(frame);
        let mut builder = Builder::new(Settings::in_use());
        builder.add(&path, &[orders, orders * 64], &[]);
        builder.comment(r#"{"inHeap":{"workers":1,"moments":1}}"#);
        builder.finish()
    }

    fn source(title: &str, profile: Profile) -> ProfileSource {
        ProfileSource {
            profile,
            title: title.to_owned(),
            stem: title.to_owned(),
        }
    }

    fn look(baseline: Option<i64>) -> HeapLook {
        HeapLook {
            now: source("shop/web", heap(3000)),
            baseline: baseline.map(|orders| source("shop/earlier", heap(orders))),
        }
    }

    #[test]
    fn files_are_written_as_their_names_say() {
        let form = |text: &str| HeapDestination::of(&HeapOutput::parse(text).unwrap());
        let report = |form, path: &str| Ok(HeapDestination::Report(form, path.to_owned()));
        let profile = |format, path: &str| Ok(HeapDestination::Profile(format, path.to_owned()));
        assert_eq!(form("json"), Ok(HeapDestination::Shown(InUseForm::Json)));
        assert_eq!(form("a.md"), report(InUseForm::Md, "a.md"));
        assert_eq!(form("a.json"), report(InUseForm::Json, "a.json"));
        assert_eq!(form("a.html"), report(InUseForm::Html, "a.html"));
        assert_eq!(form("a.pb.gz"), profile(Format::Pprof, "a.pb.gz"));
        assert_eq!(form("a.svg"), profile(Format::Svg, "a.svg"));
        let refused = form("a.docx").unwrap_err();
        assert_eq!(refused.exit, Exit::Usage);
        assert!(HeapOutput::parse("yaml").is_err());
    }

    #[test]
    fn each_form_shows_growth_with_a_baseline() {
        let text = |form| look(Some(1000)).report(form, Some(80)).unwrap();
        for form in [InUseForm::Text, InUseForm::Md] {
            let text = text(form);
            assert!(text.contains("what grew since shop/earlier"), "{text}");
            assert!(text.contains("+125 KiB"), "{text}");
        }
        let data: serde_json::Value = serde_json::from_str(&text(InUseForm::Json)).unwrap();
        assert_eq!(data["baseline"], "shop/earlier");
        assert_eq!(data["classes"][0]["before"]["count"], 1000);
        assert!(text(InUseForm::Html).contains("what grew since shop/earlier"));
        let alone = look(None).report(InUseForm::Text, Some(80)).unwrap();
        assert!(
            alone.starts_with("shop/web\n\nread     1 worker: 1 moment"),
            "{alone}"
        );
        assert!(
            alone.contains("Shop\\Cache::$items[int key] → Shop\\Order"),
            "{alone}"
        );
    }

    #[test]
    fn a_profile_of_time_is_no_baseline() {
        let of_time = Builder::new(Settings::default()).finish();
        let refused = heaps_of(source("shop/slow", of_time)).unwrap_err();
        assert_eq!(refused.exit, Exit::Usage);
        assert_eq!(refused.message, "shop/slow is not of what is in heaps");
    }
}
