//! Access to `larder kv`: passwords, protected mode, TLS, client limits, and unauthenticated or idle clients.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use rustls::{ClientConnection, StreamOwned};
use testkit::{Authority, Identity, KvService, KvSetup, Redis, say, wait};

use super::sessions::{Talker, request};
use crate::LARDER;
use crate::admin::tls::tls_client;

const NOAUTH: &str = "-NOAUTH Authentication required.";

/// A server that requires the password "one", with more lines in `[kv]`.
pub(crate) fn locked(more: &str) -> KvService {
    let setup = KvSetup::new(LARDER).file("password", "one\n").file("other", "second\n");
    setup.start(&format!("password_files = [\"password\"]\n{more}"))
}

pub(crate) fn let_in(address: SocketAddr) -> Talker {
    let mut client = Talker::connect(address);
    client.expect("AUTH one", "+OK\r\n");
    client
}

/// Asserts that both servers reply alike. `|` separates conversations, and ` ; ` separates commands.
fn check_as_redis(redis: &Redis, kv: &KvService, conversations: &str) {
    for commands in conversations.split('|') {
        let commands = &format!("{}\r\n", commands.replace(" ; ", "\r\n"));
        assert_eq!(kv.ask(commands), say(redis.address(), commands), "{commands}");
    }
}

#[test]
fn a_password_is_asked_for_as_redis_asks() {
    check_as_redis(
        &Redis::start("requirepass one"),
        &locked(""),
        "PING|GET a ; AUTH one ; GET a|AUTH default one ; GET a|\
         AUTH two ; GET a ; AUTH one ; GET a ; AUTH two ; GET a|AUTH somebody one ; GET a|\
         AUTH ; AUTH a b c ; AUTH one more words|\
         HELLO 3 ; HELLO 3 AUTH default two ; HELLO 9 ; HELLO 3 AUTH default|AUTH one ; RESET ; GET a|\
         RESET ; ECHO a|NOSUCH a b ; GET ; SET a b c d e f g|QUIT|DBSIZE ; SELECT 1 ; CLIENT ID|\
         CLIENT REPLY OFF ; PING ; AUTH one ; PING|INFO ; COMMAND COUNT ; FLUSHALL|\
         EVAL x 0 ; EVAL ; EVALSHA_RO x 1 k ; FCALL f 0 ; SCRIPT LOAD x ; SCRIPT EXISTS x ; FUNCTION LOAD x ; FUNCTION LIST",
    );
}

#[test]
fn without_a_password_requests_are_refused_as_by_redis() {
    let (redis, kv) = (Redis::start(""), KvService::start(LARDER, ""));
    check_as_redis(
        &redis,
        &kv,
        "AUTH one|AUTH default one ; AUTH somebody one ; GET a|AUTH|RESET ; GET a|EXEC x|\
         MULTI ; EXEC x ; EXEC|SUBSCRIBE a ; EXEC|EXEC|\
         EXPIRE a number BAD ; SET a 1 ; EXPIRE a number BAD ; EXPIRE a number|\
         PEXPIREAT a 9223372036854775807 BAD ; EXPIRE a 9223372036854775807|\
         DEL a b ; MSETNX b 1 b 2 ; GET b ; MSETNX b 3 a 1 ; EXISTS a b|\
         CONFIG SET hz 0 ; CONFIG GET hz ; CONFIG SET hz 1000 ; CONFIG GET hz ; CONFIG SET hz -1",
    );
    assert!(kv.ask("CONFIG SET hz 50\r\nINFO server\r\n").contains("\r\nhz:50\r\nconfigured_hz:50\r\n"));
}

#[test]
fn a_new_password_takes_the_place_of_an_old_one() {
    let kv = locked("");
    let opens = |password: &str| kv.ask(&format!("AUTH {password}\r\n")) == "+OK\r\n";
    let mut client = let_in(kv.address());
    assert!(opens("one") && !opens("second"));
    assert_eq!(kv.reload("password_files = [\"password\", \"other\"]").status(), 200);
    assert!(opens("one") && opens("second"));
    assert_eq!(kv.reload("password_files = [\"other\"]").status(), 200);
    assert!(!opens("one") && opens("second"));
    assert_eq!(client.ask("GET a"), "$-1", "a client stays authenticated");
    // A file that is being rewritten is empty for a moment.
    for emptied in ["", "# nothing\n", "[admin]\nlisten = \"127.0.0.1:1\"\n"] {
        kv.write_file("larder.toml", emptied);
        let refused = kv.ask_admin("POST", "/reload");
        let text = refused.text();
        assert_eq!(refused.status(), 422, "{emptied:?}: {text}");
        assert!(text.contains("larder.toml") && text.contains("kv: missing"), "{text}");
        assert!(kv.ask("GET a\r\n").starts_with(NOAUTH), "{emptied:?}");
    }
    assert_eq!(kv.reload("password_files = [\"password\"]").status(), 200);
}

