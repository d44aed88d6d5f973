//! The access log: lines and their fields, clients that leave, servers by name, rotation, and targets that fail.

use std::fs::{self, File};
use std::path::Path;

use serde_json::Value;
use testkit::{Client, Larder, ScriptedOrigin, Setup, Signal, run, wait};

use crate::LARDER;
use crate::admin::operator::{
    SITE, assert_operable, check, ends, gated, lasting, mkfifo, shell, site, soon, start, stop,
    stop_successor, upgrade,
};
use crate::cache::basics::{asking, wait_for_waiters};

const TO_STDOUT: &str = "[log]\naccess = \"stdout\"\n";
const TO_FILE: &str = "[log]\naccess = \"@dir@/log\"\n";

/// An HTTP/2 connection with one request, `GET /http2` of the host `a`: preface, SETTINGS, HEADERS.
const HTTP2_GET: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\
    \0\0\x0d\x01\x05\0\0\0\x01\x82\x86\x04\x06/http2\x01\x01a";
/// CANCEL for its stream.
const HTTP2_CANCEL: &[u8] = b"\0\0\x04\x03\0\0\0\0\x01\0\0\0\x08";

/// Waits for lines with these values, and returns the last one.
#[track_caller]
pub(crate) fn logged(larder: &Larder, values: &[(&str, &str)]) -> Value {
    wait::until("a line of the log", || {
        let lines = larder.stdout();
        let mut records = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        records.rfind(|record| values.iter().all(|(field, value)| record[field] == *value))
    })
}

/// Returns the log of a gateway that has stopped, from the file `log`.
#[track_caller]
fn written(larder: &mut Larder) -> String {
    stop(larder);
    fs::read_to_string(larder.folder().join("log")).expect("the access log")
}

fn is_json(line: &str) -> bool {
    serde_json::from_str::<Value>(line).is_ok()
}

#[test]
fn each_request_has_a_line_of_json() {
    let mut origin = lasting();
    let larder = start(&site(&origin, TO_STDOUT));
    (0..2).for_each(|_| drop(larder.get("/plain")));
    larder.ask("GET", "/a?token=secret&b", "User-Agent: \"\\\u{e9}\r\n");
    larder.client().send("GET / HTTP/1.1\n\n").response();
    let of = |target, cache| logged(&larder, &[("target", target), ("cache", cache)]);
    of("/plain", "miss");
    let hit = of("/plain", "hit");
    assert_eq!((hit["status"].as_u64(), hit["body_bytes"].as_u64()), (Some(200), Some(4)), "{hit}");
    assert_eq!(hit["client"], "127.0.0.1", "{hit}");
    assert_eq!(of("/a?token=REDACTED&b", "miss")["user_agent"], "\"\\\u{e9}");
    of("", "local");
    origin.stop();
    larder.get("/dead?token=secret");
    of("/dead?token=REDACTED", "error");
    let lines = larder.stdout();
    assert!(!(lines.clone() + &larder.stderr()).contains("secret"), "{lines}");
    assert!(lines.lines().filter(|line| line.starts_with('{')).all(is_json), "{lines}");
}

#[test]
fn lines_name_the_client_as_a_trusted_proxy_does() {
    let origin = lasting();
    for (trusted, format, expected) in [
        ("127.0.0.1", "json", "\"client\":\"192.0.2.1\""),
        ("127.0.0.1", "combined", "192.0.2.1 - - ["),
        ("10.0.0.0/8", "json", "\"client\":\"127.0.0.1\""),
    ] {
        let log = format!("{TO_STDOUT}access_format = \"{format}\"\n");
        let larder = start(&format!("trusted_proxies = [\"{trusted}\"]\n{}", site(&origin, &log)));
        larder.ask("GET", "/seen", "X-Forwarded-For: 198.51.100.1, 192.0.2.1\r\n");
        wait::until_true("the line is written", || larder.stdout().contains("/seen"));
        let lines = larder.stdout();
        let line = lines.lines().find(|line| line.contains("/seen"));
        assert!(line.is_some_and(|line| line.contains(expected)), "{trusted}: {line:?}");
    }
}

#[test]
fn the_page_on_the_access_log_has_the_fields_of_lines_in_their_order() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/access-log.md");
    let page = fs::read_to_string(page).expect("the page");
    let told = page.lines().filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0));
    let told: Vec<_> = told.filter(|name| !["tls", "sni", "trace_id", "span_id"].contains(name)).collect();
    let origin = lasting();
    let larder = start(&site(&origin, TO_STDOUT));
    larder.ask("GET", "/", "User-Agent: a\r\nReferer: b\r\n");
    logged(&larder, &[("target", "/")]);
    let lines = larder.stdout();
    let line = lines.lines().find(|line| line.starts_with('{')).expect("it is logged");
    let names = line.split("\":").filter_map(|part| Some(part.rsplit_once('"')?.1));
    let names: Vec<_> = names.filter(|name| name.starts_with(char::is_alphabetic)).collect();
    assert_eq!(told, names, "{line}");
}

