//! The chart of the front page.

use bench::peers::Peer;

use crate::row::{Row, Series, Subject};

/// The row of the chart.
const TITLE: &str = "hit, 14 bytes";

/// None where the row was not measured.
pub(crate) fn of(rows: &[Row]) -> Option<String> {
    rows.iter().find(|row| row.title == TITLE).map(chart)
}

fn median(series: &Series) -> f64 {
    series.figures.first().map_or(f64::INFINITY, |figure| figure.median)
}

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
        assert!(chart.contains("width=\"480.0\""), "{chart}");
    }
}
