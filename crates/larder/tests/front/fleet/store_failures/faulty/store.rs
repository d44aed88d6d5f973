//! A store behind a faulty network, and the faults of both.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use testkit::Fate::{AfterNext, Drop, Pass, Replace};
use testkit::{FaultProxy, Faults, Kv, Larder, Random, Redis, RespClient, RespProxy, Signal, Stall, wait};

use crate::LARDER;
use crate::fleet::purge_waits::doubts;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Redis,
    Kv,
}

/// A server that instances reach through `replies` and `network`.
pub(crate) struct Store {
    server: Option<Server>,
    kind: Kind,
    pub(crate) network: FaultProxy,
    pub(crate) replies: RespProxy,
}

/// A server, which is killed when `signal` is dropped.
struct Server {
    address: SocketAddr,
    signal: Box<dyn Fn(Signal)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server is killed, and restarts without data.
    Killed,
    /// The server is stopped, and keeps its connections.
    Stopped,
    /// Data takes a second to reach the server, and another to return.
    Slow,
    /// The server has no memory for new data.
    Full,
    /// Replies violate the protocol.
    Garbage,
    /// Replies belong to different requests.
    Shifted,
    /// All connections are silently dead, and new ones get no answer.
    HalfOpen,
}

impl Fault {
    /// Time after the fault during which earlier messages are still in transit.
    pub(crate) fn lingers(self) -> Duration {
        match self {
            Self::Slow => Duration::from_millis(LATENCY_MS),
            _ => Duration::ZERO,
        }
    }
}

/// Delay in each direction during [`Fault::Slow`].
const LATENCY_MS: u64 = 1000;

pub(crate) const FAULTS: [Fault; 7] = {
    use Fault::{Full, Garbage, HalfOpen, Killed, Shifted, Slow, Stopped};
    [Killed, Stopped, Slow, Full, Garbage, Shifted, HalfOpen]
};

/// Memory for the data of these tests, with little to spare.
const MEMORY: &str = "64MB";

impl Server {
    fn start(kind: Kind) -> Self {
        match kind {
            Kind::Redis => {
                let redis = Redis::start(&format!("maxmemory {MEMORY}\nmaxmemory-policy noeviction"));
                Self { address: redis.address(), signal: Box::new(move |signal| redis.signal(signal)) }
            }
            Kind::Kv => {
                let limits = ["--maxmemory", MEMORY, "--maxmemory-policy", "noeviction", "--workers", "1"];
                let kv = Kv::start(LARDER, &limits);
                Self { address: kv.address(), signal: Box::new(move |signal| kv.service.signal(signal)) }
            }
        }
    }
}

impl Store {
    pub(crate) fn start(kind: Kind) -> Self {
        let server = Server::start(kind);
        let network = FaultProxy::start(server.address);
        let replies = RespProxy::start(network.address());
        Self { server: Some(server), kind, network, replies }
    }

    /// Address for instances, through the proxies.
    pub(crate) fn address(&self) -> SocketAddr {
        self.replies.address()
    }

    #[track_caller]
    pub(crate) fn client(&self) -> RespClient {
        RespClient::connect(self.server().address)
    }

    fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs")
    }

    pub(crate) fn begin(&mut self, fault: Fault) {
        match fault {
            Fault::Killed => {
                self.server = None;
                self.network.close_connections();
            }
            Fault::Stopped => (self.server().signal)(Signal::STOP),
            Fault::Slow => self.network.set(Faults { latency_ms: LATENCY_MS, ..Faults::default() }),
            Fault::Full => self.fill(),
            Fault::Garbage => {
                self.replies.decide(|_| Replace(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()));
            }
            Fault::Shifted => {
                let replies = AtomicUsize::new(0);
                self.replies.decide(move |_| match replies.fetch_add(1, Ordering::Relaxed) % 7 {
                    3 => AfterNext,
                    6 => Drop,
                    _ => Pass,
                });
            }
            Fault::HalfOpen => {
                self.network.abandon_connections();
                self.network.set(Faults { stall: Stall::Yes, ..Faults::default() });
            }
        }
    }

    /// Waits until the affected gateways have noticed the fault.
    #[track_caller]
    pub(crate) fn is_noticed(&self, fault: Fault, gateways: &[Larder], before: &[f64]) {
        for (gateway, before) in gateways.iter().zip(before) {
            let signs = || signs(fault, gateway);
            wait::until_true(&format!("{fault:?} is noticed"), || signs() > *before);
        }
    }

    pub(crate) fn end(&mut self, fault: Fault) {
        match fault {
            Fault::Killed => {
                let server = Server::start(self.kind);
                self.network.aim(server.address);
                self.server = Some(server);
            }
            Fault::Stopped => (self.server().signal)(Signal::CONT),
            Fault::Slow | Fault::HalfOpen => self.network.set(Faults::default()),
            Fault::Full => drop(self.client().ask(&[b"FLUSHALL"])),
            Fault::Garbage => self.replies.decide(|_| Pass),
            Fault::Shifted => {
                self.replies.decide(|_| Pass);
                // A connection with shifted replies stays that way until it closes.
                self.replies.close_connections();
            }
        }
    }

    fn fill(&self) {
        let mut client = self.client();
        let junk = Random::new(1).bytes(512 << 10);
        for number in 0.. {
            let name = format!("junk:{number}");
            let reply = client.ask(&[b"SET", name.as_bytes(), &junk]);
            if reply.starts_with(b"-OOM") {
                return;
            }
            assert_eq!(reply, b"+OK\r\n");
        }
    }
}

/// Number of times that a gateway has noticed this kind of fault.
pub(crate) fn signs(fault: Fault, gateway: &Larder) -> f64 {
    match fault {
        Fault::Full => {
            let lost = ["\"failed\"", "\"refused\"", "\"given_up\""].iter();
            lost.map(|result| gateway.metric("larder_tier_writes_total", &[result])).sum()
        }
        _ => doubts(gateway, "all"),
    }
}
