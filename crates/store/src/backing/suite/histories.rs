//! Histories of a few records that several writers change, with the result of each step, for implementations in other languages.
//!
//! They run on every tier that keeps the contract, with the same results on each: `conformance/store/histories.json`. Versions and tokens
//! differ between tiers, so steps identify records by their bytes, and leases by letters. Therefore no history writes the same bytes twice
//! under a key.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;

use super::super::contract::Backing;
use super::super::lease::{Lease, LeaseMode, LeaseRequest, RenewOutcome, TakeOutcome};
use super::super::record::{
    Expected, Loaded, PutOutcome, RECORD_BYTES_MAX, Tracking, Version, WaitOutcome, Write,
};
use super::json::{hex, list, object, text};
use super::{Bench, Violation, load, new_key};

use Act::{Load, Pass, Release, Remove, Renew, Take, Wait};
use Condition::{Any, Nothing};
use Lasting::{Long, Short};
use LeaseMode::{IfFree, Overwrite};
use Writer::{X, Y, Z};

/// A sequence of steps.
struct History {
    name: &'static str,
    steps: &'static [Step],
}

/// One operation of one writer.
#[derive(Clone, Copy)]
struct Step {
    by: Writer,
    key: Key,
    act: Act,
}

/// Writer of a step. `Y` has its own connection; the others share one.
#[derive(Clone, Copy, Debug)]
enum Writer {
    X,
    Y,
    Z,
}

/// Key of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    K,
    L,
}

