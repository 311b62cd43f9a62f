//! The records of what promises were worth: `docs/measurements/promises.csv`. The last row of a
//! promise is its value.
//!
//! Invariant: what is read is a table: each row has a field for each column.

use std::io;

/// What a record says of its promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromiseVerdict {
    /// The value is within the limit.
    Met,
    /// It is not.
    NotMet,
}

/// A row of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasurementRow {
    /// The day, as YYYY-MM-DD.
    pub date: String,
    /// The group of promises in the table.
    pub area: String,
    /// The promise in the table, without links.
    pub promise: String,
    /// Whether the value keeps it.
    pub verdict: PromiseVerdict,
    /// What was measured, for people; empty if the test records no number.
    pub value: String,
}

impl MeasurementRow {
    /// The last field of the promise in the table.
    pub fn state(&self) -> String {
        let verdict = match self.verdict {
            PromiseVerdict::Met => "*met*",
            PromiseVerdict::NotMet => "*not met*",
        };
        match self.value.as_str() {
            "" => verdict.to_owned(),
            value => format!("{verdict}: {value}"),
        }
    }
}

const COLUMNS: [&str; 8] = [
    "date", "commit", "machine", "area", "promise", "verdict", "value", "note",
];

/// The rows of a file of records.
pub fn records(csv: &str) -> io::Result<Vec<MeasurementRow>> {
    let mut lines = csv.lines();
    let columns = fields(lines.next().unwrap_or_default())?;
    if columns != COLUMNS {
        return Err(wrong(&format!("the columns are {columns:?}")));
    }
    lines.map(record).collect()
}

fn record(line: &str) -> io::Result<MeasurementRow> {
    let fields: [String; COLUMNS.len()] = fields(line)?
        .try_into()
        .map_err(|_| wrong(&format!("not {} fields: {line}", COLUMNS.len())))?;
    let [
        date,
        _commit,
        _machine,
        area,
        promise,
        verdict,
        value,
        _note,
    ] = fields;
    let verdict = match verdict.as_str() {
        "met" => PromiseVerdict::Met,
        "not met" => PromiseVerdict::NotMet,
        _ => return Err(wrong(&format!("neither met nor not met: {line}"))),
    };
    Ok(MeasurementRow {
        date,
        area,
        promise,
        verdict,
        value,
    })
}

/// The fields of a line (RFC 4180). A field has no line break.
fn fields(line: &str) -> io::Result<Vec<String>> {
    let (mut found, mut field, mut is_quoted) = (Vec::new(), String::new(), false);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if is_quoted && chars.peek() == Some(&'"') => {
                chars.next();
                field.push('"');
            }
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => found.push(std::mem::take(&mut field)),
            c => field.push(c),
        }
    }
    found.push(field);
    if is_quoted {
        return Err(wrong(&format!("a quote does not end: {line}")));
    }
    Ok(found)
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "date,commit,machine,area,promise,verdict,value,note\n";

    #[test]
    fn records_have_quoted_commas_and_quotes() {
        let line = "2026-11-28,,m,Stacks,\"a, \"\"b\"\"\",not met,\"1,000\",\n";
        let found = records(&format!("{HEAD}{line}")).unwrap();
        assert_eq!(found[0].promise, "a, \"b\"");
        assert_eq!(found[0].state(), "*not met*: 1,000");
    }

    #[test]
    fn records_refuses_another_table() {
        for line in [
            "d,,m,a,p,met,v",
            "d,,m,a,p,perhaps,v,n",
            "d,,m,a,\"p,met,v,n",
        ] {
            assert!(records(&format!("{HEAD}{line}\n")).is_err(), "{line}");
        }
        assert!(records("date,commit\n").is_err());
    }
}
