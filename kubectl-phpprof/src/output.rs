//! `-o` and `--sort-by`, in kubectl's own forms.
//!
//! It knows nothing about what is shown except that it is JSON.
//!
//! Invariant: the command line refuses an unknown form and names those that the verb has, in the
//! words of its help.

use std::cmp::Ordering;

use clap::ValueEnum;
use serde_json::Value;

use crate::failure::{Exit, Failure};
use crate::jsonpath::{JsonPathTemplate, Path};
use crate::table::Table;

/// The forms for completion.
pub const FORMS: [&str; 11] = [
    "text",
    "table",
    "wide",
    "json",
    "yaml",
    "name",
    "jsonpath=",
    "jsonpath-as-json=",
    "jsonpath-file=",
    "custom-columns=",
    "custom-columns-file=",
];

/// The forms of lists and tables that are not templates. Rows without a name have only those of
/// [`NAMELESS`].
pub const NAMED: &str = "table, wide, json, yaml, name";
pub const NAMELESS: &str = "table, wide, json, yaml";
pub const TEXT: &str = "text, json, yaml";
const TEMPLATES: &str = "jsonpath=TEMPLATE, jsonpath-as-json=TEMPLATE, jsonpath-file=FILE, custom-columns=HEAD:PATH,…, custom-columns-file=FILE";

/// The help of a flag with these forms.
pub fn help(forms: &str) -> String {
    format!("One of {forms}, {TEMPLATES}")
}

/// The form on the command line. Its template may be in a file.
#[derive(Clone, Debug, PartialEq)]
pub enum OutputFlag {
    Output(OutputForm),
    JsonPathFile(String),
    ColumnsFile(String),
}

#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListForm {
    #[default]
    Table,
    Wide,
    Json,
    Yaml,
    Name,
}

#[derive(Clone, Debug, PartialEq)]
pub enum OutputForm {
    Form(ListForm),
    JsonPath(JsonPathTemplate),
    Columns(Vec<CustomColumn>),
}

/// A head, and the path of its cells.
#[derive(Clone, Debug, PartialEq)]
pub struct CustomColumn {
    head: String,
    path: Path,
}

impl Default for OutputForm {
    fn default() -> Self {
        OutputForm::Form(ListForm::Table)
    }
}

impl Default for OutputFlag {
    fn default() -> Self {
        OutputFlag::Output(OutputForm::default())
    }
}

impl OutputFlag {
    /// A parser of the flag for these forms and for templates. It opens no file.
    pub fn parser(
        forms: &'static str,
    ) -> impl Fn(&str) -> Result<Self, String> + Clone + Send + Sync {
        |text| Self::parse(text, forms)
    }

    pub fn parse(text: &str, forms: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((form @ ("jsonpath-file" | "custom-columns-file"), "")) => {
                Err(format!("{text:?} names no file; use {form}=FILE"))
            }
            Some(("jsonpath-file", path)) => Ok(OutputFlag::JsonPathFile(path.to_owned())),
            Some(("custom-columns-file", path)) => Ok(OutputFlag::ColumnsFile(path.to_owned())),
            _ => OutputForm::parse(text, forms).map(OutputFlag::Output),
        }
    }

    /// The form with the template from its file.
    pub fn read(&self) -> Result<OutputForm, Failure> {
        match self {
            OutputFlag::Output(output) => Ok(output.clone()),
            OutputFlag::JsonPathFile(path) => of_file(path, |text| {
                JsonPathTemplate::parse(text).map(OutputForm::JsonPath)
            }),
            OutputFlag::ColumnsFile(path) => {
                of_file(path, |text| columns_of_lines(text).map(OutputForm::Columns))
            }
        }
    }
}

fn of_file(
    path: &str,
    parse: impl Fn(&str) -> Result<OutputForm, String>,
) -> Result<OutputForm, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure::of_file(path, &error))?;
    parse(&text).map_err(|refusal| {
        Failure::new(
            Exit::Usage,
            format!("the template in {path} is wrong: {refusal}"),
            format!("correct {path}"),
        )
    })
}

/// As in kubectl: a line with heads, and a line with paths. Further lines are ignored.
fn columns_of_lines(text: &str) -> Result<Vec<CustomColumn>, String> {
    let mut lines = text.lines();
    let mut words = || -> Vec<&str> {
        lines
            .next()
            .into_iter()
            .flat_map(str::split_whitespace)
            .collect()
    };
    let (heads, paths) = (words(), words());
    if heads.is_empty() || heads.len() != paths.len() {
        return Err(format!(
            "it has {} headings and {} paths; use a line of headings (NAME POD) and a line with the same number of paths (.metadata.name .spec.target.podName)",
            heads.len(),
            paths.len()
        ));
    }
    let column = |(head, path): (&str, &str)| {
        Ok(CustomColumn {
            head: head.to_owned(),
            path: Path::parse(path)?,
        })
    };
    heads.into_iter().zip(paths).map(column).collect()
}

