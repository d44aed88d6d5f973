//! The circuit breaker of a group: whether anything is sent to it at all.

use std::time::Duration;

use breaker::{Breaker, Effect, Outcome, Permit};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::error::OriginError;
use super::stats::BreakerStats;
use crate::config::BreakerConfig;

/// A breaker with its clock and its rules.
pub(super) struct Circuit {
    config: BreakerConfig,
    begun: Instant,
    kept: Mutex<Kept>,
}

struct Kept {
    breaker: Breaker,
    /// How often it has opened.
    opened: u64,
}

impl Circuit {
    pub(super) fn new(config: BreakerConfig) -> Self {
        let kept = Mutex::new(Kept { breaker: Breaker::new(config.settings), opened: 0 });
        Self { config, begun: Instant::now(), kept }
    }

    pub(super) fn is_for(&self, config: &BreakerConfig) -> bool {
        self.config == *config
    }

    /// Leave to send a request; without it, the origin counts as failed.
    pub(super) fn admit(&self) -> Result<Permit, OriginError> {
        let admitted = self.kept.lock().breaker.admit(self.now_ms());
        admitted
            .map_err(|refusal| OriginError::CircuitOpen { retry: Duration::from_millis(refusal.retry_ms) })
    }

    /// Takes in how the request ended, its retries included. For how long the breaker is open, if this opened it.
    pub(super) fn report(&self, permit: Permit, answered: Result<u16, &OriginError>) -> Option<Duration> {
        let outcome = outcome(answered, &self.config)?;
        let mut kept = self.kept.lock();
        match kept.breaker.report(permit, outcome, self.now_ms()) {
            Effect::Opened { reset_ms } => {
                kept.opened += 1;
                Some(Duration::from_millis(reset_ms))
            }
            Effect::Ignored | Effect::Counted | Effect::Closed => None,
        }
    }

    pub(super) fn stats(&self) -> BreakerStats {
        let kept = self.kept.lock();
        BreakerStats { state: kept.breaker.state(), opened: kept.opened }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// What the end of a request says of the origin; nothing where it was the client's fault or the limits of this side, or a
/// response that says more about a URL than about a server.
fn outcome(answered: Result<u16, &OriginError>, config: &BreakerConfig) -> Option<Outcome> {
    match answered {
        Ok(status) if config.statuses.contains(status) => Some(Outcome::Failure),
        Ok(_) => Some(Outcome::Success),
        Err(error) if error.is_unreachable() => Some(Outcome::Failure),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::config::Statuses;
    use crate::decision_table::{Column, compare, table};

    #[test]
    fn the_whole_table_is_as_written() {
        let config = BreakerConfig {
            settings: breaker::Settings::default(),
            statuses: Statuses::new(vec![502..=504]),
        };
        let errors = [
            OriginError::Resolve("".into()),
            OriginError::Connect(io::ErrorKind::ConnectionRefused),
            OriginError::ConnectTimeout,
            OriginError::Tls("".into()),
            OriginError::FirstByteTimeout,
            OriginError::TotalTimeout,
            OriginError::ClosedBeforeResponse,
            OriginError::protocol(""),
            OriginError::QueueFull,
            OriginError::QueueTimeout,
            OriginError::ClientShare,
            OriginError::TransfersFull,
            OriginError::TunnelsFull,
            OriginError::RequestBody,
            OriginError::invalid_request(""),
        ];
        let statuses = [200, 304, 404, 429, 500, 502, 503, 504].map(Ok);
        let ends: Vec<_> = statuses.into_iter().chain(errors.iter().map(Err)).collect();
        let shown = |end: &Result<u16, &OriginError>| match end {
            Ok(status) => status.to_string(),
            Err(error) => error.reason().to_owned(),
        };
        let columns = [Column::new("end", &ends, shown)];
        let text = table(&columns, |at| match outcome(ends[at[0]], &config) {
            Some(outcome) => format!("{outcome:?}"),
            None => "nothing".to_owned(),
        });
        compare(&text, include_str!("circuit.txt"));
    }
}
