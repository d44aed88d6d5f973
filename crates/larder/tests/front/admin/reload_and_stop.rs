//! What operators do to the running binary: purge, reload, stop.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use testkit::{Client, Gate, Larder, Port, ScriptedOrigin, Service, Setup, Signal, run, wait};

use crate::LARDER;

fn config(origin: &ScriptedOrigin, more: &str) -> String {
    format!("[[site]]\nname = \"a\"\norigin = \"{}\"\n{more}", origin.url())
}

fn operate(larder: &Larder, arguments: &[&str]) -> Output {
    let admin = larder.admin().to_string();
    Command::new(LARDER).args(arguments).args(["--admin", &admin]).output().expect("the binary runs")
}

/// The same, with lines on standard input.
fn operate_with(larder: &Larder, arguments: &[&str], input: &str) -> Output {
    let admin = larder.admin().to_string();
    let mut command = Command::new(LARDER);
    command.args(arguments).args(["--admin", &admin]).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(input.as_bytes()).expect("it reads");
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

#[track_caller]
fn check(output: &Output, status: i32, part: &str) {
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(status), "{text}");
    assert!(text.contains(part), "{part:?} is not in {text:?}");
}

#[test]
fn purge_by_command() {
    let origin = ScriptedOrigin::fixed("Cache-Control: max-age=60\r\nETag: \"1\"\r\n", "body");
    let larder = Setup::origin(LARDER, &origin.url()).start();
    // The host that clients ask for counts, not the address that they connect to.
    let url = "http://test.example/x";
    assert!(larder.get("/x").cache_status().contains("stored"));
    check(
        &operate(&larder, &["purge", url]),
        0,
        "(hard): stored responses 1 (all variants of 1 cache key), responses still arriving 0",
    );
    assert!(larder.get("/x").cache_status().contains("fwd=uri-miss"));
    check(&operate(&larder, &["purge", "--soft", url]), 0, "(soft): stored responses 1");
    assert!(larder.get("/x").cache_status().contains("fwd=stale"));
    let nothing = operate(&larder, &["purge", "http://test.example/never-asked"]);
    check(&nothing, 3, "no stored response for http://test.example/never-asked");
    check(&nothing, 3, "site default: any other host, paths below /");
    check(&operate(&larder, &["purge", "nonsense"]), 1, "refused (400 Bad Request)");
}

#[test]
fn status_says_how_it_does() {
    let origin = ScriptedOrigin::fixed("Cache-Control: max-age=60\r\n", "body");
    let larder = Setup::origin(LARDER, &origin.url()).start();
    for _ in 0..4 {
        larder.get("/x");
    }
    let told = operate(&larder, &["status"]);
    check(
        &told,
        0,
        ": ready\nrequests: 4 answered, 75.0 % of them from the cache; 0 in flight\nstore: 1 response, ",
    );
    check(&told, 0, " of 256.0 MiB\n");
    let told = operate(&larder, &["status", "--json"]);
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).expect("JSON");
    assert_eq!((&told["ready"], &told["requests"]["from_cache"]), (&true.into(), &3.into()), "{told}");
    assert_eq!((&told["stores"][0]["name"], &told["stores"][0]["responses"]), (&"default".into(), &1.into()));
}

/// The address of the gateway is easily taken for that of the admin API, and an origin may answer anything to anybody.
#[test]
fn a_wrong_admin_address_is_told() {
    let origin = ScriptedOrigin::fixed("Content-Type: application/json\r\n", "{\"ready\":true}");
    let setup = Setup::origin(LARDER, &origin.url());
    let larder = setup.file("token", "0123456789abcdef\n").start();
    let gateway = larder.address().to_string();
    let tip =
        format!("{gateway} isn't an admin API of Larder: give the address of `[admin] listen` with --admin");
    for command in
        ["status", "reload", "upgrade", "purge http://a/", "purge --everything", "explain http://a/"]
    {
        let arguments = command.split(' ').chain(["--admin", &gateway, "--token-file", "token"]);
        let asked = Command::new(LARDER).current_dir(larder.folder()).args(arguments).output();
        check(&asked.expect("the binary runs"), 1, &tip);
    }
    for request in origin.received() {
        assert_eq!((request.method(), request.field("authorization")), ("GET", ""), "nothing was changed");
    }
}

/// A process may end, or hand over, between the connection and the request.
#[test]
fn a_command_asks_once_more_where_it_got_no_answer() {
    let check_closing = |closed: usize, expected: i32, part: &str| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let admin = listener.local_addr().expect("it is bound").to_string();
        let server = thread::spawn(move || {
            (0..closed).for_each(|_| drop(listener.accept().expect("a connection")));
            if closed > 1 {
                return;
            }
            for body in [r#"{"name":"larder","routes":[]}"#, "{}"] {
                let (stream, _) = listener.accept().expect("a connection");
                let mut head = BufReader::new(&stream).lines().map_while(Result::ok);
                assert!(head.any(|line| line.is_empty()), "a request");
                let mut client = Client::over(stream);
                client.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
            }
        });
        let asked = Command::new(LARDER).args(["reload", "--admin", &admin]).output();
        check(&asked.expect("the binary runs"), expected, part);
        server.join().expect("no panic");
    };
    check_closing(1, 0, "configuration reloaded");
    check_closing(2, 1, "closes connections without an answer");
}

