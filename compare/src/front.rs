//! What is shown of the results that are kept: a chart and three rows for the front page, and a page with every budget.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use bench::peers::Peer;

use crate::report::{Report, between_marks, verdict_table};
use crate::row::{Row, Series, Subject};
use crate::verdict::is_rival;

/// The rows of the front page: one of each kind of load.
const FRONT: [&str; 3] = ["hit, 14 bytes", "hit over TLS 1.3, 14 bytes", "kv: GET, P=100"];
/// The row of the chart.
const CHART: &str = "hit, 14 bytes";

/// The results that a folder can have, and what they are of.
const RESULTS: [(&str, &str); 2] = [("latest", "larder serve"), ("kv", "larder kv")];

/// Writes all pages anew from the results in `folder`, as far as there are any.
///
/// # Errors
/// A file is not what a run writes, or can't be written.
pub(crate) fn write(folder: &Path, page: Option<&Path>) -> anyhow::Result<()> {
    let reports = read(folder)?;
    for ((name, title), report) in RESULTS.iter().zip(&reports) {
        let Some(report) = report else { continue };
        let text = format!("# Latest comparison of `{title}`\n\n{}", report.markdown());
        fs::write(folder.join(format!("{name}.md")), text)?;
    }
    fs::write(folder.join("budgets.md"), budgets(&reports))?;
    if let Some(row) = row(&reports, CHART) {
        fs::write(folder.join("hit.svg"), chart(row))?;
    }
    let Some(page) = page else { return Ok(()) };
    let text = fs::read_to_string(page).with_context(|| format!("can't read {}", page.display()))?;
    let text = between_marks(&text, &summary(&reports))
        .with_context(|| format!("{} has no lines to write between", page.display()))?;
    fs::write(page, text).with_context(|| format!("can't write {}", page.display()))
}

type Reports = [Option<Report>; RESULTS.len()];

/// Verdicts are made anew of what was measured, by the rules of today.
fn read(folder: &Path) -> anyhow::Result<Reports> {
    let [http, kv] = RESULTS.map(|(name, _)| {
        let file = folder.join(format!("{name}.json"));
        let Ok(text) = fs::read_to_string(&file) else { return Ok(None) };
        let report: Report =
            serde_json::from_str(&text).with_context(|| format!("{} is not a result", file.display()))?;
        anyhow::Ok(Some(Report::new(report.machine, report.effort, report.rows)))
    });
    Ok([http?, kv?])
}

fn row<'a>(reports: &'a Reports, title: &str) -> Option<&'a Row> {
    reports.iter().flatten().flat_map(|report| &report.rows).find(|row| row.title == title)
}

/// Chart, three rows, and how many budgets are met.
fn summary(reports: &Reports) -> String {
    let mut text = format!("![CPU time per request of a {CHART}](compare/results/hit.svg)\n\n");
    text.push_str("| | Larder | next best cache | |\n|---|---|---|---|\n");
    for row in FRONT.iter().filter_map(|title| row(reports, title)) {
        text.extend(front_row(row));
    }
    let verdicts = || reports.iter().flatten().flat_map(|report| &report.verdicts);
    let (all, met) = (verdicts().count(), verdicts().filter(|verdict| verdict.is_met).count());
    let on = reports.iter().flatten().next().map_or_else(String::new, |report| {
        format!(" on {}, {} cores", report.machine.processor, report.machine.cores)
    });
    let _infallible = write!(
        text,
        "\nMedians{on}, over loopback, client and server on one machine. Larder meets {met} of its {all} performance targets:\n\
         [all of them](compare/results/budgets.md).\n"
    );
    text
}

fn front_row(row: &Row) -> Option<String> {
    let own = row.own()?;
    let rivals = row.series.iter().filter(|series| is_cache(series.subject));
    let best = rivals.min_by(|a, b| median(a).total_cmp(&median(b)))?;
    let ratio = best.ratio_to(own, 0)?;
    let measure = row.measures.first()?;
    let cell = |series: &Series| format!("{:.2} {}", median(series), measure.unit);
    let title = row.title.trim_start_matches("kv: ").replace("P=100", "100 commands at a time");
    Some(format!(
        "| {title}: {} | {} | {}, {} | {ratio:.1} times |\n",
        measure.name.replace("core time", "CPU time"),
        cell(own),
        cell(best),
        best.subject.title()
    ))
}

/// A cache that is not Larder.
fn is_cache(subject: Subject) -> bool {
    is_rival(subject) || matches!(subject, Subject::Store(store) if store.is_peer())
}

