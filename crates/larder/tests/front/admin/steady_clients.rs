//! Threads that repeat requests without a pause while a server reloads, stops, hands over or loses its store.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use testkit::{Client, End, Larder, wait};

/// The work of a thread, which gets the number of its turn, and returns whether another turn follows.
pub(crate) type Work = Box<dyn FnMut(usize) -> bool + Send>;

/// Threads that repeat their work until [`Repeated::stop`] or until this is dropped.
pub(crate) struct Repeated {
    progress: Arc<Progress>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Progress {
    is_over: AtomicBool,
    turns: AtomicUsize,
}

impl Repeated {
    pub(crate) fn start(works: impl IntoIterator<Item = Work>) -> Self {
        let progress = Arc::<Progress>::default();
        let threads = works.into_iter().map(|mut work| {
            let progress = Arc::clone(&progress);
            thread::spawn(move || {
                for turn in 0.. {
                    if progress.is_over.load(Ordering::Acquire) || !work(turn) {
                        return;
                    }
                    progress.turns.fetch_add(1, Ordering::AcqRel);
                }
            })
        });
        let threads = threads.collect();
        Self { progress, threads }
    }

    /// Waits until all threads together have had this many turns more, or one of them has ended.
    #[track_caller]
    pub(crate) fn goes_on(&self, more: usize) {
        let turns = || self.progress.turns.load(Ordering::Acquire);
        let end = turns() + more;
        let is_ended = || self.threads.iter().any(JoinHandle::is_finished);
        wait::until_true("the work goes on", || is_ended() || turns() >= end);
    }

    /// Stops the threads, and asserts that none has failed.
    #[track_caller]
    pub(crate) fn stop(mut self) {
        self.progress.is_over.store(true, Ordering::Release);
        self.threads
            .drain(..)
            .for_each(|thread| thread.join().expect("every request got a correct response"));
    }
}

impl Drop for Repeated {
    fn drop(&mut self) {
        self.progress.is_over.store(true, Ordering::Release);
        // A thread that failed has already printed the reason.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// Clients with kept connections, until [`Load::finish`].
pub(crate) struct Load {
    clients: Repeated,
    /// Connections that were reset before the first byte of a response.
    cut_off: Arc<AtomicUsize>,
}

/// How a refused connection is treated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    Fails,
    Ends,
}

impl Load {
    pub(crate) fn start(larder: &Larder, clients: usize, refused: Refused) -> Self {
        let cut_off = Arc::<AtomicUsize>::default();
        let client = |number: usize| -> Work {
            let mut seeker = Seeker { address: larder.address(), refused, client: None };
            let cut_off = Arc::clone(&cut_off);
            Box::new(move |turn| match seeker.ask(["/hit", "/miss"][(number + turn) % 2]) {
                Asked::Answered => true,
                Asked::Refused => false,
                Asked::CutOff => {
                    cut_off.fetch_add(1, Ordering::AcqRel);
                    true
                }
            })
        };
        let clients = Repeated::start((0..clients).map(client));
        Self { clients, cut_off }
    }

    #[track_caller]
    pub(crate) fn wait_for_answers(&self, more: usize) {
        self.clients.goes_on(more);
    }

    /// Stops the load, asserts that no request failed, and returns how many clients were cut off.
    #[track_caller]
    pub(crate) fn finish(self) -> usize {
        self.clients.stop();
        self.cut_off.load(Ordering::Acquire)
    }
}

enum Asked {
    Answered,
    Refused,
    CutOff,
}

/// A client that retries as browsers do: if a used connection closes before the response begins, it sends the request again on a new one.
struct Seeker {
    address: SocketAddr,
    refused: Refused,
    client: Option<Client>,
}

impl Seeker {
    fn ask(&mut self, target: &str) -> Asked {
        if let Some(client) = self.client.take()
            && self.exchange(client, target).is_ok()
        {
            return Asked::Answered;
        }
        let is_end = self.refused == Refused::Ends;
        let client = match TcpStream::connect(self.address) {
            Ok(stream) => Client::over(stream),
            Err(_) if is_end => return Asked::Refused,
            Err(error) => panic!("not connected: {error}"),
        };
        match self.exchange(client, target) {
            Ok(()) => Asked::Answered,
            Err(_) if is_end => Asked::CutOff,
            Err(error) => panic!("no response on a new connection: {error}"),
        }
    }

    /// Sends a request, and keeps the connection unless the response closes it. Fails if no response begins.
    fn exchange(&mut self, mut client: Client, target: &str) -> std::io::Result<()> {
        client.try_send(format!("GET {target} HTTP/1.1\r\nHost: test.example\r\n\r\n"))?;
        let response = client.try_response_to("GET")?;
        let is_whole = (response.status(), response.end) == (200, End::Complete);
        let text = response.text();
        assert!(is_whole && text.starts_with(target), "{:?} {:?} {text}", response.head, response.end);
        self.client = (!response.head.fields.lists("connection", "close")).then_some(client);
        Ok(())
    }
}
