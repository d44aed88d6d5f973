//! One client: its socket, and what is under way on it.

use std::io::{self, ErrorKind, IoSlice};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::clients::Client;
use crate::conversation::{Context, Conversation, Pause};
use crate::limits::Limits;
use crate::session::Session;
use crate::transport::{self, Transport};

/// Growth of what is unread for which keys make room at once: that of a long value. What is less can wait for the next write, which is nearer.
const MADE_UP_FROM: usize = 64 << 10;
/// A request that takes more than one in so many bytes of the limit waits for the next write too: it may be refused for its size, and nothing is
/// to be evicted for it then.
const MADE_UP_SHARE: u64 = 128;

#[derive(Debug)]
pub(crate) struct Connection {
    transport: Transport,
    conversation: Conversation,
    /// What the socket did not take.
    unsent: Vec<u8>,
    sent: usize,
    /// An event told that the client sends no more: no other will, so what was read is not all until the end is read too.
    is_ending: bool,
    /// Of its buffers, as the server knows them.
    accounted_bytes: usize,
}

/// What is to become of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// Wait for the next event.
    Wait,
    /// There may be more: go on when others had their turn.
    Again,
    /// Go on when no other worker executes commands.
    Alone,
    /// Go on when CLIENT PAUSE is over.
    Later,
    Close,
}

/// Buffers that all connections of a worker share.
#[derive(Debug)]
pub(crate) struct Buffers {
    pub(crate) input: Vec<u8>,
    pub(crate) output: Vec<u8>,
}

impl Connection {
    pub(crate) fn new(transport: Transport, session: Session) -> Self {
        let conversation = Conversation::new(session);
        Self { transport, conversation, unsent: Vec::new(), sent: 0, is_ending: false, accounted_bytes: 0 }
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.conversation.session.client
    }

    /// The client has said its last, or is gone.
    pub(crate) fn expect_end(&mut self) {
        self.is_ending = true;
    }

    /// Whether nothing is under way that was read.
    pub(crate) fn is_quiet(&self) -> bool {
        self.is_flushed() && !self.conversation.has_rest()
    }

    /// Reads once, executes what is there, and writes the replies.
    pub(crate) fn turn(&mut self, context: &Context<'_>, buffers: &mut Buffers, limits: &Limits) -> Then {
        let then = if self.client().is_killed() { Then::Close } else { self.go_on(context, buffers) };
        let bytes = self.conversation.unread_bytes() + self.unsent.capacity();
        if bytes != self.accounted_bytes {
            self.account(bytes, context);
        }
        if self.conversation.unread_bytes() > limits.query_bytes_max {
            tracing::warn!(client = %self.client().ends.client, "closed: its request is above the limit of the query buffer");
            return Then::Close;
        }
        then
    }

    fn go_on(&mut self, context: &Context<'_>, buffers: &mut Buffers) -> Then {
        if !self.flush() {
            return Then::Close;
        }
        if !self.is_flushed() {
            return Then::Wait;
        }
        if self.client().has_mail() {
            buffers.output.clear();
            context.shared.take_mail(self.client(), &mut buffers.output);
            if !self.send(&[&buffers.output]) {
                return Then::Close;
            }
        }
        if !self.is_quiet() {
            let then = self.say(&[], context, &mut buffers.output);
            // What came meanwhile had its event while there was no room to read it.
            return if then == Then::Wait && self.is_quiet() { Then::Again } else { then };
        }
        self.read(context, buffers)
    }

