//! Transformation rules don't give one user's page to others, don't let clients choose a server, and keep messages
//! readable.

use testkit::{Exchange, Larder, ScriptedOrigin, run};

use crate::LARDER;
use crate::cache::basics::with;

fn start(
    config: &str,
    script: impl Fn(&mut Exchange<'_>) + Send + Sync + 'static,
) -> (ScriptedOrigin, Larder) {
    let origin = ScriptedOrigin::start(script);
    let larder = with(config, &origin);
    (origin, larder)
}

/// Rules of the phase `client_request`, each for requests below `/<number>/`.
fn rules(phase: &str, rules: &[&str]) -> String {
    let numbered = rules.iter().enumerate().map(|(number, actions)| {
        format!("[[site.transform]]\nphase = \"{phase}\"\npath = {{ prefix = \"/{number}/\" }}\n{actions}\n")
    });
    numbered.collect()
}

/// A page without a lifetime, as frameworks send it for each user: it reflects the request, and all users share one
/// validator.
fn personal(exchange: &mut Exchange<'_>) {
    if !exchange.request.field("if-none-match").is_empty() {
        exchange.respond("304 Not Modified", "ETag: \"1\"\r\n", "");
        return;
    }
    let lines = exchange.request.head.fields.0.iter().map(|(name, value)| format!("{name}: {value}\n"));
    let body: String = lines.collect();
    exchange.respond("200 OK", "ETag: \"1\"\r\nContent-Type: text/plain\r\n", body);
}

/// Credentials that a rule moves stay credentials, unless the new field is part of the key. `credential_taint` tests all ways.
#[test]
fn credentials_that_rules_move_are_credentials() {
    const SECRET: &str = "Cookie: sid=secret";
    let cases: [(&str, &str, bool); 6] = [
        ("copy = { X-Session = \"Cookie\" }", SECRET, false),
        ("set = { X-User = \"{header.Authorization}\" }", "Authorization: Basic secret", false),
        ("copy = { X-User = \"X-My-Token\" }", "X-My-Token: secret", false),
        ("request_fields = { Cookie = \"*\" }\nset = { X-Role = \"of secret\" }", SECRET, false),
        ("copy = { X-Hidden = \"Cookie\" }", SECRET, true),
        ("remove = [\"X-None\"]", SECRET, true),
    ];
    let config = format!(
        "@site@request_fields_hidden = [\"X-Hidden\"]\n[[site.rule]]\ncredential_fields = [\"X-My-Token\"]\n{}\
         [[site.transform]]\nphase = \"client_request\"\nremove = [\"Authorization\", \"Cookie\", \"X-My-Token\"]\n",
        rules("client_request", &cases.map(|(rule, ..)| rule))
    );
    let (_origin, larder) = start(&config, personal);
    for (number, (rule, line, is_shared)) in cases.into_iter().enumerate() {
        let target = format!("/{number}/account");
        let own = larder.ask("GET", &target, &format!("{line}\r\nX-Other: 1\r\n")).text();
        assert_eq!(own.contains("secret"), !is_shared, "{rule}: {own}");
        let other = larder.ask("GET", &target, "X-Other: 2\r\n");
        let is_reused = other.field("cache-status").contains("fwd-status=304");
        assert!(!other.text().contains("secret"), "{rule}: {}", other.text());
        assert_eq!(is_reused, is_shared, "{rule}: {}", other.field("cache-status"));
    }
}

/// A key with a field that a rule derives from credentials keeps the responses of users apart.
#[test]
fn keyed_fields_tell_users_apart() {
    let rule = "copy = { X-Session = \"Cookie\" }\nremove = [\"Cookie\"]";
    let config =
        format!("@site@request_fields_keyed = [\"X-Session\"]\n{}", rules("client_request", &[rule]));
    let (_origin, larder) = start(&config, personal);
    let own = |user: &str| larder.ask("GET", "/0/account", &format!("Cookie: {user}\r\n"));
    own("one");
    own("two");
    for user in ["one", "two"] {
        let again = own(user);
        assert!(again.field("cache-status").contains("fwd-status=304"), "{user}");
        assert!(again.text().contains(&format!("x-session: {user}")), "{user}: {}", again.text());
    }
    assert!(!larder.ask("GET", "/0/account", "").text().contains("x-session"));
}

/// A response to HEAD updates the stored response to GET, so the same rules transform its fields.
#[test]
fn rules_for_get_hold_for_news_by_head() {
    let config = "@site@[[site.transform]]\nphase = \"origin_response\"\nmethods = [\"GET\"]\n\
        remove = [\"X-Secret\"]\nset = { X-New = \"{header.X-Of}\" }\n";
    let (origin, larder) = start(config, |exchange| {
        let fields = format!(
            "ETag: \"1\"\r\nCache-Control: max-age=60\r\nX-Secret: s\r\nX-Of: {}\r\n",
            exchange.request.method()
        );
        exchange.respond("200 OK", &fields, "content");
    });
    assert_eq!(larder.get("/").field("x-secret"), "");
    larder.ask("HEAD", "/", "Cache-Control: no-cache\r\n");
    assert_eq!(origin.total(), 2, "the origin answers HEAD");
    let hit = larder.get("/");
    assert!(hit.is_hit());
    assert_eq!([hit.field("x-secret"), hit.field("x-new")], ["", "HEAD"]);
}

/// The `Content-Type` of a multipart response contains the boundary, so rules don't change it.
#[test]
fn parts_stay_readable() {
    let set = "set = { Content-Type = \"text/plain; charset=utf-8\" }";
    let add = "add = { Content-Type = \"text/html\" }";
    let (remove, copy) = ("remove = [\"Content-Type\"]", "copy = { Content-Type = \"X-Of\" }");
    let all = [set, add, remove, copy];
    let site = |name: &str, rule: &str, phase: &str| {
        let path = format!("path_prefix = \"/{name}/\"\nhosts = [\"test.example\"]");
        let of_phase: String = rules(phase, &all).replace("prefix = \"/", &format!("prefix = \"/{name}/"));
        format!("[[site]]\nname = \"{name}\"\norigin = \"@origin@\"\n{path}\n{rule}\n{of_phase}")
    };
    let config = [
        site("stored", "", "origin_response"),
        site("laid", "", "client_response"),
        site("passed", "[[site.rule]]\ncache = false\n", "origin_response"),
    ]
    .concat();
    let (_origin, larder) = start(&config, |exchange| {
        let is_passed = exchange.request.target().starts_with("/passed");
        if is_passed && !exchange.request.field("range").is_empty() {
            let part = "--B\r\nContent-Range: bytes 0-0/10\r\n\r\n0\r\n--B--\r\n";
            let fields = "Content-Type: Multipart/ByteRanges; boundary=B\r\nX-Of: a/b\r\n";
            exchange.respond("206 Partial Content", fields, part);
        } else {
            let fields = "Content-Type: text/plain\r\nX-Of: a/b\r\nCache-Control: max-age=60\r\n";
            exchange.respond("200 OK", &format!("{fields}ETag: \"1\"\r\n"), "0123456789");
        }
    });
    for site in ["stored", "laid", "passed"] {
        for (number, rule) in all.iter().enumerate() {
            let target = format!("/{site}/{number}/");
            let whole = larder.get(&target);
            assert_ne!(whole.head.fields.joined("content-type"), "text/plain", "{site} {rule}");
            let parts = larder.ask("GET", &target, "Range: bytes=0-1,5-6\r\n");
            let found = parts.head.fields.joined("content-type").to_ascii_lowercase();
            let boundary = found.strip_prefix("multipart/byteranges; boundary=").unwrap_or_default();
            assert_eq!(parts.status(), 206, "{site} {rule}");
            let is_readable = !boundary.is_empty() && !found.contains(',');
            let is_its_own = parts.text().to_ascii_lowercase().contains(boundary);
            assert!(is_readable && is_its_own, "{site} {rule}: {found}");
        }
    }
}

/// Refusals have the fields that the site adds to every response.
#[test]
fn refusals_are_responses_of_the_site() {
    let rest = "origin = \"@origin@\"\nhosts = [\"test.example\"]\n";
    let own = "[[site.transform]]\nphase = \"client_response\"\nset = { X-Over = \"yes\" }\n\
        [site.cors]\norigins = [\"https://a.example\"]\n";
    let config = format!(
        "[[site]]\nname = \"denied\"\npath_prefix = \"/denied/\"\nclients_denied = [\"127.0.0.1\"]\n{rest}{own}\
         [[site]]\nname = \"a\"\n{rest}{own}"
    );
    let (origin, larder) = start(&config, personal);
    for (target, status) in [("/denied/x", 403), ("//denied/x", 400), ("/x/..%2fdenied/x", 400)] {
        let refused = larder.ask("GET", target, "Origin: https://a.example\r\n");
        let found = ["x-over", "vary", "access-control-allow-origin"].map(|name| refused.field(name));
        assert_eq!((refused.status(), found), (status, ["yes", "Origin", "https://a.example"]), "{target}");
    }
    assert_eq!(origin.total(), 0);
}

/// Caches between Larder and its clients learn which request fields an answer depends on.
#[test]
fn answers_by_fields_say_so() {
    const FOUND: &str = "statuses = [\"404\"]\nrequest_fields = { X-A = \"*\" }\nset = { X-Over = \"1\" }";
    let rules = [
        ("client_request", "/r/", "request_fields = { X-Old = \"*\" }\nredirect = { to = \"/new\" }"),
        ("client_request", "/v/", "redirect = { to = \"/{header.X-To}\" }"),
        ("client_request", "/w/", "request_fields = { X-B = \"*\" }\nrewrite = { add_prefix = \"/b\" }"),
        ("client_request", "/o/", "request_fields = { X-B = \"*\" }\nset = { X-C = \"1\" }"),
        ("client_response", "/c/", "request_fields = { X-A = \"*\" }\nset = { X-Over = \"1\" }"),
        ("client_response", "/t/", "set = { X-Over = \"{request.header.X-A}\" }"),
        ("client_response", "/s/", FOUND),
        ("client_response", "/l/", "set = { X-Over = \"{path}\" }"),
    ];
    let text = |(phase, path, actions): (&str, &str, &str)| {
        format!("[[site.transform]]\nphase = \"{phase}\"\npath = {{ prefix = \"{path}\" }}\n{actions}\n")
    };
    let config = format!("@site@{}", rules.map(text).concat());
    let (_origin, larder) = start(&config, |exchange| {
        exchange.respond("200 OK", "Cache-Control: max-age=60\r\nETag: \"1\"\r\nVary: Accept\r\n", "content");
    });
    let cases: [(&str, &str, u16, &str); 12] = [
        ("/r/", "X-Old: 1\r\n", 308, "x-old"),
        ("/r/", "", 200, "Accept, x-old"),
        ("/r/", "If-None-Match: \"1\"\r\n", 304, "Accept, x-old"),
        ("/v/", "X-To: a\r\n", 308, "x-to"),
        ("/w/", "X-B: a\r\n", 200, "Accept, x-b"),
        ("/w/", "", 200, "Accept, x-b"),
        ("/o/", "X-B: a\r\n", 200, "Accept"),
        ("/c/", "X-A: 1\r\n", 200, "Accept, x-a"),
        ("/c/", "", 200, "Accept, x-a"),
        ("/t/", "", 200, "Accept, x-a"),
        ("/s/", "X-A: 1\r\n", 200, "Accept"),
        ("/l/", "", 200, "Accept"),
    ];
    for (target, line, status, vary) in cases {
        for situation in ["a miss or a hit", "a hit"] {
            let answer = larder.ask("GET", target, line);
            let found = (answer.status(), answer.head.fields.joined("vary"));
            assert_eq!(found, (status, vary.to_owned()), "{situation}: {target} {line}");
        }
    }
}

/// `config_cases/transforms_unsafe.toml` tests all other rules that `larder check` refuses.
#[test]
fn check_refuses_too_many_rules() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("larder.toml");
    let rule = "[[site.transform]]\nphase = \"client_response\"\nremove = [\"X-A\"]\n".repeat(10_001);
    let site = "[[site]]\nname = \"a\"\norigin = \"http://a\"\n";
    std::fs::write(&file, format!("{site}{rule}")).expect("a file");
    let output = run(LARDER, ["check".as_ref(), file.as_os_str()]);
    let told = "a site may have at most 10000 transformation rules of a phase";
    assert!(output.status == 1 && output.text().contains(told), "{} {:.500}", output.status, output.text());
}
