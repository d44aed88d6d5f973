//! Life cycle of the connections: they are opened, used, closed and reopened.

use std::convert::Infallible;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::clock::ServerClock;
use super::cluster::Cluster;
use super::connections::{Connections, Opened};
use super::dispatcher::PushDispatcher;
use super::heartbeat::{Beat, Role};
use super::log;
use super::master::Master;
use super::names::{Names, slot_of_record};
use super::settings::{Access, Address, RemoteSettings};
use super::source_status::SourceStatus;
use super::wire::{Connector, OpenError, with_causes};
use crate::backing::{BackingError, Watchers};

/// State that outlives connections.
pub(super) struct Link {
    pub(super) names: Names,
    pub(super) status: SourceStatus,
    pub(super) watchers: Arc<Watchers>,
    /// Limits how many possibly granted leases are being released at a time.
    pub(super) releases: Arc<Semaphore>,
    address: Address,
    master: Master,
    /// Number of replicas that are connected to the server.
    connected_replicas: AtomicU32,
    verification: Duration,
    followed_bytes_max: usize,
    access: Access,
    state: RwLock<State>,
    cluster: Option<Weak<Cluster>>,
    /// Whether this server has the log.
    has_log: watch::Sender<bool>,
}

/// State that the links of a store share.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) watchers: Arc<Watchers>,
    pub(super) generations: Arc<AtomicU32>,
    /// `None` for a single server.
    pub(super) cluster: Option<Weak<Cluster>>,
}

enum State {
    Up(Arc<Connections>),
    /// Not connected, with the reason.
    Down(Arc<str>),
}

/// Reason for the end of a generation.
#[derive(Debug, thiserror::Error)]
enum DisconnectReason {
    #[error("the connection was closed")]
    Closed,
    #[error("the server is no longer the master")]
    NotMaster,
    #[error("another address is used")]
    Moved,
    #[error("no reply to a heartbeat within {} ms", .0.as_millis())]
    Silent(Duration),
    #[error("heartbeat failed")]
    Failed(#[source] BackingError),
}

impl Link {
    pub(super) fn new(settings: &RemoteSettings, address: &Address, master: Master, shared: &Shared) -> Self {
        Self {
            names: Names::new(&settings.prefix),
            status: SourceStatus::new(Instant::now(), Arc::clone(&shared.generations)),
            watchers: Arc::clone(&shared.watchers),
            cluster: shared.cluster.clone(),
            has_log: watch::channel(shared.cluster.is_none()).0,
            releases: Arc::new(Semaphore::new(RELEASES_MAX)),
            address: address.clone(),
            master,
            connected_replicas: AtomicU32::new(0),
            // Heartbeats need an interval of at least a millisecond.
            verification: settings.verification.max(Duration::from_millis(u64::from(BEATS))),
            followed_bytes_max: settings.followed_bytes_max,
            access: settings.access,
            state: RwLock::new(State::Down("not connected yet".into())),
        }
    }

    /// Returns the current connections; fails immediately if there are none.
    pub(super) fn connections(&self) -> Result<Arc<Connections>, BackingError> {
        match &*self.state.read() {
            State::Up(connections) => Ok(Arc::clone(connections)),
            State::Down(why) => Err(BackingError::Unreachable((&**why).into())),
        }
    }

    /// Returns the reason if there are no connections.
    pub(super) fn trouble(&self) -> Option<Arc<str>> {
        match &*self.state.read() {
            State::Up(_) => None,
            State::Down(why) => Some(Arc::clone(why)),
        }
    }

    /// Returns the number of replicas, as far as it is known.
    pub(super) fn replicas(&self) -> u32 {
        self.connected_replicas.load(Relaxed).max(self.master.known_replicas())
    }

    /// Notes whether this server has the log.
    pub(super) fn set_has_log(&self, has_log: bool) {
        self.has_log.send_if_modified(|known| std::mem::replace(known, has_log) != has_log);
    }

    /// Reports the records in these slots, which other nodes have now, as suspect.
    pub(super) fn slots_moved(&self, has_moved: impl Fn(u16) -> bool) {
        if let Ok(connections) = self.connections() {
            connections.dispatcher.moved(|digest| has_moved(slot_of_record(digest)));
        }
    }

    /// Ends all connections to a server that is no longer used.
    pub(super) fn leave(&self) {
        if let Ok(connections) = self.connections() {
            self.end(&connections, &DisconnectReason::NotMaster);
        }
    }

    fn cluster(&self) -> Option<Arc<Cluster>> {
        self.cluster.as_ref()?.upgrade()
    }

    /// Returns a name by which the server's commands can be tried; `None` if its data are only read.
    fn probe(&self, connector: &Connector) -> Option<String> {
        match (self.access, self.cluster(), connector.host()) {
            (Access::Reading, ..) => None,
            (Access::Shared, Some(cluster), Some(host)) => {
                Some(self.names.probe_in(|slot| cluster.owns(host, slot)))
            }
            (Access::Shared, ..) => Some(self.names.probe()),
        }
    }

