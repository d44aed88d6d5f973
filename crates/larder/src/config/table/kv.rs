//! Keys of the Redis-compatible server.

use kv::{DebugCommands, TextProtocol};

use super::section::*;

section! {
    /// The Redis-compatible cache server: `larder kv`, or beside the gateway in `larder serve`. Without this table `larder serve` runs none.
    pub(crate) KV = "kv";
    /// Addresses for clients; port 0 takes a free port.
    ///
    /// May be empty where `tls` has addresses. `unix:/run/larder/kv.sock` is a Unix socket, for clients on this machine.
    listen = List(&Text("IP address or host name, and port, such as `0.0.0.0:6379` or `[::]:6379`, or `unix:` and an absolute path"))
        .default("[\"127.0.0.1:6379\"]").kept(),
    /// Permissions of the Unix sockets among `listen`, in octal digits: who may write to the file may connect.
    unix_socket_mode = Text("three octal digits, such as `660`").default("660").kept(),
    /// Worker threads, each with its own listening socket; all of them serve all keys.
    ///
    /// They are beside the workers of the gateway where both run in one process.
    workers = Integer(1..=1024).absent("one per CPU that the process may use").kept().no_limit(),
    /// Memory for keys, values and their index together.
    ///
    /// Buffers of clients count within it, see `limits`. When a reload lowers it, keys are evicted until the rest fits. Below a sixteenth of its
    /// value at the start, few keys have room until a restart.
    maxmemory = Size(2 * MIB..=16 * TIB).default("1GiB"),
    /// Eviction policy when memory is full.
    ///
    /// The guide describes each policy. `volatile-` policies never evict keys without a TTL; `noeviction` refuses writes.
    maxmemory_policy = Choice(&[
        "noeviction", "allkeys-s3fifo", "allkeys-lru", "allkeys-lfu", "allkeys-random",
        "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl",
    ])
    .default("allkeys-s3fifo"),
    /// Lifetime of a key that is written without one (SET without EX, PERSIST).
    ///
    /// For a cache whose keys must all end. It holds for keys that are written from then on; a key that is there keeps what it has until then.
    ttl_default = LIFETIME.absent("such keys never expire").no_limit(),
    /// Longest lifetime of a key: a longer one, or none, becomes this one.
    ttl_max = LIFETIME.absent("keys live as long as they are told to").no_limit(),
    /// Where the data set is written when the server stops, and read from when it starts.
    ///
    /// The folder must exist and take files: the file is written beside its name and renamed, and removed when a server has loaded it, or with the
    /// first change before that. It keeps its owner and mode. A link is followed; what is no regular file is refused. It belongs to one server, which
    /// locks `NAME.lock` beside it.
    save_file = Text("path of a file, relative to the configuration file, or `off`")
        .absent("`off`: nothing is written to disk").kept(),
    /// How a message without a leading `*` is read: as a Redis inline command, or as a message of the 0x1F text protocol.
    text_protocol = one_of::<TextProtocol>().default("inline").kept(),
    /// Connections that wait to be accepted.
    ///
    /// The kernel takes no more than `net.core.somaxconn`, see `larder doctor`.
    backlog = Integer(1..=i32::MAX as u64).default("4096").kept(),
    /// Buffers of a socket (SO_RCVBUF, SO_SNDBUF).
    ///
    /// A fixed size is seldom better than what the kernel finds, and it takes no more than `net.core.rmem_max` and `wmem_max`.
    socket_buffer_bytes = Size(4 * KIB..=GIB)
        .absent("the kernel chooses, and changes it as it goes").kept().no_limit(),
    /// Compression of large values that it makes smaller by an eighth or more.
    ///
    /// A GET of such a value unpacks it, so clients see no difference. A reload changes how values are kept that are set from then on.
    compression = Choice(&["none", "lz4"]).default("none"),
    /// With `compression`: the smallest value that is compressed.
    ///
    /// Values that fit into 16 KiB with their key never are: a GET of a small value costs the same with and without compression.
    compress_from = Size(16 * KIB..=512 * MIB).default("16KiB").no_limit(),
    /// Files with a password in their first line (AUTH, HELLO); each password is accepted.
    ///
    /// With several you can rotate: add the new one, reload, move the clients, remove the old one, reload. Connected clients stay connected.
    password_files = List(&SecretFile).default("[]"),
    /// Whether clients on other machines are refused while no password is set.
    ///
    /// Disable it only on a network where every client may read and write everything.
    protected_mode = Flag.default("true"),
    /// Who may use DEBUG (`enable-debug-command`): nobody, every client, or clients on this machine.
    ///
    /// For tests only: DEBUG SLEEP blocks a worker for up to a minute.
    enable_debug_command = one_of::<DebugCommands>().default("no"),
    /// Addresses with TLS.
    tls = Table(&TLS).absent("no TLS").inside(),
    /// What clients may use.
    limits = Table(&LIMITS).default("{}"),
    /// Several servers that share the key space, for Redis Cluster clients.
    cluster = Table(&CLUSTER).absent("this server has all keys").kept(),
}

