//! Whether Larder keeps its budgets: ratios of medians of one run.

use serde::{Deserialize, Serialize};

use crate::measure::{Row, Series, Subject};
use crate::peers::Peer;
use crate::plan::{Budget, Reference};

/// A budget and what was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Verdict {
    pub(crate) budget: String,
    pub(crate) ratio: f64,
    pub(crate) limit: f64,
    pub(crate) is_met: bool,
}

/// The verdicts of a row; a budget whose reference didn't take part has none.
pub(crate) fn verdicts(row: &Row) -> Vec<Verdict> {
    row.what.budgets().into_iter().filter_map(|budget| verdict(row, budget)).collect()
}

fn verdict(row: &Row, budget: Budget) -> Option<Verdict> {
    let larder = of(row, Subject::Peer(Peer::Larder))?;
    let reference = match budget.reference {
        Reference::Peer(peer) => of(row, Subject::Peer(peer))?,
        Reference::PlainHit => of(row, Subject::PlainHit)?,
        Reference::BestPeer => best_peer(row)?,
    };
    let ratio = larder.core_us_per_request.median / reference.core_us_per_request.median;
    let name = reference.subject.title();
    Some(Verdict {
        budget: format!("{}: at most {} x {name}", row.title, budget.limit),
        ratio,
        limit: budget.limit,
        is_met: ratio <= budget.limit,
    })
}

fn of(row: &Row, subject: Subject) -> Option<&Series> {
    row.series.iter().find(|series| series.subject == subject)
}

fn best_peer(row: &Row) -> Option<&Series> {
    let is_rival =
        |subject: Subject| matches!(subject, Subject::Peer(peer) if peer.is_cache() && peer != Peer::Larder);
    let rivals = row.series.iter().filter(|series| is_rival(series.subject));
    rivals.min_by(|a, b| a.core_us_per_request.median.total_cmp(&b.core_us_per_request.median))
}

#[cfg(test)]
mod tests {
    use super::verdicts;
    use crate::measure::{Row, Series, Subject};
    use crate::peers::Peer;
    use crate::plan::What;
    use crate::statistics::Summary;

    fn row(what: What, medians: &[(Subject, f64)]) -> Row {
        let summary = |median| Summary { median, min: median, max: median };
        let series = medians.iter().map(|(subject, median)| Series {
            subject: *subject,
            core_us_per_request: summary(*median),
            requests_per_second: summary(1.0),
            body_bytes: 14,
            errors: 0,
            rounds_us: vec![*median],
        });
        Row { what, title: "row".to_owned(), series: series.collect() }
    }

    #[test]
    fn ratios_decide() {
        use Subject::{Peer as Of, PlainHit};
        let cases = [
            (What::Hit, vec![(Of(Peer::Larder), 8.0), (Of(Peer::Haproxy), 10.0)], vec![(0.8, true)]),
            (What::Hit, vec![(Of(Peer::Larder), 8.1), (Of(Peer::Haproxy), 10.0)], vec![(0.81, false)]),
            (What::Vary, vec![(Of(Peer::Larder), 9.0), (PlainHit, 10.0)], vec![(0.9, true)]),
            (
                What::Tls,
                vec![(Of(Peer::Larder), 9.5), (Of(Peer::Haproxy), 10.0), (Of(Peer::NginxLua), 20.0)],
                vec![(0.95, false)],
            ),
            (What::H2, vec![(Of(Peer::Larder), 9.5)], vec![]),
            (What::Miss, vec![(Of(Peer::NginxProxyCache), 9.5)], vec![]),
        ];
        for (what, medians, expected) in cases {
            let found = verdicts(&row(what, &medians));
            let found: Vec<(f64, bool)> = found
                .iter()
                .map(|verdict| ((verdict.ratio * 100.0).round() / 100.0, verdict.is_met))
                .collect();
            assert_eq!(found, expected, "{what:?} {medians:?}");
        }
    }
}
