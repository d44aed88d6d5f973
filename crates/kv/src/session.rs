//! State of a client's connection that commands change.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use engine::Database;

use crate::clients::Client;
use crate::command::{Command, Walk};
use crate::databases::Databases;
use crate::interest::Flags;
use crate::line::Waits;
use crate::reply::Version;
use crate::shared::Shared;
use crate::statistics::Tally;
use crate::subscriptions::Own;
use crate::tracking::Mode;
use crate::transaction::{Queue, Watching};

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: Arc<Client>,
    /// The selected database, as numbered by the client.
    pub(crate) chosen: Database,
    /// The engine's database for `chosen`, valid for the duration of a batch.
    pub(crate) database: Database,
    pub(crate) version: Version,
    pub(crate) gates: Gates,
    pub(crate) is_over: bool,
    /// Writes not yet reported to the server.
    pub(crate) changes: Cell<u64>,
    /// Counts not yet added to the worker's statistics.
    pub(crate) tally: Tally,
    /// The last command executed.
    pub(crate) command: Option<&'static Command>,
    replies: Replies,
    /// Commands queued since MULTI.
    pub(crate) queue: Option<Box<Queue>>,
    /// Keys watched by WATCH.
    pub(crate) watching: Option<Box<Watching>>,
    pub(crate) subscribed: Option<Box<Own>>,
    /// Mode of CLIENT TRACKING.
    pub(crate) tracking: Option<Mode>,
    /// Memory of the tracked prefixes.
    pub(crate) prefixes_bytes: usize,
    /// Memory of the state that the current command will add, charged from its beginning.
    promised_bytes: usize,
    /// Whether the last command took so long that other clients should get a turn.
    pub(crate) has_taken_long: Cell<bool>,
    /// State of a command that iterates over all keys in several turns.
    pub(crate) walk: Option<Box<Walk>>,
    /// Whether the first byte of the command's reply has been sent. Sending it reveals whether a client that
    /// has closed its sending direction is gone.
    pub(crate) is_reply_begun: bool,
    /// Number of names that a command has subscribed to or unsubscribed from so far.
    pub(crate) names_done: usize,
    /// Set while the reply waits for memory.
    pub(crate) waits: Option<Waits>,
    /// Time that the command took in earlier turns.
    pub(crate) took_before: Duration,
    /// Whether the client is a monitor.
    pub(crate) is_monitor: bool,
    pub(crate) caching: Caching,
    /// Keys that did not exist when the command began, recorded if there are observers.
    pub(crate) missing: RefCell<BTreeSet<Box<[u8]>>>,
}

/// State of CLIENT CACHING.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Caching {
    #[default]
    Unsaid,
    /// Set for the next command: YES in OPTIN mode, NO in OPTOUT mode.
    Said,
}

/// A set of reasons for checks before a command is executed. The set is usually empty, so that one test
/// suffices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gates(u16);

/// State of CLIENT REPLY.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Replies {
    #[default]
    On,
    /// Off from the next command on. In a transaction, the rest of EXEC's reply is suppressed, too, although
    /// the reply has begun.
    OffNext,
    Off,
    /// Skips the next reply. In a transaction, this is the reply to the command after EXEC.
    SkipNext,
    /// Skips the current reply.
    Skip,
}

impl Replies {
    /// The new state after CLIENT REPLY, as in Redis.
    fn told(self, wish: Self) -> Self {
        match (self, wish) {
            (Self::Off | Self::OffNext, Self::SkipNext) => self,
            (Self::SkipNext, Self::On) => self,
            _ => wish,
        }
    }
}

impl Gates {
    /// The client has to authenticate.
    pub(crate) const PASSWORD: Self = Self(1);
    /// Some replies are suppressed.
    pub(crate) const REPLIES: Self = Self(2);
    /// Commands are queued for EXEC.
    pub(crate) const QUEUE: Self = Self(1 << 2);
    /// Only pub/sub commands are allowed, because the client would take other replies for messages.
    pub(crate) const SUBSCRIBED: Self = Self(1 << 3);
    /// Keys that are read are tracked.
    pub(crate) const TRACKING: Self = Self(1 << 4);
    /// Observers need to know which keys were missing.
    pub(crate) const LOOK_BEFORE: Self = Self(1 << 5);
    /// CLIENT PAUSE is in force.
    pub(crate) const PAUSE: Self = Self(1 << 6);
    /// Other servers own some of the keys. This gate is never opened.
    pub(crate) const CLUSTER: Self = Self(1 << 7);
    /// Monitors receive every command.
    pub(crate) const MONITORED: Self = Self(1 << 8);

    /// The gates that apply to messages of the 0x1F protocol.
    pub(crate) fn for_text(self) -> Self {
        let gates = [Self::PASSWORD, Self::LOOK_BEFORE, Self::PAUSE, Self::MONITORED];
        Self(self.0 & gates.iter().fold(0, |gates, gate| gates | gate.0))
    }

