//! What clients take beside keys: messages, tables and replies. All of it is part of `maxmemory`, whatever they ask for and whether they read.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use testkit::{Kv, wait};

use crate::LARDER;

const MIB: usize = 1 << 20;
/// A build without optimisation, on a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(3);

/// A client that sends what it is told to, and reads what it likes.
struct Client(TcpStream);

impl Client {
    fn connect(kv: &Kv) -> Self {
        let socket = TcpStream::connect(kv.address()).expect("it listens");
        socket.set_read_timeout(Some(wait::DEADLINE)).expect("a time limit");
        Self(socket)
    }

    fn send(&mut self, request: &[u8]) {
        // One that is closed meanwhile is what some tests are about.
        let _ = self.0.write_all(request);
    }

    /// A line of the reply; none where the connection has ended.
    fn line(&mut self) -> String {
        let (mut line, mut byte) = (Vec::new(), [0]);
        while !line.ends_with(b"\r\n") && self.0.read_exact(&mut byte).is_ok() {
            line.push(byte[0]);
        }
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }

    fn ask(&mut self, request: &[u8]) -> String {
        self.send(request);
        self.line()
    }

    /// Reads until this has come; something it was not asked for may come behind it.
    fn read_until(&mut self, end: &[u8]) {
        let (mut tail, mut piece) = (Vec::new(), vec![0; MIB]);
        let end = String::from_utf8_lossy(end);
        // As text: the standard library looks for it faster than a build without optimisation goes through bytes.
        while !String::from_utf8_lossy(&tail).contains(&*end) {
            tail.drain(..tail.len().saturating_sub(end.len()));
            let more = self.0.read(&mut piece).expect("it answers");
            let last = String::from_utf8_lossy(&tail);
            assert!(more > 0, "the connection has ended after {last:?}");
            tail.extend_from_slice(&piece[..more]);
        }
    }

    /// Sends while it reads, until all is answered: it may be told more meanwhile than sockets hold.
    fn converse(&mut self, requests: &[u8]) {
        let mut sending = self.0.try_clone().expect("a second handle");
        std::thread::scope(|scope| {
            scope.spawn(move || sending.write_all(&[requests, b"PING\r\n"].concat()));
            self.read_until(b"+PONG\r\n");
        });
    }

    /// Waits until all is answered that was asked.
    fn finish(&mut self) {
        self.send(b"PING\r\n");
        self.read_until(b"+PONG\r\n");
    }

    /// Reads until the connection has ended or nothing has come for a while; how many bytes.
    fn drain(&mut self) -> usize {
        self.0.set_read_timeout(Some(Duration::from_millis(500))).expect("a time limit");
        let (mut bytes, mut piece) = (0, vec![0; MIB]);
        loop {
            match self.0.read(&mut piece) {
                Ok(0) => return bytes,
                Ok(more) => bytes += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return bytes,
            }
        }
    }
}

fn request(arguments: &[&[u8]]) -> Vec<u8> {
    let head = |length: usize, kind: char| format!("{kind}{length}\r\n").into_bytes();
    let mut request = head(arguments.len(), '*');
    for argument in arguments {
        for part in [&head(argument.len(), '$')[..], argument, b"\r\n"] {
            request.extend_from_slice(part);
        }
    }
    request
}

fn start(maxmemory: &str) -> Kv {
    let kv = Kv::start(LARDER, &["--maxmemory", maxmemory, "--workers", "2"]);
    assert_eq!(kv.ask(&["SET keep me"]), "+OK\r\n");
    kv
}