impl OutputForm {
    fn parse(text: &str, forms: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some(("jsonpath", template)) => {
                JsonPathTemplate::parse(template).map(OutputForm::JsonPath)
            }
            Some(("jsonpath-as-json", template)) => JsonPathTemplate::parse(template)
                .map(|template| OutputForm::JsonPath(template.with_values_as_json())),
            Some(("custom-columns", columns)) => columns
                .split(',')
                .map(CustomColumn::parse)
                .collect::<Result<_, _>>()
                .map(OutputForm::Columns),
            // A dump has no table, but a text for people.
            _ if text == "text" && forms == TEXT => Ok(OutputForm::Form(ListForm::Table)),
            _ => forms
                .split(", ")
                .find(|form| *form == text)
                .and_then(|form| ListForm::from_str(form, false).ok())
                .map(OutputForm::Form)
                .ok_or_else(|| {
                    format!("{text:?} is not an output format; use {forms}, {TEMPLATES}")
                }),
        }
    }

    /// The document in a form for programs; `None` if the form is for people. `rows` points to the
    /// list that columns show.
    pub fn of_data(&self, document: impl FnOnce() -> Value, rows: &str) -> Option<String> {
        Some(match self {
            // Serialising a value cannot fail.
            OutputForm::Form(ListForm::Json) => {
                serde_json::to_string_pretty(&document()).unwrap_or_default() + "\n"
            }
            OutputForm::Form(ListForm::Yaml) => yaml(&document()),
            OutputForm::JsonPath(template) => template.text(&document()),
            OutputForm::Columns(columns) => {
                let items = match document().pointer(rows) {
                    Some(Value::Array(items)) => items.clone(),
                    other => other.cloned().into_iter().collect(),
                };
                columns_table(columns, &items).text(None)
            }
            OutputForm::Form(ListForm::Table | ListForm::Wide | ListForm::Name) => return None,
        })
    }

    /// Whether the form is a table with all columns.
    pub fn is_wide(&self) -> bool {
        *self == OutputForm::Form(ListForm::Wide)
    }

    /// Whether the form is a table for users. Only then are empty lists reported in words.
    pub fn is_table(&self) -> bool {
        matches!(self, OutputForm::Form(ListForm::Table | ListForm::Wide))
    }
}

impl CustomColumn {
    fn parse(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some((head, path)) if !head.is_empty() => Ok(CustomColumn {
                head: head.to_owned(),
                path: Path::parse(path)?,
            }),
            _ => Err(format!(
                "{text:?} is not a column; use HEAD:PATH, for instance NAME:.metadata.name"
            )),
        }
    }
}

pub fn yaml(value: &Value) -> String {
    // JSON is always YAML.
    serde_yaml::to_string(value).unwrap_or_default()
}

/// One row for each item.
pub fn columns_table(columns: &[CustomColumn], items: &[Value]) -> Table {
    let mut table = Table::plain(columns.iter().map(|column| column.head.clone()));
    for item in items {
        let cells = columns.iter().map(|column| {
            if column.path.values(item).is_empty() {
                "<none>".to_owned()
            } else {
                column.path.text(item)
            }
        });
        table.row(cells.collect());
    }
    table
}

/// Sorts by the value at a path, if there is one: numbers by size, others as text, missing values
/// first.
pub fn sort<T>(
    items: &mut Vec<T>,
    by: Option<&Path>,
    value: impl Fn(&T) -> Value,
) -> Result<(), Failure> {
    let Some(path) = by else { return Ok(()) };
    let key = |item: &T| path.values(&value(item)).first().map(|key| (*key).clone());
    let mut keyed: Vec<(Option<Value>, T)> =
        items.drain(..).map(|item| (key(&item), item)).collect();
    let is_unknown = !keyed.is_empty() && keyed.iter().all(|(key, _)| key.is_none());
    keyed.sort_by(|(one, _), (other, _)| order(one.as_ref(), other.as_ref()));
    items.extend(keyed.into_iter().map(|(_, item)| item));
    if is_unknown {
        return Err(Failure::new(
            Exit::Usage,
            "no listed object has the field of --sort-by",
            "to see the fields, use the same command line with -o yaml and without --sort-by",
        ));
    }
    Ok(())
}

