//! A request body on its way from a stream to the origin.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use h2::RecvStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::request::too_large;
use super::response;
use crate::head::Content;
use crate::origin::{RequestBody, RequestBodySender};
use crate::respond::Problem;
use crate::server::pace::{Pace, PaceLimits};
use crate::worker::Live;

/// Pieces of a request body between client and origin. Each is at most a frame (16 KiB).
const REQUEST_PIECES_MAX: usize = 4;

/// Why a request body can't be read to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BodyProblem {
    /// The client is to be told.
    Refused(Problem),
    /// The client reset the stream, or the connection broke.
    ClientLeft,
}

/// Moves a request body, in a task of its own so that neither side of an exchange waits for the other: an origin
/// may answer before it has read everything. Dropping it stops the task.
pub(super) struct BodyPump {
    task: Option<JoinHandle<()>>,
    received_bytes: Arc<AtomicU64>,
    problem: Option<oneshot::Receiver<BodyProblem>>,
}

struct Reader {
    stream: RecvStream,
    bytes_max: u64,
    limits: PaceLimits,
    pace: Pace,
    received_bytes: Arc<AtomicU64>,
}

impl BodyPump {
    /// Starts to move the body; nothing is started where there is none.
    pub(super) fn start(stream: RecvStream, content: Content, live: &Live) -> (Self, RequestBody) {
        let length = match content {
            Content::None | Content::Length(0) => return (Self::idle(), RequestBody::Empty),
            Content::Length(bytes) => Some(bytes),
            Content::Unknown => None,
        };
        let (sender, body) = RequestBody::channel(REQUEST_PIECES_MAX, length);
        let limits = &live.config.limits;
        let received_bytes = Arc::<AtomicU64>::default();
        let reader = Reader {
            stream,
            bytes_max: limits.body_bytes_max,
            limits: limits.body_pace(),
            pace: Pace::default(),
            received_bytes: Arc::clone(&received_bytes),
        };
        let (report, problem) = oneshot::channel();
        let task = tokio::spawn(async move {
            if let Err((problem, sender)) = reader.run(sender).await {
                // Told before the body breaks off, so that the cause is seen before its effect.
                let _ = report.send(problem);
                drop(sender);
            }
        });
        (Self { task: Some(task), received_bytes, problem: Some(problem) }, body)
    }

    pub(super) fn idle() -> Self {
        Self { task: None, received_bytes: Arc::default(), problem: None }
    }

    pub(super) fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }

    /// Resolves only if the body can't be read to its end.
    pub(super) async fn problem(&mut self) -> BodyProblem {
        if let Some(receiver) = &mut self.problem {
            let problem = receiver.await;
            self.problem = None;
            if let Ok(problem) = problem {
                return problem;
            }
        }
        std::future::pending().await
    }
}

impl Drop for BodyPump {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Reader {
    async fn run(mut self, mut sender: RequestBodySender) -> Result<(), (BodyProblem, RequestBodySender)> {
        loop {
            let data = tokio::select! {
                data = self.data() => data,
                // The rest isn't needed; the stream is reset once the response is complete.
                () = sender.closed() => return Ok(()),
            };
            let data = match data {
                Ok(Some(data)) => data,
                Ok(None) => break,
                Err(problem) => return Err((problem, sender)),
            };
            let bytes = data.len();
            if sender.send_data(data).await.is_err() {
                return Ok(());
            }
            // The window opens as the origin takes the data, not as it arrives.
            if self.stream.flow_control().release_capacity(bytes).is_err() {
                return Err((BodyProblem::ClientLeft, sender));
            }
        }
        match self.stream.trailers().await {
            Ok(trailers) => {
                let _ = sender.finish(trailers.and_then(response::trailers)).await;
                Ok(())
            }
            Err(_) => Err((BodyProblem::ClientLeft, sender)),
        }
    }

    async fn data(&mut self) -> Result<Option<Bytes>, BodyProblem> {
        let since = Instant::now();
        let data = match timeout(self.pace.patience(self.limits), self.stream.data()).await {
            Err(_) => {
                let problem =
                    Problem::new(408, "request-body-timeout", "the request body did not arrive in time");
                return Err(BodyProblem::Refused(problem));
            }
            Ok(None) => return Ok(None),
            Ok(Some(Err(_))) => return Err(BodyProblem::ClientLeft),
            Ok(Some(Ok(data))) => data,
        };
        self.pace.waited(since.elapsed(), data.len() as u64, self.limits);
        let received =
            self.received_bytes.fetch_add(data.len() as u64, Ordering::Relaxed) + data.len() as u64;
        if received > self.bytes_max {
            return Err(BodyProblem::Refused(too_large(self.bytes_max)));
        }
        Ok(Some(data))
    }
}
