//! The protocol state of a connection without its socket: bytes in, replies out.

use std::array::from_fn;
use std::ops::Range;
use std::sync::Arc;

use arrayvec::ArrayVec;
use engine::{Batch, Database};
use resp::{Arguments, DecodeError, Limits, Problem, RequestScanner, ShortScanner};

use crate::body::Body;
use crate::command::{self, Done, Executed, Form, Isolation, Plain};
use crate::endings::Ending;
use crate::output::Output;
use crate::pass::Pass;
use crate::reply::Reply;
use crate::separated::{self, MessageScanner, Text, TextProtocol};
use crate::session::{Gates, Session};
use crate::shared::Shared;
use crate::statistics::Statistics;
use crate::strangers;

#[derive(Debug)]
pub(crate) struct Conversation {
    pub(crate) session: Session,
    scanner: RequestScanner,
    messages: MessageScanner,
    /// Input read but not executed: an incomplete request, or requests that wait.
    unread: Vec<u8>,
    /// A long argument of the first unread request, stored apart from `unread` and detached from the scanner.
    /// At least its header has arrived.
    body: Option<Body>,
    /// The reason why unread requests wait.
    pause: Pause,
    /// Whether the limits for unauthenticated clients apply.
    is_limited: bool,
    /// Unread bytes that are charged to the engine. Bytes of unauthenticated clients are not charged.
    pub(crate) lent_bytes: usize,
}

/// The reason why execution stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pause {
    /// All complete requests were executed.
    #[default]
    Drained,
    /// The output is full and has to be sent first.
    Full,
    /// The next command needs to run while no other worker executes commands.
    Alone,
    /// The next command waits for the end of CLIENT PAUSE.
    Waiting,
    /// The connection is over: nothing more is executed.
    Over,
}

/// The environment of a turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) shared: &'a Shared,
    /// Statistics of the worker.
    pub(crate) statistics: &'a Statistics,
    pub(crate) isolation: Isolation,
    /// Output size at which execution stops until replies are sent.
    pub(crate) output_bytes_max: usize,
    /// Maximum number of bytes per read.
    pub(crate) input_bytes_max: usize,
    /// The command's argument in its own buffer, which can become the stored value.
    pub(crate) body: Option<&'a Arc<Vec<u8>>>,
    /// Deadline for starting long work; without it, there is no limit.
    pub(crate) pass: Option<&'a Pass>,
    pub(crate) now_ms: u64,
}

impl Conversation {
    pub(crate) fn new(session: Session) -> Self {
        let scanner = RequestScanner::new(Limits::default());
        Self {
            session,
            scanner,
            messages: MessageScanner::default(),
            unread: Vec::new(),
            body: None,
            pause: Pause::Drained,
            is_limited: false,
            lent_bytes: 0,
        }
    }

    /// Executes the complete requests in `unread` and `input`, and keeps the rest.
    pub(crate) fn hear(&mut self, input: &[u8], context: &Context<'_>, output: &mut Output) -> Pause {
        // Another client may have sent SWAPDB since the last turn, but can't during this one.
        self.session.choose(self.session.chosen, &context.shared.databases);
        self.session.see(context.shared.interests.flags());
        // The password may have been removed in the meantime.
        if self.is_of_stranger() && !context.shared.needs_password() {
            self.session.gates.open(Gates::PASSWORD);
        }
        if self.unread.is_empty() {
            let executed = self.execute_all(input, context, output);
            if executed < input.len() {
                self.keep(&input[executed..], context);
            }
        } else {
            self.hear_rest(input, context, output);
        }
        if !context.shared.interests.flags().are_indifferent() {
            context.shared.end_batch();
            self.take_mail(output);
        }
        self.publish(context);
        self.scanner.shrink();
        self.pause
    }

    /// The buffer to read into while a long argument is arriving.
    #[inline]
    pub(crate) fn room(&mut self, read_bytes_max: usize) -> Option<&mut Vec<u8>> {
        self.body.as_mut()?.room(read_bytes_max)
    }

    /// Returns whether requests may be waiting for execution.
    pub(crate) fn has_rest(&self) -> bool {
        matches!(self.pause, Pause::Full | Pause::Alone | Pause::Waiting)
    }

