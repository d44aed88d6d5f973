//! All connections of the server as other connections see them: state, mailboxes, and a way to kill them.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use crate::charge::Charge;
use crate::limits::{Limits, OutputLimit};
use crate::output::Output;
use crate::pins::Buffered;
use crate::reply::Version;
use crate::server::Security;
use crate::subscriptions::Receiver;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use crate::sync::{Mutex, Waker};

/// Clients of all workers by id.
#[derive(Debug)]
pub(crate) struct Clients {
    buffered: Arc<Buffered>,
    made: AtomicU64,
    open: Mutex<BTreeMap<u64, Arc<Client>>>,
    /// Size of `open`, readable without its lock.
    count: AtomicUsize,
    /// Clients above the soft limit of their output buffer.
    late: Mutex<BTreeMap<u64, Arc<Client>>>,
}

/// A client. Only the client's worker writes `facts`; any thread may read them, post messages, or kill the
/// client.
#[derive(Debug)]
pub(crate) struct Client {
    /// Unique among all connections of the process.
    pub(crate) id: u64,
    pub(crate) ends: Ends,
    pub(crate) since_ms: u64,
    pub(crate) facts: Facts,
    pub(crate) names: Mutex<Names>,
    /// Buffer memory charged to this client.
    pub(crate) charge: Charge,
    place: Place,
    mailbox: Mutex<Mailbox>,
    has_mail: AtomicBool,
    is_killed: AtomicBool,
}

/// Addresses of both ends of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
    pub(crate) security: Security,
}

impl Ends {
    /// The ends of a Unix socket, which has no addresses: this machine and port 0, which no TCP client has.
    pub(crate) fn of_unix(security: Security) -> Self {
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self { client: here, server: here, security }
    }

    pub(crate) fn is_unix(self) -> bool {
        self.server.port() == 0
    }
}

/// State that changes with every turn.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) seen_ms: AtomicU64,
    pub(crate) database: AtomicUsize,
    /// 2 or 3.
    pub(crate) protocol: AtomicUsize,
    /// Index in the command table of the last command; out of range if there was none.
    pub(crate) command: AtomicUsize,
    /// Bytes read but not yet executed.
    pub(crate) unread_bytes: AtomicUsize,
    /// Bytes of replies that the client has not read.
    pub(crate) unsent_bytes: AtomicUsize,
    /// Memory of the client's state: watched keys, subscriptions, tracked prefixes, names.
    pub(crate) kept_bytes: AtomicUsize,
    /// Channels, patterns and shard channels.
    pub(crate) subscribed: [AtomicUsize; 3],
    /// CLIENT NO-EVICT: exempt from closing when buffers exceed their limit.
    pub(crate) is_kept: AtomicBool,
    /// Whether the client has sent MONITOR.
    pub(crate) is_monitor: AtomicBool,
    /// Commands queued for EXEC; out of range outside a transaction.
    pub(crate) queued: AtomicUsize,
}

/// Messages other than replies, waiting to be sent to a client.
#[derive(Debug, Default)]
struct Mailbox {
    messages: Output,
    /// Whether the connection has ended, so that messages are dropped.
    is_closed: bool,
    /// Time since which the messages exceed the soft limit.
    over_since: Option<Instant>,
}

/// Names set by CLIENT SETNAME and CLIENT SETINFO.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    pub(crate) name: Vec<u8>,
    pub(crate) library: Vec<u8>,
    pub(crate) library_version: Vec<u8>,
}

impl Names {
    pub(crate) fn bytes(&self) -> usize {
        [&self.name, &self.library, &self.library_version].iter().map(|name| name.capacity()).sum()
    }
}

/// The worker of a connection, and the connection's number there.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) worker: Arc<Calls>,
    pub(crate) number: usize,
}

/// State of a client's output buffer relative to its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backlog {
    Fine,
    /// Above the soft limit, which is allowed for a while.
    Late,
    /// Above the limit: the client has to be closed.
    OverLimit,
}