/// As in Redis, connected clients stay authenticated. New clients can only send small requests until they authenticate.
#[test]
fn a_password_can_be_set_while_clients_are_connected() {
    let (redis, kv) = (Redis::start(""), KvService::start(LARDER, ""));
    let exists = format!("*20\r\n$6\r\nEXISTS{}", "\r\n$1\r\nx".repeat(19));
    let set = request(&[b"SET", b"long", &vec![b'v'; 1 << 20]]);
    let goes_on = |client: &mut Talker| assert_eq!([client.ask(&exists), client.ask(&set)], [":0", "+OK"]);
    for address in [redis.address(), kv.address()] {
        let mut known = Talker::connect(address);
        for (commands, expected) in [
            ("CONFIG SET requirepass secret", "+OK"),
            ("PING", "+PONG"),
            ("CONFIG SET requirepass other hz 0x", "-ERR CONFIG SET failed"),
        ] {
            let given = known.ask(commands);
            assert!(given.starts_with(expected), "{commands}: {given}");
        }
        for (request, expected) in [
            ("*20", "-ERR Protocol error: unauthenticated multibulk length"),
            ("*2\r\n$3\r\nGET\r\n$1048576", "-ERR Protocol error: unauthenticated bulk length"),
        ] {
            assert_eq!(Talker::connect(address).ask(request), expected, "{request}");
        }
        goes_on(&mut known);
        let mut stranger = Talker::connect(address);
        for (command, expected) in [
            ("GET a", NOAUTH),
            ("AUTH other", "-WRONGPASS invalid username-password pair or user is disabled."),
            ("AUTH secret", "+OK"),
            ("GET a", "$-1"),
        ] {
            assert_eq!(stranger.ask(command), expected, "{command}");
        }
        goes_on(&mut stranger);
        let mut waiting = Talker::connect(address);
        assert_eq!(waiting.ask("GET a"), NOAUTH);
        known.expect("CONFIG SET requirepass \"\"", "+OK\r\n");
        goes_on(&mut waiting);
        assert_eq!([waiting.ask("GET a"), Talker::connect(address).ask("GET a")], ["$-1", "$-1"]);
    }
}

/// Commands with passwords, some of them invalid.
const SECRETS: &str = "CONFIG SET timeout 0 requirepass hidden-1
config set masterauth hidden-2
ACL SETUSER default on >hidden-3
AUTH hidden-4
AUTH default hidden-5
HELLO 3 AUTH default hidden-6
HELLO 2 AUTH default hidden-6 SETNAME me
COMMAND GETKEYS AUTH hidden-1
COMMAND GETKEYSANDFLAGS HELLO 3 AUTH default hidden-2
COMMAND GETKEYS COMMAND GETKEYS AUTH hidden-3
COMMAND GETKEYS CONFIG SET requirepass hidden-4
MULTI
CONFIG SET requirepass hidden-7
EXEC
CONFIG SET nosuch hidden-8
CONFIG SET requirepass hidden-9 hz -1
";

