//! Round trips: a reader with the same rules gets the same stored response.

use caching::{FieldLine, Profile, Rules, Timestamp};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use store::Record;

use crate::entry::stored::{StoredBody, StoredHead, StoredResponse};
use crate::sample::{Asked, NOW, World, at, inline, written};

type Lines = Vec<(String, Vec<u8>)>;

/// Event in the life of a stored response.
#[derive(Clone, Debug)]
enum Event {
    NotModified { request: Lines, answer: Lines },
    Head { answer: Lines },
    Part { answer: Lines },
    SoftPurge,
}

/// Rules of the instance that stores the response.
#[derive(Clone, Debug)]
struct Owner {
    profile: Profile,
    credential_fields: bool,
    targeted: Vec<&'static str>,
    hidden: Vec<&'static str>,
    honours_requests: bool,
}

const REQUEST: &[(&str, &str)] = &[
    ("Cookie", "session=SECRET"),
    ("Authorization", "Bearer SECRET"),
    ("X-User", "SECRET"),
    ("X-Forwarded-For", "SECRET"),
    ("Connection", "x-kind"),
    ("Accept-Encoding", "br;q=0.5, gzip"),
    ("Accept-Encoding", ""),
    ("Accept-Language", "de, \"x\", en;q=0"),
    ("X-Kind", "a, \"b, c\", "),
    ("X-Kind", "\"unclosed, d"),
    ("Cache-Control", "max-age=5"),
    ("Cache-Control", "no-store"),
    ("Pragma", "no-cache"),
    ("Content-Length", "0"),
];

const RESPONSE: &[(&str, &str)] = &[
    ("date", "Fri, 15 Jan 2027 08:00:00 GMT"),
    ("date", "yesterday"),
    ("age", "17"),
    ("age", "x"),
    ("expires", "Fri, 15 Jan 2027 09:00:00 GMT"),
    ("expires", "0"),
    ("cache-control", "max-age=60"),
    ("cache-control", "public, s-maxage=10, stale-while-revalidate=30"),
    ("cache-control", "private=\"set-cookie, x-odd\", max-age=60"),
    ("cache-control", "no-cache, stale-if-error=9"),
    ("cache-control", "no-store"),
    ("cdn-cache-control", "max-age=600, private=x-odd"),
    ("x-cache-control", "no-cache=\"set-cookie\", max-age=7"),
    ("etag", "\"one\""),
    ("etag", "W/\"two\""),
    ("last-modified", "Thu, 14 Jan 2027 08:00:00 GMT"),
    ("vary", "Accept-Encoding"),
    ("vary", "x-kind, accept-language"),
    ("vary", "*"),
    ("set-cookie", "session=SECRET"),
    ("cache-groups", "\"a\", \"b\""),
    ("content-encoding", "gzip"),
    ("content-location", "/x?y=1"),
    ("content-length", "100000"),
    ("content-range", "bytes 0-1/100000"),
    ("x-odd", "\u{e9}"),
    ("via", "1.0 fred"),
];

fn lines(pool: &'static [(&str, &str)]) -> impl Strategy<Value = Lines> {
    subsequence(pool, 0..pool.len() / 2).prop_map(|lines| {
        lines.into_iter().map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec())).collect()
    })
}

/// Field lines of a response that is likely to be stored.
fn storable_lines() -> impl Strategy<Value = Lines> {
    let likely =
        select(vec![("cache-control", "max-age=60"), ("cache-control", "public"), ("etag", "\"one\"")]);
    (lines(RESPONSE), likely).prop_map(|(mut lines, (name, value))| {
        lines.retain(|(_, value)| value != b"no-store" && value != b"*");
        lines.push((name.to_owned(), value.as_bytes().to_vec()));
        lines
    })
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (lines(REQUEST), lines(RESPONSE))
            .prop_map(|(request, answer)| Event::NotModified { request, answer }),
        lines(RESPONSE).prop_map(|answer| Event::Head { answer }),
        lines(RESPONSE).prop_map(|answer| Event::Part { answer }),
        Just(Event::SoftPurge),
    ]
}

fn owner() -> impl Strategy<Value = Owner> {
    let hidden =
        vec!["cdn-cache-control", "cache-control", "date", "age", "etag", "cache-groups", "content-location"];
    let targeted = vec!["CDN-Cache-Control", "X-Cache-Control"];
    (any::<[bool; 3]>(), subsequence(targeted, 0..3), subsequence(hidden, 0..3)).prop_map(
        |([is_safe, credential_fields, honours_requests], targeted, hidden)| Owner {
            profile: if is_safe { Profile::Safe } else { Profile::Rfc9111 },
            credential_fields,
            targeted,
            hidden,
            honours_requests,
        },
    )
}

impl Owner {
    fn rules(&self) -> Rules {
        let fields: &[&str] = if self.credential_fields { &["x-user", "x-forwarded-for"] } else { &[] };
        Rules {
            credential_fields: fields.iter().map(|name| (*name).into()).collect(),
            targeted_fields: self.targeted.iter().map(|name| (*name).into()).collect(),
            honour_request_directives: self.honours_requests,
            ..Rules::for_profile(self.profile)
        }
    }

