//! Debian's redis-server, alone and as a cluster of three masters.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::ports::Port;
use crate::real::{self, RealServer};
use crate::resp_client::RespClient;
use crate::wait;

/// A redis-server that stores nothing on disk. Stopped when dropped.
pub struct Redis {
    server: RealServer,
    command: Command,
}

/// A cluster of three masters, each with a third of the slots. Stopped when dropped.
pub struct RedisCluster {
    nodes: Vec<Redis>,
    buses: Vec<Port>,
}

/// A master with replicas, and three sentinels that know it as the service `main`. Stopped when dropped.
pub struct RedisService {
    nodes: Vec<Redis>,
    sentinels: Vec<Redis>,
}

impl RedisService {
    /// Starts a master with two replicas, and the sentinels; `directives` are for the servers. A master that is silent for half a second is
    /// replaced.
    ///
    /// # Panics
    /// Panics if redis-server is not installed or they don't find each other.
    #[track_caller]
    pub fn start(directives: &str) -> Self {
        let master = Redis::start(directives);
        let (host, port) = (master.address().ip(), master.address().port());
        let replicas = (0..2).map(|_| {
            Redis::start(&format!("{directives}\nreplicaof {host} {port}\nrepl-diskless-sync-delay 0"))
        });
        let nodes: Vec<Redis> = std::iter::once(master).chain(replicas.collect::<Vec<_>>()).collect();
        let monitor = format!(
            "sentinel monitor main {host} {port} 2\nsentinel down-after-milliseconds main 500\n\
             sentinel failover-timeout main 5000\nsentinel parallel-syncs main 2"
        );
        let service = Self { nodes, sentinels: (0..3).map(|_| Redis::sentinel(&monitor)).collect() };
        service.wait_until_complete();
        service
    }

    /// Waits until the sentinels know the servers and each other, and the replicas have all data.
    #[track_caller]
    pub fn wait_until_complete(&self) {
        wait::until_true("the service is complete", || {
            let has_all = |sentinel: &Redis| {
                let known = sentinel.command("INFO sentinel");
                known.contains("status=ok") && known.contains("slaves=2,sentinels=3")
            };
            self.sentinels.iter().all(has_all)
                && self.master().command("INFO replication").matches("state=online").count() == 2
        });
    }

    /// Returns the current master, according to the first sentinel.
    #[track_caller]
    pub fn master(&self) -> &Redis {
        &self.nodes[self.master_index()]
    }

    /// Returns the place of the current master among the nodes.
    ///
    /// # Panics
    /// Panics if the sentinel names another server.
    #[track_caller]
    pub fn master_index(&self) -> usize {
        let info = self.sentinels[0].command("INFO sentinel");
        let is_named = |node: &Redis| info.contains(&format!("address={},", node.address()));
        self.nodes.iter().position(is_named).unwrap_or_else(|| panic!("an unknown master: {info}"))
    }

    /// Returns the servers; the first one begins as the master.
    pub fn nodes(&mut self) -> &mut [Redis] {
        &mut self.nodes
    }

    /// Returns the sentinels.
    pub fn sentinels(&self) -> &[Redis] {
        &self.sentinels
    }

    /// Returns the URL for the configuration of a store.
    pub fn url(&self) -> String {
        let addresses: Vec<_> = self.sentinels.iter().map(|one| one.address().to_string()).collect();
        format!("redis+sentinel://{}/main", addresses.join(","))
    }
}

impl Redis {
    /// Starts a server; each line of `directives` is one of `redis.conf`, in which `@dir@` is this process's own folder.
    ///
    /// # Panics
    /// Panics if redis-server is not installed or does not start.
    #[track_caller]
    pub fn start(directives: &str) -> Self {
        Self::run(&format!("save \"\"\nappendonly no\n{directives}"), &[])
    }

    /// Starts a sentinel.
    #[track_caller]
    fn sentinel(directives: &str) -> Self {
        Self::run(directives, &["--sentinel"])
    }

    #[track_caller]
    fn run(directives: &str, arguments: &[&str]) -> Self {
        let run = |file: &Path| {
            let mut command = Command::new(real::installed("redis-server"));
            command.arg(file).args(arguments);
            command
        };
        let server = RealServer::start("redis-server", |folder, address| {
            let file = folder.join(CONFIG);
            let (host, port, place) = (address.ip(), address.port(), folder.display());
            let text = format!("bind {host}\nport {port}\ndir {place}\n{directives}\n");
            std::fs::write(&file, text.replace("@dir@", &place.to_string())).expect("a file in the folder");
            run(&file)
        });
        let command = run(&server.folder().join(CONFIG));
        Self { server, command }
    }

    /// Kills the server with SIGKILL.
    #[track_caller]
    pub fn kill(&mut self) {
        self.server.kill();
    }

    /// Restarts the server after [`Redis::kill`], at the same address and without data.
    #[track_caller]
    pub fn start_again(&mut self) {
        self.server.start_again(&mut self.command, "redis-server");
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// Panics if the server has ended.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        self.server.service.signal(signal);
    }

    /// Returns the folder of this process.
    pub fn folder(&self) -> &Path {
        self.server.folder()
    }

    /// Returns its address.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Sends a command, whose words may be in double quotes. Returns the first line of the reply without its line end,
    /// or the bytes of a bulk string.
    ///
    /// # Panics
    /// Panics if it does not answer.
    #[track_caller]
    pub fn command(&self, line: &str) -> String {
        // Every second part is in quotes.
        let parts = line.split('"').enumerate();
        let words = parts.flat_map(|(index, part)| match index % 2 {
            0 => part.split_whitespace().collect(),
            _ => vec![part],
        });
        let words: Vec<&[u8]> = words.map(str::as_bytes).collect();
        let reply = RespClient::connect(self.address()).ask(&words);
        let reply = String::from_utf8_lossy(&reply);
        match reply.split_once("\r\n") {
            Some((first, rest)) if first.starts_with('$') && !rest.is_empty() => {
                rest.trim_end_matches("\r\n").to_owned()
            }
            Some((first, _)) => first.to_owned(),
            None => panic!("{line} was answered with {reply:?}"),
        }
    }
}

