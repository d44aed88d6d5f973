//! Paths in every spelling: one normal form for keys, rules, purges and origins, and nothing that an origin could interpret differently.

use testkit::{Larder, Response, ScriptedOrigin, run};

use crate::LARDER;
use crate::cache::basics::{get_of, with};

/// Spellings of `/secret` that attackers use, for origins that decode up to three times and normalize paths in all known ways.
const ATTACKS: &str = "\
    /%73ecret /%73%65%63%72%65%74 /s%65cret /secre%74 /%2573ecret /%25%37%33ecret /%25%373ecret /%257%33ecret /s%25%365cret \
    /s%25%36%35cret /s%256%35cret /%2525%37%33ecret /%252573ecret /%25252573ecret /%%37%33ecret /%%373ecret /%7%33ecret \
    /%25%32%66secret /%252fsecret /%2fsecret /%5csecret /%25%35%63secret /\\secret //secret ///secret //x/secret \
    /x//../secret /./secret /%2e/secret /%2e%2fsecret /x/../secret /x/%2e%2e/secret /x/.%2E/secret /x/%252e%252e/secret \
    /x/%25%32%65%25%32%65/secret /x%2f..%2fsecret /x/..%5csecret /x/..;/secret /x/..%3b/secret /secret;x /secret;x=y.css \
    /secret%3bx /secret%253bx.css /;x/secret /secret%00 /secret%00.css /secret%0a.css /secret%2500 /secret%3f.css \
    /secret%3Fx=1 /secret%23.css /secret%2523.css /static/%2e%2e/secret /static/..%2fsecret /static%2f..%2fsecret \
    /static/%252e%252e%252fsecret /static/../secret /static/x/..;/../secret /static\\..\\secret";

/// Paths that only some origins interpret as `/secret`: they keep decoded dots, `..;` or backslashes, merge slashes after dots, parse the
/// path as a URL reference, or cut parameters first.
const MISREAD: &str = "\
    /secret/%2e%2e /secret%2f.. /secret/..; //secret/..; /static/../secret/..;/static/ /secret/..\\x /secret/..%5cx \
    /./secret//.. /x/../secret//.. ///x/secret /\\x/secret /a%2fb/../secret /secret/..%2f..%2fstatic /secret;%2f.. \
    /secret;x%2f..%2ffoo /secret;%5c..%5cp";

fn attacks() -> impl Iterator<Item = &'static str> {
    ATTACKS.split_whitespace()
}