    fn world(&self) -> World {
        let hidden = self.hidden.iter().map(|name| (*name).to_owned()).collect();
        World { hidden, ..World::new(self.rules()) }
    }
}

fn borrowed(lines: &Lines) -> Vec<FieldLine<'_>> {
    lines.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect()
}

/// Returns the head after an event; unchanged if the event changes nothing that may be stored.
fn after(world: &World, (head, method): (StoredHead, &str), event: &Event, now: Timestamp) -> StoredHead {
    let get = Asked { method, lines: &[("Accept-Encoding", b"zstd")] };
    let changed = match event {
        Event::NotModified { request, answer } => {
            let asked = Asked { method, lines: &borrowed(request) };
            world.freshened(&head, asked, &borrowed(answer), at(now))
        }
        // A HEAD updates the record under the key of a GET.
        Event::Head { .. } if method == "QUERY" => None,
        Event::Head { answer } => {
            world.freshened(&head, Asked { method: "HEAD", ..get }, &borrowed(answer), at(now))
        }
        Event::Part { answer } => world.combined(&head, get, &borrowed(answer), at(now)),
        Event::SoftPurge => Some(head.expired(now)),
    };
    changed.unwrap_or(head)
}

/// Returns the results of all decisions about a stored response, and its parts that clients get.
fn shown(response: &StoredResponse) -> String {
    let head = &response.head;
    let lines: Vec<String> =
        head.fields.lines().map(|(name, value)| format!("{name}: {}", value.escape_ascii())).collect();
    let body = match &response.body {
        StoredBody::Inline(data) => data.clone(),
        StoredBody::Segments(_) => unreachable!("all of these are small"),
    };
    format!(
        "{:#?}\n{:?}\n{lines:#?}\n{:?} {:?}\n{:?} {:?}\n{:?} {:?}\n{body:?}",
        head.facts,
        head.validators(),
        head.declared_bytes(),
        head.reason(),
        head.nominated(),
        head.nominated_values(),
        head.membership(),
        head.nominates_rewritten(),
    )
}

/// The budget counts the memory of all inputs, and nothing for a response without inputs.
#[test]
fn what_inputs_cost() {
    let world = World::new(Rules::default());
    let request: [FieldLine<'_>; 8] = [
        ("Host", b"a.example"),
        ("User-Agent", &[b'x'; 120]),
        ("Accept", b"text/html,application/xhtml+xml"),
        ("Accept-Language", b"de,en;q=0.5"),
        ("Accept-Encoding", b"gzip, br"),
        ("Referer", &[b'x'; 60]),
        ("Cookie", &[b'x'; 200]),
        ("Cache-Control", b"max-age=0"),
    ];
    let response: [FieldLine<'_>; 4] = [
        ("date", b"Fri, 15 Jan 2027 08:00:00 GMT"),
        ("content-type", b"text/plain"),
        ("cache-control", b"max-age=3600"),
        ("etag", b"\"one\""),
    ];
    let head = world.stored(Asked { method: "GET", lines: &request }, (200, &response), at(NOW)).unwrap();
    let bytes = |head| world.entry(vec![inline(head, b"body")]).charge().bytes();
    let without = bytes(head.clone().with_inputs(None));
    assert_eq!(bytes(head) - without, 416);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_reader_with_the_same_rules_has_the_same(
        owner in owner(),
        method in select(vec!["GET", "QUERY", "POST"]),
        status in select(vec![200_u16, 404, 301, 418]),
        request in lines(REQUEST),
        response in storable_lines(),
        events in prop::collection::vec(event(), 0..4),
        body_bytes in select(vec![0_usize, 1, 4096, 4097, 65_535]),
    ) {
        let world = owner.world();
        // A response to a POST is stored for later GETs only with this `Content-Location`.
        let is_post = method == "POST";
        let response: Lines = match is_post {
            true => [("content-location".to_owned(), b"/x?y=1".to_vec())].into_iter()
                .chain(response.into_iter().filter(|(name, _)| name != "content-location")).collect(),
            false => response,
        };
        let status = if is_post { 200 } else { status };
        let asked = Asked { method, lines: &borrowed(&request) };
        let Some(mut head) = world.stored(asked, (status, &borrowed(&response)), at(NOW)) else { return Ok(()) };
        let later = if method == "QUERY" { method } else { "GET" };
        for (number, event) in events.iter().enumerate() {
            world.invalidations.invalidate_key(b"other", store::purge::PurgeEffect::Soft, None);
            head = after(&world, (head, later), event, NOW.plus_ms(1_500 * (number as i64 + 1)));
        }
        let entry = world.entry(vec![inline(head, &vec![b'x'; body_bytes])]);
        let encoded = written(&entry);
        let read = world.read_as(method, &encoded).expect("it may be stored by the same rules");
        prop_assert_eq!(shown(&entry.variants()[0]), shown(&read.variants()[0]));
        let again = written(&read);
        prop_assert_eq!(again.primary, encoded.primary, "nothing is lost on the way");
    }
}
