//! Clients on several workers under randomised schedules: the scheduler chooses the next thread at each lock
//! and each atomic operation.
//!
//! `SCHEDULES=20000 cargo test -p kv --features shuttle --lib schedules` runs more schedules. A failure
//! prints its schedule, which `shuttle::replay` repeats.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use engine::{Engine, Policy, Settings};
use resp::{Limits, Scanner, Value};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::thread;

use crate::clients::{Calls, Client, Ends, Place};
use crate::command::Isolation;
use crate::conversation::{Context, Conversation, Pause};
use crate::endings::Ending;
use crate::limits::BuffersLimit;
use crate::notify::Events;
use crate::output::Output;
use crate::server::Security;
use crate::session::Session;
use crate::shared::Shared;
use crate::sync::Waker;

const NOW_MS: u64 = 1_700_000_000_000;
const WORKERS: usize = 3;

/// Runs `body` under as many schedules as the environment variable `SCHEDULES` sets.
fn try_orders(body: impl Fn(&Arc<Shared>) + Send + Sync + 'static) {
    let orders = std::env::var("SCHEDULES").ok().and_then(|orders| orders.parse().ok()).unwrap_or(100);
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    // Weaker memory orderings are not explored: every atomic is sequentially consistent here.
    config.silence_warnings = true;
    let run = Arc::new(move || {
        let settings = Settings { bytes_max: 17 << 20, policy: Policy::default(), seed: 3, threads: WORKERS };
        let engine = Arc::new(Engine::new(&settings));
        let shared = Arc::new(Shared::new(Arc::clone(&engine), None, "test".to_owned(), WORKERS));
        body(&shared);
        engine.shards().try_for_each(|shard| shard.check()).expect("the invariants hold");
        assert!(shared.interests.flags().are_indifferent(), "all are gone");
        // Account as the next tick does: a write that removes a key from the table leaves the accounting to
        // the tick.
        shared.account_tracking();
        assert_eq!((shared.buffers_bytes(), shared.clients.count()), (0, 0));
        assert_eq!(shared.buffered().staying_bytes(), 0);
    });
    // The random scheduler chooses anew at every step. The PCT scheduler lets threads run on, except at a few
    // random points.
    let again = Arc::clone(&run);
    shuttle::Runner::new(RandomScheduler::new(orders), config.clone()).run(move || again());
    shuttle::Runner::new(PctScheduler::new(CHANGES, orders), config).run(move || run());
}

const CHANGES: usize = 3;

/// A client with its own worker, which behaves like one in `worker`.
struct Talk {
    shared: Arc<Shared>,
    worker: usize,
    calls: Arc<Calls>,
    waker: Waker,
    conversation: Conversation,
    told: Vec<u8>,
}

impl Talk {
    fn new(shared: &Arc<Shared>, worker: usize) -> Self {
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let waker = Waker::default();
        let calls = Arc::new(Calls::new(waker.clone()));
        let place = Place { worker: Arc::clone(&calls), number: 0 };
        let client =
            shared.clients.add(Ends { client: here, server: here, security: Security::Plain }, place, NOW_MS);
        let conversation = Conversation::new(Session::new(client, shared.first_gates()));
        Self { shared: Arc::clone(shared), worker, calls, waker, conversation, told: Vec::new() }
    }

    /// Executes a request in one turn, or with all turns if a command needs them.
    fn hear(&mut self, request: &str) {
        let shared = Arc::clone(&self.shared);
        let mut bytes = request.as_bytes();
        loop {
            let pause = {
                let _turn = shared.turn(self.worker);
                self.go_on(bytes, Isolation::Turn)
            };
            bytes = &[];
            if pause == Pause::Alone {
                let _turns = shared.all_turns();
                self.go_on(bytes, Isolation::Alone);
            }
            if !self.conversation.has_rest() {
                return;
            }
        }
    }

    fn go_on(&mut self, bytes: &[u8], isolation: Isolation) -> Pause {
        let (shared, statistics) = (&*self.shared, &self.shared.statistics[self.worker]);
        let context = Context {
            shared,
            statistics,
            isolation,
            output_bytes_max: 1 << 20,
            input_bytes_max: 1 << 20,
            body: None,
            pass: None,
            now_ms: NOW_MS,
        };
        let mut output = Output::default();
        let pause = self.conversation.hear(bytes, &context, &mut output);
        let client = &self.conversation.session.client;
        if client.has_mail() {
            client.take_mail(&mut output);
        }
        output.append_to(&mut self.told);
        pause
    }

