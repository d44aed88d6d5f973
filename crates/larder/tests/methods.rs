//! What methods other than GET do to stored responses, seen from both sides of the running binary.

use testkit::{Exchange, Gate, Larder, ScriptedOrigin, Setup};

const LARDER: &str = env!("CARGO_BIN_EXE_larder");

/// Field lines in a table have `\n` between them.
fn lines(fields: &str) -> String {
    fields.lines().map(|line| format!("{line}\r\n")).collect()
}

/// A GET is stored, a HEAD is forwarded, and another GET shows what became of the stored response.
struct HeadCase {
    name: &'static str,
    stored: &'static str,
    request: &'static str,
    answer: (&'static str, &'static str),
    /// A part of the `Cache-Status` of the last response.
    then: &'static str,
    /// A field of the last response with its value.
    field: (&'static str, &'static str),
}

impl HeadCase {
    fn path(&self) -> String {
        format!("/{}", self.name.replace(' ', "-"))
    }

    fn answer(&self, exchange: &mut Exchange<'_>) {
        match (exchange.request.method(), exchange.request.earlier) {
            ("HEAD", _) => exchange.head(self.answer.0, &lines(self.answer.1)),
            (_, 0) => exchange.respond("200 OK", &lines(self.stored), "the body"),
            _ => exchange.respond("200 OK", "Cache-Control: max-age=60\r\nX-Test: new\r\n", "the body"),
        };
    }

    fn check(&self, larder: &Larder) {
        let path = self.path();
        assert_eq!(larder.get(&path).text(), "the body", "{}", self.name);
        let head = larder.ask("HEAD", &path, &lines(&format!("Cache-Control: no-cache\n{}", self.request)));
        assert!(head.cache_status().contains("fwd="), "{}: {:?}", self.name, head.head);
        let last = larder.get(&path);
        let what = format!("{}: {:?}", self.name, last.head);
        assert_eq!(last.text(), "the body", "{what}");
        assert!(last.cache_status().contains(self.then), "no {} in {what}", self.then);
        assert_eq!(last.field(self.field.0), self.field.1, "{what}");
    }
}

const STORED: &str = "Cache-Control: max-age=60\nETag: \"a\"\nX-Test: old";

const HEAD_CASES: &[HeadCase] = &[
    HeadCase {
        name: "fields are updated",
        stored: STORED,
        request: "",
        answer: ("200 OK", "Cache-Control: max-age=90\nETag: \"a\"\nX-Test: head\nContent-Length: 8"),
        then: "hit",
        field: ("x-test", "head"),
    },
    HeadCase {
        name: "lifetimes are updated",
        stored: "Cache-Control: max-age=0\nETag: \"a\"",
        request: "",
        answer: ("200 OK", "Cache-Control: max-age=90\nETag: \"a\""),
        then: "hit",
        field: ("cache-control", "max-age=90"),
    },
    HeadCase {
        name: "what describes the content stays",
        stored: "Cache-Control: max-age=60\nContent-Type: text/plain",
        request: "",
        answer: ("200 OK", "Content-Type: text/html"),
        then: "hit",
        field: ("content-type", "text/plain"),
    },
    HeadCase {
        name: "fields of the connection stay out",
        stored: STORED,
        request: "",
        answer: ("200 OK", "ETag: \"a\"\nConnection: x-test\nX-Test: hop"),
        then: "hit",
        field: ("x-test", "old"),
    },
    HeadCase {
        name: "another tag",
        stored: STORED,
        request: "",
        answer: ("200 OK", "Cache-Control: max-age=60\nETag: \"b\""),
        then: "fwd=stale",
        field: ("x-test", "new"),
    },
    HeadCase {
        name: "another length",
        stored: STORED,
        request: "",
        answer: ("200 OK", "Cache-Control: max-age=60\nETag: \"a\"\nContent-Length: 9"),
        then: "fwd=stale",
        field: ("x-test", "new"),
    },
    HeadCase {
        name: "gone",
        stored: STORED,
        request: "",
        answer: ("410 Gone", ""),
        then: "fwd=stale",
        field: ("x-test", "new"),
    },
    HeadCase {
        name: "an error says nothing",
        stored: STORED,
        request: "",
        answer: ("503 Service Unavailable", "Cache-Control: no-store"),
        then: "hit",
        field: ("x-test", "old"),
    },
    HeadCase {
        name: "no longer to be stored",
        stored: STORED,
        request: "",
        answer: ("200 OK", "Cache-Control: no-store\nETag: \"a\""),
        then: "fwd=uri-miss",
        field: ("x-test", "new"),
    },
    HeadCase {
        name: "another variant",
        stored: "Cache-Control: max-age=60\nVary: X-Lang\nX-Test: old",
        request: "X-Lang: de",
        answer: ("200 OK", "Cache-Control: max-age=60\nVary: X-Lang\nX-Test: head\nContent-Length: 9"),
        then: "hit",
        field: ("x-test", "old"),
    },
    HeadCase {
        name: "one client alone",
        stored: STORED,
        request: "Authorization: Basic YTpi",
        answer: ("200 OK", "Cache-Control: max-age=60\nETag: \"a\"\nX-Test: head"),
        then: "hit",
        field: ("x-test", "old"),
    },
    HeadCase {
        name: "asked for something else",
        stored: STORED,
        request: "X-Original-URL: /other",
        answer: ("200 OK", "Cache-Control: max-age=60\nX-Test: poison"),
        then: "hit",
        field: ("x-test", "old"),
    },
];

