//! The report as one self-contained page: no network access, no fonts, no permission to load anything.

use std::time::{Duration, UNIX_EPOCH};

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::charts::charts;
use super::text::{Column, amounts, columns, machine, parts, troubles};
use crate::result::{Expectation, Report, Run, Verdict};

const STYLE: &str = include_str!("page/style.css");

/// The HTML page of a report: machine and load, expectations, a table of the runs, charts, and details.
#[must_use]
pub fn html(report: &Report) -> String {
    page(report).into_string()
}

fn page(report: &Report) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                // Even markup that slips through the escaping can neither load nor send anything.
                meta http-equiv="Content-Security-Policy"
                    content="default-src 'none'; style-src 'unsafe-inline'";
                title { (report.title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (heading(report))
                main {
                    (expectations(&report.expectations))
                    (runs(&report.runs))
                    @for chart in charts(report) { figure { (PreEscaped(chart)) } }
                    (details(&report.runs))
                }
            }
        }
    }
}

fn heading(report: &Report) -> Markup {
    // The last second that the date format can express.
    let started_at_s = report.started_at_unix_s.min(253_402_300_799);
    let started_at = UNIX_EPOCH + Duration::from_secs(started_at_s);
    html! {
        header {
            h1 { (report.title) }
            @if !report.description.is_empty() { p { (report.description) } }
            p.facts {
                (httpdate::fmt_http_date(started_at)) " · " (report.larder)
                @if let Some(machine) = machine(&report.machine) { " · " (machine) }
            }
        }
    }
}

fn expectations(expectations: &[Expectation]) -> Markup {
    let head =
        html! { th scope="col" { "Expected" } th.words scope="col" { "Measured" } th scope="col" { "" } };
    let rows = html! {
        @for expectation in expectations {
            tr {
                th scope="row" { (expectation.what) }
                td.words { (expectation.measured) }
                @match expectation.verdict() {
                    Verdict::Holds => { td.holds { "✓ holds" } }
                    Verdict::Fails => { td.fails { "✗ fails" } }
                    Verdict::NotJudged => { td { "not judged" } }
                }
            }
        }
    };
    let caption = "What was promised, what was seen, and whether it held";
    table("Expectations", caption, expectations.len(), &head, &rows)
}

/// A table. Empty if there are no rows.
fn table(title: &str, caption: &str, count: usize, head: &Markup, rows: &Markup) -> Markup {
    html! {
        @if count > 0 {
            h2 { (title) }
            div.scroll {
                table {
                    caption { (caption) }
                    thead { tr { (head) } }
                    tbody { (rows) }
                }
            }
        }
    }
}

fn runs(runs: &[Run]) -> Markup {
    let columns = columns(runs);
    let head = html! {
        th scope="col" { "run" }
        @for column in &columns {
            th scope="col" title=(column.meaning) { (column.heading) }
        }
    };
    let rows = html! { @for (row, run) in runs.iter().enumerate() { (run_row(run, row, &columns)) } };
    table("Runs", "One row for each run", runs.len(), &head, &rows)
}

fn run_row(run: &Run, row: usize, columns: &[Column]) -> Markup {
    html! {
        tr {
            th scope="row" { (run.name) }
            @for column in columns { td { (column.cells[row]) } }
        }
    }
}

fn details(runs: &[Run]) -> Markup {
    let head = html! {
        th scope="col" { "run" }
        @for heading in ["target and load", "amounts", "trouble"] { th.words scope="col" { (heading) } }
    };
    let rows = html! { @for run in runs { (details_row(run)) } };
    table("Details", "What was asked of whom, and what came back", runs.len(), &head, &rows)
}

fn details_row(run: &Run) -> Markup {
    html! {
        tr {
            th scope="row" { (run.name) }
            td.words { (run.target) br; (run.load) }
            td.words { (amounts(run)) @if let Some(parts) = parts(run) { br; (parts) } }
            td.words { (troubles(run).unwrap_or_else(|| String::from("none"))) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example;

    #[test]
    fn any_date_can_be_told() {
        let told = |started_at_unix_s| html(&Report { started_at_unix_s, ..example::empty() });
        assert!(told(1_795_257_900).contains("Sat, 21 Nov 2026 10:45:00 GMT"));
        assert!(told(u64::MAX).contains("Fri, 31 Dec 9999 23:59:59 GMT"));
    }

    const ATTACK: &str = "</script></title></style><img src=x onerror=alert(1)>\"'>&<!--";

    /// A report with an injection in every text that comes from users or servers.
    fn attacked() -> Report {
        let mut report = example::report();
        let chart = &mut report.charts[0];
        let in_chart = [&mut chart.title, &mut chart.x.label, &mut chart.y.label, &mut chart.series[0].name];
        let expectation = &mut report.expectations[0];
        let run = &mut report.runs[0];
        let in_run =
            [&mut run.name, &mut run.target, &mut run.load, &mut run.outcomes[0].name, &mut run.urls[0].url];
        let others = [
            &mut report.title,
            &mut report.description,
            &mut report.larder,
            &mut report.machine.cpu,
            &mut expectation.what,
            &mut expectation.measured,
        ];
        in_chart.into_iter().chain(in_run).chain(others).for_each(|text| ATTACK.clone_into(text));
        report
    }

    #[test]
    fn no_text_gets_out_of_its_place() {
        let page = html(&attacked());
        assert!(!page.contains("<img") && !page.contains("<!--"));
        let tags = |tag: &str| page.matches(tag).count();
        assert_eq!((tags("</script>"), tags("</style>"), tags("</title>")), (0, 1, 1));
    }

    #[test]
    fn the_page_needs_nothing_else() {
        let page = html(&example::report());
        for loading in ["src=", "href=", "url(", "@import", "<link", "fetch("] {
            assert!(!page.contains(loading), "{loading}");
        }
    }
}
