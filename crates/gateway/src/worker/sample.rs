//! Workers for tests.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use arc_swap::ArcSwap;
use caching::CacheName;
use fleet::StartTier;
use origin::Upstreams;
use telemetry::{AccessFormat, AccessLog, AccessLogOptions, AccessTarget, Redaction, Telemetry, Warnings};
use tokio::runtime::Handle;

use super::{Drain, Shared, Worker};
use crate::active::ActiveConfig;
use crate::compression::Compressor;
use crate::config::{ClientLimits, Site, sample};
use crate::connection_table::ConnectionTable;
use crate::rewrite::Instance;
use crate::routing::{LiveSite, Routes};
use crate::stores::Stores;

/// Creates the worker of a gateway with this site only.
pub(crate) fn of_site(site: Site, limits: ClientLimits, tier: Option<StartTier>) -> Arc<Worker> {
    let telemetry = Telemetry::new(1);
    let upstreams = Arc::new(Upstreams::new(Handle::current()));
    let site = Arc::new(site);
    let live_site = LiveSite::new(&site, upstreams.upstream(&site.origin), &telemetry);
    let live = ActiveConfig {
        config: sample::config(site, limits),
        routes: Routes::new(vec![Arc::new(live_site)]),
        cache_name: CacheName::new("larder").unwrap(),
        has_timelines: false,
        tls: Vec::new(),
    };
    let recorder = telemetry.worker(0);
    let shared = Shared {
        stores: Stores::new(&live.config, vec![tier]),
        live: ArcSwap::from_pointee(live),
        upstreams,
        telemetry,
        connections: AtomicUsize::new(0),
        instance: Instance::new(),
        doorway: ConnectionTable::new(1),
        unproxied: Warnings::default(),
        drain: Drain::default(),
        compressor: Compressor::new(Handle::current(), 1),
        spans: None,
        explain_jobs: tokio::sync::mpsc::channel(1).0,
    };
    let log = AccessLogOptions {
        target: AccessTarget::Off,
        format: AccessFormat::Json,
        queue_lines_max: 1,
        redaction: Redaction::default(),
        workers: 1,
    };
    let access = AccessLog::open(log).unwrap().worker(0);
    Arc::new(Worker::new(Arc::new(shared), 0, recorder, access))
}