//= RFC 9111 section 4.3.5: a 200 to HEAD updates or invalidates
//= RFC 9111 section 3.2: updating stored header fields
#[test]
fn a_forwarded_head_updates_or_invalidates_what_is_stored() {
    let origin = ScriptedOrigin::start(|exchange| {
        let case = HEAD_CASES.iter().find(|case| case.path() == exchange.request.target());
        case.expect("only paths of cases are asked for").answer(exchange);
    });
    let larder = Setup::origin(LARDER, &origin.url()).start();
    HEAD_CASES.iter().for_each(|case| case.check(&larder));
}

//= RFC 9111 section 4.3.5: a 200 to HEAD updates or invalidates
#[test]
fn a_head_without_a_stored_response_stores_nothing() {
    let origin = ScriptedOrigin::start(|exchange| {
        match exchange.request.method() {
            "HEAD" => exchange.head("200 OK", "Cache-Control: max-age=60\r\nContent-Length: 8\r\n"),
            _ => exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", "the body"),
        };
    });
    let larder = Setup::origin(LARDER, &origin.url()).start();
    assert_eq!(larder.ask("HEAD", "/", "").field("content-length"), "8");
    let response = larder.get("/");
    assert!(response.cache_status().contains("fwd=uri-miss"), "{:?}", response.head);
    assert_eq!(response.text(), "the body");
}

const STORES_POST: &str = "[[site]]\nname = \"a\"\norigin = \"@origin@\"\n[[site.rule]]\nstore_post = true\n";

/// A request whose response is stored waits at the origin for the gate; `meanwhile` happens, and then it is answered.
/// Returns the `Cache-Status` of a later `probe` that the stored response would answer.
fn overtaken(method: &'static str, probe: &str, meanwhile: impl Fn(&Larder)) -> String {
    let gate = Gate::new();
    let at_origin = gate.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        if exchange.request.method() == method {
            at_origin.pass();
        }
        let fields = "Cache-Control: max-age=60\r\nContent-Location: /\r\n";
        let body = format!("{} {}", exchange.request.method(), exchange.request.earlier);
        exchange.respond("200 OK", fields, body);
    });
    let larder = Setup::config(LARDER, &STORES_POST.replace("@origin@", &origin.url())).start();
    let mut held = larder.client();
    held.send(format!("{method} / HTTP/1.1\r\nHost: test.example\r\n{EMPTY}\r\n"));
    origin.wait_for("/", 1);
    meanwhile(&larder);
    gate.open();
    assert_eq!(held.response().text(), format!("{method} 0"));
    larder.ask(probe, "/", EMPTY).cache_status()
}

/// No content, of a type.
const EMPTY: &str = "Content-Type: application/x-q\r\nContent-Length: 0\r\n";

//= RFC 9111 section 4.4: invalidating stored responses
#[test]
fn what_an_invalidation_overtook_is_not_used() {
    let put = |larder: &Larder| drop(larder.ask("PUT", "/", EMPTY));
    assert!(overtaken("POST", "GET", |_| {}).contains("hit"));
    assert!(overtaken("POST", "GET", put).contains("fwd=uri-miss"));
    assert!(overtaken("QUERY", "QUERY", |_| {}).contains("hit"));
    assert!(overtaken("QUERY", "QUERY", put).contains("fwd=stale"));
}

//= RFC 10008 section 2.7: the cache key has the content
#[test]
fn a_query_of_many_bytes_is_told_apart_from_another() {
    let origin = ScriptedOrigin::start(|exchange| {
        let sum = exchange.read_body().iter().map(|byte| u64::from(*byte)).sum::<u64>();
        exchange.respond("200 OK", "Cache-Control: max-age=60\r\n", sum.to_string());
    });
    let larder = Setup::origin(LARDER, &origin.url()).start();
    let mut client = larder.client();
    let mut ask = |last: &str| {
        let body = "a".repeat(60 << 10) + last;
        let head = "QUERY / HTTP/1.1\r\nHost: test.example\r\nContent-Type: text/plain\r\n";
        client.send(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()));
        client.response()
    };
    let (first, other, again) = (ask("b"), ask("c"), ask("b"));
    assert_ne!(first.text(), other.text());
    assert!(!other.is_hit() && again.is_hit(), "{:?} {:?}", other.head, again.head);
    assert_eq!(again.text(), first.text());
}
