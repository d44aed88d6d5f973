//! Requests that something overtakes between their look-up and their answer, seen from both sides of the running binary.

use testkit::{Client, Gate, Larder, Received, Response, ScriptedOrigin, Setup, wait};

use crate::LARDER;

const V1: &str = "Cache-Control: max-age=0, stale-if-error=600\r\nETag: \"v1\"\r\n";

/// What selects a stored response beside its URL: the end of a request head, and content.
const PLAIN: (&str, &str) = ("GET", "\r\n");
const KEYED: (&str, &str) = ("GET", "X-K: 1\r\n\r\n");
const PREFIX: (&str, &str) = ("GET", "X-Forwarded-Prefix: /p\r\n\r\n");
const QUERY: (&str, &str) = ("QUERY", "Content-Type: text/plain\r\nContent-Length: 1\r\n\r\nq");
const KINDS: [(&str, &str); 4] = [PLAIN, KEYED, PREFIX, QUERY];

/// How the validation ends that is under way when the purge comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    Validates,
    Breaks,
}

/// What happens between the purge and that end.
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

/// Names v1 in the first answer; validates it for ever; answers who does not name it with v2. The second request waits.
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
        // A purge that only makes stale leaves the validator to who asks next, and that one learns of v2.
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

/// Plays all stories up to the end of the validation, side by side. Gives the answers to the request that leads, to
/// one that waits for it, and to one that comes when both are answered.
fn play(stories: &[Story]) -> (Vec<[Response; 3]>, ScriptedOrigin) {
    let gate = Gate::new();
    let origin = origin(stories, &gate);
    let settings = "trusted_proxies = [\"127.0.0.1\"]\n[[site]]\nname = \"a\"\norigin = \"@origin@\"\n\
                    request_fields_keyed = [\"X-K\"]\n[site.collapse_limits]\nwait_max = \"60s\"\n";
    let larder = Setup::config(LARDER, &settings.replace("@origin@", &origin.url())).start();
    let mut asked = Vec::new();
    for (place, story) in stories.iter().enumerate() {
        assert_eq!(story.ask(&larder).text(), "v1");
        let leads = story.send(&larder);
        origin.wait_for(&story.target(), 2);
        let waits = story.send(&larder);
        let count = (place + 1) as f64;
        wait::until_true("it waits", || larder.metric("larder_collapsed_waiters", &[]) >= count);
        let purge =
            format!("{{\"url\":\"http://test.example{}\",\"mode\":\"{}\"}}", story.target(), story.mode);
        assert_eq!(larder.ask_admin("POST", "/purge", &purge).status(), 200);
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

/// A purge that removes makes it as if nothing had ever been stored, for requests that found it before, too: none is
/// answered with it, none brings it back by a validation, and none stores it in the place of what came after.
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
        // The purged one is named by the validation that was under way, and by none that begins later.
        let validated = validations(&origin, &story.target());
        if !is_right || validated > 1 {
            wrong.push(format!("{}: {validated} validations, {seen:?}", story.target()));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// A purge that only makes stale leaves what it is about for validations that begin later.
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

/// Stores what `/` gives to a GET with these fields, holds the request that comes next, purges, and lets the origin go on.
/// Gives the answer to that request.
fn purged_meanwhile(
    origin: &ScriptedOrigin,
    gate: &Gate,
    (stored, method, fields): (&str, &str, &str),
) -> Response {
    let larder = Setup::origin(LARDER, &origin.url()).start();
    larder.ask("GET", "/", stored);
    let mut held = larder.client();
    held.send(format!("{method} / HTTP/1.1\r\nHost: test.example\r\n{fields}\r\n"));
    origin.wait_for("/", 2);
    assert_eq!(larder.ask_admin("POST", "/purge?url=http://test.example/", "").status(), 200);
    gate.open();
    let answer = held.response_to(method);
    assert!(!larder.get("/").is_hit() || larder.get("/").text().starts_with("v2"), "it is gone");
    answer
}

/// Nothing that was purged meanwhile stands in for an origin that fails, is completed, or is served behind a validation.
#[test]
fn what_was_purged_is_no_part_of_an_answer() {
    let failing = Gate::new();
    let held = failing.clone();
    let origin = ScriptedOrigin::start(move |exchange| match exchange.request.earlier {
        0 => drop(exchange.respond("200 OK", V1, "v1")),
        1 => {
            held.pass();
            exchange.send("no response\r\n\r\n").close();
        }
        _ => drop(exchange.respond("200 OK", V1, "v2")),
    });
    let answer = purged_meanwhile(&origin, &failing, ("", "HEAD", ""));
    assert_eq!((answer.status(), answer.field("etag")), (502, ""), "{:?}", answer.head);

    let completing = Gate::new();
    let held = completing.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        let fields = "Cache-Control: max-age=60\r\nETag: \"v1\"\r\nContent-Range: bytes ";
        match exchange.request.earlier {
            0 => exchange.respond("206 Partial Content", &format!("{fields}0-4/10\r\n"), "v1..."),
            1 => {
                held.pass();
                exchange.respond("206 Partial Content", &format!("{fields}5-9/10\r\n"), "...v1")
            }
            _ => exchange.respond("200 OK", "Cache-Control: max-age=60\r\nETag: \"v2\"\r\n", "v2......v2"),
        };
    });
    let answer = purged_meanwhile(&origin, &completing, ("Range: bytes=0-4\r\n", "GET", ""));
    assert_eq!((answer.status(), answer.text().as_str()), (200, "v2......v2"), "{:?}", answer.head);
    let validators: Vec<_> =
        origin.received().iter().map(|request| request.field("if-range").to_owned()).collect();
    assert_eq!(validators, ["", "\"v1\"", ""]);

    let validating = Gate::new();
    let held = validating.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        let fields = "Cache-Control: max-age=60, stale-while-revalidate=600\r\nETag: \"v1\"\r\n";
        match exchange.request.earlier {
            0 => exchange.respond("200 OK", &format!("Age: 100\r\n{fields}"), "v1"),
            1 => {
                held.pass();
                exchange.head("304 Not Modified", fields)
            }
            _ => exchange.respond("200 OK", "Cache-Control: max-age=60\r\nETag: \"v2\"\r\n", "v2"),
        };
    });
    let answer = purged_meanwhile(&origin, &validating, ("", "GET", ""));
    assert_eq!(answer.text(), "v1", "it was answered before");
}