    /// Sleeps until called, repeatedly, until `is_enough` holds.
    fn listen_until(&mut self, is_enough: impl Fn(&[u8]) -> bool) {
        let mut called = Vec::new();
        while !is_enough(&self.told) {
            if self.calls.may_sleep() {
                self.waker.sleep();
            }
            self.calls.take(&mut called);
            if !called.is_empty() {
                called.clear();
                self.hear("");
            }
        }
    }

    /// Returns the reply and all messages received until then.
    fn ask(&mut self, request: &str) -> String {
        self.told.clear();
        self.hear(&format!("{request}\r\n"));
        String::from_utf8_lossy(&self.told).replace("\r\n", " ")
    }

    /// Grows the buffered part of a request from `before_bytes` to `bytes`.
    fn hold(&self, before_bytes: usize, bytes: usize) {
        let _turn = self.shared.turn(self.worker);
        self.client().account_buffers(bytes, 0, |charge| charge.account(before_bytes, bytes));
    }

    fn client(&self) -> &Client {
        &self.conversation.session.client
    }

    fn leave(mut self) {
        self.conversation.session.leave_for_good(&self.shared);
        self.shared.forget(&self.conversation.session.client);
    }
}

fn together(threads: Vec<thread::JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
}

/// Starts a client that sends the requests in order on this worker, and leaves.
fn client(shared: &Arc<Shared>, worker: usize, requests: &'static [&'static str]) -> thread::JoinHandle<()> {
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        let mut talk = Talk::new(&shared, worker);
        for request in requests {
            let reply = talk.ask(request);
            assert!(!reply.starts_with('-'), "{request}: {reply}");
        }
        talk.leave();
    })
}

#[test]
fn whoever_sleeps_is_woken_for_each_message() {
    try_orders(|shared| {
        let mut listener = Talk::new(shared, 0);
        listener.hear("SUBSCRIBE news\r\n");
        let listener = thread::spawn(move || {
            let count = |told: &[u8]| told.windows(7).filter(|window| window == b"message").count();
            listener.listen_until(|told| count(told) == 6);
            let text = String::from_utf8_lossy(&listener.told).into_owned();
            let places = ["a1", "a2", "a3"].map(|message| text.find(message).expect("it was sent"));
            assert!(places.is_sorted(), "{text}");
            listener.leave();
        });
        together(vec![
            listener,
            client(shared, 1, &["PUBLISH news a1", "PUBLISH news a2\r\nPUBLISH news a3"]),
            client(shared, 2, &["PUBLISH news b1", "PUBLISH news b2", "PUBLISH news b3"]),
        ]);
    });
}

#[test]
fn whoever_leaves_takes_its_mail_along() {
    try_orders(|shared| {
        let mut listener = Talk::new(shared, 0);
        listener.hear("HELLO 3\r\nSUBSCRIBE news\r\nCLIENT TRACKING ON\r\nMGET a b\r\n");
        let listener = thread::spawn(move || listener.leave());
        together(vec![
            listener,
            client(shared, 1, &["PUBLISH news a1", "SET a 1", "CLIENT KILL TYPE PUBSUB"]),
            client(shared, 2, &["SET b 1", "PUBLISH news b1", "CLIENT LIST"]),
        ]);
    });
}

/// The value that a RESP3 client caches after these messages.
fn believed(mut told: &[u8], key: &str) -> Option<Vec<u8>> {
    let mut believed = None;
    while !told.is_empty() {
        let length = Scanner::new(Limits::default()).scan(told).expect("it is RESP").expect("it is whole");
        match Value::parse(&told[..length], &Limits::default()).expect("it is RESP") {
            Value::Push(message) if message.contains(&Value::Array(vec![Value::Bulk(key.as_bytes())])) => {
                believed = None;
            }
            Value::Push(message) => assert!(message.contains(&Value::Null), "{message:?}"),
            Value::Bulk(value) => believed = Some(value.to_vec()),
            _ => {}
        }
        told = &told[length..];
    }
    believed
}

