//! Vectors of `conformance/store`: bytes that this code writes, and how they are read.
//!
//! The tests compare the files with the current output; `WRITE_VECTORS=1` writes them. The expected value of a vector is the decoder's
//! result for the bytes, never the value that was encoded.

mod log;

use std::fmt::{Debug, Write as _};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use twox_hash::XxHash3_64;

use crate::backing::double::{Behaviour, DoubleLimits, DoubleServer};
use crate::backing::suite::json::{hex, text};
use crate::backing::suite::{Bench, histories};
use crate::backing::{LastRecord, LogCursor, LogId, LogOffset, LogPart, LogRecord, LogState};
use crate::fleet::{Carried, CarriedWhat, InstanceId, ListId, MEMBERS_MAX, Member, decode_list, encode_list};
use crate::format::{
    Body, BodyState, Content, Layout, Note, NoteKind, Record, RecordKind, RequestMarks, Response,
    SegmentFrame, TagKeys, Variant, decode_record, decode_segment, encode_record, encode_segment,
};
use crate::purge::{PurgeId, PurgeMode, PurgeRecord, PurgeTarget, Selection, TagsMatch, UrlScheme};
use crate::remote::log_bytes::RECORD_HEADER_BYTES;
use crate::{FillId, SegmentId};

/// A file with a line for each vector.
struct File {
    name: &'static str,
    lines: Vec<String>,
}

impl File {
    fn new(name: &'static str) -> Self {
        Self { name, lines: Vec::new() }
    }

    /// Adds a vector with a decoder's result for some bytes.
    fn decoded<T: Debug, E: Debug>(
        &mut self,
        says: &str,
        bytes: &[u8],
        decode: impl Fn(&[u8]) -> Result<T, E>,
    ) {
        let (key, value) = match decode(bytes) {
            Ok(decoded) => ("decoded", format!("{decoded:?}")),
            Err(error) => ("error", format!("{error:?}")),
        };
        self.line(says, &[("bytes", &hex(bytes)), (key, &value)]);
    }

    fn line(&mut self, says: &str, members: &[(&str, &str)]) {
        let mut line = format!("{{\"name\": {}", text(says));
        for (key, value) in members {
            let _ = write!(line, ", \"{key}\": {}", text(value));
        }
        self.lines.push(line + "}");
    }

    /// Adds a vector that is already formatted.
    fn written(&mut self, line: String) {
        self.lines.push(line);
    }

    /// Adds vectors of the bytes: unchanged, truncated, with an extra byte, and with another version.
    fn with_damage<T: Debug, E: Debug>(
        &mut self,
        says: &str,
        bytes: &[u8],
        (version_at, decode): (usize, impl Fn(&[u8]) -> Result<T, E>),
    ) {
        assert!(decode(bytes).is_ok(), "{says}");
        self.decoded(says, bytes, &decode);
        let mut damaged = bytes.to_vec();
        damaged.pop();
        self.decoded(&format!("{says}, without its last byte"), &damaged, &decode);
        self.decoded(&format!("{says}, with an extra byte"), &[bytes, &[0]].concat(), &decode);
        let mut damaged = bytes.to_vec();
        damaged[version_at] = 2;
        self.decoded(&format!("{says}, of version 2"), &damaged, &decode);
    }

    fn compare(&self) {
        let written = format!("[\n{}\n]\n", self.lines.join(",\n"));
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/store").join(self.name);
        if std::env::var_os("WRITE_VECTORS").is_some() {
            std::fs::write(&path, &written).unwrap();
        }
        let there = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(there == written, "{} is out of date: run cargo xtask vectors", self.name);
    }
}

fn purge(mode: PurgeMode, what: PurgeTarget) -> Vec<u8> {
    let id = PurgeId(std::array::from_fn(|at| at as u8));
    PurgeRecord { id, at_ms: 1_800_000_000_000, mode, what }.encode().unwrap()
}

fn selection() -> Selection {
    Selection { tags: vec!["news".to_owned()], site: Some("shop".to_owned()), ..Selection::default() }
}

#[test]
fn purges_are_as_written() {
    let mut file = File::new("purges.json");
    let everywhere = Selection {
        tags: vec!["a".to_owned(), "b".to_owned()],
        tags_match: TagsMatch::All,
        site: None,
        host: Some("a.example:8080".to_owned()),
        scheme: Some(UrlScheme::Https),
        prefix: Some("/x/".to_owned()),
    };
    for (says, mode, what) in [
        ("a URL", PurgeMode::Hard, PurgeTarget::Url("https://a.example/x?y=1".to_owned())),
        ("a tag in a site", PurgeMode::Soft, PurgeTarget::Selected(selection())),
        ("all of two tags, below a prefix", PurgeMode::Hard, PurgeTarget::Selected(everywhere)),
        ("everything", PurgeMode::Refresh, PurgeTarget::Everything),
    ] {
        file.with_damage(says, &purge(mode, what), (0, PurgeRecord::decode));
    }
    let example = purge(PurgeMode::Soft, PurgeTarget::Selected(selection()));
    assert!(hex(&example).starts_with("0102020200505c18a3010000"), "as in docs/internals/purge-log.md");
    let mut unknown = purge(PurgeMode::Hard, PurgeTarget::Everything);
    unknown[1] = 9;
    file.decoded("an unknown form", &unknown, PurgeRecord::decode);
    file.compare();
}

