//! What is said on a connection, without the socket: bytes in, replies out.

use std::array::from_fn;
use std::sync::Arc;

use arrayvec::ArrayVec;
use engine::{Batch, Database};
use resp::{DecodeError, Limits, Problem, RequestScanner};

use crate::command::{self, Done, Executed, Form, Isolation, Plain};
use crate::reply::Reply;
use crate::separated::{self, MessageScanner, Text, TextProtocol};
use crate::session::Session;
use crate::shared::Shared;
use crate::statistics::Statistics;

#[derive(Debug)]
pub(crate) struct Conversation {
    pub(crate) session: Session,
    scanner: RequestScanner,
    messages: MessageScanner,
    /// Read, but not executed: the begin of a request whose end is missing, or requests that wait.
    unread: Vec<u8>,
    /// Why they wait.
    pause: Pause,
    /// The end of the last reply, but for its line end: see [`Conversation::take_value`].
    value: Option<Arc<Vec<u8>>>,
}

/// How far a conversation has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pause {
    /// Everything was executed that was there as a whole.
    #[default]
    Drained,
    /// There is enough to send first.
    Full,
    /// The next command must be executed while no other worker executes any.
    Alone,
    /// The next command waits for the end of CLIENT PAUSE.
    Waiting,
    /// Nothing will be executed any more.
    Over,
}

/// What a turn is done with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) shared: &'a Shared,
    /// Those of the worker.
    pub(crate) statistics: &'a Statistics,
    pub(crate) isolation: Isolation,
    /// From here on nothing more is executed before the replies were sent.
    pub(crate) output_bytes_max: usize,
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
            pause: Pause::Drained,
            value: None,
        }
    }

    /// Executes what is whole of what was kept and of `input`, and keeps the rest.
    pub(crate) fn hear(&mut self, input: &[u8], context: &Context<'_>, output: &mut Vec<u8>) -> Pause {
        // Another client may have changed it with SWAPDB, but nobody does while this one has its turn.
        self.session.choose(self.session.chosen, &context.shared.databases);
        self.session.see(context.shared.interests.flags());
        let mut unread = std::mem::take(&mut self.unread);
        if unread.is_empty() {
            let executed = self.execute_all(input, context, output);
            self.unread.extend_from_slice(&input[executed..]);
        } else {
            unread.extend_from_slice(input);
            let executed = self.execute_all(&unread, context, output);
            if executed < unread.len() {
                unread.drain(..executed);
                self.unread = unread;
            }
        }
        if !context.shared.interests.flags().are_indifferent() {
            context.shared.end_batch();
            self.take_mail(context, output);
        }
        self.publish(context);
        self.pause
    }

    /// Whether there may be requests that wait.
    pub(crate) fn has_rest(&self) -> bool {
        matches!(self.pause, Pause::Full | Pause::Alone | Pause::Waiting)
    }

    /// A large value that is to be sent behind the replies, and a line end behind it: it need not be copied among them.
    pub(crate) fn take_value(&mut self) -> Option<Arc<Vec<u8>>> {
        self.value.take()
    }

    pub(crate) fn unread_bytes(&self) -> usize {
        self.unread.capacity() + self.session.queued_bytes()
    }

    /// Executes every whole request; how many bytes they had.
    fn execute_all(&mut self, input: &[u8], context: &Context<'_>, output: &mut Vec<u8>) -> usize {
        let mut at = 0;
        self.pause = loop {
            if self.session.is_over {
                break Pause::Over;
            }
            if output.len() >= context.output_bytes_max {
                break Pause::Full;
            }
            at += self.run_plain(&input[at..], context, output);
            if at == input.len() {
                break Pause::Drained;
            }
            if self.value.is_some() {
                break Pause::Full;
            }
            if is_text(&input[at..], context) {
                let Some(message) = self.messages.scan(&input[at..]) else { break Pause::Drained };
                match separated::execute(message, &mut self.session, context, output) {
                    Done::Yes => at += message.len() + 1,
                    Done::NotAlone => break Pause::Alone,
                    Done::NotNow => break Pause::Waiting,
                }
                continue;
            }
            match self.scanner.scan(&input[at..]) {
                Ok(None) => break Pause::Drained,
                Ok(Some(arguments)) => {
                    let mut reply = Reply { out: output, version: self.session.version };
                    match command::execute(&arguments, &mut self.session, context, &mut reply) {
                        Done::Yes => at += arguments.bytes,
                        Done::NotAlone => break Pause::Alone,
                        Done::NotNow => break Pause::Waiting,
                    }
                }
                Err(error) => {
                    let mut reply = Reply { out: output, version: self.session.version };
                    reply.error(&protocol_error(&error, &input[at..]));
                    self.session.is_over = true;
                }
            }
            self.take_mail(context, output);
        };
        if self.session.is_over { input.len() } else { at }
    }

    /// As [`Self::execute_plain`], with a look at the clock now and then.
    fn run_plain(&mut self, input: &[u8], context: &Context<'_>, output: &mut Vec<u8>) -> usize {
        if context.shared.slow.wants_all() {
            return 0;
        }
        let (begin, before) = (context.statistics.begin_run(), self.session.tally);
        let bytes = if is_text(input, context) {
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

    /// Executes the requests with which `input` begins, as far as they are plain; how many bytes they had.
    fn execute_plain<F: Form>(
        &mut self,
        form: &F,
        input: &[u8],
        context: &Context<'_>,
        output: &mut Vec<u8>,
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
                    Executed::Announced(value) => {
                        self.value = Some(value);
                        return at + plain.bytes();
                    }
                    Executed::No => return at,
                }
                self.take_mail(context, output);
            }
            if !ahead.is_full() {
                break;
            }
        }
        at
    }

    /// What others have sent, or the command to its own client.
    fn take_mail(&self, context: &Context<'_>, output: &mut Vec<u8>) {
        if self.session.client.has_mail() {
            context.shared.take_mail(&self.session.client, output);
        }
    }

    fn publish(&mut self, context: &Context<'_>) {
        context.shared.changed(self.session.changes.take());
        let tally = std::mem::take(&mut self.session.tally);
        context.statistics.count_plain(tally, |at| context.shared.table.number(command::PLAIN_COMMANDS[at]));
        self.session.publish(|command| context.shared.table.number(command), context.now_ms);
    }
}

/// Requests that are looked at before the first of them is executed: enough for their keys to arrive meanwhile, few enough for
/// what arrives to stay.
const AHEAD: usize = 32;

/// The plain requests with which `input` begins, whose keys are on their way into the caches.
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

/// Whether the next message is one of the 0x1F protocol: what begins with `*` is of the Redis protocol.
#[inline]
fn is_text(input: &[u8], context: &Context<'_>) -> bool {
    context.shared.text == TextProtocol::UnitSeparator && input.first().is_some_and(|first| *first != b'*')
}

/// In the words of Redis, on which clients match.
fn protocol_error(error: &DecodeError, request: &[u8]) -> String {
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
        Problem::ElementsOverLimit { .. } | Problem::Length if error.at < 2 => "invalid multibulk length",
        _ => "invalid bulk length",
    };
    format!("ERR Protocol error: {what}")
}
