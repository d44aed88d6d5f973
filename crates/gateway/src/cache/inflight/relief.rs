//! What a request does whose forward, which another request leads, fails or takes too long.
//!
//! A forward is relieved at most once, by one of those who wait for it, and the relief is not. So whatever an origin does, a
//! crowd that waits for one forward costs it two forwards: one after the other, or side by side. (Either may be sent a
//! second time on a new connection, where a kept one was dead: [`crate::upstream`].)
//!
//! | what a waiter learns | `hand_over` | `share` |
//! |---|---|---|
//! | its forward failed | the first who asks leads the relief, the others wait for it | gets the failure |
//! | its forward is late (`wait_max`) | the first who asks leads the relief, the others wait for both | the same |
//! | one of two failed | waits for the other | the same |
//! | the relief, or the last of two, failed | gets the failure | the same |
//! | the relief is late | waits on: each forward ends by the time limits of the site | the same |

use crate::config::LeaderFailure;

/// Whether a forward takes the place of one that failed or is late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    First,
    Relief,
}

/// What a waiter learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    /// A forward failed: it brought no response, or a server error that is for its leader alone.
    Failed,
    /// Nothing came for as long as is allowed.
    Late,
}

/// What a waiter does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It leads the relief if it is the first to ask for it; otherwise it waits for the relief too.
    Relieve,
    /// It waits for what is under way.
    WaitOn,
    /// It gets the failure.
    SeeFailure,
}

/// One who waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    on_failure: LeaderFailure,
    /// Forwards that it waits for now.
    under_way: usize,
    /// Whether one may be relieved.
    may_relieve: bool,
}

impl Waiting {
    pub(crate) fn of(joined: Order, on_failure: LeaderFailure) -> Self {
        Self { on_failure, under_way: 1, may_relieve: joined == Order::First }
    }

    pub(crate) fn learns(&mut self, happened: Happened) -> Next {
        if happened != Happened::Late {
            self.under_way = self.under_way.saturating_sub(1);
        }
        let hands_over = happened == Happened::Late || self.on_failure == LeaderFailure::HandOver;
        match self.under_way {
            _ if happened == Happened::Late && !self.may_relieve => Next::WaitOn,
            1.. if happened != Happened::Late => Next::WaitOn,
            _ if self.may_relieve && hands_over => {
                (self.may_relieve, self.under_way) = (false, self.under_way + 1);
                Next::Relieve
            }
            _ => Next::SeeFailure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Happened::{Failed, Late};
    use LeaderFailure::{HandOver, Share};
    use Next::{Relieve, SeeFailure, WaitOn};

    /// Every way that waiting can go without an answer.
    #[test]
    fn the_whole_machine() {
        #[track_caller]
        fn check(joined: Order, on_failure: LeaderFailure, story: &[(Happened, Next)]) {
            let mut waiting = Waiting::of(joined, on_failure);
            for (step, (happened, expected)) in story.iter().enumerate() {
                assert_eq!(waiting.learns(*happened), *expected, "step {step} of {joined:?} {on_failure:?}");
            }
            // A crowd of these has cost the origin one forward and as many as were relieved.
            let reliefs = story.iter().filter(|(_, next)| *next == Relieve).count();
            let failures = story.iter().filter(|(happened, _)| *happened != Late).count();
            assert!(reliefs <= 1);
            assert_eq!(failures, 1 + reliefs, "it ends when all that it waits for has failed");
        }
        check(Order::First, HandOver, &[(Failed, Relieve), (Failed, SeeFailure)]);
        check(Order::First, HandOver, &[(Failed, Relieve), (Late, WaitOn), (Failed, SeeFailure)]);
        check(Order::First, Share, &[(Failed, SeeFailure)]);
        for on_failure in [HandOver, Share] {
            check(Order::First, on_failure, &[(Late, Relieve), (Failed, WaitOn), (Failed, SeeFailure)]);
            let late = &[(Late, Relieve), (Late, WaitOn), (Failed, WaitOn), (Failed, SeeFailure)];
            check(Order::First, on_failure, late);
            check(Order::Relief, on_failure, &[(Failed, SeeFailure)]);
            check(Order::Relief, on_failure, &[(Late, WaitOn), (Failed, SeeFailure)]);
        }
    }
}
