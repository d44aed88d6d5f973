//! The masters of a cluster, and the slots of each.
//!
//! Each master has a [`Link`], with its own connections and generations. The map of slots is read from one node at a time: at the start,
//! once in a while, whenever a node reports another configuration epoch or sends a request elsewhere, and again for some time after that,
//! because nodes learn of changes one after the other.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use redis::{Value, cmd};
use resp::SLOTS;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::connections::Connections;
use super::dial::Transport;
use super::link::{Link, Shared};
use super::master::Master;
use super::names::Names;
use super::settings::{Address, Host, RemoteSettings, Server};
use super::slots::{self, ClusterInfo, Redirect, RedirectKind, SlotRange};
use super::wire::{Connector, with_causes};
use crate::backing::{BackingError, CopyStatus, Source, Watchers};

/// A cluster, with a link to each master.
pub(super) struct Cluster {
    settings: RemoteSettings,
    transport: Transport,
    /// How to log in, with an unused target.
    connector: Connector,
    seeds: Box<[Host]>,
    shared: Shared,
    log_slot: u16,
    runtime: Handle,
    topology: RwLock<Topology>,
    /// Serialises changes of the topology, with their effects on links and watchers, which run without its lock.
    changing: Mutex<()>,
    /// Highest epoch that any node has reported.
    epoch: AtomicU64,
    /// Number of times that the map was read.
    readings: AtomicUsize,
    /// Time until which the map is read often.
    unsettled_until: Mutex<Instant>,
    wanted: Notify,
    trouble: Mutex<Arc<str>>,
}

struct Topology {
    /// Nodes that own slots.
    nodes: Vec<Arc<Node>>,
    /// The owner of each slot.
    owners: Arc<[Option<Arc<Node>>]>,
    log_replicas: u32,
}

type Owners = Vec<Option<Arc<Node>>>;

/// A master. Its link ends when the node owns no slot any more; a node that comes back gets a new link.
struct Node {
    host: Host,
    link: Arc<Link>,
    task: Mutex<Option<AbortHandle>>,
}

impl Cluster {
    /// Connects to a cluster. Call it inside a tokio runtime.
    pub(super) fn connect(settings: &RemoteSettings, seeds: &[Host]) -> Arc<Self> {
        let transport = Transport::of(settings);
        let names = Names::new(&settings.prefix);
        Arc::new_cyclic(|this| Self {
            connector: Connector::to_node(settings, transport.to(&seeds[0])),
            transport,
            settings: settings.clone(),
            seeds: seeds.into(),
            log_slot: names.log_slot(),
            shared: Shared {
                watchers: Arc::default(),
                generations: Arc::new(AtomicU32::new(0)),
                cluster: Some(Weak::clone(this)),
            },
            runtime: Handle::current(),
            topology: RwLock::new(Topology {
                nodes: Vec::new(),
                owners: vec![None; usize::from(SLOTS)].into(),
                log_replicas: 0,
            }),
            changing: Mutex::default(),
            epoch: AtomicU64::new(0),
            readings: AtomicUsize::new(0),
            unsettled_until: Mutex::new(Instant::now()),
            wanted: Notify::new(),
            trouble: Mutex::new("not connected yet".into()),
        })
    }

    pub(super) fn watchers(&self) -> &Watchers {
        &self.shared.watchers
    }

    /// Returns the link to the master of a slot.
    pub(super) fn link(&self, slot: u16) -> Result<Arc<Link>, BackingError> {
        let topology = self.topology.read();
        match &topology.owners[usize::from(slot)] {
            Some(owner) => Ok(Arc::clone(&owner.link)),
            None => Err(BackingError::Unreachable((&**self.trouble.lock()).into())),
        }
    }

    /// Returns the number of replicas of the log that the cluster knows, whether connected or not.
    pub(super) fn log_replicas(&self) -> u32 {
        self.topology.read().log_replicas
    }

