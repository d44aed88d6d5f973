//! A client connection: its socket and its state.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use crate::clients::{Backlog, Client};
use crate::conversation::{Context, Conversation, Pause};
use crate::endings::Ending;
use crate::limits::{Limits, OutputLimit};
use crate::output::{Output, Sent, Unsent};
use crate::pass::{LONG_BYTES, Pass};
use crate::session::Session;
use crate::shared::Shared;
use crate::strangers;
use crate::transport::{self, Transport};

/// A request larger than the limit divided by this may be refused for its size, so no keys are evicted for
/// it.
const MADE_UP_SHARE: u64 = 128;

#[derive(Debug)]
pub(crate) struct Connection {
    transport: Transport,
    conversation: Conversation,
    /// Output that the socket did not accept.
    unsent: Unsent,
    /// Memory of a request that may be refused for its size, for which no keys are evicted.
    roomless_bytes: usize,
    /// Whether the client has closed its sending direction. The socket reports no further events, so reading
    /// has to continue until the end of the input.
    is_ending: bool,
    /// Whether the client has closed both directions, so that it reads no replies.
    is_gone: bool,
    standing: Standing,
    /// Whether the connection is queued to send more of a long reply.
    pub(crate) is_sending: bool,
    /// Whether the connection is queued as unauthenticated.
    pub(crate) is_in_line: bool,
    /// Whether data was sent to the client, which it may not have read.
    was_told: bool,
    /// Whether writing stopped early, so that the socket may accept more.
    is_cut_short: bool,
    /// Size of the connection's buffers as last recorded.
    accounted_bytes: usize,
}

/// Whether the client is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Not admitted yet, and waiting since this time.
    Stranger {
        since_ms: u64,
    },
    Guest,
}

/// The next step for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// Wait for the next event.
    Wait,
    /// Continue after the other connections' turns, because there may be more input.
    Again,
    /// Continue sending a long reply, as time permits.
    Send,
    /// Continue when no other worker executes commands.
    Alone,
    /// Continue when CLIENT PAUSE has ended.
    Later,
    /// Close the connection after the client has read everything that was sent.
    Leave,
    /// Close immediately: the client is gone.
    Close,
}

/// Buffers shared by all connections of a worker.
#[derive(Debug)]
pub(crate) struct Buffers {
    pub(crate) input: Vec<u8>,
    pub(crate) output: Output,
}

impl Buffers {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self { input: vec![0; INPUT_BYTES], output: Output::of_worker(OUTPUT_BYTES, shared) }
    }
}

/// Maximum number of bytes per read: a request with a value of 64 KiB fits into one. A larger batch continues
/// after the other connections' turns.
pub(crate) const INPUT_BYTES: usize = 128 << 10;
pub(crate) const OUTPUT_BYTES: usize = 64 << 10;

/// Each write includes at most 256 KiB of a value that is decompressed for it.
const WRITES_AT_ONCE: usize = 8;

impl Connection {
    pub(crate) fn new(transport: Transport, session: Session) -> Self {
        let conversation = Conversation::new(session);
        Self {
            transport,
            conversation,
            unsent: Unsent::default(),
            roomless_bytes: 0,
            is_ending: false,
            is_gone: false,
            standing: Standing::Guest,
            is_sending: false,
            is_in_line: false,
            was_told: false,
            is_cut_short: false,
            accounted_bytes: 0,
        }
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.conversation.session.client
    }

    /// Records that the client has closed its sending direction.
    pub(crate) fn expect_end(&mut self) {
        self.is_ending = true;
    }

    /// Records that the client is gone. Its earlier requests are still executed, except long-running ones.
    pub(crate) fn expect_nobody(&mut self) {
        self.is_gone = true;
    }

    /// Returns whether the connection's turn can be deferred, because it is neither admitted nor being
    /// closed.
    pub(crate) fn can_wait(&self) -> bool {
        self.standing != Standing::Guest && !self.client().is_killed()
    }

    /// Returns whether a reply waits for memory. A client pause doesn't delay it.
    pub(crate) fn awaits_room(&self) -> bool {
        self.conversation.session.waits.is_some()
    }