/// What no site serves is purged for the sake of sites that were there before, and probably misspelt.
#[test]
fn a_purge_of_a_host_that_no_site_serves_says_so() {
    let origin = ScriptedOrigin::fixed("Cache-Control: max-age=60\r\n", "body");
    let sites = format!(
        "hosts = [\"www.example.org\"]\n[[site]]\nname = \"Z\"\nhosts = [\"z.example\"]\norigin = \"{0}\"\n\
         [[site]]\nname = \"B\"\nhosts = [\"*.b.example\"]\npath_prefix = \"/shop\"\norigin = \"{0}\"\n",
        origin.url()
    );
    let larder = Setup::config(LARDER, &config(&origin, &sites)).start();
    let purge = |arguments: &[&str]| operate(&larder, &[&["purge"], arguments].concat());
    let listed = "site B: *.b.example, paths below /shop\nsite Z: z.example, paths below /\nsite a: www";
    for (arguments, told) in [
        (["--host", "www.exmaple.org"], "warning: no site serves the host www.exmaple.org\n"),
        (
            ["--prefix", "https://www.exmaple.org/a"],
            "warning: no site serves the host www.exmaple.org below /a\n",
        ),
        (["--prefix", "assets/"], "warning: `assets` is taken as a host; write `/assets/` for a path\n"),
        (["--prefix", "x.b.example/img"], "warning: no site serves the host x.b.example below /img\n"),
    ] {
        let purged = purge(&arguments);
        check(&purged, 3, told);
        check(&purged, 3, listed);
        check(
            &purged,
            3,
            &format!("purged {} {} (hard)", arguments[0].trim_start_matches('-'), arguments[1]),
        );
    }
    for arguments in [
        ["--host", "WWW.example.org"],
        ["--host", "x.b.example:8080"],
        ["--prefix", "x.b.example/sh"],
        ["--prefix", "x.b.example/shop/a"],
        ["--prefix", "/assets"],
    ] {
        let purged = purge(&arguments);
        check(
            &purged,
            0,
            &format!("purged {} {} (hard)", arguments[0].trim_start_matches('-'), arguments[1]),
        );
        assert!(!String::from_utf8_lossy(&purged.stderr).contains("warning"), "{purged:?}");
    }
    let other = purge(&["--site", "Z", "--host", "www.example.org"]);
    check(&other, 3, "warning: site Z doesn't serve the host www.example.org\n");
    check(&purge(&["--site", "B", "--prefix", "/img"]), 3, "warning: site B doesn't serve below /img\n");
    for host in ["*.b.example", "z.example:99999"] {
        check(&purge(&["--host", host]), 1, "is no host: write it as clients send it");
    }
    // A site for all hosts has this one too, and yet it is hardly meant.
    let larder = Setup::origin(LARDER, &origin.url()).start();
    check(&operate(&larder, &["purge", "--prefix", "assets"]), 0, "write `/assets` for a path");
}

/// A list of URLs has one result and one exit status, and one that is wrong does not keep the others in the cache.
#[test]
fn purge_of_many_urls() {
    let origin = ScriptedOrigin::fixed("Cache-Control: max-age=60\r\n", "body");
    let larder = Setup::origin(LARDER, &origin.url()).start();
    let store = || ["/a", "/b", "/c"].iter().for_each(|path| drop(larder.get(path)));
    store();
    let [a, b, c] = ["a", "b", "c"].map(|name| format!("http://test.example/{name}"));
    check(
        &operate(&larder, &["purge", &a, &b, &c]),
        0,
        "URLs: 3 purged, 0 without a stored response, 0 refused\n",
    );
    check(
        &operate(&larder, &["purge", &a, &b]),
        3,
        "URLs: 0 purged, 2 without a stored response, 0 refused\n",
    );
    store();
    let purged = operate_with(&larder, &["purge", "-"], &format!("{a}\n\nnonsense\n  {b}\r\n"));
    check(&purged, 1, "URLs: 2 purged, 0 without a stored response, 1 refused\n");
    check(&purged, 1, "larder: nonsense: refused (400 Bad Request)");
    check(&operate_with(&larder, &["purge", &c, "-", "--soft"], &a), 0, "URLs: 1 purged, 1 without");
    check(&operate_with(&larder, &["purge", "-"], ""), 3, "URLs: 0 purged");
}

