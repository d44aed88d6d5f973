//! The Redis-compatible server: command line and start.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use engine::Engine;
use kv::{Control, Measures, SaveFile, Server, TextProtocol};
use terminal::quantity::whole_number;

use crate::config::{Environment, KvOverrides, KvSettings, Overrides, Program, WORKERS};
use crate::default_file::{self, FileArguments};
use crate::doctor;
use crate::lifecycle;

/// Run a Redis-compatible cache server
///
/// Keeps strings in memory up to `maxmemory`, and evicts the least useful keys when memory is full. Speaks RESP2 and RESP3. Prints its
/// address, and runs until SIGTERM or Ctrl-C. Options override the file. It can contain the tables of `larder serve` too. Without FILE, reads
/// /etc/larder/kv.toml or, without that, /etc/larder/larder.toml, if it exists.
///
/// Examples:
///
///   larder kv
///
///   larder kv --listen 0.0.0.0:6379 --maxmemory 4GiB --workers 4
///
///   larder kv larder.toml
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct KvArguments {
    #[command(flatten)]
    configuration: FileArguments,

    /// Address to listen on for clients; repeatable or comma-separated; port 0 picks a free one [default: 127.0.0.1:6379]
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    listen: Vec<String>,

    /// Memory for keys and values, such as 512MiB; at least 2MiB [default: 1GiB]
    #[arg(long, value_name = "SIZE")]
    maxmemory: Option<String>,

    /// Eviction policy when memory is full: noeviction, allkeys-s3fifo, allkeys-lru, allkeys-lfu, allkeys-random, volatile-lru,
    /// volatile-lfu, volatile-random or volatile-ttl [default: allkeys-s3fifo]
    #[arg(long, value_name = "POLICY")]
    maxmemory_policy: Option<String>,

    /// File to save the data set to on shutdown and load it from on startup, or `off` [default: that of the configuration file, else off]
    #[arg(long, value_name = "PATH")]
    save_file: Option<String>,

    /// RDB file of Redis or Valkey whose strings are loaded before clients are served; other data is counted and skipped
    #[arg(long, value_name = "PATH")]
    import: Option<PathBuf>,

    /// Worker threads [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = whole_number(WORKERS))]
    workers: Option<u32>,

    /// Name of this server among the nodes of [kv.cluster]
    #[arg(long, value_name = "NAME")]
    cluster_node: Option<String>,

    /// Address of the admin API: probes, metrics and reload [default: none, unless the file has [admin]]
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<String>,

    /// Log level: error, warn, info or debug [default: info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,

    /// Also read the environment variables of this program, to be a drop-in replacement for it
    #[arg(long, value_name = "PROGRAM", value_enum)]
    environment: Option<Predecessor>,
}

/// The program that this server replaces.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Predecessor {
    #[value(name = "poor-man-s-cache")]
    PoorMansCache,
}

impl KvArguments {
    /// Returns the configuration file, if there is one.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        self.configuration.or_default(default_file::OF_KV)
    }

    /// Returns the settings that override the file.
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides {
            program: Program::Kv,
            environment: match self.environment {
                // These variables are read only on request: their names are common, and other programs set them too.
                Some(Predecessor::PoorMansCache) => Environment::read(|name| std::env::var_os(name)),
                None => Environment::default(),
            },
            kv: KvOverrides {
                listen: self.listen.clone(),
                maxmemory: self.maxmemory.clone(),
                maxmemory_policy: self.maxmemory_policy.clone(),
                save_file: self.save_file.clone(),
                workers: self.workers,
                cluster_node: self.cluster_node.clone(),
                import: self.import.clone(),
            },
            admin: self.admin.clone(),
            log_level: self.log_level.clone(),
            ..Overrides::default()
        }
    }
}

/// The running server, for changes to its settings.
#[derive(Clone, Debug)]
pub(crate) struct KvControl {
    engine: Arc<Engine>,
    server: Control,
    text: TextProtocol,
}

impl KvControl {
    /// Applies the settings that can change at run time. The check of the configuration has already reverted the other settings.
    pub(crate) fn apply(&self, settings: &KvSettings) {
        self.engine.set_bytes_max(settings.bytes_max);
        self.engine.set_policy(settings.policy);
        self.engine.set_lifetimes(settings.lifetimes);
        self.engine.set_pack_from_bytes(settings.pack_from_bytes);
        self.server.set_access(settings.access.clone());
        self.server.set_limits(settings.limits);
        if let Some(tls) = &settings.tls {
            self.server.set_tls(Arc::clone(tls));
        }
    }

    /// Returns whether a client has requested a shutdown.
    pub(crate) fn is_ending(&self) -> bool {
        self.server.is_ending()
    }

    /// Returns the counters of the server.
    pub(crate) fn measures(&self) -> Measures {
        self.server.measures()
    }

    /// Returns whether clients use the 0x1F protocol.
    pub(crate) fn speaks_text(&self) -> bool {
        self.text == TextProtocol::UnitSeparator
    }

    /// Returns the engine with the stored keys.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }
}

/// Starts the workers. `inherited` contains the inherited sockets of each address.
pub(crate) fn start(
    settings: &KvSettings,
    import: Option<&Path>,
    inherited: Vec<Vec<TcpListener>>,
) -> anyhow::Result<(Server, KvControl)> {
    doctor::warn(settings);
    let begin = engine::Settings {
        bytes_max: settings.bytes_max,
        policy: settings.policy,
        seed: seed(),
        threads: settings.workers,
    };
    let save_file = settings.save_file.as_deref().map(SaveFile::reserve).transpose()?.map(Arc::new);
    let engine = match &save_file {
        Some(file) => file.restore(&begin)?,
        None => Engine::new(&begin),
    };
    engine.set_pack_from_bytes(settings.pack_from_bytes);
    engine.set_lifetimes(settings.lifetimes);
    if let Some(path) = import {
        let imported = kv::import(path, &engine, save_file.as_deref(), settings.cluster.as_ref());
        let imported = imported.with_context(|| format!("{} can't be imported", path.display()))?;
        tracing::info!(path = %path.display(), "imported {imported}");
    }
    let engine = Arc::new(engine);
    let start = kv::Settings {
        listen: settings.listen.clone(),
        unix: settings.unix.clone(),
        inherited,
        workers: settings.workers,
        version: terminal::version::VERSION.to_owned(),
        access: settings.access.clone(),
        limits: settings.limits,
        text: settings.text,
        sockets: settings.sockets,
        tls: settings.tls.clone(),
        save_file,
        cluster: settings.cluster.clone(),
        trim: crate::allocator::TRIM,
        on_failure: lifecycle::end_process,
        on_shutdown: lifecycle::stop_process,
    };
    let server = Server::start(start, Arc::clone(&engine)).context("kv")?;
    let control = KvControl { engine, server: server.control(), text: settings.text };
    Ok((server, control))
}

/// Returns a random number from the standard library's hash map keys, which come from the system once per thread.
fn seed() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(())
}
