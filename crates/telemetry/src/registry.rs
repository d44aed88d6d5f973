//! The registry: names of sites and origins, one shard per worker, providers, and scrapes.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, RwLock};

use crate::declarations::{METRICS, Metric, MetricType};
use crate::exposition::Sample;
use crate::labels::{AdminRefusal, ConnectionKind, OriginId, RuleId, SiteId, TlsFailure};
use crate::names::NumberedNames;
use crate::process;
use crate::recorder::{self, Shard, WorkerRecorder};
use crate::tables::{Names, Tables};

/// The running build: labels of `larder_build_info`.
#[derive(Debug, Clone, Copy)]
pub struct BuildInfo {
    /// Version of Larder.
    pub version: &'static str,
    /// The commit it was built from.
    pub commit: &'static str,
    /// Version of the compiler.
    pub rustc: &'static str,
}

/// All metrics of the process.
pub struct Telemetry {
    /// One shard per worker, and one for background work.
    shards: Vec<Arc<Shard>>,
    totals: Mutex<Totals>,
    sites: RwLock<NumberedNames>,
    rules: RwLock<NumberedNames>,
    origins: RwLock<NumberedNames>,
    providers: RwLock<Vec<Provider>>,
    strangers: RwLock<Vec<Stranger>>,
    build: Option<BuildInfo>,
    start_time_seconds: f64,
}

type Provider = Box<dyn Fn(&mut Sample) + Send + Sync>;
type Stranger = Box<dyn Fn(&mut String, Duration) + Send + Sync>;

struct Totals {
    sum: Tables,
    /// Empty tables that each shard swaps for its full ones in a scrape, so that tables are reused instead of
    /// allocated.
    spare: Box<Tables>,
}

impl Telemetry {
    /// Returns a registry for `workers` workers, without build information.
    pub fn new(workers: usize) -> Arc<Self> {
        Arc::new(Self::assemble(workers, None))
    }

    /// Returns a registry that also reports `larder_build_info`.
    pub fn with_build(workers: usize, build: BuildInfo) -> Arc<Self> {
        Arc::new(Self::assemble(workers, Some(build)))
    }

