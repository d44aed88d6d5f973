//! A fault for each alert, caused from outside.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use testkit::{Client, Faults, KvService, Redis, RespClient, run, wait};

use super::prometheus::Labels;
use super::world::{CLIENTS_MAX, CONNECTIONS_MAX, NOW, PASSWORD, SOON, World};

/// An alert; a label and its value that identify the fault, where the value is empty if the alert has no such label; and the fault.
pub(crate) type Fault = (&'static str, (&'static str, &'static str), &'static str);

fn is_silent((alert, means, _): &Fault, fired: &BTreeSet<Labels>) -> bool {
    let has =
        |labels: &Labels, (name, value): (&str, &str)| labels.get(name).map_or("", String::as_str) == value;
    !fired.iter().any(|labels| has(labels, ("alertname", alert)) && has(labels, *means))
}

/// All alerts of `deploy/`. The fault of the last one would hide others, so it is caused after those have fired.
pub(crate) const FAULTS: [Fault; 38] = [
    ("LarderRestarts", KV, "a kv server is killed again and again"),
    ("LarderFileDescriptors", KV, "a server may open few more files than it has clients"),
    ("LarderReloadRefused", GATEWAY, "a reload finds a mistake in the file"),
    ("LarderLogDropped", GATEWAY, "no file may grow any more, including standard error's"),
    ("LarderErrors", SHOP, "its origin is gone"),
    ("LarderSlow", ("site", "slow"), "its origin has a high latency"),
    ("LarderHitRatioFell", ("site", "news"), "its origin begins to send `no-store`"),
    ("LarderOriginFailing", ("origin", "pages"), "it is gone"),
    ("LarderOriginSlow", ("origin", "slow"), "it has a high latency"),
    ("LarderOriginQueue", ("origin", "slow"), "it gets more slow requests than it has places"),
    ("LarderOriginServerOut", ("origin", "group"), "both of its servers are gone"),
    ("LarderOriginServersOut", ("origin", "group"), "both of its servers are gone"),
    ("LarderOriginBreakerOpen", ("origin", "guarded"), "it is gone"),
    ("LarderOriginRetriesOverBudget", ("origin", "group"), "its servers are gone; no retry is allowed"),
    ("LarderRateLimited", SHOP, "a client sends too many requests"),
    ("LarderMissBudget", ("rule", "budget"), "a client requests URLs that aren't stored"),
    ("LarderStoreAway", DEFAULT_STORE, "its server is killed"),
    ("LarderStoreBreaker", ("store", "far"), "the latency of its server is low and high in turn"),
    ("LarderStoreWritesLost", ("store", "full"), "its server has no memory left"),
    ("LarderStoreUnusable", ("reason", "corrupt"), "another program writes to the keys of `full`"),
    ("LarderStoreClock", ("store", "full"), "the clock of its server is an hour ahead"),
    ("LarderFleetSplit", ("store", "split"), "one of two instances uses a different server"),
    ("LarderPurgePartial", GATEWAY, "the server of a store is gone during a purge"),
    ("LarderRegionBehind", ("peer", "us"), "the server of the own store is killed"),
    ("LarderStoreTooSmall", ("store", "small"), "a client requests more than fits into it"),
    ("LarderCertificateExpiresSoon", ("host", SOON), "a certificate is replaced by one with a week left"),
    ("LarderCertificateExpires", ("host", NOW), "a certificate is replaced by one with a day left"),
    ("LarderConnections", GATEWAY, "clients keep their connections open"),
    ("LarderAccessLogDropped", GATEWAY, "no file may grow any more, including the access log"),
    ("LarderKvNoRoom", KV, "clients set more than there is room for, and nothing is evicted"),
    ("LarderKvTooSmall", KV, "clients set more than there is room for"),
    ("LarderKvSlow", ("command", "mset"), "a client sets hundreds of thousands of keys at once"),
    ("LarderKvConnections", KV, "clients keep their connections open"),
    ("LarderKvRefusedConnections", KV, "clients connect when no place is left"),
    ("LarderKvPasswords", KV, "a client has an old password"),
    ("LarderKvSaveFailed", KV, "a folder has the name of the file"),
    ("LarderKvSaveRefused", KV, "the file is damaged when the server starts"),
    ("LarderDown", GATEWAY, "a gateway is killed"),
];

const DEFAULT_STORE: (&str, &str) = ("store", "");
const GATEWAY: (&str, &str) = ("job", "larder-gateway");
const KV: (&str, &str) = ("job", "larder-kv");
const SHOP: (&str, &str) = ("site", "shop");