/// There is no list of what lies under keys with more than the URL, but it goes out of use too.
#[test]
fn a_purge_says_what_it_does_not_count() {
    let origin = ScriptedOrigin::fixed("Cache-Control: max-age=60\r\n", "body");
    let larder = Setup::origin(LARDER, &origin.url()).start();
    let query = || {
        let mut client = larder.client();
        let fields = "Host: test.example\r\nContent-Type: text/plain\r\nContent-Length: 1\r\n";
        client.send(format!("QUERY /x HTTP/1.1\r\n{fields}\r\nq"));
        client.response().cache_status()
    };
    let purge = || operate(&larder, &["purge", "http://test.example/x"]);
    let not_counted = "they are not counted";
    let before = purge();
    check(&before, 3, "no stored response for http://test.example/x");
    assert!(!String::from_utf8_lossy(&before.stderr).contains(not_counted), "nothing has such a key");
    assert!(query().contains("stored"));
    assert!(query().contains("hit"));
    check(&purge(), 3, not_counted);
    assert!(query().contains("fwd="));
    larder.get("/x");
    check(&purge(), 0, "stored responses 1");
    check(&purge(), 3, not_counted);
}

//= RFC 9111 section 7: stored content is sensitive
#[test]
fn purge_with_a_token() {
    let origin = ScriptedOrigin::fixed("", "body");
    let port = Port::reserve();
    // Readiness is asked for without a token, so it is on an address of its own here.
    let addresses = format!("listen = \"{}\"\nprobes_listen = \"@admin@\"", port.address());
    let text = config(&origin, &format!("[admin]\n{addresses}\ntoken_file = \"token\"\n"));
    let setup = Setup::config(LARDER, &text);
    let larder = setup.file("token", "0123456789abcdef\n").file("wrong", "0123456789abcdeF\n").start();
    let url = larder.url("/x");
    let purge = |more: &[&str]| {
        let admin = port.address().to_string();
        let arguments = ["purge", &url, "--admin", &admin].into_iter().chain(more.iter().copied());
        Command::new(LARDER).current_dir(larder.folder()).args(arguments).output().expect("the binary runs")
    };
    check(&purge(&["--token-file", "token"]), 3, "no stored response for");
    check(&purge(&["--token-file", "wrong"]), 1, "refused (401 Unauthorized)");
    check(&purge(&[]), 1, "the admin API needs a token: give --token-file");
    check(&operate(&larder, &["purge", &url]), 1, "has only probes and metrics (`[admin] probes_listen`)");
    check(&operate(&larder, &["status"]), 0, "ready");
}

/// Who purges from inside may know neither the scheme nor the port that clients see.
#[test]
fn a_purge_reaches_either_scheme_and_each_port() {
    let origin = ScriptedOrigin::fixed("Cache-Control: max-age=60\r\n", "body");
    let hosts = "hosts = [\"127.0.0.1\"]\n[[site]]\nname = \"other\"\nhosts = [\"x.example\"]\npath_prefix = \"/y\"\n";
    let text = config(&origin, &format!("{hosts}origin = \"{}\"\n", origin.url()));
    let larder = Setup::config(LARDER, &text).start();
    let url = larder.url("/x");
    let port = format!(":{}", larder.address().port());
    for other in [url.replace(&port, ""), url.replace("http:", "https:"), url.replace(&port, ":1")] {
        let mut client = larder.client();
        client.send(format!("GET /x HTTP/1.1\r\nHost: {}\r\n\r\n", larder.address()));
        assert!(client.response().cache_status().contains("stored"), "{other}");
        check(&operate(&larder, &["purge", &other]), 0, "stored responses 1");
        let purged = operate(&larder, &["purge", &other]);
        check(&purged, 3, &format!("no stored response for {other}"));
        check(&purged, 3, "site other: x.example, paths below /y\n");
    }
    let foreign = operate(&larder, &["purge", "http://foreign.example/"]);
    check(&foreign, 1, "no site serves this URL\nsite a: 127.0.0.1, paths below /\nsite other:");
}

#[test]
fn a_reload_tells_what_it_leaves_as_it_was() {
    let origin = ScriptedOrigin::fixed("", "body");
    let mut larder = Setup::config(LARDER, &config(&origin, "")).start();
    larder.write_config(&config(&origin, "[store]\nmemory = \"300MiB\"\n"));
    let reloaded = operate(&larder, &["reload"]);
    let stays = "warning: store.memory: changed, but takes effect only after a restart";
    check(&reloaded, 0, stays);
    check(&reloaded, 0, "configuration reloaded");
    larder.write_config(&config(&origin, "[store]\nmemory = \"1\"\n"));
    let refused = operate(&larder, &["reload"]);
    check(&refused, 1, "error: store.memory: expected a size");
    let told = String::from_utf8_lossy(&refused.stderr).into_owned() + &larder.stderr();
    assert_eq!(told.matches("changed, but takes effect").count(), 1, "only of the reload before: {told}");
}