    pub(crate) fn are_open(self) -> bool {
        self.0 == 0
    }

    /// Returns whether plain GET and SET need no checks, apart from the cluster's slots.
    pub(crate) fn are_open_for_plain(self) -> bool {
        self.0 & !Self::CLUSTER.0 == 0
    }

    pub(crate) fn is_closed(self, gate: Self) -> bool {
        self.0 & gate.0 != 0
    }

    pub(crate) fn close(&mut self, gate: Self) {
        self.0 |= gate.0;
    }

    pub(crate) fn open(&mut self, gate: Self) {
        self.0 &= !gate.0;
    }

    /// Closes the gate if `is_closed`, otherwise opens it.
    pub(crate) fn close_if(&mut self, is_closed: bool, gate: Self) {
        if is_closed { self.close(gate) } else { self.open(gate) }
    }
}

impl Session {
    /// Creates a session with these gates closed.
    pub(crate) fn new(client: Arc<Client>, gates: Gates) -> Self {
        Self {
            client,
            chosen: Database::default(),
            database: Database::default(),
            version: Version::default(),
            gates,
            is_over: false,
            changes: Cell::new(0),
            tally: Tally::default(),
            command: None,
            replies: Replies::default(),
            queue: None,
            watching: None,
            subscribed: None,
            tracking: None,
            prefixes_bytes: 0,
            promised_bytes: 0,
            has_taken_long: Cell::new(false),
            walk: None,
            is_reply_begun: false,
            names_done: 0,
            waits: None,
            took_before: Duration::ZERO,
            is_monitor: false,
            caching: Caching::default(),
            missing: RefCell::default(),
        }
    }

    /// Selects a database.
    pub(crate) fn choose(&mut self, database: Database, databases: &Databases) {
        self.chosen = database;
        self.database = databases.of_engine(database);
    }

    /// Removes all state when the connection ends.
    pub(crate) fn leave_for_good(&mut self, shared: &Shared) {
        self.leave_line(shared);
        if let Some(own) = self.subscribed.take() {
            shared.interests.subscriptions.end(self.client.id, *own);
        }
        self.leave(shared);
    }

    /// Removes a part of the subscriptions, and returns whether none are left.
    pub(crate) fn unsubscribe_some(&mut self, shared: &Shared) -> bool {
        let Some(own) = &mut self.subscribed else { return true };
        let is_all = shared.interests.subscriptions.remove_some(self.client.id, own);
        if is_all {
            self.subscribed = None;
        }
        self.account_kept();
        is_all
    }

    /// Removes tracking, watches and monitoring, at the end of the connection and by RESET.
    pub(crate) fn leave(&mut self, shared: &Shared) {
        let interests = &shared.interests;
        if self.tracking.take().is_some() {
            interests.tracking.stop(self.client.id);
            self.prefixes_bytes = 0;
            shared.account_tracking();
            interests.refresh(&shared.engine);
        }
        if std::mem::take(&mut self.is_monitor) {
            interests.monitors.remove(self.client.id);
            interests.refresh(&shared.engine);
            self.client.facts.is_monitor.store(false, Relaxed);
        }
        self.discard(shared);
        self.client.set_subscribed([0; 3]);
        self.promised_bytes = 0;
        self.client.account_kept(0);
    }

    /// Memory of the client's state, including memory charged in advance.
    fn kept_bytes(&self) -> usize {
        self.remembered_bytes().max(self.promised_bytes)
    }

    fn remembered_bytes(&self) -> usize {
        self.watching.as_ref().map_or(0, |watching| watching.bytes())
            + self.subscribed.as_ref().map_or(0, |own| own.bytes())
            + self.prefixes_bytes
            + self.client.names.lock().bytes()
    }

    /// Charges `more_bytes` before the state is added, and returns whether there is room. Concurrent calls
    /// never exceed the limit together.
    pub(crate) fn promise(&mut self, more_bytes: usize, shared: &Shared) -> bool {
        let (now_bytes, known_bytes) = (self.remembered_bytes(), self.client.facts.kept_bytes.load(Relaxed));
        let promised_bytes = now_bytes.saturating_add(more_bytes).max(known_bytes);
        if !shared.keep(&self.client, promised_bytes) {
            return false;
        }
        self.promised_bytes = promised_bytes;
        true
    }

    /// Publishes the memory of the client's state, and returns the increase.
    pub(crate) fn account_kept(&self) -> usize {
        self.client.account_kept(self.kept_bytes())
    }

    /// Ends a transaction and unwatches its keys.
    pub(crate) fn discard(&mut self, shared: &Shared) {
        self.queue = None;
        self.gates.open(Gates::QUEUE);
        self.unwatch(shared);
    }

