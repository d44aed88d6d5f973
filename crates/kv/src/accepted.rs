//! Settings of Redis that have no effect here, or allow a single value. They are accepted because clients,
//! test suites and tools send them.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::command::{memory, number};

/// A setting, in Redis' spelling.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accepted {
    pub(crate) name: &'static str,
    /// The default of Redis 7.0, or the only value.
    default: &'static str,
    values: Values,
}

/// The values that a setting accepts.
#[derive(Clone, Copy, Debug)]
enum Values {
    Flag,
    Number(i64, i64),
    /// Any non-negative number, clamped to this range when reported.
    Nearest(i64, i64),
    Bytes,
    Words(&'static [&'static str]),
    Text,
    /// Only the default, because Larder couldn't honour another value.
    Only,
    /// No value: the setting is immutable, as in Redis.
    Fixed,
}

/// The values that clients have set. CONFIG GET reports them; they have no other effect.
#[derive(Debug, Default)]
pub(crate) struct Choices(Mutex<BTreeMap<&'static str, String>>);

/// Maximum bytes of a text value, which would otherwise be unbounded.
pub(crate) const TEXT_BYTES_MAX: usize = 1024;

impl Choices {
    pub(crate) fn get(&self, setting: &Accepted) -> String {
        self.0.lock().get(setting.name).map_or_else(|| setting.default.to_owned(), Clone::clone)
    }

    /// The value of the setting with this name, which must exist.
    pub(crate) fn of(&self, name: &str) -> String {
        ACCEPTED
            .iter()
            .find(|setting| setting.name == name)
            .map(|setting| self.get(setting))
            .unwrap_or_default()
    }

    /// Sets a value, or returns Redis' error text.
    pub(crate) fn set(&self, setting: &Accepted, value: &[u8]) -> Result<(), String> {
        let value = setting.check(value)?;
        self.0.lock().insert(setting.name, value);
        Ok(())
    }
}

impl Accepted {
    /// Checks a value and returns it as CONFIG GET reports it.
    fn check(&self, value: &[u8]) -> Result<String, String> {
        let text = String::from_utf8_lossy(value).into_owned();
        let lower = text.to_ascii_lowercase();
        match self.values {
            Values::Flag if matches!(lower.as_str(), "yes" | "no") => Ok(lower),
            Values::Flag => Err("argument must be 'yes' or 'no'".to_owned()),
            Values::Number(least, most) => number(value, least, most).map(|number| number.to_string()),
            Values::Nearest(least, most) => {
                number(value, 0, INT_MAX).map(|number| number.clamp(least, most).to_string())
            }
            Values::Bytes => memory(value).map(|bytes| bytes.to_string()),
            Values::Words(words) if words.contains(&lower.as_str()) => Ok(lower),
            Values::Words(words) => {
                Err(format!("argument(s) must be one of the following: {}", words.join(", ")))
            }
            Values::Text if text.len() <= TEXT_BYTES_MAX => Ok(text),
            Values::Text => Err(format!("argument must have at most {TEXT_BYTES_MAX} bytes")),
            Values::Fixed => Err("can't set immutable config".to_owned()),
            Values::Only if lower == self.default => Ok(lower),
            Values::Only if memory(value).is_ok_and(|bytes| bytes.to_string() == self.default) => {
                Ok(self.default.to_owned())
            }
            Values::Only => Err(format!("argument can only be '{}' in Larder", self.default)),
        }
    }
}

const fn accepted(name: &'static str, default: &'static str, values: Values) -> Accepted {
    Accepted { name, default, values }
}

const INT_MAX: i64 = i32::MAX as i64;

/// Sorted by name.
#[rustfmt::skip]
pub(crate) const ACCEPTED: &[Accepted] = &[
    accepted("acl-pubsub-default", "resetchannels", Values::Words(&["allchannels", "resetchannels"])),
    accepted("aclfile", "", Values::Fixed),
    accepted("acllog-max-len", "128", Values::Number(0, i64::MAX)),
    accepted("active-defrag-cycle-max", "25", Values::Number(1, 99)),
    accepted("active-defrag-cycle-min", "1", Values::Number(1, 99)),
    accepted("active-defrag-ignore-bytes", "104857600", Values::Bytes),
    accepted("active-defrag-max-scan-fields", "1000", Values::Number(1, i64::MAX)),
    accepted("active-defrag-threshold-lower", "10", Values::Number(0, 1000)),
    accepted("active-defrag-threshold-upper", "100", Values::Number(0, 1000)),
    accepted("active-expire-effort", "1", Values::Number(1, 10)),
    accepted("activedefrag", "no", Values::Flag),
    accepted("activerehashing", "yes", Values::Flag),
    accepted("aof-disable-auto-gc", "no", Values::Flag),
    accepted("aof-load-truncated", "yes", Values::Flag),
    accepted("aof-rewrite-incremental-fsync", "yes", Values::Flag),
    accepted("aof-timestamp-enabled", "no", Values::Flag),
    accepted("aof-use-rdb-preamble", "yes", Values::Flag),
    accepted("appendfsync", "everysec", Values::Words(&["everysec", "always", "no"])),
    accepted("appendonly", "no", Values::Only),
    accepted("auto-aof-rewrite-min-size", "67108864", Values::Bytes),
    accepted("auto-aof-rewrite-percentage", "100", Values::Number(0, INT_MAX)),
    accepted("bind-source-addr", "", Values::Only),
    accepted("busy-reply-threshold", "5000", Values::Number(0, i64::MAX)),
    accepted("cluster-allow-pubsubshard-when-down", "yes", Values::Flag),
    accepted("cluster-allow-reads-when-down", "no", Values::Flag),
    accepted("cluster-allow-replica-migration", "yes", Values::Flag),
    accepted("cluster-announce-bus-port", "0", Values::Only),
    accepted("cluster-announce-hostname", "", Values::Only),
    accepted("cluster-announce-ip", "", Values::Only),
    accepted("cluster-announce-port", "0", Values::Only),
    accepted("cluster-announce-tls-port", "0", Values::Only),
    accepted("cluster-link-sendbuf-limit", "0", Values::Bytes),
    accepted("cluster-migration-barrier", "1", Values::Number(0, INT_MAX)),
    accepted("cluster-node-timeout", "15000", Values::Number(0, i64::MAX)),
    accepted("cluster-preferred-endpoint-type", "ip", Values::Words(&["ip", "hostname", "unknown-endpoint"])),
    accepted("cluster-replica-no-failover", "no", Values::Flag),
    accepted("cluster-replica-validity-factor", "10", Values::Number(0, INT_MAX)),
    accepted("cluster-require-full-coverage", "yes", Values::Flag),
    accepted("cluster-slave-no-failover", "no", Values::Flag),
    accepted("cluster-slave-validity-factor", "10", Values::Number(0, INT_MAX)),
    accepted("crash-log-enabled", "yes", Values::Flag),
    accepted("crash-memcheck-enabled", "yes", Values::Flag),
    accepted("dynamic-hz", "yes", Values::Flag),
    accepted("hash-max-listpack-entries", "512", Values::Number(0, i64::MAX)),
    accepted("hash-max-listpack-value", "64", Values::Bytes),
    accepted("hash-max-ziplist-entries", "512", Values::Number(0, i64::MAX)),
    accepted("hash-max-ziplist-value", "64", Values::Bytes),
    accepted("hll-sparse-max-bytes", "3000", Values::Bytes),
    accepted("hz", "10", Values::Nearest(1, 500)),
    accepted("ignore-warnings", "", Values::Text),
    accepted("jemalloc-bg-thread", "yes", Values::Flag),
    accepted("latency-tracking", "yes", Values::Flag),
    accepted("latency-tracking-info-percentiles", "50 99 99.9", Values::Only),
    accepted("lazyfree-lazy-eviction", "no", Values::Flag),
    accepted("lazyfree-lazy-expire", "no", Values::Flag),
    accepted("lazyfree-lazy-server-del", "no", Values::Flag),
    accepted("lazyfree-lazy-user-del", "no", Values::Flag),
    accepted("lazyfree-lazy-user-flush", "no", Values::Flag),
    accepted("lfu-decay-time", "1", Values::Number(0, INT_MAX)),
    accepted("lfu-log-factor", "10", Values::Number(0, INT_MAX)),
    accepted("list-compress-depth", "0", Values::Number(0, INT_MAX)),
    accepted("list-max-listpack-size", "-2", Values::Number(-INT_MAX - 1, INT_MAX)),
    accepted("list-max-ziplist-size", "-2", Values::Number(-INT_MAX - 1, INT_MAX)),
    accepted("logfile", "", Values::Fixed),
    accepted("loglevel", "notice", Values::Words(&["debug", "verbose", "notice", "warning"])),
    accepted("lua-time-limit", "5000", Values::Number(0, i64::MAX)),
    accepted("masterauth", "", Values::Only),
    accepted("masteruser", "", Values::Only),
    accepted("maxmemory-eviction-tenacity", "10", Values::Number(0, 100)),
    accepted("maxmemory-samples", "5", Values::Number(1, INT_MAX)),
    accepted("min-replicas-max-lag", "10", Values::Number(0, INT_MAX)),
    accepted("min-replicas-to-write", "0", Values::Only),
    accepted("min-slaves-max-lag", "10", Values::Number(0, INT_MAX)),
    accepted("min-slaves-to-write", "0", Values::Only),
    accepted("no-appendfsync-on-rewrite", "no", Values::Flag),
    accepted("oom-score-adj", "no", Values::Only),
    accepted("oom-score-adj-values", "0 200 800", Values::Text),
    accepted("proc-title-template", "{title} {listen-addr} {server-mode}", Values::Text),
    accepted("propagation-error-behavior", "ignore", Values::Words(&["ignore", "panic", "panic-on-replicas"])),
    accepted("proto-max-bulk-len", "536870912", Values::Only),
    accepted("rdb-del-sync-files", "no", Values::Flag),
    accepted("rdb-save-incremental-fsync", "yes", Values::Flag),
    accepted("rdbcompression", "yes", Values::Flag),
    accepted("repl-backlog-size", "1048576", Values::Bytes),
    accepted("repl-backlog-ttl", "3600", Values::Number(0, i64::MAX)),
    accepted("repl-disable-tcp-nodelay", "no", Values::Flag),
    accepted("repl-diskless-load", "disabled", Values::Words(&["disabled", "on-empty-db", "swapdb"])),
    accepted("repl-diskless-sync", "yes", Values::Flag),
    accepted("repl-diskless-sync-delay", "5", Values::Number(0, INT_MAX)),
    accepted("repl-diskless-sync-max-replicas", "0", Values::Number(0, INT_MAX)),
    accepted("repl-ping-replica-period", "10", Values::Number(1, INT_MAX)),
    accepted("repl-ping-slave-period", "10", Values::Number(1, INT_MAX)),
    accepted("repl-timeout", "60", Values::Number(1, INT_MAX)),
    accepted("replica-announce-ip", "", Values::Only),
    accepted("replica-announce-port", "0", Values::Only),
    accepted("replica-announced", "yes", Values::Flag),
    accepted("replica-ignore-disk-write-errors", "no", Values::Flag),
    accepted("replica-ignore-maxmemory", "yes", Values::Flag),
    accepted("replica-lazy-flush", "no", Values::Flag),
    accepted("replica-priority", "100", Values::Number(0, INT_MAX)),
    accepted("replica-read-only", "yes", Values::Only),
    accepted("replica-serve-stale-data", "yes", Values::Flag),
    accepted("replicaof", "", Values::Fixed),
    accepted("sanitize-dump-payload", "no", Values::Words(&["no", "yes", "clients"])),
    accepted("save", "", Values::Only),
    accepted("set-max-intset-entries", "512", Values::Number(0, i64::MAX)),
    accepted("set-proc-title", "yes", Values::Flag),
    accepted("shutdown-on-sigint", "default", Values::Only),
    accepted("shutdown-on-sigterm", "default", Values::Only),
    accepted("shutdown-timeout", "10", Values::Number(0, INT_MAX)),
    accepted("slave-announce-ip", "", Values::Only),
    accepted("slave-announce-port", "0", Values::Only),
    accepted("slave-ignore-maxmemory", "yes", Values::Flag),
    accepted("slave-lazy-flush", "no", Values::Flag),
    accepted("slave-priority", "100", Values::Number(0, INT_MAX)),
    accepted("slave-read-only", "yes", Values::Only),
    accepted("slave-serve-stale-data", "yes", Values::Flag),
    accepted("slaveof", "", Values::Fixed),
    accepted("stop-writes-on-bgsave-error", "yes", Values::Flag),
    accepted("stream-node-max-bytes", "4096", Values::Bytes),
    accepted("stream-node-max-entries", "100", Values::Number(0, i64::MAX)),
    accepted("tls-cluster", "no", Values::Only),
    accepted("tls-port", "0", Values::Only),
    accepted("tls-replication", "no", Values::Only),
    accepted("unixsocket", "", Values::Fixed),
    accepted("zset-max-listpack-entries", "128", Values::Number(0, i64::MAX)),
    accepted("zset-max-listpack-value", "64", Values::Bytes),
    accepted("zset-max-ziplist-entries", "128", Values::Number(0, i64::MAX)),
    accepted("zset-max-ziplist-value", "64", Values::Bytes),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str, value: &str) -> Result<String, String> {
        let choices = Choices::default();
        let setting = ACCEPTED.iter().find(|setting| setting.name == name).expect("it is one");
        choices.set(setting, value.as_bytes())?;
        Ok(choices.get(setting))
    }

    #[test]
    fn every_default_can_be_set() {
        assert!(ACCEPTED.is_sorted_by(|one, next| one.name < next.name));
        for setting in ACCEPTED.iter().filter(|setting| !matches!(setting.values, Values::Fixed)) {
            assert_eq!(
                set(setting.name, setting.default).as_deref(),
                Ok(setting.default),
                "{}",
                setting.name
            );
        }
    }

    #[test]
    fn values_are_checked_as_redis_does() {
        let check = |name: &str, value: &str, expected: Result<&str, &str>| {
            assert_eq!(set(name, value).as_deref().map_err(String::as_str), expected, "{name} {value}");
        };
        check("latency-tracking", "NO", Ok("no"));
        check("latency-tracking", "maybe", Err("argument must be 'yes' or 'no'"));
        check("maxmemory-samples", "10", Ok("10"));
        check("hz", "0", Ok("1"));
        check("hz", "1000", Ok("500"));
        check("hz", "-1", Err("argument must be between 0 and 2147483647 inclusive"));
        check("maxmemory-samples", "0", Err("argument must be between 1 and 2147483647 inclusive"));
        check("repl-backlog-size", "1mb", Ok("1048576"));
        check("loglevel", "debug", Ok("debug"));
        check("save", "", Ok(""));
        check("proto-max-bulk-len", "512mb", Ok("536870912"));
        check("save", "60 1", Err("argument can only be '' in Larder"));
        check(
            "ignore-warnings",
            &"x".repeat(TEXT_BYTES_MAX + 1),
            Err("argument must have at most 1024 bytes"),
        );
    }
}