    fn read(&mut self, context: &Context<'_>, buffers: &mut Buffers) -> Then {
        let Buffers { input, output } = buffers;
        let input = &mut input[..context.input_bytes_max];
        let body =
            self.transport.plain().and_then(|socket| Some((socket, self.conversation.room(input.len())?)));
        let (read, room, shared) = match body {
            Some((socket, body)) => {
                let room = body.capacity() - body.len();
                (transport::read_behind(socket, body), room, &[][..])
            }
            None => (self.transport.read(input), input.len(), &*input),
        };
        match read {
            Ok(0) => Then::Close,
            Ok(bytes) => {
                context.statistics.input_bytes.add(bytes as u64);
                let then = self.say(&shared[..bytes.min(shared.len())], context, output);
                // A client that does not read its replies is waited for, whatever it has sent.
                let is_more = (bytes == room || self.is_ending) && self.is_flushed();
                if then == Then::Wait && is_more { Then::Again } else { then }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Then::Wait,
            Err(error) if error.kind() == ErrorKind::Interrupted => Then::Again,
            Err(_) => Then::Close,
        }
    }

    /// Executes and replies. A client that does not read its replies waits with what else it has asked.
    fn say(&mut self, input: &[u8], context: &Context<'_>, output: &mut Vec<u8>) -> Then {
        output.clear();
        let pause = self.conversation.hear(input, context, output);
        let is_sent = match self.conversation.take_value() {
            None => self.send(&[output]),
            Some(value) => self.send(&[output, &value, b"\r\n"]),
        };
        context.statistics.output_bytes.add(output.len() as u64);
        if !is_sent {
            return Then::Close;
        }
        match pause {
            _ if !self.is_flushed() => Then::Wait,
            Pause::Drained => Then::Wait,
            Pause::Full => Then::Again,
            Pause::Alone => Then::Alone,
            Pause::Waiting => Then::Later,
            Pause::Over => Then::Close,
        }
    }

    /// Writes what the socket takes, and keeps the rest; whether the client is there.
    fn send<const N: usize>(&mut self, parts: &[&[u8]; N]) -> bool {
        let is_behind = !self.unsent.is_empty();
        let Ok(mut sent) = (if is_behind { Ok(0) } else { write(&mut self.transport, parts) }) else {
            return false;
        };
        for part in parts {
            let sent_of_part = sent.min(part.len());
            sent -= sent_of_part;
            self.unsent.extend_from_slice(&part[sent_of_part..]);
        }
        !is_behind || self.flush()
    }

    fn is_flushed(&self) -> bool {
        self.unsent.is_empty() && self.transport.is_flushed()
    }

    /// Writes what was kept; whether the client is there, and there is more to say to it.
    fn flush(&mut self) -> bool {
        if self.is_flushed() {
            return true;
        }
        let Ok(sent) = write(&mut self.transport, &[&self.unsent[self.sent..]]) else { return false };
        self.sent += sent;
        if self.sent == self.unsent.len() {
            (self.unsent, self.sent) = (Vec::new(), 0);
        }
        !(self.is_flushed() && self.conversation.session.is_over)
    }

    /// Tells the server how much memory it takes.
    fn account(&mut self, bytes: usize, context: &Context<'_>) {
        let unread_bytes = self.conversation.unread_bytes();
        let facts = &self.client().facts;
        let unread_before_bytes = facts.unread_bytes.swap(unread_bytes, Relaxed);
        facts.unsent_bytes.store(self.unsent.len() - self.sent, Relaxed);
        context.shared.account(self.accounted_bytes, bytes);
        self.accounted_bytes = bytes;
        let is_large = unread_bytes as u64 > context.shared.engine.bytes_max() / MADE_UP_SHARE;
        if unread_bytes >= unread_before_bytes + MADE_UP_FROM && !is_large {
            context.shared.make_up(context.now_ms);
        }
    }

    /// The connection ends: its memory is free again.
    pub(crate) fn release(mut self, context: &Context<'_>) -> Transport {
        self.account(0, context);
        self.conversation.session.leave(context.shared);
        context.shared.forget(self.client());
        self.transport
    }
}

/// Writes until the socket takes no more; how much it took of all parts together.
fn write<const N: usize>(transport: &mut Transport, parts: &[&[u8]; N]) -> io::Result<usize> {
    let bytes = parts.iter().map(|part| part.len()).sum();
    let mut slices = parts.map(IoSlice::new);
    let (mut rest, mut sent) = (&mut slices[..], 0);
    while sent < bytes {
        let written = match &*rest {
            [only] => transport.write(only),
            several => transport.write_vectored(several),
        };
        match written {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(more) => {
                IoSlice::advance_slices(&mut rest, more);
                sent += more;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    transport.flush()?;
    Ok(sent)
}