section! {
    /// Addresses on which Redis clients speak TLS (1.2 and 1.3).
    TLS = "kv.tls";
    /// Addresses for clients; port 0 takes a free port.
    listen = List(&Text("IP address or host name, and port")).required().kept(),
    /// PEM file with the chain, the server's certificate first.
    ///
    /// A reload reads the files again; open connections keep what they began with.
    cert = FILE.required(),
    /// PEM file with the private key.
    key = FILE.required(),
    /// PEM file with the authorities that sign certificates of clients.
    client_ca_file = FILE.absent("clients need no certificate"),
    /// With `client_ca_file`: whether a client without a certificate is refused. One with a wrong certificate always is.
    client_certificates = Choice(&["required", "optional"]).default("required"),
}

section! {
    /// What Redis clients may use. Buffers are counted within `maxmemory`.
    LIMITS = "kv.limits";
    /// Open connections over all workers (`maxclients`); further ones get an error and are closed.
    ///
    /// Each needs a file descriptor.
    clients_max = Integer(1..=10_000_000).default("10000"),
    /// Connections at once that have not given a password where one is needed, or not finished the handshake of TLS; the oldest from the address with
    /// most of them is closed for a new one.
    ///
    /// They count within `clients_max` and make way there too, so that they never keep out clients that have a password. Their requests have at most
    /// 10 arguments of 16 KiB each, and what is kept of all of them takes 1/32 of `maxmemory`, 512 KiB to 8 MiB, beside it: no key is evicted for
    /// them.
    unauthenticated_max = Integer(1..=10_000_000).default("1000"),
    /// How long a connection may take to authenticate, or to finish the TLS handshake, before it is closed; `0s` disables the limit.
    auth_timeout = NEVER_OR_LIMIT.default("1m"),
    /// Idle time after which a connection is closed (`timeout`); `0s` disables the limit.
    idle_timeout = NEVER_OR_LIMIT.default("0s"),
    /// Idle time after which the kernel probes the client (`tcp-keepalive`); `0s` disables probes.
    ///
    /// For connections that begin after the reload.
    keepalive = NEVER_OR_LIMIT.default("5m").no_limit(),
    /// Bytes of an incomplete request (`client-query-buffer-limit`); beyond it the client is closed.
    request_bytes_max = Size(MIB..=16 * GIB).default("1GiB"),
    /// Bytes of messages that a client has not read (`client-output-buffer-limit pubsub`); beyond it the client is closed.
    messages_bytes_max = Size(64 * KIB..=16 * GIB).default("32MiB"),
    /// Bytes of replies that a client has not read (`client-output-buffer-limit normal`); beyond it the client is closed. `0` sets no limit of its
    /// own.
    ///
    /// A client that does not read its replies is not read from, so that there is one reply, or 64 KiB of them. Large values in it are shared with
    /// the keys and take no memory; the rest has room within `maxmemory` and `buffers_bytes_max`, or is refused.
    replies_bytes_max = Size(0..=16 * GIB).default("0B"),
    /// Bytes of requests and replies of all clients together (`maxmemory-clients`); beyond it the client with the most is closed.
    ///
    /// From half of it on, less is read from each client at once.
    buffers_bytes_max = Size(MIB..=TIB).default("1GiB"),
}

section! {
    /// Servers that share the key space by hash slots. This table is the map, and it must be the same on all of them: it does not change while they
    /// run, and they don't talk to each other.
    CLUSTER = "kv.cluster";
    /// Name of this server among the nodes.
    ///
    /// `larder kv --cluster-node` overrides it, so that all servers can have the same file.
    node = Text("the name of a node").absent("taken from the command line").kept(),
    /// All servers, this one among them.
    nodes = List(&Table(&NODE)).required().kept(),
    /// Whether a command may have keys of several slots where this server has all of them. Redis refuses each with CROSSSLOT.
    ///
    /// Commands whose keys are on several servers are refused in any case, and so is what a client library refuses by itself.
    cross_slot = Flag.default("false").kept(),
}

section! {
    /// One server of a cluster.
    NODE = "kv.cluster.nodes";
    /// Unique in the cluster; its id follows from it.
    name = Text("a name").required().kept(),
    /// Address at which clients reach it; redirections name it.
    ///
    /// Behind address translation it differs from the address that the server listens on.
    address = Text("host and port, such as `10.0.0.1:6379` or `cache-1.internal:6379`").required().kept(),
    /// Port at which clients reach it by TLS, where `address` has the port without.
    ///
    /// Each client is told the port for what it speaks itself.
    tls_port = Integer(1..=65535).absent("that of `address`").kept().no_limit(),
    /// Hash slots of this node, from 0 to 16383.
    ///
    /// Commands on keys in a slot without a node fail with CLUSTERDOWN.
    slots = List(&Text("a range of slots, such as `0-5460`, or one slot")).default("[]").kept(),
}

/// Zero is never.
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