    /// Returns whether the client still has to authenticate.
    #[inline]
    pub(crate) fn is_of_stranger(&self) -> bool {
        self.session.gates.is_closed(Gates::PASSWORD)
    }

    pub(crate) fn unread_bytes(&self) -> usize {
        let body_bytes = self.body.as_ref().map_or(0, |body| body.bytes.capacity());
        self.unread.capacity() + body_bytes + self.session.queued_bytes() + self.scanner.kept_bytes()
    }

    /// Continues [`Self::hear`] when there is unread input.
    fn hear_rest(&mut self, input: &[u8], context: &Context<'_>, output: &mut Output) {
        let rest = self.body.as_mut().map_or(input, |body| body.take(input));
        if self.body.as_ref().is_some_and(|body| body.missing() > 0) {
            return;
        }
        let mut unread = std::mem::take(&mut self.unread);
        if unread.capacity() - unread.len() < rest.len() {
            // A request with many values may take half of the memory, so doubling the buffer would be too
            // much.
            unread.reserve_exact(rest.len().max(unread.len() / UNREAD_AHEAD));
        }
        unread.extend_from_slice(rest);
        let executed = self.execute_all(&unread, context, output);
        if executed < unread.len() {
            unread.drain(..executed);
            let elsewhere = self.begin_body(&unread, context);
            unread.drain(elsewhere);
            if unread.capacity() / UNREAD_SPARE > unread.len().max(UNREAD_BYTES_KEPT) {
                unread.shrink_to_fit();
            }
            self.unread = unread;
        }
    }

    /// Keeps the bytes after the last complete request.
    fn keep(&mut self, rest: &[u8], context: &Context<'_>) {
        let elsewhere = self.begin_body(rest, context);
        self.unread.extend_from_slice(&rest[..elsewhere.start]);
        self.unread.extend_from_slice(&rest[elsewhere.end..]);
    }

    /// Moves an incomplete long argument to its own buffer, and returns the range of its bytes in `request`.
    fn begin_body(&mut self, request: &[u8], context: &Context<'_>) -> Range<usize> {
        let begun = self.scanner.begun().filter(|begun| Body::is_wanted(begun, context.input_bytes_max));
        let (None, Some(begun)) = (&self.body, begun) else { return 0..0 };
        let (body, there) = Body::begin(begun, request, context.input_bytes_max);
        self.scanner.detach();
        self.body = Some(body);
        there
    }

    /// Executes all complete requests, and returns their length in bytes.
    fn execute_all(&mut self, input: &[u8], context: &Context<'_>, output: &mut Output) -> usize {
        let mut at = 0;
        self.pause = loop {
            if self.session.is_over {
                break Pause::Over;
            }
            if output.len() >= context.output_bytes_max || self.session.has_taken_long.take() {
                break Pause::Full;
            }
            at += self.run_plain(&input[at..], context, output);
            if at == input.len() {
                break Pause::Drained;
            }
            if output.is_to_be_sent(context.output_bytes_max) {
                break Pause::Full;
            }
            if is_text(&input[at..], context) {
                let Some(message) = self.messages.scan(&input[at..]) else {
                    break self.await_message(input.len() - at, context.shared, output);
                };
                if is_http(message) {
                    break self.leave_http(context);
                }
                match separated::execute(message, &mut self.session, context, output) {
                    Done::Yes => at += message.len() + 1,
                    Done::NotAlone => break Pause::Alone,
                    Done::NotNow => break Pause::Waiting,
                    Done::NotYet => break Pause::Full,
                }
                continue;
            }
            match self.execute_request(&input[at..], context, output) {
                Ok(bytes) => at += bytes,
                Err(pause) => break pause,
            }
            self.take_mail(output);
        };
        if self.session.is_over { input.len() } else { at }
    }