#[derive(Clone, Copy)]
enum Act {
    Load,
    Remove,
    Put(Content, Condition, Lasting, Option<Letter>),
    Take(Letter, LeaseMode, Lasting),
    Renew(Letter, Lasting),
    Release(Letter, Content, Condition),
    /// Waits for a record other than this one.
    Wait(Option<&'static str>),
    /// Lets time pass, so that entries and leases with [`Lasting::Short`] expire.
    Pass,
}

/// Name of a lease, given by the step that takes it.
type Letter = &'static str;

/// Bytes, and the number of their repetitions.
#[derive(Clone, Copy)]
struct Content(&'static str, usize);

/// Condition on the current record.
#[derive(Clone, Copy)]
enum Condition {
    Any,
    Nothing,
    /// The current record is the one that was written with these bytes.
    Bytes(&'static str),
}

#[derive(Clone, Copy)]
enum Lasting {
    /// The entry or lease expires before the next [`Act::Pass`] ends.
    Short,
    /// The entry or lease lasts to the end of the history.
    Long,
}

const PASSING: Duration = Duration::from_millis(2_500);
/// Maximum duration of a wait.
const WAITING: Duration = Duration::from_millis(100);
/// Note of a lease.
const NOTE: &[u8] = b"who";

impl Lasting {
    fn time(self) -> Duration {
        match self {
            Self::Short => Duration::from_millis(2_000),
            Self::Long => Duration::from_millis(60_000),
        }
    }
}

const fn step(by: Writer, act: Act) -> Step {
    Step { by, key: Key::K, act }
}

const fn put(by: Writer, bytes: &'static str, upon: Condition) -> Step {
    step(by, Act::Put(Content(bytes, 1), upon, Long, None))
}

const fn put_under(by: Writer, lease: Letter, bytes: &'static str, upon: Condition) -> Step {
    step(by, Act::Put(Content(bytes, 1), upon, Long, Some(lease)))
}

const fn put_for(by: Writer, lasting: Lasting, bytes: &'static str, upon: Condition) -> Step {
    step(by, Act::Put(Content(bytes, 1), upon, lasting, None))
}

const fn release(by: Writer, lease: Letter, bytes: &'static str, upon: Condition) -> Step {
    step(by, Release(lease, Content(bytes, 1), upon))
}

const fn take(by: Writer, lease: Letter, mode: LeaseMode) -> Step {
    step(by, Take(lease, mode, Long))
}

const HISTORIES: &[History] = &[
    History {
        name: "of several puts that expect the same record, one is stored",
        steps: &[
            put(X, "one", Nothing),
            put(Y, "two", Nothing),
            put(Y, "two", Condition::Bytes("one")),
            put(X, "three", Condition::Bytes("one")),
            put(Z, "three", Condition::Bytes("two")),
            step(Y, Load),
        ],
    },
    History {
        name: "an unconditional put replaces the record that others expect",
        steps: &[
            put(X, "one", Any),
            put(Y, "two", Any),
            put(X, "three", Condition::Bytes("one")),
            step(Z, Load),
        ],
    },
    History {
        name: "a removed record counts as missing",
        steps: &[
            put(X, "one", Nothing),
            step(Y, Remove),
            step(Y, Remove),
            put(X, "two", Condition::Bytes("one")),
            step(X, Load),
            put(Z, "three", Nothing),
        ],
    },
    History {
        name: "an expired record counts as missing",
        steps: &[
            put_for(X, Short, "one", Nothing),
            step(X, Pass),
            step(Y, Load),
            put(Y, "two", Condition::Bytes("one")),
            put(Y, "three", Nothing),
        ],
    },
    History {
        name: "a put sets its own time to live",
        steps: &[put_for(X, Short, "one", Nothing), put(Y, "two", Any), step(X, Pass), step(X, Load)],
    },
    History {
        name: "a record that is too large is refused and leaves the current one",
        steps: &[
            put(X, "one", Nothing),
            step(Y, Act::Put(Content("x", RECORD_BYTES_MAX + 1), Any, Long, None)),
            put(X, "two", Condition::Bytes("one")),
            step(Y, Act::Put(Content("y", RECORD_BYTES_MAX), Condition::Bytes("two"), Long, None)),
        ],
    },
    History {
        name: "a lease has one holder, and does not restrict puts without a lease",
        steps: &[
            take(X, "a", IfFree),
            take(Y, "b", IfFree),
            put_under(X, "a", "one", Nothing),
            put(Y, "two", Condition::Bytes("one")),
            put_under(X, "a", "three", Condition::Bytes("one")),
            put_under(X, "a", "three", Condition::Bytes("two")),
            step(X, Renew("a", Long)),
        ],
    },
    History {
        name: "an overwritten lease writes nothing",
        steps: &[
            put(Z, "one", Nothing),
            take(X, "a", IfFree),
            take(Y, "b", Overwrite),
            put_under(X, "a", "two", Any),
            put_under(X, "a", "two", Condition::Bytes("one")),
            put_under(X, "a", "two", Nothing),
            release(X, "a", "two", Any),
            step(X, Renew("a", Long)),
            step(Z, Load),
            release(Y, "b", "two", Condition::Bytes("one")),
            take(X, "c", IfFree),
        ],
    },
    History {
        name: "an expired lease writes nothing, with or without a new holder",
        steps: &[
            step(X, Take("a", IfFree, Short)),
            step(X, Pass),
            put_under(X, "a", "one", Any),
            take(Y, "b", IfFree),
            release(X, "a", "one", Any),
            step(X, Renew("a", Long)),
            put_under(Y, "b", "two", Nothing),
        ],
    },
    History {
        name: "a renewed lease lasts longer",
        steps: &[
            step(X, Take("a", IfFree, Short)),
            step(X, Renew("a", Long)),
            step(X, Pass),
            take(Y, "b", IfFree),
            put_under(X, "a", "one", Nothing),
        ],
    },
    History {
        name: "a release writes and frees, or does neither",
        steps: &[
            take(X, "a", IfFree),
            put(Y, "one", Any),
            release(X, "a", "two", Nothing),
            take(Y, "b", IfFree),
            release(X, "a", "two", Condition::Bytes("one")),
            release(X, "a", "three", Any),
            take(Y, "c", IfFree),
            step(Z, Load),
        ],
    },
    History {
        name: "a lease applies only to its key",
        steps: &[
            take(X, "a", IfFree),
            Step { key: Key::L, ..put_under(X, "a", "one", Any) },
            Step { key: Key::L, ..take(Y, "b", IfFree) },
            Step { key: Key::L, ..put_under(Y, "b", "one", Any) },
            step(Y, Load),
        ],
    },
    History {
        name: "a wait ends with another record, or with a free lease",
        steps: &[
            step(Y, Wait(None)),
            take(X, "a", IfFree),
            step(Y, Wait(None)),
            release(X, "a", "one", Nothing),
            step(Y, Wait(None)),
            step(Y, Wait(Some("one"))),
            take(Z, "b", IfFree),
            step(Y, Wait(Some("one"))),
            step(X, Remove),
            step(Y, Wait(Some("one"))),
        ],
    },
];

/// Runs all histories concurrently. Returns a line of JSON for each.
///
/// # Errors
/// If the tier fails.
pub async fn play(bench: &Bench) -> Result<Vec<String>, Violation> {
    let mut lines = vec![String::new(); HISTORIES.len()];
    let mut playing: Vec<_> =
        HISTORIES.iter().map(|history| Some(Box::pin(Player::new(bench).play(history)))).collect();
    std::future::poll_fn(|context| {
        for (line, place) in lines.iter_mut().zip(&mut playing) {
            let Some(history) = place else { continue };
            if let std::task::Poll::Ready(members) = history.as_mut().poll(context) {
                *line = members?;
                *place = None;
            }
        }
        match playing.iter().all(Option::is_none) {
            true => std::task::Poll::Ready(Ok(())),
            false => std::task::Poll::Pending,
        }
    })
    .await
    .map(|()| lines)
}

/// Compares the results with the vectors.
///
/// # Panics
/// If a history has another result.
pub fn compare(played: &[String]) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../conformance/store/histories.json");
    let file = std::fs::read_to_string(path).expect("the vectors are there");
    let lines = file.lines().map(|line| line.trim_end_matches(','));
    let written: Vec<&str> = lines.filter(|line| line.starts_with('{')).collect();
    assert_eq!(written.len(), played.len(), "histories");
    written.iter().zip(played).for_each(|(written, played)| assert_eq!(written, played));
}

/// Runs a history, with the records and leases of all writers.
struct Player<'a> {
    bench: &'a Bench,
    keys: HashMap<Key, Vec<u8>>,
    known: HashMap<&'static str, Loaded>,
    leases: HashMap<Letter, Lease>,
}

/// JSON members of a step.
type Members = Vec<(&'static str, String)>;

impl<'a> Player<'a> {
    fn new(bench: &'a Bench) -> Self {
        let keys = [Key::K, Key::L].map(|key| (key, new_key("history"))).into();
        Self { bench, keys, known: HashMap::new(), leases: HashMap::new() }
    }

    async fn play(mut self, history: &History) -> Result<String, Violation> {
        let mut steps = Vec::new();
        for step in history.steps {
            let mut members = match step.act {
                Pass => vec![("ms", PASSING.as_millis().to_string())],
                _ => vec![("by", named(step.by)), ("key", named(step.key))],
            };
            members.extend(self.act(step).await?);
            steps.push(object(&members));
        }
        Ok(object(&[("name", text(history.name)), ("steps", list(&steps))]))
    }

    fn tier(&self, by: Writer) -> &'a dyn Backing {
        match by {
            X | Z => &*self.bench.own,
            Y => &*self.bench.other,
        }
    }

    async fn act(&mut self, step: &Step) -> Result<Members, Violation> {
        let tier = self.tier(step.by);
        let key = self.keys[&step.key].clone();
        let mut members = vec![("do", text(name_of(&step.act)))];
        match step.act {
            Load => members.push(("there", there(load(tier, &key).await?.as_ref()))),
            Remove => {
                members.push(("outcome", text(if tier.remove(&key).await? { "Removed" } else { "Nothing" })))
            }
            Act::Put(content, upon, lasting, lease) => {
                members.extend(written(content, upon, lasting));
                members.extend(lease.map(|lease| ("lease", text(lease))));
                let lease = lease.map(|lease| self.leases[lease].clone());
                let write = Write { lease: lease.as_ref(), ..self.write(content, upon, lasting) };
                let put = tier.put(&key, write).await?;
                members.extend(self.put(tier, content, put));
            }
            Release(lease, content, upon) => {
                members.push(("lease", text(lease)));
                members.extend(written(content, upon, Long));
                let held = self.leases[lease].clone();
                let put = tier.release_lease(&held, self.write(content, upon, Long)).await?;
                members.extend(self.put(tier, content, put));
            }
            Take(letter, mode, lasting) => {
                members.extend(self.take(tier, &key, (letter, mode, lasting)).await?)
            }
            Renew(letter, lasting) => {
                let renewed = tier.renew_lease(&self.leases[letter], lasting.time()).await?;
                members.extend([("lease", text(letter)), ttl(lasting)]);
                members
                    .push(("outcome", text(if renewed == RenewOutcome::Lost { "Lost" } else { "Renewed" })));
            }
            Wait(seen) => members.extend(self.wait(tier, &key, seen).await?),
            Pass => sleep(PASSING).await,
        }
        Ok(members)
    }

    fn write<'b>(&'b self, content: Content, upon: Condition, lasting: Lasting) -> Write<'b> {
        let expected = match upon {
            Any => Expected::Any,
            Nothing => Expected::Absent,
            Condition::Bytes(bytes) => Expected::Is(&self.known[bytes]),
        };
        Write { bytes: Bytes::from(content.0.repeat(content.1)), expected, ttl: lasting.time(), lease: None }
    }

    /// Keeps a stored record, in the form in which a load would return it.
    fn put(&mut self, tier: &dyn Backing, content: Content, put: PutOutcome) -> Members {
        match put {
            PutOutcome::Stored(version) => {
                let bytes = Bytes::from(content.0.repeat(content.1));
                let loaded = Loaded { bytes, version, source: tier.source(), tracking: Tracking::Off };
                self.known.insert(content.0, loaded);
                vec![("outcome", text("Stored"))]
            }
            PutOutcome::Conflict(other) => {
                vec![("outcome", text("Conflict")), ("there", there(other.as_ref()))]
            }
            PutOutcome::LeaseLost => vec![("outcome", text("LeaseLost"))],
            PutOutcome::NotStored(refusal) => {
                vec![("outcome", text("NotStored")), ("because", text(&format!("{refusal:?}")))]
            }
        }
    }

    async fn take(
        &mut self,
        tier: &dyn Backing,
        key: &[u8],
        (letter, mode, lasting): (Letter, LeaseMode, Lasting),
    ) -> Result<Members, Violation> {
        let mut members = vec![("lease", text(letter)), ("mode", named(mode)), ttl(lasting)];
        members.push(("note", text(&hex(NOTE))));
        match tier.take_lease(key, LeaseRequest { ttl: lasting.time(), note: NOTE, mode }).await? {
            TakeOutcome::Taken(lease) => {
                self.leases.insert(letter, lease);
                members.push(("outcome", text("Taken")));
            }
            TakeOutcome::Held { note, .. } => {
                members.extend([("outcome", text("Held")), ("their_note", text(&hex(&note)))]);
            }
        }
        Ok(members)
    }

    async fn wait(
        &self,
        tier: &dyn Backing,
        key: &[u8],
        seen: Option<&'static str>,
    ) -> Result<Members, Violation> {
        let version: Option<Version> = seen.map(|bytes| self.known[bytes].version);
        let mut members = vec![
            ("seen", bytes_or_null(seen.map(str::as_bytes))),
            ("limit_ms", WAITING.as_millis().to_string()),
        ];
        match tier.wait(key, version, WAITING).await? {
            WaitOutcome::Changed(other) => {
                members.extend([("outcome", text("Changed")), ("there", there(other.as_ref()))]);
            }
            WaitOutcome::Free => members.push(("outcome", text("Free"))),
            WaitOutcome::StillHeld => members.push(("outcome", text("StillHeld"))),
            // These outcomes need a change during the wait, which never occurs here.
            WaitOutcome::Told => members.push(("outcome", text("Told"))),
            WaitOutcome::Expired => members.push(("outcome", text("Expired"))),
        }
        Ok(members)
    }
}

