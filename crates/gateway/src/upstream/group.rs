//! What a site refers to: an origin with its servers, its policy, its limits and its connections.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use store::Budget;
use tokio::time::Instant;

use super::admission::{Admission, Asker, Entrance};
use super::attempt::{Attempt, Outcome};
use super::endpoint::Eligible;
use super::error::OriginError;
use super::interim::Interim;
use super::request::{OriginRequest, RequestHead, RequestParts};
use super::request_body::{Arrival, RequestBody};
use super::response::OriginResponse;
use super::servers::Servers;
use super::stats::{Counters, OriginStats};
use super::timing::{HeadWait, Limits};
use crate::client::Client;
use crate::config::{OriginConfig, OriginTimeouts};

/// An origin with its policy and its limits. Kept by whoever uses it.
pub struct Upstream {
    pub(super) config: OriginConfig,
    pub(super) servers: Servers,
    pub(super) admission: Arc<Admission>,
    pub(super) memory: Option<Arc<Budget>>,
    pub(super) counters: Arc<Counters>,
}

/// As much of a request's content is waited for before the request takes a place among those in flight: most forms and calls
/// of an API are less. What takes longer, or is more, goes at the pace of its client.
const ARRIVED_BYTES_MAX: usize = 64 * 1024;
/// Long enough for content that is sent at once, over any distance; short enough for calls that go back and forth.
const ARRIVAL_MAX: Duration = Duration::from_millis(250);

impl Upstream {
    /// Counts of this origin.
    #[must_use]
    pub fn stats(&self) -> OriginStats {
        OriginStats { servers: self.servers.stats(), ..self.counters.snapshot() }
    }

    /// Sends a request and waits for the response head; interim responses are handed over as they come.
    /// Given up when dropped. The response is on the heap, because many hands pass it on.
    ///
    /// # Errors
    /// There is no response, or none in time.
    pub fn send<'a>(
        &'a self,
        request: OriginRequest,
        timeouts: &OriginTimeouts,
        interim: &'a mut (dyn FnMut(Interim) + Send),
    ) -> impl Future<Output = Result<Box<OriginResponse>, OriginError>> + Send + use<'a> {
        let now = Instant::now();
        let mut waiting = HeadWait::new(Limits::new(timeouts, now), interim);
        let key = request.key;
        let OriginRequest { client, timeline, record, .. } = &request;
        let asker = Asker { client: *client, timeline: timeline.clone(), record: record.clone() };
        // Here, so that the future has no room for the request as it came.
        let request = RequestParts::new(&self.config, request).map(|(parts, body)| (Box::new(parts), body));
        async move {
            let sent = match request {
                Ok((parts, body)) => self.send_admitted(&parts, (body, key), &asker, &mut waiting).await,
                Err(error) => Err(error),
            };
            sent.inspect_err(|error| self.counters.count_error(error))
        }
    }

    /// Admission, pick, attempt, and what its outcome says: again or the end.
    async fn send_admitted(
        &self,
        parts: &RequestParts,
        (mut body, key): (RequestBody, u64),
        asker: &Asker,
        waiting: &mut HeadWait<'_>,
    ) -> Result<Box<OriginResponse>, OriginError> {
        let entrance = self.entrance(parts, &mut body).await?;
        let permit = self.admission.enter(entrance, asker, waiting.limits.total_at).await?;
        let began = Instant::now();
        self.counters.requests.fetch_add(1, Relaxed);
        let mut eligible = Eligible::Any(began);
        let server = self.servers.pick(key, &[]).expect("one takes requests, as the configuration demands");
        self.servers.note_pick(server, asker.record.as_ref());
        let endpoint = &*self.servers.list()[server].endpoint;
        loop {
            let head = RequestHead::new(&self.config, parts);
            let attempt = Attempt { endpoint, eligible, permit: &permit };
            body = match (attempt.run(&head, body, waiting).await, eligible) {
                (Outcome::Answered(response), _) => return Ok(response),
                (Outcome::Again { body, .. }, Eligible::Any(_)) => *body,
                (Outcome::Again { error, .. } | Outcome::Failed(error), _) => return Err(error),
            };
            self.counters.retries.fetch_add(1, Relaxed);
            eligible = Eligible::OpenedSince(began);
        }
    }

    /// How the request enters, once as much of its content is here as is waited for.
    async fn entrance(&self, parts: &RequestParts, body: &mut RequestBody) -> Result<Entrance, OriginError> {
        let arrival = body.arrive(ARRIVED_BYTES_MAX, ARRIVAL_MAX, self.memory.as_ref()).await?;
        Ok(match arrival {
            Arrival::Partial => Entrance::Upload,
            Arrival::Whole if parts.asks_for_upgrade() => Entrance::Tunnel,
            Arrival::Whole => Entrance::Permit,
        })
    }

    /// Resolves when a request waits for a place that one of this client takes away from it.
    pub(crate) async fn permit_wanted(&self, client: Option<Client>) {
        self.admission.permit_wanted(client).await;
    }

    /// To be called after the end of an exchange because of [`Upstream::permit_wanted`]: another one may have to end too.
    pub(crate) fn permit_given_up(&self, client: Option<Client>) {
        self.admission.pass_on(client);
    }
}
