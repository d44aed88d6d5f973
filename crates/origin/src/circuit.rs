//! Circuit breaker of an origin.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use breaker::{Breaker, Caller, Effect, Outcome, Permit, State};
use message::client::Client;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::admission::Entrance;
use super::error::OriginError;
use super::timing::Awaited;
use crate::settings::BreakerConfig;

/// A breaker with its clock and its rules.
pub struct Circuit {
    config: BreakerConfig,
    begun: Instant,
    /// Hashes clients to slots of the breaker with a secret key, so that no client can deliberately collide with another one.
    hasher: RandomState,
    /// Shared with earlier configurations, whose exchanges may still be running.
    breaker: Arc<Mutex<Breaker>>,
}

/// Permission to try an origin that counts as failed, for a background request.
#[derive(Debug)]
pub struct Probe(pub(super) Permit);

impl Circuit {
    pub(super) fn new(config: BreakerConfig) -> Self {
        let breaker = Arc::new(Mutex::new(Breaker::new(config.settings)));
        Self { config, begun: Instant::now(), hasher: RandomState::new(), breaker }
    }

    /// Returns the breaker with the rules of another configuration. They apply once that configuration is [in
    /// force](Self::take_effect).
    pub(super) fn under(&self, config: &BreakerConfig) -> Self {
        let (hasher, breaker) = (self.hasher.clone(), Arc::clone(&self.breaker));
        Self { config: config.clone(), begun: self.begun, hasher, breaker }
    }

    /// Applies the settings of this configuration.
    pub(super) fn take_effect(&self) {
        self.breaker.lock().change(self.config.settings);
    }

    /// Refuses every request while the breaker is open, without waiting for the content of the request.
    pub(super) fn refuse_at_once(&self) -> Result<(), OriginError> {
        let State::Open { until_ms } = self.breaker.lock().state() else { return Ok(()) };
        match until_ms.saturating_sub(self.now_ms()) {
            0 => Ok(()),
            retry_ms => Err(open_error(retry_ms)),
        }
    }

    /// Returns whether the breaker is closed, so that all requests are sent.
    pub(super) fn is_closed(&self) -> bool {
        self.breaker.lock().state() == State::Closed
    }

    /// Requests permission to try the origin while a stale response is served.
    ///
    /// # Errors
    /// The error of a refused request: the breaker is open, or other requests are trying the origin.
    pub fn probe(&self, client: Option<Client>) -> Result<Probe, OriginError> {
        self.admit(Entrance::Permit, client).map(Probe)
    }

    /// Requests permission to send a request; if it is refused, the origin counts as failed. An upload is admitted separately:
    /// its client determines how long it takes, and it must not delay the discovery that the origin has recovered. All clients
    /// without an address count as one client, because a single one may have caused all of their failures.
    pub(super) fn admit(&self, entrance: Entrance, client: Option<Client>) -> Result<Permit, OriginError> {
        let caller = Caller::Known(self.hasher.hash_one(client));
        let (mut breaker, now_ms) = (self.breaker.lock(), self.now_ms());
        let admitted = match entrance {
            Entrance::Upload => breaker.admit_apart(caller, now_ms),
            Entrance::Permit | Entrance::Tunnel => breaker.admit(caller, now_ms),
        };
        admitted.map_err(|refusal| match breaker.state() {
            State::HalfOpen => {
                OriginError::CircuitHalfOpen { retry: Duration::from_millis(refusal.retry_ms) }
            }
            State::Open { .. } | State::Closed => open_error(refusal.retry_ms),
        })
    }

    /// Records how a request ended, retries included. A failure is ignored if the request was waiting for its client. If this
    /// report opened the breaker, returns how long it stays open.
    pub(super) fn report(
        &self,
        permit: Permit,
        answered: Result<u16, &OriginError>,
        awaited: Awaited,
    ) -> Option<Duration> {
        let outcome = outcome(answered, &self.config)?;
        if (outcome, awaited) == (Outcome::Failure, Awaited::Client) {
            return None;
        }
        match self.breaker.lock().report(permit, outcome, self.now_ms()) {
            Effect::Opened { reset_ms } => Some(Duration::from_millis(reset_ms)),
            Effect::Ignored | Effect::Counted | Effect::Closed => None,
        }
    }

