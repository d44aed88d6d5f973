//! Choice of connections to close, by holder and activity.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::Holder;

/// Activity of a connection that may be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    Waiting,
    Busy,
}

/// Facts about a connection that determine whether it is chosen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) holder: Holder,
    pub(super) standing: Standing,
    /// Position among the connections of its worker that have the same standing, the oldest first.
    pub(super) rank: usize,
}

/// Maximum number of connections chosen in one scan.
pub(super) const CHOSEN_MAX: usize = 64;

/// Returns the connections to close, in this order. At most half of the candidates are chosen, because later
/// connections may be better choices than the remaining candidates.
pub(super) fn choose(candidates: &[Candidate], share_max: usize) -> Vec<usize> {
    let mut counts: HashMap<Holder, usize> = HashMap::new();
    candidates.iter().for_each(|candidate| *counts.entry(candidate.holder).or_default() += 1);
    let may_close = |candidate: &Candidate| match (candidate.standing, candidate.holder) {
        (Standing::Waiting, _) => true,
        (Standing::Busy, Holder::Client(_)) => counts[&candidate.holder] > share_max,
        (Standing::Busy, Holder::Proxy(_)) => false,
    };
    in_order(candidates, may_close, |candidate| Reverse(counts[&candidate.holder]))
}

/// Chooses among the waiting connections of one holder.
pub(super) fn choose_own(candidates: &[Candidate], holder: Holder) -> Vec<usize> {
    let may_close =
        |candidate: &Candidate| candidate.holder == holder && candidate.standing == Standing::Waiting;
    in_order(candidates, may_close, |_| ())
}

fn in_order<K: Ord>(
    candidates: &[Candidate],
    may_close: impl Fn(&Candidate) -> bool,
    first: impl Fn(&Candidate) -> K,
) -> Vec<usize> {
    let mut order: Vec<_> = (0..candidates.len()).filter(|index| may_close(&candidates[*index])).collect();
    order.sort_by_key(|index| {
        let candidate = &candidates[*index];
        (first(candidate), candidate.standing, candidate.rank)
    });
    order.truncate(order.len().div_ceil(2).min(CHOSEN_MAX));
    order
}
