//! What a client has chosen for its connection.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use engine::Database;

use crate::clients::Client;
use crate::command::Command;
use crate::databases::Databases;
use crate::reply::Version;

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
    /// Executed last.
    pub(crate) command: Option<&'static Command>,
    replies: Replies,
}

/// What stands between a command and its execution. Nothing, for most clients at most times: one look tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gates(u8);

/// CLIENT REPLY.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Replies {
    #[default]
    On,
    Off,
    /// Not to the next command.
    SkipNext,
    /// Not to this one.
    Skip,
}

impl Gates {
    /// A password is needed first.
    pub(crate) const PASSWORD: Self = Self(1);
    /// Not every command is replied to.
    pub(crate) const REPLIES: Self = Self(2);

    /// Those that concern messages of the 0x1F protocol.
    pub(crate) fn for_text(self) -> Self {
        Self(self.0 & Self::PASSWORD.0)
    }

    pub(crate) fn are_open(self) -> bool {
        self.0 == 0
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
            command: None,
            replies: Replies::default(),
        }
    }

    /// SELECT.
    pub(crate) fn choose(&mut self, database: Database, databases: &Databases) {
        self.chosen = database;
        self.database = databases.of_engine(database);
    }

    /// RESET.
    pub(crate) fn reset(&mut self, gates: Gates) {
        self.client.names.lock().name.clear();
        let changes = self.changes.take();
        *self = Self { changes: Cell::new(changes), ..Self::new(Arc::clone(&self.client), gates) };
    }

    pub(crate) fn set_replies(&mut self, replies: Replies) {
        self.replies = replies;
        self.gates.close(Gates::REPLIES);
    }

    /// A command begins.
    pub(crate) fn begin(&mut self) {
        if self.replies == Replies::SkipNext {
            self.replies = Replies::Skip;
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
        replies == Replies::On
    }

    /// Lets others see how it is.
    pub(crate) fn publish(&self, number_of: impl Fn(&'static Command) -> usize, now_ms: u64) {
        let facts = &self.client.facts;
        facts.seen_ms.store(now_ms, Relaxed);
        facts.database.store(self.chosen.number(), Relaxed);
        facts.protocol.store(self.version.number(), Relaxed);
        facts.command.store(self.command.map_or(usize::MAX, number_of), Relaxed);
    }
}
