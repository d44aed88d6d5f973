//! Requests that something overtakes between their look-up and their answer, seen from both sides of the running binary.

use testkit::{Client, Exchange, Gate, Larder, Received, Response, ScriptedOrigin};

use super::basics::{bare, gates, wait_for_waiters, with};
use crate::fleet::purge_waits::purge;

const V1: &str = "Cache-Control: max-age=0, stale-if-error=600\r\nETag: \"v1\"\r\n";

/// Everything that selects a stored response besides its URL: the method, and the end of the request head with the content.
const PLAIN: (&str, &str) = ("GET", "\r\n");
const KEYED: (&str, &str) = ("GET", "X-K: 1\r\n\r\n");
const PREFIX: (&str, &str) = ("GET", "X-Forwarded-Prefix: /p\r\n\r\n");
const QUERY: (&str, &str) = ("QUERY", "Content-Type: text/plain\r\nContent-Length: 1\r\n\r\nq");
const KINDS: [(&str, &str); 4] = [PLAIN, KEYED, PREFIX, QUERY];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    Validates,
    Breaks,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    Nothing,
    /// Another client's request stores a newer response.
    Stored,
}

#[derive(Clone, Copy, Debug)]
struct Story {
    kind: (&'static str, &'static str),
    mode: &'static str,
    first: First,
    between: Between,
}

impl Story {
    fn target(&self) -> String {
        let field = self.kind.1.split(':').next().unwrap_or_default().trim();
        format!("/{}-{field}-{}-{:?}-{:?}", self.kind.0, self.mode, self.first, self.between)
    }

    fn all(mode: &'static str) -> Vec<Self> {
        let ends = [First::Validates, First::Breaks];
        let ends = ends.iter().flat_map(|first| [(*first, Between::Nothing), (*first, Between::Stored)]);
        let of_kind = |kind| ends.clone().map(move |(first, between)| Self { kind, mode, first, between });
        KINDS.into_iter().flat_map(of_kind).collect()
    }

    fn send(&self, larder: &Larder) -> Client {
        let mut client = larder.client();
        let (method, rest) = self.kind;
        client.send(format!("{method} {} HTTP/1.1\r\nHost: test.example\r\n{rest}", self.target()));
        client
    }

    fn ask(&self, larder: &Larder) -> Response {
        self.send(larder).response()
    }
}

/// Sends v1 in the first response and validates it from then on; requests that don't name it get v2. The second request waits at the
/// gate.
fn origin(stories: &[Story], gate: &Gate) -> ScriptedOrigin {
    let (gate, stories) = (gate.clone(), stories.to_vec());
    ScriptedOrigin::start(move |exchange| {
        let number = exchange.request.earlier;
        exchange.read_body();
        let target = exchange.request.target().to_owned();
        let story = stories.iter().find(|story| story.target() == target).expect("a story");
        if number == 1 {
            gate.pass();
            if story.first == First::Breaks {
                exchange.send("no response\r\n\r\n").close();
                return;
            }
        }
        let names_v1 = exchange.request.field("if-none-match").contains("\"v1\"");
        // A soft purge keeps the validator for the next request, whose response is v2.
        let knows_v2 = story.mode == "soft" && story.between == Between::Stored && number > 1;
        if number == 0 {
            exchange.respond("200 OK", V1, "v1");
        } else if names_v1 && !knows_v2 {
            exchange.head("304 Not Modified", "Cache-Control: max-age=60\r\nETag: \"v1\"\r\n");
        } else {
            exchange.respond("200 OK", "Cache-Control: max-age=60\r\nETag: \"v2\"\r\n", "v2");
        }
    })
}

