//! JSONPath as in kubectl: paths (`.metadata.name`, `{.items[0]}`) and templates (`{range
//! .items[*]}{.metadata.name}{"\n"}{end}`).
//!
//! A path becomes one of RFC 9535, which jsonpath-rust reads: kubectl needs no `$`, allows `-` in
//! names, and escapes a dot in a name with `\`.
//!
//! Invariant: an unsupported path is refused before any call to the cluster; a missing field prints
//! nothing.

use jsonpath_rust::parser::model::JpQuery;
use jsonpath_rust::parser::parse_json_path;
use jsonpath_rust::query::js_path_process;
use serde::Serialize;
use serde_json::Value;

/// The supported syntax, for the message about any other.
pub const SUPPORTED: &str = "{.items[*].metadata.name}, {.metadata.labels.phpprof\\.dev/schedule}, {.items[0]}, {.items[?(@.spec.durationSeconds>30)].metadata.name}, \
     {range .items[*]}{.metadata.name}{\"\\n\"}{end} and text between braces are supported";

/// One path.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    query: JpQuery,
    /// Whether it begins with `$`, which means the whole document, even within a range.
    of_root: bool,
}

/// Text and paths in the order in which they are printed.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPathTemplate {
    parts: Vec<TemplatePart>,
    /// Whether each path is printed as a JSON array of its values.
    as_json: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum TemplatePart {
    Text(String),
    Path(Path),
    Range(Path, Vec<TemplatePart>),
}

impl Path {
    /// Parses a path, with or without braces.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bare = text.trim();
        let bare = bare
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'))
            .unwrap_or(bare)
            .trim();
        let wrong = || format!("{text:?} is not a supported JSONPath; {SUPPORTED}");
        if bare.is_empty() {
            return Err(wrong());
        }
        let query = rfc(bare).and_then(|path| parse_json_path(&path).ok());
        Ok(Path {
            query: query.ok_or_else(wrong)?,
            of_root: bare.starts_with('$'),
        })
    }

    /// The values at the path, in order.
    pub fn values<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        let found = js_path_process(&self.query, value).unwrap_or_default();
        found.into_iter().map(|found| found.val).collect()
    }

    /// The values as text, with spaces between them.
    pub fn text(&self, value: &Value) -> String {
        let values = self.values(value).into_iter().map(printed);
        values.collect::<Vec<_>>().join(" ")
    }
}

impl JsonPathTemplate {
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut rest = text;
        let parts = parts(&mut rest, false)?;
        let is_a_path = |part: &TemplatePart| !matches!(part, TemplatePart::Text(_));
        if !parts.iter().any(is_a_path) {
            return Err(format!("{text:?} has no path in braces; {SUPPORTED}"));
        }
        Ok(JsonPathTemplate {
            parts,
            as_json: false,
        })
    }

    /// As `jsonpath-as-json` in kubectl.
    pub fn with_values_as_json(self) -> Self {
        JsonPathTemplate {
            as_json: true,
            ..self
        }
    }

    pub fn text(&self, value: &Value) -> String {
        let mut text = String::new();
        self.write(&self.parts, value, value, &mut text);
        text
    }

    fn write(&self, parts: &[TemplatePart], root: &Value, value: &Value, text: &mut String) {
        let of = |path: &Path| if path.of_root { root } else { value };
        for part in parts {
            match part {
                TemplatePart::Text(words) if self.as_json => {
                    text.push_str(&array(&[&Value::from(words.as_str())]));
                }
                TemplatePart::Text(words) => text.push_str(words),
                TemplatePart::Path(path) if self.as_json => {
                    text.push_str(&array(&path.values(of(path))))
                }
                TemplatePart::Path(path) => text.push_str(&path.text(of(path))),
                TemplatePart::Range(path, inner) => {
                    for item in path.values(of(path)) {
                        self.write(inner, root, item, text);
                    }
                }
            }
        }
    }
}

/// A JSON array, indented by four spaces and with a final newline, as in kubectl.
fn array(values: &[&Value]) -> String {
    let mut bytes = Vec::new();
    let form = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut writer = serde_json::Serializer::with_formatter(&mut bytes, form);
    // Values from JSON can always be written as JSON.
    let written = values.serialize(&mut writer).map(|()| bytes);
    String::from_utf8(written.unwrap_or_default()).unwrap_or_default() + "\n"
}

