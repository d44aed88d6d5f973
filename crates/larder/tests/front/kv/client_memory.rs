//! Memory that clients use in addition to keys: messages, tables and replies. All of it counts toward `maxmemory`, even if clients don't
//! read.

use std::io::{ErrorKind, Read as _};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use testkit::{Kv, wait};

use super::sessions::{COMPRESSED, Talker, configured, fact, request};
use crate::LARDER;

const MIB: usize = 1 << 20;
/// Allows for an unoptimised build on a busy machine.
const PATIENCE: Duration = Duration::from_secs(3);

fn connect(kv: &Kv) -> Talker {
    Talker::connect(kv.address())
}

fn crowd(kv: &Kv, count: usize) -> Vec<Talker> {
    (0..count).map(|_| connect(kv)).collect()
}

/// A request to publish a message of this length to the channel `c`.
fn publish(bytes: usize) -> Vec<u8> {
    request(&[b"PUBLISH", b"c", &vec![b'm'; bytes]])
}

fn subscriber(kv: &Kv) -> Talker {
    let mut client = connect(kv);
    assert_eq!(client.ask(b"SUBSCRIBE c\r\n"), "*3");
    client
}

/// Reads until the connection ends or nothing arrives for 500 ms, and returns the number of bytes.
fn drain(client: &mut Talker) -> usize {
    client.0.set_read_timeout(Some(Duration::from_millis(500))).expect("a time limit");
    let (mut bytes, mut piece) = (0, vec![0; MIB]);
    loop {
        match client.0.read(&mut piece) {
            Ok(more @ 1..) => bytes += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            _ => return bytes,
        }
    }
}

/// Asserts that peak memory has grown by less than `most` bytes.
#[track_caller]
fn assert_grown(kv: &Kv, before: u64, most: u64, what: &str) {
    let grown = kv.service.peak_bytes().saturating_sub(before);
    assert!(grown < most, "{what}: {grown} bytes");
}

#[track_caller]
fn assert_kept(kv: &Kv, what: &str) {
    assert_eq!(kv.ask(&["GET keep"]), "$2\r\nme\r\n", "{what}");
}

/// Sets a number of keys, with names derived from their numbers.
fn fill(kv: &Kv, keys: usize, name: impl Fn(usize) -> String, value_bytes: usize) {
    let (value, mut sets) = (vec![b'v'; value_bytes], Vec::new());
    (0..keys).for_each(|number| sets.extend(request(&[b"SET", name(number).as_bytes(), &value])));
    connect(kv).converse(&sets);
}

fn start(maxmemory: &str) -> Kv {
    let kv = Kv::start(LARDER, &["--maxmemory", maxmemory, "--workers", "2"]);
    assert_eq!(kv.ask(&["SET keep me"]), "+OK\r\n");
    kv
}

/// A short command that monitors aren't shown, so that they aren't flooded.
const PING: &str = "SLOWLOG LEN";

/// Longest time that a short command takes while `done` runs, without the time that the machine spends on other processes.
fn slowest(kv: &Kv, command: &str, done: impl FnOnce()) -> Duration {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let pinging = (0..4).map(|_| {
            scope.spawn(|| {
                let (mut client, mut slowest) = (connect(kv), Duration::ZERO);
                while !is_done.load(Relaxed) {
                    let waited = kv.service.waited_for(|| assert!(client.ask(command).starts_with(':')));
                    slowest = slowest.max(waited);
                }
                slowest
            })
        });
        let pinging: Vec<_> = pinging.collect();
        done();
        is_done.store(true, Relaxed);
        pinging.into_iter().map(|thread| thread.join().expect("it is answered")).max().unwrap_or_default()
    })
}

