//! What an exchange notes of its own decisions, for `larder explain`.
//!
//! Every step writes its decision where it makes it, into the record that the request carries. Requests of clients
//! carry none: the price is one comparison per step.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use caching::explain::Finding;
use http::{HeaderMap, Method, Uri};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, timeout};

use crate::exchange::{self, Interims, Step};
use crate::fields::map_lines;
use crate::head::{Content, Nominations, Peer, RequestHead, Scheme, Trust, Version};
use crate::origin::RequestBody;
use crate::reply::{PieceMax, Reply};
use crate::worker::Worker;

/// A request that is made in order to see what becomes of it.
#[derive(Clone, Debug)]
pub struct Question {
    /// The method.
    pub method: Method,
    /// Absolute `http` or `https` URL.
    pub url: Uri,
    /// The header fields.
    pub fields: HeaderMap,
}

/// What became of a [`Question`].
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The status that a client would have got.
    pub status: u16,
    /// The `Cache-Status` that a client would have got.
    pub cache_status: String,
    /// Whether the response came to its end.
    pub complete: bool,
    /// The decisions, in the order in which they were made.
    pub findings: Vec<Finding>,
}

/// Why there is no explanation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExplainError {
    /// The URL is not absolute, or its scheme is neither http nor https.
    #[error("the URL must be absolute, with http or https")]
    UrlUnusable,
    /// Only safe methods are explained: the request is a real one.
    #[error("only GET and HEAD can be explained: the request is really made")]
    MethodUnsafe,
    /// The data plane is stopping, or too many explanations are under way.
    #[error("the data plane takes no more questions now")]
    Busy,
}

/// Decisions noted so far. Shared between the request and the forward that it starts.
#[derive(Debug, Default)]
pub(crate) struct Record {
    findings: Mutex<Vec<Finding>>,
    open: AtomicUsize,
    closed: Notify,
}

impl Record {
    pub(crate) fn note(&self, finding: Finding) {
        let mut findings = self.findings.lock();
        if findings.len() < FINDINGS_MAX {
            findings.push(finding);
        }
    }

    /// Says that a forward will note more until the guard is dropped.
    pub(crate) fn open(self: &Arc<Self>) -> OpenRecord {
        self.open.fetch_add(1, Ordering::AcqRel);
        OpenRecord(Arc::clone(self))
    }

    async fn closed(&self) {
        loop {
            let closed = self.closed.notified();
            tokio::pin!(closed);
            closed.as_mut().enable();
            if self.open.load(Ordering::Acquire) == 0 {
                return;
            }
            closed.await;
        }
    }
}

/// See [`Record::open`].
pub(crate) struct OpenRecord(Arc<Record>);

impl Clone for OpenRecord {
    fn clone(&self) -> Self {
        self.0.open()
    }
}

impl Drop for OpenRecord {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::AcqRel);
        self.0.closed.notify_waiters();
    }
}

/// Notes what `finding` says, where somebody wants to know.
pub(crate) fn note(record: Option<&Arc<Record>>, finding: impl FnOnce() -> Finding) {
    if let Some(record) = record {
        record.note(finding());
    }
}

/// A question on its way to a worker.
pub(crate) struct Errand {
    pub(crate) question: Question,
    pub(crate) answer: oneshot::Sender<Explanation>,
}

/// Questions that wait for the worker.
pub(crate) const ERRANDS_MAX: usize = 16;
const FINDINGS_MAX: usize = 200;
/// How long the end of a forward is waited for after the response has ended.
const FORWARD_END_MAX: Duration = Duration::from_secs(2);

/// Checks that a question can be asked.
///
/// # Errors
/// See [`ExplainError`].
pub(crate) fn check(question: &Question) -> Result<(), ExplainError> {
    if ![Method::GET, Method::HEAD].contains(&question.method) {
        return Err(ExplainError::MethodUnsafe);
    }
    match (question.url.scheme_str(), question.url.authority()) {
        (Some("http" | "https"), Some(_)) => Ok(()),
        _ => Err(ExplainError::UrlUnusable),
    }
}

/// Answers questions for as long as anybody can ask.
pub(crate) async fn serve(worker: Arc<Worker>, mut errands: mpsc::Receiver<Errand>) {
    while let Some(errand) = errands.recv().await {
        let worker = Arc::clone(&worker);
        tokio::spawn(async move {
            // Who asked may be gone; the answer is then nobody's.
            let _ = errand.answer.send(answer(&worker, &errand.question).await);
        });
    }
}

/// Makes the exchange as a connection would, and reads the response to its end.
async fn answer(worker: &Arc<Worker>, question: &Question) -> Explanation {
    let record = Arc::new(Record::default());
    let live = worker.live();
    let lines: Vec<_> = map_lines(&question.fields).collect();
    let authority = question.url.authority().map_or("", |authority| authority.as_str());
    let request = RequestHead {
        method: question.method.as_str(),
        scheme: scheme(&question.url),
        authority,
        path_and_query: question.url.path_and_query().map_or("/", |target| target.as_str()),
        version: Version::Http11,
        fields: &lines,
        nominations: Nominations::Some,
        sent: None,
        keyed: &[],
        content: Content::None,
        upgrade: None,
        peer: Peer {
            address: ([127, 0, 0, 1], 0).into(),
            trust: Trust::Untrusted,
            scheme: scheme(&question.url),
        },
        tls: None,
        record: Some(&record),
    };
    let started = Instant::now();
    let mut reply = match exchange::begin(worker, &live, &request, &mut Vec::new(), started) {
        Step::Reply(reply) => reply,
        Step::Forward(plan) => {
            exchange::finish(worker, &plan, RequestBody::Empty, &Interims::default()).await
        }
    };
    let complete = read_to_end(&mut reply).await;
    let _ = timeout(FORWARD_END_MAX, record.closed()).await;
    let mut cache_status = Vec::new();
    reply.cache_status.write(&live.cache_name, &mut cache_status);
    tracing::debug!(elapsed = ?started.elapsed(), "explained");
    let findings = std::mem::take(&mut *record.findings.lock());
    Explanation {
        status: reply.status,
        cache_status: String::from_utf8_lossy(&cache_status).into_owned(),
        complete,
        findings,
    }
}

fn scheme(url: &Uri) -> Scheme {
    if url.scheme_str() == Some("https") { Scheme::Https } else { Scheme::Http }
}

async fn read_to_end(reply: &mut Reply) -> bool {
    let mut trailers = None;
    loop {
        match reply.body.data(&mut trailers, PieceMax::SENT).await {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}