/// The parts up to the end of the text, or to the `{end}` of a range.
fn parts(rest: &mut &str, in_range: bool) -> Result<Vec<TemplatePart>, String> {
    let mut parts = Vec::new();
    loop {
        let Some((text, after)) = rest.split_once('{') else {
            if in_range {
                return Err(format!("a {{range}} has no {{end}}; {SUPPORTED}"));
            }
            if !rest.is_empty() {
                parts.push(TemplatePart::Text((*rest).to_owned()));
            }
            return Ok(parts);
        };
        if !text.is_empty() {
            parts.push(TemplatePart::Text(text.to_owned()));
        }
        let end =
            closing(after).ok_or_else(|| format!("{after:?} has no closing brace; {SUPPORTED}"))?;
        let (inner, behind) = after.split_at(end);
        *rest = behind.strip_prefix('}').unwrap_or(behind);
        let inner = inner.trim();
        if inner == "end" && in_range {
            return Ok(parts);
        }
        parts.push(match inner.strip_prefix("range ") {
            Some(path) => {
                let path = Path::parse(path)?;
                TemplatePart::Range(path, self::parts(rest, true)?)
            }
            None if inner.starts_with(['"', '\'']) => TemplatePart::Text(unquoted(inner)?),
            None => TemplatePart::Path(Path::parse(inner)?),
        });
    }
}

/// The position of the brace that closes the one before this text. Braces in quotes do not count.
fn closing(text: &str) -> Option<usize> {
    let mut quote = None;
    let mut escaped = false;
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            _ if escaped => escaped = false,
            (_, '\\') => escaped = true,
            (Some(open), letter) if letter == open => quote = None,
            (None, '"' | '\'') => quote = Some(letter),
            (None, '}') => return Some(at),
            _ => {}
        }
    }
    None
}

/// `"a\n"` as a text with its newline.
fn unquoted(text: &str) -> Result<String, String> {
    let inner = text.get(1..text.len().saturating_sub(1));
    let inner = inner.filter(|_| text.len() > 1 && text.chars().next() == text.chars().last());
    let inner = inner.ok_or_else(|| format!("{text:?} has no closing quote; {SUPPORTED}"))?;
    let mut words = String::new();
    let mut letters = inner.chars();
    while let Some(letter) = letters.next() {
        words.push(match letter {
            '\\' => match letters.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('r') => '\r',
                Some(other) => other,
                None => '\\',
            },
            letter => letter,
        });
    }
    Ok(words)
}

/// The path in the syntax of RFC 9535.
fn rfc(text: &str) -> Option<String> {
    let mut path = "$".to_owned();
    let mut rest = text.strip_prefix(['$', '@']).unwrap_or(text);
    let mut first = true;
    while !rest.is_empty() {
        if rest.starts_with('[') {
            let end = closing_bracket(rest)?;
            let (bracket, behind) = rest.split_at(end);
            path.push_str(bracket);
            rest = behind;
        } else if let Some(behind) = rest.strip_prefix("..") {
            path.push_str("..");
            rest = step(&mut path, behind)?;
        } else if let Some(behind) = rest.strip_prefix('.') {
            rest = step(&mut path, behind)?;
        } else if first {
            rest = step(&mut path, rest)?;
        } else {
            return None;
        }
        first = false;
    }
    Some(path)
}

/// Writes the name at the beginning of the text as a bracket, and returns the rest of the text.
fn step<'t>(path: &mut String, text: &'t str) -> Option<&'t str> {
    if text.starts_with('[') {
        return Some(text);
    }
    let mut name = String::new();
    let mut letters = text.char_indices();
    let mut end = text.len();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => name.push(letters.next()?.1),
            '.' | '[' => {
                end = at;
                break;
            }
            letter if letter.is_whitespace() || "{}()\"'|,]".contains(letter) => return None,
            letter => name.push(letter),
        }
    }
    match name.as_str() {
        "" => return None,
        "*" => path.push_str("[*]"),
        name => path.push_str(&format!("[{}]", Value::from(name))),
    }
    text.get(end..)
}

