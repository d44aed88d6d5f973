//! Who may use `larder kv`, and how long: passwords, protected mode, TLS, how many clients, idle ones.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use testkit::{Authority, Identity, KvService, KvSetup, Redis, converse, wait};

use crate::LARDER;

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(wait::DEADLINE)).expect("a time limit");
    stream
}

/// A command, and the first line of its reply.
fn ask(stream: &mut TcpStream, command: &str) -> String {
    write!(stream, "{command}\r\n").expect("it reads");
    next_line(stream)
}

fn next_line(stream: &mut TcpStream) -> String {
    let mut line = String::new();
    while !line.ends_with("\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("it answers");
        line.push(char::from(byte[0]));
    }
    line
}

/// The same to both gives the same from both; each line is a conversation.
fn check_as_redis(redis: &Redis, kv: &KvService, conversations: &[&str]) {
    for commands in conversations {
        let text = |address| {
            String::from_utf8_lossy(&converse(address, commands.as_bytes(), usize::MAX)).into_owned()
        };
        assert_eq!(text(kv.address()), text(redis.address()), "{commands}");
    }
}

const WITH_AND_WITHOUT_PASSWORD: [&str; 15] = [
    "PING\r\n",
    "GET a\r\nAUTH one\r\nGET a\r\n",
    "AUTH default one\r\nGET a\r\n",
    "AUTH two\r\nGET a\r\nAUTH one\r\nGET a\r\nAUTH two\r\nGET a\r\n",
    "AUTH somebody one\r\nGET a\r\n",
    "AUTH\r\nAUTH a b c\r\nAUTH one more words\r\n",
    "HELLO 3\r\nHELLO 3 AUTH default two\r\nHELLO 9\r\nHELLO 3 AUTH default\r\n",
    "AUTH one\r\nRESET\r\nGET a\r\n",
    "RESET\r\nECHO a\r\n",
    "NOSUCH a b\r\nGET\r\nSET a b c d e f g\r\n",
    "QUIT\r\n",
    "DBSIZE\r\nSELECT 1\r\nCLIENT ID\r\n",
    "CLIENT REPLY OFF\r\nPING\r\nAUTH one\r\nPING\r\n",
    "INFO\r\nCOMMAND COUNT\r\nFLUSHALL\r\n",
    "EVAL x 0\r\nEVAL\r\nEVALSHA_RO x 1 k\r\nFCALL f 0\r\nSCRIPT LOAD x\r\nSCRIPT EXISTS x\r\nFUNCTION LOAD x\r\nFUNCTION LIST\r\n",
];

#[test]
fn a_password_is_asked_for_as_redis_asks() {
    let redis = Redis::start("requirepass one");
    let kv = KvSetup::new(LARDER).file("password", "one\n").start("password_files = [\"password\"]");
    check_as_redis(&redis, &kv, &WITH_AND_WITHOUT_PASSWORD);
}

#[test]
fn without_a_password_nothing_is_asked_for() {
    let (redis, kv) = (Redis::start(""), KvService::start(LARDER, ""));
    check_as_redis(
        &redis,
        &kv,
        &[
            "AUTH one\r\n",
            "AUTH default one\r\nAUTH somebody one\r\nGET a\r\n",
            "AUTH\r\n",
            "RESET\r\nGET a\r\n",
        ],
    );
}

#[test]
fn what_is_refused_is_refused_as_redis_refuses() {
    let (redis, kv) = (Redis::start(""), KvService::start(LARDER, ""));
    check_as_redis(
        &redis,
        &kv,
        &[
            "EXEC x\r\n",
            "MULTI\r\nEXEC x\r\nEXEC\r\n",
            "SUBSCRIBE a\r\nEXEC\r\n",
            "EXEC\r\n",
            "EXPIRE a number BAD\r\nSET a 1\r\nEXPIRE a number BAD\r\nEXPIRE a number\r\n",
            "PEXPIREAT a 9223372036854775807 BAD\r\nEXPIRE a 9223372036854775807\r\n",
            "DEL a b\r\nMSETNX b 1 b 2\r\nGET b\r\nMSETNX b 3 a 1\r\nEXISTS a b\r\n",
            "CONFIG SET hz 0\r\nCONFIG GET hz\r\nCONFIG SET hz 1000\r\nCONFIG GET hz\r\nCONFIG SET hz -1\r\n",
        ],
    );
    assert!(kv.ask("CONFIG SET hz 50\r\nINFO server\r\n").contains("\r\nhz:50\r\nconfigured_hz:50\r\n"));
}

