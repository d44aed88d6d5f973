//! Checks of system settings: a function of facts and needs.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use gateway::config::Config;
use origin::settings::OriginConfig;

use super::facts::Facts;
use crate::config::{KvSettings, Settings, format_size};

/// Resources that the process will use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    open_files: u64,
    /// The configuration key that accounts for most of the open files.
    connections_key: &'static str,
    /// Memory for stored responses, and for keys and values.
    memory_bytes: u64,
    keys: Keys,
}

/// Whether the process stores Redis keys; their index is faster with huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Keys {
    #[default]
    None,
    Some,
}

impl Needs {
    /// Returns the needs of all servers in the settings.
    pub(crate) fn of_all(settings: &Settings) -> Self {
        let gateway = settings.gateway.as_ref().map(Self::of_gateway).unwrap_or_default();
        let kv = settings.kv.as_ref().map(Self::of_kv).unwrap_or_default();
        Self {
            open_files: gateway.open_files + kv.open_files,
            connections_key: match settings.gateway {
                Some(_) => gateway.connections_key,
                None => kv.connections_key,
            },
            memory_bytes: gateway.memory_bytes + kv.memory_bytes,
            keys: kv.keys,
        }
    }

    /// Counts a file for each client, including disconnected ones that have not read their last reply, and files for
    /// listeners, logs and the admin API.
    pub(crate) fn of_kv(kv: &KvSettings) -> Self {
        let clients_max = kv.limits.clients_max as u64;
        Self {
            open_files: clients_max + (clients_max / 8).min(LEAVING) + FILES_BESIDE,
            connections_key: "kv.limits.clients_max",
            memory_bytes: kv.bytes_max,
            keys: Keys::Some,
        }
    }

    /// Counts a file for each client and for each connection to an origin, and some for large bodies, listeners, logs
    /// and the admin API.
    fn of_gateway(config: &Config) -> Self {
        let origins: BTreeMap<&str, &OriginConfig> =
            config.sites.iter().map(|site| (site.origin.name.as_str(), &*site.origin)).collect();
        let connections = origins.values().map(|origin| {
            let OriginConfig { admission, servers, .. } = origin;
            let idle = servers.iter().map(|server| server.endpoint.pool.idle_connections_max);
            admission.requests_in_flight_max
                + admission.tunnels_max
                + admission.transfers_max
                + idle.sum::<usize>()
        });
        Self {
            open_files: config.limits.connections_max as u64
                + connections.sum::<usize>() as u64
                + FILES_BESIDE,
            connections_key: "limits.connections_max",
            memory_bytes: config.stores.iter().map(|store| store.memory_bytes_max).sum(),
            keys: Keys::None,
        }
    }
}

/// A checked setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) setting: Cow<'static, str>,
    pub(crate) found: String,
    /// `None` if the setting is good.
    pub(crate) advice: Option<Advice>,
}

/// The recommended change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Advice {
    pub(crate) set: String,
    pub(crate) why: &'static str,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (setting, found) = (&self.setting, &self.found);
        match &self.advice {
            None => write!(f, "good  {setting} = {found}"),
            Some(Advice { set, why }) => write!(f, "SET   {setting} = {found}: set {set}; {why}"),
        }
    }
}

/// Returns an error with its causes.
pub(super) fn told(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let mut told: Vec<String> = causes.map(ToString::to_string).collect();
    // Some errors repeat their cause.
    told.dedup_by(|cause, error| error.ends_with(cause.as_str()));
    told.join(": ")
}

/// Checks all facts that are known.
pub(crate) fn findings(facts: &Facts, needs: &Needs) -> Vec<Finding> {
    let least = |setting: &'static str, found: Option<u64>, least, why| {
        found.map(|found| Finding {
            setting: Cow::Borrowed(setting),
            found: found.to_string(),
            advice: (found < least).then(|| Advice { set: format!("at least {least}"), why }),
        })
    };
    let checked = [
        least("net.core.somaxconn", facts.somaxconn, BACKLOG, SOMAXCONN),
        least("net.ipv4.tcp_max_syn_backlog", facts.syn_backlog, SYN_BACKLOG, SYNS),
        facts.open_files_max.map(|found| open_files(found, needs)),
        least(
            "net.ipv4.tcp_rmem (the last number)",
            facts.receive_buffer_bytes_max,
            BUFFER_BYTES,
            RECEIVE_BUFFER,
        ),
        least("net.ipv4.tcp_wmem (the last number)", facts.send_buffer_bytes_max, BUFFER_BYTES, SEND_BUFFER),
        facts.huge_pages.as_deref().map(|word| huge_pages(word, needs.keys)),
        facts.overcommit.map(overcommit),
        facts.memory_bytes.map(|bytes| memory(bytes, needs)),
    ];
    checked.into_iter().flatten().collect()
}

fn open_files(found: u64, needs: &Needs) -> Finding {
    let (least, key) = (needs.open_files, needs.connections_key);
    let advice = || Advice { set: format!("at least {least}, or lower `{key}`"), why: FILES };
    Finding {
        setting: "open files (ulimit -n, LimitNOFILE=)".into(),
        found: found.to_string(),
        advice: (found < least).then(advice),
    }
}

