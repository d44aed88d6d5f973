//! The result as Markdown tables.

use bench::report::markdown;

use crate::Effort;
use crate::machine::Machine;
use crate::row::{Measure, Row, Series};
use crate::statistics::Summary;
use crate::verdict::{Verdict, verdicts};

/// The result of a whole run.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) effort: Effort,
    pub(crate) rows: Vec<Row>,
    pub(crate) verdicts: Vec<Verdict>,
}

impl Report {
    pub(crate) fn new(machine: Machine, effort: Effort, rows: Vec<Row>) -> Self {
        let verdicts = rows.iter().flat_map(verdicts).collect();
        Self { machine, effort, rows, verdicts }
    }

    /// The Markdown page with the heading `title`.
    pub(crate) fn markdown(&self, title: &str) -> String {
        let tables: String = self.rows.iter().map(row_table).collect();
        format!("# Latest comparison of `{title}`\n\n{}{tables}{}", self.headline(), self.end())
    }

    /// The summary printed after all tables.
    pub(crate) fn conclusion(&self) -> String {
        format!("{}{}", self.headline(), self.end())
    }

    fn end(&self) -> String {
        format!("{}{}", verdict_table(&self.verdicts), self.versions())
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
        let rows = self.machine.versions.iter().map(|(title, version)| vec![title.clone(), version.clone()]);
        let table = markdown(["server", "version"].map(str::to_owned), rows);
        format!("\n## Versions\n\n{table}\n")
    }
}

pub(crate) fn row_table(row: &Row) -> String {
    let names = row.measures.iter().map(|measure| measure.name.clone());
    let mut head: Vec<String> = ["server".to_owned()].into_iter().chain(names).collect();
    head.insert(2, "to Larder".to_owned());
    let table = markdown(head, row.series.iter().map(|series| cells(row, series)));
    format!("\n**{}**\n\n{table}\n", row.title)
}

fn cells(row: &Row, series: &Series) -> Vec<String> {
    let errors = if series.errors == 0 { String::new() } else { format!(" ({} errors)", series.errors) };
    let mut cells = vec![format!("{}{errors}", series.subject.title())];
    cells.extend(series.figures.iter().zip(&row.measures).map(|(figure, measure)| cell(figure, measure)));
    // Differences may be negative, which makes a ratio meaningless.
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

/// Table of the design's budgets, each met or missed.
fn verdict_table(verdicts: &[Verdict]) -> String {
    if verdicts.is_empty() {
        return String::new();
    }
    let row = |Verdict { budget, measured, limit, is_met }: &Verdict| {
        let word = if *is_met { "met" } else { "**missed**" };
        vec![budget.clone(), format!("{measured:.2}"), limit.to_string(), word.to_owned()]
    };
    let head = ["budget", "measured", "limit", ""].map(str::to_owned);
    format!("\n## Budgets\n\n{}\n", markdown(head, verdicts.iter().map(row)))
}

#[cfg(test)]
mod tests {
    use bench::peers::Peer;

    use super::*;
    use crate::plan::What;
    use crate::row::Subject;

    #[test]
    fn a_table_shows_ratios_and_verdicts() {
        let mut row = Row::new(What::Hit, "hit", &[("core time per request", "µs"), ("requests/s", "")]);
        for (us, rate) in [(8.0, 100_000.0), (10.0, 90_000.0)] {
            row.add(Subject::Peer(Peer::Larder), vec![us, rate], 0);
        }
        row.add(Subject::Peer(Peer::Haproxy), vec![18.0, 50_000.4], 3);
        let expected = "
**hit**

| server                   | core time per request | to Larder |    requests/s |
|--------------------------|-----------------------|-----------|---------------|
| Larder                   |      9.00 µs (± 11 %) |      1.00 | 95000 (± 5 %) |
| HAProxy cache (3 errors) |              18.00 µs |      2.00 |         50000 |
";
        assert_eq!(row_table(&row), expected);
        let told = verdict_table(&verdicts(&row));
        let budget = "| hit: core time per request at most 0.8 x HAProxy cache |     0.50 |   0.8 | met |";
        assert!(told.starts_with("\n## Budgets\n") && told.contains(budget), "{told}");
    }
}
