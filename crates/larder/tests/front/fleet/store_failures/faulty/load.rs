//! Clients that request new and old pages from all gateways and check every response.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use testkit::{Client, Larder, wait};

use super::pages::Pages;

/// Clients that run until they are stopped.
pub(crate) struct Load {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<()>>,
}

struct Shared {
    pages: Arc<Pages>,
    gateways: Vec<SocketAddr>,
    hot: Vec<String>,
    /// Names pages that haven't been requested before.
    name: String,
    is_over: AtomicBool,
    answered: AtomicUsize,
}

const CLIENTS: usize = 4;
/// Time between two requests of a client: a flood would be a different fault.
const PACE: Duration = Duration::from_millis(8);
/// Interval between requests for pages that aren't in any memory.
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

    /// Waits until `count` more requests have been answered.
    #[track_caller]
    pub(crate) fn goes_on(&self, count: usize) {
        let target = self.shared.answered.load(Ordering::SeqCst) + count;
        wait::until_true("clients get responses", || {
            let is_failed = self.clients.iter().any(JoinHandle::is_finished);
            is_failed || self.shared.answered.load(Ordering::SeqCst) >= target
        });
    }

    /// Stops the load, and asserts that every request got a correct response.
    #[track_caller]
    pub(crate) fn stop(self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        for client in self.clients {
            client.join().expect("every request got a correct response");
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
                // Each gateway requests it in turn.
                0 => format!("/new/{}/{number}/{}/3000", self.name, turn / (2 * MISS_EVERY)),
                other => self.hot[(other + turn / MISS_EVERY) % self.hot.len()].clone(),
            };
            self.pages.get(&mut clients[place], &path);
            self.answered.fetch_add(1, Ordering::SeqCst);
            thread::park_timeout(PACE);
        }
    }
}