impl Clients {
    pub(crate) fn new(buffered: &Arc<Buffered>) -> Self {
        Self {
            buffered: Arc::clone(buffered),
            made: AtomicU64::new(0),
            open: Mutex::default(),
            count: AtomicUsize::new(0),
            late: Mutex::default(),
        }
    }

    /// Adds a connection.
    pub(crate) fn add(&self, ends: Ends, place: Place, now_ms: u64) -> Arc<Client> {
        let id = self.made.fetch_add(1, Relaxed) + 1;
        let client = Arc::new(Client::new(id, ends, place, Charge::new(&self.buffered), now_ms));
        self.open.lock().insert(id, Arc::clone(&client));
        self.count.fetch_add(1, Relaxed);
        client
    }

    pub(crate) fn remove(&self, id: u64) {
        self.late.lock().remove(&id);
        if self.open.lock().remove(&id).is_some() {
            self.count.fetch_sub(1, Relaxed);
        }
    }

    pub(crate) fn find(&self, id: u64) -> Option<Arc<Client>> {
        self.open.lock().get(&id).cloned()
    }

    /// All clients, the oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<Client>> {
        self.open.lock().values().cloned().collect()
    }

    /// Returns the open client with the largest buffers, and the unsent bytes of clients that are closing.
    /// Those bytes may be freed soon, and they include shared values and messages that are charged to no
    /// single client.
    pub(crate) fn largest(&self) -> Option<(Arc<Client>, usize)> {
        let open = self.open.lock();
        let closing = open.values().filter(|client| client.is_killed());
        let unsent_bytes = closing.map(|client| client.unsent_bytes()).sum();
        let staying =
            open.values().filter(|client| !client.is_killed() && !client.facts.is_kept.load(Relaxed));
        let (bytes, largest) =
            staying.map(|client| (client.buffers_bytes(), client)).max_by_key(|(bytes, _)| *bytes)?;
        (bytes > 0).then(|| (Arc::clone(largest), unsent_bytes))
    }

    /// Returns the open client with the largest request, and the size of the requests of all other open
    /// clients.
    pub(crate) fn largest_request(&self) -> Option<(Arc<Client>, usize)> {
        let open = self.open.lock();
        let bytes = |client: &Client| client.facts.unread_bytes.load(Relaxed);
        let staying = || open.values().filter(|client| !client.is_killed());
        let largest = staying().max_by_key(|client| bytes(client))?;
        let all_bytes: usize = staying().map(|client| bytes(client)).sum();
        Some((Arc::clone(largest), all_bytes.saturating_sub(bytes(largest))))
    }

    /// Records that a client exceeds its soft limit.
    pub(crate) fn note_late(&self, id: u64) {
        if let Some(client) = self.find(id) {
            self.late.lock().insert(id, client);
        }
    }

    /// Returns the clients that exceeded their soft limit for too long, and forgets those that are below it
    /// again.
    pub(crate) fn too_late(&self, limits: &Limits) -> Vec<Arc<Client>> {
        let mut late = self.late.lock();
        let mut over = Vec::new();
        late.retain(|_, client| match client.backlog(0, limits) {
            Backlog::Fine => false,
            Backlog::Late => true,
            Backlog::OverLimit => {
                over.push(Arc::clone(client));
                false
            }
        });
        over
    }

    /// Number of open connections.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// Number of connections since the start.
    pub(crate) fn made(&self) -> u64 {
        self.made.load(Relaxed)
    }
}

impl Client {
    fn new(id: u64, ends: Ends, place: Place, charge: Charge, now_ms: u64) -> Self {
        let facts = Facts {
            seen_ms: AtomicU64::new(now_ms),
            protocol: AtomicUsize::new(Version::default().number()),
            command: AtomicUsize::new(usize::MAX),
            queued: AtomicUsize::new(usize::MAX),
            ..Facts::default()
        };
        Self {
            id,
            ends,
            since_ms: now_ms,
            facts,
            names: Mutex::default(),
            charge,
            place,
            mailbox: Mutex::default(),
            has_mail: AtomicBool::new(false),
            is_killed: AtomicBool::new(false),
        }
    }