/// An answer of the origin server to the request with this number, which waits for a step of the gate.
#[derive(Clone, Copy)]
struct Numbered {
    version: usize,
    etag: &'static str,
    waits_for: usize,
}

const fn numbered(version: usize, etag: &'static str, waits_for: usize) -> Numbered {
    Numbered { version, etag, waits_for }
}

/// Two requests that are under way side by side, the first of which is answered last. The one that was answered first has
/// brought the second version. Gives what a hit brings, or what the origin is asked for, afterwards.
fn nested((second, collapse): (&str, &str), answers: [Numbered; 3]) -> (bool, String) {
    let gate = Gate::new();
    let steps = gate.clone();
    let origin = ScriptedOrigin::start(move |exchange| {
        let answer = answers[exchange.request.earlier.min(2)];
        steps.pass_step(answer.waits_for);
        let fields = format!("Cache-Control: max-age=60\r\n{}", answer.etag);
        exchange.respond("200 OK", &fields, format!("version {}", answer.version));
    });
    let settings = "[[site]]\nname = \"a\"\norigin = \"@origin@\"\ncollapse = \"@collapse@\"\n";
    let settings = settings.replace("@origin@", &origin.url()).replace("@collapse@", collapse);
    let larder = Setup::config(LARDER, &settings).start();
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
    assert_eq!(first.response().text(), format!("version {}", answers[0].version));
    gate.open();
    let next = larder.get("/");
    (next.is_hit(), next.text())
}

/// Whoever got a version from the origin's answer gets none from before it by a hit later, whichever order the origin made them
/// in. What is of one representation stays stored.
//= RFC 9111 section 4: the most recent of several
#[test]
fn no_hit_is_older_than_an_answer_before_it() {
    let (one, two) = ("ETag: \"1\"\r\n", "ETag: \"2\"\r\n");
    for (second, collapse) in [("GET", "off"), ("HEAD", "process")] {
        // The origin looks when a request comes, or when it answers: nobody here can tell.
        for versions in [[1, 2], [2, 1]] {
            for tags in [[one, two], ["", ""]] {
                let [first, nested_one] = [0, 1].map(|place| (versions[place], tags[place]));
                let answers = [
                    numbered(first.0, first.1, 1),
                    numbered(nested_one.0, nested_one.1, 0),
                    numbered(3, "", 0),
                ];
                let seen = nested((second, collapse), answers);
                assert_eq!(seen, (false, "version 3".to_owned()), "{second} {versions:?} {tags:?}");
            }
        }
        let same = [numbered(1, one, 1), numbered(1, one, 0), numbered(3, "", 0)];
        assert_eq!(nested((second, collapse), same), (true, "version 1".to_owned()), "{second}");
    }
}