/// Field bug: a request whose client had left before its response began was neither logged nor counted.
#[test]
fn clients_that_leave_before_their_response_are_logged_and_counted() {
    const UPLOAD: &[u8] = b"POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n12345";
    let (gate, origin) = gated("/");
    let rule = "[[site.rule]]\nname = \"all\"\npath = { prefix = \"/\" }\n";
    let larder = start(&site(&origin, &format!("{rule}{TO_STDOUT}")));
    let check = |target: &str, request: &[u8], leave: fn(Client), reason: &str| {
        let counted = || {
            [
                larder.metric("larder_requests_total", &["site=\"a\"", "status=\"499\"", "cache=\"error\""]),
                larder.metric("larder_rule_requests_total", &["rule=\"all\"", "cache=\"error\""]),
                larder.metric("larder_client_errors_total", &[&format!("reason=\"{reason}\"")]),
            ]
        };
        let before = counted();
        let mut client = larder.client();
        client.send(request);
        origin.wait_for(target, 1);
        leave(client);
        let line = logged(&larder, &[("target", target)]);
        let told = ["cache", "site", "cache_status"].map(|field| line[field].clone());
        assert_eq!(told, ["error", "a", &format!("larder; detail={reason}")], "{target}: {line}");
        assert!(line["status"] == 499 && line["duration_seconds"].as_f64() > Some(0.0), "{line}");
        assert_eq!(counted(), before.map(|count| count + 1.0), "{target}");
    };
    let cancel = |mut client: Client| drop(client.try_send(HTTP2_CANCEL));
    check("/get", b"GET /get HTTP/1.1\r\nHost: a\r\n\r\n", Client::reset, "client-closed");
    check("/upload", UPLOAD, drop, "client-closed");
    check("/http2", HTTP2_GET, cancel, "client-reset");
    // A client that waits for the forward of another.
    let mut leader = asking(&larder, "/shared", "");
    origin.wait_for("/shared", 1);
    let waiter = asking(&larder, "/shared", "");
    wait_for_waiters(&larder, 1);
    waiter.reset();
    assert_eq!(logged(&larder, &[("target", "/shared")])["status"], 499);
    gate.open();
    assert_eq!(leader.response().status(), 200);
}

/// A refusal by Larder doesn't count as a failure of the origin, whatever its status.
#[test]
fn refusals_are_local() {
    let text = format!("{SITE}x_cache = true\n[purge]\ntoken_file = \"token\"\n{TO_FILE}");
    let mut larder = Setup::config(LARDER, &text).file("token", "0123456789abcdef").start();
    let looped = "Via: 1.1 larder\r\n".repeat(8);
    let cases = [
        ("GET", "/cached", "Cache-Control: only-if-cached\r\n", 504),
        ("PURGE", "/missing", "", 401),
        ("PURGE", "/wrong", "Authorization: Bearer wrong\r\n", 403),
        ("GET", "/loop", &looped, 508),
    ];
    for (method, target, fields, status) in cases {
        let response = larder.ask(method, target, fields);
        assert_eq!((response.status(), response.field("x-cache")), (status, "LOCAL"), "{target}");
    }
    let log = written(&mut larder);
    assert_eq!(log.matches("\"cache\":\"local\"").count(), cases.len(), "{log}");
}

/// Field bug: the log didn't show which server of a group had failed.
#[test]
fn lines_name_the_server_that_was_asked() {
    let dead = ScriptedOrigin::start(|exchange| _ = exchange.reset());
    let mut well = ScriptedOrigin::start(|exchange| {
        let lifetime = match exchange.request.target() {
            "/swr" => "max-age=0, stale-while-revalidate=600",
            "/sie" => "max-age=0, stale-if-error=600",
            _ => "max-age=600",
        };
        exchange.respond("200 OK", &format!("Cache-Control: {lifetime}\r\n"), "well");
    });
    let urls = [dead.url(), well.url()];
    let group = format!("[[origin]]\nname = \"group\"\nservers = [\"{}\", \"{}\"]\n", urls[0], urls[1]);
    let config = format!("{TO_STDOUT}{group}{}", SITE.replace("http://127.0.0.1:1", "group"));
    // The log contains the client's request, even if a rule changes the forwarded one.
    let rule = "[[site.transform]]\nname = \"b\"\nphase = \"client_request\"\nset = { X-B = \"b\" }\n";
    for more in ["", rule] {
        let larder = start(&(config.clone() + more));
        let server =
            |target, cache| logged(&larder, &[("target", target), ("cache", cache)])["server"].clone();
        for target in ["/swr", "/sie", "/kept"] {
            assert_eq!(larder.get(target).text(), "well");
            assert_eq!(server(target, "miss"), urls[1], "the other server is dead");
        }
        for (target, cache) in [("/kept", "hit"), ("/swr", "stale")] {
            assert_eq!(larder.get(target).text(), "well");
            assert_eq!(server(target, cache), Value::Null, "no server was used");
        }
        let http2 = ["--silent", "--http2-prior-knowledge", &larder.url("/http2")];
        assert_eq!(run("curl", http2).succeeded().text(), "well");
        assert_eq!(server("/http2", "miss"), urls[1]);
    }
    well.stop();
    let larder = start(&config);
    assert_eq!(larder.get("/new").status(), 502);
    let record = logged(&larder, &[("target", "/new")]);
    let server = record["server"].as_str().expect("one was tried last");
    assert!(urls.iter().any(|url| url == server), "{record}");
    let warning = format!("server=\"{server}\" path=\"/new\"");
    wait::until_true(&warning, || larder.stderr().contains(&warning));
}

