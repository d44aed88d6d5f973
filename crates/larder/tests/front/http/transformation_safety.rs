//! Transformation rules don't give one user's page to others, don't let clients choose a server, and keep messages
//! readable.

use testkit::{Exchange, Larder, ScriptedOrigin, Setup, run};

use crate::LARDER;

const SITE: &str = "[[site]]\nname = \"a\"\norigin = \"@origin@\"\n";

fn start(
    config: &str,
    script: impl Fn(&mut Exchange<'_>) + Send + Sync + 'static,
) -> (ScriptedOrigin, Larder) {
    let origin = ScriptedOrigin::start(script);
    let larder = Setup::config(LARDER, &config.replace("@origin@", &origin.url())).start();
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

/// Credentials that a rule moves stay credentials, unless the new field is part of the key.
#[test]
fn credentials_that_rules_move_are_credentials() {
    const SECRET: &str = "Cookie: sid=secret";
    let cases: [(&str, &str, bool); 10] = [
        ("copy = { X-Session = \"Cookie\" }", SECRET, false),
        ("set = { X-User = \"{header.Authorization}\" }", "Authorization: Basic secret", false),
        ("add = { X-Session = \"v={header.Cookie}\" }", SECRET, false),
        ("copy = { X-User = \"X-My-Token\" }", "X-My-Token: secret", false),
        ("copy = { X-Hidden = \"Cookie\" }\nset = { X-User = \"{header.X-Hidden}\" }", SECRET, false),
        ("request_fields = { Cookie = \"*\" }\nset = { X-Role = \"of secret\" }", SECRET, false),
        ("request_fields = { X-Other = \"*\" }\nset = { X-Role = \"v\" }", SECRET, true),
        ("copy = { X-Plain = \"X-Other\" }", SECRET, true),
        ("copy = { X-Hidden = \"Cookie\" }", SECRET, true),
        ("remove = [\"X-None\"]", SECRET, true),
    ];
    let config = format!(
        "{SITE}request_fields_hidden = [\"X-Hidden\"]\n[[site.rule]]\ncredential_fields = [\"X-My-Token\"]\n{}\
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
        format!("{SITE}request_fields_keyed = [\"X-Session\"]\n{}", rules("client_request", &[rule]));
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
    let config = format!(
        "{SITE}[[site.transform]]\nphase = \"origin_response\"\nmethods = [\"GET\"]\nremove = [\"X-Secret\"]\n\
         set = {{ X-New = \"{{header.X-Of}}\" }}\n"
    );
    let (origin, larder) = start(&config, |exchange| {
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

/// Like an access list, maintenance admits no client whose address can't be parsed.
#[test]
fn maintenance_admits_those_it_knows() {
    let config = format!(
        "trusted_proxies = [\"127.0.0.0/8\"]\n{SITE}[site.maintenance]\nenabled = true\n\
         clients_admitted = [\"127.0.0.0/8\", \"10.0.0.0/8\"]\n"
    );
    let (_origin, larder) = start(&config, personal);
    for (line, status) in [
        ("", 200),
        ("X-Forwarded-For: 10.1.2.3\r\n", 200),
        ("X-Forwarded-For: 192.0.2.1\r\n", 503),
        ("X-Forwarded-For: unknown\r\n", 503),
        ("X-Forwarded-For: 10.1.2.3, _hidden\r\n", 503),
        ("Forwarded: for=unknown\r\n", 503),
    ] {
        assert_eq!(larder.ask("GET", "/", line).status(), status, "{line}");
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

/// `Location` names the URL that clients use, but the response is stored under the rewritten URL.
#[test]
fn rewritten_locations_are_invalidated() {
    let config = format!(
        "{SITE}[[site.transform]]\nphase = \"client_request\"\npath = {{ prefix = \"/app/\" }}\n\
         rewrite = {{ strip_prefix = \"/app\" }}\n\
         [[site.transform]]\nphase = \"origin_response\"\nlocation = [{{ from = \"/\", to = \"/app/\" }}]\n"
    );
    let (_origin, larder) = start(&config, |exchange| match exchange.request.method() {
        "POST" => {
            let location = exchange.request.target().replace("/new", "");
            exchange.respond("303 See Other", &format!("Location: {location}\r\n"), "");
        }
        _ => {
            exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", "content");
        }
    });
    for target in ["/app/items", "/app/others"] {
        larder.get(target);
        assert!(larder.get(target).is_hit(), "{target}");
        let posted = larder.ask("POST", &format!("{target}/new"), "Content-Length: 0\r\n");
        assert_eq!(posted.field("location"), target);
        assert!(!larder.get(target).is_hit(), "{target}");
    }
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
    let config = format!("{SITE}{}", rules.map(text).concat());
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

/// A prefix of a URL matches only whole components, so no host is taken for another.
#[test]
fn beginnings_end_where_components_do() {
    let rule = "location = [{ from = \"http://internal.example\", to = \"https://shop.example\" }, \
        { from = \"/in\", to = \"/out\" }, { from = \"/\", to = \"/app/\" }]\n\
        cookie_paths = [{ from = \"/in\", to = \"/out\" }]";
    let config = format!("{SITE}{}", rules("client_response", &[rule]));
    let (_origin, larder) = start(&config, |exchange| {
        let target = exchange.request.target().to_owned();
        let query = target.split_once('?').map_or("", |(_, query)| query);
        exchange.respond("302 Found", &format!("Location: {query}\r\nSet-Cookie: a=1; Path={query}\r\n"), "");
    });
    let cases = [
        ("http://internal.example/x", "https://shop.example/x"),
        ("http://internal.example.evil.example/", "http://internal.example.evil.example/"),
        ("http://internal.example@evil.example/", "http://internal.example@evil.example/"),
        ("/in/x", "/out/x"),
        ("/inner", "/app/inner"),
        ("//evil.example/", "//evil.example/"),
    ];
    for (value, expected) in cases {
        let found = larder.get(&format!("/0/?{value}"));
        assert_eq!(found.field("location"), expected, "{value}");
        let path = if value.starts_with("/in") && value != "/inner" { expected } else { value };
        let cookie = format!("a=1; Path={path}");
        assert_eq!(found.field("set-cookie"), cookie, "{value}");
    }
}

/// `config_cases/transforms_unsafe.toml` tests all other rules that `larder check` refuses.
#[test]
fn check_refuses_globs_without_end_and_too_many_rules() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("larder.toml");
    let check = |rules: &str, expected: &str| {
        std::fs::write(&file, SITE.replace("@origin@", "http://a") + rules).expect("a file");
        let output = run(LARDER, ["check".as_ref(), file.as_os_str()]);
        let text = output.text();
        assert!(output.status == 1 && text.contains(expected), "{expected}: {} {text:.500}", output.status);
    };
    let transform = "[[site.transform]]\nphase = \"client_response\"\n";
    for depth in [500, 2000] {
        let glob = format!("{}b{}", "{a,".repeat(depth), "}".repeat(depth));
        check(&format!("{transform}response_fields = {{ X-A = \"{glob}\" }}"), "error");
        check(&format!("{transform}path = {{ glob = \"{glob}\" }}"), "error");
    }
    let many = format!("{transform}remove = [\"X-A\"]\n").repeat(10_001);
    check(&many, "a site may have at most 10000 transformation rules of a phase");
}