/// How long the slowest of short commands takes while something is done, without what the machine does for others. Monitors are not shown it: they would be told of it as often as it is asked.
fn slowest_ping(kv: &Kv, done: impl FnOnce()) -> Duration {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let pinging = (0..4).map(|_| {
            scope.spawn(|| {
                let (mut client, mut slowest) = (Client::connect(kv), Duration::ZERO);
                while !is_done.load(Relaxed) {
                    let waited = kv.service.waited_for(|| {
                        assert!(client.ask(b"SLOWLOG LEN\r\n").starts_with(':'));
                    });
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

/// One message to many who do not read: it is in memory once.
#[test]
fn a_message_to_many_is_in_memory_once() {
    const CLIENTS: usize = 300;
    let long = vec![b'm'; MIB];
    let kinds: [(&str, &[u8], Vec<u8>); 4] = [
        ("SUBSCRIBE", b"SUBSCRIBE c\r\n", request(&[b"PUBLISH", b"c", &long])),
        ("PSUBSCRIBE", b"PSUBSCRIBE *\r\n", request(&[b"PUBLISH", &long, &long])),
        ("MONITOR", b"MONITOR\r\n", request(&[b"ECHO", &long])),
        ("TRACKING", b"HELLO 3\r\nCLIENT TRACKING ON BCAST\r\n", request(&[b"SET", &long, b"v"])),
    ];
    for (name, listens, speaks) in kinds {
        let kv = start("256MiB");
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| Client::connect(&kv)).collect();
        for client in &mut clients {
            assert!(!client.ask(listens).starts_with('-'));
        }
        let before = kv.service.peak_bytes();
        let mut speaker = Client::connect(&kv);
        let slowest = slowest_ping(&kv, || {
            for _ in 0..8 {
                speaker.send(&speaks);
            }
            speaker.finish();
        });
        assert!(slowest < PATIENCE, "{name}: a client waited {slowest:?}");
        let grown = kv.service.peak_bytes().saturating_sub(before);
        assert!(grown < 100 * MIB as u64, "{name}: {grown} bytes");
        assert_eq!(kv.ask(&["GET keep"]), "$2\r\nme\r\n", "{name}");
        let told = clients[0].drain();
        assert!(told > MIB, "{name}: {told} bytes arrived");
    }
}

/// Messages of which none is long enough to be shared: who has most of them is closed before keys have to go.
#[test]
fn who_leaves_messages_unread_is_closed_before_keys_go() {
    let kv = start("64MiB");
    let mut clients: Vec<_> = (0..100).map(|_| Client::connect(&kv)).collect();
    for client in &mut clients {
        assert_eq!(client.ask(b"SUBSCRIBE c\r\n"), "*3");
    }
    let before = kv.service.peak_bytes();
    let publish = request(&[b"PUBLISH", b"c", &vec![b'm'; 15_000]]).repeat(500);
    let mut publisher = Client::connect(&kv);
    publisher.send(&publish);
    let replies: Vec<_> = (0..500).map(|_| publisher.line()).collect();
    assert!(replies.iter().all(|reply| reply.starts_with(':')), "{replies:?}");
    assert_eq!(replies[0], ":100");
    let grown = kv.service.peak_bytes().saturating_sub(before);
    assert!(grown < GROWN_MAX, "{grown} bytes");
    assert_eq!(kv.ask(&["GET keep"]), "$2\r\nme\r\n");
}

/// What a client did not read once counted for whoever was next to be sent something by the same worker, and who listened was closed for it.
#[test]
fn what_others_do_not_read_is_theirs() {
    const VALUE: usize = 12 * MIB;
    let kv = Kv::start(LARDER, &["--maxmemory", "256MiB", "--workers", "1"]);
    assert_eq!(Client::connect(&kv).ask(&request(&[b"SET", b"long", &vec![b'v'; VALUE]])), "+OK");
    let mut idle: Vec<_> = (0..10).map(|_| Client::connect(&kv)).collect();
    for client in &mut idle {
        assert_eq!(client.ask(b"GET long\r\n"), format!("${VALUE}"));
    }
    let mut subscriber = Client::connect(&kv);
    assert_eq!(subscriber.ask(b"SUBSCRIBE c\r\n"), "*3");
    let publish = request(&[b"PUBLISH", b"c", &vec![b'm'; VALUE]]);
    let mut publisher = Client::connect(&kv);
    assert_eq!([publisher.ask(&publish), publisher.ask(&publish)], [":1", ":1"]);
    subscriber.send(b"UNSUBSCRIBE\r\n");
    subscriber.read_until(b"unsubscribe");
    drop(idle);
}

/// Of a server with 64 MiB: half of them for what clients are to read, and as much twice more, because what grows is copied and the allocator gives
/// memory back a tenth of a second later.
const GROWN_MAX: u64 = 3 * 32 * MIB as u64;

/// A message has to have room as a reply has.
#[test]
fn a_message_without_room_is_refused() {
    let kv = start("64MiB");
    let long = request(&[b"PUBLISH", b"c", &vec![b'm'; 40 * MIB]]);
    let mut publisher = Client::connect(&kv);
    assert_eq!(publisher.ask(&long), ":0", "nobody gets it");
    // The reply may be read before the memory of the request is free.
    wait::until_true("the request is forgotten", || memory_fact(&kv, "mem_clients_normal") < MIB);
    let mut subscriber = Client::connect(&kv);
    assert_eq!(subscriber.ask(b"SUBSCRIBE c\r\n"), "*3");
    assert!(publisher.ask(&long).starts_with("-OOM the message needs more memory"));
    assert_eq!(kv.ask(&["GET keep"]), "$2\r\nme\r\n");
}

fn memory_fact(kv: &Kv, name: &str) -> usize {
    let text = kv.ask(&["INFO"]);
    let number = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    number.and_then(|number| number.parse().ok()).expect("it is told")
}

/// The most that `used_memory` is until something is done.
fn most_used(kv: &Kv, is_done: &AtomicBool) -> usize {
    let mut most = 0;
    while !is_done.load(Relaxed) {
        most = most.max(memory_fact(kv, "used_memory"));
        std::thread::yield_now();
    }
    most
}

/// What is waited for is over, also when a test fails.
struct Sets<'a>(&'a AtomicBool);

impl Drop for Sets<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// `count` names of so many bytes, all different.
fn names(client: usize, count: usize, bytes: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| [format!("{client}-{number}-").as_bytes(), &vec![b'n'; bytes]].concat()).collect()
}

/// A command with names; each but the last of `words` comes before all, the last before each, where there are several.
fn with_names(words: &[&str], each: Option<&str>, names: &[Vec<u8>]) -> Vec<u8> {
    let mut arguments: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    for name in names {
        arguments.extend(each.map(str::as_bytes));
        arguments.push(name);
    }
    request(&arguments)
}

/// What the client with this number asks.
type Asks = fn(usize) -> Vec<u8>;

/// What the server has to remember for clients has a limit for all of them, and is counted.
#[test]
fn what_clients_want_to_be_remembered_is_within_the_limit() {
    const CLIENTS: usize = 8;
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
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| Client::connect(&kv)).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            client.ask(b"HELLO 3\r\n");
            eprintln!("{name}: client {number}");
            client.converse(&remembered(number));
        }
        let grown = kv.service.peak_bytes().saturating_sub(before);
        assert!(grown < 110 * MIB as u64, "{name}: {grown} bytes");
        wait::until_true("what is remembered is counted, and requests are gone", || {
            (6 * MIB..34 * MIB).contains(&memory_fact(&kv, "mem_clients_normal"))
        });
        assert_eq!(kv.ask(&["GET keep"]), "$2\r\nme\r\n", "{name}");
        drop(clients);
        wait::until_true("all is given back", || memory_fact(&kv, "mem_clients_normal") == 0);
    }
}

