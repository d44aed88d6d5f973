//! `larder explain`, for a running cache and for files: the explanation matches what happens.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use testkit::{Exchange, Larder, Output, ScriptedOrigin, Setup, run};

use crate::LARDER;
use crate::admin::operator::{check, operate, printed, site, start};

#[track_caller]
fn explain(larder: &Larder, path: &str, more: &[&str]) -> Output {
    operate(larder, &[&["explain", &format!("http://test.example{path}")], more].concat())
}

/// Answers the same for `/name` and `/name/again`: the test explains one, and requests the other like a client.
fn script(exchange: &mut Exchange<'_>) {
    let is_validation = !exchange.request.field("if-none-match").is_empty();
    let (status, fields) = match exchange.request.target().split('/').nth(1).unwrap_or_default() {
        "fresh" => ("200 OK", "Cache-Control: max-age=600\r\nETag: \"1\"\r\n"),
        "stale" if is_validation => ("304 Not Modified", "Cache-Control: max-age=600\r\nETag: \"1\"\r\n"),
        "stale" => ("200 OK", "Cache-Control: max-age=60\r\nAge: 100\r\nETag: \"1\"\r\n"),
        "behind" if is_validation => ("304 Not Modified", "ETag: \"1\"\r\n"),
        "behind" => {
            ("200 OK", "Cache-Control: max-age=60, stale-while-revalidate=600\r\nAge: 100\r\nETag: \"1\"\r\n")
        }
        "private" => ("200 OK", "Cache-Control: private, max-age=60\r\n"),
        "bare" => ("200 OK", ""),
        "vary" => ("200 OK", "Cache-Control: max-age=600\r\nVary: Accept-Language, Cookie\r\n"),
        "error" if is_validation => ("503 Service Unavailable", ""),
        "error" => ("200 OK", "Cache-Control: max-age=60, stale-if-error=600\r\nAge: 100\r\nETag: \"1\"\r\n"),
        _ => ("404 Not Found", ""),
    };
    exchange.respond(status, fields, if status.starts_with("304") { "" } else { "body" });
}