    pub(super) fn state(&self) -> State {
        self.breaker.lock().state()
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

fn open_error(retry_ms: u64) -> OriginError {
    OriginError::CircuitOpen { retry: Duration::from_millis(retry_ms) }
}

/// Classifies the end of a request; `None` for a fault of the client, a limit of the gateway, or a response that is the fault of
/// its URL rather than of the server.
fn outcome(answered: Result<u16, &OriginError>, config: &BreakerConfig) -> Option<Outcome> {
    match answered {
        Ok(status) if config.statuses.contains(status) => Some(Outcome::Failure),
        Ok(_) => Some(Outcome::Success),
        Err(error) if error.is_unreachable() => Some(Outcome::Failure),
        Err(OriginError::Protocol(_) | OriginError::InterimResponses { .. }) => Some(Outcome::Failure),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use testkit::decision_table::{Column, compare, table};

    use super::*;
    use crate::settings::Statuses;

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
            OriginError::StreamRefused,
            OriginError::UpgradeFailed("".into()),
            OriginError::protocol(""),
            OriginError::InterimResponses { max: 1 },
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

    /// History of a breaker before a request.
    #[derive(Clone, Copy, Debug)]
    enum Before {
        Nothing,
        Failure,
        FailureLongAgo,
        ProbeThatIsOver,
        ProbeThatGoesOn,
    }

    #[derive(Clone, Copy, Debug)]
    enum Request {
        WithStale,
        WithNothing,
        Upload,
    }

    const RESET: Duration = Duration::from_secs(5);

    /// Returns a breaker with this history, and the permit of a probe that is still running.
    async fn circuit(before: Before) -> (Circuit, Option<Permit>) {
        let options = breaker::Options { requests_min: 1, ..breaker::Options::default() };
        let settings = breaker::Settings::new(options).expect("within their ranges");
        let circuit = Circuit::new(BreakerConfig { settings, statuses: Statuses::new(Vec::new()) });
        let admit = |entrance| circuit.admit(entrance, None).expect("there is a place");
        if !matches!(before, Before::Nothing) {
            let refused = OriginError::ClosedBeforeResponse;
            assert_eq!(circuit.report(admit(Entrance::Permit), Err(&refused), Awaited::Origin), Some(RESET));
        }
        if !matches!(before, Before::Nothing | Before::Failure) {
            tokio::time::advance(RESET).await;
        }
        let probe = match before {
            Before::ProbeThatIsOver => {
                circuit.report(admit(Entrance::Permit), Ok(200), Awaited::Origin);
                None
            }
            Before::ProbeThatGoesOn => Some(admit(Entrance::Permit)),
            Before::Nothing | Before::Failure | Before::FailureLongAgo => None,
        };
        (circuit, probe)
    }

    fn course(circuit: &Circuit, request: Request) -> &'static str {
        let entrance = match request {
            Request::WithStale if !circuit.is_closed() => {
                let probe = circuit.probe(None);
                return if probe.is_ok() { "stale, a probe behind" } else { "stale" };
            }
            Request::WithStale | Request::WithNothing => Entrance::Permit,
            Request::Upload => Entrance::Upload,
        };
        match circuit.refuse_at_once().and_then(|()| circuit.admit(entrance, None)) {
            Err(_) => "refused",
            Ok(_) if circuit.is_closed() => "sent",
            Ok(_) => "sent, a probe",
        }
    }

    #[test]
    fn who_waits_for_the_origin_is_as_written() {
        let before = [
            Before::Nothing,
            Before::Failure,
            Before::FailureLongAgo,
            Before::ProbeThatIsOver,
            Before::ProbeThatGoesOn,
        ];
        let requests = [Request::WithStale, Request::WithNothing, Request::Upload];
        let columns = [
            Column::new("before", &before, |before| format!("{before:?}")),
            Column::new("request", &requests, |request| format!("{request:?}")),
        ];
        let text = table(&columns, |at| {
            let mut paused = tokio::runtime::Builder::new_current_thread();
            let runtime = paused.enable_time().start_paused(true).build().expect("a runtime without IO");
            runtime.block_on(async {
                let (circuit, _probe) = circuit(before[at[0]]).await;
                course(&circuit, requests[at[1]]).to_owned()
            })
        });
        compare(&text, include_str!("probes.txt"));
    }
}
