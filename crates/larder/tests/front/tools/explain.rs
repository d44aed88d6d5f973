//! `larder explain`, of a running cache and of files: what it says is what happened.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use testkit::{Exchange, Larder, ScriptedOrigin, Setup};

use crate::LARDER;

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn explain(larder: &Larder, path: &str, more: &[&str]) -> Output {
    let (url, admin) = (format!("http://test.example{path}"), larder.admin().to_string());
    let arguments = ["explain", &url, "--admin", &admin].into_iter().chain(more.iter().copied());
    Command::new(LARDER).args(arguments).output().expect("the binary runs")
}

/// The same for `/name` and `/name/again`: one is explained, the other is asked for as clients do.
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

struct Case {
    name: &'static str,
    /// Fields of the request that comes before; none comes when absent.
    before: Option<&'static str>,
    /// A field of the request that is explained.
    field: &'static str,
    /// Parts of what is printed.
    says: &'static [&'static str],
}

const CASES: &[Case] = &[
    Case {
        name: "fresh",
        before: None,
        field: "A: 1",
        says: &[
            "reuse: forward: nothing is stored for this URL [RFC 9111 section 4]\n",
            "store: stored [",
            "rule = built-in",
            "key = GET http://test.example/fresh of site",
            "the origin answers 200",
            "freshness_lifetime = 600 s, from max-age [RFC 9111 section 4.2.1]",
        ],
    },
    Case {
        name: "fresh/hit",
        before: Some(""),
        field: "A: 1",
        says: &[
            "reuse: the stored response is fresh and is used [RFC 9111 section 4.2]\nStatus: 200\n",
            "current_age = ",
        ],
    },
    Case {
        name: "fresh/304",
        before: Some(""),
        field: "If-None-Match: \"1\"",
        says: &["Status: 304\n", "the client's own copy is still good [RFC 9111 section 4.3.2]"],
    },
    Case {
        name: "fresh/if-cached",
        before: None,
        field: "Cache-Control: only-if-cached",
        says: &["Status: 504\n", "504, because of only-if-cached"],
    },
    Case {
        name: "fresh/reload",
        before: Some(""),
        field: "Cache-Control: no-cache",
        says: &["reuse: validate first: the request says `no-cache`", "asked with = if-none-match: \"1\""],
    },
    Case {
        name: "stale",
        before: Some(""),
        field: "A: 1",
        says: &[
            "reuse: validate first: the stored response is stale",
            "ttl = stale for 4",
            "freshen: the origin's 304 updates the stored response [RFC 9111 section 4.3.4]\n",
            "asked with = if-none-match: \"1\" [RFC 9111 section 4.3.1]",
            "freshness_lifetime = 600 s",
        ],
    },
    Case {
        name: "behind",
        before: Some(""),
        field: "A: 1",
        says: &["used while a validation runs [RFC 5861 section 3]", "the origin answers 304"],
    },
    Case {
        name: "error",
        before: Some(""),
        field: "A: 1",
        says: &[
            "stale: the stale response is used in place of the error [RFC 5861 section 4]",
            "cause = status 503",
        ],
    },
    Case {
        name: "private",
        before: None,
        field: "A: 1",
        says: &[
            "store: not stored: the response says `private`",
            "reason = private",
            "[RFC 9111 section 5.2.2.7]",
            "\nTo have it stored: if everyone may have this response, have the origin send `public`",
        ],
    },
    Case {
        name: "bare",
        before: None,
        field: "A: 1",
        says: &[
            "detail=no-freshness",
            "\nTo have it stored: have the origin send a lifetime, such as `Cache-Control: max-age=60`, or set `ttl_default` in a rule\n",
        ],
    },
    Case {
        name: "private/known",
        before: Some(""),
        field: "Range: bytes=0-0",
        says: &[
            "pass: forwarded for this client alone: a response for this key could not be stored",
            "store: not stored, a short while ago: the response says `private`",
        ],
    },
    Case {
        name: "vary",
        before: Some("Accept-Language: de\r\nCookie: session=secret\r\n"),
        field: "Accept-Language: fr",
        says: &[
            "reuse: forward: nothing is stored for these nominated fields",
            "stored response 1 of 1 is for other requests (Vary) [RFC 9111 section 4.1]",
            "accept-language = differs: stored \"de\", request \"fr\"",
            "cookie = differs [",
        ],
    },
];