#[test]
fn a_message_to_many_is_in_memory_once() {
    let long = vec![b'm'; MIB];
    let kinds: [(&str, &[u8], Vec<u8>); 4] = [
        ("SUBSCRIBE", b"SUBSCRIBE c\r\n", publish(MIB)),
        ("PSUBSCRIBE", b"PSUBSCRIBE *\r\n", request(&[b"PUBLISH", &long, &long])),
        ("MONITOR", b"MONITOR\r\n", request(&[b"ECHO", &long])),
        ("TRACKING", b"HELLO 3\r\nCLIENT TRACKING ON BCAST\r\n", request(&[b"SET", &long, b"v"])),
    ];
    for (name, listens, speaks) in kinds {
        let kv = start("256MiB");
        let mut clients = crowd(&kv, 300);
        clients.iter_mut().for_each(|client| assert!(!client.ask(listens).starts_with('-')));
        let before = kv.service.peak_bytes();
        let mut speaker = connect(&kv);
        let slowest = slowest(&kv, PING, || {
            (0..8).for_each(|_| speaker.send(&speaks));
            speaker.finish();
        });
        assert!(slowest < PATIENCE, "{name}: a client waited {slowest:?}");
        assert_grown(&kv, before, 100 * MIB as u64, name);
        assert_kept(&kv, name);
        let told = drain(&mut clients[0]);
        assert!(told > MIB, "{name}: {told} bytes arrived");
    }
}

/// Messages too short to be shared: the client with the most is closed first.
#[test]
fn a_client_that_leaves_messages_unread_is_closed_before_keys_go() {
    let kv = start("64MiB");
    let _clients: Vec<_> = (0..100).map(|_| subscriber(&kv)).collect();
    let before = kv.service.peak_bytes();
    let mut publisher = connect(&kv);
    publisher.send(publish(15_000).repeat(500));
    let replies = publisher.lines("", 500);
    assert!(replies[0] == ":100" && replies.iter().all(|reply| reply.starts_with(':')), "{replies:?}");
    assert_grown(&kv, before, GROWN_MAX, "500 messages");
    assert_kept(&kv, "500 messages");
}

/// An unread reply once counted against the next client of the same worker, so a subscriber was closed.
#[test]
fn replies_that_others_do_not_read_are_theirs() {
    const VALUE: usize = 12 * MIB;
    let kv = Kv::start(LARDER, &["--maxmemory", "256MiB", "--workers", "1"]);
    assert_eq!(connect(&kv).ask(request(&[b"SET", b"long", &vec![b'v'; VALUE]])), "+OK");
    let mut idle = crowd(&kv, 10);
    idle.iter_mut().for_each(|client| assert_eq!(client.ask(b"GET long\r\n"), format!("${VALUE}")));
    let mut subscriber = subscriber(&kv);
    let mut publisher = connect(&kv);
    (0..2).for_each(|_| assert_eq!(publisher.ask(publish(VALUE)), ":1"));
    subscriber.send(b"UNSUBSCRIBE\r\n");
    subscriber.read_to("unsubscribe");
    drop(idle);
}

/// A server with 64 MiB uses up to half of it for replies and messages. The process may grow by three times that: growing buffers are
/// copied, and the allocator returns memory a tenth of a second later.
const GROWN_MAX: u64 = 3 * 32 * MIB as u64;

/// A message needs room, just as a reply does.
#[test]
fn a_message_without_room_is_refused() {
    let kv = start("64MiB");
    let mut publisher = connect(&kv);
    assert_eq!(publisher.ask(publish(40 * MIB)), ":0", "there is no subscriber");
    // The reply may be read before the memory of the request is free.
    wait::until_true("the request is freed", || fact(&kv, "mem_clients_normal") < MIB);
    let _subscriber = subscriber(&kv);
    assert!(publisher.ask(publish(40 * MIB)).starts_with("-OOM the message needs more memory"));
    assert_kept(&kv, "a message");
}

/// `count` different names, each slightly longer than `bytes`.
fn names(client: usize, count: usize, bytes: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| [format!("{client}-{number}-").as_bytes(), &vec![b'n'; bytes]].concat()).collect()
}

/// A request of `words` followed by the names, with `each` before every name.
fn with_names(words: &[&str], each: Option<&str>, names: &[Vec<u8>]) -> Vec<u8> {
    let mut arguments: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    for name in names {
        arguments.extend(each.map(str::as_bytes));
        arguments.push(name);
    }
    request(&arguments)
}

/// Returns the requests of the client with this number.
type Asks = fn(usize) -> Vec<u8>;