    /// Posts a message that is not a reply, such as a push message. The message is sent after the replies to
    /// all earlier requests. Its memory is counted before another thread can release it, unless other clients
    /// share the memory. Above the limit, nothing is posted.
    pub(crate) fn post(&self, message: &Output, limits: &Limits) -> Backlog {
        let mut mailbox = self.mailbox.lock();
        if mailbox.is_closed {
            return Backlog::Fine;
        }
        let waiting_bytes = mailbox.messages.sent_bytes() + message.sent_bytes();
        let waiting_bytes = waiting_bytes + self.facts.unsent_bytes.load(Relaxed);
        let backlog = mailbox.look(waiting_bytes, &limits.messages);
        if backlog == Backlog::OverLimit {
            return backlog;
        }
        let before_bytes = mailbox.messages.held_bytes();
        mailbox.messages.post(message);
        self.charge.account(before_bytes, mailbox.messages.held_bytes());
        let is_known = self.has_mail.swap(true, SeqCst);
        drop(mailbox);
        if !is_known {
            self.place.worker.call(self.place.number);
        }
        backlog
    }

    /// The state of the output buffer if `more_bytes` were added.
    pub(crate) fn backlog(&self, more_bytes: usize, limits: &Limits) -> Backlog {
        let mut mailbox = self.mailbox.lock();
        let waiting_bytes =
            mailbox.messages.sent_bytes() + more_bytes + self.facts.unsent_bytes.load(Relaxed);
        mailbox.look(waiting_bytes, if self.listens() { &limits.messages } else { &limits.replies })
    }

    pub(crate) fn has_mail(&self) -> bool {
        self.has_mail.load(Relaxed)
    }

    /// Appends the posted messages.
    pub(crate) fn take_mail(&self, out: &mut Output) {
        let mut mailbox = self.mailbox.lock();
        self.has_mail.store(false, SeqCst);
        let messages = self.empty(&mut mailbox);
        drop(mailbox);
        out.append(messages);
    }

    /// Closes the mailbox: later messages are dropped.
    pub(crate) fn close_mailbox(&self) {
        let mut mailbox = self.mailbox.lock();
        mailbox.is_closed = true;
        let messages = self.empty(&mut mailbox);
        drop(mailbox);
        drop(messages);
    }

    fn empty(&self, mailbox: &mut Mailbox) -> Output {
        self.charge.account(mailbox.messages.held_bytes(), 0);
        std::mem::take(&mut mailbox.messages)
    }

    /// Records the size of the client's buffers. An increase is published before `account` counts it, and a
    /// decrease after it is no longer counted, so that the owner of every counted byte can be found.
    pub(crate) fn account_buffers(
        &self,
        unread_bytes: usize,
        unsent_bytes: usize,
        account: impl FnOnce(&Charge),
    ) {
        let Facts { unread_bytes: unread, unsent_bytes: unsent, .. } = &self.facts;
        unread.fetch_max(unread_bytes, Relaxed);
        unsent.fetch_max(unsent_bytes, Relaxed);
        account(&self.charge);
        unread.store(unread_bytes, Relaxed);
        unsent.store(unsent_bytes, Relaxed);
    }

    /// Records the size of the client's state and returns the increase.
    pub(crate) fn account_kept(&self, bytes: usize) -> usize {
        let kept = &self.facts.kept_bytes;
        let before_bytes = kept.fetch_max(bytes, Relaxed);
        self.charge.account(before_bytes, bytes);
        kept.store(bytes, Relaxed);
        bytes.saturating_sub(before_bytes)
    }

    /// Records the numbers of channels, patterns and shard channels.
    pub(crate) fn set_subscribed(&self, counts: [usize; 3]) {
        let facts = self.facts.subscribed.iter().zip(counts);
        facts.for_each(|(fact, count)| fact.store(count, Relaxed));
    }

    /// Returns whether the client receives messages that aren't replies.
    pub(crate) fn listens(&self) -> bool {
        self.is_subscribed() || self.facts.is_monitor.load(Relaxed)
    }

