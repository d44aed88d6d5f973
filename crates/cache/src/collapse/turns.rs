//! Decides which waiter forwards next if the running forward fails or is late.
//!
//! If no connection produced an answer, no request is to blame: all waiters share the failure once it has happened twice. A status (5xx), a
//! timeout or a broken connection may be caused by a single request: fields outside the key reach the origin, and any client can send them.
//! Such a failure goes only to the request that caused it, and the others forward in turn.
//!
//! | result of one request's forward | `hand_over` | `share` |
//! |---|---|---|
//! | an answer arrives | all get it | same |
//! | no connection produces an answer | the next waiter forwards; the second time, all get the failure | all get the failure |
//! | it fails otherwise | the failure is for that request alone: others forward, up to `AT_ONCE_MAX` concurrently | all get the failure |
//! | it is late (`wait_max`) | the next waiter forwards alongside, and the others wait for both | same |
//! | the body is cut short, or stalls for `wait_max` | counts as another failure for waiters that have received none of it | nothing |
//!
//! A waiter that gets no turn within `wait_max` after the first failure gives up: it gets a stale response, or 503. However many requests
//! wait, a failing origin therefore gets at most `AT_ONCE_MAX` concurrent requests per key from each instance, and an origin that accepts
//! no connections gets two in total.

use std::collections::HashMap;
use std::hash::Hash;

use crate::settings::LeaderFailure;

/// Maximum number of concurrent forwards for one key. With only one, a few clients whose requests fail slowly could keep all others
/// waiting; each additional one is another request for a failing origin.
pub(crate) const AT_ONCE_MAX: usize = 4;

/// Maximum number of clients whose failures are counted separately.
const CLIENTS_MAX: usize = 1024;

/// The end of a forward, as it matters to its waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The answer serves other requests, or determines how they proceed.
    Answered,
    /// No connection produced an answer.
    Unreachable,
    /// The forward failed otherwise.
    Failed,
    /// Its client has left, or the process is stopping.
    GivenUp,
}

/// Effect of a forward's end on the waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    AllGetIt,
    NextGoes,
}

/// Earlier failures of forwards for one crowd.
#[derive(Debug, Default)]
pub(crate) struct Trouble<C> {
    was_unreachable: bool,
    has_failed: bool,
    /// Failed forwards by client. If there are too many clients, all counts restart at zero.
    failures: HashMap<C, u32>,
}

/// Running forwards, at a time when another one might begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Beside {
    pub under_way: usize,
    /// Whether even the newest of them began more than `wait_max` ago.
    pub are_late: bool,
}

impl<C: Copy + Eq + Hash> Trouble<C> {
    /// Records the end of a client's forward.
    pub(crate) fn learns(&mut self, ended: Ended, client: C, on_failure: LeaderFailure) -> Effect {
        match (ended, on_failure) {
            (Ended::Answered, _) | (Ended::Unreachable | Ended::Failed, LeaderFailure::Share) => {
                Effect::AllGetIt
            }
            (Ended::Unreachable, LeaderFailure::HandOver) => {
                let again = std::mem::replace(&mut self.was_unreachable, true);
                if again { Effect::AllGetIt } else { Effect::NextGoes }
            }
            (Ended::Failed, LeaderFailure::HandOver) => {
                self.has_failed = true;
                if self.failures.len() == CLIENTS_MAX {
                    self.failures.clear();
                }
                *self.failures.entry(client).or_default() += 1;
                Effect::NextGoes
            }
            (Ended::GivenUp, _) => Effect::NextGoes,
        }
    }

    /// Returns whether one more forward may begin.
    pub(crate) fn may_begin(&self, beside: Beside) -> bool {
        match beside.under_way {
            0 => true,
            1..AT_ONCE_MAX => beside.are_late || self.has_failed,
            _ => false,
        }
    }

    /// Picks the next waiter in turn: from the clients with the fewest failed and running forwards, the one that arrived first.
    pub(crate) fn next(&self, waiting: impl Iterator<Item = C>, under_way: &[C]) -> Option<usize> {
        let failures = |client: &C| self.failures.get(client).map_or(0, |count| *count as usize);
        let rank = |client: &C| failures(client) + under_way.iter().filter(|known| *known == client).count();
        waiting.enumerate().min_by_key(|(_, client)| rank(client)).map(|(index, _)| index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Effect::{AllGetIt, NextGoes};
    use Ended::{Answered, Failed, GivenUp, Unreachable};
    use LeaderFailure::{HandOver, Share};

    #[test]
    fn what_comes_of_one_is_for_all_or_the_next_goes() {
        #[track_caller]
        fn check(on_failure: LeaderFailure, story: &[(Ended, Effect)]) {
            let mut trouble = Trouble::default();
            for (step, (ended, expected)) in story.iter().enumerate() {
                assert_eq!(trouble.learns(*ended, 'a', on_failure), *expected, "step {step} {on_failure:?}");
            }
        }
        for ended in [Answered, Unreachable, Failed] {
            check(Share, &[(GivenUp, NextGoes), (ended, AllGetIt)]);
        }
        check(HandOver, &[(Unreachable, NextGoes), (Unreachable, AllGetIt)]);
        check(HandOver, &[(Failed, NextGoes), (Failed, NextGoes), (Failed, NextGoes), (Answered, AllGetIt)]);
        let mixed =
            [(Unreachable, NextGoes), (GivenUp, NextGoes), (Failed, NextGoes), (Unreachable, AllGetIt)];
        check(HandOver, &mixed);
    }

    #[test]
    fn few_go_at_once() {
        let mut trouble = Trouble::default();
        let begins = |trouble: &Trouble<char>, are_late| {
            [0, 1, 3, 4, 5].map(|under_way| trouble.may_begin(Beside { under_way, are_late }))
        };
        assert_eq!(begins(&trouble, false), [true, false, false, false, false]);
        assert_eq!(begins(&trouble, true), [true, true, true, false, false]);
        trouble.learns(Unreachable, 'a', HandOver);
        assert_eq!(begins(&trouble, false), [true, false, false, false, false]);
        trouble.learns(Failed, 'a', HandOver);
        assert_eq!(begins(&trouble, false), [true, true, true, false, false]);
    }

    #[test]
    fn other_clients_go_first() {
        let mut trouble = Trouble::default();
        let next = |trouble: &Trouble<char>, waiting: &str, under_way: &[char]| {
            trouble.next(waiting.chars(), under_way)
        };
        assert_eq!(next(&trouble, "", &[]), None);
        assert_eq!(next(&trouble, "aab", &[]), Some(0));
        assert_eq!(next(&trouble, "aab", &['a']), Some(2));
        trouble.learns(Failed, 'a', HandOver);
        assert_eq!(next(&trouble, "aabc", &[]), Some(2));
        assert_eq!(next(&trouble, "aabc", &['b']), Some(3));
        // Requests of one client take turns if there are no others.
        assert_eq!(next(&trouble, "aa", &['a']), Some(0));
        trouble.learns(Failed, 'b', HandOver);
        trouble.learns(Failed, 'b', HandOver);
        assert_eq!(next(&trouble, "bba", &[]), Some(2));
    }
}