/// Watched keys, subscriptions and tracked keys of all clients are counted and limited.
#[test]
fn tables_for_clients_are_within_the_limit() {
    let kinds: [(&str, Asks); 4] = [
        ("WATCH", |client| with_names(&["WATCH"], None, &names(client, 14, MIB))),
        ("SUBSCRIBE", |client| with_names(&["SUBSCRIBE"], None, &names(client, 14, MIB))),
        ("prefixes", |client| {
            let on = ["CLIENT", "TRACKING", "ON", "BCAST"];
            with_names(&on, Some("PREFIX"), &names(client, 14, MIB))
        }),
        ("tracking", |client| {
            let gets = names(client, 150, 100_000);
            let gets: Vec<_> = gets.iter().map(|name| request(&[b"GET", name])).collect();
            [b"CLIENT TRACKING ON\r\n".to_vec(), gets.concat()].concat()
        }),
    ];
    for (name, remembered) in kinds {
        let kv = start("64MiB");
        let before = kv.service.peak_bytes();
        let mut clients = crowd(&kv, 8);
        for (number, client) in clients.iter_mut().enumerate() {
            client.ask(b"HELLO 3\r\n");
            client.converse(&remembered(number));
        }
        assert_grown(&kv, before, 110 * MIB as u64, name);
        wait::until_true("the tables are counted, and the requests are freed", || {
            (6 * MIB..34 * MIB).contains(&fact(&kv, "mem_clients_normal"))
        });
        assert_kept(&kv, name);
        drop(clients);
        wait::until_true("all memory is freed", || fact(&kv, "mem_clients_normal") == 0);
    }
}

#[test]
fn names_of_clients_have_limits() {
    let kv = start("64MiB");
    let long = "n".repeat(1025);
    for command in ["CLIENT SETNAME", "CLIENT SETINFO LIB-NAME", "CLIENT SETINFO LIB-VER", "HELLO 2 SETNAME"]
    {
        let told = kv.ask(&[&format!("{command} {long}")]);
        assert_eq!(told, "-ERR names of clients and libraries can have at most 1024 bytes\r\n", "{command}");
    }
    assert_eq!(kv.ask(&[&format!("CLIENT SETNAME {}", &long[1..])]), "+OK\r\n");
}

/// Duration of the slowest short command while `done` runs, and of `done` itself, on a server with one worker.
fn turns(kv: &Kv, command: &str, done: impl FnOnce()) -> (Duration, Duration) {
    let mut whole = Duration::ZERO;
    let slowest = slowest(kv, command, || whole = kv.service.waited_for(done));
    (slowest, whole)
}

/// The comparison decompresses the whole value, which takes a while.
#[test]
fn nobody_waits_while_a_compressed_value_is_compared() {
    let kv = configured(COMPRESSED, &["--maxmemory", "1GiB", "--workers", "4"]);
    assert_eq!(kv.ask(&["SETRANGE long 149999999 z"]), ":150000000\r\n");
    // These keys cover all shards.
    let all = (0..200).fold("EXISTS".to_owned(), |all, number| format!("{all} key-{number}"));
    for (command, reply) in
        [("DELEX long IFDEQ 0000000000000000", ":0"), ("SET long x IFDEQ 0000000000000000", "$-1")]
    {
        // The machine may be busy, or one worker may serve both connections.
        let is_short = |_| {
            let mut client = connect(&kv);
            let (slowest, whole) = turns(&kv, &all, || assert_eq!(client.ask(command), reply));
            slowest < whole / 4
        };
        assert!((0..20).any(is_short), "others wait during {command}");
    }
}

