//! Addresses: only one process for each, inherited sockets, connection limits, and notifications for a service manager.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use testkit::{Port, Service, Setup, Signal, run, wait};

use crate::LARDER;
use crate::admin::operator::{HIT, SITE, ends, halting, lasting, operate, site, start};

struct Another {
    service: Service,
    _folder: TempDir,
}

impl Another {
    fn start(arguments: &[&str]) -> Self {
        Self::of(Command::new(LARDER).args(arguments))
    }

    fn of(command: &mut Command) -> Self {
        Self::with(command, Stdio::null())
    }

    fn with(command: &mut Command, input: Stdio) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let service = Service::start_with(command, input, folder.path(), "larder");
        Self { service, _folder: folder }
    }

    /// Starts a process as a service manager does: a shell moves the socket to descriptor 3.
    fn activated(socket: OwnedFd, process: &str, arguments: &[&str]) -> Self {
        let script =
            format!("exec 3<&0 </dev/null; LISTEN_PID={process} LISTEN_FDS=1 LISTEN_FDNAMES=web exec \"$@\"");
        Self::with(Command::new("sh").args(["-c", &script, "sh", LARDER]).args(arguments), socket.into())
    }

    /// Waits until the process ends with status 1, and checks that it has printed `told`.
    #[track_caller]
    fn assert_refused(mut self, told: &str) {
        let (status, text) = (self.service.end(), self.service.stderr());
        assert_eq!(status.code(), Some(1), "{text}");
        assert!(text.contains(told), "{told:?} is not in {text:?}");
    }

    #[track_caller]
    fn listens(&self) {
        wait::until_true("it listens", || !self.service.listening().is_empty());
    }

    #[track_caller]
    fn stop(&mut self) {
        self.service.signal(Signal::TERM);
        assert_eq!(self.service.end().code(), Some(0), "{}", self.service.stderr());
    }
}

fn taken(address: &str) -> String {
    format!("can't listen on {address}: address in use by another process")
}

const PING: &str = "PING\r\nQUIT\r\n";

/// Sends a request on a new connection, which ends with the response.
fn asked(address: SocketAddr, question: &str) -> TcpStream {
    let mut client = TcpStream::connect(address).expect("it listens");
    client.write_all(question.as_bytes()).expect("it is queued at least");
    client
}

#[track_caller]
fn answered(mut client: TcpStream, part: &str) {
    client.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
    let mut text = String::new();
    client.read_to_string(&mut text).expect("an answer");
    assert!(text.contains(part), "{part:?} is not in {text:?}");
}

#[test]
fn an_address_is_for_one_process() {
    let (origin, kv) = (lasting(), Port::reserve());
    let kv = kv.address().to_string();
    let text = format!("workers = 2\n[kv]\nlisten = [\"{kv}\"]\nworkers = 2\n{}", site(&origin, ""));
    let larder = start(&text);
    let (listen, admin) = (larder.address().to_string(), larder.admin().to_string());
    let serve = ["serve", "--origin", "http://a"];
    for address in [&listen, &kv, &admin] {
        for address in ["127.0.0.1", "0.0.0.0", "[::]"].map(|host| address.replace("127.0.0.1", host)) {
            let gateway = [&serve[..], &["--admin", "127.0.0.1:0"]].concat();
            for arguments in [&["kv"][..], &["origin"], &gateway] {
                Another::start(&[arguments, &["--listen", &address]].concat())
                    .assert_refused(&taken(&address));
            }
        }
        let arguments = [&serve[..], &["--listen", "127.0.0.1:0", "--admin", address]].concat();
        Another::start(&arguments).assert_refused(&taken(address));
    }
    for _ in 0..20 {
        assert_eq!(larder.get("/").text(), "body", "all connections reach the first process");
    }
}

#[test]
fn one_of_many_processes_that_start_at_once_gets_the_address() {
    let serve = ["serve", "--origin", "http://a", "--admin", "127.0.0.1:0"];
    for command in [&["kv"][..], &serve] {
        let port = Port::reserve();
        let address = port.address().to_string();
        let arguments = [command, &["--workers", "2", "--listen", &address]].concat();
        let mut all: Vec<_> = (0..6).map(|_| Another::start(&arguments)).collect();
        let is_over = |one: &mut Another| one.service.status().is_some();
        wait::until_true("all but one have ended", || {
            all.iter_mut().map(is_over).filter(|is_over| *is_over).count() >= 5
        });
        let mut running = 0;
        for mut one in all {
            match is_over(&mut one) {
                true => one.assert_refused(&taken(&address)),
                false => {
                    running += 1;
                    TcpStream::connect(port.address()).expect("it listens");
                }
            }
        }
        assert_eq!(running, 1, "{command:?}");
    }
}