/// Also of a command that only its keys are asked of.
#[test]
fn passwords_are_shown_to_nobody() {
    let kv = KvService::start(LARDER, "");
    let mut monitor = connect(kv.address());
    assert_eq!(ask(&mut monitor, "MONITOR"), "+OK\r\n");
    let told = kv.ask(
        "CONFIG SET slowlog-log-slower-than 0\r\nCOMMAND GETKEYS AUTH hidden-1\r\n\
         COMMAND GETKEYSANDFLAGS HELLO 3 AUTH default hidden-2\r\nCOMMAND GETKEYS COMMAND GETKEYS AUTH hidden-3\r\n\
         COMMAND GETKEYS CONFIG SET requirepass hidden-4\r\nCOMMAND GETKEYS GET shown\r\nSLOWLOG GET 100\r\n",
    );
    assert!(told.contains("(redacted)") && told.contains("shown") && !told.contains("hidden-"), "{told}");
    let mut seen = String::new();
    while !seen.contains("shown") {
        seen.push_str(&next_line(&mut monitor));
    }
    assert!(seen.contains("\"AUTH\" \"(redacted)\"") && !seen.contains("hidden-"), "{seen}");
}

#[test]
fn a_new_password_takes_the_place_of_an_old_one() {
    let setup = KvSetup::new(LARDER).file("old", "first\n").file("new", "second\n");
    let kv = setup.start("password_files = [\"old\"]");
    let opens = |password: &str| kv.ask(&format!("AUTH {password}\r\n")) == "+OK\r\n";
    let mut client = connect(kv.address());
    assert_eq!(ask(&mut client, "AUTH first"), "+OK\r\n");
    assert!(opens("first") && !opens("second"));

    assert_eq!(kv.reload("password_files = [\"old\", \"new\"]").status(), 200);
    assert!(opens("first") && opens("second"));

    assert_eq!(kv.reload("password_files = [\"new\"]").status(), 200);
    assert!(!opens("first") && opens("second"));
    assert_eq!(ask(&mut client, "GET a"), "$-1\r\n", "who is in stays in");
}

/// A file that is about to be written anew is empty for a moment.
#[test]
fn a_reload_of_an_emptied_file_takes_no_password_away() {
    let kv = KvSetup::new(LARDER).file("password", "first\n").start("password_files = [\"password\"]");
    for emptied in ["", "# nothing\n", "[admin]\nlisten = \"127.0.0.1:1\"\n"] {
        kv.write_file("larder.toml", emptied);
        let refused = kv.ask_admin("POST", "/reload");
        assert_eq!(refused.status(), 422, "{emptied:?}: {}", refused.text());
        assert!(
            refused.text().contains("larder.toml") && refused.text().contains("kv: missing"),
            "{}",
            refused.text()
        );
        assert!(kv.ask("GET a\r\n").starts_with("-NOAUTH"), "{emptied:?}");
    }
    assert_eq!(kv.reload("password_files = [\"password\"]").status(), 200);
}

#[test]
fn passwords_are_in_no_log() {
    let setup = KvSetup::new(LARDER).file("password", "hidden-right\n");
    let kv = setup.start("password_files = [\"password\"]\n[log]\nlevel = \"debug\"");
    kv.ask("AUTH hidden-wrong\r\nHELLO 3 AUTH default hidden-wrong\r\nAUTH hidden-right\r\nHELLO 3 AUTH default hidden-right\r\n");
    kv.reload("password_files = [\"password\", \"gone\"]\n[log]\nlevel = \"debug\"");
    let (log, metrics) = (kv.service.stderr(), kv.ask_admin("GET", "/metrics").text());
    assert!(log.contains("gone"), "{log}");
    assert!(!log.contains("hidden-") && !metrics.contains("hidden-"), "{log}");
}

/// As in Redis: who is in stays in, and new clients are asked.
#[test]
fn a_password_can_be_set_while_clients_are_connected() {
    let (redis, kv) = (Redis::start(""), KvService::start(LARDER, ""));
    for address in [redis.address(), kv.address()] {
        let mut client = connect(address);
        for (commands, expected) in [
            ("CONFIG SET requirepass secret", "+OK\r\n"),
            ("PING", "+PONG\r\n"),
            ("CONFIG SET requirepass other hz 0x", "-ERR CONFIG SET failed"),
        ] {
            let given = ask(&mut client, commands);
            assert!(given.starts_with(expected), "{commands}: {given}");
        }
        let mut stranger = connect(address);
        for (command, expected) in [
            ("GET a", "-NOAUTH Authentication required.\r\n"),
            ("AUTH other", "-WRONGPASS invalid username-password pair or user is disabled.\r\n"),
            ("AUTH secret", "+OK\r\n"),
            ("GET a", "$-1\r\n"),
        ] {
            assert_eq!(ask(&mut stranger, command), expected, "{command}");
        }
        let mut waiting = connect(address);
        assert!(ask(&mut waiting, "GET a").starts_with("-NOAUTH"));
        assert_eq!(ask(&mut client, "CONFIG SET requirepass \"\""), "+OK\r\n");
        assert_eq!(ask(&mut waiting, "GET a"), "$-1\r\n");
        assert_eq!(ask(&mut connect(address), "GET a"), "$-1\r\n");
    }
}