/// A client that sends an expensive command waits for it, and other clients are served in the meantime.
#[test]
fn commands_over_many_names_stop_nobody() {
    const NAMES: usize = 90_000;
    let kv = Kv::start(LARDER, &["--maxmemory", "256MiB", "--workers", "1"]);
    let mut client = connect(&kv);
    let all = names(0, NAMES, 1);
    fill(&kv, NAMES, |number| format!("0-{number}-n"), 1);
    // In RESP3, a subscribed client gets the usual reply to PING.
    client.send(b"HELLO 3\r\n");
    client.finish();
    let subscribed = |then: Vec<u8>| [with_names(&["SUBSCRIBE"], None, &all), then].concat();
    let shards = [with_names(&["SSUBSCRIBE"], None, &all), with_names(&["SUNSUBSCRIBE"], None, &all)];
    let requests = [
        ("KEYS that finds nothing", request(&[b"KEYS", b"none*"])),
        ("KEYS", request(&[b"KEYS", b"*"])),
        ("UNSUBSCRIBE", subscribed(with_names(&["UNSUBSCRIBE"], None, &all))),
        ("UNSUBSCRIBE from all", subscribed(request(&[b"UNSUBSCRIBE"]))),
        ("SUNSUBSCRIBE", shards.concat()),
        ("RESET", subscribed(request(&[b"RESET"]))),
    ];
    for (name, request) in requests {
        // The machine may be busy.
        let mut is_short = |_| {
            let (slowest, whole) = turns(&kv, PING, || {
                client.send(&request);
                client.finish();
            });
            slowest < whole / 3
        };
        assert!((0..20).any(&mut is_short), "others wait during {name}");
    }
    assert_eq!(kv.ask(&["PUBSUB CHANNELS", "SCAN 0 COUNT 100000000 MATCH none*"]).matches("*0").count(), 2);
    let in_transaction = kv.ask(&["MULTI", "KEYS none*", "KEYS 0-1-*", "EXEC"]);
    assert!(in_transaction.ends_with("*2\r\n*0\r\n*1\r\n$5\r\n0-1-n\r\n"), "{in_transaction}");
    let many = "SCAN 0 COUNT 100000\r\n".repeat(100);
    let told = kv.ask(&["MULTI", many.trim_end(), "EXEC"]);
    assert!(told.ends_with("-ERR the commands of a transaction may scan at most 1048576 keys together\r\n"));
    // The reply has all keys, each once.
    let told = kv.ask(&["KEYS *"]);
    assert!(told.starts_with(&format!("*{NAMES}\r\n")));
    let told: std::collections::BTreeSet<&str> = told.lines().filter(|line| line.ends_with("-n")).collect();
    assert_eq!(told.len(), NAMES);
}

/// Clients send KEYS and don't read the replies.
#[test]
fn all_keys_are_told_within_the_limit() {
    const BYTES_MAX: usize = 64 * MIB;
    for workers in ["1", "4"] {
        let kv = Kv::start(LARDER, &["--maxmemory", "64MiB", "--workers", workers]);
        fill(&kv, 200_000, |number| format!("{number:0100}"), 300);
        let before = kv.service.peak_bytes();
        let mut clients = crowd(&kv, 6);
        clients.iter_mut().for_each(|client| client.send(b"KEYS *\r\n"));
        let heads: Vec<_> = clients.iter_mut().map(Talker::line).collect();
        assert!(heads.iter().any(|head| head.starts_with('*')), "{heads:?}");
        wait::until_true("keys have made room", || fact(&kv, "used_memory") <= BYTES_MAX);
        assert_grown(&kv, before, (BYTES_MAX / 10) as u64, &format!("{workers} workers"));
        drop(clients);
        wait::until_true("the memory is freed", || fact(&kv, "mem_clients_normal") == 0);
    }
}

fn with_policy(policy: &str) -> Kv {
    Kv::start(LARDER, &["--maxmemory", "64MiB", "--workers", "2", "--maxmemory-policy", policy])
}

/// A server that is full of keys that it can't evict, and a client that doesn't read its messages: replies have to wait.
struct Full {
    kv: Kv,
    idle: Talker,
}

impl Full {
    const KEYS: usize = 20_000;

    fn start() -> Self {
        let kv = with_policy("noeviction");
        fill(&kv, Self::KEYS, |number| format!("{number:040}"), 1);
        let idle = connect(&kv);
        Self { kv, idle }
    }

    /// Uses up all memory for keys, and all additional memory for replies.
    fn fill(&mut self) {
        let (mut client, value) = (connect(&self.kv), vec![b'v'; 200_000]);
        self.idle = subscriber(&self.kv);
        let mut numbers = 0..;
        let mut set = || client.ask(request(&[b"SET", format!("l{:?}", numbers.next()).as_bytes(), &value]));
        while set() == "+OK" {}
        let mut refused = 0;
        // A slow worker may still be writing messages. The PING gives it a turn.
        while refused < 8 {
            refused = if client.ask(publish(200_000)) == ":1" { 0 } else { refused + 1 };
            assert_eq!(self.kv.ask(&["PING"]), "+PONG\r\n");
        }
    }