/// Even where a reload would leave the wrong value out: the next start could not.
#[test]
fn a_reload_refuses_what_a_start_refuses() {
    let origin = ScriptedOrigin::fixed("", "body");
    let mut larder = Setup::config(LARDER, &config(&origin, "")).start();
    for (more, told) in [
        (
            "[admin]\nlisten = \"not an address\"\n#@admin@\n",
            "error: admin.listen: expected an address and port",
        ),
        ("store = \"b\"\n", "error: site[a].store: "),
    ] {
        larder.write_config(&config(&origin, more));
        let file = larder.folder().join("larder.toml").display().to_string();
        let checked = run(LARDER, ["check", &file]);
        assert_eq!(checked.status, 1, "{more}: {}", checked.text());
        assert!(checked.text().contains(told), "{more}: {}", checked.text());
        let refused = operate(&larder, &["reload"]);
        check(&refused, 1, told);
        assert!(!larder.stderr().contains("takes effect only"), "{}", larder.stderr());
    }
    larder.write_config(&config(&origin, ""));
    check(&operate(&larder, &["reload"]), 0, "configuration reloaded");
}

/// Connections to an origin server outlive a reload of everything but how it is reached.
#[test]
fn a_reload_keeps_connections_while_the_server_is_the_same() {
    let (first, second) = (ScriptedOrigin::fixed("", "first"), ScriptedOrigin::fixed("", "second"));
    let text = |origin: &ScriptedOrigin, policy: &str, site: &str| {
        let origin = format!("[[origin]]\nname = \"o\"\nurl = \"{}\"\n{policy}", origin.url());
        format!("{origin}[[site]]\nname = \"a\"\norigin = \"o\"\n{site}")
    };
    let mut larder = Setup::config(LARDER, &text(&first, "", "")).start();
    let mut body_after = |text: &str| {
        larder.write_config(text);
        check(&operate(&larder, &["reload"]), 0, "configuration reloaded");
        larder.get("/").text()
    };
    assert_eq!(body_after(&text(&first, "", "")), "first");
    assert_eq!(body_after(&text(&first, "", "timeouts = { first_byte = \"20s\" }\n")), "first");
    assert_eq!(body_after(&text(&first, "host = \"inner.example\"\n", "")), "first");
    assert_eq!(first.received().last().expect("it was asked").field("host"), "inner.example");
    assert_eq!(body_after(&text(&first, "[origin.pool]\nrequests_in_flight_max = 2\n", "")), "first");
    assert_eq!((first.total(), first.connections()), (4, 1));
    assert_eq!(body_after(&text(&second, "", "")), "second");
    assert_eq!((first.total(), second.total(), second.connections()), (4, 1, 1));
}

#[test]
fn reload_by_command_and_by_signal() {
    let origin = ScriptedOrigin::fixed("Cache-Control: max-age=60\r\n", "body");
    let mut larder = Setup::config(LARDER, &config(&origin, "")).start();
    let mut client = larder.client();
    assert_eq!(client.get("/x").field("x-cache"), "");

    larder.write_config(&config(&origin, "x_cache = true\n"));
    check(&operate(&larder, &["reload"]), 0, "configuration reloaded");
    // The same connection, and what was stored before.
    assert_eq!(client.get("/x").field("x-cache"), "HIT");

    larder.write_config(&config(&origin, "x_cash = false\n"));
    check(&operate(&larder, &["reload"]), 1, "site[a].x_cash: unknown key; did you mean `x_cache`?");
    assert_eq!(client.get("/x").field("x-cache"), "HIT");

    larder.write_config(&config(&origin, "x_cache = false\n"));
    larder.signal(Signal::HUP);
    wait::until_true("the signal is obeyed", || larder.metric("larder_reloads_total", &["applied"]) == 2.0);
    assert_eq!(client.get("/x").field("x-cache"), "");
    assert_eq!(larder.metric("larder_reloads_total", &["refused"]), 1.0);
    assert_eq!(origin.total(), 1);
}

/// Field bug: the signal by which other servers rotate their logs ended the process.
#[test]
fn logs_are_rotated_by_signal() {
    let origin = ScriptedOrigin::fixed("Cache-Control: max-age=60\r\n", "body");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (log, old) = (folder.path().join("access.log"), folder.path().join("access.log.1"));
    let settings = format!("[log]\naccess = \"{}\"\n", log.display());
    let larder = Setup::config(LARDER, &format!("{settings}{}", config(&origin, ""))).start();
    larder.get("/first");
    let has = |path: &Path, target: &str| fs::read_to_string(path).is_ok_and(|text| text.contains(target));
    wait::until_true("the first is written", || has(&log, "/first"));
    fs::rename(&log, &old).expect("it is there");
    larder.signal(Signal::USR1);
    wait::until_true("the file is there again", || log.exists());
    larder.get("/second");
    wait::until_true("the second is written", || has(&log, "/second"));
    assert!(has(&old, "/first") && !has(&old, "/second"));
    // Without a file it does nothing.
    let larder = Setup::config(LARDER, &config(&origin, "")).start();
    larder.signal(Signal::USR1);
    wait::until_true("it is logged", || larder.stderr().contains("access log"));
    assert_eq!(larder.get("/first").status(), 200);
}