#[test]
fn a_client_side_cache_learns_of_every_change() {
    try_orders(|shared| {
        let mut cache = Talk::new(shared, 0);
        cache.hear("SET k 0\r\nHELLO 3\r\nCLIENT TRACKING ON\r\n");
        let cache = thread::spawn(move || {
            cache.told.clear();
            // The key is read only once: during a second read, it would be in the table already.
            cache.hear("GET k\r\n");
            cache
        });
        let others = vec![client(shared, 1, &["SET k 1"]), client(shared, 2, &["GET k"])];
        let mut cache = cache.join().expect("it does not panic");
        together(others);
        cache.hear("");
        if let Some(value) = believed(&cache.told, "k") {
            let told = std::mem::take(&mut cache.told);
            cache.hear("GET k\r\n");
            assert_eq!(Some(value), believed(&cache.told, "k"), "{}", told.escape_ascii());
        }
        cache.leave();
    });
}

/// Increments a counter with WATCH and EXEC, and returns how many EXECs succeeded.
fn count_up(shared: &Arc<Shared>, worker: usize) -> usize {
    let mut talk = Talk::new(shared, worker);
    let mut executed = 0;
    for _ in 0..3 {
        let reply = talk.ask("WATCH n\r\nGET n");
        let number: u64 = reply.split(' ').nth(2).and_then(|text| text.parse().ok()).expect("a number");
        let reply = talk.ask(&format!("MULTI\r\nSET n {}\r\nEXEC", number + 1));
        executed += usize::from(reply == "+OK +QUEUED *1 +OK ");
        talk.ask("WATCH other\r\nUNWATCH");
    }
    talk.leave();
    executed
}

#[test]
fn exec_goes_through_only_where_nothing_has_changed() {
    try_orders(|shared| {
        let mut observer = Talk::new(shared, 0);
        observer.ask("SET n 0");
        let counters = [1, 2].map(|worker| {
            let shared = Arc::clone(shared);
            thread::spawn(move || count_up(&shared, worker))
        });
        let executed: usize = counters.map(|counter| counter.join().expect("it does not panic")).iter().sum();
        let reply = observer.ask("GET n");
        assert_eq!(reply, format!("$1 {executed} "));
        assert!(executed >= 3, "one of the two always continues");
        observer.leave();
    });
}

#[test]
fn nobody_sees_half_of_a_command_of_many_keys() {
    const LOOKS: &[&str] = &["MGET a b c", "MULTI\r\nGET a\r\nGET b\r\nGET c\r\nEXEC", "MGET c b a"];
    try_orders(|shared| {
        let looker = {
            let shared = Arc::clone(shared);
            thread::spawn(move || {
                let mut talk = Talk::new(&shared, 0);
                for look in LOOKS {
                    let reply = talk.ask(look);
                    let mut values = BTreeMap::new();
                    let words = reply.rsplit('*').next().unwrap_or_default().split(' ').skip(1);
                    words.filter(|word| !word.is_empty() && *word != "$1").for_each(|word| {
                        *values.entry(word.to_owned()).or_insert(0) += 1;
                    });
                    assert_eq!(values.into_values().collect::<Vec<_>>(), [3], "{reply}");
                }
                talk.leave();
            })
        };
        together(vec![
            looker,
            client(shared, 1, &["MSET a 1 b 1 c 1", "MSET c 2 a 2 b 2", "FLUSHALL"]),
            client(
                shared,
                2,
                &["SWAPDB 0 1", "MULTI\r\nSET b 3\r\nSET c 3\r\nSET a 3\r\nEXEC", "SWAPDB 1 0"],
            ),
        ]);
    });
}

/// Of three keys, clients see all or none; of two names of a renamed key, they see one.
#[test]
fn nobody_sees_half_of_what_is_removed_or_renamed() {
    const LOOKS: &[(&str, &[&str])] = &[
        ("EXISTS a b c", &[":0 ", ":3 "]),
        ("EXISTS old new", &[":1 "]),
        ("TOUCH c b a", &[":0 ", ":3 "]),
        ("TOUCH new old", &[":1 "]),
    ];
    try_orders(|shared| {
        let mut looker = Talk::new(shared, 0);
        looker.ask("SET old 1");
        let looker = thread::spawn(move || {
            for (look, expected) in LOOKS {
                let reply = looker.ask(look);
                assert!(expected.contains(&reply.as_str()), "{look}: {reply}");
            }
            looker.leave();
        });
        together(vec![
            looker,
            client(shared, 1, &["MSET a 1 b 1 c 1", "DEL b c a", "RENAME old new", "MSETNX c 2 a 2 b 2"]),
            client(shared, 2, &["UNLINK c a b", "MSET c 3 b 3 a 3", "DEL a b c"]),
        ]);
    });
}

