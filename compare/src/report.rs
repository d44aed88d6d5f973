//! The result as JSON and as Markdown tables.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Effort;
use crate::machine::Machine;
use crate::plan::What;
use crate::row::{Measure, Measured, Row, Series};
use crate::statistics::Summary;
use crate::verdict::{Verdict, verdicts};

/// A whole run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Report {
    /// [`SCHEMA`].
    pub(crate) schema: String,
    pub(crate) machine: Machine,
    pub(crate) effort: Effort,
    pub(crate) rows: Vec<Row>,
    pub(crate) verdicts: Vec<Verdict>,
}

/// Grows when a field changes its meaning or goes away, not when one is added.
const SCHEMA: &str = "larder-compare/1";

impl Report {
    pub(crate) fn new(machine: Machine, effort: Effort, rows: Vec<Row>) -> Self {
        let verdicts = rows.iter().flat_map(verdicts).collect();
        Self { schema: SCHEMA.to_owned(), machine, effort, rows, verdicts }
    }

    /// With the rows that a file has beside, if they are of the same processor: a run in several parts. Those of another commit say so.
    pub(crate) fn with_rows_of(mut self, file: &Path) -> Self {
        let before = fs::read_to_string(file).ok().and_then(|text| serde_json::from_str::<Self>(&text).ok());
        let Some(before) = before.filter(|before| before.machine.processor == self.machine.processor) else {
            return self;
        };
        let Machine { date, commit, versions, .. } = before.machine;
        let measured = Measured { date, commit, effort: before.effort };
        let is_new = |row: &Row| self.rows.iter().all(|own| own.title != row.title);
        let kept = before.rows.into_iter().filter(is_new).map(|mut row| {
            let own = row.measured.get_or_insert_with(|| measured.clone());
            if own.commit == self.machine.commit && own.effort == self.effort {
                row.measured = None;
            }
            row
        });
        let kept: Vec<Row> = kept.collect();
        for (title, version) in versions {
            if !self.machine.versions.iter().any(|(known, _)| *known == title) {
                self.machine.versions.push((title, version));
            }
        }
        self.rows.extend(kept);
        self.rows.sort_by_key(|row| row.what);
        Self::new(self.machine, self.effort, self.rows)
    }

    /// # Errors
    /// Never in practice: every value has a form in JSON.
    pub(crate) fn json(&self) -> anyhow::Result<String> {
        Ok(format!("{}\n", serde_json::to_string_pretty(self)?))
    }

    pub(crate) fn markdown(&self) -> String {
        let tables: String = self.rows.iter().map(row_table).collect();
        format!("{}{tables}{}{}", self.headline(), verdict_table(&self.verdicts), self.versions())
    }

    /// What is left to say when all tables have been shown.
    pub(crate) fn conclusion(&self) -> String {
        format!("{}{}{}", self.headline(), verdict_table(&self.verdicts), self.versions())
    }