/// What a signal asks for later has no meaning before, and least of all that of an end.
#[test]
fn signals_that_come_early_do_nothing() {
    let origin = ScriptedOrigin::fixed("", "body");
    let (folder, port) = (tempfile::tempdir().expect("a folder"), Port::reserve());
    let pipe = folder.path().join("pipe").display().to_string();
    run("mkfifo", [&pipe]).succeeded();
    let mut service = Service::start(
        Command::new(LARDER).args(["serve", &pipe, "--admin", "127.0.0.1:0"]),
        folder.path(),
        "larder",
    );
    let status = format!("/proc/{}/status", service.id());
    let early = [Signal::HUP, Signal::USR1, Signal::USR2];
    wait::until_true("signals are handled before the configuration is read", || {
        let caught = fs::read_to_string(&status).expect("it runs");
        let caught = caught.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("a set of signals");
        let caught = u64::from_str_radix(caught.trim(), 16).expect("a number");
        early.iter().all(|signal| caught >> (signal.as_raw() - 1) & 1 == 1)
    });
    for signal in early {
        service.signal(signal);
    }
    // It can't be opened like this before somebody reads it, and nobody waits for a process that has ended.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut writer = fs::OpenOptions::new();
    writer.write(true).custom_flags(nonblocking);
    let mut file = wait::until("it reads its file", || writer.open(&pipe).ok());
    let listen = format!("listen = [\"{}\"]\n", port.address());
    file.write_all((listen + &config(&origin, "")).as_bytes()).expect("it is read");
    drop(file);
    wait::until_true("it listens", || !service.listening().is_empty());
    assert!(answered(asked(port.address(), GET)).contains("body"));
    service.signal(Signal::TERM);
    assert!(service.end().success(), "{}", service.stderr());
}

#[test]
fn a_stop_ends_with_status_0() {
    for signal in [Signal::TERM, Signal::INT] {
        let origin = ScriptedOrigin::fixed("", "body");
        let mut larder = Setup::origin(LARDER, &origin.url()).start();
        larder.get("/");
        larder.signal(signal);
        assert_eq!(larder.service().end().code(), Some(0));
    }
}

/// A reload may take long, for a large file or the address of a name: nobody who stops the process waits for it.
#[test]
fn a_stop_does_not_wait_for_a_reload() {
    let origin = ScriptedOrigin::fixed("", "body");
    let mut larder = Setup::config(LARDER, &config(&origin, "")).start();
    let site = |number| {
        format!(
            "[[site]]\nname = \"{number}\"\nhosts = [\"{number}.example\"]\norigin = \"http://127.0.0.1:1\"\n"
        )
    };
    let sites: String = (0..10_000).map(site).collect();
    larder.write_config(&(config(&origin, "") + &sites));
    larder.signal(Signal::HUP);
    larder.signal(Signal::USR1);
    larder.signal(Signal::TERM);
    assert_eq!(larder.service().end().code(), Some(0));
    let stderr = larder.stderr();
    assert!(stderr.contains("stopping: requests in flight may finish"), "{stderr}");
    assert!(!stderr.contains("configuration reloaded"), "{stderr}");
}

/// One more process; killed when dropped.
struct Another {
    service: Service,
    _folder: TempDir,
}

impl Another {
    fn start(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let service = Service::start(Command::new(LARDER).args(arguments), folder.path(), "larder");
        Self { service, _folder: folder }
    }

    /// That it ends, or has ended, because somebody else listens there.
    #[track_caller]
    fn assert_refused(mut self, address: &str) {
        let status = self.service.end();
        let text = self.service.stderr();
        assert_eq!(status.code(), Some(1), "{text}");
        let told = format!("can't listen on {address}: address in use by another process");
        assert!(text.contains(&told), "{text}");
    }
}