#[test]
fn passwords_are_shown_to_nobody() {
    let kv = KvSetup::new(LARDER).file("password", "hidden-right\n").start("[log]\nlevel = \"debug\"");
    let mut monitor = Talker::connect(kv.address());
    monitor.expect("CONFIG SET slowlog-log-slower-than 0\r\nMONITOR", "+OK\r\n+OK\r\n");
    kv.ask(&SECRETS.replace('\n', "\r\n"));
    let told = kv.ask(
        "AUTH hidden-7\r\nSLOWLOG GET 100\r\nCONFIG GET *\r\nINFO everything\r\nACL LIST\r\nCLIENT LIST\r\nECHO end\r\n",
    );
    assert!(told.contains("requirepass\r\n$10\r\n(redacted)\r\n") && !told.contains("hidden-"), "{told}");
    let shown = monitor.read_to("\"end\"");
    assert!(shown.contains("\"AUTH\" \"(redacted)\"") && !shown.contains("hidden-"), "{shown}");

    let debug = "[log]\nlevel = \"debug\"";
    assert_eq!(kv.reload(&format!("password_files = [\"password\"]\n{debug}")).status(), 200);
    kv.ask("AUTH hidden-wrong\r\nHELLO 3 AUTH default hidden-wrong\r\nAUTH hidden-right\r\nHELLO 3 AUTH default hidden-right\r\n");
    kv.reload(&format!("password_files = [\"password\", \"gone\"]\n{debug}"));
    let (log, metrics) = (kv.service.stderr(), kv.ask_admin("GET", "/metrics").text());
    assert!(log.contains("gone"), "{log}");
    assert!(!log.contains("hidden-") && !metrics.contains("hidden-"), "{log}");
}

#[test]
fn without_a_password_only_this_machine_is_served() {
    let everywhere = "listen = [\"0.0.0.0:0\"]\n";
    let kv = KvSetup::new(LARDER).file("password", "secret\n").start(everywhere);
    let port = kv.address().port();
    // An address of this machine besides loopback: the source of packets to other hosts. No packet is sent.
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    socket.connect("198.51.100.1:9").expect("a route");
    let own = socket.local_addr().expect("it is connected").ip();
    let (here, outside) = (SocketAddr::from(([127, 0, 0, 1], port)), SocketAddr::from((own, port)));
    assert_eq!(say(here, "PING\r\n"), "+PONG\r\n");
    let refused = say(outside, "PING\r\n");
    assert!(refused.starts_with("-DENIED ") && refused.contains("protected mode"), "{refused}");
    assert_eq!(refused.matches("\r\n").count(), 1, "{refused}");

    for (more, reply) in [("protected_mode = false", "+PONG"), ("password_files = [\"password\"]", NOAUTH)] {
        assert_eq!(kv.reload(&format!("{everywhere}{more}")).status(), 200);
        assert_eq!(say(outside, "PING\r\n"), format!("{reply}\r\n"));
    }
}

#[test]
fn more_clients_than_may_be_are_told_so() {
    let kv = KvService::start(LARDER, "[kv.limits]\nclients_max = 2");
    let mut clients: Vec<_> = (0..2).map(|_| Talker::connect(kv.address())).collect();
    clients.iter_mut().for_each(|client| client.expect("PING", "+PONG\r\n"));
    let full = "-ERR max number of clients reached\r\n";
    assert_eq!(Talker::connect(kv.address()).rest(), full);
    clients.pop();
    wait::until_true("there is room again", || kv.ask("PING\r\n") == "+PONG\r\n");
    assert_eq!(kv.reload("[kv.limits]\nclients_max = 3").status(), 200);
    clients.push(Talker::connect(kv.address()));
    clients[1].expect("PING", "+PONG\r\n");
    wait::until_true("a third is accepted", || kv.ask("PING\r\n") == "+PONG\r\n");
    clients[0].expect("CONFIG SET maxclients 1", "+OK\r\n");
    wait::until_true("a third is refused again", || kv.ask("PING\r\n") == full);
}

#[test]
fn idle_clients_are_closed_but_not_subscribers() {
    let kv = KvService::start(LARDER, "[kv.limits]\nidle_timeout = \"500ms\"");
    let mut clients = [(); 3].map(|()| Talker::connect(kv.address()));
    let [silent, busy, listening] = &mut clients;
    assert_eq!(listening.ask("SUBSCRIBE channel"), "*3");
    let begin = Instant::now();
    wait::until_true("the silent one is closed", || {
        busy.expect("PING", "+PONG\r\n");
        silent.is_closed()
    });
    assert!(begin.elapsed() >= Duration::from_millis(400), "closed after {:?}", begin.elapsed());
    busy.expect("PUBLISH channel x", ":1\r\n");
}