    fn headline(&self) -> String {
        let Machine { date, commit, processor, cores, kernel, system, .. } = &self.machine;
        let Effort { rounds, seconds_each } = self.effort;
        format!(
            "{date}, commit {commit}, {processor}, {cores} cores, {kernel}, {system}. Medians of {rounds} interleaved rounds of\n\
             {seconds_each} s, ± half the range. Core time is the time that the server's core was busy, per request.\n"
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

/// Around what is written anew in a page.
const BEGIN: &str = "<!-- compare:begin -->";
const END: &str = "<!-- compare:end -->";

/// `page` with `text` in the place of what stands between its marks; nothing when it has none.
pub(crate) fn between_marks(page: &str, text: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{text}\n{END}{after}"))
}

pub(crate) fn row_table(row: &Row) -> String {
    let mut text = format!("\n**{}**\n\n", row.title);
    let names = row.measures.iter().map(|measure| measure.name.clone());
    if let Some(Measured { date, commit, effort: Effort { rounds, seconds_each } }) = &row.measured {
        text.push_str(&format!("{date}, commit {commit}, {rounds} rounds of {seconds_each} s.\n\n"));
    }
    let who = if row.what == What::Generators { "generator" } else { "server" };
    let mut head = vec![who.to_owned()];
    head.extend(names);
    head.insert(2, "to Larder".to_owned());
    line(&mut text, &head);
    text.push_str(&format!("|{}\n", "---|".repeat(head.len())));
    for series in &row.series {
        line(&mut text, &cells(row, series));
    }
    text
}

fn cells(row: &Row, series: &Series) -> Vec<String> {
    let errors = if series.errors == 0 { String::new() } else { format!(" ({} errors)", series.errors) };
    let mut cells = vec![format!("{}{errors}", series.subject.title())];
    cells.extend(series.figures.iter().zip(&row.measures).map(|(figure, measure)| cell(figure, measure)));
    // Differences may be negative, and then a ratio says nothing.
    let is_ratio = |series: &Series| series.figures.first().is_some_and(|figure| figure.median > 0.0);
    let larder = row.own().filter(|larder| is_ratio(larder) && is_ratio(series));
    let ratio = larder.and_then(|larder| series.ratio_to(larder, 0));
    cells.insert(2, ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")));
    cells
}

/// `9.31 µs (± 2 %)`; a single round has no spread.
fn cell(figure: &Summary, measure: &Measure) -> String {
    let digits = if figure.median.abs() < 100.0 { 2 } else { 0 };
    let spread = figure.spread() * 100.0;
    let spread = if spread == 0.0 { String::new() } else { format!(" (± {spread:.0} %)") };
    let number = format!("{:.digits$} {}", figure.median, measure.unit);
    format!("{}{spread}", number.trim_end())
}

/// The budgets of the design, each met or missed.
pub(crate) fn verdict_table(verdicts: &[Verdict]) -> String {
    if verdicts.is_empty() {
        return String::new();
    }
    let mut text = "\n| budget | measured | limit | |\n|---|---|---|---|\n".to_owned();
    for Verdict { budget, measured, limit, is_met } in verdicts {
        let word = if *is_met { "met" } else { "**missed**" };
        line(&mut text, &[budget.clone(), format!("{measured:.2}"), limit.to_string(), word.to_owned()]);
    }
    text
}

fn line(text: &mut String, cells: &[String]) {
    // Writing to a String cannot fail.
    writeln!(text, "| {} |", cells.join(" | ")).ok();
}

#[cfg(test)]
mod tests {
    use bench::peers::Peer;

    use super::*;
    use crate::row::Subject;

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let page = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        let once = between_marks(&page, "new\n").expect("it has marks");
        assert_eq!(once, format!("a\n{BEGIN}\n\nnew\n\n{END}\nb\n"));
        assert_eq!(between_marks(&once, "new\n"), Some(once));
        assert_eq!(between_marks("no marks", "new"), None);
    }

    #[test]
    fn rows_of_another_run_stay_and_say_of_which() {
        let machine = |commit: &str| Machine {
            date: "today".into(),
            commit: commit.into(),
            processor: "one".into(),
            cores: 2,
            kernel: String::new(),
            system: String::new(),
            versions: vec![("Larder".into(), commit.into())],
        };
        let report = |commit: &str, title: &str| {
            let rows = vec![Row::new(What::Hit, title, &[("time", "µs")])];
            Report::new(machine(commit), Effort { rounds: 3, seconds_each: 1 }, rows)
        };
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("kv.json");
        let told = |commit: &str, title: &str| {
            let report = report(commit, title).with_rows_of(&file);
            fs::write(&file, report.json().expect("JSON")).expect("it can be written");
            let commit = |row: &Row| row.measured.as_ref().map(|measured| measured.commit.clone());
            report.rows.iter().map(|row| (row.title.clone(), commit(row))).collect::<Vec<_>>()
        };
        assert_eq!(told("a", "one"), [("one".to_owned(), None)]);
        assert_eq!(told("a", "two"), [("two".to_owned(), None), ("one".to_owned(), None)]);
        let of = |commit: &str| Some(commit.to_owned());
        assert_eq!(told("b", "two"), [("two".to_owned(), None), ("one".to_owned(), of("a"))]);
        assert_eq!(told("c", "three").iter().filter(|(_, commit)| commit.is_some()).count(), 2);
        let mut row = Row::new(What::Hit, "one", &[("time", "µs")]);
        let effort = Effort { rounds: 3, seconds_each: 1 };
        row.measured = Some(Measured { date: "today".into(), commit: "a".into(), effort });
        assert!(row_table(&row).contains("\n\ntoday, commit a, 3 rounds of 1 s.\n\n|"));
    }

    #[test]
    fn a_table_shows_ratios_and_verdicts() {
        let mut row = Row::new(What::Hit, "hit", &[("core time per request", "µs"), ("requests/s", "")]);
        for (us, rate) in [(8.0, 100_000.0), (10.0, 90_000.0)] {
            row.add(Subject::Peer(Peer::Larder), vec![us, rate], 0);
        }
        row.add(Subject::Peer(Peer::Haproxy), vec![18.0, 50_000.4], 3);
        let expected = "
**hit**

| server | core time per request | to Larder | requests/s |
|---|---|---|---|
| Larder | 9.00 µs (± 11 %) | 1.00 | 95000 (± 5 %) |
| HAProxy cache (3 errors) | 18.00 µs | 2.00 | 50000 |
";
        assert_eq!(row_table(&row), expected);
        let expected = "
| budget | measured | limit | |
|---|---|---|---|
| hit: core time per request at most 0.8 x HAProxy cache | 0.50 | 0.8 | met |
";
        assert_eq!(verdict_table(&verdicts(&row)), expected);
    }
}