    /// Returns all links in use.
    pub(super) fn links(&self) -> Vec<Arc<Link>> {
        self.topology.read().nodes.iter().map(|node| Arc::clone(&node.link)).collect()
    }

    /// Returns the reason why a master is not connected, or a slot has none.
    pub(super) fn trouble(&self) -> Option<Arc<str>> {
        if self.topology.read().owners.iter().any(Option::is_none) {
            return Some(Arc::clone(&self.trouble.lock()));
        }
        self.links().iter().find_map(|link| link.trouble())
    }

    /// Returns whether a copy from a node can be relied upon, as far as the node and the log are concerned.
    pub(super) fn standing(&self, source: Source, now: std::time::Instant) -> CopyStatus {
        let topology = self.topology.read();
        let mut statuses = topology.nodes.iter().map(|node| &node.link.status);
        match statuses.find(|status| status.source() == source) {
            _ if !self.log_is_verified(&topology, now) => CopyStatus::Unverified,
            Some(status) => status.standing(source, now),
            // An earlier generation of a node; which one doesn't matter, because reading again tells whether it is connected.
            None => CopyStatus::Ended,
        }
    }

    /// Returns whether the master with the log answers, so that the cluster works, if only in part.
    pub(super) fn works(&self) -> bool {
        self.log_is_verified(&self.topology.read(), std::time::Instant::now())
    }

    fn log_is_verified(&self, topology: &Topology, now: std::time::Instant) -> bool {
        let log = topology.owners[usize::from(self.log_slot)].as_ref();
        log.is_some_and(|log| log.link.status.is_verified(now))
    }

    /// Keeps the map of slots up to date until the pause before the next reading is over.
    async fn step(&self) {
        let read = self.read_map().await;
        let has_all = || self.topology.read().owners.iter().all(Option::is_some);
        let read =
            read.and_then(|()| if has_all() { Ok(()) } else { Err("some slots have no master".into()) });
        let is_complete = read.map_err(|why| self.note_trouble(&why)).is_ok();
        let is_away = || self.links().iter().any(|link| link.trouble().is_some());
        let is_unsettled = !is_complete || *self.unsettled_until.lock() > Instant::now() || is_away();
        let pause = if is_unsettled { UNSETTLED_PAUSE } else { SETTLED_PAUSE };
        let _ = timeout(pause, self.wanted.notified()).await;
        sleep(BURST).await;
    }

    /// Notes why slots have no master. Logs each reason once until another one follows.
    fn note_trouble(&self, why: &Arc<str>) {
        let before = std::mem::replace(&mut *self.trouble.lock(), Arc::clone(why));
        if before != *why {
            tracing::warn!(address = %self.settings.address, %why, "keys of the remote tier can't be used");
        }
    }