/// Lines of `[kv.tls]` for a server that only listens with TLS, with these files and more settings.
pub(crate) fn tls(identity: &Identity, more: &str) -> String {
    let (cert, key) = (identity.certificate.display(), identity.key.display());
    format!("listen = []\n[kv.tls]\nlisten = [\"127.0.0.1:0\"]\ncert = \"{cert}\"\nkey = \"{key}\"\n{more}\n")
}

/// Output of redis-cli for PING over TLS.
fn ping(kv: &KvService, authority: &Authority, identity: Option<&Identity>) -> String {
    let mut line = format!("--tls -p {} --cacert {}", kv.address().port(), authority.file().display());
    if let Some(Identity { certificate, key }) = identity {
        line += &format!(" --cert {} --key {}", certificate.display(), key.display());
    }
    let output = testkit::run("redis-cli", (line + " PING").split(' '));
    format!("{}{}", output.text(), output.stderr)
}

const NAMES: [&str; 2] = ["localhost", "127.0.0.1"];

#[test]
fn clients_may_speak_tls() {
    let (authority, other) = (Authority::new(), Authority::new());
    let identity = authority.identity(&NAMES);
    let kv = KvService::start(LARDER, &tls(&identity, ""));
    assert_eq!(ping(&kv, &authority, None), "PONG\n");
    assert_ne!(ping(&kv, &other, None), "PONG\n", "an unknown authority");
    let other_identity = other.identity(&NAMES);
    fs::copy(&other_identity.certificate, &identity.certificate).expect("a copy");
    fs::copy(&other_identity.key, &identity.key).expect("a copy");
    assert_eq!(kv.reload(&tls(&identity, "")).status(), 200);
    assert_eq!(ping(&kv, &other, None), "PONG\n", "a reload reads the files again");
}

#[test]
fn clients_may_need_certificates() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let identity = authority.identity(&NAMES);
    let own = |authority: &Authority| authority.identity(&["client"]);
    let file = clients.file();
    let ca = |more: &str| tls(&identity, &format!("client_ca_file = \"{}\"\n{more}", file.display()));
    let kv = KvService::start(LARDER, &ca(""));
    assert_eq!(ping(&kv, &authority, Some(&own(&clients))), "PONG\n");
    assert_ne!(ping(&kv, &authority, Some(&own(&authority))), "PONG\n", "another authority");
    assert_ne!(ping(&kv, &authority, None), "PONG\n");
    assert_eq!(kv.reload(&ca("client_certificates = \"optional\"")).status(), 200);
    assert_eq!(ping(&kv, &authority, None), "PONG\n");
    assert_ne!(ping(&kv, &authority, Some(&own(&authority))), "PONG\n", "another authority");
}

/// A server with a plain listener, followed by a TLS listener.
fn start_beside_tls(before: &str, more: &str) -> (Authority, KvService) {
    let authority = Authority::new();
    let settings = tls(&authority.identity(&NAMES), more).replacen("[]", "[\"127.0.0.1:0\"]", 1);
    let kv = KvService::start(LARDER, &format!("{before}\n{settings}"));
    (authority, kv)
}

fn shake_hands(address: SocketAddr, authority: &Authority) -> StreamOwned<ClientConnection, TcpStream> {
    let name = "localhost".try_into().expect("a name");
    let session = ClientConnection::new(tls_client(authority), name).expect("a session");
    let mut stream = StreamOwned::new(session, wait::connect(address));
    say_secretly(&mut stream, b"PING\r\n", b"+PONG\r\n");
    stream
}

#[track_caller]
fn say_secretly(stream: &mut StreamOwned<ClientConnection, TcpStream>, requests: &[u8], replies: &[u8]) {
    stream.write_all(requests).expect("it reads");
    let mut given = vec![0; replies.len()];
    stream.read_exact(&mut given).expect("it answers");
    assert!(given == replies, "{} bytes", replies.len());
}

/// The start of a value is kept while the rest arrives record by record. Both listeners serve the same keys.
#[test]
fn large_values_come_whole_through_tls() {
    let (authority, kv) = start_beside_tls("workers = 1", "");
    let mut stream = shake_hands(kv.addresses()[1], &authority);
    for bytes in [65_536, 200_000, 1_000_003] {
        let value: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
        let argument = [format!("${bytes}\r\n").as_bytes(), &value, b"\r\n"].concat();
        let set = [&request(&[b"SET", b"k", &value])[..], b"GET k\r\n"].concat();
        say_secretly(&mut stream, &set, &[&b"+OK\r\n"[..], &argument].concat());
        assert_eq!(kv.ask("STRLEN k\r\n"), format!(":{bytes}\r\n"));
    }
}

