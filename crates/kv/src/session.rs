//! What a client has chosen for its connection.

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
    /// As the client knows it.
    pub(crate) chosen: Database,
    /// The one of the engine that this is, for as long as a batch lasts.
    pub(crate) database: Database,
    pub(crate) version: Version,
    pub(crate) gates: Gates,
    pub(crate) is_over: bool,
    /// Writes that the server has not been told of yet.
    pub(crate) changes: Cell<u64>,
    /// Not counted by its worker yet.
    pub(crate) tally: Tally,
    /// Executed last.
    pub(crate) command: Option<&'static Command>,
    replies: Replies,
    /// What follows MULTI.
    pub(crate) queue: Option<Box<Queue>>,
    /// WATCH.
    pub(crate) watching: Option<Box<Watching>>,
    pub(crate) subscribed: Option<Box<Own>>,
    /// CLIENT TRACKING.
    pub(crate) tracking: Option<Mode>,
    /// What its prefixes take.
    pub(crate) prefixes_bytes: usize,
    /// What the server will remember for the client when the command is done: it counts from its begin.
    promised_bytes: usize,
    /// The command that was executed last took so long that others are to have their turn.
    pub(crate) has_taken_long: Cell<bool>,
    /// The command that looks at all keys, as far as it has come.
    pub(crate) walk: Option<Box<Walk>>,
    /// The first byte of its reply is sent: it tells a client that only sends no more from one that is gone.
    pub(crate) is_reply_begun: bool,
    /// Of the command that subscribes or unsubscribes, so many names are done.
    pub(crate) names_done: usize,
    /// The reply of the command had no room.
    pub(crate) waits: Option<Waits>,
    /// What the command has taken in earlier turns.
    pub(crate) took_before: Duration,
    /// MONITOR.
    pub(crate) is_monitor: bool,
    pub(crate) caching: Caching,
    /// Keys that were not there when the command began, if somebody wants to know.
    pub(crate) missing: RefCell<BTreeSet<Box<[u8]>>>,
}

/// CLIENT CACHING.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Caching {
    #[default]
    Unsaid,
    /// It was said for the next command: YES of those who opt in, NO of those who opt out.
    Said,
}

/// What stands between a command and its execution. Nothing, for most clients at most times: one look tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gates(u16);

/// CLIENT REPLY.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Replies {
    #[default]
    On,
    /// Not to those that follow. In a transaction those come before the end of EXEC, whose reply has begun.
    OffNext,
    Off,
    /// Not to the next command. In a transaction that is the one after EXEC.
    SkipNext,
    /// Not to this one.
    Skip,
}

impl Replies {
    /// What CLIENT REPLY makes of them, as Redis does.
    fn told(self, wish: Self) -> Self {
        match (self, wish) {
            (Self::Off | Self::OffNext, Self::SkipNext) => self,
            (Self::SkipNext, Self::On) => self,
            _ => wish,
        }
    }
}

impl Gates {
    /// A password is needed first.
    pub(crate) const PASSWORD: Self = Self(1);
    /// Not every command is replied to.
    pub(crate) const REPLIES: Self = Self(2);
    /// Commands wait for EXEC.
    pub(crate) const QUEUE: Self = Self(1 << 2);
    /// Commands that do not belong to pub/sub would be taken for messages.
    pub(crate) const SUBSCRIBED: Self = Self(1 << 3);
    /// What is read is remembered.
    pub(crate) const TRACKING: Self = Self(1 << 4);
    /// Somebody wants to know which keys were missing.
    pub(crate) const LOOK_BEFORE: Self = Self(1 << 5);
    /// CLIENT PAUSE.
    pub(crate) const PAUSE: Self = Self(1 << 6);
    /// Other servers have some of the keys. Never opened.
    pub(crate) const CLUSTER: Self = Self(1 << 7);
    /// Somebody sees every command.
    pub(crate) const MONITORED: Self = Self(1 << 8);

    /// Those that concern messages of the 0x1F protocol.
    pub(crate) fn for_text(self) -> Self {
        let gates = [Self::PASSWORD, Self::LOOK_BEFORE, Self::PAUSE, Self::MONITORED];
        Self(self.0 & gates.iter().fold(0, |gates, gate| gates | gate.0))
    }

    pub(crate) fn are_open(self) -> bool {
        self.0 == 0
    }

    /// Whether GET and SET of keys that this server has need no other look.
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

    /// Closes it if so, or else opens it.
    pub(crate) fn close_if(&mut self, is_closed: bool, gate: Self) {
        if is_closed { self.close(gate) } else { self.open(gate) }
    }
}

impl Session {
    /// `gates` are those that are closed in the beginning.
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

    /// SELECT.
    pub(crate) fn choose(&mut self, database: Database, databases: &Databases) {
        self.chosen = database;
        self.database = databases.of_engine(database);
    }

    /// The connection ends.
    pub(crate) fn leave_for_good(&mut self, shared: &Shared) {
        self.leave_line(shared);
        if let Some(own) = self.subscribed.take() {
            shared.interests.subscriptions.end(self.client.id, *own);
        }
        self.leave(shared);
    }

    /// A part of what it has subscribed to is forgotten; whether that was all.
    pub(crate) fn unsubscribe_some(&mut self, shared: &Shared) -> bool {
        let Some(own) = &mut self.subscribed else { return true };
        let is_all = shared.interests.subscriptions.remove_some(self.client.id, own);
        if is_all {
            self.subscribed = None;
        }
        self.account_kept();
        is_all
    }

    /// What others know of its other wishes is forgotten: at the end of the connection, and with RESET.
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