/// Each worker looked for itself whether there was room, and counted a subscription only when it was remembered: all of them found the same room,
/// and all keys went.
#[test]
fn those_who_subscribe_at_the_same_time_share_the_room() {
    const CLIENTS: usize = 8;
    const KEYS: usize = 20_000;
    let kv = Kv::start(LARDER, &["--maxmemory", "64MiB", "--workers", "4"]);
    let sets: Vec<u8> =
        (0..KEYS).flat_map(|key| request(&[b"SET", key.to_string().as_bytes(), &[b'v'; 200]])).collect();
    Client::connect(&kv).converse(&sets);
    let requests: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let kind = ["SUBSCRIBE", "SSUBSCRIBE"][client % 2];
            with_names(&[kind], None, &names(client, 100_000, 1))
        })
        .collect();
    let is_done = AtomicBool::new(false);
    let most = std::thread::scope(|scope| {
        let looks = scope.spawn(|| most_used(&kv, &is_done));
        let _ended = Sets(&is_done);
        let subscribing = requests.iter().map(|request| {
            scope.spawn(|| {
                let mut client = Client::connect(&kv);
                client.ask(b"HELLO 3\r\n");
                client.converse(request);
                client
            })
        });
        let subscribing: Vec<_> = subscribing.collect();
        let clients: Vec<_> =
            subscribing.into_iter().map(|thread| thread.join().expect("it is answered")).collect();
        is_done.store(true, Relaxed);
        wait::until_true("requests are forgotten", || memory_fact(&kv, "mem_clients_normal") <= 32 * MIB);
        assert!(memory_fact(&kv, "mem_clients_normal") > 16 * MIB, "one of them has room");
        drop(clients);
        looks.join().expect("it is told")
    });
    assert!(most < 64 * MIB, "{most} bytes");
    assert_eq!(kv.ask(&["DBSIZE"]), format!(":{KEYS}\r\n"));
}

#[test]
fn names_of_clients_are_short() {
    let kv = start("64MiB");
    let long = "n".repeat(1025);
    let commands = [
        format!("CLIENT SETNAME {long}"),
        format!("CLIENT SETINFO LIB-NAME {long}"),
        format!("CLIENT SETINFO LIB-VER {long}"),
        format!("HELLO 2 SETNAME {long}"),
    ];
    for command in commands {
        let told = kv.ask(&[&command]);
        assert_eq!(told, "-ERR names of clients and libraries can have at most 1024 bytes\r\n", "{command}");
    }
    assert_eq!(kv.ask(&[&format!("CLIENT SETNAME {}", &long[1..])]), "+OK\r\n");
}

/// Whatever length it may have.
#[test]
fn the_slow_log_is_within_the_limit() {
    let kv = start("64MiB");
    let before = kv.service.peak_bytes();
    assert_eq!(kv.ask(&["CONFIG SET slowlog-max-len 100000000 slowlog-log-slower-than 0"]), "+OK\r\n");
    let mget = format!("MGET{}", format!(" {}", "k".repeat(128)).repeat(31));
    for _ in 0..10 {
        kv.ask(&vec![mget.as_str(); 1000]);
    }
    let told = kv.ask(&["SLOWLOG LEN"]);
    let length: usize = told[1..].trim_end().parse().expect("a number");
    assert!((100..1000).contains(&length), "{length} entries");
    let grown = kv.service.peak_bytes().saturating_sub(before);
    assert!(grown < 24 * MIB as u64, "{grown} bytes");
}

/// All channels of a client go one after the other.
#[test]
fn unsubscribing_from_many_channels_stops_nobody() {
    const CHANNELS: usize = 60_000;
    for kind in ["", "S"] {
        let kv = start("256MiB");
        let mut client = Client::connect(&kv);
        let channels = names(0, CHANNELS, 1);
        client.send(&with_names(&[&format!("{kind}SUBSCRIBE")], None, &channels));
        client.read_until(b":60000\r\n");
        let slowest = slowest_ping(&kv, || {
            client.send(&with_names(&[&format!("{kind}UNSUBSCRIBE")], None, &channels[..CHANNELS / 2]));
            client.send(format!("{kind}UNSUBSCRIBE\r\n").as_bytes());
            client.finish();
        });
        assert!(slowest < PATIENCE, "a client waited {slowest:?}");
        let facts = kv.ask(&["CLIENT LIST"]);
        assert!(!facts.contains("sub=60000") && !facts.contains("sub=30000"), "{facts}");
    }
}

/// How long the slowest PING takes while a request is executed, and how long that takes, where one worker has both.
fn turns(kv: &Kv, client: &mut Client, request: &[u8]) -> (Duration, Duration) {
    let mut whole = Duration::ZERO;
    let slowest = slowest_ping(kv, || {
        whole = kv.service.waited_for(|| {
            client.send(request);
            client.finish();
        });
    });
    (slowest, whole)
}