/// The command and the end of its connection arrive together, while the worker is busy.
#[test]
fn the_last_command_of_a_client_that_ends_without_notice_counts() {
    let (authority, kv) = start_beside_tls("workers = 1\nenable_debug_command = \"local\"", "");
    let mut leaving = shake_hands(kv.addresses()[1], &authority);
    let mut other = Talker::connect(kv.address());
    other.send("DEBUG SLEEP 0.5\r\n");
    leaving.write_all(b"SET last word\r\n").expect("it is sent");
    leaving.sock.shutdown(Shutdown::Write).expect("half closed");
    other.receive("+OK\r\n");
    let clients = || kv.ask("CLIENT LIST\r\n").lines().filter(|line| line.contains("id=")).count();
    wait::until_true("its end is seen", || clients() == 2);
    assert_eq!(kv.ask("GET last\r\n"), "$4\r\nword\r\n");
}

/// Each client is sent the ports for its own kind of connection.
#[test]
fn clients_of_a_cluster_stay_with_or_without_tls() {
    let nodes = "[kv.cluster]\nnode = \"a\"\ncross_slot = true
[[kv.cluster.nodes]]\nname = \"a\"\naddress = \"10.0.0.1:7001\"\ntls_port = 7101\nslots = [\"0-8191\"]
[[kv.cluster.nodes]]\nname = \"b\"\naddress = \"10.0.0.2:7002\"\ntls_port = 7102\nslots = [\"8192-16383\"]";
    let (authority, kv) = start_beside_tls("workers = 1", nodes);
    let of_tls = |request: &str| {
        let mut secret = shake_hands(kv.addresses()[1], &authority);
        secret.write_all(format!("{request}\r\nQUIT\r\n").as_bytes()).expect("it reads");
        let mut told = String::new();
        secret.read_to_string(&mut told).expect("it answers and sends close_notify");
        told
    };
    // "foo" is in slot 12182, "bar" and "hello" in two slots of this node.
    for (request, plain, secret) in [
        ("GET foo", "-MOVED 12182 10.0.0.2:7002\r\n", "-MOVED 12182 10.0.0.2:7102\r\n"),
        ("CLUSTER SLOTS", "$8\r\n10.0.0.1\r\n:7001\r\n", "$8\r\n10.0.0.1\r\n:7101\r\n"),
        ("CLUSTER NODES", " 10.0.0.2:7002@0 master", " 10.0.0.2:7102@0 master"),
        ("CLUSTER SHARDS", "port\r\n:7002\r\n$8\r\ntls-port\r\n:7102\r\n", "tls-port\r\n:7102\r\n"),
    ] {
        let [plain_told, secret_told] = [kv.ask(&format!("{request}\r\n")), of_tls(request)];
        assert!(plain_told.contains(plain), "{request}: {plain_told}");
        assert!(secret_told.contains(secret), "{request}: {secret_told}");
    }
    for (request, reply) in [
        ("MSET bar 1 hello 2\r\nMGET hello bar\r\n", "+OK\r\n*2\r\n$1\r\n2\r\n$1\r\n1\r\n"),
        ("MGET bar foo\r\n", "-CROSSSLOT Keys in request don't hash to the same slot\r\n"),
        ("MULTI\r\nINCR bar\r\nINCR hello\r\nEXEC\r\n", "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:2\r\n:3\r\n"),
    ] {
        assert_eq!(kv.ask(request), reply, "{request}");
    }
}

