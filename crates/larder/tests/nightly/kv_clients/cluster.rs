//! Three servers with a static map of slots, compared with three of Redis Cluster.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::process::Command;

use redis::Commands as _;
use redis::cluster::ClusterClient;
use tempfile::TempDir;
use testkit::{Port, RedisCluster, Service, run, wait};

use super::script::{java, play_cluster};
use crate::LARDER;

/// Slots of the nodes, the same as in [`RedisCluster`].
const SLOTS: [&str; 3] = ["0-5460", "5461-10922", "10923-16383"];

pub(crate) struct LarderCluster {
    ports: Vec<Port>,
    _nodes: Vec<Service>,
    _folder: TempDir,
}

impl LarderCluster {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let ports: Vec<Port> = SLOTS.iter().map(|_| Port::reserve()).collect();
        let file = folder.path().join("cluster.toml");
        let mut text = "[kv.cluster]\n".to_owned();
        for (number, (slots, port)) in SLOTS.iter().zip(&ports).enumerate() {
            let address = port.address();
            let _ = writeln!(text, "[[kv.cluster.nodes]]\nname = \"node-{number}\"\naddress = \"{address}\"");
            let _ = writeln!(text, "slots = [\"{slots}\"]");
        }
        std::fs::write(&file, text).expect("a file in the folder");
        let start = |(number, port): (usize, &Port)| {
            let mut command = Command::new(LARDER);
            command.args(["kv", "--maxmemory", "16MiB", "--workers", "1", "--config"]).arg(&file);
            command.args(["--listen", &port.address().to_string()]);
            command.args(["--cluster-node", &format!("node-{number}")]);
            Service::start(&mut command, folder.path(), &format!("node-{number}"))
        };
        let mut nodes: Vec<_> = ports.iter().enumerate().map(start).collect();
        for node in &mut nodes {
            wait::until_true("it listens", || {
                node.assert_runs();
                !node.stdout().is_empty()
            });
        }
        Self { ports, _nodes: nodes, _folder: folder }
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.ports.iter().map(Port::address).collect()
    }
}

fn say(address: SocketAddr, command: &str) -> String {
    testkit::say(address, &format!("{command}\r\n"))
}

fn of_redis(cluster: &RedisCluster) -> Vec<SocketAddr> {
    cluster.nodes().iter().map(testkit::Redis::address).collect()
}

/// The reply of a node, with names in place of addresses and ids.
fn told(nodes: &[SocketAddr], node: SocketAddr, command: &str) -> String {
    let mut text = say(node, command);
    for (number, address) in nodes.iter().enumerate() {
        let id = say(*address, "CLUSTER MYID");
        let id = id.lines().nth(1).expect("an id").trim().to_owned();
        let port = format!(":{}\r\n", address.port());
        text = text.replace(&id, &format!("<id {number}>")).replace(&port, &format!(":<port {number}>\r\n"));
        text = text.replace(&address.to_string(), &format!("<node {number}>"));
    }
    text
}