/// Ages tick between the two requests.
fn without_ttl(cache_status: &str) -> String {
    let members = cache_status.split("; ").filter(|member| !member.starts_with("ttl="));
    members.collect::<Vec<_>>().join("; ")
}

fn check(larder: &Larder, case: &Case) {
    let (explained, asked) = (format!("/{}", case.name), format!("/{}/again", case.name));
    if let Some(fields) = case.before {
        larder.ask("GET", &explained, fields);
        larder.ask("GET", &asked, fields);
    }
    let output = explain(larder, &explained, &["-H", case.field]);
    let shown = text(&output);
    assert_eq!(output.status.code(), Some(0), "{}: {shown}", case.name);
    for part in case.says {
        assert!(shown.contains(part), "{}: {part:?} is not in\n{shown}", case.name);
    }
    assert!(!shown.contains("secret"), "{}: {shown}", case.name);
    let really = larder.ask("GET", &asked, &format!("{}\r\n", case.field));
    let line = shown.lines().find_map(|line| line.strip_prefix("Cache-Status: ")).unwrap_or_default();
    assert_eq!(without_ttl(line), without_ttl(&really.cache_status()), "{}", case.name);
    assert!(shown.contains(&format!("Status: {}\n", really.status())), "{}: {shown}", case.name);
}

/// What an operator has named as credentials belongs to one client as `Cookie` does.
#[test]
fn credential_fields_are_not_shown() {
    let origin =
        ScriptedOrigin::fixed("Cache-Control: max-age=600\r\nVary: X-User, Accept-Language\r\n", "ok");
    let config = format!(
        "[[site]]\nname = \"a\"\norigin = \"{}\"\n[[site.rule]]\nname = \"users\"\ncredential_fields = [\"X-User\"]\n",
        origin.url()
    );
    let larder = Setup::config(LARDER, &config).start();
    larder.ask("GET", "/", "X-User: secret\r\nAccept-Language: de\r\n");
    let shown = text(&explain(&larder, "/", &["-H", "X-User: secret-too", "-H", "Accept-Language: fr"]));
    assert!(shown.contains("accept-language = differs: stored \"de\", request \"fr\""), "{shown}");
    assert!(shown.contains("x-user = differs [") && !shown.contains("secret"), "{shown}");
}

