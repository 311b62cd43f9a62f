//! What `top` and `diff` print, and what `flame`, `diff` and `download` write.
//!
//! Invariant: names from a profile cannot move the terminal's cursor.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use phpprof_profile::in_use::is_in_use;
use phpprof_profile::proto::Label;
use phpprof_profile::{Amount, Profile, TopRow, View, ViewError, top, total, waiting};
use serde_json::{Value, json};

use crate::cli::TopSort;
use crate::compare::Compared;
use crate::failure::{Exit, Failure};
use crate::output::ListForm;
use crate::output::OutputForm;
use crate::table::{Table, printable};
use crate::view::wrong_view;

/// The profile with the label for what it waits for, if the arguments use this label.
pub fn with_waiting_label<'p>(
    profile: &'p Profile,
    view: &View,
    by: Option<&str>,
) -> Cow<'p, Profile> {
    let mut asked = view.labels.iter().map(|(key, _)| key.as_str()).chain(by);
    if asked.any(|key| key == waiting::LABEL) {
        Cow::Owned(waiting::labelled(profile))
    } else {
        Cow::Borrowed(profile)
    }
}

/// The table of a view, by function or by a label of the profile.
pub fn table_of(
    profile: &Profile,
    view: &View,
    sort: TopSort,
    by: Option<&str>,
) -> Result<TopTable, Failure> {
    let profile = with_waiting_label(profile, view, by);
    if let Some(key) = by {
        check_label(&profile, key)?;
    }
    TopTable::of(&profile, view, sort, by).map_err(wrong_view)
}

/// Refuses a label that no sample has, because its table would have one useless line.
fn check_label(profile: &Profile, key: &str) -> Result<(), Failure> {
    let labels = profile.sample.iter().flat_map(|sample| &sample.label);
    let mut known: BTreeSet<&str> = labels.map(|label| profile.string(label.key)).collect();
    // This label is calculated on demand, so it is allowed even if nothing waits.
    known.insert(waiting::LABEL);
    if known.contains(key) {
        return Ok(());
    }
    let known: Vec<String> = known.into_iter().map(printable).collect();
    Err(Failure::new(
        Exit::Usage,
        format!("no sample of the profile has the label {key:?}"),
        format!("choose one of these with --by: {}", known.join(", ")),
    ))
}

/// The functions of a profile as a table and as data.
pub struct TopTable {
    pub sample_type: String,
    pub unit: String,
    pub total: i64,
    pub rows: Vec<TopRow>,
    /// The label of the rows; `None` for functions.
    by: Option<String>,
    /// The frames are not functions, but what is in heaps, and who holds it.
    is_of_heaps: bool,
}

impl TopTable {
    pub fn of(
        profile: &Profile,
        view: &View,
        sort: TopSort,
        by: Option<&str>,
    ) -> Result<Self, ViewError> {
        let chosen = view.index(profile)?;
        let (name, unit) = profile.sample_types().nth(chosen).unwrap_or_default();
        let kept = view.filtered(profile);
        let mut rows = match by {
            None => top(&kept, name),
            Some(key) => by_label(&kept, chosen, key),
        };
        rows.sort_by(|a, b| {
            let by_size = match sort {
                TopSort::Flat => (b.flat, b.cum).cmp(&(a.flat, a.cum)),
                TopSort::Cum => (b.cum, b.flat).cmp(&(a.cum, a.flat)),
                TopSort::Name => std::cmp::Ordering::Equal,
            };
            by_size.then_with(|| (&a.name, &a.file).cmp(&(&b.name, &b.file)))
        });
        Ok(TopTable {
            sample_type: name.to_owned(),
            unit: unit.to_owned(),
            total: total(&kept, name),
            rows,
            by: by.map(str::to_owned),
            is_of_heaps: is_in_use(profile),
        })
    }

    pub fn text(&self, output: &OutputForm, count: usize, width: Option<usize>) -> String {
        if let Some(text) = output.of_data(|| self.data(count), "/rows") {
            return text;
        }
        let shown = self.rows.iter().take(count);
        match output {
            OutputForm::Form(ListForm::Name) => {
                shown.map(|row| printable(&row.name) + "\n").collect()
            }
            output => self.head(count) + &self.table(output.is_wide(), count).text(width),
        }
    }