/// Who comes then can send little at once until it has given the password. Who was there before goes on, and so does everybody without one.
#[test]
fn a_password_makes_strangers_of_those_who_come_after_it() {
    let (redis, kv) = (Redis::start(""), KvService::start(LARDER, ""));
    let exists = format!("*20\r\n$6\r\nEXISTS{}", "\r\n$1\r\nx".repeat(19));
    let set = format!("*3\r\n$3\r\nSET\r\n$4\r\nlong\r\n${}\r\n{}", 1 << 20, "v".repeat(1 << 20));
    for address in [redis.address(), kv.address()] {
        let mut known = connect(address);
        assert_eq!(ask(&mut known, "CONFIG SET requirepass secret"), "+OK\r\n");
        let mut waiting = connect(address);
        assert_eq!(ask(&mut waiting, "GET a"), "-NOAUTH Authentication required.\r\n");
        for (request, expected) in [
            ("*20", "-ERR Protocol error: unauthenticated multibulk length\r\n"),
            ("*2\r\n$3\r\nGET\r\n$1048576", "-ERR Protocol error: unauthenticated bulk length\r\n"),
        ] {
            assert_eq!(ask(&mut connect(address), request), expected, "{request}");
        }
        let goes_on = |client: &mut TcpStream| {
            assert_eq!(ask(client, &exists), ":0\r\n");
            assert_eq!(ask(client, &set), "+OK\r\n");
        };
        goes_on(&mut known);
        let mut admitted = connect(address);
        assert_eq!(ask(&mut admitted, "AUTH secret"), "+OK\r\n");
        goes_on(&mut admitted);
        assert_eq!(ask(&mut known, "CONFIG SET requirepass \"\""), "+OK\r\n");
        goes_on(&mut waiting);
    }
}

#[test]
fn secrets_are_shown_to_nobody() {
    let kv = KvService::start(LARDER, "[log]\nlevel = \"debug\"");
    let mut monitor = connect(kv.address());
    assert_eq!(ask(&mut monitor, "CONFIG SET slowlog-log-slower-than 0"), "+OK\r\n");
    assert_eq!(ask(&mut monitor, "MONITOR"), "+OK\r\n");
    let mut client = connect(kv.address());
    for command in [
        "CONFIG SET timeout 0 requirepass hidden-1",
        "config set masterauth hidden-2",
        "ACL SETUSER default on >hidden-3",
        "AUTH hidden-4",
        "AUTH default hidden-5",
        "HELLO 2 AUTH default hidden-6 SETNAME me",
        "MULTI",
        "CONFIG SET requirepass hidden-7",
        "EXEC",
        "CONFIG SET nosuch hidden-8",
        "CONFIG SET requirepass hidden-9 hz -1",
    ] {
        ask(&mut client, command);
    }
    let told = kv.ask(
        "AUTH hidden-7\r\nSLOWLOG GET 100\r\nCONFIG GET *\r\nINFO everything\r\nACL LIST\r\nCLIENT LIST\r\nECHO end\r\n",
    );
    assert!(told.contains("requirepass\r\n$10\r\n(redacted)\r\n") && !told.contains("hidden-"), "{told}");
    let mut shown = String::new();
    while !shown.contains("\"end\"") {
        shown += &next_line(&mut monitor);
    }
    assert!(shown.contains("AUTH") && !shown.contains("hidden-"), "{shown}");
    assert!(!kv.service.stderr().contains("hidden-"));
}

/// An address of this machine that is not loopback: the one that packets to others would come from. None is sent.
fn own_address() -> std::net::IpAddr {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    socket.connect("198.51.100.1:9").expect("a route");
    socket.local_addr().expect("it is connected").ip()
}

#[test]
fn without_a_password_only_this_machine_is_served() {
    let everywhere = "listen = [\"0.0.0.0:0\"]\n";
    let setup = KvSetup::new(LARDER).file("password", "secret\n");
    let kv = setup.start(everywhere);
    let port = kv.address().port();
    let (here, outside) = (SocketAddr::from(([127, 0, 0, 1], port)), SocketAddr::from((own_address(), port)));
    let text = |address| String::from_utf8_lossy(&converse(address, b"PING\r\n", usize::MAX)).into_owned();
    assert_eq!(text(here), "+PONG\r\n");
    let refused = text(outside);
    assert!(refused.starts_with("-DENIED ") && refused.contains("protected mode"), "{refused}");
    assert_eq!(refused.matches("\r\n").count(), 1, "{refused}");

    assert_eq!(kv.reload(&format!("{everywhere}protected_mode = false")).status(), 200);
    assert_eq!(text(outside), "+PONG\r\n");
    assert_eq!(kv.reload(&format!("{everywhere}password_files = [\"password\"]")).status(), 200);
    assert_eq!(text(outside), "-NOAUTH Authentication required.\r\n");
}