/// Clients of the stopping process are still being answered, and its closed connections are in TIME_WAIT.
#[test]
fn the_next_process_gets_the_address_while_the_last_drains() {
    let (gate, origin) = halting("no-store");
    let mut first = start(&site(&origin, ""));
    let address = first.address();
    let mut client = first.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").head();
    first.signal(Signal::TERM);
    wait::until_true("it accepts no connections", || TcpStream::connect(address).is_err());
    first.service().assert_runs();
    let listen = address.to_string();
    let arguments = ["serve", "--origin", "http://a", "--admin", "127.0.0.1:0", "--listen", &listen];
    let mut next = Another::start(&arguments);
    wait::until_true("the next one listens", || {
        next.service.assert_runs();
        TcpStream::connect(address).is_ok()
    });
    gate.open();
    assert_eq!(client.bytes(10), b"helloworld");
    ends(&mut first);
}

/// The soft limit of a shell is for programs that use `select`: it would limit a gateway to a thousand connections.
#[test]
fn the_gateway_takes_the_open_files_that_it_may_have() {
    let limited = ["sh", "-c", "ulimit -S -n 256; exec \"$0\" \"$@\""];
    let mut larder = Setup::config(LARDER, SITE).under(&limited).start();
    let limits = fs::read_to_string(format!("/proc/{}/limits", larder.service().id())).expect("it runs");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("a limit");
    let numbers: Vec<&str> = line.split_whitespace().skip(3).take(2).collect();
    assert_eq!(numbers[0], numbers[1], "{line}");
}

fn listeners(port: u16) -> usize {
    let sockets = run("ss", ["-tlnH", &format!("sport = :{port}")]).succeeded();
    sockets.text().lines().count()
}

/// One process may use a port in several addresses, and all its workers share it.
#[test]
fn workers_and_addresses_of_one_process_share_a_port() {
    let port = Port::reserve().address().port();
    let listen = format!("listen = [\"@listen@\", \"0.0.0.0:{port}\", \"[::]:{port}\"]\nworkers = 3\n");
    let larder = start(&(listen + SITE));
    assert_eq!((listeners(larder.address().port()), listeners(port)), (3, 6));
}

/// Scripts read the addresses of a server from its standard output.
#[test]
fn all_servers_announce_themselves_alike() {
    let listen = ["--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0"];
    let serve = [&["serve", "--origin", "http://a", "--admin", "127.0.0.1:0"][..], &listen].concat();
    for (arguments, schemes) in [
        ([&["kv"][..], &listen].concat(), ["redis", "redis"]),
        (serve.clone(), ["http", "http"]),
        (["origin", "--listen", "127.0.0.1:0", "--tls-listen", "127.0.0.1:0"].into(), ["http", "https"]),
    ] {
        let another = Another::start(&arguments);
        wait::until_true("all addresses are printed", || another.service.listening().len() == schemes.len());
        let text = another.service.stdout();
        for (line, scheme) in text.lines().zip(schemes) {
            let told = format!("listening on {scheme}://127.0.0.1:");
            assert!(line.starts_with(&told), "{arguments:?}: {text}");
        }
    }
    let another = Another::start(&[&serve[..], &["--access-log", "stdout"]].concat());
    wait::until_true("it listens", || another.service.stderr().matches("listening").count() == 2);
    assert_eq!(another.service.stdout(), "", "it is for the access log");
}

/// Receives the notifications of the process in place of a service manager.
struct Manager(UnixDatagram);

impl Manager {
    fn at(address: &UnixAddr) -> Self {
        let socket = UnixDatagram::bind_addr(address).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
        Self(socket)
    }

    #[track_caller]
    fn hears(&self, begin: &str) {
        let mut message = [0; 512];
        let length = self.0.recv(&mut message).expect("it is notified");
        let text = String::from_utf8_lossy(&message[..length]);
        assert!(text.starts_with(begin), "{begin:?} is not how {text:?} begins");
    }
}