/// Whoever asks for much at once waits for it, and others have their turns.
#[test]
fn what_goes_through_many_names_stops_nobody() {
    const NAMES: usize = 90_000;
    let kv = Kv::start(LARDER, &["--maxmemory", "256MiB", "--workers", "1"]);
    let mut client = Client::connect(&kv);
    let all = names(0, NAMES, 1);
    let sets: Vec<u8> = all.iter().flat_map(|name| request(&[b"SET", name, b"v"])).collect();
    client.converse(&sets);
    // Its PING is answered as others are, also while it listens.
    client.send(b"HELLO 3\r\n");
    client.finish();
    let subscribed = |then: Vec<u8>| [with_names(&["SUBSCRIBE"], None, &all), then].concat();
    let requests = [
        ("KEYS that finds nothing", request(&[b"KEYS", b"none*"])),
        ("KEYS", request(&[b"KEYS", b"*"])),
        ("UNSUBSCRIBE", subscribed(with_names(&["UNSUBSCRIBE"], None, &all))),
        ("UNSUBSCRIBE from all", subscribed(request(&[b"UNSUBSCRIBE"]))),
        ("RESET", subscribed(request(&[b"RESET"]))),
    ];
    for (name, request) in requests {
        // The machine may be busy.
        let mut is_short = |_| {
            let (slowest, whole) = turns(&kv, &mut client, &request);
            eprintln!("{name}: {whole:?}, and others waited for {slowest:?}");
            slowest < whole / 3
        };
        assert!((0..20).any(&mut is_short), "others wait for {name}");
    }
    assert_eq!(kv.ask(&["PUBSUB CHANNELS", "SCAN 0 COUNT 100000000 MATCH none*"]).matches("*0").count(), 2);
    let in_transaction = kv.ask(&["MULTI", "KEYS none*", "KEYS 0-1-*", "EXEC"]);
    assert!(in_transaction.ends_with("*2\r\n*0\r\n*1\r\n$5\r\n0-1-n\r\n"), "{in_transaction}");
    let many = "SCAN 0 COUNT 100000\r\n".repeat(100);
    let told = kv.ask(&["MULTI", many.trim_end(), "EXEC"]);
    assert!(told.ends_with("-ERR the commands of a transaction may scan at most 1048576 keys together\r\n"));
    // As many keys as there are, none of them twice.
    let told = kv.ask(&["KEYS *"]);
    assert!(told.starts_with(&format!("*{NAMES}\r\n")));
    let told: std::collections::BTreeSet<&str> = told.lines().filter(|line| line.ends_with("-n")).collect();
    assert_eq!(told.len(), NAMES);
}

/// Clients that ask for all keys and do not read.
#[test]
fn all_keys_are_told_within_the_limit() {
    const KEYS: usize = 200_000;
    const BYTES_MAX: usize = 64 * MIB;
    for workers in ["1", "4"] {
        let kv = Kv::start(LARDER, &["--maxmemory", "64MiB", "--workers", workers]);
        let mut client = Client::connect(&kv);
        let name = |number: usize| format!("{number:0100}").into_bytes();
        let sets: Vec<u8> =
            (0..KEYS).flat_map(|number| request(&[b"SET", &name(number), &[b'v'; 300]])).collect();
        client.converse(&sets);
        let before = kv.service.peak_bytes();
        let mut clients: Vec<_> = (0..6).map(|_| Client::connect(&kv)).collect();
        clients.iter_mut().for_each(|client| client.send(b"KEYS *\r\n"));
        let heads: Vec<_> = clients.iter_mut().map(Client::line).collect();
        eprintln!("{workers} workers: {heads:?}");
        assert!(heads.iter().any(|head| head.starts_with('*')), "{heads:?}");
        wait::until_true("keys have made room", || memory_fact(&kv, "used_memory") <= BYTES_MAX);
        let grown = kv.service.peak_bytes().saturating_sub(before);
        assert!(grown < (BYTES_MAX / 10) as u64, "{workers} workers: {grown} bytes more than keys took");
        drop(clients);
        wait::until_true("it is given back", || memory_fact(&kv, "mem_clients_normal") == 0);
    }
}

/// Keys stay, so that replies have no more than a little beyond the limit: one after the other gets it, and all are answered.
#[test]
fn replies_take_turns_where_keys_are_not_evicted() {
    const BYTES_MAX: usize = 64 * MIB;
    const CLIENTS: usize = 20;
    for policy in ["noeviction", "volatile-lru"] {
        let arguments = ["--maxmemory", "64MiB", "--workers", "4", "--maxmemory-policy", policy];
        let kv = Kv::start(LARDER, &arguments);
        let name = |number: usize| format!("{number:040}").into_bytes();
        let sets: Vec<u8> =
            (0..65_000).flat_map(|number| request(&[b"SET", &name(number), &[b'v'; 1000]])).collect();
        Client::connect(&kv).converse(&sets);
        let used = memory_fact(&kv, "used_memory");
        assert!(used > BYTES_MAX - MIB, "memory is full: {used}");
        let keys = kv.ask(&["DBSIZE"]);
        let is_done = AtomicBool::new(false);
        let most = std::thread::scope(|scope| {
            let looks = scope.spawn(|| most_used(&kv, &is_done));
            let _ended = Sets(&is_done);
            let mut clients: Vec<_> = (0..CLIENTS).map(|_| Client::connect(&kv)).collect();
            clients.iter_mut().for_each(|client| client.send(b"KEYS *\r\n"));
            for client in &mut clients {
                assert_eq!(client.line(), keys.trim_end().replace(':', "*"), "{policy}");
                assert_eq!(client.ask(b""), "$40");
                client.finish();
            }
            // Nobody else has to be waited for: it is the reply that is too long.
            let long: Vec<Vec<u8>> = (0..8_000).map(|_| name(7)).collect();
            assert!(clients[0].ask(&with_names(&["MGET"], None, &long)).starts_with("-OOM the reply"));
            assert_eq!(clients[0].ask(&request(&[b"GET", &name(7)])), "$1000");
            is_done.store(true, Relaxed);
            looks.join().expect("it is told")
        });
        eprintln!("{policy}: {most} bytes");
        // A sixteenth, and what those in line and four workers have in hands.
        assert!(most < BYTES_MAX + BYTES_MAX / 16 + 2 * MIB, "{policy}: {most} bytes");
        assert_eq!(kv.ask(&["DBSIZE"]), keys);
    }
}