    /// Executes the request at the beginning of `input`. Returns its length in bytes, or the reason why it
    /// waits.
    fn execute_request(
        &mut self,
        input: &[u8],
        context: &Context<'_>,
        output: &mut Output,
    ) -> Result<usize, Pause> {
        if self.is_limited != self.is_of_stranger() {
            self.limit_requests();
        }
        let mut reply = Reply { out: output, version: self.session.version };
        let (bytes, done) = match self.scanner.scan(input) {
            Ok(None) => return self.await_request(input.len(), context, output),
            Ok(Some(arguments)) if arguments.at(0).is_some_and(is_http) => {
                return Err(self.leave_http(context));
            }
            Ok(Some(arguments)) => {
                let (session, body) = (&mut self.session, &mut self.body);
                (
                    arguments.bytes,
                    execute_with(body, self.lent_bytes, arguments, session, context, &mut reply),
                )
            }
            Err(error) => {
                reply.error(&protocol_error(&error, input));
                self.session.is_over = true;
                return Ok(0);
            }
        };
        match done {
            Done::Yes => Ok(bytes),
            Done::NotAlone => Err(self.wait(input, Pause::Alone)),
            Done::NotNow => Err(self.wait(input, Pause::Waiting)),
            Done::NotYet => Err(self.wait(input, Pause::Full)),
        }
    }

    /// Applies smaller limits to requests of unauthenticated clients.
    fn limit_requests(&mut self) {
        self.is_limited = self.is_of_stranger();
        self.scanner.set_limits(if self.is_limited { strangers::limits() } else { Limits::default() });
    }

    /// Waits for the rest of a request, unless its announced size could never be stored.
    fn await_request(
        &mut self,
        there_bytes: usize,
        context: &Context<'_>,
        output: &mut Output,
    ) -> Result<usize, Pause> {
        let announced_bytes = self.scanner.begun().map_or(0, |begun| begun.at.saturating_add(begun.length));
        let bytes = there_bytes.max(announced_bytes).saturating_add(self.long_bytes());
        if self.is_limited || self.may_take(bytes, context.shared) {
            return Err(Pause::Drained);
        }
        tracing::warn!(client = %self.session.client.ends.client, "client closed: request too large for maxmemory");
        context.shared.endings.add(Ending::Request);
        Reply { out: output, version: self.session.version }.error(NO_ROOM_FOR_REQUEST);
        self.session.is_over = true;
        Ok(0)
    }

    /// Returns whether a request of this announced size could fit into memory. A single value becomes the
    /// stored value; several are copied.
    fn may_take(&self, bytes: usize, shared: &Shared) -> bool {
        bytes <= REQUEST_BYTES_LEAST
            || if self.has_one_value() {
                shared.could_take_request(bytes)
            } else {
                bytes as u64 <= shared.engine.bytes_max() / 2
            }
    }

    /// Returns whether the first unread request has at most one long value, judged by the number of its
    /// arguments: SET has no more.
    fn has_one_value(&self) -> bool {
        let (there, missing) = self.scanner.progress();
        there + missing <= ONE_VALUE_ARGUMENTS
    }

    /// Returns whether the unread request is expected to fit into memory when it is complete. If so, keys are
    /// evicted while it arrives.
    pub(crate) fn is_worth_room(&self, shared: &Shared) -> bool {
        let (there, missing) = self.scanner.progress();
        let all = there + missing;
        if all == 0 {
            return self.session.queued_bytes() > 0;
        }
        if self.has_one_value() {
            return true;
        }
        // Assume that the other arguments are as long as those that have arrived, and that each is copied.
        let is_begun = self.body.as_ref().is_some_and(|body| body.missing() > 0);
        let known = (there + usize::from(is_begun)).saturating_sub(1).max(1);
        let known_bytes = self.unread.len() + self.long_bytes();
        shared.could_take_request((known_bytes / known).saturating_mul(all - 1).saturating_mul(2))
    }

    /// Final length of the argument that is stored apart.
    fn long_bytes(&self) -> usize {
        self.body.as_ref().map_or(0, |body| body.begun.length)
    }

    /// Waits for the rest of a message of the 0x1F protocol. The protocol announces no lengths, so a message
    /// may take half of the memory.
    fn await_message(&mut self, bytes: usize, shared: &Shared, output: &mut Output) -> Pause {
        let refused: &[u8] = match self.is_of_stranger() {
            true if bytes > strangers::MESSAGE_BYTES_MAX => b"NOAUTH Authentication required.",
            false if bytes > REQUEST_BYTES_LEAST && bytes as u64 > shared.engine.bytes_max() / 2 => {
                b"Internal error"
            }
            _ => return Pause::Drained,
        };
        separated::reply_error(output, refused);
        self.session.is_over = true;
        Pause::Over
    }