    fn head(&self, count: usize) -> String {
        let amount = Amount::of(&self.unit, self.total);
        format!(
            "total {}: {}; {} of {} {}\n",
            self.sample_type,
            amount.text(self.total),
            count.min(self.rows.len()),
            self.rows.len(),
            match &self.by {
                None if self.is_of_heaps => "classes and holders".to_owned(),
                None => "functions".to_owned(),
                Some(key) => format!("values of {}", printable(key)),
            }
        )
    }

    fn table(&self, is_wide: bool, count: usize) -> Table {
        let functions = self.by.is_none();
        let mut heads = vec![">SELF", ">SELF%", ">?SUM%"];
        if functions {
            heads.extend([">TOTAL", ">TOTAL%", name_head(self.is_of_heaps)]);
        } else {
            heads.push("~VALUE");
        }
        if is_wide && functions {
            heads.push("<FILE");
        }
        let mut table = Table::new(&heads);
        let mut sum = 0i64;
        for row in self.rows.iter().take(count) {
            sum = sum.saturating_add(row.flat);
            let mut cells = vec![
                self.amount(row.flat),
                self.percent(row.flat),
                self.percent(sum),
            ];
            if functions {
                cells.extend([self.amount(row.cum), self.percent(row.cum)]);
            }
            cells.push(row.name.clone());
            if is_wide && functions {
                cells.push(row.file.clone());
            }
            table.row(cells);
        }
        table
    }

    fn data(&self, count: usize) -> Value {
        let rows = self.rows.iter().take(count).map(|row| match self.by {
            None => {
                json!({"function": row.name, "file": row.file, "self": row.flat, "total": row.cum})
            }
            Some(_) => json!({"value": row.name, "self": row.flat}),
        });
        json!({
            "sampleType": self.sample_type, "unit": self.unit, "total": self.total,
            "by": self.by.as_deref().unwrap_or("function"), "rows": rows.collect::<Vec<_>>(),
        })
    }

    fn amount(&self, value: i64) -> String {
        match value {
            0 => "0".to_owned(),
            value => Amount::of(&self.unit, value).text(value),
        }
    }

    fn percent(&self, value: i64) -> String {
        percent(share(value, self.total))
    }
}

/// The head of the column of names.
fn name_head(is_of_heaps: bool) -> &'static str {
    if is_of_heaps {
        "<CLASS OR HOLDER"
    } else {
        "<FUNCTION"
    }
}

/// The value of a label for users: a number without its unit.
pub fn label_text<'p>(profile: &'p Profile, label: &Label) -> Cow<'p, str> {
    match profile.string(label.str) {
        "" => Cow::Owned(label.num.to_string()),
        text => Cow::Borrowed(text),
    }
}

/// Sums by the values of one label. Samples without it are `-`.
fn by_label(profile: &Profile, chosen: usize, key: &str) -> Vec<TopRow> {
    let mut sums: BTreeMap<String, i64> = BTreeMap::new();
    for sample in &profile.sample {
        let label = sample
            .label
            .iter()
            .find(|label| profile.string(label.key) == key);
        let value = label.map_or_else(
            || "-".to_owned(),
            |label| label_text(profile, label).into_owned(),
        );
        let sum = sums.entry(value).or_default();
        *sum = sum.saturating_add(sample.value.get(chosen).copied().unwrap_or(0));
    }
    let rows = sums.into_iter().map(|(name, sum)| TopRow {
        name,
        file: String::new(),
        flat: sum,
        cum: sum,
    });
    rows.collect()
}

