//! Clients that ask all gateways for pages, new and old, and check every answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use testkit::{Client, Larder, wait};

use super::pages::Pages;

/// Runs until it is stopped.
pub(crate) struct Load {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<()>>,
}

struct Shared {
    pages: Arc<Pages>,
    gateways: Vec<SocketAddr>,
    hot: Vec<String>,
    /// Names pages that nobody has asked for before.
    name: String,
    is_over: AtomicBool,
    answered: AtomicUsize,
}

const CLIENTS: usize = 4;
/// Between two requests of a client: a load is no flood, which would be another fault.
const PACE: Duration = Duration::from_millis(8);
/// Every so many requests one is for a page that is in no memory.
const MISS_EVERY: usize = 5;

impl Load {
    pub(crate) fn start(name: &str, pages: &Arc<Pages>, gateways: &[Larder], hot: &[String]) -> Self {
        let shared = Arc::new(Shared {
            pages: Arc::clone(pages),
            gateways: gateways.iter().map(Larder::address).collect(),
            hot: hot.to_vec(),
            name: name.to_owned(),
            is_over: AtomicBool::new(false),
            answered: AtomicUsize::new(0),
        });
        let client = |number| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.ask(number))
        };
        Self { clients: (0..CLIENTS).map(client).collect(), shared }
    }

    /// Waits until so many more were answered.
    #[track_caller]
    pub(crate) fn goes_on(&self, count: usize) {
        let target = self.shared.answered.load(Ordering::SeqCst) + count;
        wait::until_true("clients are answered", || {
            let is_failed = self.clients.iter().any(JoinHandle::is_finished);
            is_failed || self.shared.answered.load(Ordering::SeqCst) >= target
        });
    }

    /// Stops it; every request was answered, and rightly.
    #[track_caller]
    pub(crate) fn stop(self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        for client in self.clients {
            client.join().expect("every request was answered, and rightly");
        }
    }
}

impl Shared {
    fn ask(&self, number: usize) {
        let mut clients: Vec<Client> =
            self.gateways.iter().map(|address| Client::connect(*address)).collect();
        for turn in 0.. {
            if self.is_over.load(Ordering::SeqCst) {
                return;
            }
            let place = turn % clients.len();
            let path = match turn % MISS_EVERY {
                // Asked for by each gateway in turn.
                0 => format!("/new/{}/{number}/{}/3000", self.name, turn / (2 * MISS_EVERY)),
                other => self.hot[(other + turn / MISS_EVERY) % self.hot.len()].clone(),
            };
            self.pages.get(&mut clients[place], &path);
            self.answered.fetch_add(1, Ordering::SeqCst);
            thread::park_timeout(PACE);
        }
    }
}
