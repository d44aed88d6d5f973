//! State shared by all connections of all workers.

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
    /// The file to which the data set is saved.
    pub(crate) save_file: Option<Arc<SaveFile>>,
    pub(crate) text: TextProtocol,
    pub(crate) clients: Clients,
    pub(crate) databases: Arc<Databases>,
    pub(crate) interests: Interests,
    pub(crate) cluster: Option<Cluster>,
    pub(crate) access: RwLock<Access>,
    /// Values set by CONFIG SET for settings without effect.
    pub(crate) choices: Choices,
    /// One per worker.
    pub(crate) statistics: Box<[Statistics]>,
    pub(crate) errors: Errors,
    pub(crate) rates: Rates,
    is_expiry_passive: AtomicBool,
    pub(crate) slow: Slow,
    pub(crate) trimming: Trimming,
    limits: Mutex<Limits>,
    tls: RwLock<Option<Arc<rustls::ServerConfig>>>,
    is_stopping: AtomicBool,
    /// Whether the data set is being saved for SHUTDOWN. No other client is served meanwhile.
    is_saving_for_end: AtomicBool,
    /// Called when a client has sent SHUTDOWN.
    pub(crate) on_shutdown: fn(),
    turns: Box<[Turn]>,
    /// Number of changes since the start.
    changes: AtomicU64,
    /// Connections refused.
    refused: AtomicU64,
    /// Memory of the requests and replies of all connections.
    buffered: Arc<Buffered>,
    /// Held while checking for room and charging it, so that two workers don't use the same memory.
    promising: Mutex<()>,
    /// Held while checking the limit of all buffers and closing a client for it, so that two workers don't
    /// each close a client if one suffices.
    closing: Mutex<()>,
    /// Clients whose replies wait for memory.
    pub(crate) line: Line,
    /// The part of the buffers taken by requests that have not been executed.
    requests_bytes: AtomicUsize,
    /// The part of the buffers taken by the tracking table.
    tracking_bytes: AtomicUsize,
    /// Memory of the slow log, as charged to the engine.
    slow_bytes: AtomicUsize,
    /// Whether keys still have to be evicted for buffers.
    is_room_owed: AtomicBool,
    /// Memory of requests that may be refused for their size.
    roomless_bytes: AtomicUsize,
    /// Values that clients have not read.
    pub(crate) pins: Arc<Pins>,
    pub(crate) strangers: Strangers,
    pub(crate) endings: Endings,
    /// Clients whose commands wait for the end of CLIENT PAUSE.
    postponed: AtomicUsize,
    /// Number of `maxmemory` reductions when usage was last within the limit.
    times_obeyed: AtomicU64,
    /// Time at which a client that sent HTTP was last logged.
    warned_of_http_at_ms: AtomicU64,
}

