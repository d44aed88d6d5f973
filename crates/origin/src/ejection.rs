//! Ejection of servers by the outcome of their requests: a state machine without a clock or tasks.
//!
//! A server with a number of failures in a row is ejected. It returns automatically, and its share of the requests grows
//! gradually. Each further ejection is twice as long, up to a limit. The length is reset by the first success after the server
//! has been back for as long as it was ejected.

use std::time::Duration;

use tokio::time::Instant;

use super::response::Kept;
use super::retry::{Cause, Failed, Replay};
use crate::settings::EjectionConfig;

/// Ejection state of one server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    phase: Phase,
    /// Length of the last ejection, until it is reset.
    last: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    In {
        /// Consecutive failures.
        failures: u32,
        /// Time at which the server returned; `None` if it was never ejected.
        since: Option<Instant>,
    },
    Out {
        until: Instant,
    },
}

/// The conclusion about a server that follows from the outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Success,
    Failure,
    /// No conclusion: the client or the gateway is at fault, or the reason is harmless.
    Silent,
}

/// Whether one more server may be ejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    Granted,
    /// Too many servers are out already.
    Refused,
}

impl Verdict {
    /// Judges a failed attempt; `attempt` counts the servers tried so far. Four kinds of failures allow no conclusion. A kept
    /// connection closed during the request: servers close idle connections at any time. A stream was refused, which is an
    /// answer. Earlier attempts used up the time. The answer is invalid and the request content is no longer available: the
    /// client may have caused the answer.
    pub(super) fn of(failed: &Failed, attempt: usize) -> Self {
        match (failed.cause, failed.kept) {
            (Cause::Closed, Kept::Yes) | (Cause::Refused | Cause::Other, _) => Self::Silent,
            (Cause::OutOfTime, _) if attempt > 1 => Self::Silent,
            (Cause::Invalid, _) if failed.body == Replay::Gone => Self::Silent,
            (Cause::NotConnected | Cause::Closed | Cause::Late | Cause::Invalid | Cause::OutOfTime, _) => {
                Self::Failure
            }
        }
    }
}

impl Default for Phase {
    fn default() -> Self {
        Self::In { failures: 0, since: None }
    }
}

impl Standing {
    pub(super) fn is_in(&self, now: Instant) -> bool {
        !matches!(self.phase, Phase::Out { until } if now < until)
    }

    /// Returns the time at which the server returned from its last ejection.
    pub(super) fn back_since(&self, now: Instant) -> Option<Instant> {
        match self.phase {
            Phase::In { since, .. } => since,
            Phase::Out { until } => (until <= now).then_some(until),
        }
    }

    /// Records how a request ended. Returns the length of the ejection, if this ejects the server. Requests that end during an
    /// ejection began before it, and don't count.
    pub(super) fn note(
        &mut self,
        verdict: Verdict,
        rules: &EjectionConfig,
        leave: Leave,
        now: Instant,
    ) -> Option<Duration> {
        if !self.is_in(now) || verdict == Verdict::Silent {
            return None;
        }
        let since = self.back_since(now);
        let well_for = since.map(|since| now.saturating_duration_since(since));
        let stayed = self.last.is_some_and(|last| well_for.is_some_and(|well_for| well_for >= last));
        // Time alone isn't enough: in slow start a dead server gets so few requests that it may not fail for a long time.
        if stayed && verdict == Verdict::Success {
            self.last = None;
        }
        let failures = if verdict == Verdict::Success { 0 } else { self.failures().saturating_add(1) };
        if failures < rules.failures || leave == Leave::Refused {
            self.phase = Phase::In { failures, since };
            return None;
        }
        let time = self.last.map_or(rules.duration, |last| last * 2).min(rules.duration_max);
        *self = Self { phase: Phase::Out { until: now + time }, last: Some(time) };
        Some(time)
    }