#[test]
fn more_clients_than_may_be_are_told_so() {
    let kv = KvService::start(LARDER, "[kv.limits]\nclients_max = 2");
    let mut clients: Vec<_> = (0..2).map(|_| connect(kv.address())).collect();
    clients.iter_mut().for_each(|client| assert_eq!(ask(client, "PING"), "+PONG\r\n"));
    let mut told = String::new();
    connect(kv.address()).read_to_string(&mut told).expect("it closes");
    assert_eq!(told, "-ERR max number of clients reached\r\n");
    clients.pop();
    wait::until_true("there is room again", || kv.ask("PING\r\n") == "+PONG\r\n");
    assert_eq!(kv.reload("[kv.limits]\nclients_max = 3").status(), 200);
    clients.push(connect(kv.address()));
    assert_eq!(ask(&mut clients[1], "PING"), "+PONG\r\n");
    wait::until_true("a third is let in", || kv.ask("PING\r\n") == "+PONG\r\n");
}

#[test]
fn clients_that_say_nothing_are_closed() {
    let kv = KvService::start(LARDER, "[kv.limits]\nidle_timeout = \"500ms\"");
    let (mut silent, mut busy) = (connect(kv.address()), connect(kv.address()));
    let mut listening = connect(kv.address());
    assert_eq!(ask(&mut listening, "SUBSCRIBE channel"), "*3\r\n");
    let begin = Instant::now();
    let end = wait::until("the silent one is closed", || {
        assert_eq!(ask(&mut busy, "PING"), "+PONG\r\n");
        silent.set_nonblocking(true).expect("a socket option");
        matches!(silent.read(&mut [0]), Ok(0)).then(|| begin.elapsed())
    });
    assert!(end >= Duration::from_millis(400), "closed after {end:?}");
    assert_eq!(ask(&mut busy, "PUBLISH channel x"), ":1\r\n", "who listens says nothing");
}

/// Addresses with TLS alone: the lines of `[kv.tls]` for these files, and more of them.
fn tls(identity: &Identity, more: &str) -> String {
    let (cert, key) = (identity.certificate.display(), identity.key.display());
    format!("listen = []\n[kv.tls]\nlisten = [\"127.0.0.1:0\"]\ncert = \"{cert}\"\nkey = \"{key}\"\n{more}\n")
}

/// What redis-cli prints for PING over TLS.
fn ping(kv: &KvService, authority: &Authority, identity: Option<&Identity>) -> String {
    let port = kv.address().port().to_string();
    let mut arguments = vec!["--tls".to_owned(), "-p".to_owned(), port, "--cacert".to_owned()];
    arguments.push(authority.file().display().to_string());
    if let Some(identity) = identity {
        arguments.extend(["--cert".to_owned(), identity.certificate.display().to_string()]);
        arguments.extend(["--key".to_owned(), identity.key.display().to_string()]);
    }
    arguments.push("PING".to_owned());
    let output = testkit::run("redis-cli", arguments);
    format!("{}{}", output.text(), output.stderr)
}

#[test]
fn clients_may_speak_tls() {
    let authority = Authority::new();
    let identity = authority.identity(&["localhost", "127.0.0.1"]);
    let kv = KvService::start(LARDER, &tls(&identity, ""));
    assert_eq!(ping(&kv, &authority, None), "PONG\n");
    assert_ne!(ping(&kv, &Authority::new(), None), "PONG\n", "an authority that nobody knows");
    // Who speaks plainly gets an alert, not a reply.
    assert!(!kv.ask("PING\r\n").contains("PONG"));

    let other = Authority::new();
    let other_identity = other.identity(&["localhost", "127.0.0.1"]);
    for (from, to) in
        [(&other_identity.certificate, &identity.certificate), (&other_identity.key, &identity.key)]
    {
        fs::copy(from, to).expect("a copy");
    }
    assert_eq!(kv.reload(&tls(&identity, "")).status(), 200);
    assert_eq!(ping(&kv, &other, None), "PONG\n", "a reload reads the files again");
}

#[test]
fn clients_may_need_certificates() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let identity = authority.identity(&["localhost", "127.0.0.1"]);
    let own = |authority: &Authority| authority.identity(&["client"]);
    let ca = |more: &str| {
        let mut lines = String::new();
        let file = clients.file();
        writeln!(lines, "client_ca_file = \"{}\"\n{more}", Path::new(&file).display()).expect("a string");
        tls(&identity, &lines)
    };
    let kv = KvService::start(LARDER, &ca(""));
    assert_eq!(ping(&kv, &authority, Some(&own(&clients))), "PONG\n");
    assert_ne!(ping(&kv, &authority, Some(&own(&authority))), "PONG\n", "signed by another");
    assert_ne!(ping(&kv, &authority, None), "PONG\n");
    assert_eq!(kv.reload(&ca("client_certificates = \"optional\"")).status(), 200);
    assert_eq!(ping(&kv, &authority, None), "PONG\n");
    assert_ne!(ping(&kv, &authority, Some(&own(&authority))), "PONG\n", "signed by another");
}

