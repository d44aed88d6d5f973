//! The report as one page that needs nothing else: no network, no fonts, no permission to load anything.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::draw::{self, Width};
use super::figures::{Figure, figures};
use super::text::{Column, amounts, columns, machine, troubles};
use crate::result::{Expectation, Report, Run, Verdict};

const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = include_str!("page/sort.js");

/// The HTML page of a report: what and where, expectations, a table of the runs, charts with values under the pointer,
/// details, and the report itself as JSON in the element `report`.
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
                // Even what slips through an escape can neither load nor send anything.
                meta http-equiv="Content-Security-Policy"
                    content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";
                title { (report.title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (heading(report))
                main {
                    (expectations(&report.expectations))
                    (runs(&report.runs))
                    (charts(&figures(report)))
                    (details(&report.runs))
                }
                script type="application/json" id="report" { (PreEscaped(embedded(report))) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    }
}

/// The JSON of the report, of which nothing can end the element that it stands in: `<` only stands in strings of JSON,
/// and there it has another spelling.
fn embedded(report: &Report) -> String {
    super::write(report).replace('<', "\\u003c")
}

fn heading(report: &Report) -> Markup {
    html! {
        header {
            h1 { (report.title) }
            @if !report.description.is_empty() { p { (report.description) } }
            p.facts {
                (date(report.started_at_unix_s)) " · " (report.larder)
                @if let Some(machine) = machine(&report.machine) { " · " (machine) }
            }
        }
    }
}

/// `2026-11-21 10:45 UTC`.
fn date(unix_s: u64) -> String {
    let (days, seconds) = (unix_s / 86_400, unix_s % 86_400);
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", seconds / 3600, seconds / 60 % 60)
}

/// Year, month and day of a number of days since 1970-01-01. Counts in years that begin in March, so that the leap day
/// is the last one.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

fn expectations(expectations: &[Expectation]) -> Markup {
    html! {
        @if !expectations.is_empty() {
            h2 { "Expectations" }
            div.scroll {
                table {
                    caption { "What was promised, what was seen, and whether it held" }
                    thead { tr { th scope="col" { "Expected" } th.words scope="col" { "Measured" } th scope="col" { "" } } }
                    tbody {
                        @for expectation in expectations {
                            tr {
                                th scope="row" { (expectation.what) }
                                td.words data-label="measured" { (expectation.measured) }
                                @match expectation.verdict() {
                                    Verdict::Holds => { td.holds { "✓ holds" } }
                                    Verdict::Fails => { td.fails { "✗ fails" } }
                                    Verdict::NotJudged => { td { "not judged" } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn runs(runs: &[Run]) -> Markup {
    let columns = columns(runs);
    html! {
        @if !runs.is_empty() {
            h2 { "Runs" }
            div.scroll {
                table {
                    caption { "One row for each run; a click on a heading sorts" }
                    thead {
                        tr {
                            th scope="col" { "run" }
                            @for column in &columns {
                                th scope="col" title=(column.meaning) { button type="button" { (column.heading) } }
                            }
                        }
                    }
                    tbody { @for (row, run) in runs.iter().enumerate() { (run_row(run, row, &columns)) } }
                }
            }
        }
    }
}

fn run_row(run: &Run, row: usize, columns: &[Column]) -> Markup {
    html! {
        tr {
            th scope="row" { (run.name) }
            @for (heading, cell) in columns.iter().map(|column| (column.heading, &column.cells[row])) {
                td data-label=(heading) data-value=[cell.value.filter(|value| value.is_finite())] { (cell.text) }
            }
        }
    }
}

fn charts(figures: &[Figure]) -> Markup {
    html! {
        @if !figures.is_empty() {
            h2 { "Charts" }
            @for figure in figures {
                figure id=(format!("chart-{}", figure.id)) {
                    div.wide { (chart(figure, Width::Wide)) }
                    // Where it is shown, the other one is not, and the other way round.
                    div.narrow { (chart(figure, Width::Narrow)) }
                }
            }
        }
    }
}

fn chart(figure: &Figure, width: Width) -> Markup {
    html! { (PreEscaped(draw::svg(&draw::scene(figure, width), &figure.description))) }
}

fn details(runs: &[Run]) -> Markup {
    html! {
        @if !runs.is_empty() {
            h2 { "Details" }
            div.scroll {
                table {
                    caption { "What was asked of whom, and what came back" }
                    thead {
                        tr {
                            th scope="col" { "run" }
                            th.words scope="col" { "target and load" }
                            th.words scope="col" { "amounts" }
                            th.words scope="col" { "trouble" }
                        }
                    }
                    tbody { @for run in runs { (details_row(run)) } }
                }
            }
        }
    }
}

fn details_row(run: &Run) -> Markup {
    html! {
        tr {
            th scope="row" { (run.name) }
            td.words data-label="target and load" { (run.target) br; (run.load) }
            td.words data-label="amounts" { (amounts(run)) }
            td.words data-label="trouble" { (troubles(run).unwrap_or_else(|| String::from("none"))) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{example, read};

    #[test]
    fn dates_are_those_of_the_calendar() {
        #[track_caller]
        fn check(unix_s: u64, expected: &str) {
            assert_eq!(date(unix_s), expected);
        }
        check(0, "1970-01-01 00:00 UTC");
        check(951_782_399, "2000-02-28 23:59 UTC");
        check(951_782_400, "2000-02-29 00:00 UTC");
        check(951_868_800, "2000-03-01 00:00 UTC");
        check(1_795_257_900, "2026-11-21 10:45 UTC");
        check(4_107_542_400, "2100-03-01 00:00 UTC");
    }

    const ATTACK: &str = "</script></title></style><img src=x onerror=alert(1)>\"'>&<!--";

    /// A report with the attack in every text that comes from users or servers.
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
        assert_eq!((tags("</script>"), tags("</style>")), (2, 1));
        // One of the page; the others belong to shapes.
        assert_eq!(tags("</title>"), tags("<title>"));
    }

    #[test]
    fn the_page_needs_nothing_else() {
        let page = html(&example::report());
        for loading in ["src=", "href=", "url(", "@import", "<link", "fetch("] {
            assert!(!page.contains(loading), "{loading}");
        }
    }

    #[test]
    fn a_program_finds_the_report_in_the_page() {
        for report in [example::report(), attacked()] {
            let page = html(&report);
            let (_, rest) = page.split_once("id=\"report\">").expect("the element is there");
            let (json, _) = rest.split_once("</script>").expect("the element ends");
            assert_eq!(read(json).expect("it is a report"), report);
        }
    }
}