    fn waiting(&self, request: &str) -> Talker {
        let waiting = || fact(&self.kv, "blocked_clients");
        let before = waiting();
        let mut client = connect(&self.kv);
        client.send(request);
        wait::until_true("it waits", || waiting() != before);
        client
    }
}

/// Command for the keys of [`Full`] that exist from the start.
const KEYS: &str = "KEYS 0*\r\n";

/// Returns whether waiting clients are handled correctly after another event.
type Scene = fn(&mut Full) -> bool;

fn some_leave(full: &mut Full) -> bool {
    full.fill();
    let begin = Instant::now();
    let mut clients = crowd(&full.kv, 30);
    // The unread reply resets the connection when the socket is closed.
    clients.iter_mut().for_each(|client| client.send(format!("PING\r\n{KEYS}")));
    wait::until_true("they wait", || fact(&full.kv, "blocked_clients") == clients.len());
    drop(clients);
    wait::until_true("they are gone", || fact(&full.kv, "blocked_clients") == 0);
    wait::until_true("no other client is connected", || fact(&full.kv, "connected_clients") <= 2);
    begin.elapsed() < PATIENCE
}

fn a_miss_is_told_once(full: &mut Full) -> bool {
    full.kv.ask(&["CONFIG SET notify-keyspace-events Em"]);
    let mut listener = connect(&full.kv);
    assert_eq!(listener.ask(b"SUBSCRIBE __keyevent@0__:keymiss\r\n"), "*3");
    let value = request(&[b"SET", b"value", &vec![b'v'; 10_000]]);
    assert_eq!(connect(&full.kv).ask(&value), "+OK");
    full.fill();
    let mut monitor = connect(&full.kv);
    assert_eq!(monitor.ask(b"MONITOR\r\n"), "+OK");
    let mut client = full.waiting(&format!("MGET absent {}\r\n", "value ".repeat(99)));
    full.idle = connect(&full.kv);
    let is_told = client.line() == "*100";
    assert!(full.kv.ask(&["INFO commandstats"]).contains("cmdstat_mget:calls=1,"));
    assert_eq!(fact(&full.kv, "keyspace_misses"), 1);
    full.kv.ask(&["GET end"]);
    let shown = std::iter::repeat_with(|| monitor.line()).take_while(|line| !line.contains("\"end\""));
    assert_eq!(shown.filter(|line| line.contains("\"MGET\"")).count(), 1);
    full.kv.ask(&["PUBLISH __keyevent@0__:keymiss end"]);
    let told: Vec<_> = std::iter::repeat_with(|| listener.line()).take_while(|line| line != "end").collect();
    is_told && told.iter().filter(|line| *line == "absent").count() == 1
}

/// Waiting replies survive events that affect their clients or clients ahead of them.
#[test]
fn replies_that_wait_are_not_forgotten() {
    let scenes: [(&str, Scene); 3] = [
        ("some leave", some_leave),
        ("a miss is told once", a_miss_is_told_once),
        ("the limit rises while writes pause", |full| {
            full.fill();
            let mut clients = [(); 3].map(|()| full.waiting(KEYS));
            full.kv.ask(&["CLIENT PAUSE 60000 WRITE", "CONFIG SET maxmemory 96MiB"]);
            clients.iter_mut().all(|client| client.line() == format!("*{}", Full::KEYS))
        }),
    ];
    let failed = scenes.iter().filter(|(_, scene)| !scene(&mut Full::start()));
    assert_eq!(failed.map(|(name, _)| *name).collect::<Vec<_>>(), [""; 0]);
}