    fn assemble(workers: usize, build: Option<BuildInfo>) -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            shards: (0..=workers).map(|_| Arc::default()).collect(),
            totals: Mutex::new(Totals { sum: Tables::default(), spare: Box::default() }),
            sites: RwLock::default(),
            rules: RwLock::default(),
            origins: RwLock::default(),
            providers: RwLock::default(),
            strangers: RwLock::default(),
            build,
            start_time_seconds: since_epoch.as_secs_f64(),
        }
    }

    /// Returns the recorder of worker `index`, counted from 0. Indices beyond the number of workers share the
    /// recorder of background work.
    pub fn worker(&self, index: usize) -> WorkerRecorder {
        let index = index.min(self.shards.len() - 1);
        WorkerRecorder::new(Arc::clone(&self.shards[index]))
    }

    /// Returns the recorder of background work: purges, reloads, background fetches.
    pub fn background(&self) -> WorkerRecorder {
        self.worker(self.shards.len() - 1)
    }

    /// Returns the number of a site. The same name gets the same number, so that counters survive a reload;
    /// [`SiteId::NONE`] if 65,535 names are registered.
    pub fn register_site(&self, name: &str) -> SiteId {
        SiteId(self.sites.write().number(name))
    }

    /// Returns the number of a rule's name, as [`register_site`](Self::register_site) does.
    pub fn register_rule(&self, name: &str) -> RuleId {
        RuleId(self.rules.write().number(name))
    }

    /// Returns the number of an origin, as [`register_site`](Self::register_site) does.
    pub fn register_origin(&self, name: &str) -> OriginId {
        OriginId(self.origins.write().number(name))
    }

    /// Returns the name of a registered site.
    pub fn site_name(&self, site: SiteId) -> String {
        self.sites.read().all()[usize::from(site.0)].clone()
    }

    /// Returns the build information, if set.
    pub fn build(&self) -> Option<BuildInfo> {
        self.build
    }

    /// Adds a provider of values from other parts (the store, pools of origin connections). It is called at
    /// every scrape, on the scraping thread, and must be quick.
    pub fn collect_from(&self, provider: Box<dyn Fn(&mut Sample) + Send + Sync>) {
        self.providers.write().push(provider);
    }

    /// Returns all metrics in the Prometheus text format, see [`CONTENT_TYPE`](crate::CONTENT_TYPE).
    pub fn exposition(&self) -> String {
        let begin = Instant::now();
        let mut text = self.sample().encode();
        for stranger in self.strangers.read().iter() {
            stranger(&mut text, begin.elapsed());
        }
        text
    }

    /// Adds a function that appends metrics under the names of another program, for dashboards of that
    /// program. The function gets the text so far and the time taken to produce it.
    pub fn append_from(&self, stranger: impl Fn(&mut String, Duration) + Send + Sync + 'static) {
        self.strangers.write().push(Box::new(stranger));
    }

    /// Returns the values of a scrape.
    pub fn sample(&self) -> Sample {
        let mut sample = Sample::default();
        self.collect_totals(&mut sample);
        if self.has_gateway() {
            self.collect_zeros(&mut sample);
            for outcome in ["took-over", "failed"] {
                sample.add(Metric::UpgradesTotal, &[outcome], 0);
            }
            for (metric, label, value) in recorder::gauges(&self.shards) {
                sample.add(metric, label.as_slice(), value);
            }
            self.collect_workers(&mut sample);
        }
        for outcome in ["applied", "refused"] {
            sample.add(Metric::ReloadsTotal, &[outcome], 0);
        }
        for refusal in AdminRefusal::ALL {
            sample.add(Metric::AdminRefusedTotal, &[refusal.as_str()], 0);
        }
        sample.add(Metric::ProcessStartTimeSeconds, &[], self.start_time_seconds);
        if let Some(build) = self.build {
            sample.add(Metric::BuildInfo, &[build.version, build.commit, build.rustc], 1);
        }
        process::collect(&mut sample);
        for provider in self.providers.read().iter() {
            provider(&mut sample);
        }
        sample
    }

    /// Returns whether there are workers in addition to the background shard.
    fn has_gateway(&self) -> bool {
        self.shards.len() > 1
    }

    /// Adds counters that are exposed before their first event, so that `rate()` doesn't miss that event. The
    /// Redis-compatible server, if it runs, adds its own.
    fn collect_zeros(&self, sample: &mut Sample) {
        // The unnamed store always exists.
        let is_plain = |row: &&crate::Declaration| {
            row.labels.iter().all(|label| *label == "store") && row.metric_type == MetricType::Counter
        };
        for row in METRICS.iter().filter(is_plain).filter(|row| row.is_of_gateway()) {
            sample.add(row.metric, &vec![""; row.labels.len()], 0);
        }
        for kind in ConnectionKind::ALL {
            sample.add(Metric::ConnectionsTotal, &[kind.as_str()], 0);
        }
        for failure in TlsFailure::ALL {
            sample.add(Metric::TlsHandshakesFailedTotal, &[failure.as_str()], 0);
        }
        for reason in ["purge-token-missing", "purge-token-wrong", "purge-invalid"] {
            sample.add(Metric::PurgesRefusedTotal, &[reason], 0);
        }
        for reach in ["complete", "partial"] {
            sample.add(Metric::PurgeReachTotal, &[reach], 0);
        }
    }

    /// The last shard is for background work and has no connections.
    fn collect_workers(&self, sample: &mut Sample) {
        for (index, shard) in self.shards[..self.shards.len() - 1].iter().enumerate() {
            let connections = recorder::connections(shard);
            sample.add(Metric::WorkerConnections, &[&index.to_string()], connections);
        }
    }

    fn collect_totals(&self, sample: &mut Sample) {
        let mut totals = self.totals.lock();
        let Totals { sum, spare } = &mut *totals;
        for shard in &self.shards {
            shard.exchange(spare);
            sum.merge(spare);
            spare.clear();
        }
        let (sites, rules, origins) = (self.sites.read(), self.rules.read(), self.origins.read());
        let names = Names { sites: sites.all(), rules: rules.all(), origins: origins.all() };
        sum.collect(&names, sample);
    }
}
