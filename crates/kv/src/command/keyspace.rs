//! Commands for the keyspace as a whole, and for renaming, copying and moving keys.

use std::sync::Arc;

use engine::{Access, Database, Expiry, Key, Locked, OutOfMemory, Step, Stored, Value};

use super::walk::walk;
use super::{Call, Change, Outcome, Refusal};
use crate::glob::Matcher;
use crate::reply::Reply;

/// Default COUNT of SCAN.
const COUNT: usize = 10;
/// Maximum COUNT of SCAN, which takes a few milliseconds.
const COUNT_MAX: usize = 16 << 10;
/// Maximum number of buckets that SCAN visits per requested key if they are empty or belong to other
/// databases.
const BUCKETS_PER_KEY: usize = 10;

/// Options of SCAN.
#[derive(Debug)]
struct ScanOptions<'a> {
    pattern: Option<&'a [u8]>,
    count: usize,
    /// Whether TYPE is absent or `string`, the only type.
    is_type_wanted: bool,
}

/// How to treat an existing target key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Free,
    Replaced,
}

/// How to treat the source key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Kept,
    /// The source key is removed, with this notification.
    Removed(Change),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transfer {
    Done,
    NoSource,
    NotFree,
}

/// SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]
pub(super) fn scan(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let position = cursor(call.argument(1))?;
    let options = scan_options(call)?;
    let step = Step { keys_max: options.count, buckets_max: options.count.saturating_mul(BUCKETS_PER_KEY) };
    if options.count > COUNT {
        call.effort.look_at_keys(options.count)?;
    }
    let begin = reply.out.len();
    let mut found = Found::new();
    let next = call.engine().scan(call.database(), position, step, call.now_ms, |key| {
        let is_wanted = options.pattern.is_none_or(|pattern| found.is_match(pattern, key));
        if is_wanted && options.is_type_wanted {
            found.tell(key, reply);
        }
    });
    reply.array_since(begin, found.end()?);
    let next = next.to_string();
    reply.out.insert(begin, format!("*2\r\n${}\r\n{next}\r\n", next.len()).as_bytes());
    Ok(())
}

/// Keys that are written to the reply as they are found.
struct Found {
    told: Result<usize, Refusal>,
    matcher: Matcher,
}

impl Found {
    fn new() -> Self {
        Self { told: Ok(0), matcher: Matcher::default() }
    }

    fn is_match(&mut self, pattern: &[u8], key: &[u8]) -> bool {
        is_match(&mut self.matcher, pattern, key)
    }

    /// Returns the number of keys.
    fn end(self) -> Result<usize, Refusal> {
        self.matcher.check()?;
        self.told
    }

    fn tell(&mut self, key: &[u8], reply: &mut Reply<'_>) {
        let Ok(count) = &mut self.told else { return };
        *count += 1;
        reply.bulk(key);
        if reply.out.is_refused() {
            self.told = Err(Refusal::ReplyOverLimit);
        }
    }
}

/// A single star matches all keys, including the empty one, which no other pattern matches.
pub(super) fn is_match(matcher: &mut Matcher, pattern: &[u8], key: &[u8]) -> bool {
    pattern == b"*" || matcher.matches(pattern, key)
}

fn scan_options<'a>(call: &Call<'a>) -> Result<ScanOptions<'a>, Refusal> {
    let mut options = ScanOptions { pattern: None, count: COUNT, is_type_wanted: true };
    let mut at = 2;
    while at < call.length() {
        let has_value = at + 1 < call.length();
        match () {
            () if has_value && call.is_word(at, "count") => {
                let count = call.integer(at + 1)?;
                let count = usize::try_from(count).ok().filter(|count| *count > 0);
                options.count = count.ok_or(Refusal::Syntax)?.min(COUNT_MAX);
            }
            () if has_value && call.is_word(at, "match") => options.pattern = Some(call.argument(at + 1)),
            () if has_value && call.is_word(at, "type") => {
                options.is_type_wanted = call.is_word(at + 1, "string");
            }
            () => return Err(Refusal::Syntax),
        }
        at += 2;
    }
    Ok(options)
}

/// Parses a cursor like C's `strtoul`: an empty text is zero, a sign is accepted, negative numbers wrap
/// around, and a zero byte ends the text.
fn cursor(bytes: &[u8]) -> Result<u64, Refusal> {
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    if bytes.is_empty() {
        return Ok(0);
    }
    let is_negative = bytes.first() == Some(&b'-');
    let digits = bytes.strip_prefix(b"-").or_else(|| bytes.strip_prefix(b"+")).unwrap_or(bytes);
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_number);
    let number: u64 = text.and_then(|text| text.parse().ok()).ok_or(Refusal::Other("ERR invalid cursor"))?;
    Ok(if is_negative { number.wrapping_neg() } else { number })
}

/// KEYS pattern
pub(super) fn keys(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let (pattern, shared) = (call.argument(1), call.shared);
    let walk = walk(call, |walk, key| {
        if walk.is_match(pattern, key) {
            walk.tell(key, shared);
        }
    })?;
    walk.reply(call, reply);
    Ok(())
}

pub(super) fn randomkey(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    reply.bulk_or_null(call.engine().random_key(call.database(), call.now_ms).as_deref());
    Ok(())
}

/// RENAME key newkey
pub(super) fn rename(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    match rename_to(call, Target::Replaced)? {
        Transfer::NoSource => return Err(Refusal::NoSuchKey),
        Transfer::Done | Transfer::NotFree => reply.ok(),
    }
    Ok(())
}

