//! Transfer of a request body from a stream to the origin.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use h2::RecvStream;
use message::head::Content;
use message::trailers;
use origin::{RequestBody, RequestBodySender, Room, UNCHARGED_PIECE_BYTES_MAX};
use store::{Budget, Charge, OverBudget};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::pace::{BodyLimits, Pace};
use crate::request::respond::Problem;
use crate::server::{BodyProblem, REQUEST_PIECES_MAX};

/// Maximum size of a piece of a request body: a frame. Data beyond one piece is charged to the budget while it waits.
const PIECE_BYTES_MAX: usize = 16 * 1024;

/// Moves a request body in its own task, so that neither side of an exchange waits for the other: an origin may answer before it has
/// read all of the body. Dropping it stops the task.
pub(super) struct BodyPump {
    task: Option<JoinHandle<()>>,
    progress: Arc<Progress>,
    problem: Option<oneshot::Receiver<BodyProblem>>,
}

/// Progress of both directions of an exchange.
#[derive(Default)]
struct Progress {
    received_bytes: AtomicU64,
    /// Bytes of the response sent, plus 1 for its head.
    sent: AtomicU64,
}

struct Reader {
    stream: RecvStream,
    /// Whether all of the body has arrived.
    has_ended: bool,
    held: UnsentData,
    limits: BodyLimits,
    pace: Pace,
    progress: Arc<Progress>,
    quiet: Quiet,
}

/// Time without progress in either direction.
struct Quiet {
    since: Instant,
    sent: u64,
}

/// Bytes of a body that the origin hasn't read, in one buffer, because frames may have a single byte. `h2` no longer counts these bytes, so
/// they are charged to the budget; the client's window limits them.
struct UnsentData {
    bytes: BytesMut,
    charge: Option<Charge>,
    budget: Arc<Budget>,
}

enum TakenData {
    /// The origin's side has taken a piece of this size, in bytes.
    Taken(usize),
    Arrived(Result<Option<Bytes>, BodyProblem>),
    /// No data arrived in time, but the client isn't the cause.
    Waits,
    /// The rest isn't needed; the stream is reset once the response is complete.
    NotNeeded,
}

impl BodyPump {
    /// Starts to move the body, if there is one.
    pub(super) fn start(
        stream: RecvStream,
        content: Content,
        limits: BodyLimits,
        budget: &Arc<Budget>,
    ) -> (Self, RequestBody) {
        let length = match content {
            Content::None | Content::Length(0) => return (Self::idle(), RequestBody::Empty),
            Content::Length(bytes) => Some(bytes),
            Content::Unknown => None,
        };
        let (sender, body) = RequestBody::channel(REQUEST_PIECES_MAX, length);
        let progress = Arc::<Progress>::default();
        let reader = Reader {
            stream,
            has_ended: false,
            held: UnsentData { bytes: BytesMut::new(), charge: None, budget: Arc::clone(budget) },
            limits,
            pace: Pace::default(),
            progress: Arc::clone(&progress),
            quiet: Quiet { since: Instant::now(), sent: 0 },
        };
        let (report, problem) = oneshot::channel();
        let task = tokio::spawn(async move {
            if let Err((problem, sender)) = reader.run(sender).await {
                // Report the problem before the body is cut short, so that the cause arrives before its effect.
                let _ = report.send(problem);
                drop(sender);
            }
        });
        (Self { task: Some(task), progress, problem: Some(problem) }, body)
    }

    pub(super) fn idle() -> Self {
        Self { task: None, progress: Arc::default(), problem: None }
    }

    pub(super) fn received_bytes(&self) -> u64 {
        self.progress.received_bytes.load(Ordering::Relaxed)
    }

    /// Records that the head of the response was sent.
    pub(super) fn answered(&self) {
        self.sent(1);
    }

    /// Records that `bytes` of the response's content were sent.
    pub(super) fn sent(&self, bytes: u64) {
        self.progress.sent.fetch_add(bytes, Ordering::Relaxed);
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
        while !self.has_ended || !self.held.bytes.is_empty() {
            let taken = match self.step(&mut sender).await {
                TakenData::Taken(bytes) => bytes,
                TakenData::NotNeeded => return Ok(()),
                TakenData::Waits => continue,
                TakenData::Arrived(Ok(Some(data))) => match self.held.pass(&data, &mut sender) {
                    Ok(taken) => taken,
                    Err(OverBudget { .. }) => return Err((BodyProblem::Refused(no_memory()), sender)),
                },
                TakenData::Arrived(Ok(None)) => {
                    self.has_ended = true;
                    0
                }
                TakenData::Arrived(Err(problem)) => return Err((problem, sender)),
            };
            // The window opens when the origin takes data, not when data arrives.
            if self.stream.flow_control().release_capacity(taken).is_err() {
                return Err((BodyProblem::ClientLeft, sender));
            }
        }
        match self.stream.trailers().await {
            Ok(trailers) => {
                let _ = sender.finish(trailers.and_then(|trailers| trailers::passing(trailers, &[]))).await;
                Ok(())
            }
            Err(_) => Err((BodyProblem::ClientLeft, sender)),
        }
    }

