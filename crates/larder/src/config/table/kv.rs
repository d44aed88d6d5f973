//! Keys of the Redis-compatible server.

use super::section::{DAY_MS, FILE, KIB, Kind, MIB, Preset, Reload, Section, TIB, row};

pub(crate) static KV: Section = Section {
    name: "kv",
    about: "The Redis-compatible cache server: `larder kv`, or beside the gateway in `larder serve`. Without this table `larder serve` runs none.",
    options: &[
        row(
            "listen",
            Kind::List(&Kind::Text(
                "IP address or host name, and port, such as `0.0.0.0:6379` or `[::]:6379`",
            )),
            Preset::Is("[\"127.0.0.1:6379\"]"),
            Reload::No,
            "Addresses for clients; port 0 takes a free port.",
            "May be empty where `tls` has addresses.",
        ),
        row(
            "workers",
            Kind::Integer { min: 1, max: 1024 },
            Preset::Absent("one per CPU that the process may use"),
            Reload::No,
            "Worker threads, each with its own listening socket; all of them serve all keys.",
            "They are beside the workers of the gateway where both run in one process.",
        ),
        row(
            "maxmemory",
            Kind::Size { min: 2 * MIB, max: 16 * TIB },
            Preset::Is("\"1GiB\""),
            Reload::Yes,
            "Memory for keys, values and their index together.",
            "Buffers of clients count within it, see `limits`. When a reload lowers it, keys are evicted as others are set.",
        ),
        row(
            "maxmemory_policy",
            Kind::Choice(&[
                "noeviction",
                "allkeys-s3fifo",
                "allkeys-lru",
                "allkeys-lfu",
                "allkeys-random",
                "volatile-lru",
                "volatile-lfu",
                "volatile-random",
                "volatile-ttl",
            ]),
            Preset::Is("\"allkeys-s3fifo\""),
            Reload::Yes,
            "Eviction policy when memory is full.",
            "The guide describes each policy. `volatile-` policies never evict keys without a TTL; `noeviction` refuses writes.",
        ),
        row(
            "save_file",
            Kind::Text("path of a file, relative to the configuration file, or `off`"),
            Preset::Absent("`off`: nothing is written to disk"),
            Reload::No,
            "Where the data set is written when the server stops, and read from when it starts.",
            "The folder must exist and take files: the file is written beside its name and renamed, and removed when a server has begun with it. A link is followed; what is no regular file is refused. It belongs to one server, which locks `NAME.lock` beside it.",
        ),
        row(
            "text_protocol",
            Kind::Choice(&["inline", "unit-separator"]),
            Preset::Is("\"inline\""),
            Reload::No,
            "How a message without a leading `*` is read: as a Redis inline command, or as a message of the 0x1F text protocol.",
            "",
        ),
        row(
            "backlog",
            Kind::Integer { min: 1, max: i32::MAX as u64 },
            Preset::Is("4096"),
            Reload::No,
            "Connections that wait to be accepted.",
            "The kernel takes no more than `net.core.somaxconn`, see `larder doctor`.",
        ),
        row(
            "socket_buffer_bytes",
            Kind::Size { min: 4 * KIB, max: GIB },
            Preset::Absent("the kernel chooses, and changes it as it goes"),
            Reload::No,
            "Buffers of a socket (SO_RCVBUF, SO_SNDBUF).",
            "A fixed size is seldom better than what the kernel finds, and it takes no more than `net.core.rmem_max` and `wmem_max`.",
        ),
        row(
            "compression",
            Kind::Choice(&["none", "lz4"]),
            Preset::Is("\"none\""),
            Reload::Yes,
            "Compression of large values that it makes smaller by an eighth or more.",
            "A GET of such a value unpacks it. What clients see is the same. A reload changes how values are kept that are set from then on.",
        ),
        row(
            "compress_from",
            Kind::Size { min: 16 * KIB, max: 512 * MIB },
            Preset::Is("\"16KiB\""),
            Reload::Yes,
            "With `compression`: the smallest value that is compressed.",
            "Values that fit into 16 KiB with their key never are: a GET of a small value costs the same with and without compression.",
        ),
        row(
            "password_files",
            Kind::List(&Kind::SecretFile),
            Preset::Is("[]"),
            Reload::Yes,
            "Files with a password in their first line (AUTH, HELLO); each password is accepted.",
            "With several you can rotate: add the new one, reload, move the clients, remove the old one, reload. Connected clients stay connected.",
        ),
        row(
            "protected_mode",
            Kind::Flag,
            Preset::Is("true"),
            Reload::Yes,
            "Whether clients on other machines are refused while no password is set.",
            "Disable it only on a network where every client may read and write everything.",
        ),
        row(
            "enable_debug_command",
            Kind::Choice(&["no", "yes", "local"]),
            Preset::Is("\"no\""),
            Reload::Yes,
            "Who may use DEBUG (`enable-debug-command`): nobody, every client, or clients on this machine.",
            "For tests only: DEBUG SLEEP blocks a worker for up to a minute.",
        ),
        row("tls", Kind::Table(&TLS), Preset::Absent("no TLS"), Reload::Inside, "Addresses with TLS.", ""),
        row("limits", Kind::Table(&LIMITS), Preset::Is("{}"), Reload::Yes, "What clients may use.", ""),
        row(
            "cluster",
            Kind::Table(&CLUSTER),
            Preset::Absent("this server has all keys"),
            Reload::No,
            "Several servers that share the key space, for Redis Cluster clients.",
            "",
        ),
    ],
};