/// Keys are made of URLs, and `log.redact` names what is secret in those.
#[test]
fn parameters_that_the_log_leaves_out_are_not_shown() {
    let origin = ScriptedOrigin::start(script);
    let larder = Setup::origin(LARDER, &origin.url()).start();
    let output =
        larder.ask_admin("POST", "/explain", r#"{"url":"http://test.example/fresh?a=1&token=s3cret"}"#);
    assert_eq!(output.status(), 200, "{}", output.text());
    assert!(!output.text().contains("s3cret"), "{}", output.text());
    assert!(output.text().contains("http://test.example/fresh?a=1&token=REDACTED"), "{}", output.text());
}

#[test]
fn an_explanation_is_what_happens() {
    let origin = ScriptedOrigin::start(script);
    let larder = Setup::origin(LARDER, &origin.url()).start();
    CASES.iter().for_each(|case| check(&larder, case));
    assert_eq!(larder.metric("larder_explanations_total", &[]), CASES.len() as f64);
}

/// A rule that adds a field to all responses is no reason for any of them.
#[test]
fn what_answers_before_the_cache_is_named_first() {
    let origin = ScriptedOrigin::start(script);
    let config = format!(
        "[[site]]\nname = \"a\"\norigin = \"{}\"\n\
         [[site.transform]]\nphase = \"client_request\"\npath = {{ exact = \"/old\" }}\nredirect = {{ to = \"/new\" }}\n\
         [[site.transform]]\nphase = \"client_response\"\nset = {{ X-Frame-Options = \"DENY\" }}\n\
         [[site.rule]]\npath = {{ exact = \"/hidden\" }}\ndeny = true\n",
        origin.url()
    );
    let larder = Setup::config(LARDER, &config).start();
    for (path, first, status) in [
        ("/old", "transform: a rule changes the request of the client", "308"),
        ("/hidden", "deny: refused", "403"),
        ("/fresh", "reuse: forward: nothing is stored for this URL", "200"),
    ] {
        let shown = text(&explain(&larder, path, &[]));
        assert!(shown.starts_with(first), "{path}: {shown}");
        assert!(shown.contains(&format!("\nStatus: {status}\n")), "{path}: {shown}");
        assert!(shown.contains("response to the client"), "{path}: {shown}");
    }
}

/// The advice is followed as it is printed: the page is stored, without the cookie, and other pages go on to set theirs.
#[test]
fn what_explain_advises_about_cookies_helps() {
    let origin = ScriptedOrigin::start(|exchange| {
        exchange.respond("200 OK", "Cache-Control: max-age=600\r\nSet-Cookie: session=1\r\n", "page");
    });
    let site = format!("[[site]]\nname = \"a\"\norigin = \"{}\"\n", origin.url());
    let mut larder = Setup::config(LARDER, &site).start();
    let told = text(&explain(&larder, "/product/1?q", &[]));
    let (_, advice) = told.split_once("\nTo have it stored: ").expect("there is advice");
    assert!(advice.starts_with("have the origin set the cookie on other pages."), "{told}");
    let rule: Vec<_> = advice.lines().filter(|line| line.starts_with("    ")).collect();
    larder.write_config(&format!("{site}{}\n", rule.join("\n")));
    let reloaded = larder.ask_admin("POST", "/reload", "");
    assert_eq!(reloaded.status(), 200, "{}", reloaded.text());
    for (target, cookie, is_stored) in
        [("/product/1", "", true), ("/product/1?q", "", true), ("/login", "session=1", false)]
    {
        let answers = [(); 2].map(|()| larder.get(target));
        for answer in &answers {
            assert_eq!(answer.field("set-cookie"), cookie, "{target}: {:?}", answer.head);
        }
        assert_eq!(answers[1].is_hit(), is_stored, "{target}: {}", answers[1].cache_status());
    }
    // With a session elsewhere, too: the page is the same for everyone.
    assert!(larder.ask("GET", "/product/1", "Cookie: session=1\r\n").is_hit());
    let pair = ["request", "response"].map(|name| larder.folder().join(name));
    std::fs::write(&pair[0], "GET /a?b HTTP/1.1\nHost: a.example\n").expect("the folder can be written");
    let response = "HTTP/1.1 200 OK\nCache-Control: max-age=60\nSet-Cookie: a=1\n";
    std::fs::write(&pair[1], response).expect("the folder can be written");
    let told = text(&explain_files(larder.folder(), &[]));
    assert!(told.contains("    path = { exact = \"/a\" }\n"), "{told}");
}

#[test]
fn a_dead_origin_is_explained() {
    let mut origin = ScriptedOrigin::start(script);
    let larder = Setup::origin(LARDER, &origin.url()).start();
    larder.get("/stale");
    origin.stop();
    let output = explain(&larder, "/stale", &["--json"]);
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(told["status"], 200, "{told}");
    let steps: Vec<_> =
        told["findings"].as_array().into_iter().flatten().map(|found| &found["step"]).collect();
    assert_eq!(steps, ["route", "key", "select", "reuse", "forward", "stale", "deliver"], "{told}");
    let failed = text(&explain(&larder, "/never", &[]));
    assert!(
        failed.contains("Status: 502\n")
            && failed.contains("no stored response may be used in place of the error"),
        "{failed}"
    );
}

#[test]
fn questions_that_cannot_be_asked() {
    let origin = ScriptedOrigin::start(script);
    let larder = Setup::origin(LARDER, &origin.url()).start();
    let check = |more: &[&str], part: &str| {
        let output = explain(&larder, "/x", more);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        assert!(text(&output).contains(part), "{part:?} is not in {}", text(&output));
    };
    check(&["-X", "POST"], "only GET and HEAD can be explained");
    check(&["-H", "no colon"], "\"no colon\" isn't a header field");
    check(&["-H", "a b: c"], "\"a b\" isn't a field name");
    check(&["-H", "X-A: a\u{7f}"], "this isn't a value of x-a");
    check(&["-H", "Host: other"], "host can't be set");
    let too_long = format!("http://test.example/{}", "x".repeat(20_000));
    for (url, part) in [
        ("http://user:password@test.example/x", "no user information"),
        ("http://test.example:0/x", "a port from 1 to 65535"),
        ("http://test.example:99999/x", ""),
        (&too_long, "limits.target_bytes_max"),
    ] {
        let admin = larder.admin().to_string();
        let output = Command::new(LARDER).args(["explain", url, "--admin", &admin]).output();
        let output = output.expect("the binary runs");
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        assert!(text(&output).contains(part), "{part:?} is not in {}", text(&output));
    }
    assert_eq!(origin.total(), 0);
    let nobody = ["explain", "http://a/", "--admin", "127.0.0.1:1"];
    let output = Command::new(LARDER).args(nobody).output().expect("the binary runs");
    assert!(text(&output).contains("can't reach the admin API on 127.0.0.1:1"), "{}", text(&output));
}

struct Pair {
    request: &'static str,
    response: &'static str,
    again: &'static str,
    arguments: &'static [&'static str],
    says: &'static [&'static str],
}

