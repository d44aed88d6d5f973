//! Retries: whether and where a request that failed without a response is sent again.

use http::Method;
use tokio::time::Instant;

use super::error::OriginError;
use super::response::{Kept, Processing};
use crate::settings::RetryConfig;

/// Kind of failure of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// There was no connection to send the request on.
    NotConnected,
    /// The connection ended before a response.
    Closed,
    /// The origin reported that it did not begin to process the request, and may accept it later.
    Refused,
    /// No response arrived in time.
    Late,
    /// An invalid response: not HTTP, or against its rules.
    Invalid,
    /// The time limit of the whole exchange has passed.
    OutOfTime,
    /// A failure that another server would not prevent.
    Other,
}

/// Facts of a failed attempt that decide about a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failed {
    pub(super) cause: Cause,
    pub(super) processing: Processing,
    pub(super) kept: Kept,
    pub(super) method: Repeatable,
    pub(super) body: Replay,
}

/// Whether a request may be processed twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeatable {
    No,
    Yes,
}

/// Whether the whole request body is available for another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replay {
    Gone,
    Whole,
}

/// Availability of another server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Elsewhere {
    Free,
    /// No other server accepts requests, or the limit on attempts is reached.
    Closed,
    /// The limit on recent retries is reached.
    OverBudget,
}

/// Availability of the same server for another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anew {
    Free,
    /// Unavailable: the server was already retried or, for a refused request, the time limit for a connection has passed.
    Taken,
}

/// Decision after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Send to another server.
    Elsewhere,
    /// Send to the same server, on a connection opened since the first attempt.
    Anew,
    /// Send to the same server after a pause.
    Later,
    /// Give up.
    Fail,
    /// Give up because of too many retries, although another server is available.
    FailOverBudget,
}

impl Cause {
    pub(super) fn of(error: &OriginError) -> Self {
        match error {
            OriginError::Resolve(_)
            | OriginError::Connect(_)
            | OriginError::ConnectTimeout
            | OriginError::Tls(_)
            | OriginError::TlsCertificate(_) => Self::NotConnected,
            OriginError::ClosedBeforeResponse => Self::Closed,
            OriginError::StreamRefused => Self::Refused,
            OriginError::FirstByteTimeout => Self::Late,
            OriginError::Protocol(_) | OriginError::InterimResponses { .. } => Self::Invalid,
            OriginError::TotalTimeout => Self::OutOfTime,
            _ => Self::Other,
        }
    }
}

impl Repeatable {
    pub(super) fn of(method: &Method) -> Self {
        //= RFC 10008 section 2: QUERY is safe and idempotent
        if method.is_idempotent() || method == "QUERY" { Self::Yes } else { Self::No }
    }
}

/// Decides about a retry. A request may be sent once more if it was certainly not processed, or may be processed twice. Another
/// server is preferred. The same server is tried again only if the failure says nothing about the server, as with a kept
/// connection that turned out to be dead, or if the server requests it.
//= RFC 9110 section 9.2.2: idempotent methods may be retried, others only when known not to be processed
pub(super) fn next(failed: Failed, elsewhere: Elsewhere, anew: Anew) -> Next {
    let may_be_repeated = failed.processing == Processing::Never || failed.method == Repeatable::Yes;
    let is_final = matches!(failed.cause, Cause::Other | Cause::OutOfTime);
    if is_final || failed.body == Replay::Gone || !may_be_repeated {
        return Next::Fail;
    }
    let is_dead =
        failed.cause == Cause::Closed && (failed.processing == Processing::Never || failed.kept == Kept::Yes);
    match (elsewhere, anew) {
        (Elsewhere::Free, _) => Next::Elsewhere,
        (_, Anew::Free) if is_dead => Next::Anew,
        (_, Anew::Free) if failed.cause == Cause::Refused => Next::Later,
        (Elsewhere::OverBudget, _) => Next::FailOverBudget,
        (Elsewhere::Closed, _) => Next::Fail,
    }
}

/// Requests and retries of the last seconds, counted so that retries don't multiply the load on an overloaded origin.
#[derive(Debug)]
pub(super) struct RetryBudget {
    begun: Instant,
    seconds: [Second; WINDOW_S as usize],
    /// Index of the latest second that was written or read.
    latest: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Second {
    requests: u64,
    retries: u64,
}

/// Length of the window in seconds. Requests from before the death of a server count in it, so they provide the budget for the
/// retries.
const WINDOW_S: u64 = 10;

impl RetryBudget {
    pub(super) fn new(now: Instant) -> Self {
        Self { begun: now, seconds: [Second::default(); WINDOW_S as usize], latest: 0 }
    }

    pub(super) fn count_request(&mut self, now: Instant) {
        self.second(now).requests += 1;
    }

    pub(super) fn count_retry(&mut self, now: Instant) {
        self.second(now).retries += 1;
    }