fn name_of(act: &Act) -> &'static str {
    match act {
        Load => "load",
        Remove => "remove",
        Act::Put(..) => "put",
        Take(..) => "take",
        Renew(..) => "renew",
        Release(..) => "release",
        Wait(_) => "wait",
        Pass => "pass",
    }
}

fn named(value: impl std::fmt::Debug) -> String {
    text(&format!("{value:?}"))
}

fn there(loaded: Option<&Loaded>) -> String {
    bytes_or_null(loaded.map(|loaded| &loaded.bytes[..]))
}

fn bytes_or_null(bytes: Option<&[u8]>) -> String {
    bytes.map_or_else(|| "null".to_owned(), |bytes| text(&hex(bytes)))
}

fn ttl(lasting: Lasting) -> (&'static str, String) {
    ("ttl_ms", lasting.time().as_millis().to_string())
}

fn written(content: Content, upon: Condition, lasting: Lasting) -> Members {
    let mut members = vec![("bytes", text(&hex(content.0.as_bytes())))];
    if content.1 > 1 {
        members.push(("times", content.1.to_string()));
    }
    members.push(match upon {
        Any => ("expected", text("Any")),
        Nothing => ("expected", text("Absent")),
        Condition::Bytes(bytes) => ("is", text(&hex(bytes.as_bytes()))),
    });
    members.push(ttl(lasting));
    members
}
