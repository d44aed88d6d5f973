//! Keys of the server for clients of Redis.

use super::{Kind, MIB, Preset, Reload, Section, TIB, row};

pub(crate) static KV: Section = Section {
    name: "kv",
    about: "The cache server for clients of Redis: `larder kv`, or beside the gateway in `larder serve`. Without this table `larder serve` has none.",
    options: &[
        row(
            "listen",
            Kind::Text("IP address and port, such as `0.0.0.0:6379` or `[::]:6379`"),
            Preset::Is("\"127.0.0.1:6379\""),
            Reload::No,
            "Address for clients; port 0 takes a free port.",
            "",
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
            "Bytes for keys, values and their index together.",
            "Buffers of clients are beside it. When a reload lowers it, keys are evicted as others are set.",
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
            Reload::No,
            "What is evicted when memory is full.",
            "What each means stands in the guide. `volatile-` policies leave keys alone that do not expire; `noeviction` refuses writes.",
        ),
    ],
};

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
