//! The report as one self-contained page: no network access, no fonts, no permission to load anything.

use std::time::{Duration, UNIX_EPOCH};

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::charts::charts;
use super::text;
use crate::result::Report;

const STYLE: &str = "
    :root { color-scheme: light dark; }
    body { margin: 2rem auto; padding: 0 1rem; max-width: 76rem; font: 16px/1.5 system-ui, sans-serif; }
    pre { font-size: .85rem; }
    pre, figure { margin: 1.5rem 0; overflow-x: auto; }
    svg { max-width: 100%; height: auto; }
    @media print { figure { break-inside: avoid; } }
";

/// The HTML page of a report: its text with the tables, and its charts.
#[must_use]
pub fn html(report: &Report) -> String {
    page(report).into_string()
}

fn page(report: &Report) -> Markup {
    // The last second that the date format can express.
    let started_at_s = report.started_at_unix_s.min(253_402_300_799);
    let started_at = UNIX_EPOCH + Duration::from_secs(started_at_s);
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
                header { (httpdate::fmt_http_date(started_at)) }
                pre { (text(report)) }
                @for chart in charts(report) { figure { (PreEscaped(chart)) } }
            }
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