pub(crate) struct Trouble<'a> {
    world: &'a mut World,
    _connections: Vec<Client>,
    /// As many clients as the crowded kv server accepts.
    clients: Vec<RespClient>,
    round: usize,
    begun: Instant,
}

/// Time within which each alert must fire: some need several passes within their window, and on a busy machine a pass takes
/// seconds.
const PATIENCE: Duration = Duration::from_secs(240);
/// Time after which the origin of the news begins to send `no-store` again.
const NEWS_PERIOD_SECONDS: u64 = 90;
/// Pause between checks whether Prometheus has seen a server.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

impl<'a> Trouble<'a> {
    /// Causes all faults but the last. [`Trouble::fires`] repeats temporary ones.
    #[track_caller]
    pub(crate) fn make(world: &'a mut World) -> Self {
        renew_late(world);
        world.gateways[0].write_config("site = 1");
        let process = world.gateways[1].service().id().to_string();
        run("prlimit", ["--pid", &process, "--fsize=0"]).succeeded();
        world.origins.are_news_cacheable.store(false, Ordering::Relaxed);
        // Together with the time for answers, this is more than five seconds.
        world.origins.slow.set(Faults { latency_ms: 2750, ..Faults::default() });
        world.origins.stop();
        break_stores(world);
        fs::create_dir(world.kv.full.folder().join("saved")).expect("a folder where a file should be");
        world.kv.full.ask("BGSAVE\r\n");
        // Short-lived clients need some connections too.
        let count = CONNECTIONS_MAX * 93 / 100;
        let mut connections: Vec<_> = (0..count).map(|_| world.gateways[0].client()).collect();
        // Connections that have had no request are closed early.
        connections.iter_mut().for_each(|client| drop(client.get("/none")));
        let clients = crowd(&world.kv.crowded);
        Self { world, _connections: connections, clients, round: 0, begun: Instant::now() }
    }

    /// Repeats temporary faults, and waits until each of these alerts has fired.
    #[track_caller]
    pub(crate) fn fires(&mut self, faults: &[Fault]) {
        let Self { world, clients, round, begun, .. } = self;
        let world: &World = world;
        let over = AtomicBool::new(false);
        let fired = thread::scope(|scope| {
            // In its own thread, so that the server crashes often enough regardless of the other faults.
            scope.spawn(|| crash_again(world, &over));
            let _until_here = Ends(&over);
            until_all_fired(world, faults, || {
                *round += 1;
                // The average of the hit ratio forgets the time before the fault.
                let is_over = begun.elapsed().as_secs() % NEWS_PERIOD_SECONDS >= NEWS_PERIOD_SECONDS / 3;
                world.origins.are_news_cacheable.store(is_over, Ordering::Relaxed);
                pass(world, &mut clients[0], *round);
            })
        });
        let silent = faults.iter().filter(|fault| is_silent(fault, &fired));
        let silent: Vec<_> = silent.map(|(alert, _, fault)| format!("{alert}: {fault}")).collect();
        assert!(silent.is_empty(), "silent: {silent:#?}; fired: {fired:#?}");
    }

    /// Checks that the alert also fires for instances that use two servers permanently, although their views agree again.
    #[track_caller]
    pub(crate) fn halves_are_told(&self) {
        let prometheus = &self.world.prometheus;
        let seen = "larder_tier_instances{store=\"split\"}";
        wait::until_true("each sees itself alone", || prometheus.values(seen) == [1.0, 1.0]);
        let rule = prometheus.rules().into_iter().find(|rule| rule.name == "LarderFleetSplit");
        let query = rule.expect("the rule").query;
        assert_eq!(prometheus.series(&format!("({query}) and on (store) count by (store) ({seen})")), 1);
    }

    pub(crate) fn make_last(&mut self) {
        drop(self.world.gateways.pop());
    }
}

fn renew_late(world: &World) {
    for (host, days) in [(SOON, 7), (NOW, 1)] {
        world.certificates.issue(host, days);
    }
    assert_eq!(world.gateways[0].ask_admin("POST", "/reload", "").status(), 200);
}

fn break_stores(world: &mut World) {
    world.stores.default.kill();
    scribble(&world.stores.full);
    assert_eq!(world.stores.full.command("CONFIG SET maxmemory 1"), "+OK");
    world.stores.clock.decide(crate::fleet::sharing::clock_ahead(3600));
    world.stores.split.aim(world.stores.other.address());
    world.stores.split.close_connections();
}