/// A server whose keys stay and leave no memory, and a client that does not read what was published: replies have to wait.
struct Full {
    kv: Kv,
    idle: Client,
}

impl Full {
    const KEYS: usize = 20_000;

    fn start() -> Self {
        let arguments = ["--maxmemory", "64MiB", "--workers", "2", "--maxmemory-policy", "noeviction"];
        let kv = Kv::start(LARDER, &arguments);
        let name = |number: usize| format!("{number:040}").into_bytes();
        let sets: Vec<_> = (0..Self::KEYS).map(|number| request(&[b"SET", &name(number), b"v"])).collect();
        Client::connect(&kv).converse(&sets.concat());
        let idle = Client::connect(&kv);
        Self { kv, idle }
    }

    /// Takes all memory, and all that replies have beside it.
    fn fill(&mut self) {
        let (mut client, value) = (Client::connect(&self.kv), vec![b'v'; 200_000]);
        assert_eq!(self.idle.ask(b"SUBSCRIBE idle\r\n"), "*3");
        let mut numbers = 0..;
        let mut set = || client.ask(&request(&[b"SET", format!("l{:?}", numbers.next()).as_bytes(), &value]));
        while set() == "+OK" {}
        let message = request(&[b"PUBLISH", b"idle", &vec![b'm'; 200_000]]);
        let mut refused = 0;
        // A worker that is late still writes what was published: it has a turn in between.
        while refused < 8 {
            refused = if client.ask(&message) == ":1" { 0 } else { refused + 1 };
            assert_eq!(self.kv.ask(&["PING"]), "+PONG\r\n");
        }
    }

    /// A client that asks for something that has to wait.
    fn waiting(&self, request: &str) -> Client {
        let waiting = || {
            let told = self.kv.ask(&["INFO clients"]);
            told.lines().find_map(|line| line.strip_prefix("blocked_clients:")).map(str::to_owned)
        };
        let before = waiting();
        let mut client = Client::connect(&self.kv);
        client.send(request.as_bytes());
        wait::until_true("it waits", || waiting() != before);
        client
    }

    /// Who did not read leaves.
    fn empty(&mut self) {
        self.idle = Client::connect(&self.kv);
    }

    fn all_keys() -> String {
        format!("*{}", Self::KEYS)
    }
}

/// All of those that are there from the begin.
const KEYS: &str = "KEYS 0*\r\n";

/// What a client that waits is told when something else has happened.
type Scene = fn(&mut Full) -> bool;

fn the_limit_rises(full: &mut Full) -> bool {
    full.fill();
    let mut clients = [(); 3].map(|()| full.waiting(KEYS));
    let begin = Instant::now();
    full.kv.ask(&["CONFIG SET maxmemory 96MiB"]);
    clients.iter_mut().all(|client| client.line() == Full::all_keys()) && begin.elapsed() < PATIENCE
}

fn some_leave(full: &mut Full) -> bool {
    full.fill();
    let begin = Instant::now();
    let mut clients: Vec<_> = (0..30).map(|_| Client::connect(&full.kv)).collect();
    for client in &mut clients {
        // What is unread when a socket is closed resets the connection.
        client.send(b"PING\r\n");
        client.send(KEYS.as_bytes());
    }
    wait::until_true("they wait", || memory_fact(&full.kv, "blocked_clients") == clients.len());
    drop(clients);
    wait::until_true("they are gone", || memory_fact(&full.kv, "blocked_clients") == 0);
    wait::until_true("nobody else is there", || memory_fact(&full.kv, "connected_clients") <= 2);
    begin.elapsed() < PATIENCE
}

fn a_miss_is_told_once(full: &mut Full) -> bool {
    full.kv.ask(&["CONFIG SET notify-keyspace-events Em"]);
    let mut listener = Client::connect(&full.kv);
    assert_eq!(listener.ask(b"SUBSCRIBE __keyevent@0__:keymiss\r\n"), "*3");
    let value = request(&[b"SET", b"value", &vec![b'v'; 10_000]]);
    assert_eq!(Client::connect(&full.kv).ask(&value), "+OK");
    full.fill();
    let mut monitor = Client::connect(&full.kv);
    assert_eq!(monitor.ask(b"MONITOR\r\n"), "+OK");
    let mut client = full.waiting(&format!("MGET absent {}\r\n", "value ".repeat(99)));
    full.empty();
    let is_told = client.line() == "*100";
    assert!(full.kv.ask(&["INFO commandstats"]).contains("cmdstat_mget:calls=1,"));
    assert_eq!(memory_fact(&full.kv, "keyspace_misses"), 1);
    full.kv.ask(&["GET end"]);
    let shown = std::iter::repeat_with(|| monitor.line()).take_while(|line| !line.contains("\"end\""));
    assert_eq!(shown.filter(|line| line.contains("\"MGET\"")).count(), 1);
    full.kv.ask(&["PUBLISH __keyevent@0__:keymiss end"]);
    let told: Vec<_> = std::iter::repeat_with(|| listener.line()).take_while(|line| line != "end").collect();
    is_told && told.iter().filter(|line| *line == "absent").count() == 1
}