const PAIRS: &[Pair] = &[
    Pair {
        request: "GET /a HTTP/1.1\nHost: a.example\n",
        response: "HTTP/1.1 200 OK\nDate: Sun, 06 Nov 1994 08:49:37 GMT\nCache-Control: max-age=60\nAge: 10\nConnection: x\n",
        again: "",
        arguments: &["--after", "40s"],
        says: &[
            "reuse: the stored response is fresh and is used",
            "store: these header fields are not stored",
            "profile = safe",
            "corrected_initial_age = 10 s",
            "ttl = 50 s left",
            "current_age = 50 s",
            "ttl = 10 s left",
        ],
    },
    Pair {
        request: "GET /a HTTP/1.1\nHost: a.example\n",
        response: "HTTP/1.1 200 OK\nCache-Control: max-age=60\nETag: \"1\"\n",
        again: "GET /a HTTP/1.1\nHost: a.example\nCache-Control: max-stale=100\n",
        arguments: &["--after", "2m", "--received", "Sun, 06 Nov 1994 08:49:37 GMT", "--profile", "rfc9111"],
        says: &["reuse: the stored response is stale; the request accepts it", "ttl = stale for 60 s"],
    },
    Pair {
        request: "GET /a HTTP/1.1\nHost: a.example\nAccept-Language: de\n",
        response: "HTTP/1.1 200 OK\nCache-Control: max-age=60\nVary: Accept-Language\n",
        again: "GET /a HTTP/1.1\nHost: a.example\n",
        arguments: &[],
        says: &["accept-language = differs: stored \"de\", request absent", "(Vary) [RFC 9111 section 4.1]"],
    },
    Pair {
        request: "GET /a HTTP/1.1\nHost: a.example\nAuthorization: Basic c2VjcmV0\n",
        response: "HTTP/1.1 200 OK\nCache-Control: max-age=60\n",
        again: "",
        arguments: &[],
        says: &["store: not stored:", "[RFC 9111 section 3.5]", "select   nothing is stored"],
    },
    Pair {
        request: "GET /a HTTP/1.1\nHost: a.example\n",
        response: "HTTP/1.1 200 OK\nCache-Control: max-age=60\n",
        again: "",
        arguments: &["--config", "larder.toml"],
        says: &["site = shop", "rule = never", "store: not stored: "],
    },
];