/// Requests that each node gets in this order. "foo" has slot 12182, "bar" 5061, "c" 7365 and "one" 9084,
/// which is in the middle third like "c".
const CONVERSATION: &str = "SET foo 1|SET bar 2|SET c 3|SET {foo}more 4|GET foo|GET bar|GET c|MGET foo {foo}more|MGET foo bar|MGET bar x|\
    MSET foo 1 bar 2|DEL foo bar c|RENAME foo bar|OBJECT ENCODING foo|MEMORY USAGE foo x|EXISTS|NOPE foo|PING|\
    SELECT 0|SELECT 1|MOVE foo 1|COPY foo {foo}copy DB 1|COPY foo {foo}copy|SWAPDB 0 1|READONLY|READWRITE|ASKING|\
    CLUSTER SLOTS|CLUSTER KEYSLOT foo|CLUSTER COUNTKEYSINSLOT 12182|CLUSTER GETKEYSINSLOT 12182 0|\
    CLUSTER COUNTKEYSINSLOT 16384|CLUSTER GETKEYSINSLOT x 1|CLUSTER REPLICAS nobody|CLUSTER SLOTS x|\
    MULTI\r\nSET foo 1\r\nGET {foo}more\r\nEXEC|MULTI\r\nSET bar 1\r\nGET {bar}more\r\nPING\r\nEXEC\r\nGET bar|\
    MULTI\r\nSET c 1\r\nSET one 1\r\nGET c\r\nEXEC\r\nEXEC\r\nGET c|\
    MULTI\r\nSET c 1\r\nSET one 1\r\nNOPE\r\nSET {c}x 1\r\nEXEC\r\nPING|\
    MULTI\r\nNOPE\r\nSET c 1\r\nSET one 1\r\nEXEC\r\nPING|MULTI\r\nMGET c one\r\nSET c 1\r\nEXEC\r\nPING|\
    MULTI\r\nPING\r\nEXEC|MULTI\r\nSET c 1\r\nDISCARD\r\nMULTI\r\nSET one 1\r\nEXEC|\
    MULTI\r\nSET c 1\r\nSET one 1\r\nRESET\r\nEXEC|WATCH c one|WATCH c\r\nMULTI\r\nSET c 2\r\nEXEC\r\nGET c|\
    WATCH c\r\nWATCH one\r\nMULTI\r\nGET {c}\r\nEXEC|SSUBSCRIBE foo|\
    SSUBSCRIBE {foo}a {foo}b\r\nPING\r\nSUNSUBSCRIBE {foo}b {foo}a\r\nSUNSUBSCRIBE|SSUBSCRIBE foo bar|\
    SSUBSCRIBE c\r\nSSUBSCRIBE one\r\nSPUBLISH c x\r\nSUNSUBSCRIBE c\r\nGET c|SUNSUBSCRIBE|SUNSUBSCRIBE foo|\
    SUNSUBSCRIBE foo bar|SPUBLISH foo x|MULTI\r\nSPUBLISH foo x\r\nEXEC|\
    MULTI\r\nSPUBLISH c x\r\nSPUBLISH one x\r\nEXEC|MULTI\r\nSSUBSCRIBE c\r\nEXEC\r\nPING|\
    SUBSCRIBE foo bar\r\nSSUBSCRIBE c\r\nUNSUBSCRIBE foo bar|PUBLISH bar x|\
    PUBSUB SHARDCHANNELS\r\nPUBSUB SHARDNUMSUB foo bar|HELLO 3 AUTH\r\nSPUBLISH c";

#[test]
fn nodes_answer_as_those_of_redis() {
    let (larder, redis) = (LarderCluster::start(), RedisCluster::start());
    let (larder, redis) = (larder.addresses(), of_redis(&redis));
    for command in CONVERSATION.split('|') {
        for number in 0..SLOTS.len() {
            let given = told(&larder, larder[number], command);
            assert_eq!(given, told(&redis, redis[number], command), "{command} sent to node {number}");
        }
    }
    for command in ["CLUSTER NODES", "CLUSTER SHARDS"] {
        let given = told(&larder, larder[1], command);
        let slots = |first: &str, last: &str| match command {
            "CLUSTER NODES" => format!(" {first}-{last}\n"),
            _ => format!(":{first}\r\n:{last}\r\n"),
        };
        for range in SLOTS {
            let (first, last) = range.split_once('-').expect("a range");
            assert!(given.contains(&slots(first, last)), "{range} in {given}");
        }
    }
    // GET and SET take the fast path only if the key is on this node: each is answered or gets MOVED.
    let key = |number: usize| format!("$8\r\nkey-{{{:02}}}\r\n", number % 20);
    let requests = (0..100).map(|number| {
        let (set, get) = (key(number), key(number + 7));
        format!("*3\r\n$3\r\nSET\r\n{set}$2\r\n{number:02}\r\n*2\r\n$3\r\nGET\r\n{get}")
    });
    let requests: String = requests.collect();
    for number in 0..SLOTS.len() {
        let given = told(&larder, larder[number], &requests);
        assert!(given.contains("-MOVED") && given.contains("+OK"), "{given}");
        assert_eq!(given, told(&redis, redis[number], &requests), "sent to node {number}");
    }
}