pub fn diff_text(
    compared: &Compared,
    output: &OutputForm,
    count: usize,
    width: Option<usize>,
) -> String {
    let diff = &compared.diff;
    if let Some(text) = output.of_data(|| diff_data(compared, count), "/rows") {
        return text;
    }
    if *output == OutputForm::Form(ListForm::Name) {
        let shown = diff.changes.iter().take(count);
        return shown.map(|change| printable(&change.name) + "\n").collect();
    }
    if compared.is_of_heaps() {
        return growth_text(compared, output.is_wide(), count, width);
    }
    let amount = diff.amount();
    let basis = if compared.is_by_samples() {
        ", by samples alone"
    } else {
        ""
    };
    let what = match compared.requests {
        None => format!(
            "shares of each profile's total, in percent, and their difference in points (±: by chance{basis})"
        ),
        Some((before, after)) => format!(
            "{before} and {after} requests; time per request, in percent of the time per request before (±: by chance{basis})"
        ),
    };
    let mut text = format!(
        "{}: {} before, {} after; {what}\n",
        diff.sample_type,
        amount.text(diff.total_before),
        amount.text(compared.total_after)
    );
    let mut heads = vec![
        ">SELF",
        ">±",
        ">BEFORE",
        ">AFTER",
        ">TOTAL",
        ">BEFORE",
        ">AFTER",
        "<FUNCTION",
    ];
    if output.is_wide() {
        heads.push("<FILE");
    }
    let mut table = Table::new(&heads);
    for change in diff.changes.iter().take(count) {
        let mut cells = vec![
            points(diff.flat_points(change)),
            percent(compared.noise(change)),
            percent(diff.share_before(change.flat_before)),
            percent(diff.share_after(change.flat_after)),
            points(diff.cum_points(change)),
            percent(diff.share_before(change.cum_before)),
            percent(diff.share_after(change.cum_after)),
            change.name.clone(),
        ];
        if output.is_wide() {
            cells.push(change.file.clone());
        }
        table.row(cells);
    }
    text.push_str(&table.text(width));
    text
}

/// What is in heaps, by how much it grew. There is no chance in it: everything was counted.
fn growth_text(compared: &Compared, is_wide: bool, count: usize, width: Option<usize>) -> String {
    let diff = &compared.diff;
    let amount = |value: i64| Amount::of(&diff.unit, value).text(value);
    let signed = |value: i64| match value {
        0 => "0".to_owned(),
        1.. => format!("+{}", amount(value)),
        _ => amount(value),
    };
    let mut heads = vec![
        ">SELF",
        ">BEFORE",
        ">AFTER",
        ">TOTAL",
        ">?BEFORE",
        ">?AFTER",
        name_head(true),
    ];
    if is_wide {
        heads.push("<FILE");
    }
    let mut table = Table::new(&heads);
    for change in diff.changes.iter().take(count) {
        let mut cells = vec![
            signed(change.flat_after.saturating_sub(change.flat_before)),
            amount(change.flat_before),
            amount(change.flat_after),
            signed(change.cum_after.saturating_sub(change.cum_before)),
            amount(change.cum_before),
            amount(change.cum_after),
            change.name.clone(),
        ];
        if is_wide {
            cells.push(change.file.clone());
        }
        table.row(cells);
    }
    let head = format!(
        "{}: {} before, {} after; growth of what there is (self), and of what is reached through it on a shortest path (total)\n",
        diff.sample_type,
        amount(diff.total_before),
        amount(compared.total_after)
    );
    head + &table.text(width)
}

fn diff_data(compared: &Compared, count: usize) -> Value {
    let diff = &compared.diff;
    let rows = diff.changes.iter().take(count).map(|change| {
        json!({
            "function": change.name, "file": change.file,
            "self": {"before": change.flat_before, "after": change.flat_after, "points": rounded(diff.flat_points(change)), "noisePoints": rounded(compared.noise(change))},
            "total": {"before": change.cum_before, "after": change.cum_after},
        })
    });
    let mut data = json!({
        "sampleType": diff.sample_type, "unit": diff.unit,
        "noiseBasis": compared.noise_basis(),
        "total": {"before": diff.total_before, "after": compared.total_after}, "rows": rows.collect::<Vec<_>>(),
        "unlike": compared.likeness.unlike, "unchecked": compared.likeness.unchecked,
    });
    if let Some((before, after)) = compared.requests {
        data["requests"] = json!({"before": before, "after": after});
    }
    data
}

fn share(value: i64, total: i64) -> f64 {
    if total == 0 {
        0.0
    } else {
        100.0 * value as f64 / total as f64
    }
}

fn percent(share: f64) -> String {
    if share == 0.0 {
        "0".to_owned()
    } else {
        format!("{share:.2}")
    }
}

/// Rounded to hundredths.
fn rounded(points: f64) -> f64 {
    (points * 100.0).round() / 100.0
}

fn points(points: f64) -> String {
    if points.abs() < 0.005 {
        "0".to_owned()
    } else {
        format!("{points:+.2}")
    }
}
