//! Arguments of the command line, which override the file.

use std::path::PathBuf;

use super::environment::Environment;
use super::overlay::{add_kv, list, put, put_number, table, text};
use super::problem::Problems;
use super::tree::Table;

/// The servers that the process runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Program {
    /// The servers in the configuration: the gateway, the Redis-compatible server, or both.
    #[default]
    Serve,
    /// The Redis-compatible server alone.
    Kv,
}

/// The reason for reading the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To run a process with the settings.
    #[default]
    Run,
    /// Only to check the file, perhaps not on the machine that it is for.
    Look,
}

/// Arguments of the Redis-compatible server.
#[derive(Clone, Debug, Default)]
pub(crate) struct KvOverrides {
    pub(crate) listen: Vec<String>,
    pub(crate) maxmemory: Option<String>,
    pub(crate) maxmemory_policy: Option<String>,
    pub(crate) save_file: Option<String>,
    pub(crate) workers: Option<u32>,
    pub(crate) cluster_node: Option<String>,
    /// File with initial keys.
    pub(crate) import: Option<PathBuf>,
}

/// Arguments that override the configuration. Their values are checked like those of the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides {
    pub(crate) program: Program,
    pub(crate) purpose: Purpose,
    /// Environment variables, which all other arguments override.
    pub(crate) environment: Environment,
    pub(crate) kv: KvOverrides,
    /// URL of the only site's origin, instead of a configuration file.
    pub(crate) origin: Option<String>,
    pub(crate) listen: Vec<String>,
    pub(crate) admin: Option<String>,
    pub(crate) memory: Option<String>,
    pub(crate) store: Option<String>,
    pub(crate) workers: Option<u32>,
    pub(crate) profile: Option<String>,
    pub(crate) log_level: Option<String>,
    pub(crate) access_log: Option<String>,
}

impl Overrides {
    /// Returns the overrides of a check, for all nodes of a cluster or for one.
    pub(crate) fn to_look(program: Program, cluster_node: Option<String>) -> Self {
        let kv = KvOverrides { cluster_node, ..KvOverrides::default() };
        Self { program, purpose: Purpose::Look, kv, ..Self::default() }
    }

    /// Overrides values of `tree` with the given arguments.
    pub(super) fn apply(&self, tree: &mut Table, problems: &mut Problems) {
        if self.program == Program::Kv {
            add_kv(tree);
            self.environment.apply(tree, problems);
        }
        let kv = &self.kv;
        let texts = [
            ("profile", "--profile", &self.profile),
            ("store.remote", "--store", &self.store),
            ("store.memory", "--memory", &self.memory),
            ("admin.listen", "--admin", &self.admin),
            ("log.level", "--log-level", &self.log_level),
            ("log.access", "--access-log", &self.access_log),
            ("kv.maxmemory", "--maxmemory", &kv.maxmemory),
            ("kv.maxmemory_policy", "--maxmemory-policy", &kv.maxmemory_policy),
            ("kv.save_file", "--save-file", &kv.save_file),
            ("kv.cluster.node", "--cluster-node", &kv.cluster_node),
        ];
        for (path, flag, value) in texts {
            if let Some(value) = value {
                put(tree, path, (flag, text(value)), problems);
            }
        }
        for (path, number) in [("workers", self.workers), ("kv.workers", kv.workers)] {
            if let Some(number) = number {
                put_number(tree, path, ("--workers", number), problems);
            }
        }
        for (path, addresses) in [("listen", &self.listen), ("kv.listen", &kv.listen)] {
            if !addresses.is_empty() {
                let addresses = list(addresses.iter().map(|address| text(address)));
                put(tree, path, ("--listen", addresses), problems);
            }
        }
        if let Some(origin) = &self.origin {
            let site = table([("name", "default"), ("origin", origin)]);
            put(tree, "site", ("--origin", list([site])), problems);
        }
    }
}