    /// Ends the connection of a browser that sends HTTP: a web page may have caused the request
    /// (cross-protocol attack).
    fn leave_http(&mut self, context: &Context<'_>) -> Pause {
        context.shared.note_http(&self.session.client, context.now_ms);
        self.session.is_over = true;
        Pause::Over
    }

    /// Rewinds the scanner to the beginning of the request, and detaches its long argument again.
    fn wait(&mut self, request: &[u8], pause: Pause) -> Pause {
        if let Some(body) = &self.body {
            let scanned = self.scanner.scan(&request[..body.begun.at]);
            debug_assert!(matches!(scanned, Ok(None)), "its argument has not arrived");
            self.scanner.detach();
        }
        pause
    }

    /// Runs [`Self::execute_plain`], and measures some of the runs.
    fn run_plain(&mut self, input: &[u8], context: &Context<'_>, output: &mut Output) -> usize {
        let is_text = is_text(input, context);
        if context.shared.slow.wants_all() || !is_text && !ShortScanner::may_find(input) {
            return 0;
        }
        let (begin, before) = (context.statistics.begin_run(), self.session.tally);
        let bytes = if is_text {
            if self.messages.is_at_begin() { self.execute_plain(&Text, input, context, output) } else { 0 }
        } else {
            self.scanner.short().map_or(0, |scanner| self.execute_plain(&scanner, input, context, output))
        };
        if let Some(begin) = begin {
            let (before, after) = (before.calls(), self.session.tally.calls());
            let number = |at: usize| context.shared.table.number(command::PLAIN_COMMANDS[at]);
            context.statistics.end_run(begin, from_fn(|at| (number(at), after[at] - before[at])));
        }
        bytes
    }

    /// Executes the plain requests at the beginning of `input`, and returns their length in bytes.
    fn execute_plain<F: Form>(
        &mut self,
        form: &F,
        input: &[u8],
        context: &Context<'_>,
        output: &mut Output,
    ) -> usize {
        let mut batch = context.shared.engine.batch();
        let cluster = context.shared.cluster.as_ref();
        let (mut ahead, mut at) = (ArrayVec::new(), 0);
        while self.session.gates.are_open_for_plain() {
            look_ahead(&input[at..], form, self.session.database, &mut batch, &mut ahead);
            for plain in &ahead {
                if output.len() >= context.output_bytes_max {
                    return at;
                }
                if cluster.is_some_and(|cluster| !cluster.has(plain.key.bytes())) {
                    return at;
                }
                match plain.execute::<F>(&mut batch, &mut self.session, output, context) {
                    Executed::Yes => at += plain.bytes(),
                    Executed::Told => {
                        at += plain.bytes();
                        batch.release();
                        context.shared.settle();
                    }
                    Executed::Large => return at + plain.bytes(),
                    Executed::No => return at,
                }
                self.take_mail(output);
            }
            if !ahead.is_full() {
                break;
            }
        }
        at
    }

    /// Appends posted messages, which may include some that the command posted to its own client.
    fn take_mail(&self, output: &mut Output) {
        if self.session.has_mail() {
            self.session.client.take_mail(output);
        }
    }

    fn publish(&mut self, context: &Context<'_>) {
        context.shared.changed(self.session.changes.take());
        let tally = std::mem::take(&mut self.session.tally);
        context.statistics.count_plain(tally, |at| context.shared.table.number(command::PLAIN_COMMANDS[at]));
        self.session.publish(|command| context.shared.table.number(command), context.now_ms);
    }
}

/// Executes a request whose long argument has its own buffer, if there is one. Afterwards the argument is
/// dropped, or is a stored value.
fn execute_with(
    body: &mut Option<Body>,
    lent_bytes: usize,
    arguments: Arguments<'_>,
    session: &mut Session,
    context: &Context<'_>,
    reply: &mut Reply<'_>,
) -> Done {
    let Some(Body { begun, bytes }) = body.take() else {
        return command::execute(&arguments, session, context, reply);
    };
    let bytes = Arc::new(bytes);
    let arguments = arguments.with(begun.index, &bytes);
    let context = Context { body: Some(&bytes), ..*context };
    let handed_over = context.shared.engine.hand_over(lent_bytes.min(bytes.capacity()));
    let done = command::execute(&arguments, session, &context, reply);
    drop(handed_over);
    if done != Done::Yes {
        *body = Some(Body { begun, bytes: Arc::unwrap_or_clone(bytes) });
    }
    done
}

