//! Everything that is watched, and clients that keep it busy.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use testkit::{
    Authority, FaultProxy, Identity, KvService, KvSetup, Larder, Port, Redis, RespProxy, ScriptedOrigin,
    Setup, wait,
};

use super::load::{self, Gateway, Load};
use super::prometheus::{Prometheus, Targets};
use crate::LARDER;
use crate::admin::collector::Collector;

/// Of the kv server that has one.
pub(crate) const PASSWORD: &[u8] = b"open-sesame";
/// Connections to a gateway, as `gateway.toml` says.
pub(crate) const CONNECTIONS_MAX: usize = 200;
/// Clients of the kv server that is crowded later on.
pub(crate) const CLIENTS_MAX: usize = 20;

/// Hosts of which each has a certificate.
pub(crate) const SOON: &str = "soon.example";
pub(crate) const NOW: &str = "now.example";

/// What is dropped first has clients further down.
pub(crate) struct World {
    pub(crate) origins: Origins,
    pub(crate) stores: Stores,
    pub(crate) certificates: Certificates,
    pub(crate) gateways: Vec<Larder>,
    pub(crate) places: Vec<Gateway>,
    pub(crate) kv: KvServers,
    pub(crate) prometheus: Prometheus,
    _collector: Collector,
    _load: Load,
}

/// What the gateways forward to.
pub(crate) struct Origins {
    pages: ScriptedOrigin,
    /// Of a group; the first is an origin with a circuit breaker as well.
    servers: [ScriptedOrigin; 2],
    /// Never stops.
    steady: ScriptedOrigin,
    /// The way to the steady one that requests for the origin `slow` take.
    pub(crate) slow: FaultProxy,
    news: ScriptedOrigin,
    pub(crate) are_news_cacheable: Arc<AtomicBool>,
}

/// Those of the gateways.
pub(crate) struct Certificates(Authority);

/// The servers behind the stores of the gateways, which are called as the stores are.
pub(crate) struct Stores {
    pub(crate) default: Redis,
    /// Of `far` and `split`.
    shared: Redis,
    pub(crate) full: Redis,
    /// The way to it, on which its clock may be set.
    pub(crate) clock: RespProxy,
    /// Not yet that of a store.
    pub(crate) other: Redis,
    /// The way to the server.
    pub(crate) far: FaultProxy,
    /// The way of the second gateway to the server.
    pub(crate) split: FaultProxy,
}

pub(crate) struct KvServers {
    /// Evicts nothing.
    pub(crate) full: KvService,
    /// Has a password, and room for few clients.
    pub(crate) crowded: KvService,
    /// Locked by the thread that crashes it.
    pub(crate) crashing: Mutex<KvService>,
}

impl Origins {
    fn start() -> Self {
        let (steady, are_news_cacheable) = (load::origin(), Arc::new(AtomicBool::new(true)));
        Self {
            pages: load::origin(),
            servers: [load::origin(), load::origin()],
            slow: FaultProxy::start(steady.address()),
            steady,
            news: load::origin_of_news(&are_news_cacheable),
            are_news_cacheable,
        }
    }

    /// All but those that others need.
    pub(crate) fn stop(&mut self) {
        self.pages.stop();
        self.servers.iter_mut().for_each(ScriptedOrigin::stop);
    }
}

impl Certificates {
    /// A certificate for so many days, in the file of the one before.
    pub(crate) fn issue(&self, host: &str, days: u32) -> Identity {
        let (now, day) = (SystemTime::now(), Duration::from_secs(86_400));
        self.0.identity_for(&[host], now - day..now + day * days)
    }

    fn listed(&self) -> String {
        let one = |host| {
            let Identity { certificate, key } = self.issue(host, 90);
            format!("{{ cert = \"{}\", key = \"{}\" }}", certificate.display(), key.display())
        };
        [SOON, NOW].map(one).join(", ")
    }
}

impl Stores {
    fn start() -> Self {
        let [default, shared, full, other] = [(); 4].map(|()| Redis::start(""));
        let (far, split) = (FaultProxy::start(shared.address()), FaultProxy::start(shared.address()));
        let clock = RespProxy::start(full.address());
        Self { default, shared, full, clock, other, far, split }
    }
}

impl KvServers {
    fn start() -> Self {
        let password = String::from_utf8_lossy(PASSWORD);
        let crowded = KvSetup::new(LARDER).file("password", &password).start(&format!(
            "maxmemory = \"64MiB\"\npassword_files = [\"password\"]\nlimits = {{ clients_max = {CLIENTS_MAX} }}"
        ));
        Self {
            full: KvService::start(
                LARDER,
                "maxmemory = \"4MiB\"\nmaxmemory_policy = \"noeviction\"\nsave_file = \"saved\"",
            ),
            crowded,
            crashing: Mutex::new(KvService::start(LARDER, "save_file = \"saved\"")),
        }
    }
}

impl World {
    #[track_caller]
    pub(crate) fn start() -> Self {
        let (origins, stores, collector) = (Origins::start(), Stores::start(), Collector::start());
        let certificates = Certificates(Authority::new());
        let balanced = [Port::reserve(), Port::reserve()];
        let text = config(&origins, &stores, &collector).replace("@certificates@", &certificates.listed());
        let split = [stores.shared.address(), stores.split.address()];
        let gateways: Vec<Larder> = (balanced.iter().zip(split))
            .map(|(balanced, split)| {
                let text = text.replace("@balanced@", &balanced.address().to_string());
                Setup::config(LARDER, &text.replace("@split@", &split.to_string())).start()
            })
            .collect();
        for gateway in &gateways {
            // Two in each of four stores.
            wait::until_true("they know each other", || gateway.metric("larder_tier_instances", &[]) == 8.0);
        }
        let places: Vec<_> = gateways
            .iter()
            .zip(&balanced)
            .map(|(gateway, balanced)| Gateway {
                clients: gateway.address(),
                of_balancer: balanced.address(),
                admin: gateway.admin(),
            })
            .collect();
        let kv = KvServers::start();
        let load = Load::start(&places, kv.full.address());
        let targets = Targets {
            gateways: places.iter().map(|place| place.admin).collect(),
            kv: vec![
                kv.full.admin(),
                kv.crowded.admin(),
                kv.crashing.lock().expect("no thread has it").admin(),
            ],
        };
        let prometheus = Prometheus::start(&targets);
        Self {
            origins,
            stores,
            certificates,
            gateways,
            places,
            kv,
            prometheus,
            _collector: collector,
            _load: load,
        }
    }
}

fn config(origins: &Origins, stores: &Stores, collector: &Collector) -> String {
    let [first, second] = &origins.servers;
    let addresses = [
        ("@redis@", stores.default.address().to_string()),
        ("@far@", stores.far.address().to_string()),
        ("@full@", stores.clock.address().to_string()),
        ("@collector@", collector.url()),
        ("@pages@", origins.pages.url()),
        ("@first@", first.url()),
        ("@second@", second.url()),
        ("@slow@", origins.slow.url()),
        ("@steady@", origins.steady.url()),
        ("@news@", origins.news.url()),
        ("@connections@", CONNECTIONS_MAX.to_string()),
    ];
    let text = include_str!("gateway.toml").to_owned();
    addresses.iter().fold(text, |text, (name, value)| text.replace(name, value))
}
