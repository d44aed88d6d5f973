//! Debian's redis-server, alone and as a cluster of three masters.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::kv::say;
use crate::ports::Port;
use crate::real::{self, RealServer};
use crate::wait;

/// A redis-server that stores nothing on disk. Stopped when dropped.
pub struct Redis {
    server: RealServer,
    command: Command,
}

/// A cluster of three masters without replicas, each with a third of the slots. Stopped when dropped.
pub struct RedisCluster {
    nodes: Vec<Redis>,
    _buses: Vec<Port>,
}

impl Redis {
    /// Starts a server; each line of `directives` is one of `redis.conf`, in which `@dir@` is this process's own folder.
    ///
    /// # Panics
    /// Panics if redis-server is not installed or does not start.
    #[track_caller]
    pub fn start(directives: &str) -> Self {
        let run = |file: &Path| {
            let mut command = Command::new(real::installed("redis-server"));
            command.arg(file);
            command
        };
        let server = RealServer::start("redis-server", |folder, address| {
            let file = folder.join(CONFIG);
            let (host, port, place) = (address.ip(), address.port(), folder.display());
            let text =
                format!("bind {host}\nport {port}\ndir {place}\nsave \"\"\nappendonly no\n{directives}\n");
            std::fs::write(&file, text.replace("@dir@", &place.to_string())).expect("a file in the folder");
            run(&file)
        });
        let command = run(&server.folder().join(CONFIG));
        Self { server, command }
    }

    /// Kills it with SIGKILL.
    #[track_caller]
    pub fn kill(&mut self) {
        self.server.kill();
    }

    /// Restarts it after [`Redis::kill`], at the same address; it is empty.
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

    /// Sends an inline command, and returns the first line of the reply without its line end, or the bytes of a bulk string.
    ///
    /// # Panics
    /// Panics if it does not answer.
    #[track_caller]
    pub fn command(&self, line: &str) -> String {
        // QUIT makes the server close after the reply, so the reply doesn't have to be parsed to find its end.
        let reply = say(self.address(), &format!("{line}\r\nQUIT\r\n"));
        let reply =
            reply.strip_suffix("+OK\r\n").unwrap_or_else(|| panic!("{line} was answered with {reply:?}"));
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
    /// Starts the three nodes and waits until they all know each other.
    ///
    /// # Panics
    /// Panics if redis-server is not installed or they don't find each other.
    #[track_caller]
    pub fn start() -> Self {
        // By default the bus port is the client port plus 10000, which may exceed the range of ports.
        let buses: Vec<Port> = (0..3).map(|_| Port::reserve()).collect();
        let ports = buses.iter().map(|bus| bus.address().port());
        let nodes = ports.map(|port| Redis::start(&format!("cluster-enabled yes\ncluster-port {port}")));
        let nodes: Vec<Redis> = nodes.collect();
        let edges = [0, 5461, 10923, 16384];
        for (index, node) in nodes.iter().enumerate() {
            let (first, last) = (edges[index], edges[index + 1] - 1);
            assert_eq!(node.command(&format!("CLUSTER ADDSLOTSRANGE {first} {last}")), "+OK");
            let (host, port, bus) =
                (node.address().ip(), node.address().port(), buses[index].address().port());
            assert_eq!(nodes[0].command(&format!("CLUSTER MEET {host} {port} {bus}")), "+OK");
        }
        let cluster = Self { nodes, _buses: buses };
        wait::until_true("the cluster is complete", || cluster.nodes.iter().all(Self::is_complete));
        cluster
    }

    /// Returns the nodes, in the order of their slots: 0 to 5460, 5461 to 10922, 10923 to 16383.
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    fn is_complete(node: &Redis) -> bool {
        let info = node.command("CLUSTER INFO");
        info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
    }
}

const CONFIG: &str = "redis.conf";