#[test]
fn an_address_is_for_one_process() {
    let origin = ScriptedOrigin::fixed("", "body");
    let text = format!("workers = 2\n[kv]\nlisten = [\"@kv@\"]\nworkers = 2\n{}", config(&origin, ""));
    let kv = Port::reserve();
    let larder = Setup::config(LARDER, &text.replace("@kv@", &kv.address().to_string())).start();
    let (listen, admin, kv) =
        (larder.address().to_string(), larder.admin().to_string(), kv.address().to_string());
    let at_all = |address: &str| address.replace("127.0.0.1", "0.0.0.0");
    let url = origin.url();
    for address in [&listen, &kv, &admin] {
        for address in [address.clone(), at_all(address), at_all(address).replace("0.0.0.0", "[::]")] {
            let serve = ["serve", "--origin", &url, "--admin", "127.0.0.1:0", "--listen", &address];
            for arguments in [&["kv", "--listen", &address][..], &["origin", "--listen", &address], &serve] {
                Another::start(arguments).assert_refused(&address);
            }
        }
        let arguments = ["serve", "--origin", &url, "--listen", "127.0.0.1:0", "--admin", address];
        Another::start(&arguments).assert_refused(address);
    }
    for _ in 0..20 {
        assert_eq!(larder.get("/").text(), "body", "all connections reach the first one");
    }
}

/// Whoever comes first: one of them runs, the others are told.
#[test]
fn of_processes_that_start_at_once_one_gets_the_address() {
    for command in ["kv", "serve"] {
        let port = Port::reserve();
        let address = port.address().to_string();
        let more: &[&str] =
            if command == "kv" { &[] } else { &["--origin", "http://a", "--admin", "127.0.0.1:0"] };
        let arguments = [&[command, "--workers", "2", "--listen", &address], more].concat();
        let mut all: Vec<_> = (0..6).map(|_| Another::start(&arguments)).collect();
        wait::until_true("all but one have ended", || {
            all.iter_mut().filter_map(|one| one.service.status()).count() >= 5
        });
        let (ended, running): (Vec<_>, Vec<_>) = all
            .into_iter()
            .map(|mut one| (one.service.status(), one))
            .partition(|(status, _)| status.is_some());
        assert_eq!((ended.len(), running.len()), (5, 1), "{command}");
        ended.into_iter().for_each(|(_, one)| one.assert_refused(&address));
        TcpStream::connect(port.address()).expect("it listens");
    }
}

/// Clients of the one that stops are still being answered, and connections that have ended wait for late packets.
#[test]
fn the_next_process_gets_the_address_while_the_last_drains() {
    let gate = Gate::new();
    let released = gate.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        exchange.head("200 OK", "Content-Length: 10\r\n").send("hello");
        released.pass();
        exchange.send("world");
    });
    let mut first = Setup::config(LARDER, &config(&origin, "")).start();
    let address = first.address();
    let mut client = first.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.head();
    first.signal(Signal::TERM);
    wait::until_true("it takes no connections", || TcpStream::connect(address).is_err());
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
    assert!(first.service().end().success());
}

/// The soft limit of a shell is for programs that use `select`: a gateway in it would end at a thousand connections.
#[test]
fn the_gateway_takes_the_open_files_that_it_may_have() {
    let origin = ScriptedOrigin::fixed("", "body");
    let larder =
        Setup::origin(LARDER, &origin.url()).under(&["sh", "-c", "ulimit -S -n 256; exec \"$0\" \"$@\""]);
    let mut larder = larder.start();
    let limits = fs::read_to_string(format!("/proc/{}/limits", larder.service().id())).expect("it runs");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("a limit");
    let numbers: Vec<&str> = line.split_whitespace().skip(3).take(2).collect();
    assert_eq!(numbers[0], numbers[1], "{line}");
}

/// One process may have a port for itself in several ways, and all its workers share it.
#[test]
fn workers_and_addresses_of_one_process_share_a_port() {
    let origin = ScriptedOrigin::fixed("", "body");
    let port = Port::reserve().address().port();
    let listen = format!("listen = [\"@listen@\", \"0.0.0.0:{port}\", \"[::]:{port}\"]\nworkers = 3\n");
    let larder = Setup::config(LARDER, &(listen + &config(&origin, ""))).start();
    let listeners = |port: u16| {
        let sockets = run("ss", ["-tlnH", &format!("sport = :{port}")]).succeeded().text();
        sockets.lines().count()
    };
    assert_eq!((listeners(larder.address().port()), listeners(port)), (3, 6));
}

/// Scripts read from it where a server listens, whichever it is.
#[test]
fn all_servers_announce_themselves_alike() {
    let announced = |arguments: &[&str], urls: &[&str]| {
        let another = Another::start(arguments);
        wait::until_true("all addresses are told", || another.service.listening().len() == urls.len());
        let text = another.service.stdout();
        for (line, url) in text.lines().zip(urls) {
            assert!(line.starts_with(&format!("listening on {url}://127.0.0.1:")), "{arguments:?}: {text}");
        }
    };
    let listen = ["--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0"];
    announced(&[&["kv"][..], &listen].concat(), &["redis", "redis"]);
    announced(
        &[&["serve", "--origin", "http://a", "--admin", "127.0.0.1:0"][..], &listen].concat(),
        &["http", "http"],
    );
    announced(&["origin", "--listen", "127.0.0.1:0", "--tls-listen", "127.0.0.1:0"], &["http", "https"]);
    let access = ["serve", "--origin", "http://a", "--admin", "127.0.0.1:0", "--access-log", "stdout"];
    let another = Another::start(&[&access[..], &listen].concat());
    wait::until_true("it listens", || another.service.stderr().matches("listening").count() == 2);
    assert_eq!(another.service.stdout(), "", "it is for the access log");
}

