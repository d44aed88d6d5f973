//! HTTP/2 on one connection, with the crate `h2` over bytes in memory.
//!
//! The crate is asynchronous and needs a socket. It gets a [`Pipe`] instead, and is polled when bytes arrive or requests are to
//! be sent, so the worker's loop needs no runtime. Windows are as large as possible, server push is refused, and the header
//! table for responses has size 0, so that a response costs the generator little.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use bytes::{Buf as _, Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use h2::RecvStream;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::codec::{Answer, HttpCodec, Sink};
use super::prepare::Prepared;
use crate::drive::{Codec, Malformed, Pending, Then};

const WINDOW_MAX: u32 = (1 << 31) - 1;
const MALFORMED: Malformed = Malformed("bytes that aren't HTTP/2");

#[derive(Debug)]
pub(super) struct H2 {
    depth: usize,
    pipe: Pipe,
    session: Option<Session>,
    exchanges: FuturesUnordered<Exchange>,
    /// Requests that the connection refused, or that failed without a reset, such as after GOAWAY.
    left: Vec<Pending>,
    woken: Arc<Woken>,
    has_heard: bool,
}

/// An open connection.
#[derive(Debug)]
struct Session {
    requests: SendRequest<Bytes>,
    connection: Connection<Pipe, Bytes>,
    /// Whether no further request is sent.
    is_closing: bool,
    end: Option<Result<Then, Malformed>>,
}

impl H2 {
    pub(super) fn new(depth: usize) -> Self {
        Self {
            depth,
            pipe: Pipe::default(),
            session: None,
            exchanges: FuturesUnordered::new(),
            left: Vec::new(),
            woken: Arc::default(),
            has_heard: false,
        }
    }

    /// Polls the crate with the received bytes until it makes no further progress.
    fn advance(&mut self, sink: &mut dyn Sink) {
        let waker = Waker::from(Arc::clone(&self.woken));
        let cx = &mut Context::from_waker(&waker);
        self.woken.0.store(true, Ordering::Relaxed);
        while self.woken.0.swap(false, Ordering::Relaxed) {
            if let Some(session) = &mut self.session {
                session.poll(cx);
            }
            while let Poll::Ready(Some((pending, outcome))) = self.exchanges.poll_next_unpin(cx) {
                self.go_on(pending, outcome, sink);
            }
        }
    }

    fn go_on(&mut self, pending: Pending, outcome: Outcome, sink: &mut dyn Sink) {
        match outcome {
            Outcome::Head(status, body) => {
                sink.first_byte(pending);
                if body.is_end_stream() {
                    sink.answered(pending, Answer::Status(status));
                } else {
                    self.exchanges.push(Exchange { pending, step: Step::Body(status, body) });
                }
            }
            Outcome::Whole(status) => sink.answered(pending, Answer::Status(status)),
            Outcome::Failed(error) if error.is_reset() => sink.answered(pending, Answer::Reset),
            Outcome::Failed(_) => self.left.push(pending),
        }
    }
}

impl Session {
    fn poll(&mut self, cx: &mut Context<'_>) {
        if self.end.is_none()
            && let Poll::Ready(ended) = Pin::new(&mut self.connection).poll(cx)
        {
            self.end = Some(match ended {
                Err(error) if !(error.is_go_away() && error.is_remote()) => Err(MALFORMED),
                _ => Ok(Then::Close),
            });
        }
        self.is_closing |= self.end.is_some() || matches!(self.requests.poll_ready(cx), Poll::Ready(Err(_)));
    }
}

impl Codec for H2 {
    fn open(&mut self, out: &mut Vec<u8>) {
        let mut builder = Builder::new();
        builder.enable_push(false).header_table_size(0);
        builder.initial_window_size(WINDOW_MAX).initial_connection_window_size(WINDOW_MAX);
        let handshake = std::pin::pin!(builder.handshake(self.pipe.clone()));
        if let Poll::Ready(Ok((requests, connection))) =
            handshake.poll(&mut Context::from_waker(Waker::noop()))
        {
            self.session = Some(Session { requests, connection, is_closing: false, end: None });
        }
        self.flush(out);
    }

    fn is_ready(&self) -> bool {
        self.has_heard
    }