#[test]
fn both_kinds_of_listeners_serve_the_same_keys() {
    let (authority, kv) = start_beside_tls("");
    assert_eq!(kv.ask("SET a b\r\n"), "+OK\r\n");
    let port = kv.addresses()[1].port().to_string();
    let authority = authority.file().display().to_string();
    let output = testkit::run("redis-cli", ["--tls", "-p", &port, "--cacert", &authority, "GET", "a"]);
    assert_eq!(output.text(), "b\n");
}

/// A server with a listener beside that for TLS, which is its second.
fn start_beside_tls(more: &str) -> (Authority, KvService) {
    let authority = Authority::new();
    let identity = authority.identity(&["localhost", "127.0.0.1"]);
    let settings = tls(&identity, "").replacen("[]", "[\"127.0.0.1:0\"]", 1);
    let kv = KvService::start(LARDER, &format!("{more}\n{settings}"));
    (authority, kv)
}

/// A session of TLS whose handshake is done.
fn shake_hands(address: SocketAddr, authority: &Authority) -> (rustls::ClientConnection, TcpStream) {
    let mut roots = rustls::RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(authority.file()).expect("a certificate");
    roots.add(certificate).expect("one that can sign");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions that the provider has")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = "localhost".try_into().expect("a name");
    let mut session = rustls::ClientConnection::new(Arc::new(config), name).expect("a session");
    let mut stream = connect(address);
    rustls::Stream::new(&mut session, &mut stream).write_all(b"PING\r\n").expect("it reads");
    let mut reply = [0; 7];
    rustls::Stream::new(&mut session, &mut stream).read_exact(&mut reply).expect("it answers");
    assert_eq!(&reply, b"+PONG\r\n");
    (session, stream)
}