static TLS: Section = Section {
    name: "kv.tls",
    about: "Addresses on which Redis clients speak TLS (1.2 and 1.3).",
    options: &[
        row(
            "listen",
            Kind::List(&Kind::Text("IP address or host name, and port")),
            Preset::Required,
            Reload::No,
            "Addresses for clients; port 0 takes a free port.",
            "",
        ),
        row(
            "cert",
            FILE,
            Preset::Required,
            Reload::Yes,
            "PEM file with the chain, the server's certificate first.",
            "A reload reads the files again; open connections keep what they began with.",
        ),
        row("key", FILE, Preset::Required, Reload::Yes, "PEM file with the private key.", ""),
        row(
            "client_ca_file",
            FILE,
            Preset::Absent("clients need no certificate"),
            Reload::Yes,
            "PEM file with the authorities that sign certificates of clients.",
            "",
        ),
        row(
            "client_certificates",
            Kind::Choice(&["required", "optional"]),
            Preset::Is("\"required\""),
            Reload::Yes,
            "With `client_ca_file`: whether a client without a certificate is refused. One with a wrong certificate always is.",
            "",
        ),
    ],
};

static LIMITS: Section = Section {
    name: "kv.limits",
    about: "What Redis clients may use. Buffers are counted within `maxmemory`.",
    options: &[
        row(
            "clients_max",
            Kind::Integer { min: 1, max: 10_000_000 },
            Preset::Is("10000"),
            Reload::Yes,
            "Open connections over all workers (`maxclients`); further ones get an error and are closed.",
            "Each needs a file descriptor.",
        ),
        row(
            "unauthenticated_max",
            Kind::Integer { min: 1, max: 10_000_000 },
            Preset::Is("1000"),
            Reload::Yes,
            "Connections at once that have not given a password where one is needed, or not finished the handshake of TLS; the oldest from the address with most of them is closed for a new one.",
            "They count within `clients_max` and make way there too, so that they never keep out clients that have a password. Their requests have at most 10 arguments of 16 KiB each, and what is kept of all of them takes 1/32 of `maxmemory`, 512 KiB to 8 MiB, beside it: no key is evicted for them.",
        ),
        row(
            "auth_timeout",
            NEVER_OR_LIMIT,
            Preset::Is("\"1m\""),
            Reload::Yes,
            "How long a connection may take to authenticate, or to finish the TLS handshake, before it is closed; `0s` disables the limit.",
            "",
        ),
        row(
            "idle_timeout",
            NEVER_OR_LIMIT,
            Preset::Is("\"0s\""),
            Reload::Yes,
            "Idle time after which a connection is closed (`timeout`); `0s` disables the limit.",
            "",
        ),
        row(
            "keepalive",
            NEVER_OR_LIMIT,
            Preset::Is("\"5m\""),
            Reload::Yes,
            "Idle time after which the kernel probes the client (`tcp-keepalive`); `0s` disables probes.",
            "For connections that begin after the reload.",
        ),
        row(
            "request_bytes_max",
            Kind::Size { min: MIB, max: 16 * GIB },
            Preset::Is("\"1GiB\""),
            Reload::Yes,
            "Bytes of an incomplete request (`client-query-buffer-limit`); beyond it the client is closed.",
            "",
        ),
        row(
            "messages_bytes_max",
            Kind::Size { min: 64 * KIB, max: 16 * GIB },
            Preset::Is("\"32MiB\""),
            Reload::Yes,
            "Bytes of messages that a client has not read (`client-output-buffer-limit pubsub`); beyond it the client is closed.",
            "",
        ),
        row(
            "replies_bytes_max",
            Kind::Size { min: 0, max: 16 * GIB },
            Preset::Is("\"0B\""),
            Reload::Yes,
            "Bytes of replies that a client has not read (`client-output-buffer-limit normal`); beyond it the client is closed. `0` sets no limit of its own.",
            "A client that does not read its replies is not read from, so that there is one reply, or 64 KiB of them. Large values in it are shared with the keys and take no memory; the rest has room within `maxmemory` and `buffers_bytes_max`, or is refused.",
        ),
        row(
            "buffers_bytes_max",
            Kind::Size { min: MIB, max: TIB },
            Preset::Is("\"1GiB\""),
            Reload::Yes,
            "Bytes of requests and replies of all clients together (`maxmemory-clients`); beyond it the client with the most is closed.",
            "From half of it on, less is read from each client at once.",
        ),
    ],
};