/// Whatever happens to those in line, and whoever stands before them.
#[test]
fn replies_that_wait_are_not_forgotten() {
    let scenes: [(&str, Scene); 7] = [
        ("the limit rises", the_limit_rises),
        ("some leave", some_leave),
        ("a miss is told once", a_miss_is_told_once),
        ("keys go now", |full| {
            full.fill();
            let mut client = full.waiting(KEYS);
            full.kv.ask(&["CONFIG SET maxmemory-policy allkeys-lru"]);
            client.line().starts_with('*')
        }),
        ("writes pause", |full| {
            full.fill();
            let mut client = full.waiting(KEYS);
            full.kv.ask(&["CLIENT PAUSE 60000 WRITE"]);
            full.empty();
            client.line() == Full::all_keys()
        }),
        ("nobody reads", |full| {
            full.fill();
            let begin = Instant::now();
            let mut clients: Vec<_> = (0..4).map(|_| full.waiting(KEYS)).collect();
            let are_refused = clients.iter_mut().all(|client| client.line().starts_with("-OOM the reply"));
            are_refused && begin.elapsed() < Duration::from_secs(14)
        }),
        ("the first does not read", |full| {
            let mut first = Client::connect(&full.kv);
            first.ask(b"HELLO 3\r\n");
            first.send(b"SUBSCRIBE c\r\n");
            first.read_until(b"subscribe\r\n$1\r\nc\r\n:1\r\n");
            full.fill();
            first.send(KEYS.as_bytes());
            let used = memory_fact(&full.kv, "used_memory");
            let publish = request(&[b"PUBLISH", b"c", &vec![b'm'; 15_000]]).repeat(20);
            let mut publisher = Client::connect(&full.kv);
            while memory_fact(&full.kv, "used_memory") < used + MIB / 2 {
                publisher.converse(&publish);
            }
            let mut client = full.waiting(KEYS);
            full.empty();
            client.line() == Full::all_keys()
        }),
    ];
    let failed = scenes.iter().filter(|(name, scene)| {
        eprintln!("{name}");
        !scene(&mut Full::start())
    });
    assert_eq!(failed.map(|(name, _)| *name).collect::<Vec<_>>(), [""; 0]);
}

/// No key goes for a reply that is refused, whichever keys may.
#[test]
fn nothing_is_evicted_for_a_reply_that_is_refused() {
    let set = |name: String, bytes: usize, more: &[&[u8]]| {
        request(&[&[b"SET", name.as_bytes(), &vec![b'v'; bytes][..]][..], more].concat())
    };
    for (policy, reads) in [("volatile-lru", 1_800), ("volatile-ttl", 1_800), ("allkeys-lru", 4_800)] {
        let arguments = ["--maxmemory", "64MiB", "--workers", "2", "--maxmemory-policy", policy];
        let kv = Kv::start(LARDER, &arguments);
        let mut client = Client::connect(&kv);
        let stay = (0..50_000).flat_map(|number| set(format!("k{number}"), 1000, &[]));
        let expire = (0..15_000).flat_map(|number| set(format!("e{number}"), 1000, &[b"EX", b"10000"]));
        client.converse(&stay.chain(expire).collect::<Vec<_>>());
        client.ask(&set("there".to_owned(), 15_000, &[]));
        // So that no key goes for a request, nor for what writes have left above the limit.
        assert_eq!(client.ask(b"CONFIG SET maxmemory 66MiB\r\n"), "+OK");
        let evicted = memory_fact(&kv, "evicted_keys");
        let mget = with_names(&["MGET"], None, &vec![b"there".to_vec(); reads]);
        let told = client.ask(&mget);
        assert!(told.starts_with("-OOM the reply"), "{policy}: {told}");
        assert_eq!(memory_fact(&kv, "evicted_keys"), evicted, "{policy}");
        let fits = with_names(&["MGET"], None, &vec![b"there".to_vec(); 550]);
        assert_eq!(client.ask(&fits), "*550", "{policy}");
        assert!(
            memory_fact(&kv, "evicted_keys") > evicted,
            "{policy}: keys go for a reply that has room then"
        );
    }
}

/// Replies that have to be unpacked share a part of the time, however many there are.
#[test]
fn many_who_read_compressed_values_leave_others_their_turn() {
    const READERS: usize = 20;
    const VALUE: usize = 12 * MIB;
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("larder.toml");
    std::fs::write(&config, "[kv]\ncompression = \"lz4\"\n").expect("a file");
    let path = config.to_str().expect("a path in UTF-8");
    let kv = Kv::start(LARDER, &["--config", path, "--maxmemory", "256MiB", "--workers", "1"]);
    let value = b"abcdefghijklmnop".repeat(VALUE / 16);
    assert_eq!(Client::connect(&kv).ask(&request(&[b"SET", b"long", &value])), "+OK");
    let read = || {
        let mut client = Client::connect(&kv);
        client.send(b"GET long\r\n");
        assert_eq!(client.line(), format!("${VALUE}"));
        let mut told = vec![0; VALUE];
        client.0.read_exact(&mut told).expect("it answers");
        assert!(told == value);
    };
    let mut is_short = |_| {
        let mut whole = Duration::ZERO;
        let slowest = slowest_ping(&kv, || {
            whole = kv.service.waited_for(|| {
                std::thread::scope(|scope| (0..READERS).for_each(|_| drop(scope.spawn(read))));
            });
        });
        eprintln!("{READERS} readers: {whole:?}, and others waited for {slowest:?}");
        slowest < whole / 8
    };
    // The machine may be busy.
    assert!((0..5).any(&mut is_short), "others wait for those who read");
}