/// Their begin is kept while the rest comes, one record after the other.
#[test]
fn large_values_come_whole_through_tls() {
    let (authority, kv) = start_beside_tls("workers = 1");
    let (mut session, mut stream) = shake_hands(kv.addresses()[1], &authority);
    let mut stream = rustls::Stream::new(&mut session, &mut stream);
    for bytes in [65_536, 200_000, 1_000_003] {
        let value: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
        let argument = [format!("${bytes}\r\n").as_bytes(), &value, b"\r\n"].concat();
        let set = [&b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n"[..], &argument, b"GET k\r\n"].concat();
        stream.write_all(&set).expect("it reads");
        let expected = [&b"+OK\r\n"[..], &argument].concat();
        let mut given = vec![0; expected.len()];
        stream.read_exact(&mut given).expect("it answers");
        assert!(given == expected, "{bytes} bytes");
    }
}

/// The connection ends with its command, and both are there when the worker comes to it.
#[test]
fn the_last_command_of_a_client_that_ends_without_notice_counts() {
    let (authority, kv) = start_beside_tls("workers = 1\nenable_debug_command = \"local\"");
    let tls_address = kv.addresses()[1];
    let (mut session, mut leaving) = shake_hands(tls_address, &authority);
    let mut other = connect(kv.address());
    other.write_all(b"DEBUG SLEEP 0.5\r\n").expect("it reads");
    rustls::Stream::new(&mut session, &mut leaving).write_all(b"SET last word\r\n").expect("it is sent");
    leaving.shutdown(Shutdown::Write).expect("half closed");
    other.read_exact(&mut [0; 5]).expect("it has slept");
    wait::until_true("its end is seen", || {
        kv.ask("CLIENT LIST\r\n").lines().filter(|line| line.contains("id=")).count() == 2
    });
    assert_eq!(kv.ask("GET last\r\n"), "$4\r\nword\r\n");
}

/// Each is told the ports for what it speaks itself.
#[test]
fn clients_of_a_cluster_stay_with_or_without_tls() {
    let authority = Authority::new();
    let identity = authority.identity(&["localhost", "127.0.0.1"]);
    let settings = tls(&identity, "").replacen("[]", "[\"127.0.0.1:0\"]", 1);
    let nodes = "[kv.cluster]\nnode = \"a\"\ncross_slot = true
[[kv.cluster.nodes]]\nname = \"a\"\naddress = \"10.0.0.1:7001\"\ntls_port = 7101\nslots = [\"0-8191\"]
[[kv.cluster.nodes]]\nname = \"b\"\naddress = \"10.0.0.2:7002\"\ntls_port = 7102\nslots = [\"8192-16383\"]";
    let kv = KvService::start(LARDER, &format!("workers = 1\n{settings}\n{nodes}"));
    let (mut session, mut stream) = shake_hands(kv.addresses()[1], &authority);
    let mut secret = rustls::Stream::new(&mut session, &mut stream);
    let mut of_tls = |request: &str| {
        secret.write_all(format!("{request}\r\nECHO end\r\n").as_bytes()).expect("it reads");
        let mut told = Vec::new();
        while !told.ends_with(b"end\r\n") {
            let mut byte = [0];
            secret.read_exact(&mut byte).expect("it answers");
            told.extend(byte);
        }
        String::from_utf8_lossy(&told).into_owned()
    };
    // "foo" is in slot 12182, "bar" and "hello" in two others, both here.
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
    assert_eq!(kv.ask("MSET bar 1 hello 2\r\nMGET hello bar\r\n"), "+OK\r\n*2\r\n$1\r\n2\r\n$1\r\n1\r\n");
    let apart = "-CROSSSLOT Keys in request don't hash to the same slot\r\n";
    assert_eq!(kv.ask("MGET bar foo\r\n"), apart);
    let transaction = kv.ask("MULTI\r\nINCR bar\r\nINCR hello\r\nEXEC\r\n");
    assert_eq!(transaction, "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:2\r\n:3\r\n");
}

/// Until they have given the password, clients can send little at once: as much as in Redis, where what follows the protocol is told in the
/// same words.
#[test]
fn strangers_can_send_little_at_once() {
    let redis = Redis::start("requirepass one");
    let kv = KvSetup::new(LARDER).file("password", "one\n").start("password_files = [\"password\"]");
    let eleven = format!("*11\r\n{}", "$1\r\nx\r\n".repeat(11));
    let ten = format!("*10\r\n{}", "$1\r\nx\r\n".repeat(10));
    let long = |bytes: usize| format!("*2\r\n$3\r\nGET\r\n${bytes}\r\n{}\r\n", "x".repeat(bytes));
    let conversations = [
        eleven.clone(),
        ten,
        "*1048577\r\n".to_owned(),
        "*x\r\n".to_owned(),
        long(16_384),
        "*2\r\n$3\r\nGET\r\n$16385\r\n".to_owned(),
        "*2\r\n$3\r\nGET\r\n$536870913\r\n".to_owned(),
        "*2\r\n$3\r\nGET\r\n$-1\r\n".to_owned(),
        // Inline commands have the limit of a line.
        "a b c d e f g h i j k l m\r\n".to_owned(),
        format!("AUTH one\r\n{eleven}{}", long(100_000)),
        "AUTH two\r\n*11\r\n".to_owned(),
        "AUTH one\r\nRESET\r\n*11\r\n".to_owned(),
    ];
    check_as_redis(&redis, &kv, &conversations.each_ref().map(String::as_str));
    let greeted = kv.ask(&format!("HELLO 2 AUTH default one\r\n{eleven}"));
    assert!(greeted.contains("unknown command 'x'"), "{greeted}");
}

/// 150 of them took 150 times what a request may have, and all keys went for it.
#[test]
fn no_key_is_evicted_for_strangers() {
    for workers in [1, 2, 8] {
        let setup = KvSetup::new(LARDER).file("password", "one\n");
        let kv = setup
            .start(&format!("password_files = [\"password\"]\nmaxmemory = \"64MiB\"\nworkers = {workers}"));
        let mut known = connect(kv.address());
        assert_eq!(ask(&mut known, "AUTH one"), "+OK\r\n");
        let value = "v".repeat(1000);
        for from in (0..70_000).step_by(1000) {
            let sets: String = (from..from + 1000).map(|key| format!("SET key-{key} {value}\r\n")).collect();
            known.write_all(sets.as_bytes()).expect("it reads");
            known.read_exact(&mut [0; 5000]).expect("it answers");
        }
        let before = ask(&mut known, "DBSIZE");
        // All but the last byte of the largest request that is permitted, in two writes each.
        let part = format!("${}\r\n{}\r\n", 16_384, "x".repeat(16_384));
        let request = format!("*10\r\n{}", part.repeat(10));
        let strangers = (0..150).map(|_| {
            let mut stranger = connect(kv.address());
            // Some are closed meanwhile.
            let _ = stranger.write_all(&request.as_bytes()[..request.len() - 1]);
            stranger
        });
        let strangers: Vec<_> = strangers.collect();
        let ended = "larder_kv_connections_ended_total{reason=\"strangers\"}";
        wait::until_true("those with most are closed", || kv.metric(ended) > Some(100.0));
        assert_eq!(ask(&mut known, "DBSIZE"), before, "{workers} workers");
        for key in 0..100 {
            assert_eq!(ask(&mut known, &format!("SET more-{key} {value}")), "+OK\r\n");
        }
        wait::until_true("what is kept of them is bounded", || {
            kv.metric("larder_kv_buffers_bytes") <= Some(3.0 * f64::from(1 << 20))
        });
        drop(strangers);
        wait::until_true("all are gone", || kv.metric("larder_kv_connections_unauthenticated") == Some(0.0));
        assert_eq!(kv.metric("larder_kv_buffers_bytes"), Some(0.0));
    }
}

/// Whether the server has closed a connection.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).expect("a socket option");
    let read = stream.read(&mut [0; 64]);
    stream.set_nonblocking(false).expect("a socket option");
    !matches!(read, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

#[test]
fn strangers_make_way_for_each_other() {
    let limits = "[kv.limits]\nunauthenticated_max = 3\nclients_max = 5";
    let kv = KvSetup::new(LARDER)
        .file("password", "one\n")
        .start(&format!("password_files = [\"password\"]\nworkers = 2\n{limits}"));
    let mut known = connect(kv.address());
    assert_eq!(ask(&mut known, "AUTH one"), "+OK\r\n");
    let mut strangers = Vec::new();
    for number in 0..10 {
        let mut stranger = connect(kv.address());
        assert_eq!(ask(&mut stranger, "PING"), "-NOAUTH Authentication required.\r\n", "{number}");
        strangers.push(stranger);
    }
    let (old, new) = strangers.split_at_mut(7);
    old.iter_mut().for_each(|stranger| wait::until_true("it made way", || is_closed(stranger)));
    new.iter_mut().for_each(|stranger| {
        assert_eq!(ask(stranger, "PING"), "-NOAUTH Authentication required.\r\n");
    });
    assert_eq!(kv.metric("larder_kv_connections_unauthenticated"), Some(3.0));
    assert_eq!(kv.metric("larder_kv_connections_ended_total{reason=\"strangers\"}"), Some(7.0));
    // Whoever gives the password is none of them any more, and nobody who has is closed for others.
    assert_eq!(ask(&mut new[0], "AUTH one"), "+OK\r\n");
    let connect_as_last = |_| {
        let mut client = connect(kv.address());
        // Another worker might see the next one first.
        assert_eq!(ask(&mut client, "PING"), "-NOAUTH Authentication required.\r\n");
        client
    };
    let mut later: Vec<_> = (0..5).map(connect_as_last).collect();
    assert_eq!(ask(&mut later[4], "AUTH one"), "+OK\r\n");
    for client in [&mut known, &mut new[0], &mut later[4]] {
        assert_eq!(ask(client, "PING"), "+PONG\r\n");
    }
}

/// Those who were not let in may be all that `clients_max` permits.
#[test]
fn strangers_keep_nobody_out() {
    let kv = KvSetup::new(LARDER)
        .file("password", "one\n")
        .start("password_files = [\"password\"]\n[kv.limits]\nclients_max = 4");
    let strangers: Vec<_> = (0..4).map(|_| connect(kv.address())).collect();
    wait::until_true("they are there", || kv.metric("larder_kv_connections_unauthenticated") == Some(4.0));
    let mut known: Vec<_> = (0..4)
        .map(|number| {
            let mut client = connect(kv.address());
            assert_eq!(ask(&mut client, "AUTH one"), "+OK\r\n", "{number}");
            client
        })
        .collect();
    wait::until_true("all others are gone", || kv.metric("larder_kv_connections") == Some(4.0));
    assert_eq!(kv.ask("AUTH one\r\n"), "-ERR max number of clients reached\r\n");
    known.iter_mut().for_each(|client| assert_eq!(ask(client, "PING"), "+PONG\r\n"));
    drop(strangers);
}

#[test]
fn a_password_has_to_come_in_time() {
    let limits = "[kv.limits]\nauth_timeout = \"500ms\"";
    let kv = KvSetup::new(LARDER)
        .file("password", "one\n")
        .start(&format!("password_files = [\"password\"]\n{limits}"));
    let mut known = connect(kv.address());
    assert_eq!(ask(&mut known, "AUTH one"), "+OK\r\n");
    let (begin, mut stranger) = (Instant::now(), connect(kv.address()));
    // Whatever it says meanwhile.
    wait::until_true("it is closed", || stranger.write_all(b"PING\r\n").is_err() || is_late(&mut stranger));
    assert!(begin.elapsed() >= Duration::from_millis(400), "closed after {:?}", begin.elapsed());
    assert_eq!(ask(&mut known, "PING"), "+PONG\r\n");
    // With RESET it is a stranger again, from now on.
    let again = Instant::now();
    assert_eq!(ask(&mut known, "RESET"), "+RESET\r\n");
    wait::until_true("it is closed too", || is_closed(&mut known));
    assert!(again.elapsed() >= Duration::from_millis(400), "closed after {:?}", again.elapsed());
    assert_eq!(kv.metric("larder_kv_connections_ended_total{reason=\"auth_timeout\"}"), Some(2.0));
}

/// As [`is_closed`], past what was replied.
fn is_late(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).expect("a socket option");
    let mut reply = [0; 4096];
    let end = loop {
        match stream.read(&mut reply) {
            Ok(1..) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break false,
            _ => break true,
        }
    };
    stream.set_nonblocking(false).expect("a socket option");
    end
}

/// Without a password too.
#[test]
fn a_handshake_has_to_end_in_time() {
    let (authority, kv) = start_beside_tls("workers = 1\nlimits = { auth_timeout = \"500ms\" }");
    let tls_address = kv.addresses()[1];
    let (mut session, mut known) = shake_hands(tls_address, &authority);
    let mut plain = connect(kv.address());
    let mut silent = connect(tls_address);
    let mut slow = connect(tls_address);
    // The begin of a ClientHello.
    slow.write_all(&[0x16, 3, 1, 2, 0, 1, 0, 1]).expect("it reads");
    wait::until_true("they are there", || kv.metric("larder_kv_connections_unauthenticated") == Some(2.0));
    for stream in [&mut silent, &mut slow] {
        wait::until_true("it is closed", || is_closed(stream));
    }
    assert_eq!(kv.metric("larder_kv_connections_ended_total{reason=\"auth_timeout\"}"), Some(2.0));
    let mut known = rustls::Stream::new(&mut session, &mut known);
    known.write_all(b"PING\r\n").expect("it reads");
    known.read_exact(&mut [0; 7]).expect("it answers");
    assert_eq!(ask(&mut plain, "PING"), "+PONG\r\n", "nothing is asked of it");
}

/// What they send of the handshake counts as what others send of a request, and is bounded for all of them.
#[test]
fn handshakes_that_do_not_end_take_little_memory() {
    let (_authority, kv) = start_beside_tls("workers = 2\nmaxmemory = \"64MiB\"");
    let of_strangers = || kv.metric("larder_kv_buffers_bytes").expect("it is there") as usize;
    let begin = || {
        let mut stream = connect(kv.addresses()[1]);
        // A ClientHello of 60,000 bytes, of which three of four records come.
        let mut records = [[0x16, 3, 1, 0x40, 0], [1, 0, 0xea, 0x60, 3]].concat();
        records.resize(5 + 0x4000, 3);
        records.extend([[0x16, 3, 3, 0x40, 0].as_slice(), &[3; 0x4000]].concat().repeat(2));
        stream.write_all(&records).expect("it reads");
        stream
    };
    let first: Vec<_> = (0..10).map(|_| begin()).collect();
    wait::until_true("they count", || of_strangers() >= 10 * 3 * 0x4000);
    assert!(of_strangers() < 10 * 4 * 0x4000, "{}", of_strangers());
    let more: Vec<_> = (0..90).map(|_| begin()).collect();
    let ended = || kv.metric("larder_kv_connections_ended_total{reason=\"strangers\"}").unwrap_or_default();
    wait::until_true("those who take most have to go", || ended() >= 50.0);
    wait::until_true("what is left is within the limit", || of_strangers() <= 2 << 20);
    drop((first, more));
    wait::until_true("nothing is left", || of_strangers() == 0);
}

/// Who has said nothing is let in with everybody else, and not closed for the password that it did not give.
#[test]
fn nobody_is_asked_for_a_password_that_is_gone() {
    let limits = "[kv.limits]\nauth_timeout = \"500ms\"";
    let with_password = format!("password_files = [\"password\"]\n{limits}");
    let waiting = |kv: &KvService| kv.metric("larder_kv_connections_unauthenticated");
    for is_reload in [false, true] {
        let kv = KvSetup::new(LARDER).file("password", "one\n").start(&with_password);
        let mut known = connect(kv.address());
        assert_eq!(ask(&mut known, "AUTH one"), "+OK\r\n");
        let mut silent = connect(kv.address());
        wait::until_true("it is there", || waiting(&kv) == Some(1.0));
        if is_reload {
            assert_eq!(kv.reload(limits).status(), 200);
        } else {
            assert_eq!(ask(&mut known, "CONFIG SET requirepass \"\""), "+OK\r\n");
        }
        wait::until_true("nobody waits", || waiting(&kv) == Some(0.0));
        assert!(!is_closed(&mut silent), "it was closed");
        // Where there is one again, who has not given it waits again.
        if is_reload {
            assert_eq!(kv.reload(&with_password).status(), 200);
        } else {
            assert_eq!(ask(&mut known, "CONFIG SET requirepass one"), "+OK\r\n");
        }
        wait::until_true("it is closed", || is_closed(&mut silent));
        assert_eq!(kv.metric("larder_kv_connections_ended_total{reason=\"auth_timeout\"}"), Some(1.0));
        assert_eq!(ask(&mut known, "PING"), "+PONG\r\n");
    }
}

/// The same holds for messages of the 0x1F protocol.
#[test]
fn strangers_can_send_little_in_text_too() {
    let kv = KvSetup::new(LARDER)
        .file("password", "one\n")
        .start("password_files = [\"password\"]\ntext_protocol = \"unit-separator\"");
    let told = kv.ask(&format!("SET key {}", "x".repeat(100_000)));
    assert_eq!(told, "ERROR: NOAUTH Authentication required.\x1f");
    let mut client = connect(kv.address());
    client.write_all(b"*2\r\n$4\r\nAUTH\r\n$3\r\none\r\n").expect("it reads");
    client.read_exact(&mut [0; 5]).expect("it answers");
    client.write_all(format!("SET key {}\x1f", "x".repeat(100_000)).as_bytes()).expect("it reads");
    let mut reply = [0; 3];
    client.read_exact(&mut reply).expect("it answers");
    assert_eq!(&reply, b"OK\x1f");
}