#[test]
fn carried_purges_are_as_written() {
    let mut file = File::new("carried.json");
    let purge = purge(PurgeMode::Hard, PurgeTarget::Url("https://a.example/x?y=1".to_owned()));
    let record = LogRecord { bytes: purge.into(), end: LogOffset(0x0506) };
    let last = LastRecord::new(LogOffset(0x0304), &record);
    let (id, origin, after) = (PurgeId([9; 16]), LogId([7; 16]), LogOffset(0x0102));
    let decode = |bytes: &[u8]| Carried::decode(&Bytes::copy_from_slice(bytes));
    for (says, what) in [
        ("a purge", CarriedWhat::Purge(record.bytes)),
        ("a position", CarriedWhat::Position),
        ("a beginning", CarriedWhat::Beginning),
    ] {
        let bytes = Carried { id, origin, after, last, what }.encode();
        file.decoded(says, &bytes, decode);
        file.decoded(&format!("{says}, cut in its header"), &bytes[..67], decode);
        file.decoded(&format!("{says}, with an extra byte"), &[&bytes[..], &[0]].concat(), decode);
        for (at, field) in ["version", "form", "kind", "flag"].iter().enumerate() {
            let mut unknown = bytes.to_vec();
            unknown[at] = 9;
            file.decoded(&format!("{says}, of an unknown {field}"), &unknown, decode);
        }
    }
    file.compare();
}

#[test]
fn continuity_is_as_written() {
    let mut file = File::new("log-continuity.json");
    let state = LogState { id: LogId([1; 16]), floor: LogOffset(10), end: LogOffset(20) };
    for (says, id, offset) in [
        ("below the floor", 1, 9),
        ("at the floor", 1, 10),
        ("at the end", 1, 20),
        ("past the end", 1, 21),
        ("of another log", 2, 15),
    ] {
        let read = LogCursor { id: LogId([id; 16]), offset: LogOffset(offset) };
        let judgement = format!("{:?}", state.continues(&read));
        let (id, offset) = (hex(&read.id.0), offset.to_string());
        let members = [("log", &*hex(&state.id.0)), ("floor", "10"), ("end", "20"), ("read_log", &*id)]
            .map(|(key, value)| (key, value.to_owned()));
        let mut members: Vec<(&str, &str)> = members.iter().map(|(key, value)| (*key, &**value)).collect();
        members.extend([("read_to", &*offset), ("judgement", &*judgement)]);
        file.line(says, &members);
    }
    continuity_by_the_last_record(&mut file);
    file.compare();
}

/// Adds vectors for a reader that has read up to the end of a record that begins at offset 10.
fn continuity_by_the_last_record(file: &mut File) {
    let url = |path: &str| purge(PurgeMode::Hard, PurgeTarget::Url(format!("https://a.example{path}")));
    let last = Bytes::from(url("/x"));
    let ends_behind = |bytes: &Bytes| LogOffset(10 + RECORD_HEADER_BYTES as u64 + bytes.len() as u64);
    let read = LogCursor { id: LogId([1; 16]), offset: ends_behind(&last) };
    let record = |bytes: Bytes| LogRecord { end: ends_behind(&bytes), bytes };
    let was_read = LastRecord::new(LogOffset(10), &record(last.clone()));
    let mut another_id = last.to_vec();
    another_id[12] ^= 1;
    for (says, floor, end, there) in [
        ("the log ends with the last record read", 10, read.offset.0, Some(last.clone())),
        ("the log continues after the last record read", 10, 200, Some(last.clone())),
        ("another record of the same length", 10, read.offset.0, Some(url("/y").into())),
        ("the same purge with another id", 10, read.offset.0, Some(another_id.into())),
        ("a shorter record, and more records", 10, 200, Some(url("/").into())),
        ("a longer record", 10, 200, Some(url("/xyz").into())),
        ("the last record is below the floor", read.offset.0, 200, None),
    ] {
        let state = LogState { id: read.id, floor: LogOffset(floor), end: LogOffset(end) };
        let there: Option<Bytes> = there;
        let records = there.iter().cloned().map(record).collect();
        let judgement = format!("{:?}", LogPart { state, records }.continues(&read, &was_read));
        let numbers = [floor, end, read.offset.0].map(|number| number.to_string());
        let [id, last, there] = [&read.id.0[..], &last, there.as_deref().unwrap_or_default()].map(hex);
        let mut members = vec![("log", &*id), ("floor", &*numbers[0]), ("end", &*numbers[1])];
        members.extend([
            ("read_log", &*id),
            ("read_to", &*numbers[2]),
            ("last_begins", "10"),
            ("last", &*last),
        ]);
        members.extend((!there.is_empty()).then_some(("there", &*there)));
        members.push(("judgement", &*judgement));
        file.line(says, &members);
    }
}

