//! What all connections of all workers share.

use std::sync::Arc;

use engine::Engine;

use crate::access::Access;
use crate::clients::{Client, Clients};
use crate::cluster::Cluster;
use crate::command::Table;
use crate::databases::Databases;
use crate::interest::Interests;
use crate::limits::Limits;
use crate::rates::{Rates, Totals};
use crate::saved::SaveFile;
use crate::separated::TextProtocol;
use crate::session::Gates;
use crate::slow::Slow;
use crate::statistics::{Errors, Statistics};
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
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
    turns: Box<[Turn]>,
    /// Writes since the begin.
    changes: AtomicU64,
    /// Connections that were not admitted.
    refused: AtomicU64,
    /// Of requests and replies of all connections.
    buffers_bytes: AtomicUsize,
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
            clients: Clients::default(),
            databases,
            interests: Interests::default(),
            cluster: None,
            access: RwLock::default(),
            limits: Mutex::new(Limits::default()),
            tls: RwLock::default(),
            is_stopping: AtomicBool::new(false),
            turns: (0..workers).map(|_| Turn::default()).collect(),
            changes: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            buffers_bytes: AtomicUsize::new(0),
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

    /// What keeps a new client from its first command.
    pub(crate) fn first_gates(&self) -> Gates {
        let mut gates = Gates::default();
        if !self.access.read().passwords.is_empty() {
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
        if changes > 0 {
            self.changes.fetch_add(changes, Relaxed);
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

    /// Buffers of a connection have grown or shrunk. They are part of what the engine may take: keys make room for them.
    pub(crate) fn account(&self, before_bytes: usize, now_bytes: usize) {
        if before_bytes == now_bytes {
            return;
        }
        self.engine.lend(before_bytes, now_bytes);
        self.buffers_bytes.fetch_add(now_bytes.wrapping_sub(before_bytes), Relaxed);
    }

    /// Evicts for buffers that have grown by much, without waiting for the next write; but for CLIENT PAUSE, during which no key goes.
    pub(crate) fn make_up(&self, now_ms: u64) {
        if self.interests.pauses.now(now_ms).is_none() {
            self.engine.make_up(now_ms);
            self.end_batch();
        }
    }

    /// Sends what is no reply. A client that has too much to read already is closed instead.
    pub(crate) fn post(&self, client: &Client, message: &[u8]) {
        if client.post(message, &self.limits(), |more_bytes| self.account(0, more_bytes)).is_err() {
            tracing::warn!(client = %client.ends.client, "closed: it does not read its messages");
        }
    }

    /// Appends what was posted to a client.
    pub(crate) fn take_mail(&self, client: &Client, out: &mut Vec<u8>) {
        self.account(client.take_mail(out), 0);
    }

    /// A connection has ended.
    pub(crate) fn forget(&self, client: &Client) {
        self.clients.remove(client.id);
        self.account(client.close_mailbox(), 0);
    }

    pub(crate) fn buffers_bytes(&self) -> usize {
        self.buffers_bytes.load(Relaxed)
    }

    /// Closes the client whose buffers take most.
    pub(crate) fn close_largest(&self) {
        if let Some(client) = self.clients.largest() {
            tracing::warn!(client = %client.ends.client, "closed: the buffers of all clients are above their limit, and its own are the largest");
            client.kill();
        }
    }
}