/// A refused reply evicts no keys, whatever the policy.
#[test]
fn nothing_is_evicted_for_a_reply_that_is_refused() {
    for (policy, reads) in [("volatile-lru", 1_800), ("volatile-ttl", 1_800), ("allkeys-lru", 4_800)] {
        let kv = with_policy(policy);
        let mut client = connect(&kv);
        fill(&kv, 50_000, |number| format!("k{number}"), 1000);
        let value = "v".repeat(1000);
        let expiring = (0..15_000).map(|number| format!("SET e{number} {value} EX 10000\r\n"));
        client.converse(expiring.collect::<String>().as_bytes());
        client.ask(request(&[b"SET", b"there", &vec![b'v'; 15_000]]));
        // Prevents evictions for the request itself, and for any excess that the writes have left.
        assert_eq!(client.ask(b"CONFIG SET maxmemory 66MiB\r\n"), "+OK");
        let evicted = fact(&kv, "evicted_keys");
        let mut mget = |reads: usize| client.ask(format!("MGET{}", " there".repeat(reads)));
        let told = mget(reads);
        assert!(told.starts_with("-OOM the reply"), "{policy}: {told}");
        assert_eq!(fact(&kv, "evicted_keys"), evicted, "{policy}");
        assert_eq!(mget(550), "*550", "{policy}");
        assert!(fact(&kv, "evicted_keys") > evicted, "{policy}: a reply that fits then evicts keys");
    }
}

/// Replies that need decompression share a fixed part of the time, however many there are.
#[test]
fn many_who_read_compressed_values_leave_others_their_turn() {
    const READERS: usize = 20;
    const VALUE: usize = 12 * MIB;
    let kv = configured(COMPRESSED, &["--maxmemory", "256MiB", "--workers", "1"]);
    let value = b"abcdefghijklmnop".repeat(VALUE / 16);
    assert_eq!(connect(&kv).ask(request(&[b"SET", b"long", &value])), "+OK");
    let read = || {
        let mut client = connect(&kv);
        assert_eq!(client.ask("GET long"), format!("${VALUE}"));
        client.receive(&value);
    };
    let mut is_short = |_| {
        let (slowest, whole) = turns(&kv, PING, || {
            std::thread::scope(|scope| (0..READERS).for_each(|_| drop(scope.spawn(read))))
        });
        slowest < whole / 8
    };
    // The machine may be busy.
    assert!((0..5).any(&mut is_short), "other clients wait for the readers");
}

/// The walk ends both after a reset and after a normal close of the connection.
#[test]
fn nobody_goes_through_all_keys_for_those_who_have_left() {
    const KEYS: usize = 200_000;
    const CLIENTS: usize = 40;
    let kv = Kv::start(LARDER, &["--maxmemory", "256MiB", "--workers", "1"]);
    fill(&kv, KEYS, |key| key.to_string(), 1);
    for ending in ["end", "reset"] {
        assert_eq!(kv.ask(&["CONFIG RESETSTAT"]), "+OK\r\n");
        let mut clients = crowd(&kv, CLIENTS);
        for client in &mut clients {
            if ending == "reset" {
                // The unread reply resets the connection when the socket is closed.
                client.send(b"PING\r\n");
            }
            client.send(b"KEYS *\r\n");
        }
        wait::until_true("they have begun", || fact(&kv, "mem_clients_normal") > 0);
        drop(clients);
        wait::until_true("all memory is freed", || fact(&kv, "mem_clients_normal") == 0);
        let told = kv.ask(&["INFO commandstats"]);
        let calls = told.split_once("cmdstat_keys:calls=").and_then(|(_, calls)| calls.split_once(','));
        let calls: usize = calls.map_or("0", |(calls, _)| calls).parse().expect("a number");
        assert!(calls < CLIENTS / 2, "{calls} of {CLIENTS} ran to completion after {ending}");
    }
    let told = kv.ask(&["KEYS *", "PING"]);
    assert!(told.starts_with(&format!("*{KEYS}\r\n$")) && told.ends_with("\r\n+PONG\r\n"));
}

