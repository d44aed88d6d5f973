//! Purges in a fleet of which one clock is 30 s ahead: no request gets a response that was purged before the request began.
//!
//! The origin numbers its responses. A purge notes the latest number before it begins; once it is complete, every gateway has to bring a
//! later one.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use testkit::{Client, Larder, Random, Redis, ScriptedOrigin, Setup, wait};

use crate::LARDER;

const FOLDERS: usize = 4;
const PAGES: usize = 4 * FOLDERS;
const CLIENTS: usize = 4;
const PURGERS: usize = 2;
/// Leaves time for hits between two purges.
const PURGE_PACE: Duration = Duration::from_millis(50);
/// Half the pages of a run are hits on a machine with two busy cores.
const HITS_MIN: f64 = 0.5;

/// All that the threads share.
struct Scene {
    gateways: Vec<Larder>,
    _origin: ScriptedOrigin,
    version: Arc<AtomicU64>,
    /// The lowest version of each page that a request may bring which begins now.
    lowest: [AtomicU64; PAGES],
    is_over: AtomicBool,
    requests: AtomicU64,
    hits: AtomicU64,
    purges: AtomicU64,
}

/// Purges and asks for a while.
pub(crate) fn run(duration: Duration) {
    let redis = Redis::start("");
    let scene = &Scene::start(&redis);
    let end = Instant::now() + duration;
    thread::scope(|scope| {
        (0..CLIENTS).for_each(|number| _ = scope.spawn(move || scene.ask(number as u64)));
        (0..PURGERS).for_each(|number| _ = scope.spawn(move || scene.purge(100 + number as u64)));
        while Instant::now() < end && !scene.is_over.load(SeqCst) {
            thread::park_timeout(Duration::from_millis(100));
        }
        scene.is_over.store(true, SeqCst);
    });
    let [requests, hits, purges] =
        [&scene.requests, &scene.hits, &scene.purges].map(|count| count.load(SeqCst));
    eprintln!("{requests} requests, {hits} hits, {purges} purges");
    assert!(purges > 0 && hits as f64 >= HITS_MIN * requests as f64, "purges leave hits between them");
    let expired = |gateway: &Larder| gateway.metric("larder_tier_leases_total", &["event=\"expired\""]);
    assert!(
        scene.gateways.iter().map(expired).all(|count| count == 0.0),
        "no purge waits for a lease to end"
    );
}

impl Scene {
    fn start(redis: &Redis) -> Self {
        let version = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&version);
        let origin = ScriptedOrigin::start(move |exchange| {
            let version = counted.fetch_add(1, SeqCst) + 1;
            let folder = exchange.request.target().split('/').nth(1).unwrap_or_default().to_owned();
            let fields =
                format!("Cache-Control: max-age=3600\r\nCache-Tag: {folder}\r\nX-Version: {version}\r\n");
            exchange.respond("200 OK", &fields, "x".repeat(2000));
        });
        let config = format!(
            "[[site]]\nname = \"s\"\norigin = \"{}\"\ntags = [\"cache-tag\"]\n[store]\nremote = \"redis://{}/0\"\n",
            origin.url(),
            redis.address()
        );
        let library = faketime().display().to_string();
        let setup = || Setup::config(LARDER, &config);
        // The wall clock alone is ahead; time passes as it does.
        let ahead = setup().environment("LD_PRELOAD", &library).environment("FAKETIME", "+30s");
        let ahead = ahead.environment("FAKETIME_DONT_FAKE_MONOTONIC", "1").start();
        let gateways: Vec<Larder> = [ahead].into_iter().chain([setup().start(), setup().start()]).collect();
        for gateway in &gateways {
            let known = || gateway.metric("larder_tier_instances", &[]) as usize;
            wait::until_true("all know each other", || known() == gateways.len());
        }
        let lowest = std::array::from_fn(|_| AtomicU64::new(0));
        let [requests, hits, purges] = std::array::from_fn(|_| AtomicU64::new(0));
        let is_over = AtomicBool::new(false);
        Self { gateways, _origin: origin, version, lowest, is_over, requests, hits, purges }
    }

    fn clients(&self) -> Vec<Client> {
        self.gateways.iter().map(Larder::client).collect()
    }

    fn ask(&self, seed: u64) {
        let (mut random, mut clients) = (Random::new(seed), self.clients());
        while !self.is_over.load(SeqCst) {
            self.check(&mut clients[random.below(self.gateways.len())], random.below(PAGES));
            thread::park_timeout(Duration::from_millis(1));
        }
    }

    fn check(&self, client: &mut Client, page: usize) {
        let lowest = self.lowest[page].load(SeqCst);
        let response = client.get(&path(page));
        self.requests.fetch_add(1, SeqCst);
        self.hits.fetch_add(u64::from(response.is_hit()), SeqCst);
        let version: u64 = response.field("x-version").parse().unwrap_or(0);
        // The others end too, or the test waits for them.
        self.is_over.fetch_or(response.status() != 200 || version < lowest, SeqCst);
        assert_eq!(response.status(), 200, "{:?}", response.head);
        assert!(version >= lowest, "{}: {version}, purged up to {lowest}: {:?}", path(page), response.head);
    }

    fn purge(&self, seed: u64) {
        let (mut random, mut clients) = (Random::new(seed), self.clients());
        while !self.is_over.load(SeqCst) {
            let (query, pages) = subject(&mut random);
            let version = self.version.load(SeqCst);
            let gateway = &self.gateways[random.below(self.gateways.len())];
            let answer = gateway.ask_admin("POST", &format!("/purge?{query}"), "").text();
            let is_complete = answer.contains("\"complete\":true");
            self.is_over.fetch_or(!is_complete, SeqCst);
            assert!(is_complete, "{query}: {answer}");
            self.purges.fetch_add(1, SeqCst);
            pages.iter().for_each(|page| _ = self.lowest[*page].fetch_max(version + 1, SeqCst));
            clients.iter_mut().for_each(|client| self.check(client, pages[random.below(pages.len())]));
            thread::park_timeout(PURGE_PACE);
        }
    }
}

/// The query of a purge, and the pages that it is about.
fn subject(random: &mut Random) -> (String, Vec<usize>) {
    let (page, folder) = (random.below(PAGES), random.below(FOLDERS));
    let in_folder = (0..PAGES).filter(|page| page % FOLDERS == folder).collect();
    match random.below(4) {
        0 => (format!("url=http%3A%2F%2Ftest.example{}", path(page).replace('/', "%2F")), vec![page]),
        1 => (format!("tag=f{folder}&site=s"), in_folder),
        2 => (format!("prefix=%2Ff{folder}%2F"), in_folder),
        _ => ("site=s".to_owned(), (0..PAGES).collect()),
    }
}

fn path(page: usize) -> String {
    format!("/f{}/{}", page % FOLDERS, page / FOLDERS)
}

fn faketime() -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let mut files = folders.map(|folder| folder.path().join("faketime/libfaketime.so.1"));
    files.find(|file| file.is_file()).expect("libfaketime: scripts/install-dependencies")
}