    fn room(&self) -> usize {
        let open = self.session.as_ref().filter(|session| !session.is_closing && self.has_heard);
        let streams = open.map_or(0, |session| session.requests.current_max_send_streams());
        self.depth.min(streams).saturating_sub(self.exchanges.len())
    }

    fn oldest(&self) -> Option<Instant> {
        self.exchanges
            .iter()
            .map(|exchange| &exchange.pending)
            .chain(&self.left)
            .map(|pending| pending.sent)
            .min()
    }

    fn flush(&mut self, out: &mut Vec<u8>) {
        let waker = Waker::from(Arc::clone(&self.woken));
        if let Some(session) = &mut self.session {
            session.poll(&mut Context::from_waker(&waker));
        }
        out.append(&mut self.pipe.bytes().output);
    }

    fn give_up(&mut self) -> Vec<Pending> {
        let fresh = Self::new(self.depth);
        let Self { exchanges, mut left, .. } = std::mem::replace(self, fresh);
        left.extend(exchanges.into_iter().map(|exchange| exchange.pending));
        left.sort_by_key(|pending| pending.sent);
        left
    }
}

impl HttpCodec for H2 {
    fn begin(&mut self, pending: Pending, prepared: &Prepared, _out: &mut Vec<u8>) {
        let has_body = !prepared.payload.is_empty();
        let request = prepared.request.clone().expect("the load is of HTTP/2");
        let sent = self.session.as_mut().map(|session| session.requests.send_request(request, !has_body));
        let Some(Ok((response, mut body))) = sent else { return self.left.push(pending) };
        if has_body && body.send_data(prepared.payload.clone(), true).is_err() {
            return self.left.push(pending);
        }
        self.exchanges.push(Exchange { pending, step: Step::Head(response) });
    }

    fn receive(&mut self, input: &[u8], sink: &mut dyn Sink, out: &mut Vec<u8>) -> Result<Then, Malformed> {
        self.pipe.bytes().input.extend_from_slice(input);
        self.advance(sink);
        out.append(&mut self.pipe.bytes().output);
        self.has_heard = true;
        let Some(session) = &self.session else { return Err(MALFORMED) };
        match session.end {
            Some(end) => end,
            None if session.is_closing && self.exchanges.is_empty() => Ok(Then::Close),
            None => Ok(Then::GoOn),
        }
    }
}

/// A request and its response.
#[derive(Debug)]
struct Exchange {
    pending: Pending,
    step: Step,
}

#[derive(Debug)]
enum Step {
    Head(ResponseFuture),
    Body(u16, RecvStream),
}

enum Outcome {
    Head(u16, RecvStream),
    Whole(u16),
    Failed(h2::Error),
}

impl Future for Exchange {
    type Output = (Pending, Outcome);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = match &mut self.step {
            Step::Head(response) => match std::task::ready!(Pin::new(response).poll(cx)) {
                Ok(response) => Outcome::Head(response.status().as_u16(), response.into_body()),
                Err(error) => Outcome::Failed(error),
            },
            Step::Body(status, body) => std::task::ready!(drain(*status, body, cx)),
        };
        Poll::Ready((self.pending, outcome))
    }
}

/// Skips the body.
fn drain(status: u16, body: &mut RecvStream, cx: &mut Context<'_>) -> Poll<Outcome> {
    loop {
        match std::task::ready!(body.poll_data(cx)) {
            Some(Ok(data)) => match body.flow_control().release_capacity(data.len()) {
                Ok(()) => {}
                Err(error) => return Poll::Ready(Outcome::Failed(error)),
            },
            Some(Err(error)) => return Poll::Ready(Outcome::Failed(error)),
            None => return Poll::Ready(Outcome::Whole(status)),
        }
    }
}

/// A waker that sets a flag.
#[derive(Debug, Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Bytes from the socket and for the socket.
#[derive(Clone, Debug, Default)]
struct Pipe(Arc<Mutex<PipeBytes>>);

#[derive(Debug, Default)]
struct PipeBytes {
    input: BytesMut,
    output: Vec<u8>,
}

impl Pipe {
    fn bytes(&self) -> MutexGuard<'_, PipeBytes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsyncRead for Pipe {
    fn poll_read(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let input = &mut self.bytes().input;
        let length = input.len().min(buffer.remaining());
        if length == 0 {
            return Poll::Pending;
        }
        buffer.put_slice(&input[..length]);
        input.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(self: Pin<&mut Self>, _cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.bytes().output.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