/// What goes through all keys for a client that is gone ends, whether the kernel was told so or only that the client sends no more.
#[test]
fn nobody_goes_through_all_keys_for_those_who_have_left() {
    const KEYS: usize = 200_000;
    const CLIENTS: usize = 40;
    let kv = Kv::start(LARDER, &["--maxmemory", "256MiB", "--workers", "1"]);
    let sets: Vec<u8> =
        (0..KEYS).flat_map(|key| request(&[b"SET", key.to_string().as_bytes(), b"v"])).collect();
    Client::connect(&kv).converse(&sets);
    for ending in ["end", "reset"] {
        assert_eq!(kv.ask(&["CONFIG RESETSTAT"]), "+OK\r\n");
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| Client::connect(&kv)).collect();
        for client in &mut clients {
            if ending == "reset" {
                // What is unread when a socket is closed resets the connection.
                client.send(b"PING\r\n");
            }
            client.send(b"KEYS *\r\n");
        }
        wait::until_true("they have begun", || memory_fact(&kv, "mem_clients_normal") > 0);
        drop(clients);
        wait::until_true("all is given back", || memory_fact(&kv, "mem_clients_normal") == 0);
        let told = kv.ask(&["INFO commandstats"]);
        let calls = told.lines().find_map(|line| line.strip_prefix("cmdstat_keys:calls=")).unwrap_or("0,");
        let calls: usize = calls.split(',').next().and_then(|calls| calls.parse().ok()).expect("a number");
        assert!(calls < CLIENTS / 2, "{calls} of {CLIENTS} went on to the end after {ending}");
    }
    let told = kv.ask(&["KEYS *", "PING"]);
    assert!(told.starts_with(&format!("*{KEYS}\r\n$")) && told.ends_with("\r\n+PONG\r\n"));
}

/// Many watch the same keys, and leave at the same time.
#[test]
fn watchers_that_leave_stop_nobody() {
    let kv = Kv::start(LARDER, &["--maxmemory", "1GiB", "--workers", "1"]);
    let watch = with_names(&["WATCH"], None, &names(0, 20_000, 1));
    let mut clients: Vec<_> = (0..40).map(|_| Client::connect(&kv)).collect();
    for client in &mut clients {
        assert_eq!(client.ask(&watch), "+OK");
    }
    let slowest = slowest_ping(&kv, || {
        drop(clients);
        wait::until_true("all are gone", || memory_fact(&kv, "mem_clients_normal") == 0);
        assert_eq!(kv.ask(&["SET 0-1-n v"]), "+OK\r\n");
    });
    assert!(slowest < Duration::from_secs(1), "a client waited {slowest:?}");
}

/// Whatever is copied into a reply has to have room.
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
        let mut clients: Vec<_> = (0..2).map(|_| Client::connect(&kv)).collect();
        let slowest = slowest_ping(&kv, || {
            for client in &mut clients {
                let told = client.ask(&request);
                assert!(told.starts_with("-OOM the reply needs more memory"), "{name}: {told}");
                assert_eq!(client.ask(b"PING\r\n"), "+PONG", "{name}");
            }
        });
        assert!(slowest < PATIENCE, "{name}: a client waited {slowest:?}");
        let grown = kv.service.peak_bytes().saturating_sub(before);
        eprintln!("{name}: {grown} bytes more, and others waited for {slowest:?}");
        assert!(grown < request.len() as u64 * 2 + GROWN_MAX, "{name}: {grown} bytes");
        assert_eq!(kv.ask(&["GET keep"]), "$2\r\nme\r\n", "{name}");
    }
}

/// What was replied within a transaction had no room. Where something was done before, all is, and the client is closed; otherwise nothing is, and it goes
/// on.
#[test]
fn a_transaction_whose_replies_have_no_room_is_executed_or_not() {
    let kv = start("64MiB");
    let echo = request(&[b"ECHO", &vec![b'x'; 2 * MIB]]).repeat(10);
    for (before, after) in [("", "SET after yes\r\n"), ("SET there yes\r\n", "GET there\r\n")] {
        let mut client = Client::connect(&kv);
        client.send(b"MULTI\r\n");
        client.send(before.as_bytes());
        client.send(&echo);
        client.send(format!("{after}EXEC\r\n").as_bytes());
        let queued = 10 + usize::from(!before.is_empty()) + 1;
        assert_eq!(client.line(), "+OK");
        assert!((0..queued).all(|_| client.line() == "+QUEUED"));
        if before.is_empty() {
            let told = client.line();
            assert!(told.starts_with("-EXECABORT Transaction discarded because of: OOM the reply"), "{told}");
            assert_eq!(client.ask(b"GET keep\r\n"), "$2");
        } else {
            client.drain();
        }
    }
    assert_eq!(kv.ask(&["GET keep", "GET there", "EXISTS after"]), "$2\r\nme\r\n$3\r\nyes\r\n:0\r\n");
}

