//! The chart of the README: CPU time per request of a hit, per server.

use bench::peers::Peer;

use crate::row::{Row, Series, Subject};

/// Title of the row in the chart.
const TITLE: &str = "hit, 14 bytes";

/// Returns the chart, or `None` if its row wasn't measured.
pub(crate) fn of(rows: &[Row]) -> Option<String> {
    rows.iter().find(|row| row.title == TITLE).map(chart)
}

fn median(series: &Series) -> f64 {
    series.figures.first().map_or(f64::INFINITY, |figure| figure.median)
}

/// Horizontal bars, shortest first.
fn chart(row: &Row) -> String {
    let is_shown = |series: &&Series| matches!(series.subject, Subject::Peer(peer) if peer.is_cache() || peer == Peer::Null);
    let mut shown: Vec<&Series> = row.series.iter().filter(is_shown).collect();
    shown.sort_by(|a, b| median(a).total_cmp(&median(b)));
    let bar = |series: &&Series| {
        (series.subject.title().to_owned(), median(series), format!("{:.1}", median(series)))
    };
    let title = format!("{}: CPU time per request in µs, shorter is better", row.title);
    bench::report::bars(&title, &shown.iter().map(bar).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::What;

    fn measured() -> Row {
        let mut row = Row::new(What::Hit, TITLE, &[("core time per request", "µs")]);
        for (peer, us) in
            [(Peer::Null, 5.0), (Peer::Larder, 8.0), (Peer::Varnish, 24.0), (Peer::Haproxy, 10.0)]
        {
            row.add(Subject::Peer(peer), vec![us], 0);
        }
        row
    }

    #[test]
    fn bars_are_in_order() {
        let chart = chart(&measured());
        let places = ["null server", "Larder", "HAProxy cache", "Varnish"].map(|title| chart.find(title));
        assert!(places.is_sorted() && places[0].is_some(), "{chart}");
    }
}
