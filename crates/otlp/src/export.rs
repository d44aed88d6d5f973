//! The task that sends queued spans.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use rustls::ClientConfig;
use telemetry::trace::Span;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::answer::{Pauses, Verdict};
use crate::client::{Client, Failure};
use crate::endpoint::Endpoint;
use crate::message::{KeyValue, encode};
use crate::queue::{Counts, Exporter};

/// The settings of the export.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The collector.
    pub endpoint: Endpoint,
    /// Header fields of each request. The caller marks secrets as sensitive.
    pub fields: HeaderMap,
    /// TLS configuration, for an `https` endpoint.
    pub tls: Option<Arc<ClientConfig>>,
    /// Resource attributes of this process, such as `service.name`.
    pub resource: Vec<(String, String)>,
    /// Version of this program, for the instrumentation scope.
    pub version: &'static str,
    /// Longest time for which spans wait to be sent in one batch.
    pub interval: Duration,
    /// Longest duration of one request, including the connection.
    pub timeout: Duration,
    /// Maximum number of spans in one request.
    pub batch_spans_max: usize,
    /// Queued spans; more are dropped.
    pub queue_spans_max: usize,
}

/// A task that sends until it is stopped.
#[derive(Debug)]
pub struct Export {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Export {
    /// Sends the queued spans once, for at most `limit`.
    pub async fn finish(self, limit: Duration) {
        // The result is ignored: a closed channel stops the task too.
        let _ = self.stop.send(());
        if timeout(limit, self.task).await.is_err() {
            tracing::warn!("spans dropped: the collector did not accept them in time");
        }
    }
}

/// Sends a request without spans, to check whether the collector would accept some.
///
/// # Errors
///
/// Returns the reason why it would not, in readable form.
pub async fn probe(settings: &Settings) -> Result<(), String> {
    let Settings { endpoint, fields, tls, .. } = settings.clone();
    let mut client = Client::new(endpoint, fields, tls);
    // An empty protobuf message has no bytes.
    match timeout(settings.timeout, client.post(Bytes::new())).await.unwrap_or(Err(Failure::Late)) {
        Ok(Verdict::Accepted { .. } | Verdict::Again(_)) => Ok(()),
        Ok(Verdict::Refused(status)) => Err(format!("it answers {status}")),
        Err(failure) => Err(failure.to_string()),
    }
}

/// Starts the task on the current runtime.
pub fn start(settings: Settings) -> (Arc<Exporter>, Export) {
    let exporter = Arc::new(Exporter::new(settings.queue_spans_max, settings.batch_spans_max));
    let (stop, stopped) = oneshot::channel();
    let sending = Sending::new(settings, Arc::clone(&exporter));
    let task = tokio::spawn(sending.run(stopped));
    (exporter, Export { stop, task })
}

struct Sending {
    exporter: Arc<Exporter>,
    client: Client,
    resource: Vec<KeyValue>,
    version: &'static str,
    interval: Duration,
    timeout: Duration,
    reach: Reach,
}

/// Whether the collector accepted the last batch: changes are logged, not each failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Fine,
    Away,
}

impl Sending {
    fn new(settings: Settings, exporter: Arc<Exporter>) -> Self {
        let Settings { endpoint, fields, tls, resource, version, interval, timeout, .. } = settings;
        let resource = resource.iter().map(|(name, value)| KeyValue::text(name, value)).collect();
        let client = Client::new(endpoint, fields, tls);
        Self { exporter, client, resource, version, interval, timeout, reach: Reach::Fine }
    }

    async fn run(mut self, mut stopped: oneshot::Receiver<()>) {
        let exporter = Arc::clone(&self.exporter);
        loop {
            tokio::select! {
                () = exporter.full.notified() => {}
                () = sleep(self.interval) => {}
                _ = &mut stopped => break,
            }
            while let Some(batch) = self.batch() {
                let batch_spans = batch.len();
                let content = self.content(batch);
                tokio::select! {
                    () = self.send_patiently(content.clone(), batch_spans) => {}
                    _ = &mut stopped => {
                        self.send_once(content, batch_spans).await;
                        return self.send_rest().await;
                    }
                }
            }
        }
        self.send_rest().await;
    }

    async fn send_rest(&mut self) {
        while let Some(batch) = self.batch() {
            let batch_spans = batch.len();
            let content = self.content(batch);
            self.send_once(content, batch_spans).await;
        }
    }

    fn batch(&self) -> Option<Vec<Span>> {
        Some(self.exporter.batch()).filter(|batch| !batch.is_empty())
    }

    fn content(&self, batch: Vec<Span>) -> Bytes {
        encode(&self.resource, self.version, batch).into()
    }

    async fn send_once(&mut self, content: Bytes, spans: usize) {
        match self.post(content).await {
            Ok(Verdict::Accepted { rejected, why }) => self.accepted(spans, rejected, &why),
            Ok(Verdict::Again(_)) => self.failed(spans, &"the collector is overloaded"),
            Ok(Verdict::Refused(status)) => self.failed(spans, &refused(status)),
            Err(failure) => self.failed(spans, &failure),
        }
    }

    /// Sends a batch, and retries after pauses.
    async fn send_patiently(&mut self, content: Bytes, spans: usize) {
        let mut pauses = Pauses::default();
        loop {
            let (asked, why) = match self.post(content.clone()).await {
                Ok(Verdict::Accepted { rejected, why }) => return self.accepted(spans, rejected, &why),
                Ok(Verdict::Refused(status)) => return self.failed(spans, &refused(status)),
                Ok(Verdict::Again(asked)) => (asked, "the collector is overloaded".to_owned()),
                Err(failure) => (None, failure.to_string()),
            };
            let Some(pause) = pauses.next(asked) else { return self.failed(spans, &why) };
            Counts::add(&self.exporter.counts.requests_again, 1);
            sleep(pause).await;
        }
    }

    async fn post(&mut self, content: Bytes) -> Result<Verdict, Failure> {
        timeout(self.timeout, self.client.post(content)).await.unwrap_or(Err(Failure::Late))
    }

    fn accepted(&mut self, spans: usize, rejected: usize, why: &str) {
        let counts = &self.exporter.counts;
        let rejected = rejected.min(spans);
        Counts::add(&counts.exported, spans - rejected);
        Counts::add(&counts.rejected, rejected);
        match rejected {
            0 => Counts::add(&counts.requests_accepted, 1),
            _ => Counts::add(&counts.requests_partial, 1),
        }
        if rejected > 0 {
            tracing::debug!(rejected, why, "the collector rejected some spans");
        }
        if self.reach == Reach::Away {
            tracing::info!("the collector accepts spans again");
        }
        self.reach = Reach::Fine;
    }

    fn failed(&mut self, spans: usize, why: &dyn std::fmt::Display) {
        Counts::add(&self.exporter.counts.failed, spans);
        Counts::add(&self.exporter.counts.requests_failed, 1);
        if self.reach == Reach::Fine {
            tracing::warn!(%why, "spans dropped: collector unreachable");
        }
        self.reach = Reach::Away;
    }
}

fn refused(status: u16) -> String {
    format!("it answers {status}")
}