/// Values that take little as they are kept, and much as they are sent, to clients that do not read: a part of each is unpacked.
#[test]
fn unpacked_values_take_little_at_a_time() {
    const VALUE: usize = 30 * MIB;
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("larder.toml");
    std::fs::write(&config, "[kv]\ncompression = \"lz4\"\n").expect("a file");
    let arguments = ["--config", config.to_str().expect("a path in UTF-8"), "--maxmemory", "128MiB"];
    let kv = Kv::start(LARDER, &arguments);
    for number in 0..8 {
        let told = kv.ask(&[&format!("SETRANGE zeros-{number} {} x", VALUE - 1)]);
        assert_eq!(told, format!(":{VALUE}\r\n"));
    }
    let before = kv.service.peak_bytes();
    let mut clients: Vec<_> = (0..8).map(|_| Client::connect(&kv)).collect();
    let asked = ["GET", "GETSET", "GETDEL", "GETEX"];
    for (number, client) in clients.iter_mut().enumerate() {
        let more = if asked[number % 4] == "GETSET" { " v" } else { "" };
        let told = client.ask(format!("{} zeros-{number}{more}\r\n", asked[number % 4]).as_bytes());
        assert_eq!(told, format!("${VALUE}"));
    }
    wait::until_true("it is counted", || memory_fact(&kv, "mem_clients_normal") >= 8 * MIB / 4);
    let grown = kv.service.peak_bytes().saturating_sub(before);
    assert!(grown < 24 * MIB as u64, "{grown} bytes");
    for client in &mut clients {
        let mut value = vec![0; VALUE + 2];
        client.0.read_exact(&mut value).expect("it answers");
        assert!(value.ends_with(b"\0x\r\n") && value[..VALUE - 1].iter().all(|byte| *byte == 0));
    }
    assert_eq!(kv.ask(&["STRLEN zeros-0"]), format!(":{VALUE}\r\n"));
}

/// What a transaction unpacks is done while everybody waits.
#[test]
fn transactions_do_not_unpack_without_end() {
    const VALUE: usize = 20 * MIB;
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("larder.toml");
    std::fs::write(&config, "[kv]\ncompression = \"lz4\"\n").expect("a file");
    let arguments =
        ["--config", config.to_str().expect("a path in UTF-8"), "--maxmemory", "128MiB", "--workers", "1"];
    let kv = Kv::start(LARDER, &arguments);
    assert_eq!(kv.ask(&[&format!("SETRANGE big {} x", VALUE - 1)]), format!(":{VALUE}\r\n"));
    let unpack_once = || {
        let begin = Instant::now();
        kv.ask(&["DIGEST big"]);
        begin.elapsed()
    };
    let refused = "-ERR the commands of a transaction may process at most 134217728 bytes of values together";
    let (free, bounded) = (
        ["LCS none big LEN", "LCS big none", "GETRANGE big 100 200"],
        ["DIGEST big", "APPEND big x", "DELEX big IFDEQ 0000000000000000"],
    );
    for (command, is_refused) in
        free.map(|command| (command, false)).into_iter().chain(bounded.map(|command| (command, true)))
    {
        let before = unpack_once();
        let mut client = Client::connect(&kv);
        assert_eq!(client.ask(b"MULTI\r\n"), "+OK");
        client.send(format!("{command}\r\n").repeat(30).as_bytes());
        client.send(b"PING\r\n");
        (0..31).for_each(|_| assert_eq!(client.line(), "+QUEUED"));
        let mut replies = String::new();
        let slowest = slowest_ping(&kv, || {
            assert_eq!(client.ask(b"EXEC\r\n"), "*31");
            while !replies.ends_with("+PONG\n") {
                replies += &client.line();
                replies.push('\n');
            }
        });
        assert_eq!(replies.contains(refused), is_refused, "{command}: {replies}");
        // How busy the machine is with others may have changed meanwhile.
        let once = before.max(unpack_once());
        assert!(
            slowest < once * 16,
            "{command}: a client waited {slowest:?}, and one is unpacked in {once:?}"
        );
    }
}

/// Patterns that take too long to compare are refused; whatever is slow is done once in a turn.
#[test]
fn slow_commands_of_one_client_stop_nobody_for_long() {
    let kv = start("64MiB");
    let mut client = Client::connect(&kv);
    for key in names(0, 50, 10_000) {
        assert_eq!(client.ask(&request(&[b"SET", &[b"a".as_slice(), &key].concat(), b"v"])), "+OK");
    }
    assert_eq!(client.ask(&request(&[b"SET", &vec![b'n'; MIB], b"v"])), "+OK");
    let long = [b"*".as_slice(), &vec![b'n'; MIB / 2], b"b"].concat();
    let class = [b"*[".as_slice(), &vec![b'b'; 30_000], b"]c"].concat();
    let slow = [
        request(&[b"KEYS", &long]),
        request(&[b"SCAN", b"0", b"COUNT", b"1000", b"MATCH", &class]),
        request(&[b"COMMAND", b"LIST", b"FILTERBY", b"PATTERN", &class]),
    ];
    let slowest = slowest_ping(&kv, || {
        for request in &slow[..2] {
            assert_eq!(client.ask(request), "-ERR the pattern takes too long to compare");
        }
        client.ask(&slow[2]);
    });
    assert!(slowest < Duration::from_secs(8), "a client waited {slowest:?}");
    assert_eq!(kv.ask(&["KEYS ke*"]), "*1\r\n$4\r\nkeep\r\n");
}
