//! Which settings should be others, and why: a function of facts and needs.

use std::fmt;

use super::facts::Facts;
use crate::config::{KvSettings, format_size};

/// What the server is going to use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    pub(crate) clients_max: u64,
    pub(crate) memory_bytes: u64,
}

impl Needs {
    /// Those of a server with these settings.
    pub(crate) fn of(kv: &KvSettings) -> Self {
        Self { clients_max: kv.limits.clients_max as u64, memory_bytes: kv.bytes_max }
    }
}

/// A setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) setting: &'static str,
    pub(crate) found: String,
    /// None where it is good as it is.
    pub(crate) advice: Option<Advice>,
}

/// What to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Advice {
    pub(crate) set: String,
    pub(crate) why: &'static str,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (setting, found) = (self.setting, &self.found);
        match &self.advice {
            None => write!(f, "good  {setting} = {found}"),
            Some(Advice { set, why }) => write!(f, "SET   {setting} = {found}: set {set}; {why}"),
        }
    }
}

/// Judges all facts that are there.
pub(crate) fn findings(facts: &Facts, needs: &Needs) -> Vec<Finding> {
    let least = |setting, found: Option<u64>, least, why| {
        found.map(|found| Finding {
            setting,
            found: found.to_string(),
            advice: (found < least).then(|| Advice { set: format!("at least {least}"), why }),
        })
    };
    let checked = [
        least("net.core.somaxconn", facts.somaxconn, BACKLOG, SOMAXCONN),
        least("net.ipv4.tcp_max_syn_backlog", facts.syn_backlog, SYN_BACKLOG, SYNS),
        least("open files (ulimit -n, LimitNOFILE=)", facts.open_files_max, files(needs), FILES),
        least(
            "net.ipv4.tcp_rmem (the last number)",
            facts.receive_buffer_bytes_max,
            BUFFER_BYTES,
            RECEIVE_BUFFER,
        ),
        least("net.ipv4.tcp_wmem (the last number)", facts.send_buffer_bytes_max, BUFFER_BYTES, SEND_BUFFER),
        facts.huge_pages.as_deref().map(huge_pages),
        facts.overcommit.map(overcommit),
        facts.memory_bytes.map(|bytes| memory(bytes, needs)),
    ];
    checked.into_iter().flatten().collect()
}

fn huge_pages(word: &str) -> Finding {
    let why = match word {
        "always" => Some(HUGE_PAGES),
        "never" => Some(SMALL_PAGES),
        _ => None,
    };
    Finding {
        setting: "/sys/kernel/mm/transparent_hugepage/enabled",
        found: word.to_owned(),
        advice: why.map(|why| Advice { set: "madvise".to_owned(), why }),
    }
}

fn overcommit(mode: u64) -> Finding {
    let advice = Advice { set: "0".to_owned(), why: OVERCOMMIT };
    Finding {
        setting: "vm.overcommit_memory",
        found: mode.to_string(),
        advice: (mode == 2).then_some(advice),
    }
}

/// Beside keys and values there are buffers of clients and what the allocator keeps.
fn memory(bytes: u64, needs: &Needs) -> Finding {
    let most = bytes / 10 * 8;
    let advice =
        || Advice { set: format!("`maxmemory` to at most {most} bytes, or give more memory"), why: MEMORY };
    Finding {
        setting: "memory of the machine or the control group",
        found: format!("{}, maxmemory {}", mebibytes(bytes), format_size(needs.memory_bytes)),
        advice: (needs.memory_bytes > most).then(advice),
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{}MiB", bytes >> 20)
}

/// One for each client; those that are over and have not read their last reply, listeners, logs and the admin API beside them.
fn files(needs: &Needs) -> u64 {
    needs.clients_max + (needs.clients_max / 8).min(LEAVING) + FILES_BESIDE
}

const LEAVING: u64 = 1024;
const FILES_BESIDE: u64 = 128;
/// What the listeners ask for.
const BACKLOG: u64 = 4096;
const SYN_BACKLOG: u64 = 1024;
const BUFFER_BYTES: u64 = 4 << 20;

const SOMAXCONN: &str =
    "connections that come at once beyond it are dropped, and their clients try again after a second";
const SYNS: &str = "connections that come at once beyond it get no room before their handshake ends";
const FILES: &str = "every client takes one, and who finds none is not accepted";
const RECEIVE_BUFFER: &str = "large values arrive in small pieces, one round trip each";
const SEND_BUFFER: &str = "large values leave in small pieces, one round trip each";
const HUGE_PAGES: &str = "memory comes in pieces of 2 MiB, so that more of it is resident than is used";
const SMALL_PAGES: &str =
    "keys and values lie in small pages: among millions, each look-up waits twice for where they are";
const OVERCOMMIT: &str = "memory that is there is refused, and a server whose tables grow ends";
const MEMORY: &str =
    "buffers of clients need memory too, and what does not fit is swapped, or the server is killed";

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDS: Needs = Needs { clients_max: 1000, memory_bytes: 1 << 30 };

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

    fn advised(facts: &Facts) -> Vec<&'static str> {
        let findings = findings(facts, &NEEDS);
        findings.iter().filter(|finding| finding.advice.is_some()).map(|finding| finding.setting).collect()
    }

    #[test]
    fn what_is_good_needs_no_advice() {
        assert_eq!(advised(&good()), Vec::<&str>::new());
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
        let told = "SET   net.core.somaxconn = 128: set at least 4096; connections that come at once beyond it are dropped, and \
                    their clients try again after a second";
        assert_eq!(line, told);
    }
}