    /// Connects and reconnects until it is dropped.
    pub(super) async fn run(&self) {
        tokio::select! {
            never = self.master.follow() => match never {},
            never = self.keep_connected() => match never {},
        }
    }

    async fn keep_connected(&self) -> Infallible {
        let mut failures = 0u32;
        if self.master.connector().is_err() {
            // The sentinels have not been asked yet.
            let _ = timeout(FIRST_ANSWER_WITHIN, self.master.moved(None)).await;
        }
        loop {
            failures = failures.saturating_add(1);
            let connector = self.master.connector();
            let begun = match &connector {
                Ok(connector) => self.begin(connector).await,
                Err(why) => Err(OpenError::UnknownMaster(Arc::clone(why))),
            };
            match begun {
                Ok((opened, clock)) => {
                    let (begun, connections) = (Instant::now(), Arc::clone(&opened.connections));
                    let ending = self.run_generation(opened, clock).await;
                    self.end(&connections, &ending);
                    self.master.failed(connections.connector());
                    // A short-lived connection also counts as a failure.
                    failures = if begun.elapsed() > self.verification { 0 } else { failures };
                }
                Err(error) => {
                    self.set_down(&with_causes(&error));
                    connector.iter().for_each(|connector| self.master.failed(connector));
                }
            }
            // A new master is connected at once.
            let moved = self.master.moved(connector.as_ref().ok());
            if timeout(pause(failures, chance()), moved).await.is_ok() {
                failures = 0;
                sleep(pause(failures, chance())).await;
            }
        }
    }

    async fn begin(&self, connector: &Connector) -> Result<(Opened, ServerClock), OpenError> {
        tokio::select! {
            () = self.master.moved(Some(connector)) => Err(OpenError::Moved),
            () = sleep(connector.timeout()) => Err(OpenError::TimedOut(connector.timeout())),
            begun = self.open(connector) => begun,
        }
    }

    async fn open(&self, connector: &Connector) -> Result<(Opened, ServerClock), OpenError> {
        let source = self.status.begin();
        let watchers = Arc::clone(&self.watchers);
        let dispatcher =
            Arc::new(PushDispatcher::new(source, self.names.clone(), watchers, self.followed_bytes_max));
        let opened =
            Connections::open(connector, dispatcher, source, (&self.names, self.probe(connector).as_deref()))
                .await?;
        let mut clock = ServerClock::default();
        if self.process_beat(opened.beat, &mut clock) == Role::Other {
            return Err(OpenError::NoMaster);
        }
        self.master.check(connector, &opened.connections.control).await.map_err(OpenError::OtherData)?;
        *self.state.write() = State::Up(Arc::clone(&opened.connections));
        let server = connector.host().map(tracing::field::display);
        tracing::info!(address = %self.address, server, generation = source.generation, "remote tier connected");
        Ok((opened, clock))
    }

    /// Records that there are no connections. Logs each reason only once, however many attempts fail.
    fn set_down(&self, why: &Arc<str>) {
        let before = std::mem::replace(&mut *self.state.write(), State::Down(Arc::clone(why)));
        if !matches!(before, State::Down(known) if known == *why) {
            tracing::warn!(address = %self.address, %why, "remote tier not connected");
        }
    }

    /// Runs a generation until it ends.
    async fn run_generation(
        &self,
        Opened { connections, control, bulk, .. }: Opened,
        clock: ServerClock,
    ) -> DisconnectReason {
        tokio::select! {
            _ = control => DisconnectReason::Closed,
            () = connections.demoted() => DisconnectReason::NotMaster,
            () = self.master.moved(Some(connections.connector())) => DisconnectReason::Moved,
            ending = self.send_heartbeats(&connections, clock) => ending,
            never = self.keep_bulk(&connections, bulk) => match never {},
            never = self.follow_log(&connections) => match never {},
        }
    }

    async fn send_heartbeats(&self, connections: &Connections, mut clock: ServerClock) -> DisconnectReason {
        let mut beats = interval(self.verification / BEATS);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            beats.tick().await;
            match timeout(
                self.verification,
                Beat::of(&connections.control, connections.connector().redirections()),
            )
            .await
            {
                Ok(Ok(beat)) if self.process_beat(beat, &mut clock) == Role::Other => {
                    return DisconnectReason::NotMaster;
                }
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return DisconnectReason::Failed(error),
                Err(_) => return DisconnectReason::Silent(self.verification),
            }
        }
    }

    /// Processes the reply to a heartbeat. By then, watchers have received all announcements that preceded the reply.
    fn process_beat(&self, beat: Beat, clock: &mut ServerClock) -> Role {
        if let (Some(cluster), Some(info)) = (self.cluster(), beat.cluster) {
            cluster.note_beat(info);
        }
        if beat.role != Role::Other {
            self.connected_replicas.store(beat.replicas, Relaxed);
            if let Some(reading) = beat.clock {
                let before_ms = self.status.clock_ahead_ms();
                let ahead_ms = clock.add(reading, Instant::now());
                self.status.set_clock_ahead_ms(ahead_ms);
                self.log_clock_difference(before_ms, ahead_ms);
            }
            self.status.verify(beat.sent, self.verification);
        }
        beat.role
    }