/// Held by a worker while it executes commands. It has its own cache line.
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

    /// Samples the statistics.
    pub(crate) fn sample(&self, now_ms: u64) {
        let mut totals = Totals::default();
        for worker in &self.statistics {
            totals.commands += worker.calls();
            totals.input_bytes += worker.input_bytes.get();
            totals.output_bytes += worker.output_bytes.get();
        }
        self.rates.sample(totals, self.engine.used_bytes(), now_ms);
    }

    /// Returns whether expired keys are actively removed, not only on access.
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

    /// Changes the access rules, and gives all clients a turn, because an idle client would otherwise not
    /// notice that it now needs a password.
    pub(crate) fn change_access(&self, change: impl FnOnce(&mut Access)) {
        change(&mut self.access.write());
        self.clients.all().iter().for_each(|client| client.call());
    }

    /// The gates that are closed for a new client.
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

    /// The mode in HELLO and INFO.
    pub(crate) fn mode(&self) -> &'static str {
        if self.cluster.is_some() { "cluster" } else { "standalone" }
    }

    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Relaxed);
    }

    /// Saves for SHUTDOWN. If the save fails, the server continues to run.
    pub(crate) fn save_for_end(&self, file: &SaveFile) -> Result<(), SaveError> {
        self.is_saving_for_end.store(true, Relaxed);
        let (changes, engine) = (self.changes(), &self.engine);
        let outcome = file.write_at_once(engine, changes).map(|()| file.is_up_to_date(changes));
        self.is_saving_for_end.store(outcome.is_ok(), Relaxed);
        outcome
    }

    /// Returns whether new clients should be refused.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_stopping() || self.is_saving_for_end.load(Relaxed)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Relaxed)
    }

    /// Takes this worker's turn, which permits it to execute commands.
    pub(crate) fn turn(&self, worker: usize) -> MutexGuard<'_, ()> {
        self.turns[worker].0.lock()
    }

    /// Takes the turns of all workers, so that only the caller executes commands. The caller must not hold a
    /// turn.
    pub(crate) fn all_turns(&self) -> Vec<MutexGuard<'_, ()>> {
        // The order is always the same, so that two callers can't deadlock.
        self.turns.iter().map(|turn| turn.0.lock()).collect()
    }

    /// Returns whether there is a single worker, whose turn alone excludes all other commands.
    pub(crate) fn is_single(&self) -> bool {
        self.turns.len() == 1
    }

    pub(crate) fn changed(&self, changes: u64) {
        if changes > 0 && self.changes.fetch_add(changes, Relaxed) == 0 {
            self.changed_first();
        }
    }

    /// Runs before the first change becomes visible.
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

    /// Records that buffers not charged to a single client have grown or shrunk. They are part of the
    /// engine's memory budget: keys are evicted for them.
    pub(crate) fn account(&self, before_bytes: usize, now_bytes: usize) {
        self.buffered.account(before_bytes, now_bytes);
    }

    /// Evicts keys for a part of a reply. Other connections get their turn afterwards.
    pub(crate) fn make_room_for_part(&self, now_ms: u64) {
        self.make_room(now_ms, ROOM_WITHIN);
    }

    /// Records that a request that may be refused for its size has grown or shrunk.
    pub(crate) fn account_roomless(&self, before_bytes: usize, now_bytes: usize) {
        self.roomless_bytes.fetch_add(now_bytes.wrapping_sub(before_bytes), Relaxed);
    }

    /// Evicts keys for buffers that have grown a lot, without waiting for the next write. Does nothing during
    /// CLIENT PAUSE.
    pub(crate) fn make_up(&self, now_ms: u64) {
        if self.interests.pauses.now(now_ms).is_none() {
            self.engine.make_up(now_ms);
            self.end_batch();
        }
    }

    /// Posts a message to a client. Closes the client instead if its output exceeds the limit.
    pub(crate) fn post(&self, client: &Client, message: &Output) {
        let limits = self.limits();
        match client.post(message, &limits) {
            Backlog::OverLimit => {
                tracing::warn!(client = %client.ends.client, "client closed: unread messages exceed client-output-buffer-limit");
                self.end_unread(client, Ending::Messages);
            }
            Backlog::Late => self.clients.note_late(client.id),
            Backlog::Fine => {}
        }
        let bytes_max = self.kept_bytes_max(&limits);
        if self.buffered.staying_bytes() > bytes_max && self.end_if_it_has_many(client) {
            tracing::warn!(client = %client.ends.client, "client closed: unread messages exceed the buffer limit");
        }
    }

    /// Closes a client if its unread messages are the reason why the limit is exceeded, and returns whether
    /// they are.
    fn end_if_it_has_many(&self, client: &Client) -> bool {
        let _alone = self.closing.lock();
        let bytes = self.buffered.staying_bytes();
        let bytes_max = self.kept_bytes_max(&self.limits());
        // A client with no more than its equal share is not the cause.
        let is_cause = bytes > bytes_max
            && client.unsent_bytes() > bytes_max / self.clients.count().max(1)
            && !client.is_killed();
        if is_cause {
            self.end_unread(client, Ending::Buffers);
        }
        is_cause
    }

    /// Closes a client that doesn't read its messages, and drops the messages.
    fn end_unread(&self, client: &Client, ending: Ending) {
        self.end(client, ending);
        client.close_mailbox();
    }

    /// Maximum memory for clients: half of `maxmemory`, or the limit of all buffers if that is lower. Above
    /// it, messages are dropped and clients' state can't grow.
    fn kept_bytes_max(&self, limits: &Limits) -> usize {
        let maxmemory = self.engine.bytes_max();
        usize::try_from(maxmemory / 2).unwrap_or(usize::MAX).min(limits.buffers_bytes_max(maxmemory))
    }

    /// Asks a connection's worker to close the connection.
    pub(crate) fn end(&self, client: &Client, ending: Ending) {
        client.kill_counted(|| self.endings.add(ending));
    }

    /// Removes a connection that has ended.
    pub(crate) fn forget(&self, client: &Client) {
        self.clients.remove(client.id);
        client.close_mailbox();
    }

    pub(crate) fn buffered(&self) -> &Arc<Buffered> {
        &self.buffered
    }

    /// Bytes of the buffers of all admitted clients.
    pub(crate) fn buffers_bytes(&self) -> usize {
        self.buffered.bytes()
    }

    /// Returns whether a reply of `bytes`, of which `counted_bytes` are charged already, could fit into
    /// memory together with stored values. It may take half of the memory not taken by other buffers.
    pub(crate) fn could_reply(&self, counted_bytes: usize, bytes: usize) -> bool {
        self.could_reply_beside_keys(counted_bytes, bytes)
            && self.could_lend(bytes.saturating_sub(counted_bytes), self.reserve_bytes())
    }

    /// Like [`Self::could_reply`], assuming that all keys can be evicted.
    fn could_reply_beside_keys(&self, counted_bytes: usize, bytes: usize) -> bool {
        let more_bytes = bytes.saturating_sub(counted_bytes);
        self.buffers_bytes().saturating_add(more_bytes) <= self.buffers_bytes_max()
            && self.engine.could_hold(bytes.saturating_add(more_bytes))
    }

    fn buffers_bytes_max(&self) -> usize {
        self.limits().buffers_bytes_max(self.engine.bytes_max())
    }

    /// Conditions, apart from the memory in use, that decide whether replies fit.
    pub(crate) fn terms(&self) -> Terms {
        Terms {
            bytes_max: self.engine.bytes_max(),
            buffers_bytes_max: self.buffers_bytes_max(),
            policy: self.engine.policy(),
        }
    }

    /// Like [`Self::could_reply`], and charges the reply if it fits.
    pub(crate) fn take_for_reply(&self, counted_bytes: usize, bytes: usize) -> bool {
        let _alone = self.promising.lock();
        let may_be = self.could_reply(counted_bytes, bytes);
        if may_be {
            self.account(counted_bytes, bytes);
        }
        may_be
    }

    /// Evicts keys with an expiry to make room for a reply, under a policy that keeps all others. Does
    /// nothing if even that couldn't free enough. `counted_bytes` are charged already. No shard may be
    /// locked.
    pub(crate) fn make_room_among_keys_that_expire(&self, counted_bytes: usize, bytes: usize, now_ms: u64) {
        let more_bytes = bytes.saturating_sub(counted_bytes);
        if self.engine.policy().keeps_keys()
            && !self.engine.could_lend(more_bytes, 0)
            && self.could_reply_beside_keys(counted_bytes, bytes)
            && self.engine.could_make_room(more_bytes, self.reserve_bytes())
        {
            // Charging the reply shows whether the eviction has freed enough.
            let _ = self.engine.make_room(more_bytes, now_ms);
            self.end_batch();
        }
    }

    /// Memory that replies may take beyond `maxmemory` if keys are not evicted for them, so that reads
    /// continue when memory is full.
    fn reserve_bytes(&self) -> usize {
        let share = usize::try_from(self.engine.bytes_max() / RESERVE_SHARE).unwrap_or(usize::MAX);
        share.max(RESERVE_BYTES_LEAST)
    }

    /// Returns whether `bytes` more may be charged without evicting keys: up to `beyond_bytes` above
    /// `maxmemory`, or above the size of the keys if they alone exceed `maxmemory`.
    fn could_lend(&self, bytes: usize, beyond_bytes: usize) -> bool {
        let keys_bytes = self.engine.used_bytes().saturating_sub(self.buffers_bytes() as u64);
        let keys_beyond = usize::try_from(keys_bytes.saturating_sub(self.engine.bytes_max()));
        self.engine.could_lend(bytes, beyond_bytes.saturating_add(keys_beyond.unwrap_or(usize::MAX)))
    }

    /// Returns whether replies have used up the reserve, so that each client gets one reply at a time.
    pub(crate) fn is_reserve_spent(&self) -> bool {
        !self.could_lend(0, self.reserve_bytes())
    }

    /// Returns whether a wait for other clients' buffers to be freed is worthwhile: all buffers except
    /// `own_bytes` are large enough.
    pub(crate) fn may_have_room_soon(&self, own_bytes: usize) -> bool {
        self.buffers_bytes().saturating_sub(own_bytes) > OTHERS_BYTES
    }

    /// Returns whether a request of this size could fit if no other client had buffers.
    pub(crate) fn could_take_request(&self, bytes: usize) -> bool {
        bytes.checked_sub(self.buffers_bytes()).is_none_or(|more_bytes| self.engine.could_hold(more_bytes))
    }

    /// Records that an incomplete request has grown or shrunk.
    pub(crate) fn account_request(&self, before_bytes: usize, now_bytes: usize) {
        self.requests_bytes.fetch_add(now_bytes.wrapping_sub(before_bytes), Relaxed);
        let half = self.engine.bytes_max() / 2;
        if now_bytes > before_bytes && self.requests_bytes.load(Relaxed) as u64 > half {
            self.end_largest_request();
        }
    }

    /// Closes the client with the largest request if all requests take more than half of `maxmemory`. A
    /// single request that takes most of that memory is tolerated, because it may become a value that fits.
    fn end_largest_request(&self) {
        let _alone = self.closing.lock();
        let Some((client, others_bytes)) = self.clients.largest_request() else { return };
        let bytes_max = self.engine.bytes_max() / 2;
        let bytes = others_bytes + client.facts.unread_bytes.load(Relaxed);
        let is_alone = others_bytes as u64 <= bytes_max / OTHER_REQUESTS_SHARE;
        if bytes as u64 > bytes_max && !(is_alone && self.engine.could_hold(0)) {
            tracing::warn!(client = %client.ends.client, "client closed: incomplete requests exceed half of maxmemory, and this client's is the largest");
            self.end(&client, Ending::Buffers);
        }
    }

    /// Charges a client's state, which grows to `bytes` in total, if permitted. The memory of its request is
    /// not counted, because it is about to be freed.
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

    /// Accounts for changes in the tracking table.
    pub(crate) fn account_tracking(&self) {
        follow(
            &self.tracking_bytes,
            || self.interests.tracking.bytes(),
            |before, now| self.account(before, now),
        );
    }

    /// Adds a command to the slow log.
    pub(crate) fn log_slow(&self, entry: Entry) {
        let bytes_max = usize::try_from(self.engine.bytes_max() / SLOW_LOG_SHARE).unwrap_or(usize::MAX);
        self.slow.log(entry, bytes_max.clamp(SLOW_LOG_BYTES_MIN, SLOW_LOG_BYTES_MAX));
        self.account_slow();
    }

    /// Accounts for changes in the slow log.
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

    /// Number of clients that wait for the end of CLIENT PAUSE.
    pub(crate) fn postponed(&self) -> usize {
        self.postponed.load(Relaxed)
    }

    /// Changes a worker's part of the number of clients that wait for the end of CLIENT PAUSE.
    pub(crate) fn postpone(&self, before: usize, now: usize) {
        self.postponed.fetch_add(now.wrapping_sub(before), Relaxed);
    }

    /// Closes the client with the largest buffers if the buffers of all clients exceed `bytes_max`, the limit
    /// as read shortly before. Buffers of clients that are closing are not counted.
    pub(crate) fn keep_buffers_to(&self, bytes_max: usize) {
        if self.buffered.staying_bytes() <= bytes_max {
            return;
        }
        if let Some(client) = self.end_largest() {
            tracing::warn!(client = %client.ends.client, "client closed: buffers exceed maxmemory-clients, and this client's are the largest");
        }
    }

    fn end_largest(&self) -> Option<Arc<Client>> {
        let _alone = self.closing.lock();
        if self.buffered.staying_bytes() <= self.buffers_bytes_max() {
            return None;
        }
        let (largest, unsent_bytes) = self.clients.largest()?;
        // Check again, because the excess may have been freed meanwhile. Read the limit last: it may have
        // been raised, and bytes counted since then may be within the new limit.
        let bytes = self.buffered.staying_bytes().saturating_sub(unsent_bytes);
        if bytes <= self.buffers_bytes_max() {
            return None;
        }
        self.end(&largest, Ending::Buffers);
        Some(largest)
    }

    /// Closes an unauthenticated client, and returns whether there was one.
    pub(crate) fn end_one_stranger(&self) -> bool {
        let is_ended = self.strangers.count() > 0 && self.strangers.end_one();
        if is_ended {
            self.endings.add(Ending::Strangers);
        }
        is_ended
    }

    /// Closes unauthenticated clients beyond a number.
    pub(crate) fn end_strangers_beyond(&self, count_max: usize) {
        let ended = if self.strangers.count() > count_max { self.strangers.end_beyond(count_max) } else { 0 };
        (0..ended).for_each(|_| self.endings.add(Ending::Strangers));
    }

    /// Records a change in the buffers of an unauthenticated client.
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

    /// Records that a client has sent HTTP.
    pub(crate) fn note_http(&self, client: &Client, now_ms: u64) {
        self.endings.add(Ending::Http);
        let before_ms = self.warned_of_http_at_ms.load(Relaxed);
        // Logged once a minute, as in Redis, because such requests can be frequent.
        if before_ms == 0 || now_ms >= before_ms.saturating_add(HTTP_WARNED_EVERY_MS) {
            self.warned_of_http_at_ms.store(now_ms, Relaxed);
            tracing::warn!(
                client = %client.ends.client,
                "client closed: it sent an HTTP request, possibly from a browser"
            );
        }
    }

    /// Performs periodic work that no command causes. Called frequently, by one worker.
    pub(crate) fn look_after(&self, now_ms: u64) {
        let limits = self.limits();
        self.pins.look();
        let auth_ms = limits.auth.as_millis() as u64;
        if auth_ms > 0 && self.strangers.count() > 0 {
            let overdue = self.strangers.end_since(now_ms.saturating_sub(auth_ms));
            (0..overdue).for_each(|_| self.endings.add(Ending::AuthTimeout));
        }
        for client in self.clients.too_late(&limits) {
            tracing::warn!(client = %client.ends.client, "client closed: unread output exceeded the soft limit for too long");
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

    /// Evicts keys above a lowered limit, a part in each turn of a worker, and returns whether more can be
    /// evicted. Eviction for grown buffers waits for the next write, because the growth may belong to a
    /// request that is refused for its size.
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
        // The remaining keys move to other segments, so usage may rise for a while although keys were
        // evicted.
        !is_obeyed && self.engine.counts().evicted > evicted
    }

    /// Evicts keys so that a reply that is about to be written fits.
    pub(crate) fn make_room_for_reply(&self, now_ms: u64) {
        self.make_room(now_ms, REPLY_ROOM_WITHIN);
    }

    /// Evicts keys for buffers whose total has grown, even if each grew only a little, without waiting for
    /// the next write.
    #[inline]
    pub(crate) fn make_room_owed(&self, now_ms: u64) {
        if self.buffered.owed_bytes() >= MADE_UP_FROM {
            self.make_room_for_buffers(now_ms);
        }
    }

    /// Evicts keys now and in the next ticks. During CLIENT PAUSE, the eviction is deferred to its end.
    fn make_room_for_buffers(&self, now_ms: u64) {
        if self.interests.pauses.now(now_ms).is_some() {
            self.is_room_owed.store(true, Relaxed);
            return;
        }
        let roomless_bytes = self.roomless_bytes.load(Relaxed) as u64;
        if roomless_bytes > 0 && self.engine.used_bytes() <= self.engine.bytes_max() + roomless_bytes {
            // The excess belongs to requests that may be refused. Keys are evicted for the other buffers
            // later.
            return;
        }
        self.buffered.settle();
        self.make_room(now_ms, ROOM_WITHIN);
        if self.engine.used_bytes() > self.engine.bytes_max() {
            self.is_room_owed.store(true, Relaxed);
        }
    }

    /// Evicts keys above the limit, as many as time permits.
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

/// Accounts for a change of a value since the last call. Loops, because another worker that saw the same
/// previous value may have changed it meanwhile.
fn follow(known: &AtomicUsize, bytes: impl Fn() -> usize, account: impl Fn(usize, usize)) {
    let mut now = bytes();
    while now != known.load(SeqCst) {
        account(known.swap(now, SeqCst), now);
        now = bytes();
    }
}

/// Memory that replies may take beyond `maxmemory` if no keys are evicted: this fraction of `maxmemory`, and
/// at least the minimum below. Clients' state may take half of that memory.
const RESERVE_SHARE: u64 = 16;
const RESERVE_BYTES_LEAST: usize = 1 << 20;
/// Other clients' buffers up to this total size aren't worth waiting for.
const OTHERS_BYTES: usize = 256 << 10;
/// If one request takes more than half of the memory, other clients' requests up to this fraction of that
/// half are ignored.
const OTHER_REQUESTS_SHARE: u64 = 8;
/// Memory for the slow log, as a fraction of `maxmemory`, with a minimum and a maximum.
const SLOW_LOG_SHARE: u64 = 64;
const SLOW_LOG_BYTES_MIN: usize = 256 << 10;
const SLOW_LOG_BYTES_MAX: usize = 16 << 20;
const HTTP_WARNED_EVERY_MS: u64 = 60_000;
/// Tracked keys dropped in one tick after the limit was lowered. Each causes an invalidation message.
const FORGOTTEN_AT_ONCE: usize = 10_000;
/// Maximum time for which a command evicts keys to make room for its reply.
const REPLY_ROOM_WITHIN: Duration = Duration::from_millis(100);
/// Growth of all buffers at which keys are evicted immediately. Smaller growth waits for the next tick or the
/// next write.
const MADE_UP_FROM: usize = 64 << 10;
/// Time limit for a worker to evict in a tick.
const ROOM_WITHIN: Duration = Duration::from_millis(5);
/// Time limit in each turn of a worker's loop to follow a lowered limit. Clients get their turns in between.
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

    /// The limit is raised and lowered between two ticks, so no worker has seen the higher limit.
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

    /// The limit is followed without waiting for ticks, which are far apart.
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
