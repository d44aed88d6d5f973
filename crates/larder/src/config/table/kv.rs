//! Keys of the Redis-compatible server.

use kv::{DebugCommands, TextProtocol};

use super::section::*;

section! {
    /// The Redis-compatible cache server: alone as `larder kv`, or alongside the gateway in `larder serve`. Without this table,
    /// `larder serve` doesn't run it.
    pub(crate) KV = "kv";
    /// Addresses for clients; port 0 picks a free port.
    ///
    /// May be empty if `tls` has addresses. `unix:/run/larder/kv.sock` is a Unix socket, for clients on this machine.
    listen = List(&Text("IP address or host name, and port, such as `0.0.0.0:6379` or `[::]:6379`, or `unix:` and an absolute path"))
        .default("[\"127.0.0.1:6379\"]").kept(),
    /// Permissions of the Unix sockets in `listen`, in octal digits: clients that may write to the file can connect.
    unix_socket_mode = Text("three octal digits, such as `660`").default("660").kept(),
    /// Worker threads, each with its own listening socket; all of them serve all keys.
    ///
    /// These workers are separate from the gateway's workers if both servers run in one process.
    workers = Integer(1..=1024).absent("one per CPU that the process may use").kept().no_limit(),
    /// Memory for keys, values and their index together.
    ///
    /// Client buffers count towards it; see `limits`. When a reload lowers it, keys are evicted until the remaining ones fit. If it is
    /// below a sixteenth of its value at the start, few keys have room until a restart.
    maxmemory = Size(2 * MIB..=16 * TIB).default("1GiB"),
    /// Eviction policy when memory is full.
    ///
    /// The guide describes each policy. `volatile-` policies never evict keys without a TTL; `noeviction` refuses writes.
    maxmemory_policy = Choice(&[
        "noeviction", "allkeys-s3fifo", "allkeys-lru", "allkeys-lfu", "allkeys-random",
        "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl",
    ])
    .default("allkeys-s3fifo"),
    /// Lifetime of keys that are written without one (SET without EX, PERSIST).
    ///
    /// Use it for a cache in which every key must expire. It applies to keys that are written after a reload; existing keys keep their
    /// lifetime.
    ttl_default = LIFETIME.absent("such keys never expire").no_limit(),
    /// Longest lifetime of a key: it replaces longer lifetimes, and applies to keys written without one.
    ttl_max = LIFETIME.absent("no limit").no_limit(),
    /// File that the data set is saved to when the server stops, and loaded from when it starts.
    ///
    /// The folder must exist and be writable. The file is written under a temporary name and renamed; it is removed once a server has
    /// loaded it, or at the first change before that. It keeps its owner and mode. A symbolic link is followed; anything other than a
    /// regular file is refused. It belongs to one server, which locks `NAME.lock` next to it.
    save_file = Text("path of a file, relative to the configuration file, or `off`")
        .absent("`off`: nothing is written to disk").kept(),
    /// Parsing of messages without a leading `*`: as Redis inline commands, or as messages of the 0x1F text protocol.
    text_protocol = one_of::<TextProtocol>().default("inline").kept(),
    /// Maximum length of the queue of connections that wait to be accepted.
    ///
    /// The kernel limits it to `net.core.somaxconn`; see `larder doctor`.
    backlog = Integer(1..=i32::MAX as u64).default("4096").kept(),
    /// Sizes of socket buffers (SO_RCVBUF, SO_SNDBUF).
    ///
    /// A fixed size is seldom better than the kernel's automatic one, and is limited to `net.core.rmem_max` and `wmem_max`.
    socket_buffer_bytes = Size(4 * KIB..=GIB)
        .absent("the kernel adjusts them").kept().no_limit(),
    /// Compression of large values, if it makes them smaller by an eighth or more.
    ///
    /// GET decompresses the value, so clients see no difference. A reload applies to values that are set after it.
    compression = Choice(&["none", "lz4"]).default("none"),
    /// With `compression`: the smallest value that is compressed.
    ///
    /// Values that fit into 16 KiB with their key are never compressed: a GET of a small value costs the same with and without compression.
    compress_from = Size(16 * KIB..=512 * MIB).default("16KiB").no_limit(),
    /// Files with a password in their first line (AUTH, HELLO); each of the passwords is accepted.
    ///
    /// To rotate a password, add the new one, reload, move the clients, remove the old one, and reload again. Connected clients stay
    /// connected.
    password_files = List(&SecretFile).default("[]"),
    /// Whether clients on other machines are refused while no password is set.
    ///
    /// Disable it only on a network where every client may read and write everything.
    protected_mode = Flag.default("true"),
    /// Clients that may use DEBUG (`enable-debug-command`): none, all, or those on this machine.
    ///
    /// For tests only: DEBUG SLEEP blocks a worker for up to a minute.
    enable_debug_command = one_of::<DebugCommands>().default("no"),
    /// Addresses with TLS.
    tls = Table(&TLS).absent("no TLS").inside(),
    /// Limits for clients.
    limits = Table(&LIMITS).default("{}"),
    /// Several servers that share the key space, for Redis Cluster clients.
    cluster = Table(&CLUSTER).absent("this server has all keys").kept(),
}