/// The end of the bracket that the text begins with.
fn closing_bracket(text: &str) -> Option<usize> {
    let (mut quote, mut depth) = (None, 0);
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(letter),
            (None, '[') => depth += 1,
            (None, ']') if depth == 1 => return Some(at + 1),
            (None, ']') => depth -= 1,
            (None, _) => {}
        }
    }
    None
}

/// A string without quotes, nothing for null, and JSON for other values.
fn printed(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(template: &str, expected: &str) {
        let list = json!({"kind": "List", "items": [
            {"metadata": {"name": "a", "labels": {"phpprof.dev/schedule": "web"}}, "spec": {"durationSeconds": 30},
             "status": {"conditions": [{"type": "Failed", "status": "False"}, {"type": "Complete", "status": "True"}]}},
            {"metadata": {"name": "b", "annotations": {"is-new": "yes"}}, "spec": {"durationSeconds": 60}},
        ]});
        let text = JsonPathTemplate::parse(template).map(|template| template.text(&list));
        assert_eq!(text.as_deref(), Ok(expected), "{template}");
    }

    #[test]
    fn templates_are_those_of_kubectl() {
        check("{.items[*].metadata.name}", "a b");
        check("{$.items[*].metadata.name}", "a b");
        check("{.items..name}", "a b");
        check("{items[0].metadata.name}", "a");
        check("{.items[-1:].metadata.name}", "b");
        check("{.items[*]['metadata']['name']}", "a b");
        check(r"{.items[0].metadata.labels.phpprof\.dev/schedule}", "web");
        check("{.items[*].metadata.annotations.is-new}", "yes");
        check(
            r#"{range .items[*]}{.metadata.name}{"\t"}{@.spec.durationSeconds}{"\n"}{end}"#,
            "a\t30\nb\t60\n",
        );
        check(
            "{range .items[*]}{$.kind}/{.metadata.name} {end}",
            "List/a List/b ",
        );
        check("{.items[?(@.spec.durationSeconds>30)].metadata.name}", "b");
        check(
            r#"{.items[0].status.conditions[?(@.type=="Complete")].status}"#,
            "True",
        );
        check("name: {.items[0].metadata.name}!", "name: a!");
        check("{.items[0].spec}", r#"{"durationSeconds":30}"#);
        check("{.nothing.here}", "");
    }

    /// kubectl 1.32 prints the same for a ConfigMap with this data.
    #[test]
    fn values_are_printed_as_json_on_request() {
        let map = json!({"data": {"x": "1", "y": "2"}});
        for (template, expected) in [
            (
                "{.data}",
                "[\n    {\n        \"x\": \"1\",\n        \"y\": \"2\"\n    }\n]\n",
            ),
            (
                r#"{.data.*}{"\n"}"#,
                "[\n    \"1\",\n    \"2\"\n]\n[\n    \"\\n\"\n]\n",
            ),
            ("{.nothing}", "[]\n"),
            (
                "{range .data.*}{@}{end} b",
                "[\n    \"1\"\n]\n[\n    \"2\"\n]\n[\n    \" b\"\n]\n",
            ),
        ] {
            let text =
                JsonPathTemplate::parse(template).map(|it| it.with_values_as_json().text(&map));
            assert_eq!(text.as_deref(), Ok(expected), "{template}");
        }
    }

    #[test]
    fn a_wrong_jsonpath_is_refused_with_known_forms() {
        for wrong in [
            "",
            ".items",
            "{.items",
            "{}",
            "{range .items[*]}{.metadata.name}",
            "{end}x{",
            "{.items[}",
            "{if .items}",
            "{.a..}",
            "{\"a}",
            "{{ .metadata.name }}",
        ] {
            let refusal = JsonPathTemplate::parse(wrong).unwrap_err();
            assert!(refusal.ends_with(SUPPORTED), "{wrong:?}: {refusal}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_ends_the_program(text in ".{0,40}") {
            if let Ok(template) = JsonPathTemplate::parse(&text) {
                template.text(&json!({"items": [1, "a", null]}));
            }
        }
    }
}