#[test]
fn members_are_as_written() {
    let mut file = File::new("members.json");
    for name in ["cache-1", "", "k\u{e4}se"] {
        let read = LogCursor { id: LogId([7; 16]), offset: LogOffset(0x0102_0304) };
        let member = Member { id: InstanceId([9; 16]), read, name: name.into() };
        file.decoded(&format!("a member named {name:?}"), &member.encode(), |bytes| {
            Member::decode(bytes).map(|member| (hex(&member.id.0), member.read, member.name))
        });
    }
    let member = Member {
        id: InstanceId([9; 16]),
        read: LogCursor { id: LogId([7; 16]), offset: LogOffset(1) },
        name: "x".repeat(65).into(),
    };
    file.decoded("a name that is too long", &member.encode(), Member::decode);
    file.decoded("a truncated member", &member.encode()[..47], Member::decode);
    file.compare();
}

#[test]
fn lists_of_members_are_as_written() {
    let mut file = File::new("member-list.json");
    let decode = |bytes: &[u8]| {
        decode_list(bytes).map(|(id, ids)| {
            let ids: Vec<String> = ids.iter().map(|id| hex(&id.0)).collect();
            (hex(&id.begun_by.0), id.count, ids)
        })
    };
    let id = ListId { begun_by: InstanceId([9; 16]), count: 0x0102_0304 };
    let two = encode_list(id, &[InstanceId([9; 16]), InstanceId([8; 16])]);
    file.decoded("an empty list", &encode_list(id, &[]), decode);
    file.with_damage("a list of two instances", &two, (3, decode));
    let content = |bytes: &[u8]| bytes[..bytes.len() - 8].to_vec();
    let mut damaged = two.clone();
    damaged[30] ^= 1;
    file.decoded("a list with a wrong bit", &damaged, decode);
    let mut newer = content(&two);
    newer[3] = 2;
    file.decoded("a list of version 2, whose checksum is right", &sealed(newer), decode);
    let cut = sealed(content(&two)[..50].to_vec());
    file.decoded("a list that ends within an id, whose checksum is right", &cut, decode);
    let member = Member {
        id: id.begun_by,
        read: LogCursor { id: LogId([7; 16]), offset: LogOffset(1) },
        name: "a".into(),
    };
    file.decoded("the record of an instance in the place of the list", &member.encode(), decode);
    assert!(decode_list(&encode_list(id, &vec![InstanceId([1; 16]); MEMBERS_MAX + 1])).is_err());
    file.compare();
}

fn sealed(mut content: Vec<u8>) -> Vec<u8> {
    let checksum = XxHash3_64::oneshot(&content);
    content.extend_from_slice(&checksum.to_le_bytes());
    content
}

/// Runs histories of operations on the test double. Other tiers must produce the same results.
#[tokio::test(start_paused = true)]
async fn histories_are_as_written() {
    let server = DoubleServer::new(DoubleLimits::default(), 1);
    let limits = DoubleLimits::default();
    let [own, other] = [(); 2].map(|()| Arc::new(server.connect(Behaviour::default())));
    let bench = Bench { own, other, verification: limits.verification };
    let mut file = File::new("histories.json");
    histories::play(&bench).await.unwrap().into_iter().for_each(|line| file.written(line));
    file.compare();
}

const KEY: &[u8] = b"key";
const FILL: FillId = FillId { process: 7, sequence: 8 };

fn response(content: &'static [u8]) -> Response<'static> {
    Response {
        status: 200,
        marks: RequestMarks::default(),
        request_time_ms: 1_800_000_000_000,
        response_time_ms: 1_800_000_000_077,
        store_time_ms: 1_800_000_000_078,
        stale_since_ms: None,
        log: Some(LogCursor { id: LogId([7; 16]), offset: LogOffset(100) }),
        method: b"GET",
        target: b"http://a.example/x",
        reason: None,
        head: vec![(b"cache-control", b"max-age=60"), (b"etag", b"\"1\"")],
        judged: vec![(b"content-length", b"2")],
        request: vec![(b"accept", None)],
        body: Body {
            state: BodyState::Complete,
            complete_bytes: Some(content.len() as u64),
            content: Content::Inline(content),
        },
    }
}

fn record(variants: Vec<Variant<'static>>, note: Option<Note<'_>>, keys: Option<&TagKeys>) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_record(&Record { key: KEY, note, variants }, RecordKind::Primary, keys, &mut bytes).unwrap();
    bytes
}