fn huge_pages(word: &str, keys: Keys) -> Finding {
    let why = match (word, keys) {
        ("always", _) => Some(HUGE_PAGES),
        ("never", Keys::Some) => Some(SMALL_PAGES),
        _ => None,
    };
    Finding {
        setting: "/sys/kernel/mm/transparent_hugepage/enabled".into(),
        found: word.to_owned(),
        advice: why.map(|why| Advice { set: "madvise".to_owned(), why }),
    }
}

fn overcommit(mode: u64) -> Finding {
    let advice = Advice { set: "0".to_owned(), why: OVERCOMMIT };
    Finding {
        setting: "vm.overcommit_memory".into(),
        found: mode.to_string(),
        advice: (mode == 2).then_some(advice),
    }
}

/// Client buffers and the allocator need memory in addition to the stored data.
fn memory(bytes: u64, needs: &Needs) -> Finding {
    let most = bytes / 10 * 8;
    let advice = || Advice {
        set: format!("`maxmemory` and `memory` to at most {} together, or add memory", mebibytes(most)),
        why: MEMORY,
    };
    Finding {
        setting: "memory of the machine or the control group".into(),
        found: format!("{}, configured {}", mebibytes(bytes), format_size(needs.memory_bytes)),
        advice: (needs.memory_bytes > most).then(advice),
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{}MiB", bytes >> 20)
}

const LEAVING: u64 = 1024;
const FILES_BESIDE: u64 = 128;
/// Backlog of the listeners.
const BACKLOG: u64 = 4096;
const SYN_BACKLOG: u64 = 1024;
const BUFFER_BYTES: u64 = 4 << 20;

const SOMAXCONN: &str =
    "the kernel drops connections that arrive in a burst beyond it, and clients retry after a second";
const SYNS: &str = "the kernel drops handshakes that arrive in a burst beyond it";
const FILES: &str = "each connection needs one, and without one new connections are not accepted";
const RECEIVE_BUFFER: &str = "large requests arrive in small pieces, one round trip each";
const SEND_BUFFER: &str = "large responses leave in small pieces, one round trip each";
const HUGE_PAGES: &str = "memory is allocated in pages of 2 MiB, so more of it is resident than in use";
const SMALL_PAGES: &str = "with millions of keys, each look-up misses the TLB twice";
const OVERCOMMIT: &str =
    "the kernel refuses allocations that would fit, and the server exits when a table grows";
const MEMORY: &str = "buffers of clients need memory too: the machine swaps, or the kernel kills the server";

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDS: Needs = Needs {
        open_files: 1253,
        connections_key: "kv.limits.clients_max",
        memory_bytes: 1 << 30,
        keys: Keys::Some,
    };

    fn good() -> Facts {
        Facts {
            somaxconn: Some(4096),
            syn_backlog: Some(4096),
            open_files_max: Some(65_536),
            receive_buffer_bytes_max: Some(6 << 20),
            send_buffer_bytes_max: Some(4 << 20),
            huge_pages: Some("madvise".to_owned()),
            overcommit: Some(0),
            memory_bytes: Some(8 << 30),
        }
    }

    fn advised(facts: &Facts) -> Vec<Cow<'static, str>> {
        let findings = findings(facts, &NEEDS);
        findings
            .into_iter()
            .filter(|finding| finding.advice.is_some())
            .map(|finding| finding.setting)
            .collect()
    }

    #[test]
    fn what_is_good_needs_no_advice() {
        assert_eq!(advised(&good()), Vec::<Cow<'_, str>>::new());
        assert_eq!(findings(&good(), &NEEDS).len(), 8);
        assert_eq!(findings(&Facts::default(), &NEEDS), []);
    }

    #[test]
    fn each_setting_is_told_alone() {
        #[track_caller]
        fn check(change: impl Fn(&mut Facts), setting: &str) {
            let mut facts = good();
            change(&mut facts);
            let advised = advised(&facts);
            assert!(advised.len() == 1 && advised[0].contains(setting), "{setting}: {advised:?}");
        }
        check(|facts| facts.somaxconn = Some(128), "somaxconn");
        check(|facts| facts.syn_backlog = Some(128), "tcp_max_syn_backlog");
        check(|facts| facts.open_files_max = Some(1024), "open files");
        check(|facts| facts.receive_buffer_bytes_max = Some(212_992), "tcp_rmem");
        check(|facts| facts.send_buffer_bytes_max = Some(212_992), "tcp_wmem");
        check(|facts| facts.huge_pages = Some("always".to_owned()), "hugepage");
        check(|facts| facts.huge_pages = Some("never".to_owned()), "hugepage");
        check(|facts| facts.overcommit = Some(2), "overcommit");
        check(|facts| facts.memory_bytes = Some(1 << 30), "memory");
    }

    #[test]
    fn a_finding_says_what_to_set_and_why() {
        let facts = Facts { somaxconn: Some(128), ..Facts::default() };
        let line = findings(&facts, &NEEDS)[0].to_string();
        let told = "SET   net.core.somaxconn = 128: set at least 4096; the kernel drops connections that arrive in a burst beyond it, \
                    and clients retry after a second";
        assert_eq!(line, told);
    }
}
