//! Checks before a command is executed: authentication, transactions, pub/sub, pauses, and recording keys for
//! observers.

use engine::Key;

use super::measured::is_put_off;
use super::table::Command;
use super::{Call, Outcome, Refusal, scripting, transactions};
use crate::invalidation;
use crate::notify::Change;
use crate::pause::Paused;
use crate::reply::Reply;
use crate::session::{Caching, Gates, Session};
use crate::shared::Shared;
use crate::tracking::Mode;
use crate::transaction::State;

impl<'a> Call<'a> {
    /// Like [`Call::run`], with the checks for closed gates in Redis' order.
    pub(super) fn run_gated(&mut self, name: &[u8], reply: &mut Reply<'_>) -> Outcome {
        self.session.begin();
        let command = match self.find(name).and_then(|command| self.admit(command)) {
            Ok(command) => command,
            Err(refusal) => return Err(self.refused(name, refusal)),
        };
        let outcome = if self.session.gates.is_closed(Gates::QUEUE) && !command.goes_before_exec() {
            self.queue(command, reply)
        } else {
            self.perform(command, reply)
        };
        if self.session.queue.is_none() && command.container() != "client" && !is_put_off(&outcome) {
            self.session.caching = Caching::Unsaid;
        }
        outcome
    }

    /// Like [`Call::run`], without checks.
    #[inline]
    pub(super) fn run_openly(&mut self, name: &[u8], reply: &mut Reply<'_>) -> Outcome {
        self.run(name, reply).map_err(|refusal| match refusal {
            // As in Redis, EXEC aborts even without a transaction.
            Refusal::Arity(ref command) if command == "exec" => transactions::abort(self, refusal),
            _ => refusal,
        })
    }

    /// Executes a command that has passed all checks.
    pub(super) fn perform(&mut self, command: &'static Command, reply: &mut Reply<'_>) -> Outcome {
        self.session.command = Some(command);
        // Wait for room first, because observers are notified when the command executes.
        if self.await_room() == Err(Refusal::NotNow) {
            return Err(Refusal::NotNow);
        }
        if self.session.gates.is_closed(Gates::TRACKING) && command.has("readonly") && self.is_tracked() {
            self.remember(command);
        }
        if self.session.gates.is_closed(Gates::LOOK_BEFORE) {
            self.look_before(command);
        }
        let outcome = self.measure(command, reply);
        let is_shown = self.session.gates.is_closed(Gates::MONITORED) && !is_put_off(&outcome);
        if is_shown && !command.has("admin") {
            self.show(command);
        }
        self.session.missing.get_mut().clear();
        outcome
    }

