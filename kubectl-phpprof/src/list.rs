//! Requests as tables, names, JSON and YAML: `list` and `get`.
//!
//! Invariant: JSON and YAML hold what the API server gave, field for field.

use jiff::Timestamp;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use crate::cli::ListForm;
use crate::duration::age;
use crate::request::Request;
use crate::table::Table;

/// How requests are listed.
#[derive(Clone, Copy, Debug)]
pub struct Listing {
    pub form: ListForm,
    pub namespaces: bool,
    pub width: Option<usize>,
    pub now: Timestamp,
}

impl Listing {
    /// `single`: one object and not a list of one.
    pub fn text(
        &self,
        objects: &[DynamicObject],
        single: bool,
    ) -> Result<String, serde_json::Error> {
        Ok(match self.form {
            ListForm::Table => self.table(objects).text(self.width),
            // Whoever asks for all of it gets all of it.
            ListForm::Wide => self.table(objects).text(None),
            ListForm::Name => names(objects),
            ListForm::Json => serde_json::to_string_pretty(&document(objects, single)?)? + "\n",
            ListForm::Yaml => yaml(&document(objects, single)?),
        })
    }

    /// The lines of these requests without their head, for `--watch`.
    pub fn rows(&self, objects: &[DynamicObject]) -> String {
        match self.form {
            ListForm::Name => names(objects),
            _ => self.table(objects).rows_only(self.width),
        }
    }

    fn table(&self, objects: &[DynamicObject]) -> Table {
        let wide = self.form == ListForm::Wide;
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
            let request = Request::of(object);
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
        table
    }
}

pub fn names(objects: &[DynamicObject]) -> String {
    objects
        .iter()
        .map(|object| {
            format!(
                "profilerequest.phpprof.dev/{}\n",
                Request::of(object).name()
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

/// Without the bookkeeping that kubectl hides too.
fn plain(object: &DynamicObject) -> Result<Value, serde_json::Error> {
    let mut value = serde_json::to_value(object)?;
    if let Some(metadata) = value["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    Ok(value)
}

pub fn yaml(value: &Value) -> String {
    // JSON is always YAML.
    serde_yaml::to_string(value).unwrap_or_default()
}