/// RENAMENX key newkey
pub(super) fn renamenx(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    match rename_to(call, Target::Free)? {
        Transfer::NoSource => return Err(Refusal::NoSuchKey),
        Transfer::Done => reply.integer(1),
        Transfer::NotFree => reply.integer(0),
    }
    Ok(())
}

fn rename_to(call: &Call<'_>, target: Target) -> Result<Transfer, Refusal> {
    let (from, to) = (call.key(1), call.key(2));
    if from == to {
        let is_there = call.engine().lock(&from).contains(call.now_ms);
        return Ok(if is_there { Transfer::NotFree } else { Transfer::NoSource });
    }
    transfer(call, (&from, Source::Removed(Change::RenameFrom)), (&to, target, Change::RenameTo))
}

/// COPY source destination [DB destination-db] [REPLACE]
pub(super) fn copy(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let (mut database, mut target) = (call.database(), Target::Free);
    let mut at = 3;
    while at < call.length() {
        match () {
            () if call.is_word(at, "replace") => target = Target::Replaced,
            () if call.is_word(at, "db") && at + 1 < call.length() => {
                at += 1;
                database = other_database(call, at)?;
                if database != call.database() {
                    call.check_no_cluster("ERR Copying to another database is not allowed in cluster mode")?;
                }
            }
            () => return Err(Refusal::Syntax),
        }
        at += 1;
    }
    let (from, to) = (call.key(1), call.engine().key(database, call.argument(2)));
    if from == to {
        return Err(SAME_OBJECTS);
    }
    let transferred = transfer(call, (&from, Source::Kept), (&to, target, Change::CopyTo))?;
    reply.integer(i64::from(transferred == Transfer::Done));
    Ok(())
}

/// MOVE key db
pub(super) fn r#move(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    call.check_no_cluster("ERR MOVE is not allowed in cluster mode")?;
    let database = other_database(call, 2)?;
    let (from, to) = (call.key(1), call.engine().key(database, call.argument(1)));
    if from == to {
        return Err(SAME_OBJECTS);
    }
    let source = (&from, Source::Removed(Change::MoveFrom));
    let transferred = transfer(call, source, (&to, Target::Free, Change::MoveTo))?;
    reply.integer(i64::from(transferred == Transfer::Done));
    Ok(())
}

/// SWAPDB index1 index2
pub(super) fn swapdb(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    call.check_no_cluster("ERR SWAPDB is not allowed in cluster mode")?;
    let read = |index, refusal| call.short_integer(index).map_err(|_| Refusal::Other(refusal));
    let numbers = [read(1, "ERR invalid first DB index")?, read(2, "ERR invalid second DB index")?];
    let [one, other] =
        numbers.map(|number| usize::try_from(number).ok().and_then(Database::new).ok_or(Refusal::Database));
    let (one, other) = (one?, other?);
    call.alone()?;
    call.shared.swap(one, other, call.now_ms);
    call.changed_many();
    call.session.choose(call.session.chosen, &call.shared.databases);
    reply.ok();
    Ok(())
}

const SAME_OBJECTS: Refusal = Refusal::Other("ERR source and destination objects are the same");

fn other_database(call: &Call<'_>, index: usize) -> Result<Database, Refusal> {
    Ok(call.shared.databases.of_engine(call.chosen_database(index)?))
}

/// Copies or moves a value to another key, with its expiry.
fn transfer(
    call: &Call<'_>,
    (from, source): (&Key<'_>, Source),
    (to, target, arrival): (&Key<'_>, Target, Change),
) -> Result<Transfer, Refusal> {
    call.with_room(to, || {
        let mut locked = call.engine().lock_all([*from, *to]);
        if !locked.at(from).contains(call.now_ms) {
            return Ok(Transfer::NoSource);
        }
        if target == Target::Free && locked.at(to).contains(call.now_ms) {
            return Ok(Transfer::NotFree);
        }
        match source {
            Source::Kept => duplicate(&mut locked, from, to, call.now_ms)?,
            Source::Removed(change) => {
                locked.rename(from, to, call.now_ms)?;
                call.changed(&locked.at(from), change);
            }
        }
        call.changed(&locked.at(to), arrival);
        Ok(Transfer::Done)
    })
}

fn duplicate(locked: &mut Locked<'_>, from: &Key<'_>, to: &Key<'_>, now_ms: u64) -> Result<(), OutOfMemory> {
    let mut source = locked.at(from);
    let Some(found) = source.get(Access::Peek, now_ms) else { return Ok(()) };
    let expiry = found.expires_at_ms.map_or(Expiry::Never, Expiry::At);
    let value = match found.value {
        Value::Inline(value) => Stored::Plain(Arc::new(value.to_vec())),
        Value::Large(stored) => stored.clone(),
    };
    locked.at(to).set_stored(value, expiry, now_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_read_as_c_does() {
        let check = |text: &str, expected: Option<u64>| {
            assert_eq!(cursor(text.as_bytes()).ok(), expected, "{text:?}");
        };
        check("0", Some(0));
        check("007", Some(7));
        check("-1", Some(u64::MAX));
        check("18446744073709551615", Some(u64::MAX));
        check("18446744073709551616", None);
        check("", Some(0));
        check("-", None);
        check("1 ", None);
        check("1\0 ", Some(1));
        check("1a", None);
    }
}
