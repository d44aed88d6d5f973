//! Arguments of the command line, which go over the file.

use toml::de::{DeString, DeTable, DeValue};

use super::environment::Environment;
use super::locate::Place;
use super::overlay::{array, inner_table, kv_table, override_key, override_number, spanned, text};
use super::problem::Problems;
use super::tree::Table;

/// What the process is to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Program {
    /// Whatever the configuration has: the gateway, the Redis-compatible server, or both.
    #[default]
    Serve,
    /// The Redis-compatible server alone.
    Kv,
}

/// What becomes of the settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A process runs with them.
    #[default]
    Run,
    /// Somebody wants to know whether one could: on another machine than those that the file is for, perhaps.
    Look,
}

/// What the command line says about the Redis-compatible server.
#[derive(Clone, Debug, Default)]
pub(crate) struct KvOverrides {
    pub(crate) listen: Vec<String>,
    pub(crate) maxmemory: Option<String>,
    pub(crate) maxmemory_policy: Option<String>,
    pub(crate) save_file: Option<String>,
    pub(crate) workers: Option<u32>,
    pub(crate) cluster_node: Option<String>,
}

/// What the command line says about the configuration. Values are checked like those of the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides {
    pub(crate) program: Program,
    pub(crate) purpose: Purpose,
    /// Beneath all others.
    pub(crate) environment: Environment,
    pub(crate) kv: KvOverrides,
    /// The only site, instead of a file.
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
    /// Of somebody who looks at a file, for all nodes of a cluster or for one.
    pub(crate) fn to_look(program: Program, cluster_node: Option<String>) -> Self {
        let kv = KvOverrides { cluster_node, ..KvOverrides::default() };
        Self { program, purpose: Purpose::Look, kv, ..Self::default() }
    }

    /// Puts the given arguments over `tree`.
    pub(super) fn apply(&self, tree: &mut Table, problems: &mut Problems) {
        if self.program == Program::Serve {
            override_listen(tree, &self.listen, problems);
        }
        if let Some(workers) = self.workers {
            override_number(tree, "workers", "--workers", workers, problems);
        }
        if let (Some(url), Some(store)) = (&self.store, inner_table(tree, "store")) {
            override_key(store, "remote", "--store", text(url), problems);
        }
        if self.program == Program::Kv {
            self.environment.apply(tree, problems);
            self.kv.apply(kv_table(tree), problems);
        }
        if let Some(name) = &self.kv.cluster_node {
            apply_cluster_node(tree, name, problems);
        }
        if let Some(profile) = &self.profile {
            override_key(tree, "profile", "--profile", text(profile), problems);
        }
        let inner = [
            ("admin", "listen", "--admin", &self.admin),
            ("store", "memory", "--memory", &self.memory),
            ("log", "level", "--log-level", &self.log_level),
            ("log", "access", "--access-log", &self.access_log),
        ];
        for (table, key, flag, value) in inner {
            if let (Some(value), Some(table)) = (value, inner_table(tree, table)) {
                override_key(table, key, flag, text(value), problems);
            }
        }
        if let Some(origin) = &self.origin {
            let site: DeTable<'_> = [("name", "default"), ("origin", origin)]
                .into_iter()
                .map(|(key, value)| (spanned(DeString::from(key)), spanned(text(value))))
                .collect();
            let sites = DeValue::Array(array(vec![spanned(DeValue::Table(site))]));
            override_key(tree, "site", "--origin", sites, problems);
        }
    }
}

impl KvOverrides {
    fn apply(&self, kv: &mut Table, problems: &mut Problems) {
        override_listen(kv, &self.listen, problems);
        let texts = [
            ("maxmemory", "--maxmemory", &self.maxmemory),
            ("maxmemory_policy", "--maxmemory-policy", &self.maxmemory_policy),
            ("save_file", "--save-file", &self.save_file),
        ];
        for (key, flag, value) in texts {
            if let Some(value) = value {
                override_key(kv, key, flag, text(value), problems);
            }
        }
        if let Some(workers) = self.workers {
            override_number(kv, "workers", "--workers", workers, problems);
        }
    }
}

fn apply_cluster_node(tree: &mut Table, name: &str, problems: &mut Problems) {
    match inner_table(tree, "kv").and_then(|kv| inner_table(kv, "cluster")) {
        Some(cluster) => override_key(cluster, "node", "--cluster-node", text(name), problems),
        None => problems.error(&Place::Flag("--cluster-node"), "kv.cluster", "the file has no such table"),
    }
}

fn override_listen(table: &mut Table, listen: &[String], problems: &mut Problems) {
    if !listen.is_empty() {
        let addresses: Vec<_> = listen.iter().map(|address| spanned(text(address))).collect();
        override_key(table, "listen", "--listen", DeValue::Array(array(addresses)), problems);
    }
}