#[test]
fn replies_without_room_are_refused_whatever_they_tell() {
    let long = vec![b'x'; 40 * MIB];
    let many = |words: &[&str], bytes: usize| with_names(words, None, &names(0, 60_000, bytes));
    let get = |words: &[&str]| with_names(words, None, &vec![b"GET".to_vec(); 200_000]);
    let requests = [
        ("ECHO", request(&[b"ECHO", &long])),
        ("PING", request(&[b"PING", &long])),
        ("PUBSUB NUMSUB", many(&["PUBSUB", "NUMSUB"], 500)),
        ("COMMAND GETKEYS", many(&["COMMAND", "GETKEYS", "DEL"], 500)),
        ("COMMAND INFO", get(&["COMMAND", "INFO"])),
        ("COMMAND DOCS", get(&["COMMAND", "DOCS"])),
        ("CLIENT LIST", with_names(&["CLIENT", "LIST", "ID"], None, &vec![b"2".to_vec(); 200_000])),
    ];
    for (name, request) in requests {
        let kv = start("64MiB");
        let before = kv.service.peak_bytes();
        let mut clients = crowd(&kv, 2);
        let slowest = slowest(&kv, PING, || {
            for client in &mut clients {
                let told = client.ask(&request);
                assert!(told.starts_with("-OOM the reply needs more memory"), "{name}: {told}");
                assert_eq!(client.ask(b"PING\r\n"), "+PONG", "{name}");
            }
        });
        assert!(slowest < PATIENCE, "{name}: a client waited {slowest:?}");
        assert_grown(&kv, before, request.len() as u64 * 2 + GROWN_MAX, name);
        assert_kept(&kv, name);
    }
}

/// If a command has already taken effect, the whole transaction is executed and the client is closed. Otherwise nothing is executed, and
/// the client stays connected.
#[test]
fn a_transaction_whose_replies_have_no_room_is_executed_or_not() {
    let kv = start("64MiB");
    let echo = request(&[b"ECHO", &vec![b'x'; 2 * MIB]]).repeat(10);
    for (before, after) in [("", "SET after yes\r\n"), ("SET there yes\r\n", "GET there\r\n")] {
        let mut client = connect(&kv);
        client.send(
            [format!("MULTI\r\n{before}").as_bytes(), &echo, format!("{after}EXEC\r\n").as_bytes()].concat(),
        );
        let queued = 10 + usize::from(!before.is_empty()) + 1;
        assert_eq!(client.line(), "+OK");
        assert!((0..queued).all(|_| client.line() == "+QUEUED"));
        if before.is_empty() {
            let told = client.line();
            assert!(told.starts_with("-EXECABORT Transaction discarded because of: OOM the reply"), "{told}");
            assert_eq!(client.ask(b"GET keep\r\n"), "$2");
        } else {
            drain(&mut client);
        }
    }
    assert_eq!(kv.ask(&["GET keep", "GET there", "EXISTS after"]), "$2\r\nme\r\n$3\r\nyes\r\n:0\r\n");
}

/// Values that are small when stored and large when sent, to clients that don't read: only a part of each is decompressed.
#[test]
fn unpacked_values_take_little_at_a_time() {
    const VALUE: usize = 15 * MIB;
    let kv = configured(COMPRESSED, &["--maxmemory", "128MiB"]);
    for number in 0..8 {
        let told = kv.ask(&[&format!("SETRANGE zeros-{number} {} x", VALUE - 1)]);
        assert_eq!(told, format!(":{VALUE}\r\n"));
    }
    let before = kv.service.peak_bytes();
    let mut clients = crowd(&kv, 8);
    let asked = ["GET zeros-#", "GETSET zeros-# v", "GETDEL zeros-#", "GETEX zeros-#"];
    for ((client, command), number) in clients.iter_mut().zip(asked.iter().cycle()).zip(0..) {
        assert_eq!(client.ask(command.replace('#', &format!("{number}"))), format!("${VALUE}"));
    }
    wait::until_true("it is counted", || fact(&kv, "mem_clients_normal") >= 8 * MIB / 4);
    assert_grown(&kv, before, 24 * MIB as u64, "8 values of 15 MiB");
    for client in &mut clients {
        let mut value = vec![0; VALUE + 2];
        client.0.read_exact(&mut value).expect("it answers");
        assert!(value.ends_with(b"\0x\r\n") && value[..VALUE - 1].iter().all(|byte| *byte == 0));
    }
    assert_eq!(kv.ask(&["STRLEN zeros-0"]), format!(":{VALUE}\r\n"));
}