#[test]
fn the_service_manager_is_told_of_each_step() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notify");
    let manager = Manager::at(&UnixAddr::from_pathname(&path).expect("a path"));
    let setup = Setup::config(LARDER, SITE);
    let mut larder = setup.environment("NOTIFY_SOCKET", path.to_str().expect("UTF-8")).start();
    manager.hears("READY=1\nSTATUS=serving clients");
    larder.signal(Signal::HUP);
    manager.hears("RELOADING=1\nMONOTONIC_USEC=");
    manager.hears("READY=1\nSTATUS=serving clients");
    larder.write_config("nonsense");
    assert_ne!(operate(&larder, &["reload"]).status, 0);
    manager.hears("RELOADING=1\nMONOTONIC_USEC=");
    manager.hears("READY=1\nSTATUS=serving clients; the new configuration was refused");
    larder.signal(Signal::TERM);
    manager.hears("STOPPING=1\n");
    ends(&mut larder);

    // An abstract socket name, without a file.
    let name = format!("larder-test-{}", folder.path().display());
    let manager = Manager::at(&UnixAddr::from_abstract_name(&name).expect("a name"));
    let port = Port::reserve();
    let listen = ["kv", "--listen", &port.address().to_string()];
    let mut kv = Another::of(Command::new(LARDER).args(listen).env("NOTIFY_SOCKET", format!("@{name}")));
    manager.hears("READY=1\n");
    TcpStream::connect(port.address()).expect("it accepts clients once it is ready");
    kv.stop();
    manager.hears("STOPPING=1\n");
}

/// The socket exists before and after the process, and clients that connect in between are not refused.
#[test]
fn a_socket_may_be_there_before_and_after_the_process() {
    let origin = lasting();
    let url = origin.url();
    let serve = ["serve", "--workers", "2", "--origin", &url];
    for (arguments, question, answer) in [
        ([&serve[..], &["--admin", "127.0.0.1:0", "--listen"]].concat(), HIT, "body"),
        ([&serve[..], &["--listen", "127.0.0.1:0", "--admin"]].concat(), LIVE, "true"),
        (vec!["kv", "--workers", "2", "--listen"], PING, "+PONG"),
    ] {
        let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = socket.local_addr().expect("it is bound");
        let listen = address.to_string();
        for _ in 0..2 {
            let early = asked(address, question);
            let inherited = socket.try_clone().expect("a descriptor");
            let arguments = [&arguments[..], &[&listen]].concat();
            let mut larder = Another::activated(inherited.into(), "$$", &arguments);
            let clients: Vec<_> = (0..8).map(|_| asked(address, question)).collect();
            clients.into_iter().chain([early]).for_each(|client| answered(client, answer));
            larder.stop();
        }
    }
}

const LIVE: &str = "GET /live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// Opens sockets that share an address, and becomes Larder with them.
const SPREAD: &str = "
import fcntl, os, socket, sys
count, (host, port) = int(sys.argv[1]), sys.argv[2].split(':')
opened = []
for _ in range(count):
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    one.bind((host, int(port)))
    one.listen()
    opened.append(fcntl.fcntl(one.fileno(), fcntl.F_DUPFD, 100))
for at, one in enumerate(opened):
    os.dup2(one, 3 + at)
    os.close(one)
os.environ['LISTEN_FDS'] = str(count)
os.execv(sys.argv[3], sys.argv[3:])
";

fn spread(count: usize, address: &str, arguments: &[&str]) -> Another {
    let words = ["-c", SPREAD, &count.to_string(), address, LARDER];
    Another::of(Command::new("python3").args(words).args(arguments))
}

/// The kernel distributes connections over the sockets: clients of a socket that no worker accepts from would hang.
#[test]
fn sockets_that_share_an_address_go_round_the_workers() {
    let origin = lasting();
    let url = origin.url();
    for (count, workers, listening) in [(2, "3", 3), (3, "2", 3)] {
        for (command, question, answer) in [
            (&["serve", "--origin", &url, "--admin", "127.0.0.1:0"][..], HIT, "body"),
            (&["kv"], PING, "+PONG"),
        ] {
            let port = Port::reserve();
            let address = port.address().to_string();
            let arguments = [command, &["--workers", workers, "--listen", &address]].concat();
            let larder = spread(count, &address, &arguments);
            larder.listens();
            assert_eq!(listeners(port.address().port()), listening, "{count} for {workers}");
            let clients: Vec<_> = (0..24).map(|_| asked(port.address(), question)).collect();
            clients.into_iter().for_each(|client| answered(client, answer));
        }
    }
}

