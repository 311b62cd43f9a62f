//! Checks the chart's dashboards, as it renders them, against Grafana's schema
//! (`kinds/dashboard/dashboard_kind.cue` in its repository, and the types of `@grafana/schema`
//! 13.2.3), and the link to them in each request's status.
//!
//! Invariant: an unknown field is an error, and so is a missing field that the schema requires.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use super::template;

const METRICS: &str = include_str!("../../../docs/reference/metrics.md");
/// The schema versions of Grafana 9 to 13.
const SCHEMA_VERSIONS: std::ops::RangeInclusive<u16> = 36..=42;
const COLUMNS: u32 = 24;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[expect(dead_code, reason = "a field may be there only for its type")]
struct Dashboard {
    uid: String,
    title: String,
    tags: Vec<String>,
    schema_version: u16,
    refresh: String,
    time: Span,
    templating: Listed<Variable>,
    annotations: Listed<Annotation>,
    links: Vec<Link>,
    panels: Vec<Panel>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[expect(dead_code, reason = "a field may be there only for its type")]
struct Span {
    from: String,
    to: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed<T> {
    list: Vec<T>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[expect(dead_code, reason = "a field may be there only for its type")]
struct Variable {
    name: String,
    r#type: String,
    query: String,
    label: String,
}

#[derive(Deserialize, PartialEq, Debug)]
#[serde(deny_unknown_fields)]
struct Source {
    r#type: String,
    uid: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[expect(dead_code, reason = "a field may be there only for its type")]
struct Annotation {
    name: String,
    datasource: Source,
    enable: bool,
    hide: bool,
    icon_color: String,
    target: Marks,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Marks {
    r#type: String,
    tags: Vec<String>,
    limit: u32,
    match_any: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[expect(dead_code, reason = "a field may be there only for its type")]
struct Link {
    title: String,
    r#type: String,
    tags: Vec<String>,
    icon: String,
    tooltip: String,
    url: String,
    as_dropdown: bool,
    target_blank: bool,
    include_vars: bool,
    keep_time: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[expect(dead_code, reason = "a field may be there only for its type")]
struct Panel {
    id: u32,
    r#type: String,
    title: String,
    datasource: Source,
    grid_pos: GridPlace,
    field_config: Fields,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GridPlace {
    x: u32,
    y: u32,
    w: u32,
    h: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[expect(dead_code, reason = "a field may be there only for its type")]
struct Fields {
    defaults: Defaults,
    overrides: [(); 0],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[expect(dead_code, reason = "a field may be there only for its type")]
struct Defaults {
    unit: String,
    min: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[expect(dead_code, reason = "a field may be there only for its type")]
struct Target {
    ref_id: String,
    datasource: Source,
    expr: String,
    legend_format: String,
}

/// The chart with dashboards and a Grafana.
fn rendered() -> Result<String> {
    let (accepted, text) = template(&[
        "metrics.dashboards.enabled=true",
        "grafana.url=https://grafana.example.org/",
    ])?;
    ensure!(accepted, "{text}");
    Ok(text)
}

fn dashboards(rendered: &str) -> Result<Vec<Dashboard>> {
    let files = rendered
        .lines()
        .filter_map(|line| line.split_once(".json: "));
    let read = |(_, text): (&str, &str)| -> Result<Dashboard> {
        let text: String = serde_json::from_str(text)?;
        serde_json::from_str(&text).with_context(|| text)
    };
    files.map(read).collect()
}

/// Whether all of them are different.
fn are_distinct<T: Ord>(all: impl IntoIterator<Item = T>) -> bool {
    let mut seen = BTreeSet::new();
    all.into_iter().all(|one| seen.insert(one))
}

/// The metrics in a query that the reference does not have.
fn unknown(query: &str) -> Vec<&str> {
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = query.split(|letter| !is_of_name(letter));
    let metrics = words.filter(|word| word.starts_with("phpprof_") || word.starts_with("process_"));
    let is_known = |name: &str| {
        let of_histogram = name.strip_suffix("_bucket").unwrap_or(name);
        METRICS.contains(&format!("| `{of_histogram}` |"))
    };
    metrics.filter(|name| !is_known(name)).collect()
}

fn check_panel(panel: &Panel) -> Result<()> {
    let title = &panel.title;
    ensure!(panel.id > 0 && panel.r#type == "timeseries", "{title}");
    let GridPlace { x, w, h, .. } = panel.grid_pos;
    ensure!(w > 0 && h > 0 && x + w <= COLUMNS, "{title}: its place");
    let ids = panel.targets.iter().map(|target| &target.ref_id);
    ensure!(
        !panel.targets.is_empty() && are_distinct(ids),
        "{title}: refIds"
    );
    for target in &panel.targets {
        let chosen = Source {
            r#type: "prometheus".to_owned(),
            uid: "${datasource}".to_owned(),
        };
        ensure!(
            [&panel.datasource, &target.datasource] == [&chosen; 2],
            "{title}: its data source"
        );
        let unknown = unknown(&target.expr);
        ensure!(
            unknown.is_empty(),
            "{title}: no metric is called {unknown:?}"
        );
    }
    Ok(())
}

#[test]
fn each_dashboard_is_valid_and_asks_existing_metrics() -> Result<()> {
    let all = dashboards(&rendered()?)?;
    ensure!(all.len() == 3 && are_distinct(all.iter().map(|it| &it.uid)));
    for dashboard in &all {
        let title = &dashboard.title;
        ensure!((8..=40).contains(&dashboard.uid.len()), "{title}: its uid");
        ensure!(
            SCHEMA_VERSIONS.contains(&dashboard.schema_version),
            "{title}"
        );
        let [variable] = &dashboard.templating.list[..] else {
            anyhow::bail!("{title}: its variables");
        };
        let shown = [&variable.name, &variable.r#type, &variable.query];
        ensure!(
            shown == ["datasource", "datasource", "prometheus"],
            "{title}"
        );
        ensure!(are_distinct(dashboard.panels.iter().map(|panel| panel.id)));
        let places = dashboard.panels.iter().map(|panel| &panel.grid_pos);
        ensure!(
            are_distinct(places.map(|place| (place.x, place.y))),
            "{title}"
        );
        dashboard.panels.iter().try_for_each(check_panel)?;
    }
    Ok(())
}

#[test]
fn dashboards_link_and_show_profile_times() -> Result<()> {
    for dashboard in dashboards(&rendered()?)? {
        let tag = ["phpprof".to_owned()];
        let [link] = &dashboard.links[..] else {
            anyhow::bail!("{}: its links", dashboard.title);
        };
        ensure!(dashboard.tags == tag && link.tags == tag && link.r#type == "dashboards");
        ensure!(link.keep_time && link.include_vars);
        let [marks] = &dashboard.annotations.list[..] else {
            anyhow::bail!("{}: its annotations", dashboard.title);
        };
        let grafana = [&marks.datasource.r#type, &marks.datasource.uid];
        ensure!(grafana == ["grafana", "-- Grafana --"] && marks.enable && !marks.hide);
        let target = &marks.target;
        ensure!(target.r#type == "tags" && target.tags == tag);
        ensure!(target.limit > 0 && !target.match_any);
    }
    Ok(())
}

#[test]
fn a_request_links_to_an_existing_dashboard() -> Result<()> {
    let text = rendered()?;
    let link = text.split_once("--link=Dashboards=").context("no link")?.1;
    let url = link.split('"').next().context("no URL")?;
    let query = "?orgId=1&from={from-900000}&to={to}";
    let path = url.strip_suffix(query).context("its query")?;
    let uid = path.strip_prefix("https://grafana.example.org/d/");
    let all = dashboards(&text)?;
    ensure!(
        all.iter().any(|dashboard| Some(&*dashboard.uid) == uid),
        "{url}"
    );
    for alone in ["metrics.dashboards.enabled=true", "grafana.url=https://g"] {
        ensure!(!template(&[alone])?.1.contains("--link="), "{alone}");
    }
    Ok(())
}