    /// Returns whether one more retry is within the share of the requests, or within the fixed allowance.
    pub(super) fn has_room(&mut self, config: &RetryConfig, now: Instant) -> bool {
        self.second(now);
        let sum = |count: fn(&Second) -> u64| self.seconds.iter().map(count).sum::<u64>();
        let (requests, retries) = (sum(|second| second.requests), sum(|second| second.retries));
        let share = requests * u64::from(config.budget_percent) / 100;
        retries < share + u64::from(config.budget_per_second_min) * WINDOW_S
    }

    /// Returns the counts of the current second, after clearing expired ones. If the clock was set back, the latest second
    /// stays the current one.
    fn second(&mut self, now: Instant) -> &mut Second {
        let number = now.saturating_duration_since(self.begun).as_secs().max(self.latest);
        for passed in 0..(number - self.latest).min(WINDOW_S) {
            self.seconds[((number - passed) % WINDOW_S) as usize] = Second::default();
        }
        self.latest = number;
        &mut self.seconds[(number % WINDOW_S) as usize]
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use testkit::decision_table::{Column, compare, table};

    use super::*;

    //= RFC 9110 section 9.2.2: idempotent methods may be retried, others only when known not to be processed
    #[test]
    fn the_whole_table_is_as_written() {
        let causes = [
            Cause::NotConnected,
            Cause::Closed,
            Cause::Refused,
            Cause::Late,
            Cause::Invalid,
            Cause::OutOfTime,
            Cause::Other,
        ];
        let processings = [Processing::Never, Processing::Possible];
        let kept = [Kept::No, Kept::Yes];
        let methods = [Repeatable::No, Repeatable::Yes];
        let bodies = [Replay::Gone, Replay::Whole];
        let elsewheres = [Elsewhere::Free, Elsewhere::Closed, Elsewhere::OverBudget];
        let anews = [Anew::Free, Anew::Taken];
        let columns = [
            Column::new("cause", &causes, |value| format!("{value:?}")),
            Column::new("processing", &processings, |value| format!("{value:?}")),
            Column::new("kept", &kept, |value| format!("{value:?}")),
            Column::new("repeatable", &methods, |value| format!("{value:?}")),
            Column::new("body", &bodies, |value| format!("{value:?}")),
            Column::new("elsewhere", &elsewheres, |value| format!("{value:?}")),
            Column::new("anew", &anews, |value| format!("{value:?}")),
        ];
        let text = table(&columns, |at| {
            let failed = Failed {
                cause: causes[at[0]],
                processing: processings[at[1]],
                kept: kept[at[2]],
                method: methods[at[3]],
                body: bodies[at[4]],
            };
            format!("{:?}", next(failed, elsewheres[at[5]], anews[at[6]]))
        });
        compare(&text, include_str!("retry.txt"));
    }

    //= RFC 10008 section 2: QUERY is safe and idempotent
    #[test]
    fn what_may_be_processed_twice() {
        let check = |names: &[&str], expected: Repeatable| {
            for name in names {
                let method = Method::from_bytes(name.as_bytes()).unwrap();
                assert_eq!(Repeatable::of(&method), expected, "{name}");
            }
        };
        check(&["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "QUERY"], Repeatable::Yes);
        check(&["POST", "PATCH", "CONNECT", "query", "PURGE"], Repeatable::No);
    }

    #[test]
    fn budgets_follow_the_requests_of_the_last_seconds() {
        let begun = Instant::now();
        let at = |seconds: u64| begun + Duration::from_secs(seconds);
        let retries = |requests: u64, percent: u32, per_second_min: u32, counted_s: u64, asked_s: u64| {
            let config = RetryConfig {
                attempts_max: 3,
                budget_percent: percent,
                budget_per_second_min: per_second_min,
            };
            let mut budget = RetryBudget::new(begun);
            (0..requests).for_each(|_| budget.count_request(at(counted_s)));
            let mut retries = 0;
            while retries < 10_000 && budget.has_room(&config, at(asked_s)) {
                budget.count_retry(at(asked_s));
                retries += 1;
            }
            retries
        };
        for (requests, percent, per_second_min, counted_s, asked_s, expected) in [
            (0, 20, 0, 0, 0, 0),
            (0, 20, 1, 0, 0, 10),
            (100, 20, 0, 0, 0, 20),
            (100, 20, 1, 0, 0, 30),
            (100, 20, 0, 0, 9, 20),
            (100, 20, 0, 0, 10, 0),
            (100, 20, 0, 5, 14, 20),
            (100, 20, 0, 5, 1_000, 0),
            (100, 0, 0, 0, 0, 0),
            (100, 100, 0, 3, 3, 100),
            // A clock reading older than the latest second counts in the latest second.
            (100, 20, 0, 5, 1, 20),
        ] {
            let found = retries(requests, percent, per_second_min, counted_s, asked_s);
            assert_eq!(found, expected, "{requests} {percent} {per_second_min} {counted_s} {asked_s}");
        }
    }
}