    /// Returns whether no input and no output is pending.
    pub(crate) fn is_quiet(&self) -> bool {
        self.is_flushed() && !self.conversation.has_rest()
    }

    /// Performs one turn: reads once, executes the complete requests, and writes the replies.
    pub(crate) fn turn(&mut self, context: &Context<'_>, buffers: &mut Buffers, limits: &Limits) -> Then {
        let then = match self.client().is_killed() {
            false => self.go_on(context, buffers),
            true if self.was_told => Then::Leave,
            // Nothing was sent, so a reset can't discard anything that the client hasn't read.
            true => Then::Close,
        };
        if then == Then::Close {
            // Free the replies now: otherwise, they would stay in memory until the worker's next reply.
            buffers.output.clear();
        }
        buffers.output.shrink(OUTPUT_BYTES);
        self.see_standing(context);
        let unread_bytes = self.unread_bytes();
        let bytes = unread_bytes + self.unsent.held_bytes();
        // While the client doesn't read, its unsent bytes change without a change in memory.
        if bytes != self.accounted_bytes || !self.unsent.is_empty() {
            self.account(bytes, context);
        }
        match self.excess(unread_bytes, context, limits) {
            None if then == Then::Wait && self.is_cut_short => Then::Send,
            None => then,
            Some(ending) => {
                if self.client().give_up() {
                    context.shared.endings.add(ending);
                }
                Then::Leave
            }
        }
    }

    /// Updates whether the client is admitted: it may have authenticated, or sent RESET.
    pub(crate) fn see_standing(&mut self, context: &Context<'_>) {
        let is_unknown = self.conversation.is_of_stranger() && context.shared.needs_password();
        let is_stranger = is_unknown || self.transport.is_handshaking();
        if is_stranger == (self.standing == Standing::Guest) {
            self.account(0, context);
            let strangers = &context.shared.strangers;
            self.standing = match self.standing {
                Standing::Guest => {
                    strangers.add(self.client(), context.now_ms);
                    Standing::Stranger { since_ms: context.now_ms }
                }
                Standing::Stranger { since_ms } => {
                    strangers.remove(self.client(), since_ms);
                    Standing::Guest
                }
            };
        }
    }

    /// Returns the limit that the client exceeds, as the reason to close it.
    #[inline]
    fn excess(&self, unread_bytes: usize, context: &Context<'_>, limits: &Limits) -> Option<Ending> {
        if unread_bytes > limits.query_bytes_max {
            tracing::warn!(client = %self.client().ends.client, "client closed: request exceeds client-query-buffer-limit");
            return Some(Ending::Request);
        }
        // Most clients read immediately, so the check is cheap for them. Output that was deferred by the
        // server isn't counted against the client.
        if self.unsent.is_empty() || self.is_cut_short {
            None
        } else {
            self.excess_of_unsent(context, limits)
        }
    }

    fn excess_of_unsent(&self, context: &Context<'_>, limits: &Limits) -> Option<Ending> {
        let client = self.client();
        let is_listening = client.listens();
        let limit = if is_listening { &limits.messages } else { &limits.replies };
        if *limit == OutputLimit::default() {
            return None;
        }
        match client.backlog(0, limits) {
            Backlog::Fine => None,
            Backlog::Late => {
                context.shared.clients.note_late(client.id);
                None
            }
            Backlog::OverLimit => {
                tracing::warn!(client = %client.ends.client, "client closed: unread output exceeds client-output-buffer-limit");
                Some(if is_listening { Ending::Messages } else { Ending::Replies })
            }
        }
    }

    fn go_on(&mut self, context: &Context<'_>, buffers: &mut Buffers) -> Then {
        if !self.is_flushed() {
            context.statistics.writes.add(1);
            if self.flush(context.pass).is_err() {
                return Then::Close;
            }
            if !self.is_flushed() {
                return Then::Wait;
            }
        }
        if self.conversation.session.is_over {
            return Then::Leave;
        }
        if self.conversation.session.has_mail() {
            buffers.output.clear();
            self.client().take_mail(&mut buffers.output);
            if self.send(&mut buffers.output, context).is_err() {
                return Then::Close;
            }
        }
        if self.conversation.session.takes_turns() && self.is_vain(context, &mut buffers.output) {
            return Then::Close;
        }
        if !self.is_quiet() {
            let then = self.say(&[], context, &mut buffers.output);
            // If input arrived in the meantime, its event came while there was no room to read it.
            return if then == Then::Wait && self.is_quiet() { Then::Again } else { then };
        }
        self.read(context, buffers)
    }