    fn failures(&self) -> u32 {
        match self.phase {
            Phase::In { failures, .. } => failures,
            Phase::Out { .. } => 0,
        }
    }
}

/// Returns whether a group of `servers`, of which `out` are already ejected, can spare one more. The share is rounded up, and
/// one server always stays.
pub(super) fn leave(servers: usize, out: usize, share_percent: usize) -> Leave {
    let out_max = (servers * share_percent).div_ceil(100).min(servers.saturating_sub(1));
    if out < out_max { Leave::Granted } else { Leave::Refused }
}

/// Returns the share of its weight, in percent, that a server gets after its return: it grows with time from a tenth, so that
/// the server can fill its caches and pools.
pub(super) fn share_percent(back_since: Option<Instant>, slow_start: Duration, now: Instant) -> u32 {
    let Some(since) = back_since else { return 100 };
    let (elapsed, whole) = (now.saturating_duration_since(since).as_millis(), slow_start.as_millis());
    match (elapsed * 100).checked_div(whole) {
        Some(percent) => u32::try_from(percent).unwrap_or(100).clamp(10, 100),
        None => 100,
    }
}

#[cfg(test)]
mod tests {
    use testkit::decision_table::{Column, compare, table};

    use super::*;
    use crate::response::Processing;
    use crate::retry::Repeatable;
    use crate::settings::Statuses;

    fn rules() -> EjectionConfig {
        EjectionConfig {
            failures: 3,
            duration: Duration::from_secs(10),
            duration_max: Duration::from_secs(30),
            servers_percent_max: 50,
            statuses: Statuses::default(),
        }
    }

    /// Name of a case, its events with their times in seconds, and the time at which the state is compared.
    type Story = (&'static str, &'static [(u64, Verdict)], u64);

    use Verdict::{Failure, Silent, Success};

    const STORIES: [Story; 12] = [
        ("new", &[], 0),
        ("2 failures", &[(0, Failure), (0, Failure)], 0),
        ("2 failures, a success", &[(0, Failure), (0, Failure), (0, Success)], 0),
        ("ejected for 10 s", &[(0, Failure), (0, Failure), (0, Failure)], 0),
        ("ejected, 1 s left", &[(0, Failure), (0, Failure), (0, Failure)], 9),
        ("ejected, time over", &[(0, Failure), (0, Failure), (0, Failure)], 10),
        ("back for 5 s", &[(0, Failure), (0, Failure), (0, Failure), (11, Success)], 15),
        ("back for 10 s", &[(0, Failure), (0, Failure), (0, Failure), (11, Success)], 20),
        (
            "back for 5 s, 2 failures",
            &[(0, Failure), (0, Failure), (0, Failure), (15, Failure), (15, Failure)],
            15,
        ),
        (
            "back for 10 s, 2 failures",
            &[(0, Failure), (0, Failure), (0, Failure), (20, Failure), (20, Failure)],
            20,
        ),
        (
            "ejected again",
            &[(0, Failure), (0, Failure), (0, Failure), (11, Failure), (11, Failure), (11, Failure)],
            11,
        ),
        (
            "back again, 2 failures",
            &[
                (0, Failure),
                (0, Failure),
                (0, Failure),
                (11, Failure),
                (11, Failure),
                (11, Failure),
                (32, Failure),
                (32, Failure),
            ],
            32,
        ),
    ];

    fn shown(standing: &Standing, start: Instant, now: Instant) -> String {
        let seconds = |at: Instant| at.saturating_duration_since(start).as_secs();
        let phase = match standing.phase {
            Phase::In { failures, since: None } => format!("in, {failures} failures"),
            Phase::In { failures, since: Some(since) } => {
                format!("in since {} s, {failures} failures", seconds(since))
            }
            Phase::Out { until } if until <= now => format!("in since {} s", seconds(until)),
            Phase::Out { until } => format!("out until {} s", seconds(until)),
        };
        format!("{phase}, last {} s", standing.last.map_or(0, |last| last.as_secs()))
    }