    /// Reads the map from the first node that answers: a connected one, else one of the URL.
    async fn read_map(&self) -> Result<(), Arc<str>> {
        let mut connected: Vec<_> = self.links().iter().filter_map(|link| link.connections().ok()).collect();
        // Another one each time, so that a node that learns late doesn't decide for long.
        let turn = self.readings.fetch_add(1, Ordering::Relaxed);
        let first = turn.checked_rem(connected.len()).unwrap_or(0);
        connected.rotate_left(first);
        for connections in connected {
            let asked = timeout(self.connector.timeout(), view(&connections)).await;
            if let Ok(Ok((info, ranges))) = asked
                && info.is_ok
            {
                return self.apply(&ranges, connections.connector().host());
            }
        }
        let mut why: Arc<str> = "no node of the cluster serves requests".into();
        for seed in &self.seeds {
            match self.ask_seed(seed).await {
                Ok(ranges) => return self.apply(&ranges, Some(seed)),
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    async fn ask_seed(&self, seed: &Host) -> Result<Vec<SlotRange>, Arc<str>> {
        let connector = self.connector.with_target(self.transport.to(seed));
        let opened = connector.open(REPLY_BYTES_MAX, |_| Ok::<(), ()>(()), Arc::default()).await;
        let (wire, _driving) = opened.map_err(|error| with_causes(&error))?;
        let asked = timeout(connector.timeout(), wire.ask_one(&slots_question())).await;
        let answer = asked.map_err(|_| "the node does not reply")?.map_err(|error| with_causes(&error))?;
        slots::slot_ranges(answer).map_err(|error| with_causes(&error))
    }

    /// Replaces the map.
    fn apply(&self, ranges: &[SlotRange], from: Option<&Host>) -> Result<(), Arc<str>> {
        if ranges.is_empty() {
            return Err("the cluster has no slots".into());
        }
        let _turn = self.changing.lock();
        let mut nodes = self.topology.read().nodes.clone();
        let mut owners = vec![None; usize::from(SLOTS)];
        let mut log_replicas = 0;
        for range in ranges {
            let Some(host) = range.master.as_ref().or(from) else { continue };
            let owner = self.node(&mut nodes, host);
            owners[usize::from(range.first)..=usize::from(range.last)].fill(owner);
            if (range.first..=range.last).contains(&self.log_slot) {
                log_replicas = range.replicas;
            }
        }
        self.replace(owners, log_replicas);
        Ok(())
    }

    /// Replaces the owners of slots, starts and ends links, and reports what was read from former owners as suspect.
    fn replace(&self, owners: Owners, log_replicas: u32) {
        let mut nodes: Vec<Arc<Node>> = Vec::new();
        for owner in owners.iter().flatten() {
            if !nodes.iter().any(|node| Arc::ptr_eq(node, owner)) {
                nodes.push(Arc::clone(owner));
            }
        }
        let owners: Arc<[_]> = owners.into();
        let new = Topology { nodes: nodes.clone(), owners: Arc::clone(&owners), log_replicas };
        let before = std::mem::replace(&mut *self.topology.write(), new);
        let log = usize::from(self.log_slot);
        for node in &nodes {
            node.start(&self.runtime);
            node.link.set_has_log(is_owner(owners[log].as_ref(), node));
        }
        for node in &before.nodes {
            if !nodes.iter().any(|used| Arc::ptr_eq(used, node)) {
                node.stop();
                continue;
            }
            let has_moved = |slot: usize| {
                is_owner(before.owners[slot].as_ref(), node) && !is_owner(owners[slot].as_ref(), node)
            };
            if (0..owners.len()).any(has_moved) {
                node.link.slots_moved(|slot| has_moved(usize::from(slot)));
            }
        }
        if before.owners[log].as_ref().is_some_and(|owner| !is_owner(owners[log].as_ref(), owner)) {
            self.shared.watchers.tell(|watcher| watcher.all_suspect(None));
        }
    }

    /// Returns a node, which is added if it is new; `None` if there are too many.
    fn node(&self, nodes: &mut Vec<Arc<Node>>, host: &Host) -> Option<Arc<Node>> {
        if let Some(node) = nodes.iter().find(|node| node.host == *host) {
            return Some(Arc::clone(node));
        }
        if nodes.len() >= NODES_MAX {
            return None;
        }
        let server = match self.transport {
            Transport::Tcp => Server::Tcp(host.clone()),
            Transport::Tls(_) => Server::Tls(host.clone()),
        };
        let master = Master::Fixed(self.connector.with_target(self.transport.to(host)));
        let link = Arc::new(Link::new(&self.settings, &Address::Server(server), master, &self.shared));
        let node = Arc::new(Node { host: host.clone(), link, task: Mutex::default() });
        nodes.push(Arc::clone(&node));
        Some(node)
    }

    /// Notes a heartbeat of a node.
    pub(super) fn note_beat(&self, info: ClusterInfo) {
        if self.epoch.fetch_max(info.epoch, Ordering::AcqRel) < info.epoch {
            self.changed();
        }
    }

    /// Has the map read now, and again for some time.
    pub(super) fn changed(&self) {
        *self.unsettled_until.lock() = Instant::now() + UNSETTLED_FOR;
        self.wanted.notify_one();
    }

    /// Returns whether a node owns a slot.
    pub(super) fn owns(&self, host: &Host, slot: u16) -> bool {
        self.topology.read().owners[usize::from(slot)].as_ref().is_some_and(|owner| owner.host == *host)
    }

    /// Returns the connections to which a request was sent on by a node.
    pub(super) fn redirected(
        &self,
        redirect: &Redirect,
        from: &Connections,
    ) -> Result<(Arc<Link>, Arc<Connections>), BackingError> {
        let name = redirect.host.clone().or_else(|| from.connector().host().map(|host| host.name.clone()));
        let host = Host { name: name.unwrap_or_default(), port: redirect.port };
        let node = match redirect.kind {
            RedirectKind::Moved => self.move_slot(usize::from(redirect.slot), &host),
            RedirectKind::Ask => self.topology.read().nodes.iter().find(|node| node.host == host).cloned(),
        };
        if redirect.kind == RedirectKind::Moved || node.is_none() {
            self.changed();
        }
        let node = node.ok_or_else(|| BackingError::Unreachable("the named node is unknown".into()))?;
        let connections = node.link.connections()?;
        match redirect.kind {
            RedirectKind::Moved => Ok((Arc::clone(&node.link), connections)),
            RedirectKind::Ask => Ok((Arc::clone(&node.link), Arc::new(connections.asking()))),
        }
    }

    /// Gives a slot to another node, and returns that.
    fn move_slot(&self, slot: usize, host: &Host) -> Option<Arc<Node>> {
        let _turn = self.changing.lock();
        let (mut nodes, mut owners, log_replicas) = {
            let topology = self.topology.read();
            (topology.nodes.clone(), topology.owners.to_vec(), topology.log_replicas)
        };
        let node = self.node(&mut nodes, host)?;
        if !is_owner(owners[slot].as_ref(), &node) {
            owners[slot] = Some(Arc::clone(&node));
            self.replace(owners, log_replicas);
        }
        Some(node)
    }
}

fn is_owner(owner: Option<&Arc<Node>>, node: &Arc<Node>) -> bool {
    owner.is_some_and(|owner| Arc::ptr_eq(owner, node))
}

impl Node {
    fn start(&self, runtime: &Handle) {
        self.task.lock().get_or_insert_with(|| {
            let link = Arc::clone(&self.link);
            runtime.spawn(async move { link.run().await }).abort_handle()
        });
    }

    fn stop(&self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
        self.link.leave();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.topology.get_mut().nodes.iter().for_each(|node| node.stop());
    }
}

/// Keeps the map of slots up to date until the cluster is dropped.
pub(super) async fn run(cluster: &Weak<Cluster>) {
    while let Some(cluster) = cluster.upgrade() {
        cluster.step().await;
    }
}

/// Reads the state and the map of a node.
async fn view(connections: &Connections) -> Result<(ClusterInfo, Vec<SlotRange>), BackingError> {
    let mut question = redis::pipe();
    question.cmd("CLUSTER").arg("INFO").add_command(slots_question());
    let [info, map]: [Value; 2] = connections.control.ask_for(&question).await?;
    Ok((slots::cluster_info(info)?, slots::slot_ranges(map)?))
}

fn slots_question() -> redis::Cmd {
    cmd("CLUSTER").arg("SLOTS").clone()
}

/// Maximum number of masters, as many as a cluster should have.
const NODES_MAX: usize = 1_000;
/// Pause between two readings of the map.
const SETTLED_PAUSE: Duration = Duration::from_secs(10);
/// Pause between two readings while slots move or masters are away.
const UNSETTLED_PAUSE: Duration = Duration::from_millis(250);
/// Time after a change within which all nodes know of it.
const UNSETTLED_FOR: Duration = Duration::from_secs(5);
/// Minimum pause between two readings, so that a burst of redirections leads to few of them.
const BURST: Duration = Duration::from_millis(50);
/// The map of a cluster in which each slot has another master than the one before it, with some replicas.
pub(super) const REPLY_BYTES_MAX: usize = 4 << 20;
