//! What all connections of all workers share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::Engine;

use crate::accepted::Choices;
use crate::access::Access;
use crate::clients::{Backlog, Client, Clients};
use crate::cluster::Cluster;
use crate::command::Table;
use crate::databases::Databases;
use crate::endings::{Ending, Endings};
use crate::interest::Interests;
use crate::invalidation;
use crate::limits::Limits;
use crate::line::{Line, Terms};
use crate::output::Output;
use crate::pins::{Buffered, Pins};
use crate::rates::{Rates, Totals};
use crate::saved::{SaveError, SaveFile};
use crate::separated::TextProtocol;
use crate::session::Gates;
use crate::slow::{Entry, Slow};
use crate::statistics::{Errors, Statistics};
use crate::strangers::{self, Strangers};
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use crate::sync::{Mutex, MutexGuard, RwLock};
use crate::trim::Trimming;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) engine: Arc<Engine>,
    pub(crate) table: Table,
    pub(crate) version: String,
    /// Where the data set is written to.
    pub(crate) save_file: Option<Arc<SaveFile>>,
    pub(crate) text: TextProtocol,
    pub(crate) clients: Clients,
    pub(crate) databases: Arc<Databases>,
    pub(crate) interests: Interests,
    pub(crate) cluster: Option<Cluster>,
    pub(crate) access: RwLock<Access>,
    /// CONFIG SET of what means nothing here.
    pub(crate) choices: Choices,
    /// One for each worker.
    pub(crate) statistics: Box<[Statistics]>,
    pub(crate) errors: Errors,
    pub(crate) rates: Rates,
    is_expiry_passive: AtomicBool,
    pub(crate) slow: Slow,
    pub(crate) trimming: Trimming,
    limits: Mutex<Limits>,
    tls: RwLock<Option<Arc<rustls::ServerConfig>>>,
    is_stopping: AtomicBool,
    /// The data set is being saved for a client that has asked for the end: nobody else is served meanwhile.
    is_saving_for_end: AtomicBool,
    /// Tells whoever runs the server that a client has ended it.
    pub(crate) on_shutdown: fn(),
    turns: Box<[Turn]>,
    /// Writes since the begin.
    changes: AtomicU64,
    /// Connections that were not admitted.
    refused: AtomicU64,
    /// Of requests and replies of all connections.
    buffered: Arc<Buffered>,
    /// Held from the look whether there is room for what is lent to the moment when it counts: two workers must not find the same room.
    promising: Mutex<()>,
    /// Held from the look whether all clients take too much to the moment when one of them is given up for it: two workers must not each close one
    /// where one is enough.
    closing: Mutex<()>,
    /// Those whose replies wait for memory.
    pub(crate) line: Line,
    /// Of the buffers, requests that have not been executed.
    requests_bytes: AtomicUsize,
    /// Of those, what the table of keys that clients have takes.
    tracking_bytes: AtomicUsize,
    /// What the slow log takes, as the engine knows it.
    slow_bytes: AtomicUsize,
    /// Keys have not made all the room yet that buffers take.
    is_room_owed: AtomicBool,
    /// What requests take that may be refused for their size.
    roomless_bytes: AtomicUsize,
    /// Values that clients have not read.
    pub(crate) pins: Arc<Pins>,
    pub(crate) strangers: Strangers,
    pub(crate) endings: Endings,
    /// Clients whose commands wait for the end of CLIENT PAUSE.
    postponed: AtomicUsize,
    /// How often `maxmemory` had been lowered when it was last kept to.
    times_obeyed: AtomicU64,
    /// When somebody was logged last who spoke HTTP.
    warned_of_http_at_ms: AtomicU64,
}

/// A worker holds its own while it executes commands. On a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Turn(Mutex<()>);