    /// Logs once that the clocks differ, and once that they agree again.
    fn log_clock_difference(&self, before_ms: Option<i64>, ahead_ms: i64) {
        let differed = before_ms.is_some_and(differs);
        match differs(ahead_ms) {
            true if !differed => tracing::warn!(
                address = %self.address, ahead_ms, "clocks of the shared store and this machine differ: synchronize both with NTP"
            ),
            false if differed => {
                tracing::info!(address = %self.address, ahead_ms, "clocks of the shared store and this machine agree again");
            }
            true | false => {}
        }
    }

    /// Announces each change of the log, and once at the start that it may have changed, because there was no connection before. A watcher
    /// may read the log immediately: its request follows the one that tracks the log on the same connection, so no change is missed.
    async fn follow_log(&self, connections: &Connections) -> Infallible {
        let mut has_log = self.has_log.subscribe();
        loop {
            // The sender lives as long as this link.
            let _ = has_log.wait_for(|has_log| *has_log).await;
            let mut lost = has_log.clone();
            tokio::select! {
                _ = lost.wait_for(|has_log| !*has_log) => {}
                never = self.follow_own_log(connections) => match never {},
            }
        }
    }

    async fn follow_own_log(&self, connections: &Connections) -> Infallible {
        loop {
            let (followed, ()) = tokio::join! {
                biased;
                log::follow(connections),
                async { self.watchers.tell(|watcher| watcher.log_changed()) },
            };
            match followed {
                Ok(()) => connections.dispatcher.log_changed().await,
                Err(_) => sleep(self.verification / BEATS).await,
            }
        }
    }

    /// Reopens *bulk* whenever it has ended (a server may close idle connections) or stays silent.
    async fn keep_bulk(&self, connections: &Connections, mut bulk: JoinHandle<()>) -> Infallible {
        loop {
            let silent = connections.bulk_is_silent(self.verification, self.verification * BULK_PATIENCE);
            tokio::select! {
                // The connection has ended; the reason doesn't matter.
                _ = &mut bulk => {}
                () = silent => {}
            }
            bulk = reopen_bulk(connections).await;
        }
    }

    fn end(&self, connections: &Connections, ending: &DisconnectReason) {
        self.status.end();
        self.set_down(&with_causes(ending));
        connections.close();
        connections.dispatcher.all_changed();
        if let Some(cluster) = self.cluster() {
            cluster.changed();
        }
    }
}

async fn reopen_bulk(connections: &Connections) -> JoinHandle<()> {
    let mut failures = 0u32;
    loop {
        sleep(pause(failures, chance())).await;
        match connections.reopen_bulk().await {
            Ok(driving) => return driving,
            Err(_) => failures = failures.saturating_add(1),
        }
    }
}

/// Timeout of a ping on *bulk*, as a multiple of the verification time. Megabytes may be queued before the ping on a slow network.
const BULK_PATIENCE: u32 = 5;
/// Number of heartbeats per verification time, so that one may be late without consequences.
const BEATS: u32 = 4;
/// Maximum number of leases that are being released at a time. Each needs two or three requests on connections with more urgent work.
/// Beyond the limit, leases expire instead.
const RELEASES_MAX: usize = 64;

/// Returns whether the difference of two clocks is worth a warning.
fn differs(ahead_ms: i64) -> bool {
    ahead_ms.unsigned_abs() > CLOCKS_DIFFER_MS
}

const CLOCKS_DIFFER_MS: u64 = 1_000;

/// Returns the pause before the next attempt to connect, after this many failures in a row. The pause is drawn from an interval that
/// doubles with each failure, so that the instances of a fleet don't connect simultaneously.
fn pause(failures: u32, chance: u32) -> Duration {
    let longest_ms = (FIRST_MS << failures.min(16)).min(LONGEST_MS);
    Duration::from_millis((u64::from(chance) * longest_ms) >> 32)
}

/// Time within which sentinels usually answer after the start. Until then, an unknown master isn't worth a warning.
const FIRST_ANSWER_WITHIN: Duration = Duration::from_millis(500);
const FIRST_MS: u64 = 50;
/// Maximum pause, so that a server is used within a second after its return.
const LONGEST_MS: u64 = 1000;

fn chance() -> u32 {
    RandomState::new().hash_one(()) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_limit() {
        for (failures, longest_ms) in [(0, 49), (1, 99), (2, 199), (4, 799), (5, 999), (40, 999)] {
            let [shortest, longest] = [0, u32::MAX].map(|chance| pause(failures, chance));
            assert_eq!((shortest, longest), (Duration::ZERO, Duration::from_millis(longest_ms)));
        }
    }
}