    /// Returns whether the client is gone, so that its command need not be executed. A client that has closed
    /// its sending direction may be gone, or may still wait for its reply. The kernel detects that only when
    /// it sends something, so the first byte of the reply is sent.
    fn is_vain(&mut self, context: &Context<'_>, output: &mut Output) -> bool {
        if !self.is_gone && self.is_ending && self.conversation.session.may_begin_reply() {
            output.clear();
            output.push(b'*');
            self.conversation.session.is_reply_begun = true;
            context.statistics.output_bytes.add(output.sent_bytes() as u64);
            self.is_gone = self.send(output, context).is_err();
        }
        self.is_gone
    }

    fn read(&mut self, context: &Context<'_>, buffers: &mut Buffers) -> Then {
        let Buffers { input, output } = buffers;
        let is_guest = self.standing == Standing::Guest;
        let most = if is_guest { INPUT_BYTES } else { strangers::INPUT_BYTES_MAX };
        let input = &mut input[..most.min(context.input_bytes_max)];
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
                context.statistics.reads.add(1);
                let then = self.say(&shared[..bytes.min(shared.len())], context, output);
                // No input is read from a client that doesn't read its replies.
                let is_more = (bytes == room || self.is_ending) && self.is_flushed();
                if then == Then::Wait && is_more { Then::Again } else { then }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Then::Wait,
            Err(error) if error.kind() == ErrorKind::Interrupted => Then::Again,
            // The input was not TLS, or violated the protocol. An alert has been sent.
            Err(error) if error.kind() == ErrorKind::InvalidData => Then::Leave,
            Err(_) => Then::Close,
        }
    }

    /// Executes requests and sends the replies. While a client doesn't read its replies, its further requests
    /// wait.
    fn say(&mut self, input: &[u8], context: &Context<'_>, output: &mut Output) -> Then {
        output.clear();
        let pause = match self.standing {
            Standing::Guest => self.conversation.hear(input, context, output),
            Standing::Stranger { .. } => {
                let output_bytes_max = context.output_bytes_max.min(strangers::OUTPUT_BYTES_MAX);
                self.conversation.hear(input, &Context { output_bytes_max, ..*context }, output)
            }
        };
        // A client that reads the reply to AUTH may reconnect immediately, and must not be evicted as
        // unauthenticated.
        self.see_standing(context);
        context.statistics.output_bytes.add(output.sent_bytes() as u64);
        if self.send(output, context).is_err() {
            return Then::Close;
        }
        match pause {
            _ if !self.is_flushed() => {
                // Other clients must not wait for one that doesn't read.
                self.conversation.session.leave_line(context.shared);
                Then::Wait
            }
            Pause::Drained => Then::Wait,
            Pause::Full => Then::Again,
            Pause::Alone => Then::Alone,
            Pause::Waiting => Then::Later,
            Pause::Over => Then::Leave,
        }
    }

    /// Writes as much as the socket accepts and keeps the rest.
    fn send(&mut self, output: &mut Output, context: &Context<'_>) -> io::Result<()> {
        self.was_told |= output.sent_bytes() > 0;
        let mut sent = Sent::default();
        if !output.is_all(sent) {
            context.statistics.writes.add(1);
        }
        if self.unsent.is_empty() {
            self.is_cut_short = write(&mut self.transport, output, &mut sent, context.pass)? == Written::Some;
            if output.is_all(sent) {
                return Ok(());
            }
            self.unsent.keep(output, sent, &context.shared.pins);
            return Ok(());
        }
        self.unsent.keep(output, sent, &context.shared.pins);
        self.flush(context.pass)
    }

    fn is_flushed(&self) -> bool {
        self.unsent.is_empty() && self.transport.is_flushed()
    }

    /// Writes kept output as far as the socket accepts it.
    fn flush(&mut self, pass: Option<&Pass>) -> io::Result<()> {
        if !self.is_flushed() {
            self.is_cut_short = self.unsent.write(&mut self.transport, pass)? == Written::Some;
        }
        Ok(())
    }

    /// Bytes that were read but not yet executed, or not yet decrypted.
    fn unread_bytes(&self) -> usize {
        self.conversation.unread_bytes() + self.transport.unread_bytes()
    }

    /// Records the memory of the connection.
    fn account(&mut self, bytes: usize, context: &Context<'_>) {
        let (unread_bytes, unsent_bytes) = (self.unread_bytes(), self.unsent.bytes());
        let unread_before_bytes = self.client().facts.unread_bytes.load(Relaxed);
        let before_bytes = std::mem::replace(&mut self.accounted_bytes, bytes);
        let lent_bytes = if self.standing == Standing::Guest { unread_bytes.min(bytes) } else { 0 };
        let lent_before_bytes = std::mem::replace(&mut self.conversation.lent_bytes, lent_bytes);
        if self.standing != Standing::Guest {
            self.client().account_buffers(unread_bytes, unsent_bytes, |_| ());
            context.shared.account_stranger(before_bytes, bytes);
            return;
        }
        let has_grown = unread_bytes > unread_before_bytes;
        let is_roomless = has_grown && !self.is_worth_room(unread_bytes, context);
        self.client().account_buffers(unread_bytes, unsent_bytes, |charge| match is_roomless {
            true => charge.account_without_room(before_bytes, bytes),
            false => charge.account(before_bytes, bytes),
        });
        let roomless_bytes = match is_roomless {
            true => lent_bytes,
            false if has_grown => 0,
            false => self.roomless_bytes.min(lent_bytes),
        };
        self.keep_roomless(roomless_bytes, context);
        context.shared.account_request(lent_before_bytes, lent_bytes);
    }

    fn keep_roomless(&mut self, bytes: usize, context: &Context<'_>) {
        let before_bytes = std::mem::replace(&mut self.roomless_bytes, bytes);
        context.shared.account_roomless(before_bytes, bytes);
    }

    /// Returns whether to evict keys for the incomplete request. No keys are evicted for a request that may
    /// be refused for its size.
    fn is_worth_room(&self, unread_bytes: usize, context: &Context<'_>) -> bool {
        unread_bytes as u64 <= context.shared.engine.bytes_max() / MADE_UP_SHARE
            || !self.client().is_killed() && self.conversation.is_worth_room(context.shared)
    }

    /// Ends the connection and releases its memory.
    pub(crate) fn release(mut self, context: &Context<'_>) -> Transport {
        self.unsent = Unsent::default();
        self.account(0, context);
        if let Standing::Stranger { since_ms } = self.standing {
            context.shared.strangers.remove(self.client(), since_ms);
        }
        self.conversation.session.leave_for_good(context.shared);
        context.shared.forget(self.client());
        self.transport
    }
}

/// The part of an output that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// Everything, or as much as the socket accepts.
    Possible,
    /// A part: the socket may accept more after other connections' turns.
    Some,
}

/// Writes until the socket accepts no more. The number of writes is limited, so that clients that read as
/// fast as the server sends can't monopolise the worker, alone or together.
pub(crate) fn write(
    transport: &mut Transport,
    output: &mut Output,
    sent: &mut Sent,
    pass: Option<&Pass>,
) -> io::Result<Written> {
    for _ in 0..WRITES_AT_ONCE {
        if output.is_all(*sent) {
            break;
        }
        if output.sent_bytes() >= LONG_BYTES && pass.is_some_and(|pass| pass.is_over(Instant::now())) {
            break;
        }
        let written = if output.has_values() {
            transport.write_vectored(&output.next_slices(*sent))
        } else {
            transport.write(output.bytes_from(*sent))
        };
        match written {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(more) => output.advance(sent, more),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                transport.flush()?;
                return Ok(Written::Possible);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    transport.flush()?;
    Ok(if output.is_all(*sent) { Written::Possible } else { Written::Some })
}