/// Record of a version that shared bodies while they were arriving, with three fragments.
const PROGRESS: &str =
    "4c41520104000000310000000700000000000000080000000000000001030000007011010000000000463426aa4dcddd62";

/// Returns `record` with the state of its body replaced.
fn in_state(mut record: Vec<u8>, state: u8) -> Vec<u8> {
    let content = record.len() - 8;
    let place = content - 33;
    assert_eq!(record[place], 2, "the state of the body");
    record[place] = state;
    let checksum = XxHash3_64::oneshot(&record[..content]).to_le_bytes();
    record[content..].copy_from_slice(&checksum);
    record
}

fn unhex(text: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

#[test]
fn records_are_as_written() {
    let mut file = File::new("records.json");
    let decode = |bytes: &[u8]| {
        decode_record(bytes, RecordKind::Primary, KEY, None).map(|record| format!("{record:?}"))
    };
    let inside = |content| Variant {
        nominated: vec![(&b"accept-language"[..], Some(&b"de"[..]))],
        id: FILL,
        response: Some(Box::new(response(content))),
    };
    let apart = Variant { nominated: Vec::new(), id: FillId { process: 1, sequence: 2 }, response: None };
    let note = Note { kind: NoteKind::NotShared, scope: 2, until_ms: 1_800_000_060_000, because: b"private" };
    file.with_damage("an empty record", &record(Vec::new(), None, None), (3, decode));
    file.with_damage("a note", &record(Vec::new(), Some(note), None), (3, decode));
    for (says, because) in [
        ("a holder that gave up", ""),
        ("a holder that gave up, with a reason of older versions", "503 0123456789abcdef"),
        ("a holder that gave up its second forward", "connection-refused 0000000000000001 0123456789abcdef"),
    ] {
        let note = Note { kind: NoteKind::GaveUp, because: because.as_bytes(), ..note };
        file.decoded(says, &record(Vec::new(), Some(note), None), decode);
    }
    file.with_damage(
        "a response, and another one in a separate record",
        &record(vec![inside(b"hi"), apart], None, None),
        (3, decode),
    );
    let other = |bytes: &[u8]| decode_record(bytes, RecordKind::Primary, b"other", None).map(drop);
    file.decoded("requested under another key", &record(Vec::new(), None, None), other);
    let part = || {
        let layout = Layout { fill: FILL, cell_bytes: 64 << 10, runs: Vec::new(), fragments: Vec::new() };
        let body =
            Body { state: BodyState::Part, complete_bytes: Some(100), content: Content::Segments(layout) };
        let response = Some(Box::new(Response { body, ..response(b"") }));
        record(vec![Variant { nominated: Vec::new(), id: FILL, response }], None, None)
    };
    file.with_damage("a part without any bytes", &part(), (3, decode));
    for (says, state) in
        [("a body in the state that older versions used", 3), ("a body in an unknown state", 4)]
    {
        file.decoded(says, &in_state(part(), state), decode);
    }
    file.decoded("a frame of the kind that older versions used", &unhex(PROGRESS), decode);
    let keys = TagKeys::new(b"secret", None);
    let tagged = record(Vec::new(), None, Some(&keys));
    let with_keys = |bytes: &[u8]| {
        decode_record(bytes, RecordKind::Primary, KEY, Some(&keys)).map(|record| format!("{record:?}"))
    };
    file.decoded("with a tag by \"secret\", read with that secret", &tagged, with_keys);
    file.decoded("with a tag by \"secret\", read without a secret", &tagged, decode);
    file.decoded("without a tag, read with \"secret\"", &record(Vec::new(), None, None), with_keys);
    file.compare();
}

#[test]
fn segments_are_as_written() {
    let mut file = File::new("segments.json");
    let id = SegmentId { fill: FILL, index: 3 };
    let mut bytes = Vec::new();
    encode_segment(&SegmentFrame { id, cell_bytes: 1024, data: b"some bytes" }, None, &mut bytes).unwrap();
    let decode = |bytes: &[u8]| decode_segment(bytes, id, None).map(|segment| format!("{segment:?}"));
    file.with_damage("segment 3 of a fill", &bytes, (3, decode));
    let mut damaged = bytes.clone();
    damaged[40] ^= 1;
    file.decoded("a segment with a wrong bit", &damaged, decode);
    let other = |bytes: &[u8]| decode_segment(bytes, SegmentId { index: 4, ..id }, None).map(drop);
    file.decoded("segment 3, requested as 4", &bytes, other);
    file.compare();
}