fn median(series: &Series) -> f64 {
    series.figures.first().map_or(f64::INFINITY, |figure| figure.median)
}

/// Every budget with its verdict.
fn budgets(reports: &Reports) -> String {
    let mut text = BUDGETS_PREFACE.to_owned();
    for ((_, title), report) in RESULTS.iter().zip(reports) {
        let Some(report) = report else { continue };
        let machine = &report.machine;
        let _infallible = write!(
            text,
            "\n## `{title}`\n\n{}, commit {}, {}, {} cores.\n{}",
            machine.date,
            machine.commit,
            machine.processor,
            machine.cores,
            verdict_table(&report.verdicts)
        );
    }
    text
}

const BUDGETS_PREFACE: &str = "# Budgets\n\nWritten by `make compare` from [latest.json](latest.json) and [kv.json](kv.json); do not edit. A budget is a \
promise of the design: a ratio to another server measured in the same run, or an absolute limit. \
[How it is measured](../README.md).\n";

/// Horizontal bars, shortest first, in greys that can be read on a light and on a dark page.
fn chart(row: &Row) -> String {
    let is_shown = |series: &&Series| matches!(series.subject, Subject::Peer(peer) if peer.is_cache() || peer == Peer::Null);
    let mut bars: Vec<&Series> = row.series.iter().filter(is_shown).collect();
    bars.sort_by(|a, b| median(a).total_cmp(&median(b)));
    let longest = bars.last().map_or(1.0, |series| median(series));
    let height = TOP + bars.len() * STEP;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"720\" height=\"{height}\" viewBox=\"0 0 720 {height}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\" fill=\"#768390\">\n\
         <text x=\"8\" y=\"20\" font-size=\"14\" font-weight=\"600\">{}: CPU time per request in µs, shorter is better</text>\n",
        row.title
    );
    for (index, series) in bars.iter().enumerate() {
        text.push_str(&bar(TOP + index * STEP, series, longest));
    }
    text.push_str("</svg>\n");
    text
}

fn bar(top: usize, series: &Series, longest: f64) -> String {
    let width = median(series) / longest * BAR_WIDTH_MAX;
    let (colour, weight) = match series.subject {
        Subject::Peer(Peer::Larder) => ("#2f81f7", 600),
        Subject::Peer(Peer::Null) => ("#adbac7", 400),
        _ => ("#768390", 400),
    };
    let base = top + 15;
    format!(
        "<text x=\"170\" y=\"{base}\" text-anchor=\"end\" font-weight=\"{weight}\">{}</text>\
         <rect x=\"180\" y=\"{top}\" width=\"{width:.1}\" height=\"20\" fill=\"{colour}\"/>\
         <text x=\"{:.1}\" y=\"{base}\">{:.1}</text>\n",
        series.subject.title(),
        width + 186.0,
        median(series)
    )
}

const TOP: usize = 36;
const STEP: usize = 26;
const BAR_WIDTH_MAX: f64 = 480.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::What;

    fn measured() -> Row {
        let mut row = Row::new(What::Hit, CHART, &[("core time per request", "µs")]);
        for (peer, us) in
            [(Peer::Null, 5.0), (Peer::Larder, 8.0), (Peer::Varnish, 24.0), (Peer::Haproxy, 10.0)]
        {
            row.add(Subject::Peer(peer), vec![us], 0);
        }
        row
    }

    #[test]
    fn the_front_page_compares_with_the_next_best_cache() {
        let line =
            "| hit, 14 bytes: CPU time per request | 8.00 µs | 10.00 µs, HAProxy cache | 1.2 times |\n";
        assert_eq!(front_row(&measured()).as_deref(), Some(line));
    }

    #[test]
    fn bars_are_in_order() {
        let chart = chart(&measured());
        let places = ["null server", "Larder", "HAProxy cache", "Varnish"].map(|title| chart.find(title));
        assert!(places.is_sorted() && places[0].is_some(), "{chart}");
        assert!(chart.contains("width=\"480.0\""), "{chart}");
    }

    /// What is committed is what the results say.
    #[test]
    fn the_pages_are_those_of_the_results() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let folder = root.join("compare/results");
        let reports = read(&folder).expect("results");
        let file = |path: &Path| fs::read_to_string(path).expect("it is committed");
        assert_eq!(file(&folder.join("budgets.md")), budgets(&reports));
        assert_eq!(file(&folder.join("hit.svg")), chart(row(&reports, CHART).expect("a row")));
        let page = file(&root.join("README.md"));
        assert_eq!(between_marks(&page, &summary(&reports)).as_deref(), Some(page.as_str()));
    }
}