static CLUSTER: Section = Section {
    name: "kv.cluster",
    about: "Servers that share the key space by hash slots. This table is the map, and it must be the same on all of them: it does not change while they run, and they don't talk to each other.",
    options: &[
        row(
            "node",
            Kind::Text("the name of a node"),
            Preset::Absent("taken from the command line"),
            Reload::No,
            "Name of this server among the nodes.",
            "`larder kv --cluster-node` overrides it, so that all servers can have the same file.",
        ),
        row(
            "nodes",
            Kind::List(&Kind::Table(&NODE)),
            Preset::Required,
            Reload::No,
            "All servers, this one among them.",
            "",
        ),
    ],
};

static NODE: Section = Section {
    name: "kv.cluster.nodes",
    about: "One server of a cluster.",
    options: &[
        row(
            "name",
            Kind::Text("a name"),
            Preset::Required,
            Reload::No,
            "Unique in the cluster; its id follows from it.",
            "",
        ),
        row(
            "address",
            Kind::Text("host and port, such as `10.0.0.1:6379` or `cache-1.internal:6379`"),
            Preset::Required,
            Reload::No,
            "Address at which clients reach it; redirections name it.",
            "Behind address translation it differs from the address that the server listens on.",
        ),
        row(
            "slots",
            Kind::List(&Kind::Text("a range of slots, such as `0-5460`, or one slot")),
            Preset::Is("[]"),
            Reload::No,
            "Hash slots of this node, from 0 to 16383.",
            "Commands on keys in a slot without a node fail with CLUSTERDOWN.",
        ),
    ],
};

/// Zero is never.
const NEVER_OR_LIMIT: Kind = Kind::Duration { min_ms: 0, max_ms: 365 * DAY_MS };
const GIB: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_those_of_the_engine() {
        let option = KV.option("maxmemory_policy").expect("it is there");
        let Kind::Choice(words) = option.kind else { panic!("it is a choice") };
        assert_eq!(words, engine::Policy::ALL.map(engine::Policy::name));
    }
}