/// What hears of the process instead of a service manager.
struct Manager(UnixDatagram);

impl Manager {
    fn at(address: &SocketAddr) -> Self {
        let socket = UnixDatagram::bind_addr(address).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
        Self(socket)
    }

    #[track_caller]
    fn hears(&self, begin: &str) {
        let mut message = [0; 512];
        let length = self.0.recv(&mut message).expect("it is told");
        let text = String::from_utf8_lossy(&message[..length]);
        assert!(text.starts_with(begin), "{begin:?} is not how {text:?} begins");
    }
}

#[test]
fn the_service_manager_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notify");
    let manager = Manager::at(&SocketAddr::from_pathname(&path).expect("a path"));
    let origin = ScriptedOrigin::fixed("", "body");
    let setup = Setup::config(LARDER, &config(&origin, ""));
    let mut larder = setup.environment("NOTIFY_SOCKET", path.to_str().expect("UTF-8")).start();
    manager.hears("READY=1\nSTATUS=serving clients");
    larder.signal(Signal::HUP);
    manager.hears("RELOADING=1\nMONOTONIC_USEC=");
    manager.hears("READY=1\nSTATUS=serving clients");
    larder.write_config("nonsense");
    assert!(!operate(&larder, &["reload"]).status.success());
    manager.hears("RELOADING=1\nMONOTONIC_USEC=");
    manager.hears("READY=1\nSTATUS=serving clients; the new configuration was refused");
    larder.signal(Signal::TERM);
    manager.hears("STOPPING=1\n");
    assert_eq!(larder.service().end().code(), Some(0));
}

/// Who waits for it connects at once. The name is one without a file.
#[test]
fn the_service_manager_is_told_when_clients_are_welcome() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = format!("larder-test-{}", folder.path().display());
    let manager = Manager::at(&SocketAddr::from_abstract_name(&name).expect("a name"));
    let port = Port::reserve();
    let mut command = Command::new(LARDER);
    command.args(["kv", "--listen", &port.address().to_string()]).env("NOTIFY_SOCKET", format!("@{name}"));
    let mut kv = Service::start(&mut command, folder.path(), "larder");
    manager.hears("READY=1\n");
    TcpStream::connect(port.address()).expect("it listens");
    kv.signal(Signal::TERM);
    manager.hears("STOPPING=1\n");
    assert_eq!(kv.end().code(), Some(0));
}

/// Starts it as a service manager does, with a socket as its descriptor 3: a shell moves it there.
fn activated(socket: OwnedFd, arguments: &[&str], folder: &Path) -> Service {
    let script = "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=web exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", LARDER]).args(arguments);
    Service::start_with(&mut command, socket.into(), folder, "larder")
}

/// Asks on a connection of its own.
fn asked(address: std::net::SocketAddr, question: &str) -> TcpStream {
    let mut client = TcpStream::connect(address).expect("it listens");
    client.write_all(question.as_bytes()).expect("it is queued at least");
    client
}

#[track_caller]
fn answered(mut client: TcpStream) -> String {
    client.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
    let mut text = String::new();
    client.read_to_string(&mut text).expect("an answer");
    text
}

const GET: &str = "GET /live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
const PING: &str = "PING\r\nQUIT\r\n";

/// The socket is there before the process and after it, and nobody who connects in between is turned away.
#[test]
fn a_socket_may_be_there_before_and_after_the_process() {
    let origin = ScriptedOrigin::fixed("", "body");
    let folder = tempfile::tempdir().expect("a folder");
    let url = origin.url();
    for (arguments, question, answer) in [
        (
            &["serve", "--workers", "2", "--admin", "127.0.0.1:0", "--origin", &url, "--listen"][..],
            GET,
            "body",
        ),
        (&["serve", "--listen", "127.0.0.1:0", "--origin", &url, "--admin"], GET, "true"),
        (&["kv", "--workers", "2", "--listen"], PING, "+PONG"),
    ] {
        let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = socket.local_addr().expect("it is bound");
        let listen = address.to_string();
        for _ in 0..2 {
            let early = asked(address, question);
            let inherited = socket.try_clone().expect("a descriptor");
            let arguments = [arguments, &[&*listen]].concat();
            let mut service = activated(inherited.into(), &arguments, folder.path());
            let clients: Vec<_> = (0..8).map(|_| asked(address, question)).collect();
            for client in clients.into_iter().chain([early]) {
                let text = answered(client);
                assert!(text.contains(answer), "{arguments:?}: {text}");
            }
            service.signal(Signal::TERM);
            assert_eq!(service.end().code(), Some(0), "{}", service.stderr());
        }
    }
}

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