impl Shared {
    pub(crate) fn new(
        engine: Arc<Engine>,
        save_file: Option<Arc<SaveFile>>,
        version: String,
        workers: usize,
    ) -> Self {
        let table = Table::new();
        let buffered = Arc::new(Buffered::new(Arc::clone(&engine)));
        let databases = save_file.as_ref().map(|file| Arc::clone(file.databases())).unwrap_or_default();
        Self {
            engine,
            statistics: (0..workers).map(|_| Statistics::new(table.with_parts().len())).collect(),
            errors: Errors::default(),
            rates: Rates::default(),
            is_expiry_passive: AtomicBool::new(false),
            slow: Slow::default(),
            trimming: Trimming::default(),
            table,
            version,
            save_file,
            text: TextProtocol::default(),
            clients: Clients::new(&buffered),
            databases,
            interests: Interests::default(),
            cluster: None,
            access: RwLock::default(),
            choices: Choices::default(),
            limits: Mutex::new(Limits::default()),
            tls: RwLock::default(),
            is_stopping: AtomicBool::new(false),
            is_saving_for_end: AtomicBool::new(false),
            on_shutdown: || (),
            turns: (0..workers).map(|_| Turn::default()).collect(),
            changes: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            promising: Mutex::default(),
            closing: Mutex::default(),
            line: Line::default(),
            requests_bytes: AtomicUsize::new(0),
            is_room_owed: AtomicBool::new(false),
            roomless_bytes: AtomicUsize::new(0),
            tracking_bytes: AtomicUsize::new(0),
            slow_bytes: AtomicUsize::new(0),
            pins: Arc::new(Pins::new(Arc::clone(&buffered))),
            buffered,
            strangers: Strangers::default(),
            endings: Endings::default(),
            postponed: AtomicUsize::new(0),
            times_obeyed: AtomicU64::new(0),
            warned_of_http_at_ms: AtomicU64::new(0),
        }
    }

    /// Looks at what has changed since the last time.
    pub(crate) fn sample(&self, now_ms: u64) {
        let mut totals = Totals::default();
        for worker in &self.statistics {
            totals.commands += worker.calls();
            totals.input_bytes += worker.input_bytes.get();
            totals.output_bytes += worker.output_bytes.get();
        }
        self.rates.sample(totals, self.engine.used_bytes(), now_ms);
    }

    /// Whether expired keys are looked for, not only found when they are asked for.
    pub(crate) fn is_expiry_active(&self) -> bool {
        !self.is_expiry_passive.load(Relaxed)
    }

    pub(crate) fn set_active_expiry(&self, is_active: bool) {
        self.is_expiry_passive.store(!is_active, Relaxed);
    }

    pub(crate) fn limits(&self) -> Limits {
        *self.limits.lock()
    }

    pub(crate) fn change_limits(&self, change: impl FnOnce(&mut Limits)) {
        change(&mut self.limits.lock());
    }

    pub(crate) fn set_limits(&self, limits: Limits) {
        *self.limits.lock() = limits;
    }

    pub(crate) fn tls(&self) -> Option<Arc<rustls::ServerConfig>> {
        self.tls.read().clone()
    }

    pub(crate) fn set_tls(&self, tls: Option<Arc<rustls::ServerConfig>>) {
        *self.tls.write() = tls;
    }

    pub(crate) fn needs_password(&self) -> bool {
        !self.access.read().passwords.is_empty()
    }

    /// Changes who may use the server. Those who are connected are looked at again: who says nothing has no other turn in which it would be seen
    /// that a password is needed no more, or again.
    pub(crate) fn change_access(&self, change: impl FnOnce(&mut Access)) {
        change(&mut self.access.write());
        self.clients.all().iter().for_each(|client| client.call());
    }

    /// What keeps a new client from its first command.
    pub(crate) fn first_gates(&self) -> Gates {
        let mut gates = Gates::default();
        if self.needs_password() {
            gates.close(Gates::PASSWORD);
        }
        if self.cluster.is_some() {
            gates.close(Gates::CLUSTER);
        }
        gates
    }