/// Name, fields of an earlier request (`-` for none), and a field of the explained request; then parts of the explanation.
const CASES: &str = r#"
fresh | - | A: 1
    reuse: forward: nothing is stored for this URL [RFC 9111 section 4]
    store: stored [
    rule = built-in
    key = GET http://test.example/fresh of site
    the origin answers 200
    freshness_lifetime = 600 s, from max-age [RFC 9111 section 4.2.1]
fresh/hit | | A: 1
    reuse: the stored response is fresh and is used [RFC 9111 section 4.2]\nStatus: 200\n
    current_age =
fresh/304 | | If-None-Match: "1"
    Status: 304\n
    the client's own copy is still valid [RFC 9111 section 4.3.2]
fresh/if-cached | - | Cache-Control: only-if-cached
    Status: 504\n
    504, because of only-if-cached
fresh/reload | | Cache-Control: no-cache
    reuse: validate first: the request says `no-cache`
    asked with = if-none-match: "1"
stale | | A: 1
    reuse: validate first: the stored response is stale
    ttl = stale for 4
    freshen: the origin's 304 updates the stored response [RFC 9111 section 4.3.4]\n
    asked with = if-none-match: "1" [RFC 9111 section 4.3.1]
    freshness_lifetime = 600 s
behind | | A: 1
    used while a validation runs [RFC 5861 section 3]
    the origin answers 304
error | | A: 1
    stale: the stale response is used in place of the error [RFC 5861 section 4]
    cause = status 503
private | - | A: 1
    store: not stored: the response says `private`
    reason = private
    [RFC 9111 section 5.2.2.7]
    \nTo have it stored: if everyone may have this response, have the origin send `public`
bare | - | A: 1
    detail=no-freshness
    \nTo have it stored: have the origin send a lifetime, such as `Cache-Control: max-age=60`, or set `ttl_default` in a rule
private/known | | Range: bytes=0-0
    pass: forwarded for this client alone: a response for this key could not be stored
    store: not stored, a short while ago: the response says `private`
vary | Accept-Language: de\r\nCookie: session=secret\r\n | Accept-Language: fr
    reuse: forward: nothing is stored for these nominated fields
    stored response 1 of 1 is for other requests (Vary) [RFC 9111 section 4.1]
    accept-language = differs: stored "de", request "fr"
    cookie = differs ["#;

/// Returns `Cache-Status` without ages, which tick between two requests.
fn without_ttl(cache_status: &str) -> String {
    let members = cache_status.split("; ").filter(|member| !member.starts_with("ttl="));
    members.collect::<Vec<_>>().join("; ")
}

#[test]
fn an_explanation_is_what_happens() {
    let origin = ScriptedOrigin::start(script);
    let larder = Setup::origin(LARDER, &origin.url()).start();
    let mut count = 0.0;
    let unescaped = |text: &str| text.replace("\\n", "\n").replace("\\r", "\r");
    for case in CASES.replace("\n    ", "\t").lines().skip(1) {
        let (request, says) = case.split_once('\t').expect("parts of the explanation");
        let [name, before, field] = request.split('|').map(str::trim).collect::<Vec<_>>()[..] else {
            panic!("{request}")
        };
        count += 1.0;
        let (explained, asked) = (format!("/{name}"), format!("/{name}/again"));
        if before != "-" {
            [&explained, &asked].iter().for_each(|path| drop(larder.ask("GET", path, &unescaped(before))));
        }
        let output = explain(&larder, &explained, &["-H", field]);
        says.split('\t').for_each(|part| check(&output, 0, &unescaped(part)));
        let shown = printed(&output);
        assert!(!shown.contains("secret"), "{name}: {shown}");
        let really = larder.ask("GET", &asked, &format!("{field}\r\n"));
        let line = shown.lines().find_map(|line| line.strip_prefix("Cache-Status: ")).unwrap_or_default();
        assert_eq!(without_ttl(line), without_ttl(&really.cache_status()), "{name}");
        assert!(shown.contains(&format!("Status: {}\n", really.status())), "{name}: {shown}");
    }
    assert_eq!(larder.metric("larder_explanations_total", &[]), count);
}

/// The operator has configured credential fields, secret parameters and keyed fields.
#[test]
fn secrets_are_not_shown() {
    let fields = "Cache-Control: max-age=600\r\nVary: X-User, Accept-Language\r\n";
    let origin = ScriptedOrigin::fixed(fields, "ok");
    let keyed = "request_fields_keyed = [\"X-Country\", \"X-API-Key\"]\n";
    let rule = "[[site.rule]]\nname = \"users\"\ncredential_fields = [\"X-User\"]\n";
    let larder = start(&site(&origin, &format!("{keyed}{rule}")));
    let user = "X-User: secret\r\nAccept-Language: de\r\nX-Country: at\r\nX-API-Key: hidden-1\r\n";
    larder.ask("GET", "/?a=1&token=hidden-2", user);
    let asked = ["X-User: secret-too", "Accept-Language: fr", "X-Country: at", "X-API-Key: hidden-1"];
    let asked = asked.iter().flat_map(|field| ["-H", field]).collect::<Vec<_>>();
    let told = explain(&larder, "/?a=1&token=hidden-2", &asked);
    for part in [
        "accept-language = differs: stored \"de\", request \"fr\"",
        "x-user = differs [",
        "\n           x-country = at\n",
        "\n           x-api-key = part of it\n",
        "http://test.example/?a=1&token=REDACTED",
    ] {
        check(&told, 0, part);
    }
    assert!(!printed(&told).contains("secret") && !printed(&told).contains("hidden"), "{}", printed(&told));
}

/// A rule that only adds a field to all responses is not named as the reason for a response.
#[test]
fn the_rule_that_answers_before_the_cache_is_named_first() {
    let origin = ScriptedOrigin::start(script);
    let rules = "[[site.transform]]\nphase = \"client_request\"\npath = { exact = \"/old\" }\n\
         redirect = { to = \"/new\" }\n\
         [[site.transform]]\nphase = \"client_response\"\nset = { X-Frame-Options = \"DENY\" }\n\
         [[site.rule]]\npath = { exact = \"/hidden\" }\ndeny = true\n";
    let larder = start(&site(&origin, rules));
    for (path, first, status) in [
        ("/old", "transform: a rule changes the request of the client", "308"),
        ("/hidden", "deny: refused", "403"),
        ("/fresh", "reuse: forward: nothing is stored for this URL", "200"),
    ] {
        let output = explain(&larder, path, &[]);
        check(&output, 0, &format!("\nStatus: {status}\n"));
        check(&output, 0, "response to the client");
        assert!(output.text().starts_with(first), "{path}: {}", output.text());
    }
}

/// With the advice applied as printed, the page is stored without the cookie, and other pages still set theirs.
#[test]
fn advice_about_cookies_helps() {
    let fields = "Cache-Control: max-age=600\r\nSet-Cookie: session=1\r\n";
    let origin = ScriptedOrigin::fixed(fields, "page");
    let mut larder = start(&site(&origin, ""));
    let told = printed(&explain(&larder, "/product/1?q", &[]));
    let (_, advice) = told.split_once("\nTo have it stored: ").expect("there is advice");
    assert!(advice.starts_with("have the origin set the cookie on other pages."), "{told}");
    let rule: Vec<_> = advice.lines().filter(|line| line.starts_with("    ")).collect();
    larder.write_config(&site(&origin, &format!("{}\n", rule.join("\n"))));
    operate(&larder, &["reload"]).succeeded();
    for (target, cookie, is_stored) in
        [("/product/1", "", true), ("/product/1?q", "", true), ("/login", "session=1", false)]
    {
        let answers = [(); 2].map(|()| larder.get(target));
        assert_eq!(answers.each_ref().map(|answer| answer.field("set-cookie")), [cookie; 2], "{target}");
        assert_eq!(answers[1].is_hit(), is_stored, "{target}: {}", answers[1].cache_status());
    }
    // A request with a session cookie gets the stored page too: it is the same for everyone.
    assert!(larder.ask("GET", "/product/1", "Cookie: session=1\r\n").is_hit());
    let response = "HTTP/1.1 200 OK\nCache-Control: max-age=60\nSet-Cookie: a=1\n";
    let folder = pair("GET /a?b HTTP/1.1\nHost: a.example\n", response);
    check(&explain_files(folder.path(), &[]), 0, "    path = { exact = \"/a\" }\n");
}

/// The unit tests of the gateway and of the admin API have other questions.
#[test]
fn questions_that_cannot_be_asked() {
    let origin = ScriptedOrigin::start(script);
    let larder = Setup::origin(LARDER, &origin.url()).start();
    check(&explain(&larder, "/x", &["-H", "no colon"]), 1, "\"no colon\" isn't a header field");
    check(&explain(&larder, &format!("/{}", "x".repeat(20_000)), &[]), 1, "limits.target_bytes_max");
    assert_eq!(origin.total(), 0);
}

#[test]
fn a_dead_origin_is_explained() {
    let mut origin = ScriptedOrigin::start(script);
    let larder = Setup::origin(LARDER, &origin.url()).start();
    larder.get("/stale");
    origin.stop();
    let told: Value = serde_json::from_str(&explain(&larder, "/stale", &["--json"]).text()).expect("JSON");
    assert_eq!(told["status"], 200, "{told}");
    let steps: Vec<_> =
        told["findings"].as_array().into_iter().flatten().map(|found| &found["step"]).collect();
    assert_eq!(steps, ["route", "key", "select", "reuse", "forward", "stale", "deliver"], "{told}");
    let failed = explain(&larder, "/never", &[]);
    check(&failed, 0, "Status: 502\n");
    check(&failed, 0, "no stored response may be used in place of the error");
}

/// Heads of a request, its response and a later request; options; and parts of the explanation, separated by `|`.
type Pair = (&'static str, &'static str, &'static str, &'static [&'static str], &'static str);

const PAIRS: &[Pair] = &[
    (
        "GET /a HTTP/1.1\nHost: a.example\n",
        "HTTP/1.1 200 OK\nDate: Sun, 06 Nov 1994 08:49:37 GMT\nCache-Control: max-age=60\nAge: 10\nConnection: x\n",
        "",
        &["--after", "40s"],
        "reuse: the stored response is fresh and is used|store: these header fields are not stored|profile = safe|\
         corrected_initial_age = 10 s|ttl = 50 s left|current_age = 50 s|ttl = 10 s left",
    ),
    (
        "GET /a HTTP/1.1\nHost: a.example\n",
        "HTTP/1.1 200 OK\nCache-Control: max-age=60\nETag: \"1\"\n",
        "GET /a HTTP/1.1\nHost: a.example\nCache-Control: max-stale=100\n",
        &["--after", "2m", "--received", "Sun, 06 Nov 1994 08:49:37 GMT", "--profile", "rfc9111"],
        "reuse: the stored response is stale; the request accepts it|ttl = stale for 60 s",
    ),
    (
        "GET /a HTTP/1.1\nHost: a.example\nAuthorization: Basic c2VjcmV0\n",
        "HTTP/1.1 200 OK\nCache-Control: max-age=60\n",
        "",
        &[],
        "store: not stored:|[RFC 9111 section 3.5]|select   nothing is stored",
    ),
    (
        "GET /a HTTP/1.1\nHost: a.example\n",
        "HTTP/1.1 200 OK\nCache-Control: max-age=60\n",
        "",
        &["--config", "larder.toml"],
        "site = shop|rule = never|store: not stored: ",
    ),
];

const SITE: &str = "[[site]]\nname = \"shop\"\nhosts = [\"a.example\"]\norigin = \"http://127.0.0.1:1\"\n\
                    [[site.rule]]\nname = \"never\"\npath = { exact = \"/a\" }\ncache = false\n";

/// Returns a folder with files of a request and its response.
fn pair(request: &str, response: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in [("request", request), ("response", response), ("larder.toml", SITE)] {
        fs::write(folder.path().join(name), text).expect("a file");
    }
    folder
}

fn explain_files(folder: &Path, arguments: &[&str]) -> Output {
    let files = ["-C", &folder.display().to_string(), LARDER, "explain", "--request", "request"];
    run("env", [&files[..], &["--response", "response"], arguments].concat())
}

#[test]
fn files_are_explained() {
    for (request, response, again, arguments, says) in PAIRS {
        let folder = pair(request, response);
        fs::write(folder.path().join("again"), again).expect("a file");
        let again: &[&str] = if again.is_empty() { &[] } else { &["--again", "again"] };
        let output = explain_files(folder.path(), &[arguments, again].concat());
        says.split('|').for_each(|part| check(&output, 0, part));
    }
    // A reader that closes the pipe early causes no error.
    let folder = pair(PAIRS[0].0, PAIRS[0].1);
    let mut command = Command::new(LARDER);
    command.current_dir(folder.path()).args(["explain", "--request", "request", "--response", "response"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), output.stderr), (Some(0), vec![]));
}

#[test]
fn files_that_cannot_be_used() {
    let (request, response) = ("GET / HTTP/1.1\nHost: a\n", "HTTP/1.1 200 OK\n");
    for (request, response, arguments, part) in [
        ("", response, &[][..], "request can't be used: line 1 is empty"),
        (request, "200 OK\n", &[], "\"200 OK\" isn't a status line"),
        (request, "HTTP/1.1 200 OK\nno field\n", &[], "response can't be used: line 2"),
        (request, response, &["--again", "missing"], "missing can't be read"),
        (request, response, &["--after", "9"], "\"9\" isn't a duration"),
        (request, response, &["--received", "noon"], "\"noon\" isn't a date"),
        (request, response, &["--profile", "wild"], "expected safe or rfc9111"),
        (request, response, &["--config", "response"], "response can't be used"),
    ] {
        check(&explain_files(pair(request, response).path(), arguments), 1, part);
    }
}