const SITE: &str = "[[site]]\nname = \"shop\"\nhosts = [\"a.example\"]\norigin = \"http://127.0.0.1:1\"\n\
                    [[site.rule]]\nname = \"never\"\npath = { exact = \"/a\" }\ncache = false\n";

fn explain_files(folder: &Path, arguments: &[&str]) -> Output {
    let files = ["explain", "--request", "request", "--response", "response"];
    let arguments = files.into_iter().chain(arguments.iter().copied());
    Command::new(LARDER).current_dir(folder).args(arguments).output().expect("the binary runs")
}

#[test]
fn files_are_explained() {
    for pair in PAIRS {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("written");
        write("request", pair.request);
        write("response", pair.response);
        write("larder.toml", SITE);
        let mut arguments = pair.arguments.to_vec();
        if !pair.again.is_empty() {
            write("again", pair.again);
            arguments.extend(["--again", "again"]);
        }
        let output = explain_files(folder.path(), &arguments);
        for part in pair.says {
            assert!(text(&output).contains(part), "{part:?} is not in\n{}", text(&output));
        }
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    }
}

/// Two requests for one URL with two keys: what makes the difference is shown, unless it is a secret.
#[test]
fn keyed_fields_are_part_of_the_key_that_is_shown() {
    let origin = ScriptedOrigin::start(script);
    let config = format!(
        "[[site]]\nname = \"a\"\norigin = \"{}\"\nrequest_fields_keyed = [\"X-Country\", \"X-API-Key\"]\n",
        origin.url()
    );
    let larder = Setup::config(LARDER, &config).start();
    let told = text(&explain(&larder, "/fresh", &["-H", "X-Country: at", "-H", "X-API-Key: hidden-1"]));
    assert!(told.contains("\n           x-country = at\n"), "{told}");
    assert!(told.contains("\n           x-api-key = part of it\n") && !told.contains("hidden-1"), "{told}");
}

#[test]
fn a_reader_that_has_read_enough_is_no_trouble() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("request"), PAIRS[0].request).expect("written");
    std::fs::write(folder.path().join("response"), PAIRS[0].response).expect("written");
    let mut command = Command::new(LARDER);
    command.current_dir(folder.path()).args(["explain", "--request", "request", "--response", "response"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), text(&output).as_str()), (Some(0), ""));
}

#[test]
fn files_that_cannot_be_used() {
    let check = |request: &str, response: &str, arguments: &[&str], part: &str| {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("request"), request).expect("written");
        std::fs::write(folder.path().join("response"), response).expect("written");
        let output = explain_files(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        assert!(text(&output).contains(part), "{part:?} is not in {}", text(&output));
    };
    let (request, response) = ("GET / HTTP/1.1\nHost: a\n", "HTTP/1.1 200 OK\n");
    check("", response, &[], "request can't be used: line 1 is empty");
    check(request, "200 OK\n", &[], "\"200 OK\" isn't a status line");
    check(request, "HTTP/1.1 200 OK\nno field\n", &[], "response can't be used: line 2");
    check(request, response, &["--again", "missing"], "missing can't be read");
    check(request, response, &["--after", "9"], "\"9\" isn't a duration");
    check(request, response, &["--received", "noon"], "\"noon\" isn't a date");
    check(request, response, &["--profile", "wild"], "expected safe or rfc9111");
    check(request, response, &["--config", "response"], "response can't be used");
}