/// Until they authenticate, clients can send requests as large as in Redis. Protocol errors have the same wording.
#[test]
fn strangers_can_send_little_at_once() {
    let many = |count: usize| format!("*{count}\r\n{}", "$1\r\nx\r\n".repeat(count));
    let long = |bytes: usize| format!("*2\r\n$3\r\nGET\r\n${bytes}\r\n{}\r\n", "x".repeat(bytes));
    let kv = locked("");
    // Inline commands are limited by the length of a line.
    let short = "*1048577|*x|*2 ; $3 ; GET ; $16385|*2 ; $3 ; GET ; $536870913|*2 ; $3 ; GET ; $-1|\
        a b c d e f g h i j k l m|AUTH two ; *11|AUTH one ; RESET ; *11|AUTH one";
    let all = format!("{}|{}|{}|{short}\r\n{}{}", many(11), many(10), long(16_384), many(11), long(100_000));
    check_as_redis(&Redis::start("requirepass one"), &kv, &all);
    let greeted = kv.ask(&format!("HELLO 2 AUTH default one\r\n{}", many(11)));
    assert!(greeted.contains("unknown command 'x'"), "{greeted}");
    // The same holds for messages of the 0x1F protocol.
    let kv = locked("text_protocol = \"unit-separator\"");
    let set = format!("SET key {}", "x".repeat(100_000));
    assert_eq!(kv.ask(&set), "ERROR: NOAUTH Authentication required.\x1f");
    let mut client = Talker::connect(kv.address());
    assert_eq!(client.ask(request(&[b"AUTH", b"one"])), "+OK");
    client.send(format!("{set}\x1f"));
    client.receive("OK\x1f");
}

/// Number of connections that ended for `reason`.
fn ended(kv: &KvService, reason: &str) -> f64 {
    kv.metric(&format!("larder_kv_connections_ended_total{{reason=\"{reason}\"}}")).unwrap_or_default()
}

fn strangers(kv: &KvService) -> f64 {
    kv.metric("larder_kv_connections_unauthenticated").expect("it is there")
}

/// 150 unauthenticated clients once took 150 times the limit of a request, which evicted all keys.
#[test]
fn no_key_is_evicted_for_strangers() {
    for workers in [1, 2, 8] {
        let kv = locked(&format!("maxmemory = \"64MiB\"\nworkers = {workers}"));
        let buffers = || kv.metric("larder_kv_buffers_bytes").expect("it is there");
        let mut known = let_in(kv.address());
        let value = "v".repeat(1000);
        for from in (0..70_000).step_by(1000) {
            let sets: String = (from..from + 1000).map(|key| format!("SET key-{key} {value}\r\n")).collect();
            known.send(sets);
            known.receive("+OK\r\n".repeat(1000));
        }
        let before = known.ask("DBSIZE");
        // All but the last byte of the largest request that is permitted.
        let part = format!("${}\r\n{}\r\n", 16_384, "x".repeat(16_384));
        let request = format!("*10\r\n{}", part.repeat(10));
        let clients = (0..150).map(|_| {
            let mut stranger = Talker::connect(kv.address());
            // The server may have closed some of them.
            stranger.send(&request.as_bytes()[..request.len() - 1]);
            stranger
        });
        let clients: Vec<_> = clients.collect();
        wait::until_true("the clients with the most bytes are closed", || ended(&kv, "strangers") > 100.0);
        assert_eq!(known.ask("DBSIZE"), before, "{workers} workers");
        (0..100).for_each(|key| known.expect(&format!("SET more-{key} {value}"), "+OK\r\n"));
        wait::until_true("their buffers are bounded", || buffers() <= 3.0 * f64::from(1 << 20));
        drop(clients);
        wait::until_true("all are gone", || strangers(&kv) == 0.0);
        assert_eq!(buffers(), 0.0);
    }
}

/// Unauthenticated clients may reach `clients_max`.
#[test]
fn strangers_keep_nobody_out() {
    let kv = locked("[kv.limits]\nclients_max = 4");
    let _strangers: Vec<_> = (0..4).map(|_| Talker::connect(kv.address())).collect();
    wait::until_true("they are there", || strangers(&kv) == 4.0);
    let mut known: Vec<_> = (0..4).map(|_| let_in(kv.address())).collect();
    wait::until_true("all others are gone", || kv.metric("larder_kv_connections") == Some(4.0));
    assert_eq!(kv.ask("AUTH one\r\n"), "-ERR max number of clients reached\r\n");
    known.iter_mut().for_each(|client| client.expect("PING", "+PONG\r\n"));
}