    /// As HELLO and INFO say it.
    pub(crate) fn mode(&self) -> &'static str {
        if self.cluster.is_some() { "cluster" } else { "standalone" }
    }

    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Relaxed);
    }

    /// Saves for a client that has asked for the end. Where that fails, the server goes on.
    pub(crate) fn save_for_end(&self, file: &SaveFile) -> Result<(), SaveError> {
        self.is_saving_for_end.store(true, Relaxed);
        let (changes, engine) = (self.changes(), &self.engine);
        let outcome = file.write_at_once(engine, changes).map(|()| file.is_up_to_date(changes));
        self.is_saving_for_end.store(outcome.is_ok(), Relaxed);
        outcome
    }

    /// Whether new clients should go elsewhere.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_stopping() || self.is_saving_for_end.load(Relaxed)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Relaxed)
    }

    /// While it lives, this worker executes commands.
    pub(crate) fn turn(&self, worker: usize) -> MutexGuard<'_, ()> {
        self.turns[worker].0.lock()
    }

    /// While they live, no worker executes commands but the one that asks. It must not be in a turn.
    pub(crate) fn all_turns(&self) -> Vec<MutexGuard<'_, ()>> {
        // Always in this order, so that two who want all never wait for each other.
        self.turns.iter().map(|turn| turn.0.lock()).collect()
    }

    /// Whether there is no other worker, so that a turn is all turns.
    pub(crate) fn is_single(&self) -> bool {
        self.turns.len() == 1
    }

    pub(crate) fn changed(&self, changes: u64) {
        if changes > 0 && self.changes.fetch_add(changes, Relaxed) == 0 {
            self.changed_first();
        }
    }

    /// Before anybody is told of the first change.
    #[cold]
    fn changed_first(&self) {
        if let Some(file) = &self.save_file {
            file.forget_old();
        }
    }

    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Relaxed)
    }

    pub(crate) fn refused_one(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Buffers that are no client's alone have grown or shrunk. They are part of what the engine may take: keys make room for them.
    pub(crate) fn account(&self, before_bytes: usize, now_bytes: usize) {
        self.buffered.account(before_bytes, now_bytes);
    }

    /// Evicts for a part of a reply, behind which others have their turn.
    pub(crate) fn make_room_for_part(&self, now_ms: u64) {
        self.make_room(now_ms, ROOM_WITHIN);
    }

    /// Such a request has grown or shrunk.
    pub(crate) fn account_roomless(&self, before_bytes: usize, now_bytes: usize) {
        self.roomless_bytes.fetch_add(now_bytes.wrapping_sub(before_bytes), Relaxed);
    }

    /// Evicts for buffers that have grown by much, without waiting for the next write; but for CLIENT PAUSE, during which no key goes.
    pub(crate) fn make_up(&self, now_ms: u64) {
        if self.interests.pauses.now(now_ms).is_none() {
            self.engine.make_up(now_ms);
            self.end_batch();
        }
    }

    /// Sends what is no reply. A client that has too much to read already is closed instead.
    pub(crate) fn post(&self, client: &Client, message: &Output) {
        let limits = self.limits();
        match client.post(message, &limits) {
            Backlog::OverLimit => {
                tracing::warn!(client = %client.ends.client, "closed: it does not read its messages");
                self.end_unread(client, Ending::Messages);
            }
            Backlog::Late => self.clients.note_late(client.id),
            Backlog::Fine => {}
        }
        let bytes_max = self.kept_bytes_max(&limits);
        if self.buffered.staying_bytes() > bytes_max && self.end_if_it_has_many(client) {
            tracing::warn!(client = %client.ends.client, "closed: messages that were not read take too much memory, and it has many of them");
        }
    }

    /// Ends a client whose unread messages are the cause of too much being taken; whether they are.
    fn end_if_it_has_many(&self, client: &Client) -> bool {
        let _alone = self.closing.lock();
        let bytes = self.buffered.staying_bytes();
        let bytes_max = self.kept_bytes_max(&self.limits());
        // Who has less unread than everybody may have is not the cause.
        let is_cause = bytes > bytes_max
            && client.unsent_bytes() > bytes_max / self.clients.count().max(1)
            && !client.is_killed();
        if is_cause {
            self.end_unread(client, Ending::Buffers);
        }
        is_cause
    }

    /// Ends a client that does not read what it is sent. What waits for it is of no use to anybody.
    fn end_unread(&self, client: &Client, ending: Ending) {
        self.end(client, ending);
        client.close_mailbox();
    }

    /// What may stay in memory for clients before messages for them are given up, and more of what they want to be remembered is refused: half of
    /// the memory, and what all buffers may have.
    fn kept_bytes_max(&self, limits: &Limits) -> usize {
        let maxmemory = self.engine.bytes_max();
        usize::try_from(maxmemory / 2).unwrap_or(usize::MAX).min(limits.buffers_bytes_max(maxmemory))
    }

    /// Ends a connection, as soon as its worker comes to it.
    pub(crate) fn end(&self, client: &Client, ending: Ending) {
        client.kill_counted(|| self.endings.add(ending));
    }

    /// A connection has ended.
    pub(crate) fn forget(&self, client: &Client) {
        self.clients.remove(client.id);
        client.close_mailbox();
    }

    pub(crate) fn buffered(&self) -> &Arc<Buffered> {
        &self.buffered
    }

    /// Of all who have been let in.
    pub(crate) fn buffers_bytes(&self) -> usize {
        self.buffered.bytes()
    }

    /// Whether there could be memory for a reply that takes so much beside what is stored, of which so much counts already: half of what is not
    /// taken by other buffers.
    pub(crate) fn could_reply(&self, counted_bytes: usize, bytes: usize) -> bool {
        self.could_reply_beside_keys(counted_bytes, bytes)
            && self.could_lend(bytes.saturating_sub(counted_bytes), self.reserve_bytes())
    }

    /// As [`Self::could_reply`], if no key had to stay.
    fn could_reply_beside_keys(&self, counted_bytes: usize, bytes: usize) -> bool {
        let more_bytes = bytes.saturating_sub(counted_bytes);
        self.buffers_bytes().saturating_add(more_bytes) <= self.buffers_bytes_max()
            && self.engine.could_hold(bytes.saturating_add(more_bytes))
    }

    fn buffers_bytes_max(&self) -> usize {
        self.limits().buffers_bytes_max(self.engine.bytes_max())
    }

    /// What decides, beside what is in use, whether replies have room.
    pub(crate) fn terms(&self) -> Terms {
        Terms {
            bytes_max: self.engine.bytes_max(),
            buffers_bytes_max: self.buffers_bytes_max(),
            policy: self.engine.policy(),
        }
    }

    /// As [`Self::could_reply`]; if so, it counts from now on.
    pub(crate) fn take_for_reply(&self, counted_bytes: usize, bytes: usize) -> bool {
        let _alone = self.promising.lock();
        let may_be = self.could_reply(counted_bytes, bytes);
        if may_be {
            self.account(counted_bytes, bytes);
        }
        may_be
    }

    /// Evicts what expires, so that there is room for a reply although other keys stay; nothing where that can't be enough. So much of it counts
    /// already. No shard may be locked.
    pub(crate) fn make_room_among_keys_that_expire(&self, counted_bytes: usize, bytes: usize, now_ms: u64) {
        let more_bytes = bytes.saturating_sub(counted_bytes);
        if self.engine.policy().keeps_keys()
            && !self.engine.could_lend(more_bytes, 0)
            && self.could_reply_beside_keys(counted_bytes, bytes)
            && self.engine.could_make_room(more_bytes, self.reserve_bytes())
        {
            // Whether that was enough is seen when the reply takes it.
            let _ = self.engine.make_room(more_bytes, now_ms);
            self.end_batch();
        }
    }

    /// What replies may take beyond `maxmemory` where keys are not evicted for them: reads go on when memory is full.
    fn reserve_bytes(&self) -> usize {
        let share = usize::try_from(self.engine.bytes_max() / RESERVE_SHARE).unwrap_or(usize::MAX);
        share.max(RESERVE_BYTES_LEAST)
    }

    /// Whether so many bytes more may be lent where keys stay, within so much beyond `maxmemory`, or beyond the keys where those alone take more than it.
    fn could_lend(&self, bytes: usize, beyond_bytes: usize) -> bool {
        let keys_bytes = self.engine.used_bytes().saturating_sub(self.buffers_bytes() as u64);
        let keys_beyond = usize::try_from(keys_bytes.saturating_sub(self.engine.bytes_max()));
        self.engine.could_lend(bytes, beyond_bytes.saturating_add(keys_beyond.unwrap_or(usize::MAX)))
    }

    /// Whether replies have taken that, so that each client gets one at a time.
    pub(crate) fn is_reserve_spent(&self) -> bool {
        !self.could_lend(0, self.reserve_bytes())
    }

    /// Whether others have buffers, beside so many bytes, that may be free soon.
    pub(crate) fn may_have_room_soon(&self, own_bytes: usize) -> bool {
        self.buffers_bytes().saturating_sub(own_bytes) > OTHERS_BYTES
    }

    /// Whether there could be room for a request of so many bytes when no other client had buffers.
    pub(crate) fn could_take_request(&self, bytes: usize) -> bool {
        bytes.checked_sub(self.buffers_bytes()).is_none_or(|more_bytes| self.engine.could_hold(more_bytes))
    }

    /// A request that is not whole has grown or shrunk.
    pub(crate) fn account_request(&self, before_bytes: usize, now_bytes: usize) {
        self.requests_bytes.fetch_add(now_bytes.wrapping_sub(before_bytes), Relaxed);
        let half = self.engine.bytes_max() / 2;
        if now_bytes > before_bytes && self.requests_bytes.load(Relaxed) as u64 > half {
            self.end_largest_request();
        }
    }

    /// Closes the client whose request takes most, where those of all take more than half of the memory. One alone may be a value that has room.
    fn end_largest_request(&self) {
        let _alone = self.closing.lock();
        let Some((client, others_bytes)) = self.clients.largest_request() else { return };
        let bytes_max = self.engine.bytes_max() / 2;
        let bytes = others_bytes + client.facts.unread_bytes.load(Relaxed);
        let is_alone = others_bytes as u64 <= bytes_max / OTHER_REQUESTS_SHARE;
        if bytes as u64 > bytes_max && !(is_alone && self.engine.could_hold(0)) {
            tracing::warn!(client = %client.ends.client, "closed: requests that are not whole take more than half of maxmemory, and its own is the largest");
            self.end(&client, Ending::Buffers);
        }
    }

    /// Counts what a client wants to be remembered, of so many bytes in all and no fewer than before, if it may be. Its request is gone then.
    pub(crate) fn keep(&self, client: &Client, bytes: usize) -> bool {
        let _alone = self.promising.lock();
        let more_bytes = bytes - client.facts.kept_bytes.load(Relaxed);
        let taken_bytes = self.buffers_bytes().saturating_sub(client.facts.unread_bytes.load(Relaxed));
        let may_be = taken_bytes.saturating_add(more_bytes) <= self.kept_bytes_max(&self.limits())
            && self.engine.could_hold(more_bytes)
            && self.could_lend(more_bytes, self.reserve_bytes() / 2);
        if may_be {
            client.account_kept(bytes);
        }
        may_be
    }

    /// The table of keys that clients have has changed.
    pub(crate) fn account_tracking(&self) {
        follow(
            &self.tracking_bytes,
            || self.interests.tracking.bytes(),
            |before, now| self.account(before, now),
        );
    }

    /// A command was slow.
    pub(crate) fn log_slow(&self, entry: Entry) {
        let bytes_max = usize::try_from(self.engine.bytes_max() / SLOW_LOG_SHARE).unwrap_or(usize::MAX);
        self.slow.log(entry, bytes_max.clamp(SLOW_LOG_BYTES_MIN, SLOW_LOG_BYTES_MAX));
        self.account_slow();
    }

    /// The slow log has changed.
    pub(crate) fn account_slow(&self) {
        follow(
            &self.slow_bytes,
            || self.slow.bytes(),
            |before, now| {
                self.engine.lend(before, now);
                self.is_room_owed.store(true, Relaxed);
            },
        );
    }

    /// How many clients wait for the end of CLIENT PAUSE.
    pub(crate) fn postponed(&self) -> usize {
        self.postponed.load(Relaxed)
    }

    /// A worker has so many of them, of which so many were known.
    pub(crate) fn postpone(&self, before: usize, now: usize) {
        self.postponed.fetch_add(now.wrapping_sub(before), Relaxed);
    }

    /// Closes the client whose buffers take most, where those of all take more than they may, which was so much a moment ago; but for what is about
    /// to be free, because its client is being closed already.
    pub(crate) fn keep_buffers_to(&self, bytes_max: usize) {
        if self.buffered.staying_bytes() <= bytes_max {
            return;
        }
        if let Some(client) = self.end_largest() {
            tracing::warn!(client = %client.ends.client, "closed: the buffers of all clients are above their limit, and its own are the largest");
        }
    }

    fn end_largest(&self) -> Option<Arc<Client>> {
        let _alone = self.closing.lock();
        if self.buffered.staying_bytes() <= self.buffers_bytes_max() {
            return None;
        }
        let (largest, unsent_bytes) = self.clients.largest()?;
        // Once more: if it was the cause, and has given it back meanwhile, nobody has to go. The limit is looked at last: it may have been raised since,
        // and what counts have come after that.
        let bytes = self.buffered.staying_bytes().saturating_sub(unsent_bytes);
        if bytes <= self.buffers_bytes_max() {
            return None;
        }
        self.end(&largest, Ending::Buffers);
        Some(largest)
    }

    /// Ends a client that waits to be let in; whether there was one.
    pub(crate) fn end_one_stranger(&self) -> bool {
        let is_ended = self.strangers.count() > 0 && self.strangers.end_one();
        if is_ended {
            self.endings.add(Ending::Strangers);
        }
        is_ended
    }

    /// Lets so many clients wait to be let in.
    pub(crate) fn end_strangers_beyond(&self, count_max: usize) {
        let ended = if self.strangers.count() > count_max { self.strangers.end_beyond(count_max) } else { 0 };
        (0..ended).for_each(|_| self.endings.add(Ending::Strangers));
    }

    /// The buffers of a client that has not been let in have changed.
    pub(crate) fn account_stranger(&self, before_bytes: usize, now_bytes: usize) {
        self.strangers.account(before_bytes, now_bytes);
        let bytes_max = strangers::bytes_max(self.engine.bytes_max());
        if now_bytes > before_bytes
            && self.strangers.bytes() > bytes_max
            && self.strangers.end_largest(bytes_max)
        {
            self.endings.add(Ending::Strangers);
        }
    }

    /// A client has sent a request of HTTP.
    pub(crate) fn note_http(&self, client: &Client, now_ms: u64) {
        self.endings.add(Ending::Http);
        let before_ms = self.warned_of_http_at_ms.load(Relaxed);
        // Once a minute, as Redis does: whoever does this can do it often.
        if before_ms == 0 || now_ms >= before_ms.saturating_add(HTTP_WARNED_EVERY_MS) {
            self.warned_of_http_at_ms.store(now_ms, Relaxed);
            tracing::warn!(
                client = %client.ends.client,
                "client closed: it sent an HTTP request, possibly from a browser"
            );
        }
    }

    /// What nobody's command is the cause of; often, by one of the workers.
    pub(crate) fn look_after(&self, now_ms: u64) {
        let limits = self.limits();
        self.pins.look();
        let auth_ms = limits.auth.as_millis() as u64;
        if auth_ms > 0 && self.strangers.count() > 0 {
            let overdue = self.strangers.end_since(now_ms.saturating_sub(auth_ms));
            (0..overdue).for_each(|_| self.endings.add(Ending::AuthTimeout));
        }
        for client in self.clients.too_late(&limits) {
            tracing::warn!(client = %client.ends.client, "closed: it has not read what it was sent for too long");
            self.end(&client, if client.listens() { Ending::Messages } else { Ending::Replies });
        }
        self.keep_buffers_to(self.buffers_bytes_max());
        let tracking = &self.interests.tracking;
        tracking.set_bytes_max(self.engine.bytes_max());
        let forgotten = tracking.give_up(FORGOTTEN_AT_ONCE);
        invalidation::tell_of_forgotten(self, &forgotten);
        self.account_tracking();
        self.account_slow();
        if let Some(file) = &self.save_file {
            file.look_after_lock(now_ms);
        }
        if self.is_room_owed.swap(false, Relaxed) || self.buffered.owed_bytes() > 0 {
            self.make_room_for_buffers(now_ms);
        }
    }

    /// Evicts what is above a limit that was lowered, a part in each turn of a worker; whether more can go. What buffers have grown into waits for the
    /// next write: it may be a request that is refused for its size.
    pub(crate) fn follow_limit(&self, now_ms: u64) -> bool {
        let times = self.engine.times_lowered();
        if times == self.times_obeyed.load(Relaxed) {
            return false;
        }
        let evicted = self.engine.counts().evicted;
        self.make_room(now_ms, LIMIT_WITHIN);
        let is_obeyed = self.engine.used_bytes() <= self.engine.bytes_max();
        if is_obeyed {
            self.times_obeyed.store(times, Relaxed);
        }
        // Keys that stay move to other segments: more may be in use for a while although keys have gone.
        !is_obeyed && self.engine.counts().evicted > evicted
    }

    /// Evicts for a reply that is about to be written, so that both fit.
    pub(crate) fn make_room_for_reply(&self, now_ms: u64) {
        self.make_room(now_ms, REPLY_ROOM_WITHIN);
    }

    /// Evicts for buffers that have grown by much, each maybe by little, without waiting for the next write.
    #[inline]
    pub(crate) fn make_room_owed(&self, now_ms: u64) {
        if self.buffered.owed_bytes() >= MADE_UP_FROM {
            self.make_room_for_buffers(now_ms);
        }
    }

    /// Evicts now and in the next ticks; but for CLIENT PAUSE, at whose end it is owed still.
    fn make_room_for_buffers(&self, now_ms: u64) {
        if self.interests.pauses.now(now_ms).is_some() {
            self.is_room_owed.store(true, Relaxed);
            return;
        }
        let roomless_bytes = self.roomless_bytes.load(Relaxed) as u64;
        if roomless_bytes > 0 && self.engine.used_bytes() <= self.engine.bytes_max() + roomless_bytes {
            // All that is above the limit is theirs. What the others owe, they owe still.
            return;
        }
        self.buffered.settle();
        self.make_room(now_ms, ROOM_WITHIN);
        if self.engine.used_bytes() > self.engine.bytes_max() {
            self.is_room_owed.store(true, Relaxed);
        }
    }

    /// Evicts what is above the limit: as much as there is time for.
    fn make_room(&self, now_ms: u64, within: Duration) {
        let end = Instant::now() + within;
        let mut used_bytes = self.engine.used_bytes();
        while used_bytes > self.engine.bytes_max() && Instant::now() < end {
            self.make_up(now_ms);
            let before = std::mem::replace(&mut used_bytes, self.engine.used_bytes());
            if used_bytes >= before {
                return;
            }
        }
    }
}