/// Plays all stories up to the end of the validation, concurrently. Returns the responses to the leader, to a waiter, and to a request
/// after both are answered.
fn play(stories: &[Story]) -> (Vec<[Response; 3]>, ScriptedOrigin) {
    let gate = Gate::new();
    let origin = origin(stories, &gate);
    let settings = "trusted_proxies = [\"127.0.0.1\"]\n@site@request_fields_keyed = [\"X-K\"]\n\
                    collapse_limits = { wait_max = \"60s\" }\n";
    let larder = with(settings, &origin);
    let mut asked = Vec::new();
    for (place, story) in stories.iter().enumerate() {
        assert_eq!(story.ask(&larder).text(), "v1");
        let leads = story.send(&larder);
        origin.wait_for(&story.target(), 2);
        let waits = story.send(&larder);
        wait_for_waiters(&larder, place + 1);
        purge(&larder, &format!("url=http://test.example{}&mode={}", story.target(), story.mode));
        if story.between == Between::Stored {
            assert_eq!(story.ask(&larder).text(), "v2", "{story:?}");
        }
        asked.push([leads, waits]);
    }
    gate.open();
    let answers = stories.iter().zip(asked).map(|(story, asked)| {
        let [leads, waits] = asked.map(|mut client| client.response());
        [leads, waits, story.ask(&larder)]
    });
    (answers.collect(), origin)
}

fn validations(origin: &ScriptedOrigin, target: &str) -> usize {
    let is_one =
        |request: &Received| request.target() == target && request.field("if-none-match").contains("\"v1\"");
    origin.received().iter().filter(|request| is_one(request)).count()
}