fn order(one: Option<&Value>, other: Option<&Value>) -> Ordering {
    match (one, other) {
        (Some(one), Some(other)) => match (one.as_f64(), other.as_f64()) {
            (Some(one), Some(other)) => one.total_cmp(&other),
            _ => words(one).cmp(&words(other)),
        },
        (one, other) => one.is_some().cmp(&other.is_some()),
    }
}

fn words(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn items() -> Vec<Value> {
        vec![
            json!({"name": "b", "size": 9}),
            json!({"name": "a", "size": 10}),
            json!({"name": "c"}),
        ]
    }

    #[test]
    fn forms_are_those_of_kubectl() {
        assert_eq!(
            OutputForm::parse("wide", NAMED),
            Ok(OutputForm::Form(ListForm::Wide))
        );
        let Ok(OutputForm::Columns(columns)) =
            OutputForm::parse("custom-columns=NAME:.name,SIZE:{.size}", NAMED)
        else {
            panic!("columns");
        };
        assert_eq!(
            columns_table(&columns, &items()).text(None),
            "NAME   SIZE\nb      9\na      10\nc      <none>\n"
        );
        for wrong in [
            "go-template={{.name}}",
            "jsonpath-file",
            "jsonpath-file=",
            "custom-columns-file=",
            "go-template-file=x",
            "jsonpath",
            "Json",
            "custom-columns=NAME",
            "custom-columns=",
        ] {
            let refusal = OutputFlag::parse(wrong, NAMED).unwrap_err();
            assert!(refusal.contains("; use "), "{refusal}");
        }
    }

    #[test]
    fn a_verb_takes_the_forms_in_its_help() {
        for (form, forms, is_one) in [
            ("name", NAMED, true),
            ("name", NAMELESS, false),
            ("wide", NAMELESS, true),
            ("text", NAMELESS, false),
            ("text", TEXT, true),
            ("table", TEXT, false),
            ("yaml", TEXT, true),
        ] {
            let refusal = OutputFlag::parse(form, forms).err();
            assert_eq!(refusal.is_none(), is_one, "{form}: {refusal:?}");
            assert!(refusal.is_none_or(|it| it.contains(&format!("; use {forms}, jsonpath="))));
        }
    }

    #[test]
    fn data_is_printed_in_the_forms_for_programs() {
        let check = |form: &str, rows: &str, expected: Option<&str>| {
            let output = OutputForm::parse(form, NAMED).unwrap();
            let said = output.of_data(|| json!({"size": 2, "rows": items()}), rows);
            assert_eq!(said.as_deref(), expected, "{form}");
        };
        check("jsonpath={.rows[*].name}", "/rows", Some("b a c"));
        let columns = "custom-columns=NAME:.name";
        check(columns, "/rows", Some("NAME\nb\na\nc\n"));
        check("custom-columns=SIZE:.size", "", Some("SIZE\n2\n"));
        for form in ["table", "wide", "name"] {
            check(form, "/rows", None);
        }
    }

    #[test]
    fn columns_of_a_file_are_two_lines() {
        let columns =
            columns_of_lines("NAME   SIZE\n .name {.size}\nignored as in kubectl").unwrap();
        assert_eq!(
            columns_table(&columns, &items()).text(None),
            "NAME   SIZE\nb      9\na      10\nc      <none>\n"
        );
        for (wrong, part) in [
            ("", "0 headings and 0 paths"),
            ("NAME", "1 headings and 0 paths"),
            ("NAME SIZE\n.name", "2 headings and 1 paths"),
            ("\n\n", "0 headings and 0 paths"),
            ("NAME\n.name[", "not a supported JSONPath"),
        ] {
            let refusal = columns_of_lines(wrong).unwrap_err();
            assert!(refusal.contains(part), "{wrong:?}: {refusal}");
        }
    }

    #[track_caller]
    fn check(path: &str, expected: &str) {
        let mut items = items();
        let path = Path::parse(path).unwrap();
        let sorted = sort(&mut items, Some(&path), Value::clone);
        let names: String = items.iter().map(|item| words(&item["name"])).collect();
        assert_eq!(
            sorted.map(|()| names).map_err(|failure| failure.exit as u8),
            match expected {
                "" => Err(2),
                names => Ok(names.to_owned()),
            }
        );
    }

    #[test]
    fn numbers_sort_by_size_and_words_by_letters() {
        check(".name", "abc");
        check("{.size}", "cba");
        check(".nothing", "");
    }
}