    pub(crate) fn is_subscribed(&self) -> bool {
        self.facts.subscribed.iter().any(|count| count.load(Relaxed) > 0)
    }

    pub(crate) fn buffers_bytes(&self) -> usize {
        let facts = &self.facts;
        facts.unread_bytes.load(Relaxed) + facts.kept_bytes.load(Relaxed) + self.unsent_bytes()
    }

    /// Bytes of replies and messages that the client has not read.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.facts.unsent_bytes.load(Relaxed) + self.mailbox.lock().messages.sent_bytes()
    }

    /// Returns whether the client has been idle for `idle_ms` and is not listening to messages.
    pub(crate) fn is_idle(&self, idle_ms: u64, now_ms: u64) -> bool {
        !self.listens() && now_ms.saturating_sub(self.facts.seen_ms.load(Relaxed)) >= idle_ms
    }

    /// Kills the client: its worker closes the connection at its next turn. Returns whether this was the
    /// first call.
    pub(crate) fn kill(&self) -> bool {
        let mut is_first = false;
        self.kill_counted(|| is_first = true);
        is_first
    }

    /// Like [`Self::kill`], and calls `count` on the first call only, before the kill is visible to others.
    pub(crate) fn kill_counted(&self, count: impl FnOnce()) {
        if self.charge.give_up() {
            count();
        }
        self.is_killed.store(true, SeqCst);
        self.call();
    }

    /// Marks the connection as ending, so that its memory causes no further closes. Returns whether this was
    /// the first call.
    pub(crate) fn give_up(&self) -> bool {
        let is_first = self.charge.give_up();
        self.is_killed.store(true, SeqCst);
        is_first
    }

    /// Asks the client's worker to give the client a turn.
    pub(crate) fn call(&self) {
        self.place.worker.call(self.place.number);
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.is_killed.load(Relaxed)
    }
}

impl Mailbox {
    fn look(&mut self, waiting_bytes: usize, limit: &OutputLimit) -> Backlog {
        let is_above = |bytes_max: usize| bytes_max > 0 && waiting_bytes > bytes_max;
        let is_late = is_above(limit.bytes_soft);
        if !is_late {
            self.over_since = None;
        }
        let is_too_late =
            is_late && self.over_since.get_or_insert_with(Instant::now).elapsed() >= limit.patience;
        match () {
            () if is_above(limit.bytes_max) || is_too_late => Backlog::OverLimit,
            () if is_late => Backlog::Late,
            () => Backlog::Fine,
        }
    }
}

impl Receiver for Client {
    fn id(&self) -> u64 {
        self.id
    }
}

/// Connections of a worker for which other threads have requested a turn.
#[derive(Debug)]
pub(crate) struct Calls {
    waker: Waker,
    numbers: Mutex<Vec<usize>>,
    /// Whether the worker sleeps or is about to. Only then does it have to be woken.
    is_asleep: AtomicBool,
}

impl Calls {
    pub(crate) fn new(waker: Waker) -> Self {
        Self { waker, numbers: Mutex::default(), is_asleep: AtomicBool::new(false) }
    }

    /// Asks the worker to process one of its connections. A number that was freed or reused in the meantime
    /// does no harm.
    fn call(&self, number: usize) {
        self.numbers.lock().push(number);
        if self.is_asleep.swap(false, SeqCst) {
            self.wake();
        }
    }

    /// Wakes the worker.
    pub(crate) fn wake(&self) {
        if let Err(error) = self.waker.wake() {
            tracing::error!(%error, "failed to wake a worker");
        }
    }

    /// Announces that the worker is about to sleep. Returns false if a turn was requested meanwhile.
    pub(crate) fn may_sleep(&self) -> bool {
        self.is_asleep.store(true, SeqCst);
        self.numbers.lock().is_empty()
    }

    pub(crate) fn take(&self, numbers: &mut Vec<usize>) {
        self.is_asleep.store(false, SeqCst);
        numbers.append(&mut self.numbers.lock());
    }
}