    /// Returns the command, or its subcommand, if the client may execute it now.
    fn admit(&self, command: &'static Command) -> Result<&'static Command, Refusal> {
        let gates = self.session.gates;
        let command = self.part(command)?;
        if gates.is_closed(Gates::PASSWORD) && !command.is_for_anybody() {
            return Err(Refusal::NoPassword);
        }
        // Refuse scripts before they are queued: the transaction would otherwise be executed without its
        // script.
        if command.runs_script() {
            self.rejected(command);
            return Err(scripting::NO_SCRIPTS);
        }
        if gates.is_closed(Gates::CLUSTER) {
            self.check_slots(command)?;
            self.check_slots_of_queue(command)?;
        }
        if self.session.is_monitor && (command.has("readonly") || command.may_write()) {
            return Err(Refusal::Other("ERR Replica can't interact with the keyspace"));
        }
        if gates.is_closed(Gates::QUEUE) && command.has("no_multi") {
            return Err(Refusal::Other("ERR Command not allowed inside a transaction"));
        }
        if gates.is_closed(Gates::SUBSCRIBED) && !command.is_for_subscribers() {
            return Err(Refusal::Subscribed(command.name));
        }
        if gates.is_closed(Gates::PAUSE) && self.waits(command) {
            return Err(Refusal::NotNow);
        }
        Ok(command)
    }

    /// Resolves a container command to its subcommand, because only a subcommand can be queued.
    pub(super) fn part(&self, command: &'static Command) -> Result<&'static Command, Refusal> {
        let table = &self.shared.table;
        if self.length() < 2 || table.subcommands(command).is_empty() {
            return Ok(command);
        }
        let Some(part) = table.find_subcommand(command, self.argument(1)) else {
            return if self.is_word(1, "help") { Ok(command) } else { Err(self.unknown_part(command)) };
        };
        if part.takes(self.length()) { Ok(part) } else { Err(Refusal::Arity(part.name.to_owned())) }
    }

    /// Sends the command to monitors.
    fn show(&self, command: &Command) {
        self.shared.tell_monitors(&self.session.client, self.session.chosen, self.shown(command));
    }

    fn waits(&self, command: &Command) -> bool {
        match self.shared.interests.pauses.now(self.now_ms) {
            None => false,
            Some(Paused::All) => true,
            Some(Paused::Writes) => {
                let has_queued = self.session.queue.as_ref().is_some_and(|queue| queue.has_writes());
                command.may_write() || (command.name == "exec" && has_queued)
            }
        }
    }

    /// Handles a command that can't be executed. The command aborts its transaction.
    fn refused(&mut self, name: &[u8], refusal: Refusal) -> Refusal {
        match &mut self.session.queue {
            _ if refusal == Refusal::NotNow => {
                // During a pause, other clients that wait for memory must not wait for this one.
                self.session.leave_line(self.shared);
                refusal
            }
            // As in Redis, EXEC aborts even without a transaction.
            _ if name.eq_ignore_ascii_case(b"exec") => transactions::abort(self, refusal),
            Some(queue) => {
                queue.abort();
                refusal
            }
            None => refusal,
        }
    }

    fn queue(&mut self, command: &'static Command, reply: &mut Reply<'_>) -> Outcome {
        let bytes_max = self.shared.limits().query_bytes_max;
        let slot = self.first_slot(command);
        if let Err(refusal) = self.admit_to_memory(command) {
            self.rejected(command);
            return Err(refusal);
        }
        let Some(queue) = &mut self.session.queue else { return Ok(()) };
        queue.push(&self.arguments, bytes_max).map_err(|error| Refusal::Told(error.to_string()))?;
        if command.may_write() {
            queue.note_write();
        }
        if queue.state == State::Ready {
            slot.into_iter().for_each(|slot| queue.note_slot(slot));
        }
        reply.simple("QUEUED");
        Ok(())
    }

    fn is_tracked(&self) -> bool {
        let is_said = self.session.caching == Caching::Said;
        match self.session.tracking {
            Some(Mode::Reads) => true,
            Some(Mode::OptIn) => is_said,
            Some(Mode::OptOut) => !is_said,
            Some(Mode::Broadcast) | None => false,
        }
    }

    /// Tracks the keys before they are read, so that a client that writes afterwards finds this client in the
    /// tracking table.
    fn remember(&self, command: &Command) {
        for key in self.keys_of(command) {
            // Expire the key first. Otherwise the client would be notified of the expiration that its read is
            // about to show.
            let name = self.key_of(key);
            self.engine().lock(&name).contains(self.now_ms);
            self.shared.settle();
            let forgotten = self.shared.interests.tracking.remember(self.session.client.id, key);
            invalidation::tell_of_forgotten(self.shared, &forgotten);
            self.shared.account_tracking();
        }
    }

    /// Records missing keys for observers of new keys and keyspace misses.
    fn look_before(&mut self, command: &Command) {
        // A command that waits for memory has reported its misses at the first attempt.
        let is_told = self.tells_of_missing(command) && self.session.waits.is_none();
        let is_missing = |name: &&[u8]| {
            let key = self.key_of(name);
            let mut located = self.engine().lock(&key);
            let is_missing = !located.contains(self.now_ms);
            // COPY doesn't read its second key.
            if is_missing && is_told && (command.name != "copy" || *name == self.argument(1)) {
                self.shared.note(key.database(), name, Change::KeyMiss, None);
            }
            is_missing
        };
        let missing = self.keys_of(command).filter(is_missing).map(Box::from).collect();
        *self.session.missing.get_mut() = missing;
    }

    /// Returns whether the command reads keys, so that misses are reported as in Redis.
    fn tells_of_missing(&self, command: &Command) -> bool {
        match command.container() {
            "getset" | "getdel" | "getex" | "copy" => true,
            "set" => self.from(3).any(|option| option.eq_ignore_ascii_case(b"get")),
            "object" | "memory" => false,
            _ => command.has("readonly"),
        }
    }

    /// The keys among the arguments.
    pub(super) fn keys_of(&self, command: &Command) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let arguments = self.arguments;
        let argument = move |index| arguments.at(index).unwrap_or_default();
        command.keys.positions(arguments.len(), argument).into_iter().flatten().map(argument)
    }
}

/// Notes a change if there are observers.
#[cold]
pub(super) fn note(session: &Session, shared: &Shared, key: &Key<'_>, change: Change) {
    note_new(session, shared, key, change);
    shared.note(key.database(), key.bytes(), change, Some(session.client.id));
}

/// Reports a key as new before its change.
fn note_new(session: &Session, shared: &Shared, key: &Key<'_>, change: Change) {
    let mut missing = session.missing.borrow_mut();
    let is_told = |name: &[u8]| match change {
        // RENAME creates its second key.
        Change::RenameFrom => true,
        Change::Del | Change::MoveFrom => false,
        _ => *name == *key.bytes() && key.database() == session.database,
    };
    missing.retain(|name| {
        let is_told = is_told(name);
        if is_told {
            shared.note(key.database(), name, Change::New, None);
        }
        !is_told
    });
}