/// Commands that set or remove a key. Sets and removals must alternate, whichever command causes them.
const IN_TURN: &[&str] = &["SET k 1 NX", "DEL k\r\nSET k 1 NX", "DEL k"];

/// Notifications have the order of the changes, for commands with and without options.
#[test]
fn events_of_a_key_have_the_order_of_its_changes() {
    try_orders(|shared| {
        let events = |letters| Events::parse(letters).expect("letters of classes");
        shared.interests.set_events(events(b"EA"), &shared.engine);
        let mut listener = Talk::new(shared, 0);
        listener.hear("SUBSCRIBE __keyevent@0__:set __keyevent@0__:del\r\n");
        together(vec![client(shared, 1, IN_TURN), client(shared, 2, IN_TURN)]);
        listener.told.clear();
        listener.hear("");
        let told = String::from_utf8_lossy(&listener.told).into_owned();
        let changes: Vec<&str> =
            told.lines().filter_map(|line| line.strip_prefix("__keyevent@0__:")).collect();
        let is_in_turn = |(at, change): (usize, &&str)| *change == ["set", "del"][at % 2];
        assert!(changes.len() >= 4 && changes.iter().enumerate().all(is_in_turn), "{changes:?}");
        listener.leave();
        shared.interests.set_events(events(b""), &shared.engine);
    });
}

/// A client that sends half of a request, then more, and is closed if the buffers exceed the limit. Returns
/// the client and its buffered bytes if it was still open at its worker's last check.
fn sender(shared: &Arc<Shared>, worker: usize, bytes: usize, bytes_max: usize) -> Option<(Talk, usize)> {
    let talk = Talk::new(shared, worker);
    for (before_bytes, bytes) in [(0, bytes / 2), (bytes / 2, bytes)] {
        talk.hold(before_bytes, bytes);
        shared.keep_buffers_to(bytes_max);
    }
    if !talk.client().is_killed() {
        return Some((talk, bytes));
    }
    talk.hold(bytes, 0);
    talk.leave();
    shared.keep_buffers_to(bytes_max);
    None
}

fn limit_buffers(shared: &Shared, bytes_max: usize) {
    shared.change_limits(|limits| limits.buffers_max = BuffersLimit::Bytes(bytes_max));
}

/// Request sizes, with a limit of their sum that holds as soon as one of the largest requests is gone.
const CROWDS: [([usize; WORKERS], usize); 2] =
    [([4 << 20, 64 << 10, 64 << 10], 1 << 20), ([4 << 20, 4 << 20, 64 << 10], 5 << 20)];

#[test]
fn one_client_is_closed_where_one_is_enough() {
    for (crowd, bytes_max) in CROWDS {
        try_orders(move |shared| {
            limit_buffers(shared, bytes_max);
            let senders = [0, 1, 2].map(|worker| {
                let shared = Arc::clone(shared);
                thread::spawn(move || sender(&shared, worker, crowd[worker], bytes_max))
            });
            let left = senders.map(|sender| sender.join().expect("it does not panic"));
            let is_closed = |left: &Option<(Talk, usize)>| {
                left.as_ref().is_none_or(|(talk, _)| talk.client().is_killed())
            };
            let closed: Vec<_> = (0..WORKERS).filter(|worker| is_closed(&left[*worker])).collect();
            assert_eq!((closed.len(), shared.endings.count(Ending::Buffers)), (1, 1), "{closed:?}");
            assert_eq!(crowd[closed[0]], 4 << 20, "it takes most");
            for (talk, bytes) in left.into_iter().flatten() {
                talk.hold(bytes, 0);
                talk.leave();
            }
        });
    }
}

/// A worker that is about to check may have read the old limit.
#[test]
fn a_limit_that_was_raised_closes_nobody() {
    try_orders(|shared| {
        limit_buffers(shared, 1 << 20);
        let looker = |_| {
            let shared = Arc::clone(shared);
            thread::spawn(move || shared.keep_buffers_to(shared.terms().buffers_bytes_max))
        };
        let lookers = [1, 2].map(looker).into();
        limit_buffers(shared, 8 << 20);
        let talk = Talk::new(shared, 0);
        talk.hold(0, 4 << 20);
        together(lookers);
        assert_eq!(shared.endings.count(Ending::Buffers), 0);
        talk.hold(4 << 20, 0);
        talk.leave();
    });
}
