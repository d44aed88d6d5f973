//! Verdicts on Larder's budgets. An absolute budget is compared with the median of one run, and a budget relative to another
//! server with the median of the ratios of the rounds.

use bench::peers::Peer;

use crate::plan::{Limit, Reference};
use crate::row::{Row, Series, Subject};

/// A budget and its measurement.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) budget: String,
    /// A ratio if the budget refers to another server, otherwise a value in the budget's unit.
    pub(crate) measured: f64,
    pub(crate) limit: f64,
    pub(crate) is_met: bool,
}

/// The verdicts of a row. A budget whose reference didn't take part has no verdict.
pub(crate) fn verdicts(row: &Row) -> Vec<Verdict> {
    row.what.budgets(&row.title).into_iter().filter_map(|budget| verdict(row, budget)).collect()
}

fn verdict(row: &Row, limit: Limit) -> Option<Verdict> {
    let (own, measure) = (row.own()?, row.measures.first()?);
    let (measured, limit, text) = match limit {
        Limit::AtMost(limit) => {
            (own.figures.first()?.median, limit, format!("at most {limit} {}", measure.unit))
        }
        Limit::Times(limit, reference) => {
            let reference = find(row, reference)?;
            (own.ratio_to(reference, 0)?, limit, format!("at most {limit} x {}", reference.subject.title()))
        }
    };
    let budget = format!("{}: {} {}", row.title, measure.name, text.trim_end());
    Some(Verdict { budget, measured, limit, is_met: measured <= limit })
}

fn find(row: &Row, reference: Reference) -> Option<&Series> {
    match reference {
        Reference::Of(subject) => row.of(subject),
        Reference::BestPeer => {
            let rivals = row.series.iter().filter(|series| is_rival(series.subject));
            let known = rivals.filter_map(|series| Some((series.figures.first()?.median, series)));
            known.min_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, series)| series)
        }
    }
}

fn is_rival(subject: Subject) -> bool {
    matches!(subject, Subject::Peer(peer) if peer.is_cache() && !matches!(peer, Peer::Larder | Peer::LarderTier))
}

#[cfg(test)]
mod tests {
    use bench::peers::Peer::{Haproxy, Larder, NginxLua, NginxProxyCache};

    use super::*;
    use crate::plan::What;

    fn found(what: What, title: &str, medians: &[(Subject, f64)]) -> Vec<(f64, bool)> {
        let mut row = Row::new(what, title, &[("figure", "unit")]);
        medians.iter().for_each(|(subject, median)| row.add(*subject, vec![*median], 0));
        let round = |verdict: Verdict| ((verdict.measured * 100.0).round() / 100.0, verdict.is_met);
        verdicts(&row).into_iter().map(round).collect()
    }

    #[test]
    fn ratios_and_limits_decide() {
        use Subject::{Peer as Of, PlainHit};
        let cases = [
            (What::Hit, "", vec![(Of(Larder), 8.0), (Of(Haproxy), 10.0)], vec![(0.8, true)]),
            (What::Hit, "", vec![(Of(Larder), 8.1), (Of(Haproxy), 10.0)], vec![(0.81, false)]),
            (What::Vary, "", vec![(Of(Larder), 9.0), (PlainHit, 10.0)], vec![(0.9, true)]),
            (
                What::Tls,
                "",
                vec![(Of(Larder), 9.5), (Of(Haproxy), 10.0), (Of(NginxLua), 20.0)],
                vec![(0.95, false)],
            ),
            (What::H2, "", vec![(Of(Larder), 9.5)], vec![]),
            (What::Miss, "", vec![(Of(NginxProxyCache), 9.5)], vec![]),
            (What::Memory, "HTTP/1.1", vec![(Of(Larder), 8.5)], vec![(8.5, false)]),
            (What::Memory, "HTTP/2", vec![(Of(Larder), 8.5)], vec![(8.5, true)]),
            (What::Memory, "TLS", vec![(Of(Larder), 8.5)], vec![]),
        ];
        for (what, title, medians, expected) in cases {
            assert_eq!(found(what, title, &medians), expected, "{what:?} {medians:?}");
        }
    }
}
