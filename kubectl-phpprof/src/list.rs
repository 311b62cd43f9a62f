//! Requests as tables, names, JSON and YAML: `list` and `get`.
//!
//! Invariant: JSON and YAML have the API server's answer, field by field.

use jiff::Timestamp;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use crate::cli::ListFlags;
use crate::duration::age;
use crate::failure::{Exit, Failure};
use crate::output::ListForm;
use crate::output::{OutputForm, columns_table, yaml};
use crate::request::RequestView;
use crate::screen::Screen;
use crate::table::Table;

/// How requests are listed.
#[derive(Clone, Debug)]
pub struct RequestListing {
    pub output: OutputForm,
    pub namespaces: bool,
    pub width: Option<usize>,
    pub now: Timestamp,
}

impl RequestListing {
    /// As the arguments ask, for this screen, now.
    pub fn of(arguments: &ListFlags, output: OutputForm, screen: Screen) -> Self {
        RequestListing {
            output,
            namespaces: arguments.all_namespaces,
            width: screen.width,
            now: Timestamp::now(),
        }
    }

    /// The requests as text. If `single` is set, one object instead of a list of one.
    pub fn text(
        &self,
        objects: &[DynamicObject],
        single: bool,
    ) -> Result<String, serde_json::Error> {
        Ok(match &self.output {
            OutputForm::Form(ListForm::Name) => names(objects),
            OutputForm::Form(ListForm::Json) => {
                serde_json::to_string_pretty(&document(objects, single)?)? + "\n"
            }
            OutputForm::Form(ListForm::Yaml) => yaml(&document(objects, single)?),
            OutputForm::JsonPath(template) => template.text(&document(objects, single)?),
            _ => self.table(objects)?.text(self.shown_width()),
        })
    }

    /// The output of `--watch` for these requests: rows as wide as the earlier ones, with a head
    /// above the first; or one document for each.
    pub fn watched(
        &self,
        objects: &[DynamicObject],
        widths: &mut Vec<usize>,
    ) -> Result<String, serde_json::Error> {
        match &self.output {
            OutputForm::Form(ListForm::Table | ListForm::Wide) | OutputForm::Columns(_) => {
                let first = widths.is_empty();
                let mut table = self.table(objects)?;
                table.below(widths);
                Ok(if first {
                    table.text(self.shown_width())
                } else {
                    table.rows_only(self.shown_width())
                })
            }
            output => {
                let separator = match output {
                    OutputForm::Form(ListForm::Yaml) => "---\n",
                    _ => "",
                };
                let of = |object| Ok(separator.to_owned() + &self.text(&[object], true)?);
                objects.iter().cloned().map(of).collect()
            }
        }
    }

    /// The width of the output; unlimited if the user asks for everything.
    fn shown_width(&self) -> Option<usize> {
        self.width
            .filter(|_| self.output == OutputForm::Form(ListForm::Table))
    }

    fn table(&self, objects: &[DynamicObject]) -> Result<Table, serde_json::Error> {
        if let OutputForm::Columns(columns) = &self.output {
            let items = objects.iter().map(plain).collect::<Result<Vec<_>, _>>()?;
            return Ok(columns_table(columns, &items));
        }
        let wide = self.output == OutputForm::Form(ListForm::Wide);
        let mut heads = vec![
            "NAME",
            "~TARGET",
            "REASON",
            ">PODS",
            ">DONE",
            ">?SAMPLES",
            "AGE",
        ];
        if self.namespaces {
            heads.insert(0, "NAMESPACE");
        }
        if wide {
            heads.extend([">DURATION", ">RATE", "URL"]);
        }
        let mut table = Table::new(&heads);
        for object in objects {
            let request = RequestView::of(object);
            let samples = request.at("/status/profile/samples");
            let mut cells = vec![
                request.name(),
                request.target_words(),
                match request.reason() {
                    "" => "Waiting".to_owned(),
                    reason => reason.to_owned(),
                },
                request.number("/status/selected").to_string(),
                request.number("/status/succeeded").to_string(),
                samples
                    .as_i64()
                    .map_or_else(|| "-".to_owned(), |samples| samples.to_string()),
                age(request.age(self.now)),
            ];
            if self.namespaces {
                cells.insert(0, request.namespace());
            }
            if wide {
                cells.push(format!("{}s", request.number("/spec/durationSeconds")));
                cells.push(request.number("/spec/samplesPerSecond").to_string());
                cells.push(match request.words("/status/profile/url") {
                    "" => "-".to_owned(),
                    url => url.to_owned(),
                });
            }
            table.row(cells);
        }
        Ok(table)
    }
}

pub fn names(objects: &[DynamicObject]) -> String {
    objects
        .iter()
        .map(|object| {
            format!(
                "profilerequest.phpprof.dev/{}\n",
                RequestView::of(object).name()
            )
        })
        .collect()
}

fn document(objects: &[DynamicObject], single: bool) -> Result<Value, serde_json::Error> {
    let items = objects.iter().map(plain).collect::<Result<Vec<_>, _>>()?;
    Ok(match <[Value; 1]>::try_from(items) {
        Ok([item]) if single => item,
        Ok([item]) => json!({"apiVersion": "v1", "kind": "List", "items": [item]}),
        Err(items) => json!({"apiVersion": "v1", "kind": "List", "items": items}),
    })
}

/// The object without the metadata that kubectl hides too.
pub fn plain(object: &DynamicObject) -> Result<Value, serde_json::Error> {
    let mut value = serde_json::to_value(object)?;
    if let Some(metadata) = value["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    Ok(value)
}

pub fn unwritable(error: serde_json::Error) -> Failure {
    Failure::new(
        Exit::Failed,
        format!("printing the API server's answer failed: {error}"),
        "try another form with --output",
    )
}