#[test]
fn sockets_that_do_not_fit_are_told() {
    let port = Port::reserve();
    let address = port.address().to_string();
    let serve = ["serve", "--origin", "http://a", "--listen", "127.0.0.1:0", "--admin", &address];
    // The admin API accepts from only one socket, but the kernel would send some connections to the other.
    let told = format!("2 sockets are inherited for {address}, and the admin API takes one");
    spread(2, &address, &serve).assert_refused(&told);

    let kv = ["kv", "--listen", "127.0.0.1:0"];
    let listening = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listening.local_addr().expect("it is bound");
    let client = TcpStream::connect(address).expect("it listens");
    let told = "descriptor 3 (LISTEN_FDS) can't be used: ";
    Another::activated(client.into(), "$$", &kv).assert_refused(&format!("{told}it is a connection"));
    let datagrams = UdpSocket::bind("127.0.0.1:0").expect("a port");
    Another::activated(datagrams.into(), "$$", &kv).assert_refused(told);
    // The variables may be inherited from a process for which they were meant.
    let own = listening.try_clone().expect("a descriptor");
    let elsewhere = ["kv", "--listen", &address.to_string()];
    Another::activated(own.into(), "1", &elsewhere).assert_refused(&taken(&address.to_string()));
    let larder = Another::activated(listening.into(), "$$", &kv);
    larder.listens();
    let text = larder.service.stderr();
    let told = "closed an inherited socket: no listener in the configuration has its address";
    assert!(text.contains(told) && text.contains(&address.to_string()), "{text}");
    wait::until_true("nobody listens", || TcpStream::connect(address).is_err());
}

/// Before their steps are reached, signals have no effect, and don't end the process.
#[test]
fn signals_that_come_early_do_nothing() {
    let origin = lasting();
    let (folder, port) = (tempfile::tempdir().expect("a folder"), Port::reserve());
    let pipe = folder.path().join("pipe").display().to_string();
    run("mkfifo", [&pipe]).succeeded();
    let mut larder = Another::start(&["serve", &pipe, "--admin", "127.0.0.1:0"]);
    let status = format!("/proc/{}/status", larder.service.id());
    let early = [Signal::HUP, Signal::USR1, Signal::USR2];
    wait::until_true("signals are handled before the configuration is read", || {
        let caught = fs::read_to_string(&status).expect("it runs");
        let caught = caught.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("a set of signals");
        let caught = u64::from_str_radix(caught.trim(), 16).expect("a number");
        early.iter().all(|signal| caught >> (signal.as_raw() - 1) & 1 == 1)
    });
    early.iter().for_each(|signal| larder.service.signal(*signal));
    // Opening succeeds only once the process reads the pipe, which shows that it hasn't ended.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut writer = fs::OpenOptions::new();
    writer.write(true).custom_flags(nonblocking);
    let mut file = wait::until("it reads its file", || writer.open(&pipe).ok());
    let text = format!("listen = [\"{}\"]\n{}", port.address(), site(&origin, ""));
    file.write_all(text.as_bytes()).expect("it is read");
    drop(file);
    larder.listens();
    answered(asked(port.address(), HIT), "body");
    larder.stop();
}

/// A worker that accepts a connection may not know yet that another worker has just closed the previous one.
#[test]
fn the_place_of_a_closed_connection_is_for_the_next() {
    let origin = lasting();
    let larder = start(&format!("workers = 4\n{}", site(&origin, "[limits]\nconnections_max = 1\n")));
    for round in 0..300 {
        assert_eq!(larder.client().send(HIT).response().status(), 200, "{round}");
    }
    assert_eq!(larder.metric("larder_connections_refused_total", &[]), 0.0);
}

#[test]
fn requests_per_connection_are_limited() {
    let origin = lasting();
    let larder = start(&site(&origin, "[limits]\nrequests_per_connection_max = 2\n"));
    for _ in 0..2 {
        let mut client = larder.client();
        assert!(!client.get("/").head.fields.lists("connection", "close"));
        assert!(client.get("/").head.fields.lists("connection", "close"), "the last one says so");
        assert_eq!(client.rest(), b"");
    }
}
