//! Clients that send requests without a pause while a server reloads, stops or hands over.

use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use testkit::{Client, End, Larder, wait};

/// Clients with kept connections, until [`Load::finish`].
pub(crate) struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    answered: AtomicUsize,
    failures: Mutex<Vec<String>>,
    /// Connections that were reset before the first byte of a response.
    cut_off: AtomicUsize,
}

/// How a refused connection is treated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    Fails,
    Ends,
}

impl Load {
    pub(crate) fn start(larder: &Larder, clients: usize, refused: Refused) -> Self {
        let (shared, address) = (Arc::<Shared>::default(), larder.address());
        let threads = (0..clients).map(|number| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.run(Seeker { address, refused, client: None }, number))
        });
        let threads = threads.collect();
        Self { shared, threads }
    }

    pub(crate) fn wait_for_answers(&self, more: usize) {
        let start = self.shared.answered.load(Ordering::Acquire);
        wait::until_true("requests are answered", || {
            self.shared.assert_no_failures();
            self.shared.answered.load(Ordering::Acquire) >= start + more
        });
    }

    /// Stops the load, and returns how many clients were cut off.
    pub(crate) fn finish(self) -> usize {
        self.shared.is_over.store(true, Ordering::Release);
        self.threads.into_iter().for_each(|thread| thread.join().expect("the client does not panic"));
        self.shared.assert_no_failures();
        self.shared.cut_off.load(Ordering::Acquire)
    }
}

impl Shared {
    fn run(&self, mut seeker: Seeker, number: usize) {
        for turn in number + 1.. {
            if self.is_over.load(Ordering::Acquire) {
                return;
            }
            match seeker.ask(["/hit", "/miss"][turn % 2]) {
                Ok(Asked::Answered) => drop(self.answered.fetch_add(1, Ordering::AcqRel)),
                Ok(Asked::Refused) => return,
                Ok(Asked::CutOff) => drop(self.cut_off.fetch_add(1, Ordering::AcqRel)),
                Err(text) => return self.failures.lock().expect("no holder panics").push(text),
            }
        }
    }

    fn assert_no_failures(&self) {
        assert_eq!(*self.failures.lock().expect("no holder panics"), Vec::<String>::new());
    }
}

enum Asked {
    Answered,
    Refused,
    CutOff,
}

enum Broken {
    BeforeAnswer(String),
    InAnswer(String),
}

/// A client that retries as browsers do: if a used connection closes before the response begins, it sends the request again on a new one.
struct Seeker {
    address: SocketAddr,
    refused: Refused,
    client: Option<Client>,
}

impl Seeker {
    fn ask(&mut self, target: &str) -> Result<Asked, String> {
        if let Some(client) = self.client.take() {
            match self.exchange(client, target) {
                Ok(()) => return Ok(Asked::Answered),
                Err(Broken::BeforeAnswer(_)) => {}
                Err(Broken::InAnswer(text)) => return Err(text),
            }
        }
        let client = match TcpStream::connect(self.address) {
            Ok(stream) => Client::over(stream),
            Err(_) if self.refused == Refused::Ends => return Ok(Asked::Refused),
            Err(error) => return Err(format!("not connected: {error}")),
        };
        match self.exchange(client, target) {
            Ok(()) => Ok(Asked::Answered),
            Err(Broken::BeforeAnswer(_)) if self.refused == Refused::Ends => Ok(Asked::CutOff),
            Err(Broken::BeforeAnswer(text) | Broken::InAnswer(text)) => {
                Err(format!("new connection: {text}"))
            }
        }
    }

    /// Sends a request, and keeps the connection unless the response closes it.
    fn exchange(&mut self, mut client: Client, target: &str) -> Result<(), Broken> {
        let request = format!("GET {target} HTTP/1.1\r\nHost: test.example\r\n\r\n");
        let answer = client.try_send(request).and_then(|()| client.try_response_to("GET"));
        let response = answer.map_err(|error| Broken::BeforeAnswer(error.to_string()))?;
        let text = response.text();
        if response.status() != 200 || response.end != End::Complete || !text.starts_with(target) {
            return Err(Broken::InAnswer(format!("{:?} {:?} {text}", response.head, response.end)));
        }
        self.client = (!response.head.fields.lists("connection", "close")).then_some(client);
        Ok(())
    }
}
