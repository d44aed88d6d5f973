//! The result as JSON and as a Markdown table.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::measure::Subject;
use crate::measure::{Effort, Row, Series};
use crate::peers::Peer;
use crate::verdict::{Verdict, verdicts};

/// A whole run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Raised when a field changes its meaning.
    pub(crate) schema: u32,
    pub(crate) machine: Machine,
    pub(crate) effort: Effort,
    pub(crate) rows: Vec<Row>,
    pub(crate) verdicts: Vec<Verdict>,
}

pub(crate) const SCHEMA: u32 = 1;

impl Report {
    pub(crate) fn new(machine: Machine, effort: Effort, rows: Vec<Row>) -> Self {
        let verdicts = rows.iter().flat_map(verdicts).collect();
        Self { schema: SCHEMA, machine, effort, rows, verdicts }
    }

    /// # Errors
    /// Never in practice: every value has a form in JSON.
    pub(crate) fn json(&self) -> anyhow::Result<String> {
        Ok(format!("{}\n", serde_json::to_string_pretty(self)?))
    }

    pub(crate) fn markdown(&self) -> String {
        let mut text = self.headline();
        self.rows.iter().for_each(|row| text.push_str(&row_table(row)));
        text.push_str(&verdict_table(&self.verdicts));
        text.push_str(&self.versions());
        text
    }

    fn headline(&self) -> String {
        let Machine { date, commit, processor, cores, kernel, system, .. } = &self.machine;
        let Effort { rounds, seconds_each } = self.effort;
        format!(
            "{date}, commit {commit}, {processor}, {cores} cores, {kernel}, {system}. Medians of {rounds} interleaved rounds of \
             {seconds_each} s, in brackets half the way from the lowest to the highest; core time is what core 0 was not idle, per request.\n"
        )
    }

    fn versions(&self) -> String {
        let mut text = "\n| server | version |\n|---|---|\n".to_owned();
        for (title, version) in &self.machine.versions {
            line(&mut text, &[title.clone(), version.replace('|', "\\|")]);
        }
        text
    }
}

fn row_table(row: &Row) -> String {
    let mut text = format!("\n**{}**\n\n", row.title);
    let is_large = row.series.iter().any(|series| series.body_bytes >= LARGE_BYTES);
    text.push_str("| server | core time per request | to Larder | requests/s |");
    text.push_str(if is_large {
        " bytes per core second |\n|---|---|---|---|---|\n"
    } else {
        "\n|---|---|---|---|\n"
    });
    let larder = row.series.iter().find(|series| series.subject == Subject::Peer(Peer::Larder));
    let larder_us = larder.map(|series| series.core_us_per_request.median);
    for series in &row.series {
        let mut cells = cells(series, larder_us);
        if is_large {
            cells.push(bytes_per_second(series));
        }
        line(&mut text, &cells);
    }
    text
}

/// From here on the bytes count, not the request.
const LARGE_BYTES: u64 = 10 << 10;

fn cells(series: &Series, larder_us: Option<f64>) -> Vec<String> {
    let core = series.core_us_per_request;
    let ratio = larder_us.map_or_else(|| "-".to_owned(), |larder| format!("{:.2}", core.median / larder));
    let errors = if series.errors == 0 { String::new() } else { format!(", {} errors", series.errors) };
    vec![
        series.subject.title(),
        format!("{:.2} µs (± {:.0} %)", core.median, core.spread() * 100.0),
        ratio,
        format!("{:.0}{errors}", series.requests_per_second.median),
    ]
}

fn bytes_per_second(series: &Series) -> String {
    let mib_per_second =
        series.body_bytes as f64 / f64::from(1 << 20) / (series.core_us_per_request.median / 1e6);
    format!("{mib_per_second:.0} MiB/s")
}

/// The budgets of the design, each met or missed.
pub(crate) fn verdict_table(verdicts: &[Verdict]) -> String {
    if verdicts.is_empty() {
        return String::new();
    }
    let mut text = "\n| budget | measured | limit | |\n|---|---|---|---|\n".to_owned();
    for verdict in verdicts {
        let word = if verdict.is_met { "met" } else { "**missed**" };
        line(
            &mut text,
            &[
                verdict.budget.clone(),
                format!("{:.2}", verdict.ratio),
                verdict.limit.to_string(),
                word.to_owned(),
            ],
        );
    }
    text
}

fn line(text: &mut String, cells: &[String]) {
    // Writing to a String cannot fail.
    writeln!(text, "| {} |", cells.join(" | ")).ok();
}