/// Number of requests scanned before the first of them is executed: enough to hide the latency of prefetching
/// their keys, and few enough for the prefetched lines to stay cached.
const AHEAD: usize = 32;

/// Scans the plain requests at the beginning of `input` and prefetches their keys.
#[inline]
fn look_ahead<'a>(
    mut input: &'a [u8],
    form: &impl Form,
    database: Database,
    batch: &mut Batch<'_>,
    ahead: &mut ArrayVec<Plain<'a>, AHEAD>,
) {
    ahead.clear();
    while !ahead.is_full() {
        let Some(short) = form.short(input) else { break };
        let Some(plain) = Plain::of(&short, batch, database) else { break };
        input = &input[plain.bytes()..];
        ahead.push(plain);
    }
    ahead.iter_mut().for_each(|plain| plain.prefetch_item(batch));
}

/// Returns whether the next message uses the 0x1F protocol. A message that begins with `*` uses the Redis
/// protocol.
#[inline]
fn is_text(input: &[u8], context: &Context<'_>) -> bool {
    context.shared.text == TextProtocol::UnitSeparator && input.first().is_some_and(|first| *first != b'*')
}

/// Recognises HTTP from a browser: the method POST, or the Host header field, which every request has.
/// Neither is a command.
fn is_http(name: &[u8]) -> bool {
    let is_post = |name: &[u8]| name.eq_ignore_ascii_case(b"post");
    is_post(name)
        || name.eq_ignore_ascii_case(b"host:")
        // A message of the 0x1F protocol includes its arguments.
        || name.split_first_chunk::<4>().is_some_and(|(verb, rest)| is_post(verb) && rest.first() == Some(&b' '))
}

/// The server waits for requests up to this size regardless of the memory limit.
const REQUEST_BYTES_LEAST: usize = 64 << 10;
/// Maximum number of arguments of SET: a key, a value and all options.
const ONE_VALUE_ARGUMENTS: usize = 8;
const NO_ROOM_FOR_REQUEST: &str = "OOM the request is too large for maxmemory";
/// The unread buffer grows by at least its length divided by this.
const UNREAD_AHEAD: usize = 4;

/// The unread buffer shrinks when its capacity exceeds its length by this factor, unless it is smaller than
/// `UNREAD_BYTES_KEPT`.
const UNREAD_SPARE: usize = 4;
const UNREAD_BYTES_KEPT: usize = 256 << 10;

/// Returns the error text of Redis, which clients match on.
fn protocol_error(error: &DecodeError, request: &[u8]) -> String {
    let error = &match error.problem {
        // Errors that don't depend on authentication take precedence.
        Problem::ElementsOverLimit { .. } | Problem::BulkOverLimit { .. } => {
            let limits = Limits { elements_max: i32::MAX as usize, ..Limits::default() };
            let other = RequestScanner::new(limits).scan(request).err();
            other.filter(|other| other.at <= error.at).unwrap_or(*error)
        }
        _ => *error,
    };
    let strangers = strangers::limits();
    let is_array = request.first() == Some(&b'*');
    let what = match error.problem {
        Problem::NotBulk => {
            let byte = request.get(error.at).copied().unwrap_or_default();
            return format!("ERR Protocol error: expected '$', got '{}'", char::from(byte));
        }
        Problem::Quote => "unbalanced quotes in request",
        Problem::LineOverLimit { .. } if !is_array => "too big inline request",
        Problem::LineOverLimit { .. } if error.at < 2 => "too big mbulk count string",
        Problem::LineOverLimit { .. } => "too big bulk count string",
        Problem::ElementsOverLimit { limit } if limit == strangers.elements_max => {
            "unauthenticated multibulk length"
        }
        Problem::BulkOverLimit { limit } if limit == strangers.bulk_bytes_max => {
            "unauthenticated bulk length"
        }
        Problem::ElementsOverLimit { .. } | Problem::Length if error.at < 2 => "invalid multibulk length",
        _ => "invalid bulk length",
    };
    format!("ERR Protocol error: {what}")
}
