//! Origins, stores, gateways and kv servers that Prometheus watches, and clients that keep them busy.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use testkit::{
    Authority, FaultProxy, Identity, KvService, KvSetup, Larder, Port, Redis, RespProxy, ScriptedOrigin,
    Setup, wait,
};

use super::load::{self, Gateway};
use super::prometheus::Prometheus;
use crate::LARDER;
use crate::admin::collector::Collector;
use crate::admin::operator::start;
use crate::admin::steady_clients::Repeated;

pub(crate) const PASSWORD: &[u8] = b"open-sesame";
/// Connections to a gateway, as `gateway.toml` says.
pub(crate) const CONNECTIONS_MAX: usize = 200;
/// Maximum number of clients of the kv server that is crowded later.
pub(crate) const CLIENTS_MAX: usize = 20;

pub(crate) const SOON: &str = "soon.example";
pub(crate) const NOW: &str = "now.example";

/// All servers. Those that are dropped first have clients further down.
pub(crate) struct World {
    pub(crate) origins: Origins,
    pub(crate) stores: Stores,
    pub(crate) certificates: Certificates,
    pub(crate) gateways: Vec<Larder>,
    pub(crate) places: Vec<Gateway>,
    pub(crate) kv: KvServers,
    pub(crate) prometheus: Prometheus,
    /// An instance of another region.
    _far_gateway: Larder,
    _collector: Collector,
    _load: Repeated,
}

pub(crate) struct Origins {
    pages: ScriptedOrigin,
    /// The servers of a group; the first is also an origin with a circuit breaker.
    servers: [ScriptedOrigin; 2],
    steady: ScriptedOrigin,
    /// The proxy between the origin `slow` and the steady server.
    pub(crate) slow: FaultProxy,
    news: ScriptedOrigin,
    pub(crate) are_news_cacheable: Arc<AtomicBool>,
}

pub(crate) struct Certificates(Authority);

/// The servers behind the gateways' stores, named like the stores, and the proxies to them.
pub(crate) struct Stores {
    pub(crate) default: Redis,
    /// The server behind `far` and, for the second gateway, behind `split`.
    shared: Redis,
    pub(crate) full: Redis,
    /// The proxy to `full`, which can change its clock.
    pub(crate) clock: RespProxy,
    /// A server that isn't used by a store at first.
    pub(crate) other: Redis,
    pub(crate) far: FaultProxy,
    pub(crate) split: FaultProxy,
    /// The server of another region.
    far_region: Redis,
}

pub(crate) struct KvServers {
    pub(crate) full: KvService,
    /// Has a password, and accepts few clients.
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

    /// Stops all origins that no other part of the test needs.
    pub(crate) fn stop(&mut self) {
        self.pages.stop();
        self.servers.iter_mut().for_each(ScriptedOrigin::stop);
    }
}

impl Certificates {
    /// Issues a certificate for `days` days, which replaces the file of the previous one.
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
        let [default, shared, full, other, far_region] = [(); 5].map(|()| Redis::start(""));
        let (far, split) = (FaultProxy::start(shared.address()), FaultProxy::start(shared.address()));
        let clock = RespProxy::start(full.address());
        Self { default, shared, full, clock, other, far, split, far_region }
    }
}

impl KvServers {
    fn start() -> Self {
        let password = String::from_utf8_lossy(PASSWORD);
        let (saves, evicts) = ("save_file = \"saved\"\n", "maxmemory_policy = \"noeviction\"\n");
        let limits = format!("limits = {{ clients_max = {CLIENTS_MAX} }}\nmaxmemory = \"64MiB\"\n");
        let crowded = format!("{limits}password_files = [\"password\"]\n");
        Self {
            full: KvService::start(LARDER, &format!("maxmemory = \"4MiB\"\n{evicts}{saves}")),
            crowded: KvSetup::new(LARDER).file("password", &password).start(&crowded),
            crashing: Mutex::new(KvService::start(LARDER, saves)),
        }
    }
}

impl World {
    #[track_caller]
    pub(crate) fn start() -> Self {
        let (origins, stores, _collector) = (Origins::start(), Stores::start(), Collector::start());
        let certificates = Certificates(Authority::new());
        let balanced = [Port::reserve(), Port::reserve()];
        let text = config(&origins, &stores, &_collector).replace("@certificates@", &certificates.listed());
        let split = [stores.shared.address(), stores.split.address()];
        let gateways: Vec<Larder> = (balanced.iter().zip(split))
            .map(|(balanced, split)| {
                let text = text.replace("@balanced@", &balanced.address().to_string());
                start(&text.replace("@split@", &split.to_string()))
            })
            .collect();
        let _far_gateway = other_region(&stores);
        for gateway in &gateways {
            // Two instances in each of four stores.
            gateway.wait_for("larder_tier_instances", &[], |known| known == 8.0);
        }
        wait::until_true("the regions are one", || {
            let answer = gateways[0].ask_admin("POST", "/purge?site=split", "");
            answer.text().contains("\"complete\":true")
        });
        let places = gateways.iter().zip(&balanced).map(|(gateway, balanced)| {
            let [clients, admin] = [gateway.address(), gateway.admin()];
            Gateway { clients, for_balancer: balanced.address(), admin }
        });
        let (places, kv): (Vec<_>, _) = (places.collect(), KvServers::start());
        let _load = load::start(&places, kv.full.address());
        let crashing = kv.crashing.lock().expect("no thread has it").admin();
        let targets = [
            places.iter().map(|place| place.admin).collect(),
            vec![kv.full.admin(), kv.crowded.admin(), crashing],
        ];
        let prometheus = Prometheus::start(&targets);
        Self {
            origins,
            stores,
            certificates,
            gateways,
            places,
            kv,
            prometheus,
            _far_gateway,
            _collector,
            _load,
        }
    }
}

/// Starts an instance of the region that is the peer of `gateway.toml`.
fn other_region(stores: &Stores) -> Larder {
    let (own, peer) = (stores.far_region.address(), stores.default.address());
    let site = "[[site]]\nname = \"default\"\norigin = \"http://127.0.0.1:9\"\n";
    let region =
        format!("[region]\nname = \"us\"\npeers = [{{ name = \"eu\", url = \"redis://{peer}/0\" }}]\n");
    let config = format!("{site}{region}[store.remote]\nurl = \"redis://{own}/0\"\n");
    Setup::config(LARDER, &config).start()
}

fn config(origins: &Origins, stores: &Stores, collector: &Collector) -> String {
    let [first, second] = &origins.servers;
    let addresses = [
        ("@redis@", stores.default.address().to_string()),
        ("@far@", stores.far.address().to_string()),
        ("@peer@", stores.far_region.address().to_string()),
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