    async fn step(&mut self, sender: &mut RequestBodySender) -> TakenData {
        let (waits, held) = (!self.held.bytes.is_empty(), &mut self.held);
        // A client whose window is closed because of the origin isn't late.
        let since = Instant::now();
        let patience = match self.quiet.sent {
            _ if waits => Duration::MAX,
            0 => self.pace.patience(self.limits.pace),
            _ => self.limits.answered_idle_max.saturating_sub(since - self.quiet.since),
        };
        let arrived = tokio::select! {
            biased;
            room = sender.room(), if waits => return room.map_or(TakenData::NotNeeded, |room| TakenData::Taken(held.fill(room))),
            arrived = timeout(patience, self.stream.data()), if !self.has_ended => arrived,
            () = sender.closed() => return TakenData::NotNeeded,
        };
        let waited = if waits { Duration::ZERO } else { since.elapsed() };
        TakenData::Arrived(match arrived {
            Err(_) if self.has_moved() => return TakenData::Waits,
            Err(_) => Err(BodyProblem::timed_out()),
            Ok(None) => Ok(None),
            Ok(Some(Err(_))) => Err(BodyProblem::ClientLeft),
            Ok(Some(Ok(data))) => self.received(data, waited),
        })
    }

    fn received(&mut self, data: Bytes, waited: Duration) -> Result<Option<Bytes>, BodyProblem> {
        let bytes = data.len() as u64;
        self.pace.waited(waited, bytes, self.limits.pace);
        self.quiet.since = Instant::now();
        let received = self.progress.received_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if received > self.limits.bytes_max {
            return Err(BodyProblem::Refused(Problem::request_body_too_large(self.limits.bytes_max)));
        }
        Ok(Some(data))
    }

    /// Returns whether some of the response was sent since the last check.
    fn has_moved(&mut self) -> bool {
        let sent = self.progress.sent.load(Ordering::Relaxed);
        let has_moved = sent != self.quiet.sent;
        if has_moved {
            self.quiet = Quiet { since: Instant::now(), sent };
        }
        has_moved
    }
}

impl UnsentData {
    /// Hands data over if the channel has room and no earlier data is pending; otherwise, buffers the data. Returns the number of bytes
    /// handed over.
    fn pass(&mut self, data: &[u8], sender: &mut RequestBodySender) -> Result<usize, OverBudget> {
        if self.bytes.is_empty()
            && let Some(room) = sender.room_at_once()
        {
            room.fill(self.piece(data));
            return Ok(data.len());
        }
        self.bytes.extend_from_slice(data);
        self.charge()?;
        Ok(0)
    }

    /// Charges the capacity of the buffer to the budget. The capacity grows in larger steps than the data.
    fn charge(&mut self) -> Result<(), OverBudget> {
        let bytes = self.bytes.capacity();
        match &mut self.charge {
            None if bytes < UNCHARGED_PIECE_BYTES_MAX => {}
            None => self.charge = Some(self.budget.reserve(bytes)?),
            Some(charge) if bytes <= charge.bytes() => {}
            Some(charge) => charge.grow(bytes - charge.bytes())?,
        }
        Ok(())
    }

    /// Hands over the next piece.
    fn fill(&mut self, room: Room<'_>) -> usize {
        let bytes = self.bytes.len().min(PIECE_BYTES_MAX);
        room.fill(self.piece(&self.bytes[..bytes]));
        self.bytes.advance(bytes);
        if self.bytes.is_empty() {
            self.bytes = BytesMut::new();
            self.charge = None;
        }
        bytes
    }

    /// Returns a piece that the origin's side may keep as long as it needs. It is a copy: a slice would keep the whole, larger buffer.
    fn piece(&self, data: &[u8]) -> Bytes {
        let copy = Bytes::copy_from_slice(data);
        match self.budget.reserve(copy.len()) {
            Ok(charge) => charge.hold(copy),
            Err(OverBudget { .. }) => copy,
        }
    }
}

fn no_memory() -> Problem {
    Problem::new(503, "upload-memory", "no memory is available for upload data that the origin hasn't read")
}