    /// Unwatches all keys.
    pub(crate) fn unwatch(&mut self, shared: &Shared) {
        if let Some(watching) = self.watching.take() {
            shared.interests.watches.unwatch(*watching);
            shared.interests.refresh(&shared.engine);
            self.account_kept();
        }
    }

    /// Updates the gates from this client's subscriptions and tracking.
    pub(crate) fn set_gates(&mut self) {
        let is_subscribed = self.subscribed.as_ref().is_some_and(|own| !own.is_empty());
        self.gates.close_if(is_subscribed && self.version == Version::Resp2, Gates::SUBSCRIBED);
        let is_reading = self.tracking.is_some_and(|mode| mode != Mode::Broadcast);
        self.gates.close_if(is_reading, Gates::TRACKING);
    }

    /// Updates the gates from the observers of all clients.
    pub(crate) fn see(&mut self, flags: Flags) {
        self.gates.close_if(flags.has(Flags::LOOK_BEFORE), Gates::LOOK_BEFORE);
        self.gates.close_if(flags.has(Flags::PAUSED), Gates::PAUSE);
        self.gates.close_if(flags.has(Flags::MONITORED), Gates::MONITORED);
    }

    /// Memory of the queued commands.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.bytes())
    }

    /// Resets the session for RESET.
    pub(crate) fn reset(&mut self, gates: Gates) {
        self.client.names.lock().name.clear();
        let changes = self.changes.take();
        let is_skipped = self.replies == Replies::Skip;
        *self = Self { changes: Cell::new(changes), ..Self::new(Arc::clone(&self.client), gates) };
        if is_skipped {
            self.set_replies(Replies::Skip);
        }
    }

    pub(crate) fn set_replies(&mut self, wish: Replies) {
        self.replies = self.replies.told(wish);
        self.gates.close(Gates::REPLIES);
    }

    /// Returns whether the current reply, which is a part of EXEC's reply, is suppressed.
    pub(crate) fn is_mute(&self) -> bool {
        matches!(self.replies, Replies::OffNext | Replies::Off | Replies::Skip)
    }

    /// Begins a command.
    pub(crate) fn begin(&mut self) {
        self.replies = match self.replies {
            Replies::SkipNext => Replies::Skip,
            Replies::OffNext => Replies::Off,
            replies => replies,
        };
    }

    /// Leaves the queue for memory. The reply may join it again later.
    pub(crate) fn leave_line(&mut self, shared: &Shared) {
        if self.waits.take().is_some() {
            shared.line.leave(self.client.id);
        }
    }

    /// Returns whether the command iterates over all keys, or waits for memory.
    pub(crate) fn takes_turns(&self) -> bool {
        self.is_walking() || self.waits.is_some()
    }

    /// Returns whether the command iterates over all keys.
    pub(crate) fn is_walking(&self) -> bool {
        self.walk.is_some()
    }

    /// Returns whether the current command's reply is known to be an array, and nothing of it has been sent.
    pub(crate) fn may_begin_reply(&self) -> bool {
        let is_array = self.walk.as_ref().is_some_and(|walk| walk.tells());
        is_array && !self.is_reply_begun && !self.gates.is_closed(Gates::REPLIES)
    }

    /// Returns whether posted messages can be sent now, which isn't possible within a reply.
    #[inline]
    pub(crate) fn has_mail(&self) -> bool {
        self.client.has_mail() && !self.is_reply_begun
    }

    /// Ends a command that took several turns, even if it was refused after it had begun.
    pub(crate) fn end_turns(&mut self, shared: &Shared) {
        (self.walk, self.names_done, self.is_reply_begun) = (None, 0, false);
        self.leave_line(shared);
        if std::mem::take(&mut self.promised_bytes) > 0 {
            self.account_kept();
        }
    }

    /// Handles an empty request, which counts for CLIENT REPLY SKIP as in Redis.
    pub(crate) fn skip_nothing(&mut self) {
        if self.gates.is_closed(Gates::REPLIES) {
            self.begin();
            self.end();
        }
    }

    /// Ends a command, and returns whether its reply is sent.
    pub(crate) fn end(&mut self) -> bool {
        let replies = self.replies;
        if replies == Replies::Skip {
            self.replies = Replies::On;
        }
        if self.replies == Replies::On {
            self.gates.open(Gates::REPLIES);
        }
        !matches!(replies, Replies::Off | Replies::Skip)
    }

    /// Publishes the session's state to other threads.
    pub(crate) fn publish(&self, number_of: impl Fn(&'static Command) -> usize, now_ms: u64) {
        let facts = &self.client.facts;
        facts.seen_ms.store(now_ms, Relaxed);
        facts.database.store(self.chosen.number(), Relaxed);
        facts.protocol.store(self.version.number(), Relaxed);
        facts.queued.store(self.queue.as_ref().map_or(usize::MAX, |queue| queue.len()), Relaxed);
        facts.command.store(self.command.map_or(usize::MAX, number_of), Relaxed);
    }
}