fn scribble(server: &Redis) {
    let script =
        "for _, key in ipairs(redis.call('KEYS', 'larder:[rm]:*')) do redis.call('SET', key, 'x') end";
    assert_eq!(server.command(&format!("EVAL \"{script}\" 0")), "$-1");
}

/// Takes all places for clients, and limits the server's open files to a few more than it has.
fn crowd(server: &KvService) -> Vec<RespClient> {
    let mut clients: Vec<_> = (0..CLIENTS_MAX).map(|_| RespClient::connect(server.address())).collect();
    for client in &mut clients {
        assert_eq!(client.ask(&[b"AUTH", PASSWORD]), b"+OK\r\n");
    }
    let open = server.metric("process_open_fds").expect("it is there");
    let limit = format!("--nofile={}:", (open / 0.85).floor());
    run("prlimit", ["--pid", &server.service.id().to_string(), &limit]).succeeded();
    clients
}

/// Ends a thread when dropped, even if an assertion fails meanwhile.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Repeats faults and collects the alerts that fire, until all have fired or the time is over.
fn until_all_fired(world: &World, faults: &[Fault], mut make: impl FnMut()) -> BTreeSet<Labels> {
    let (mut fired, end) = (BTreeSet::new(), Instant::now() + PATIENCE);
    while Instant::now() < end && faults.iter().any(|fault| is_silent(fault, &fired)) {
        make();
        fired.extend(world.prometheus.firing());
    }
    fired
}

fn pass(world: &World, client: &mut RespClient, round: usize) {
    strain_gateway(world, round);
    move_store(world);
    for key in ["a", "b", "c"] {
        world.kv.full.ask(&format!("SETRANGE {key} 1500000 x\r\n"));
    }
    strain_kv(&world.kv.crowded, client, round);
}

fn strain_gateway(world: &World, round: usize) {
    let (gateway, place) = (&world.gateways[0], world.places[0]);
    for (target, status) in [("/reload", 422), ("/purge?site=shop", 200)] {
        let answer = gateway.ask_admin("POST", target, "");
        assert_eq!(answer.status(), status, "{target}: {}", answer.text());
    }
    let mut client = gateway.client();
    for target in ["/limited", "/budget/cold"].repeat(100) {
        client.get(target);
    }
    for number in 0..5 {
        place.ask_host("small", "GET", &format!("/large/{round}-{number}"), "");
    }
}

/// Makes the round trip longer than `record_timeout` until the breaker has opened. A permanent delay would cut the instances
/// off from purges and make the store unreachable.
fn move_store(world: &World) {
    let is_closed = world.gateways[0].metric("larder_tier_breaker", &["far", "closed"]) == 1.0;
    let latency_ms = if is_closed { 700 } else { 0 };
    world.stores.far.set(Faults { latency_ms, ..Faults::default() });
}

fn strain_kv(server: &KvService, client: &mut RespClient, round: usize) {
    // Some of these writes may be refused if eviction is slow on a busy machine.
    let pairs = [&b"key"[..], b"value"].repeat(150_000);
    client.ask(&[&[&b"MSET"[..]], &pairs[..]].concat());
    for part in 0..5 {
        let key = format!("key-{round}-{part}");
        client.ask(&[b"SETRANGE", key.as_bytes(), b"4999999", b"x"]);
        (0..5).for_each(|_| drop(client.ask(&[b"AUTH", b"password"])));
        // The server refuses and closes the connection.
        drop(TcpStream::connect(server.address()));
    }
}

/// Truncates the server's file and kills the server each time Prometheus has seen its new process.
fn crash_again(world: &World, over: &AtomicBool) {
    let mut server = world.kv.crashing.lock().expect("no other thread has it");
    let query = format!("process_start_time_seconds{{instance=\"{}\"}}", server.admin());
    let mut begun = 0.0;
    while !over.load(Ordering::Relaxed) {
        let seen = world.prometheus.values(&query).first().copied();
        let Some(seen) = seen.filter(|seen| *seen > begun) else {
            thread::park_timeout(LOOK_AGAIN);
            continue;
        };
        begun = seen;
        assert_eq!(server.ask("SET key value\r\nSAVE\r\n"), "+OK\r\n+OK\r\n");
        let saved = fs::File::options().write(true).open(server.folder().join("saved"));
        saved.and_then(|file| file.set_len(file.metadata()?.len() - 1)).expect("it is there");
        server.crash();
    }
}