/// Field bug: SIGUSR1, with which other servers rotate their logs, ended the process.
#[test]
fn logs_are_rotated_by_signal() {
    let origin = lasting();
    let larder = start(&site(&origin, TO_FILE));
    let [log, old] = ["log", "log.1"].map(|name| larder.folder().join(name));
    let has = |path: &Path, target| fs::read_to_string(path).is_ok_and(|text| text.contains(target));
    larder.get("/first");
    wait::until_true("the first is written", || has(&log, "/first"));
    fs::rename(&log, &old).expect("it is there");
    larder.signal(Signal::USR1);
    wait::until_true("the file is there again", || log.exists());
    larder.get("/second");
    wait::until_true("the second is written", || has(&log, "/second"));
    assert!(has(&old, "/first") && !has(&old, "/second"));
    // Without a log file, the signal has no effect.
    let larder = start(&site(&origin, ""));
    larder.signal(Signal::USR1);
    wait::until_true("it is logged", || larder.stderr().contains("access log"));
    assert_eq!(larder.get("/first").status(), 200);
}

/// Writes more lines to the log than fit into a pipe.
fn fill_access_log(larder: &Larder) {
    let target = format!("/{}", "x".repeat(1000));
    let mut client = larder.client();
    (0..200).for_each(|_| assert_eq!(client.get(&target).status(), 200));
}

#[test]
fn an_access_log_that_nobody_reads_does_not_keep_the_process() {
    let origin = lasting();
    for is_upgraded in [false, true] {
        let words = ["sh", "-c", "mkfifo @dir@/pipe; exec \"$@\" 1<>@dir@/pipe", "sh"];
        let mut larder = Setup::config(LARDER, &site(&origin, TO_STDOUT)).under(&words).start();
        fill_access_log(&larder);
        let successor = is_upgraded.then(|| upgrade(&larder));
        soon("the stop", || if is_upgraded { ends(&mut larder) } else { stop(&mut larder) });
        assert!(larder.stderr().contains("the last lines are lost"), "{}", larder.stderr());
        successor.iter().for_each(stop_successor);
    }
}

#[test]
fn a_pipe_without_a_reader_is_no_access_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    mkfifo(&pipe);
    let serve = "larder serve --origin http://a --listen 127.0.0.1:0 --admin 127.0.0.1:0 --access-log";
    let refused = soon("the start", || shell(&format!("{serve} {}", pipe.display())));
    check(&refused, 1, "it is a pipe (FIFO) that no process reads");
    let refused = shell(&format!("{serve} /proc/no-such"));
    let reasons = refused.stderr.matches("No such file").count();
    assert_eq!((refused.status, reasons), (1, 1), "the reason is printed once: {}", refused.stderr);

    let mut larder = start(&format!("{SITE}{TO_FILE}"));
    let log = larder.folder().join("log");
    fs::remove_file(&log).expect("it is there");
    mkfifo(&log);
    larder.signal(Signal::USR1);
    wait::until_true("it is refused", || larder.stderr().contains("can't reopen the access log"));
    assert_operable(&mut larder);
}

#[test]
fn an_access_log_whose_reader_has_stopped_is_reopened() {
    let (origin, folder) = (lasting(), tempfile::tempdir().expect("a folder"));
    let pipe = folder.path().join("pipe");
    mkfifo(&pipe);
    let _reader = File::options().read(true).write(true).open(&pipe).expect("it opens");
    let log = TO_FILE.replace("@dir@/log", &pipe.display().to_string());
    let mut larder = start(&site(&origin, &log));
    fill_access_log(&larder);
    larder.signal(Signal::USR1);
    assert_operable(&mut larder);
}

/// An earlier process couldn't finish its last line.
#[test]
fn a_line_that_another_process_left_cut_stands_alone() {
    let origin = lasting();
    let setup = Setup::config(LARDER, &site(&origin, TO_FILE));
    let mut larder = setup.file("log", "{\"of\":\"before\"}\n{\"cut").start();
    assert_eq!(larder.get("/").status(), 200);
    let text = written(&mut larder);
    assert_eq!(text.lines().map(is_json).collect::<Vec<_>>(), [true, false, true], "{text}");
}