section! {
    /// Addresses on which Redis clients speak TLS (1.2 and 1.3).
    TLS = "kv.tls";
    /// Addresses for clients; port 0 picks a free port.
    listen = List(&Text("IP address or host name, and port")).required().kept(),
    /// PEM file with the chain, the server's certificate first.
    ///
    /// A reload reads the files again; open connections are not affected.
    cert = FILE.required(),
    /// PEM file with the private key.
    key = FILE.required(),
    /// PEM file with the certificate authorities that sign client certificates.
    client_ca_file = FILE.absent("clients need no certificate"),
    /// With `client_ca_file`: whether clients without a certificate are refused. Clients with an invalid one always are.
    client_certificates = Choice(&["required", "optional"]).default("required"),
}

section! {
    /// Limits for Redis clients. Buffers count towards `maxmemory`.
    LIMITS = "kv.limits";
    /// Open connections over all workers (`maxclients`); further ones get an error and are closed.
    ///
    /// Each client needs a file descriptor.
    clients_max = Integer(1..=10_000_000).default("10000"),
    /// Connections that have not yet authenticated, if a password is set, or not finished the TLS handshake. At the limit, a new connection
    /// replaces the oldest one from the address that has the most of them.
    ///
    /// These clients count towards `clients_max`, and at that limit they are closed first, so that they never keep out authenticated
    /// clients. Their requests may have at most 10 arguments of 16 KiB each. Their buffers together take at most 1/32 of `maxmemory`, but
    /// 512 KiB to 8 MiB. This memory comes on top of `maxmemory`, so no key is evicted for it.
    unauthenticated_max = Integer(1..=10_000_000).default("1000"),
    /// Time in which a connection must authenticate, or finish the TLS handshake, before it is closed; `0s` disables the limit.
    auth_timeout = NEVER_OR_LIMIT.default("1m"),
    /// Idle time after which a connection is closed (`timeout`); `0s` disables the limit.
    idle_timeout = NEVER_OR_LIMIT.default("0s"),
    /// Idle time after which the kernel probes the client (`tcp-keepalive`); `0s` disables probes.
    ///
    /// A reload applies to new connections.
    keepalive = NEVER_OR_LIMIT.default("5m").no_limit(),
    /// Bytes of an incomplete request (`client-query-buffer-limit`); beyond it, the client is closed.
    request_bytes_max = Size(MIB..=16 * GIB).default("1GiB"),
    /// Bytes of messages that a client has not read (`client-output-buffer-limit pubsub`); beyond it, the client is closed.
    messages_bytes_max = Size(64 * KIB..=16 * GIB).default("32MiB"),
    /// Bytes of replies that a client has not read (`client-output-buffer-limit normal`); beyond it, the client is closed. `0` sets no
    /// limit per client.
    ///
    /// Larder stops reading requests from a client that doesn't read its replies, so at most one reply, or 64 KiB of replies, is pending.
    /// Large values in replies share the memory of their keys. All other reply bytes must fit into `maxmemory` and `buffers_bytes_max`; a
    /// reply that doesn't fit is refused.
    replies_bytes_max = Size(0..=16 * GIB).default("0B"),
    /// Bytes of requests and replies of all clients together (`maxmemory-clients`); beyond it, the client with the largest buffers is
    /// closed.
    ///
    /// Above half of this limit, Larder reads smaller amounts from each client at a time.
    buffers_bytes_max = Size(MIB..=TIB).default("1GiB"),
}

section! {
    /// Servers that share the key space by hash slots. This table is the slot map, and must be the same on all of them: it doesn't change
    /// while they run, and they don't communicate.
    CLUSTER = "kv.cluster";
    /// Name of this server among the nodes.
    ///
    /// `larder kv --cluster-node` overrides it, so that all servers can have the same file.
    node = Text("the name of a node").absent("taken from the command line").kept(),
    /// All servers, including this one.
    nodes = List(&Table(&NODE)).required().kept(),
    /// Whether a command may have keys of several slots that this server owns. Redis refuses such commands with CROSSSLOT.
    ///
    /// Commands whose keys are on several servers are refused in any case, and a client library may refuse more itself.
    cross_slot = Flag.default("false").kept(),
}

section! {
    /// One server of a cluster.
    NODE = "kv.cluster.nodes";
    /// Unique name in the cluster; the node's id is derived from it.
    name = Text("a name").required().kept(),
    /// Address at which clients reach the node; redirections contain it.
    ///
    /// Behind address translation it differs from the address that the server listens on.
    address = Text("host and port, such as `10.0.0.1:6379` or `cache-1.internal:6379`").required().kept(),
    /// Port for TLS, if `address` has the port without TLS.
    ///
    /// Redirections contain the port for the client's kind of connection.
    tls_port = Integer(1..=65535).absent("that of `address`").kept().no_limit(),
    /// Hash slots of this node, from 0 to 16383.
    ///
    /// Commands on keys in a slot without a node fail with CLUSTERDOWN.
    slots = List(&Text("a range of slots, such as `0-5460`, or one slot")).default("[]").kept(),
}

/// `0` disables the limit.
const NEVER_OR_LIMIT: Kind = Duration(0..=365 * DAY_MS);
const LIFETIME: Kind = Duration(1..=3650 * DAY_MS);
const GIB: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_those_of_the_engine() {
        let option = KV.option("maxmemory_policy").expect("it is there");
        let Choice(words) = option.kind else { panic!("it is a choice") };
        assert_eq!(words, engine::Policy::ALL.map(engine::Policy::name));
    }
}