impl RedisCluster {
    /// Starts three masters without replicas, and waits until they all know each other.
    ///
    /// # Panics
    /// Panics if redis-server is not installed or they don't find each other.
    #[track_caller]
    pub fn start() -> Self {
        let mut cluster = Self { nodes: Vec::new(), buses: Vec::new() };
        (0..3).for_each(|_| cluster.add_node());
        for (index, edges) in [0, 5461, 10923, 16384].windows(2).enumerate() {
            let command = format!("CLUSTER ADDSLOTSRANGE {} {}", edges[0], edges[1] - 1);
            assert_eq!(cluster.nodes[index].command(&command), "+OK");
        }
        cluster.wait_until_complete();
        cluster
    }

    /// Starts three masters, followed by a replica of each.
    #[track_caller]
    pub fn with_replicas() -> Self {
        let mut cluster = Self::start();
        for master in 0..3 {
            cluster.add_node();
            cluster.wait_until_complete();
            let replicate = format!("CLUSTER REPLICATE {}", cluster.id(master));
            assert_eq!(cluster.nodes[master + 3].command(&replicate), "+OK");
        }
        wait::until_true("the replicas have all data", || {
            let is_ready = |node: &Redis| node.command("INFO replication").contains("state=online");
            cluster.nodes[..3].iter().all(is_ready)
        });
        cluster
    }

    /// Adds a node without slots.
    #[track_caller]
    pub fn add_node(&mut self) {
        // By default the bus port is the client port plus 10000, which may exceed the range of ports.
        let bus = Port::reserve();
        let port = bus.address().port();
        let node = Redis::start(&format!(
            "cluster-enabled yes\ncluster-port {port}\ncluster-node-timeout 1000\ncluster-require-full-coverage no\n\
             repl-diskless-sync-delay 0"
        ));
        let (host, client) = (node.address().ip(), node.address().port());
        self.nodes.push(node);
        self.buses.push(bus);
        assert_eq!(self.nodes[0].command(&format!("CLUSTER MEET {host} {client} {port}")), "+OK");
    }

    /// Returns the nodes, in the order in which they were added; the first three begin with the slots 0 to 5460, 5461 to 10922, 10923 to
    /// 16383.
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// Returns the nodes.
    pub fn nodes_mut(&mut self) -> &mut [Redis] {
        &mut self.nodes
    }

    /// Returns the URL for the configuration of a store, with one of the nodes.
    pub fn url(&self) -> String {
        format!("redis+cluster://{}/", self.nodes[0].address())
    }

    /// Waits until all nodes know each other and serve requests.
    #[track_caller]
    pub fn wait_until_complete(&self) {
        let known = format!("cluster_known_nodes:{}\r\n", self.nodes.len());
        wait::until_true("the cluster is complete", || {
            self.nodes.iter().all(|node| {
                let info = node.command("CLUSTER INFO");
                info.contains("cluster_state:ok") && info.contains(&known)
            })
        });
    }

    /// Begins to move a slot, and moves its keys.
    #[track_caller]
    pub fn begin_move(&self, slot: u16, from: usize, to: usize) {
        let [source, target] = [from, to].map(|node| &self.nodes[node]);
        let set = |node: &Redis, state: &str, other: usize| {
            let command = format!("CLUSTER SETSLOT {slot} {state} {}", self.id(other));
            assert_eq!(node.command(&command), "+OK", "{command}");
        };
        set(target, "IMPORTING", from);
        set(source, "MIGRATING", to);
        let (host, port) = (target.address().ip().to_string(), target.address().port().to_string());
        let mut client = RespClient::connect(source.address());
        loop {
            let slot = slot.to_string();
            let keys = client.strings(&[b"CLUSTER", b"GETKEYSINSLOT", slot.as_bytes(), b"100"]);
            if keys.is_empty() {
                return;
            }
            let mut migrate: Vec<&[u8]> =
                vec![b"MIGRATE", host.as_bytes(), port.as_bytes(), b"", b"0", b"5000", b"KEYS"];
            migrate.extend(keys.iter().map(Vec::as_slice));
            let reply = client.ask(&migrate);
            assert!(reply.starts_with(b"+"), "{}", reply.escape_ascii());
        }
    }

    /// Ends the move of a slot.
    #[track_caller]
    pub fn end_move(&self, slot: u16, to: usize) {
        let (id, others) = (self.id(to), 0..self.nodes.len());
        for node in std::iter::once(to).chain(others.filter(|node| *node != to)) {
            let command = format!("CLUSTER SETSLOT {slot} NODE {id}");
            let reply = self.nodes[node].command(&command);
            assert!(reply == "+OK" || reply.ends_with("only with masters."), "{command}: {reply}");
        }
    }

    /// Waits until a node that has ended owns no slot any more, because its replica has taken over.
    #[track_caller]
    pub fn wait_until_replaced(&self, node: usize) {
        let address = format!("{}@", self.nodes[node].address());
        wait::until_true("the replica has taken over", || {
            let nodes = self.nodes[0].command("CLUSTER NODES");
            let line = nodes.lines().find(|line| line.contains(&address)).expect("a known node");
            // Slots follow eight other fields.
            line.split(' ').count() == 8
        });
    }

    fn id(&self, node: usize) -> String {
        self.nodes[node].command("CLUSTER MYID")
    }
}

const CONFIG: &str = "redis.conf";