/// Accounts for what has changed since it was known. Looks again after it has said so: meanwhile another worker may have changed it, and have seen
/// what was known before.
fn follow(known: &AtomicUsize, bytes: impl Fn() -> usize, account: impl Fn(usize, usize)) {
    let mut now = bytes();
    while now != known.load(SeqCst) {
        account(known.swap(now, SeqCst), now);
        now = bytes();
    }
}

/// What replies may take beyond `maxmemory` where keys stay, as a part of it, and at least; what clients want to be remembered may take half of that.
const RESERVE_SHARE: u64 = 16;
const RESERVE_BYTES_LEAST: usize = 1 << 20;
/// What all buffers take is not worth waiting for.
const OTHERS_BYTES: usize = 256 << 10;
/// What the requests of others may take beside one that takes more than half of the memory, as a part of that half.
const OTHER_REQUESTS_SHARE: u64 = 8;
/// What the slow log may take, as a part of `maxmemory`, and at least and at most.
const SLOW_LOG_SHARE: u64 = 64;
const SLOW_LOG_BYTES_MIN: usize = 256 << 10;
const SLOW_LOG_BYTES_MAX: usize = 16 << 20;
const HTTP_WARNED_EVERY_MS: u64 = 60_000;
/// Tracked keys that are given up in one tick, where their limit was lowered: each is told.
const FORGOTTEN_AT_ONCE: usize = 10_000;
/// How long a command may evict for its reply.
const REPLY_ROOM_WITHIN: Duration = Duration::from_millis(100);
/// Growth of all buffers for which keys make room at once. What is less can wait for the next tick, or the next write.
const MADE_UP_FROM: usize = 64 << 10;
/// How long a worker may evict in a tick.
const ROOM_WITHIN: Duration = Duration::from_millis(5);
/// And how long in each turn of its loop for a limit that was lowered: its clients have their turns between.
const LIMIT_WITHIN: Duration = Duration::from_millis(1);

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use engine::{Database, Expiry, Policy, Settings};

    use super::*;

    const NOW_MS: u64 = 1_700_000_000_000;

    fn fill(engine: &Engine) {
        for number in 0..40_000 {
            let name = format!("key-{number}");
            let key = engine.key(Database::default(), name.as_bytes());
            engine.lock(&key).set(&[7; 1000], Expiry::Never, NOW_MS).expect("there is room");
        }
    }

    fn full(policy: Policy) -> Shared {
        let settings = Settings { bytes_max: 64 << 20, policy, seed: 5, threads: 2 };
        let engine = Arc::new(Engine::new(&settings));
        fill(&engine);
        let shared = Shared::new(engine, None, "test".to_owned(), 2);
        assert!(!shared.follow_limit(NOW_MS), "nothing was lowered");
        shared
    }

    /// Between two ticks, so that nobody has seen the higher one.
    #[test]
    fn a_limit_that_is_raised_and_lowered_again_is_followed() {
        let shared = full(Policy::AllKeysLru);
        for _ in 0..2 {
            shared.engine.set_bytes_max(64 << 20);
            fill(&shared.engine);
            shared.engine.set_bytes_max(20 << 20);
            while shared.follow_limit(NOW_MS) {}
            assert!(shared.engine.used_bytes() <= 20 << 20, "{}", shared.engine.used_bytes());
        }
    }

    /// Without a tick in between: those are far apart.
    #[test]
    fn a_lowered_limit_is_followed_to_its_end() {
        for policy in [Policy::AllKeysS3Fifo, Policy::AllKeysLru, Policy::AllKeysLfu, Policy::AllKeysRandom] {
            let shared = full(policy);
            for bytes_max in [24 << 20, 20 << 20, 5 << 20] {
                shared.engine.set_bytes_max(bytes_max);
                while shared.follow_limit(NOW_MS) {}
                assert!(shared.engine.used_bytes() <= bytes_max, "{policy:?} at {bytes_max}");
            }
        }
        let shared = full(Policy::NoEviction);
        shared.engine.set_bytes_max(24 << 20);
        assert!(!shared.follow_limit(NOW_MS) && shared.engine.used_bytes() > 24 << 20, "nothing can go");
    }
}