#[test]
fn a_password_has_to_come_in_time() {
    let kv = locked("[kv.limits]\nauth_timeout = \"500ms\"");
    let mut known = let_in(kv.address());
    let (begin, mut stranger) = (Instant::now(), Talker::connect(kv.address()));
    wait::until_true("it is closed, even if it sends commands", || {
        stranger.send("PING\r\n");
        stranger.is_closed()
    });
    assert!(begin.elapsed() >= Duration::from_millis(400), "closed after {:?}", begin.elapsed());
    known.expect("PING", "+PONG\r\n");
    // RESET makes it unauthenticated again, and the time starts anew.
    let again = Instant::now();
    known.expect("RESET", "+RESET\r\n");
    wait::until_true("it is closed too", || known.is_closed());
    assert!(again.elapsed() >= Duration::from_millis(400), "closed after {:?}", again.elapsed());
    assert_eq!(ended(&kv, "auth_timeout"), 2.0);
}

/// This also applies without a password.
#[test]
fn a_handshake_has_to_end_in_time() {
    let (authority, kv) = start_beside_tls("workers = 1\nlimits = { auth_timeout = \"500ms\" }", "");
    let tls_address = kv.addresses()[1];
    let mut known = shake_hands(tls_address, &authority);
    let mut plain = Talker::connect(kv.address());
    let (mut silent, mut slow) = (Talker::connect(tls_address), Talker::connect(tls_address));
    // The start of a ClientHello.
    slow.send([0x16, 3, 1, 2, 0, 1, 0, 1]);
    wait::until_true("they are there", || strangers(&kv) == 2.0);
    for client in [&mut silent, &mut slow] {
        wait::until_true("it is closed", || client.is_closed());
    }
    assert_eq!(ended(&kv, "auth_timeout"), 2.0);
    say_secretly(&mut known, b"PING\r\n", b"+PONG\r\n");
    plain.expect("PING", "+PONG\r\n");
}

/// A partial handshake counts like a partial request, and one limit applies to all of them.
#[test]
fn handshakes_that_do_not_end_take_little_memory() {
    let (_authority, kv) = start_beside_tls("workers = 2\nmaxmemory = \"64MiB\"", "");
    let of_strangers = || kv.metric("larder_kv_buffers_bytes").expect("it is there") as usize;
    let begin = |_| {
        let mut client = Talker::connect(kv.addresses()[1]);
        // The first three of the four records of a 60,000-byte ClientHello.
        let mut records = [[0x16, 3, 1, 0x40, 0], [1, 0, 0xea, 0x60, 3]].concat();
        records.resize(5 + 0x4000, 3);
        records.extend([[0x16, 3, 3, 0x40, 0].as_slice(), &[3; 0x4000]].concat().repeat(2));
        client.send(&records);
        client
    };
    let first: Vec<_> = (0..10).map(begin).collect();
    wait::until_true("they count", || of_strangers() >= 10 * 3 * 0x4000);
    assert!(of_strangers() < 10 * 4 * 0x4000, "{}", of_strangers());
    let more: Vec<_> = (0..90).map(begin).collect();
    wait::until_true("the clients with the most bytes are closed", || ended(&kv, "strangers") >= 50.0);
    wait::until_true("the rest is within the limit", || of_strangers() <= 2 << 20);
    drop((first, more));
    wait::until_true("nothing is left", || of_strangers() == 0);
}

/// Removing the password authenticates a silent client too, so it isn't closed for a missing password.
#[test]
fn nobody_is_asked_for_a_password_that_is_gone() {
    let limits = "[kv.limits]\nauth_timeout = \"500ms\"";
    for is_reload in [false, true] {
        let kv = locked(limits);
        let mut known = let_in(kv.address());
        let mut change = |command: &str, lines: &str| {
            if is_reload {
                assert_eq!(kv.reload(&format!("{lines}{limits}")).status(), 200);
            } else {
                known.expect(command, "+OK\r\n");
            }
        };
        let mut silent = Talker::connect(kv.address());
        wait::until_true("it is there", || strangers(&kv) == 1.0);
        change("CONFIG SET requirepass \"\"", "");
        wait::until_true("no client is unauthenticated", || strangers(&kv) == 0.0);
        assert!(!silent.is_closed(), "it was closed");
        // A new password makes it unauthenticated again.
        change("CONFIG SET requirepass one", "password_files = [\"password\"]\n");
        wait::until_true("it is closed", || silent.is_closed());
        assert_eq!(ended(&kv, "auth_timeout"), 1.0);
        known.expect("PING", "+PONG\r\n");
    }
}