/// After the purge, it is as if nothing had ever been stored, even for requests that had found the response: they neither get, validate
/// nor store it.
#[test]
fn what_was_purged_does_not_come_back() {
    let stories = Story::all("hard");
    let (answers, origin) = play(&stories);
    let mut wrong = Vec::new();
    for (story, answers) in stories.iter().zip(&answers) {
        let seen = answers.each_ref().map(|answer| (answer.status(), answer.text()));
        let is_v2 = |(status, text): &(u16, String)| (*status, text.as_str()) == (200, "v2");
        let is_led_right = if story.first == First::Breaks { seen[0].0 == 502 } else { is_v2(&seen[0]) };
        let is_right = is_led_right && seen[1..].iter().all(is_v2);
        // Only the validation that was under way names the purged response, none that begins later.
        let validated = validations(&origin, &story.target());
        if !is_right || validated > 1 {
            wrong.push(format!("{}: {validated} validations, {seen:?}", story.target()));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// A soft purge keeps the response for later validations.
#[test]
fn what_was_made_stale_is_validated_by_a_later_request() {
    let stories: Vec<_> =
        Story::all("soft").into_iter().filter(|story| story.first == First::Validates).collect();
    let (answers, origin) = play(&stories);
    let mut wrong = Vec::new();
    for (story, [_, waits, next]) in stories.iter().zip(&answers) {
        let expected = if story.between == Between::Stored { "v2" } else { "v1" };
        let validated = validations(&origin, &story.target());
        if waits.text() != expected || next.text() != expected || !next.is_hit() || validated < 2 {
            wrong.push(format!("{}: {validated} validations, {waits:?}, {next:?}", story.target()));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// Stores the response to a GET of `/` with these fields, and purges it while the next request, by this method, is at the origin.
fn purged_meanwhile(
    stored: &str,
    method: &str,
    answers: [fn(&mut Exchange<'_>); 3],
) -> (Response, ScriptedOrigin) {
    let (gate, held) = gates();
    let origin = ScriptedOrigin::start(move |exchange| {
        let number = exchange.request.earlier.min(2);
        if number == 1 {
            held.pass();
        }
        answers[number](exchange);
    });
    let larder = bare(&origin);
    larder.ask("GET", "/", stored);
    let mut held = larder.client();
    held.send(format!("{method} / HTTP/1.1\r\nHost: test.example\r\n\r\n"));
    origin.wait_for("/", 2);
    purge(&larder, "url=http://test.example/");
    gate.open();
    let answer = held.response_to(method);
    assert!(!larder.get("/").is_hit() || larder.get("/").text().starts_with("v2"), "it is gone");
    (answer, origin)
}

/// A response that was purged meanwhile isn't used if the origin fails, isn't completed, and isn't served during a background
/// validation.
#[test]
fn what_was_purged_is_no_part_of_an_answer() {
    const V2: &str = "Cache-Control: max-age=60\r\nETag: \"v2\"\r\n";
    const BEHIND: &str = "Cache-Control: max-age=60, stale-while-revalidate=600\r\nETag: \"v1\"\r\n";
    fn part(exchange: &mut Exchange<'_>, range: &str, body: &str) {
        let fields = "Cache-Control: max-age=60\r\nETag: \"v1\"\r\nContent-Range: bytes ";
        exchange.respond("206 Partial Content", &format!("{fields}{range}\r\n"), body);
    }
    let (answer, _) = purged_meanwhile(
        "",
        "HEAD",
        [
            |exchange| _ = exchange.respond("200 OK", V1, "v1"),
            |exchange| _ = exchange.send("no response\r\n\r\n").close(),
            |exchange| _ = exchange.respond("200 OK", V1, "v2"),
        ],
    );
    assert_eq!((answer.status(), answer.field("etag")), (502, ""), "{:?}", answer.head);
    let (answer, origin) = purged_meanwhile(
        "Range: bytes=0-4\r\n",
        "GET",
        [
            |exchange| part(exchange, "0-4/10", "v1..."),
            |exchange| part(exchange, "5-9/10", "...v1"),
            |exchange| _ = exchange.respond("200 OK", V2, "v2......v2"),
        ],
    );
    assert_eq!((answer.status(), answer.text().as_str()), (200, "v2......v2"), "{:?}", answer.head);
    let validators: Vec<_> =
        origin.received().iter().map(|request| request.field("if-range").to_owned()).collect();
    assert_eq!(validators, ["", "\"v1\"", ""]);
    let (answer, _) = purged_meanwhile(
        "",
        "GET",
        [
            |exchange| _ = exchange.respond("200 OK", &format!("Age: 100\r\n{BEHIND}"), "v1"),
            |exchange| _ = exchange.head("304 Not Modified", BEHIND),
            |exchange| _ = exchange.respond("200 OK", V2, "v2"),
        ],
    );
    assert_eq!(answer.text(), "v1", "it was answered before");
}

/// A version, its tag, and the step of the gate that its response waits for.
type Numbered = (usize, &'static str, usize);

/// Answers the first of two concurrent requests last. Returns whether a later request is a hit, and its body.
fn nested((second, collapse): (&str, &str), answers: [Numbered; 3]) -> (bool, String) {
    let (gate, steps) = gates();
    let origin = ScriptedOrigin::start(move |exchange| {
        let (version, etag, waits_for) = answers[exchange.request.earlier.min(2)];
        steps.pass_step(waits_for);
        let fields = format!("Cache-Control: max-age=60\r\n{etag}");
        exchange.respond("200 OK", &fields, format!("version {version}"));
    });
    let larder = with(&format!("@site@collapse = \"{collapse}\"\n"), &origin);
    let send = |method: &str| {
        let mut client = larder.client();
        let fields = "Host: test.example\r\nCache-Control: no-cache\r\n";
        client.send(format!("{method} / HTTP/1.1\r\n{fields}\r\n"));
        client
    };
    let mut first = send("GET");
    origin.wait_for("/", 1);
    assert_eq!(send(second).response_to(second).status(), 200);
    gate.reach(1);
    assert_eq!(first.response().text(), format!("version {}", answers[0].0));
    gate.open();
    let next = larder.get("/");
    (next.is_hit(), next.text())
}

/// Holds regardless of the order in which the origin made its responses. If both are the same response, it stays stored.
//= RFC 9111 section 4: the most recent of several
#[test]
fn no_hit_is_older_than_an_answer_before_it() {
    let (one, two) = ("ETag: \"1\"\r\n", "ETag: \"2\"\r\n");
    for (second, collapse) in [("GET", "off"), ("HEAD", "process")] {
        // Whether the origin reads the version when a request arrives or when it answers is unknown to the gateway.
        for versions in [[1, 2], [2, 1]] {
            for tags in [[one, two], ["", ""]] {
                let answers = [(versions[0], tags[0], 1), (versions[1], tags[1], 0), (3, "", 0)];
                let seen = nested((second, collapse), answers);
                assert_eq!(seen, (false, "version 3".to_owned()), "{second} {versions:?} {tags:?}");
            }
        }
        let same = [(1, one, 1), (1, one, 0), (3, "", 0)];
        assert_eq!(nested((second, collapse), same), (true, "version 1".to_owned()), "{second}");
    }
}
