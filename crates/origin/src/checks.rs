//! Health of a server by active checks: a state machine without a clock or tasks.

use tokio::time::Instant;

/// Numbers of consecutive results that change the state of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Thresholds {
    pub(super) unhealthy_after: u32,
    pub(super) healthy_after: u32,
}

/// Health of a server by its checks. A server that has not been checked yet is healthy: a new instance has to serve
/// immediately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checked {
    Healthy {
        /// Failed checks since the last passed one.
        failed: u32,
        /// Time at which the server became healthy again; `None` if it was never unhealthy.
        since: Option<Instant>,
    },
    Unhealthy {
        /// Passed checks since the last failed one.
        passed: u32,
    },
}

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    Passed,
    Failed,
}

impl Default for Checked {
    fn default() -> Self {
        Self::Healthy { failed: 0, since: None }
    }
}

impl Checked {
    pub(super) fn is_healthy(self) -> bool {
        matches!(self, Self::Healthy { .. })
    }

    /// Returns the time at which the server became healthy again.
    pub(super) fn back_since(self) -> Option<Instant> {
        match self {
            Self::Healthy { since, .. } => since,
            Self::Unhealthy { .. } => None,
        }
    }

    /// Returns the state after one more check.
    pub(super) fn after(self, check: Check, thresholds: Thresholds, now: Instant) -> Self {
        match (self, check) {
            (Self::Healthy { since, .. }, Check::Passed) => Self::Healthy { failed: 0, since },
            (Self::Healthy { failed, .. }, Check::Failed) if failed + 1 >= thresholds.unhealthy_after => {
                Self::Unhealthy { passed: 0 }
            }
            (Self::Healthy { failed, since }, Check::Failed) => Self::Healthy { failed: failed + 1, since },
            (Self::Unhealthy { passed }, Check::Passed) if passed + 1 >= thresholds.healthy_after => {
                Self::Healthy { failed: 0, since: Some(now) }
            }
            (Self::Unhealthy { passed }, Check::Passed) => Self::Unhealthy { passed: passed + 1 },
            (Self::Unhealthy { .. }, Check::Failed) => Self::Unhealthy { passed: 0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use testkit::decision_table::{Column, compare, table};

    use super::*;

    const THRESHOLDS: Thresholds = Thresholds { unhealthy_after: 3, healthy_after: 2 };

    #[test]
    fn the_whole_table_is_as_written() {
        let (now, before) = (Instant::now(), Instant::now());
        let states = [
            Checked::default(),
            Checked::Healthy { failed: 1, since: None },
            Checked::Healthy { failed: 2, since: None },
            Checked::Healthy { failed: 0, since: Some(before) },
            Checked::Healthy { failed: 2, since: Some(before) },
            Checked::Unhealthy { passed: 0 },
            Checked::Unhealthy { passed: 1 },
        ];
        let checks = [Check::Passed, Check::Failed];
        let shown = |state: &Checked| match state {
            Checked::Healthy { failed, since: None } => format!("healthy, {failed} failed"),
            Checked::Healthy { failed, .. } => format!("healthy again, {failed} failed"),
            Checked::Unhealthy { passed } => format!("unhealthy, {passed} passed"),
        };
        let columns = [
            Column::new("state", &states, shown),
            Column::new("check", &checks, |check| format!("{check:?}")),
        ];
        let text = table(&columns, |at| shown(&states[at[0]].after(checks[at[1]], THRESHOLDS, now)));
        compare(&text, include_str!("checks.txt"));
    }
}