/// Decodes four times, which is enough for every attack, and then normalizes as servers of all kinds would.
fn read_as(target: &str) -> String {
    let mut path = target.split('?').next().unwrap_or_default().as_bytes().to_vec();
    for _ in 0..4 {
        let mut decoded = Vec::new();
        let mut at = 0;
        while let Some(byte) = path.get(at) {
            let digits = path.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
            let escaped = digits
                .filter(|digits| *byte == b'%' && digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
            decoded.push(escaped.map_or(*byte, |digits| u8::from_str_radix(digits, 16).expect("digits")));
            at += if escaped.is_some() { 3 } else { 1 };
        }
        path = decoded;
    }
    let text = String::from_utf8_lossy(&path).replace('\\', "/");
    let text = text.split(['?', '#', '\0', '\n']).next().unwrap_or_default();
    let mut names: Vec<&str> = Vec::new();
    for name in text.split('/').map(|segment| segment.split(';').next().unwrap_or_default()) {
        match name {
            ".." => drop(names.pop()),
            "" | "." => {}
            name => names.push(name),
        }
    }
    // `//host/path`, which some servers treat as a URL with a host.
    if target.starts_with("//") && names.len() > 1 {
        names.remove(0);
    }
    format!("/{}", names.join("/"))
}

fn origin() -> ScriptedOrigin {
    ScriptedOrigin::start(|exchange| {
        exchange.read_body();
        let page = read_as(exchange.request.target());
        let text = format!("{page} of {:?}", exchange.request.field("x-user"));
        exchange.respond("200 OK", "ETag: \"1\"\r\n", text);
    })
}

fn echo(fields: &'static str) -> ScriptedOrigin {
    ScriptedOrigin::start(move |exchange| {
        exchange.read_body();
        let target = exchange.request.target().to_owned();
        exchange.respond("200 OK", fields, target);
    })
}

const MINUTES: &str = "Cache-Control: max-age=600\r\n";

fn site(name: &str, rules: &str) -> String {
    format!("[[site]]\nname = \"{name}\"\norigin = \"@origin@\"\nexpose_errors = true\n{rules}")
}

fn start(origin: &ScriptedOrigin, rules: &str) -> Larder {
    with(&site("a", rules), origin)
}

fn asked_by(larder: &Larder, target: &str, user: &str) -> Response {
    larder.ask("GET", target, &format!("X-User: {user}\r\n"))
}

/// An origin may continue to read after a decoded `#` or `?`, at which others end the path.
#[test]
fn nothing_hides_behind_a_decoded_end_of_the_path() {
    let origin = origin();
    let rules = "[[site.rule]]\nname = \"d\"\npath = { glob = \"/**/@internal\" }\ndeny = true\n\
                 [[site.rule]]\nname = \"admin\"\npath = { prefix = \"/admin\" }\ndeny = true\n\
                 [[site.rule]]\nname = \"me\"\npath = { regex = \"/@me$\" }\ncache = false\n\
                 [[site.rule]]\nname = \"rest\"\nspellings_allowed = [\"dot-segment\"]\nttl_override = { 200 = \"1h\" }\n";
    let larder = start(&origin, rules);
    let denied = "/x%23/%40internal /x%3F/%40internal /x%3F%23/%40internal /x%23/../admin/x /x%3F/../admin";
    for target in denied.split(' ') {
        assert_eq!(larder.get(target).status(), 403, "{target}");
    }
    for target in ["/x%23/%40me", "/x%3f1/%40me"] {
        for user in ["alice", "bob"] {
            let answer = asked_by(&larder, target, user);
            assert!(!answer.is_hit() && answer.text().contains(user), "{target} {user}: {}", answer.text());
        }
    }
}

#[test]
fn paths_stay_below_the_path_of_the_origin() {
    let origin = origin();
    let below = "[[site]]\nname = \"a\"\norigin = \"@origin@/tenant\"\n".to_owned();
    let rewrite = "[[site.transform]]\nphase = \"client_request\"\nrewrite = { add_prefix = \"/tenant\" }\n";
    for config in [below, site("a", rewrite)] {
        let larder = with(&config, &origin);
        assert_eq!(larder.get("/page").status(), 200);
        let before = origin.total();
        let leaving =
            "/../admin /%2e%2e/admin /..%2fadmin /x/..;/../../admin /%u002e%u002e/admin /%c0%ae%c0%ae/admin";
        for target in leaving.split(' ') {
            assert_eq!(larder.get(target).status(), 400, "{target}: {config}");
        }
        assert_eq!(origin.total(), before);
    }
}

/// If paths matter only because of another site's prefix, an allowed spelling isn't stored either.
#[test]
fn an_allowed_spelling_beside_a_prefix_is_not_stored() {
    let origin = origin();
    let allowing =
        "[[site.rule]]\nspellings_allowed = [\"encoded-slash\"]\nttl_override = { 200 = \"1h\" }\n";
    let larder = with(&(site("a", "path_prefix = \"/a\"\n") + &site("b", allowing)), &origin);
    for _ in 0..2 {
        let answer = larder.get("/@s%2fn");
        assert!(answer.status() == 200 && !answer.is_hit(), "{}", answer.cache_status());
    }
    assert_eq!(origin.total(), 2);
}

/// Field bug: `/%25%36%31dmin` passed what `/%2561dmin` did not.
#[test]
fn no_spelling_evades_what_denies_or_limits() {
    let restricting = [
        "[[site.rule]]\nname = \"r\"\npath = { exact = \"/secret\" }\ndeny = true\n",
        "[[site.rule]]\nname = \"r\"\npath = { prefix = \"/secret\" }\ndeny = true\n",
        "[[site.rule]]\nname = \"r\"\npath = { regex = \"^/secret(/|$)\" }\ndeny = true\n",
        "[[site.rule]]\nname = \"r\"\npath = { glob = \"/secret\" }\ndeny = true\n",
        "[[site.rule]]\nname = \"r\"\npath = { exact = \"/secret\" }\nrate_limit = { requests = 1, window = \"1h\", burst = 1 }\n",
    ];
    for rule in restricting {
        let origin = origin();
        let rest = "[[site.rule]]\nname = \"rest\"\nttl_default = { 200 = \"1h\" }\n";
        let larder = start(&origin, &format!("{rule}{rest}"));
        larder.get("/secret");
        let before = origin.total();
        attacks().for_each(|target| assert_eq!(read_as(target), "/secret", "{target} is an attack"));
        for target in attacks().chain(MISREAD.split_whitespace()) {
            let status = larder.get(target).status();
            assert!([400, 403, 429].contains(&status), "{target}: {status} by {rule}");
        }
        assert_eq!(origin.total(), before, "{rule}");
    }
}

/// A user's page reaches no other user, whether a rule forbids storing it or permits storing something else.
#[test]
fn no_spelling_has_a_page_stored_for_others() {
    let rules = [
        "[[site.rule]]\npath = { exact = \"/secret\" }\ncache = false\n[[site.rule]]\nttl_override = { 200 = \"1h\" }\n",
        "[[site.rule]]\npath = { regex = \"^/secret(/|$)\" }\nttl_override = { default = \"0s\" }\n[[site.rule]]\nttl_override = { 200 = \"1h\" }\n",
        "[[site.rule]]\npath = { prefix = \"/static\" }\nttl_override = { 200 = \"1h\" }\n",
        "[[site.rule]]\npath = { regex = \"[?&.](x|css)|^/secret$\" }\ncache = false\n[[site.rule]]\nttl_override = { 200 = \"1h\" }\n",
        "[[site.rule]]\npath = { regex = \"\\\\.css$\" }\nttl_override = { 200 = \"1h\" }\ntype_mismatch = \"store\"\n",
        "[[site.transform]]\nphase = \"origin_response\"\npath = { glob = \"/{static,x}/**\" }\nset = { Cache-Control = \"max-age=3600\" }\n",
        "[[site.transform]]\nphase = \"origin_response\"\npath = { exact = \"/secret\" }\nset = { Cache-Control = \"no-store\" }\n\
         [[site.rule]]\nttl_override = { 200 = \"1h\" }\n",
    ];
    for rules in rules {
        let origin = origin();
        let larder = start(&origin, rules);
        for target in attacks() {
            for user in ["alice", "bob"] {
                let answer = asked_by(&larder, target, user);
                let is_own = answer.text() == format!("/secret of {user:?}");
                assert!(answer.status() == 400 || is_own, "{target} by {rules}: {}", answer.text());
            }
        }
    }
}

#[test]
fn no_spelling_leads_into_another_site() {
    let origin = origin();
    let guarded = site("secret", "path_prefix = \"/secret\"\nclients_denied = [\"127.0.0.1\"]\n");
    let larder = with(&(guarded + &site("a", "")), &origin);
    for target in attacks() {
        let status = larder.get(target).status();
        assert!([400, 403].contains(&status), "{target}: {status}");
    }
    assert_eq!(origin.total(), 0);
}

/// A refusal names the reason, and honest paths are not refused. `routing::spelling` tests the spellings themselves.
#[test]
fn refusals_name_the_spelling() {
    let origin = origin();
    let rules =
        "[[site.rule]]\nname = \"r\"\npath = { prefix = \"/api/\" }\nttl_default = { 200 = \"1h\" }\n";
    let larder = start(&origin, rules);
    let allow = |name: &str| format!("allow it with `spellings_allowed = [\"{name}\"]`");
    let never = || "`spellings_allowed` can't allow it".to_owned();
    for (target, name, part, key) in [
        ("/a%2fb", "encoded-slash", "a%2Fb", allow("encoded-slash")),
        ("/a\\b", "backslash", "a\\b", allow("backslash")),
        ("/a%3bb", "semicolon", "a%3Bb", allow("semicolon")),
        ("/a//b", "empty-segment", "//", allow("empty-segment")),
        ("//a", "empty-segment", "//", never()),
        ("/a%00", "control-character", "a%00", allow("control-character")),
        ("/a;b%2fc", "encoded-slash, semicolon", "a;b%2Fc", never()),
    ] {
        let refused = larder.get(target);
        let found = (refused.status(), refused.cache_status());
        assert_eq!(found, (400, "larder; detail=ambiguous-path".to_owned()), "{target}");
        for told in [name, &format!("the part `{part}`"), &key] {
            assert!(refused.text().contains(told), "{target}, {told}: {}", refused.text());
        }
    }
    let honest = "/ /100%25-off /100% /a%20b /caf%C3%A9 /C%23 /What%3F /%40me /.well-known/x /a/... /a?b=//;x/../%2f%252f";
    for target in honest.split(' ') {
        for is_second in [false, true] {
            let answer = larder.get(&format!("/api{target}"));
            let found = (answer.status(), answer.is_hit());
            assert_eq!(found, (200, is_second), "{target}: {}", answer.cache_status());
        }
    }
    let admin = larder.admin().to_string();
    let explained = run(LARDER, ["explain", "http://a/%61%2fb", "--admin", &admin]).text();
    assert!(explained.contains("origins may interpret the path differently: refused"), "{explained}");
    for told in ["encoded-slash", "the part `a%2Fb`", &allow("encoded-slash")] {
        assert!(explained.contains(told), "{told}: {explained}");
    }
}

/// Some origins interpret two slashes at the beginning as the start of a host name.
#[test]
fn a_prefix_that_is_cut_off_leaves_no_slashes() {
    let origin = echo("");
    let allowed = "[[site.rule]]\nspellings_allowed = [\"empty-segment\"]\n";
    let rewrite = "[[site.transform]]\nphase = \"client_request\"\nrewrite = { strip_prefix = \"/shop\" }\n";
    for rules in
        [format!("path_prefix = \"/shop\"\nstrip_prefix = true\n{allowed}"), format!("{allowed}{rewrite}")]
    {
        let larder = start(&origin, &rules);
        assert_eq!(larder.get("/shop/a//b").text(), "/a//b", "{rules}");
        let before = origin.total();
        for target in ["/shop//evil.example/x", "/shop///x", "/shop//"] {
            let refused = larder.get(target);
            assert_eq!(refused.status(), 400, "{target}: {} with {rules}", refused.text());
            assert!(refused.text().contains("can't allow it"), "{}", refused.text());
        }
        assert_eq!(origin.total(), before);
    }
}

#[test]
fn without_paths_all_spellings_pass() {
    let origin = echo(MINUTES);
    let larder = start(&origin, "[[site.rule]]\nname = \"all\"\nttl_default = { 200 = \"1h\" }\n");
    for target in ["//a", "/a/../b", "/a;b", "/a%2Fb", "/a%2561", "/a\\b", "/a%00"] {
        for is_second in [false, true] {
            let answer = larder.get(target);
            assert_eq!((answer.text(), answer.is_hit()), (target.to_owned(), is_second), "{target}");
        }
    }
}

/// Some origins interpret two slashes at the beginning as the start of a host name, whose site may have rules.
#[test]
fn no_path_names_the_host_of_another_site() {
    let origin = echo("");
    let denied =
        "hosts = [\"guarded.example\"]\n[[site.rule]]\npath = { prefix = \"/admin\" }\ndeny = true\n";
    let config = site("open", "hosts = [\"open.example\"]\n") + &site("guarded", denied);
    let larder = with(&config, &origin);
    for (host, target, status) in [
        ("guarded.example", "/admin", 403),
        ("GUARDED.example.:8080", "/%61dmin", 403),
        ("guarded.example:0", "/x//admin", 400),
        ("open.example", "//guarded.example/admin", 400),
        ("open.example", "///guarded.example/admin", 400),
        // This site has no rules by path.
        ("open.example", "/x//admin;y/%2561/..%2fz", 200),
        ("guarded%2eexample", "/admin", 400),
        ("x@guarded.example", "/admin", 400),
        ("other.example", "/admin", 421),
    ] {
        assert_eq!(get_of(&larder, host, target).status(), status, "{host}{target}");
    }
}

/// Package registries and forges encode names with slashes as one segment.
#[test]
fn a_rule_allows_a_spelling_that_is_then_never_stored() {
    let origin = echo(MINUTES);
    let rules = "[[site.rule]]\nname = \"denied\"\npath = { prefix = \"/@scope/secret\" }\ndeny = true\n\
                 [[site.rule]]\nname = \"parameter\"\npath = { exact = \"/@scope/a;b\" }\ndeny = true\nspellings_allowed = [\"semicolon\"]\n\
                 [[site.rule]]\nname = \"slow\"\npath = { exact = \"/@scope/slow\" }\nrate_limit = { requests = 1, window = \"1h\", burst = 1 }\n\
                 [[site.rule]]\nname = \"npm\"\npath = { prefix = \"/@\" }\nspellings_allowed = [\"encoded-slash\", \"semicolon\"]\n";
    let larder = start(&origin, rules);
    assert_eq!(larder.get("/@scope/name").text(), "/@scope/name");
    assert!(larder.get("/@scope/name").is_hit());
    for (target, sent) in [("/@scope%2fname", "/@scope%2Fname"), ("/@scope/a;c", "/@scope/a;c")].repeat(2) {
        let allowed = larder.get(target);
        assert_eq!(allowed.text(), sent);
        assert!(allowed.cache_status().starts_with("larder; fwd=bypass"), "{}", allowed.cache_status());
    }
    for (target, status) in [
        ("/@scope%2fsecret", 403),
        ("/@scope%2FSECRET/x", 403),
        ("/@scope/a;b", 403),
        ("/@scope/a%3bb", 403),
        ("/@scope%2fslow", 200),
        ("/@scope%2Fslow", 429),
        ("/@scope/slow", 429),
        ("/@scope%2f..%2fx", 400),
        ("/@scope%2fa;b", 400),
        ("/@scope%252fname", 400),
        ("/@scope%2f%2fname", 400),
        ("/other%2fname", 400),
        ("/%40scope%2fname", 400),
    ] {
        assert_eq!(larder.get(target).status(), status, "{target}");
    }
    let admin = larder.admin().to_string();
    let explained = run(LARDER, ["explain", "http://a/@scope%2fname", "--admin", &admin]).text();
    assert!(explained.contains("nothing is stored"), "{explained}");
}