    fn outcome(story: &Story, verdict: Verdict, leave: Leave) -> String {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut standing = Standing::default();
        for (seconds, verdict) in story.1 {
            standing.note(*verdict, &rules(), Leave::Granted, at(*seconds));
        }
        let ejected = standing.note(verdict, &rules(), leave, at(story.2));
        let effect = ejected.map_or(String::new(), |time| format!(": ejected for {} s", time.as_secs()));
        shown(&standing, start, at(story.2)) + &effect
    }

    #[test]
    fn the_whole_table_is_as_written() {
        let (verdicts, leaves) = ([Success, Failure, Silent], [Leave::Granted, Leave::Refused]);
        let columns = [
            Column::new("before", &STORIES, |story| story.0.to_owned()),
            Column::new("request", &verdicts, |verdict| format!("{verdict:?}")),
            Column::new("leave", &leaves, |leave| format!("{leave:?}")),
        ];
        let text = table(&columns, |at| outcome(&STORIES[at[0]], verdicts[at[1]], leaves[at[2]]));
        compare(&text, include_str!("ejection.txt"));
    }

    #[test]
    fn what_a_failed_attempt_says_of_its_server() {
        for (cause, kept, body, attempt, expected) in [
            (Cause::NotConnected, Kept::No, Replay::Whole, 1, Failure),
            (Cause::NotConnected, Kept::No, Replay::Gone, 2, Failure),
            (Cause::Closed, Kept::No, Replay::Whole, 1, Failure),
            (Cause::Closed, Kept::Yes, Replay::Whole, 1, Silent),
            (Cause::Refused, Kept::No, Replay::Whole, 1, Silent),
            (Cause::Late, Kept::No, Replay::Whole, 1, Failure),
            (Cause::Late, Kept::Yes, Replay::Gone, 2, Failure),
            (Cause::Invalid, Kept::No, Replay::Whole, 1, Failure),
            (Cause::Invalid, Kept::Yes, Replay::Whole, 2, Failure),
            (Cause::Invalid, Kept::No, Replay::Gone, 1, Silent),
            (Cause::OutOfTime, Kept::Yes, Replay::Whole, 1, Failure),
            (Cause::OutOfTime, Kept::Yes, Replay::Whole, 2, Silent),
            (Cause::Other, Kept::No, Replay::Whole, 1, Silent),
            (Cause::Other, Kept::Yes, Replay::Whole, 2, Silent),
        ] {
            let (processing, method) = (Processing::Possible, Repeatable::Yes);
            let failed = Failed { cause, processing, kept, method, body };
            assert_eq!(Verdict::of(&failed, attempt), expected, "{failed:?}, attempt {attempt}");
        }
    }

    #[test]
    fn a_share_of_the_group_may_be_out() {
        for (servers, percent, out_max) in [
            (1, 100, 0),
            (2, 50, 1),
            (3, 50, 2),
            (4, 50, 2),
            (10, 10, 1),
            (10, 15, 2),
            (2, 100, 1),
            (5, 0, 0),
        ] {
            let granted = (0..servers).take_while(|out| leave(servers, *out, percent) == Leave::Granted);
            assert_eq!(granted.count(), out_max, "{percent} % of {servers}");
        }
    }

    #[test]
    fn shares_grow() {
        let since = Instant::now();
        let check = |back: Option<Instant>, slow_start_s: u64, after_ms: u64, percent: u32| {
            let now = since + Duration::from_millis(after_ms);
            assert_eq!(share_percent(back, Duration::from_secs(slow_start_s), now), percent);
        };
        check(None, 10, 0, 100);
        for (after_ms, percent) in
            [(0, 10), (900, 10), (5_000, 50), (9_999, 99), (10_000, 100), (99_999, 100)]
        {
            check(Some(since), 10, after_ms, percent);
        }
        check(Some(since), 0, 0, 100);
    }
}