/// The kernel gives each socket its part of the connections: one that nobody accepts from would keep its clients waiting.
#[test]
fn sockets_that_share_an_address_go_round_the_workers() {
    let origin = ScriptedOrigin::fixed("", "body");
    let url = origin.url();
    for (count, workers, listening) in [("2", "3", 3), ("3", "2", 3)] {
        for (command, question, answer) in [
            (&["serve", "--origin", &url, "--admin", "127.0.0.1:0"][..], GET, "body"),
            (&["kv"], PING, "+PONG"),
        ] {
            let (folder, port) = (tempfile::tempdir().expect("a folder"), Port::reserve());
            let address = port.address().to_string();
            let mut python = Command::new("python3");
            python.args(["-c", SPREAD, count, &address, LARDER]).args(command);
            python.args(["--workers", workers, "--listen", &address]);
            let service = Service::start(&mut python, folder.path(), "larder");
            wait::until_true("it listens", || !service.listening().is_empty());
            let sockets = run("ss", ["-tlnH", &format!("sport = :{}", port.address().port())]);
            assert_eq!(sockets.succeeded().text().lines().count(), listening, "{count} for {workers}");
            let clients: Vec<_> = (0..24).map(|_| asked(port.address(), question)).collect();
            for client in clients {
                let text = answered(client);
                assert!(text.contains(answer), "{command:?}, {count} for {workers}: {text}");
            }
        }
    }
}

/// It takes connections from one, and the kernel would give the other its part of them.
#[test]
fn of_sockets_that_share_an_address_the_admin_api_takes_none() {
    let (folder, port) = (tempfile::tempdir().expect("a folder"), Port::reserve());
    let address = port.address().to_string();
    let mut python = Command::new("python3");
    python.args(["-c", SPREAD, "2", &address, LARDER, "serve", "--origin", "http://127.0.0.1:1"]);
    python.args(["--listen", "127.0.0.1:0", "--admin", &address]);
    let mut service = Service::start(&mut python, folder.path(), "larder");
    let (status, text) = (service.end(), service.stderr());
    assert_eq!(status.code(), Some(1), "{text}");
    let told = format!("2 sockets are inherited for {address}, and the admin API takes one");
    assert!(text.contains(&told), "{text}");
}

#[test]
fn sockets_that_do_not_fit_are_told() {
    let bound = || TcpListener::bind("127.0.0.1:0").expect("a port");
    let refused = |socket: OwnedFd, expected: &str| {
        let folder = tempfile::tempdir().expect("a folder");
        let mut service = activated(socket, &["kv", "--listen", "127.0.0.1:0"], folder.path());
        let (status, text) = (service.end(), service.stderr());
        assert_eq!(status.code(), Some(1), "{text}");
        assert!(text.contains(expected), "{expected:?} is not in {text:?}");
    };
    let listening = bound();
    let address = listening.local_addr().expect("it is bound");
    let client = TcpStream::connect(address).expect("it listens");
    refused(client.into(), "descriptor 3 (LISTEN_FDS) can't be used: it is a connection");
    refused(
        UdpSocket::bind("127.0.0.1:0").expect("a port").into(),
        "descriptor 3 (LISTEN_FDS) can't be used: ",
    );
    let folder = tempfile::tempdir().expect("a folder");
    let service = activated(listening.into(), &["kv", "--listen", "127.0.0.1:0"], folder.path());
    wait::until_true("it listens", || !service.listening().is_empty());
    let text = service.stderr();
    let told = "closed an inherited socket: no listener in the configuration has its address";
    assert!(text.contains(told) && text.contains(&address.to_string()), "{text}");
    wait::until_true("nobody listens", || TcpStream::connect(address).is_err());
}

/// The variables may come from a process before, which had them for itself.
#[test]
fn sockets_of_another_process_are_not_taken() {
    let (socket, folder) =
        (TcpListener::bind("127.0.0.1:0").expect("a port"), tempfile::tempdir().expect("a folder"));
    let address = socket.local_addr().expect("it is bound").to_string();
    let mut command = Command::new("sh");
    let script = "exec 3<&0 </dev/null; LISTEN_PID=1 LISTEN_FDS=1 exec \"$@\"";
    command.args(["-c", script, "sh", LARDER, "kv", "--listen", &address]);
    let input = OwnedFd::from(socket).into();
    let service = Service::start_with(&mut command, input, folder.path(), "larder");
    Another { service, _folder: folder }.assert_refused(&address);
}