    /// What the server remembers for the client, or is about to.
    fn kept_bytes(&self) -> usize {
        self.remembered_bytes().max(self.promised_bytes)
    }

    fn remembered_bytes(&self) -> usize {
        self.watching.as_ref().map_or(0, |watching| watching.bytes())
            + self.subscribed.as_ref().map_or(0, |own| own.bytes())
            + self.prefixes_bytes
            + self.client.names.lock().bytes()
    }

    /// Counts so much more before it is remembered, where there is room for it; whether there is. Those who ask at the same time get no more than
    /// all may have.
    pub(crate) fn promise(&mut self, more_bytes: usize, shared: &Shared) -> bool {
        let (now_bytes, known_bytes) = (self.remembered_bytes(), self.client.facts.kept_bytes.load(Relaxed));
        let promised_bytes = now_bytes.saturating_add(more_bytes).max(known_bytes);
        if !shared.keep(&self.client, promised_bytes) {
            return false;
        }
        self.promised_bytes = promised_bytes;
        true
    }

    /// Counts what is remembered for it as its buffers are counted; how much more it is than before.
    pub(crate) fn account_kept(&self) -> usize {
        self.client.account_kept(self.kept_bytes())
    }

    /// The end of a transaction, and of watching keys for it.
    pub(crate) fn discard(&mut self, shared: &Shared) {
        self.queue = None;
        self.gates.open(Gates::QUEUE);
        self.unwatch(shared);
    }

    /// What it watches is not watched any more.
    pub(crate) fn unwatch(&mut self, shared: &Shared) {
        if let Some(watching) = self.watching.take() {
            shared.interests.watches.unwatch(*watching);
            shared.interests.refresh(&shared.engine);
            self.account_kept();
        }
    }

    /// Closes and opens gates as its subscriptions and its tracking ask for.
    pub(crate) fn set_gates(&mut self) {
        let is_subscribed = self.subscribed.as_ref().is_some_and(|own| !own.is_empty());
        self.gates.close_if(is_subscribed && self.version == Version::Resp2, Gates::SUBSCRIBED);
        let is_reading = self.tracking.is_some_and(|mode| mode != Mode::Broadcast);
        self.gates.close_if(is_reading, Gates::TRACKING);
    }

    /// Closes and opens gates as all clients together ask for.
    pub(crate) fn see(&mut self, flags: Flags) {
        self.gates.close_if(flags.has(Flags::LOOK_BEFORE), Gates::LOOK_BEFORE);
        self.gates.close_if(flags.has(Flags::PAUSED), Gates::PAUSE);
        self.gates.close_if(flags.has(Flags::MONITORED), Gates::MONITORED);
    }

    /// What waits for EXEC, in memory.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.bytes())
    }

    /// RESET.
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

    /// Whether what is replied at this moment is not sent: a part of the reply to EXEC.
    pub(crate) fn is_mute(&self) -> bool {
        matches!(self.replies, Replies::OffNext | Replies::Off | Replies::Skip)
    }

    /// A command begins.
    pub(crate) fn begin(&mut self) {
        self.replies = match self.replies {
            Replies::SkipNext => Replies::Skip,
            Replies::OffNext => Replies::Off,
            replies => replies,
        };
    }

    /// Its reply waits for memory no longer, or will get in line again.
    pub(crate) fn leave_line(&mut self, shared: &Shared) {
        if self.waits.take().is_some() {
            shared.line.leave(self.client.id);
        }
    }

    /// Whether its command goes through all keys, or waits for memory.
    pub(crate) fn takes_turns(&self) -> bool {
        self.is_walking() || self.waits.is_some()
    }

    /// Whether it goes through all keys.
    pub(crate) fn is_walking(&self) -> bool {
        self.walk.is_some()
    }

    /// Whether the reply of the command under way is an array for sure, of which nothing is sent yet.
    pub(crate) fn may_begin_reply(&self) -> bool {
        let is_array = self.walk.as_ref().is_some_and(|walk| walk.tells());
        is_array && !self.is_reply_begun && !self.gates.is_closed(Gates::REPLIES)
    }

    /// Whether there is something from others to be sent, which does not belong into a reply.
    #[inline]
    pub(crate) fn has_mail(&self) -> bool {
        self.client.has_mail() && !self.is_reply_begun
    }

    /// A command that took several turns is over: it may have been refused after it had begun.
    pub(crate) fn end_turns(&mut self, shared: &Shared) {
        (self.walk, self.names_done, self.is_reply_begun) = (None, 0, false);
        self.leave_line(shared);
        if std::mem::take(&mut self.promised_bytes) > 0 {
            self.account_kept();
        }
    }

    /// An empty request, which counts for CLIENT REPLY SKIP as in Redis.
    pub(crate) fn skip_nothing(&mut self) {
        if self.gates.is_closed(Gates::REPLIES) {
            self.begin();
            self.end();
        }
    }

    /// A command ends: whether its reply is sent.
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

    /// Lets others see how it is.
    pub(crate) fn publish(&self, number_of: impl Fn(&'static Command) -> usize, now_ms: u64) {
        let facts = &self.client.facts;
        facts.seen_ms.store(now_ms, Relaxed);
        facts.database.store(self.chosen.number(), Relaxed);
        facts.protocol.store(self.version.number(), Relaxed);
        facts.queued.store(self.queue.as_ref().map_or(usize::MAX, |queue| queue.len()), Relaxed);
        facts.command.store(self.command.map_or(usize::MAX, number_of), Relaxed);
    }
}