#[test]
fn redis_cli_follows() {
    let (larder, redis) = (LarderCluster::start(), RedisCluster::start());
    for nodes in [larder.addresses(), of_redis(&redis)] {
        let cli = |arguments: &[&str]| {
            let port = nodes[0].port().to_string();
            run("redis-cli", [&["-c", "-p", &port], arguments].concat()).succeeded().text()
        };
        for number in 0..50 {
            assert_eq!(cli(&["SET", &format!("key-{number}"), &number.to_string()]), "OK\n");
        }
        assert_eq!(cli(&["GET", "key-49"]), "49\n");
        assert!(cli(&["MGET", "a", "b"]).starts_with("CROSSSLOT "));
        listen_and_publish(&nodes);
        for node in &nodes {
            let keys = say(*node, "DBSIZE");
            assert!(keys.trim() != ":0", "each node has some of the keys: {keys}");
        }
    }
}

/// Checks the shard channels of each node, to which redis-cli is redirected by the first.
fn listen_and_publish(nodes: &[SocketAddr]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let port = nodes[0].port().to_string();
    for channel in ["foo", "bar", "c"] {
        let mut command = Command::new("redis-cli");
        command.args(["-c", "-p", &port, "SSUBSCRIBE", channel]);
        let listener = Service::start(&mut command, folder.path(), channel);
        wait::until_true("it listens", || listener.stdout().contains("ssubscribe"));
        let told = run("redis-cli", ["-c", "-p", &port, "SPUBLISH", channel, "told"]).succeeded().text();
        assert_eq!(told, "1\n", "{channel}");
        wait::until_true("it receives the message", || listener.stdout().contains("told"));
    }
}

#[test]
fn redis_benchmark_loads_all_nodes() {
    let larder = LarderCluster::start();
    let port = larder.addresses()[0].port().to_string();
    // The clients of redis-benchmark share a fixed number of requests: if it is small, a slow node may
    // not get any.
    let arguments = ["--cluster", "-p", &port, "-t", "set,get", "-n", "30000", "-r", "1000", "-P", "10"];
    let output = run("redis-benchmark", arguments).succeeded();
    assert!(output.text().contains("Cluster has 3 master nodes"), "{}", output.text());
    assert!(!output.stderr.contains("ERR"), "{}", output.stderr);
    for node in larder.addresses() {
        assert!(say(node, "DBSIZE").trim() != ":0");
    }
}

/// All checks are in one test, because a Redis cluster takes seconds to form.
#[test]
fn clients_find_every_key() {
    let (larder, redis) = (LarderCluster::start(), RedisCluster::start());
    for nodes in [of_redis(&redis), larder.addresses()] {
        redis_rs(nodes[1]);
        for command in [
            &["python3", "{}/python/redis_py.py"][..],
            &["node", "{}/node/node_redis.mjs"],
            &["node", "{}/node/ioredis.mjs"],
            &["{}/go/bin/goredis"],
            &["{}/go/bin/rueidis"],
            &java("JedisScript"),
            &java("LettuceScript"),
        ] {
            nodes.iter().for_each(|node| drop(say(*node, "FLUSHALL")));
            play_cluster(command, nodes[0]);
        }
    }
}

fn redis_rs(node: SocketAddr) {
    let client = ClusterClient::new([format!("redis://{node}/?protocol=resp3")]).expect("a client");
    let mut client = client.get_connection().expect("it connects");
    (0..300).for_each(|number| assert_eq!(client.set(format!("cluster-{number}"), number), Ok(())));
    (0..300).for_each(|number| assert_eq!(client.get(format!("cluster-{number}")), Ok(number)));
    assert_eq!(client.mget(&["cluster-1", "cluster-2"]), Ok((1, 2)));
}
