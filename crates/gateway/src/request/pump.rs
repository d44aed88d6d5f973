//! The task that reads a body, encodes it, and writes it into a fill for all its readers.
//!
//! The fill sets the pace of reading and writing. If the form may be stored, it grows as fast as its source, even if its clients are
//! slow, and requests that arrive in the meantime read it, too. A form for one client grows at the pace of this client, and ends when
//! the client leaves.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cache::entry::forms::Forms;
use cache::fill::{Fill, Writer, Written};
use caching::compression::DIGEST_FIELDS;
use http::HeaderMap;
use origin::{OriginBody, Pacing};
use tokio::time::sleep;

use crate::compression::EncoderPermit;
use crate::compression::encoder::{Encoder, Task};
use crate::request::reply::{Body, BrokenBody};
use crate::routing::LiveSite;
use crate::worker::Worker;

/// Time without new input after which pending data is flushed, so that a page generated in steps also appears in steps. Each flush
/// costs some bytes, so stored or fast bodies aren't flushed.
const FLUSH_AFTER: Duration = Duration::from_millis(10);
/// Maximum size of input that is encoded on the worker, because passing it to another thread takes about as long.
const SMALL_BYTES_MAX: usize = 2 << 10;

/// A body that passes through an encoder.
pub(crate) struct Pump {
    pub(crate) worker: Arc<Worker>,
    pub(crate) site: Arc<LiveSite>,
    pub(crate) source: Body,
    pub(crate) task: Task,
    pub(crate) encoder: Encoder,
    pub(crate) writer: Writer,
    /// Stores the encoded body when it is complete; `None` if the body isn't stored.
    pub(crate) forms: Option<Arc<Forms>>,
    pub(crate) place: EncoderPermit,
}

/// Encoding ended early: the source or the encoder failed, or no reader was left. Readers then get an aborted body.
struct Stopped;

impl From<io::Error> for Stopped {
    fn from(_: io::Error) -> Self {
        Self
    }
}

/// An encoder, and the fill that it writes to.
struct Sink {
    /// The encoder; `None` while another thread uses it.
    encoder: Option<Encoder>,
    fill: Arc<Fill>,
    place: EncoderPermit,
    input_bytes: u64,
    output_bytes: u64,
}

enum PumpStep {
    Write(Bytes),
    Flush,
}

impl Pump {
    /// Encodes the whole body. If encoding fails, the dropped writer aborts the fill.
    pub(crate) async fn run(self) {
        let Self { worker, site, mut source, task, encoder, writer, forms, place } = self;
        let fill = Arc::clone(&writer.0);
        let mut sink =
            Sink { encoder: Some(encoder), fill: Arc::clone(&fill), place, input_bytes: 0, output_bytes: 0 };
        let mut trailers = None;
        let passed = pass(&mut source, &mut sink, &mut trailers, forms.is_some()).await;
        drop(source);
        fill.count_encoder(None);
        if passed.is_err() {
            return;
        }
        let coding = task.coding;
        worker.recorder.compressed_bytes(coding.name(), sink.input_bytes, sink.output_bytes);
        if let Some(forms) = forms {
            // The form is stored before the fill completes, so that its readers find the form afterwards.
            match writer.0.body() {
                _ if sink.output_bytes >= sink.input_bytes => forms.record_no_gain(coding),
                Some(body) => {
                    let kept = worker.cache(&site).keep_beside(body);
                    kept.into_iter().for_each(|kept| forms.keep(coding, kept));
                }
                None => {}
            }
        }
        writer.0.complete(trailers.map(without_digests));
    }
}

/// Removes digest fields, because they describe the bytes before encoding.
fn without_digests(mut trailers: HeaderMap) -> HeaderMap {
    DIGEST_FIELDS.into_iter().for_each(|name| drop(trailers.remove(name)));
    trailers
}

/// Reason to continue reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// The body is stored, even if all readers leave.
    Kept,
    /// The body is only for its readers.
    Readers,
}

async fn pass(
    source: &mut Body,
    sink: &mut Sink,
    trailers: &mut Option<HeaderMap>,
    is_kept: bool,
) -> Result<(), Stopped> {
    let arriving = match source {
        Body::Fill(reader) => Some(Arc::clone(&reader.fill)),
        _ => None,
    };
    loop {
        let is_stored = is_kept && arriving.as_ref().is_none_or(|fill| fill.may_be_stored());
        let purpose = if is_stored { Purpose::Kept } else { Purpose::Readers };
        let Some(data) = sink.next(source.bytes(trailers), purpose).await? else { break };
        sink.input_bytes += data.len() as u64;
        let out = sink.step(PumpStep::Write(data)).await?;
        let origin = if let Body::Origin(response) = &*source { Some(&response.body) } else { None };
        let putting = sink.put(out, || origin.map_or(Pacing::Allowed, OriginBody::wait_for_client));
        match origin {
            Some(origin) => origin.pass_on(putting).await.unwrap_or(Ok(()))?,
            None => putting.await?,
        }
    }
    let rest = sink.finish().await?;
    sink.put(rest, || Pacing::Allowed).await
}

impl Sink {
    /// Waits for the next piece. If no piece arrives in time, flushes pending data.
    async fn next(
        &mut self,
        piece: impl Future<Output = Result<Option<Bytes>, BrokenBody>>,
        purpose: Purpose,
    ) -> Result<Option<Bytes>, Stopped> {
        let mut piece = pin!(piece);
        loop {
            let is_pending = self.encoder.as_ref().is_some_and(|encoder| encoder.pending_bytes() > 0);
            tokio::select! {
                biased;
                piece = &mut piece => return piece.map_err(|broken| {
                    self.fill.abort(Some(broken.reason()));
                    Stopped
                }),
                () = self.fill.nobody_reads(), if purpose == Purpose::Readers => return Err(Stopped),
                () = sleep(FLUSH_AFTER), if is_pending => {}
            }
            let out = self.step(PumpStep::Flush).await?;
            self.put(out, || Pacing::Allowed).await?;
        }
    }

    async fn step(&mut self, step: PumpStep) -> Result<Vec<u8>, Stopped> {
        let mut encoder = self.encoder.take().ok_or(Stopped)?;
        let new_bytes = if let PumpStep::Write(data) = &step { data.len() } else { 0 };
        let is_small = encoder.pending_bytes() + new_bytes < SMALL_BYTES_MAX;
        let run = move || {
            let out = match &step {
                PumpStep::Write(data) => encoder.write(data),
                PumpStep::Flush => encoder.flush(),
            };
            (encoder, out)
        };
        let (encoder, out) = if is_small { run() } else { self.place.work(run).await.ok_or(Stopped)? };
        self.encoder = Some(encoder);
        Ok(out?)
    }

    async fn finish(&mut self) -> Result<Vec<u8>, Stopped> {
        let encoder = self.encoder.take().ok_or(Stopped)?;
        let is_small = encoder.pending_bytes() < SMALL_BYTES_MAX;
        let run = move || encoder.finish();
        Ok(if is_small { run()? } else { self.place.work(run).await.ok_or(Stopped)?? })
    }

    async fn put(&mut self, out: Vec<u8>, may_wait: impl Fn() -> Pacing) -> Result<(), Stopped> {
        if out.is_empty() {
            return Ok(());
        }
        self.output_bytes += out.len() as u64;
        match self.fill.write(Bytes::from(out), may_wait).await {
            Written::Abandoned | Written::TooSlow | Written::TooLong => Err(Stopped),
            Written::Kept | Written::All | Written::NoLongerKept(_) => Ok(()),
        }
    }
}
