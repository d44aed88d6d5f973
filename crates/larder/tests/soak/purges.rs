//! Purges in a fleet in which one clock is 30 s ahead: no request gets a response that was purged before the request began.
//!
//! The origin numbers its responses. The test notes the latest number before a purge; once the purge is complete, every gateway must
//! return a later one.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use testkit::{Client, Larder, Random, Redis, ScriptedOrigin, Setup, wait};

use crate::LARDER;

const FOLDERS: usize = 4;
const PAGES: usize = 4 * FOLDERS;
const CLIENTS: u64 = 4;
const PURGERS: u64 = 2;
/// Pause between two purges, long enough for hits in between.
const PURGE_PACE: Duration = Duration::from_millis(50);

struct Scene {
    gateways: Vec<Larder>,
    version: Arc<AtomicU64>,
    /// The lowest version of each page with which a new request may be answered.
    lowest: [AtomicU64; PAGES],
    end: Instant,
}

/// Sends purges and requests for a while.
pub(crate) fn run(duration: Duration) {
    let redis = Redis::start("");
    let version = Arc::new(AtomicU64::new(0));
    let origin = origin(Arc::clone(&version));
    let config = format!(
        "[[site]]\nname = \"s\"\norigin = \"{}\"\ntags = [\"cache-tag\"]\n[store]\nremote = \"redis://{}/0\"\n",
        origin.url(),
        redis.address()
    );
    let setup = || Setup::config(LARDER, &config);
    // Only the wall clock is ahead; the monotonic clock is unchanged.
    let ahead = setup().environment("LD_PRELOAD", &faketime().display().to_string());
    let ahead = ahead.environment("FAKETIME", "+30s").environment("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    let gateways = vec![ahead.start(), setup().start(), setup().start()];
    for gateway in &gateways {
        let known = || gateway.metric("larder_tier_instances", &[]) as usize;
        wait::until_true("all know each other", || known() == gateways.len());
    }
    let lowest = std::array::from_fn(|_| AtomicU64::new(0));
    let scene = &Scene { gateways, version, lowest, end: Instant::now() + duration };
    thread::scope(|scope| {
        (0..CLIENTS).for_each(|seed| _ = scope.spawn(move || scene.ask(seed)));
        (0..PURGERS).for_each(|seed| _ = scope.spawn(move || scene.purge(CLIENTS + seed)));
    });
    let requests =
        scene.gateways.iter().map(|gateway| gateway.metric("larder_requests_total", &[])).sum::<f64>();
    eprintln!("{requests} requests, {} at the origin", origin.total());
    assert!((origin.total() as f64) < 0.5 * requests, "purges leave hits between them");
    let expired = |gateway: &Larder| gateway.metric("larder_tier_leases_total", &["event=\"expired\""]);
    assert_eq!(scene.gateways.iter().map(expired).sum::<f64>(), 0.0, "no purge waits for a lease to end");
}

fn origin(version: Arc<AtomicU64>) -> ScriptedOrigin {
    ScriptedOrigin::start(move |exchange| {
        let version = version.fetch_add(1, SeqCst) + 1;
        let folder = exchange.request.target().split('/').nth(1).unwrap_or_default().to_owned();
        let fields =
            format!("Cache-Control: max-age=3600\r\nCache-Tag: {folder}\r\nX-Version: {version}\r\n");
        exchange.respond("200 OK", &fields, "x".repeat(2000));
    })
}

impl Scene {
    fn clients(&self) -> Vec<Client> {
        self.gateways.iter().map(Larder::client).collect()
    }

    fn ask(&self, seed: u64) {
        let (mut random, mut clients) = (Random::new(seed), self.clients());
        while Instant::now() < self.end {
            let gateway = random.below(clients.len());
            self.check(&mut clients[gateway], random.below(PAGES));
            thread::park_timeout(Duration::from_millis(1));
        }
    }

    fn check(&self, client: &mut Client, page: usize) {
        let lowest = self.lowest[page].load(SeqCst);
        let response = client.get(&path(page));
        let version: u64 = response.field("x-version").parse().unwrap_or(0);
        assert!(response.status() == 200 && version >= lowest, "not before {lowest}: {:?}", response.head);
    }

    fn purge(&self, seed: u64) {
        let (mut random, mut clients) = (Random::new(seed), self.clients());
        while Instant::now() < self.end {
            let (query, pages) = subject(&mut random);
            let version = self.version.load(SeqCst);
            let gateway = &self.gateways[random.below(self.gateways.len())];
            let answer = gateway.ask_admin("POST", &format!("/purge?{query}"), "").text();
            assert!(answer.contains("\"complete\":true"), "{query}: {answer}");
            pages.iter().for_each(|page| _ = self.lowest[*page].fetch_max(version + 1, SeqCst));
            clients.iter_mut().for_each(|client| self.check(client, pages[random.below(pages.len())]));
            thread::park_timeout(PURGE_PACE);
        }
    }
}

/// Returns the query of a purge, and the pages that it affects.
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
