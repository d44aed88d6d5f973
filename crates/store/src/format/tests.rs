//! Encoded values can be decoded, and all other input is rejected.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use twox_hash::XxHash3_64;

use super::*;
use crate::backing::{LogCursor, LogId, LogOffset, RECORD_BYTES_MAX, SEGMENT_FRAME_BYTES_MAX};
use crate::{FillId, SEGMENT_BYTES_MAX, SegmentId};

const FILL: FillId = FillId { process: 7, sequence: 8 };

fn keys() -> TagKeys {
    TagKeys::new(b"new", Some(b"old"))
}

/// An owned record, from which a [`Record`] borrows.
#[derive(Debug, Clone)]
struct Sample {
    texts: Vec<Vec<u8>>,
    values: Vec<Option<Vec<u8>>>,
    numbers: [u64; 6],
    note: Option<bool>,
    apart: usize,
    body: SampleBody,
}

#[derive(Debug, Clone)]
enum SampleBody {
    Inline(Vec<u8>),
    Pieces { cell_bytes: u32, cells: Vec<bool>, fragment_bytes: u32 },
}

fn sample() -> impl Strategy<Value = Sample> {
    let text = || vec(any::<u8>(), 0..40);
    let pieces = (2..5000u32, vec(any::<bool>(), 0..20), 0..5000u32).prop_map(
        |(cell_bytes, cells, fragment_bytes)| SampleBody::Pieces { cell_bytes, cells, fragment_bytes },
    );
    let body = prop_oneof![vec(any::<u8>(), 0..200).prop_map(SampleBody::Inline), pieces];
    let numbers = any::<[u64; 6]>().prop_map(|all| all.map(|number| number >> 1));
    let values = vec(option::of(text()), 0..6);
    (vec(text(), 4..10), values, numbers, option::of(any::<bool>()), 0..5usize, body).prop_map(
        |(texts, values, numbers, note, apart, body)| Sample { texts, values, numbers, note, apart, body },
    )
}

impl SampleBody {
    fn body(&self) -> Body<'_> {
        match self {
            Self::Inline(data) => Body {
                state: BodyState::Complete,
                complete_bytes: Some(data.len() as u64),
                content: Content::Inline(data),
            },
            Self::Pieces { cell_bytes, cells, fragment_bytes } => {
                let layout = layout(*cell_bytes, cells, *fragment_bytes);
                let complete = cells.iter().all(|held| *held);
                let complete_bytes = complete.then_some(cells.len() as u64 * u64::from(*cell_bytes));
                let state = if complete { BodyState::Complete } else { BodyState::Part };
                Body { state, complete_bytes, content: Content::Segments(layout) }
            }
        }
    }
}

/// Returns runs of the held cells, and a fragment in each of the other cells.
fn layout(cell_bytes: u32, cells: &[bool], fragment_bytes: u32) -> Layout {
    let mut layout = Layout { fill: FILL, cell_bytes, runs: Vec::new(), fragments: Vec::new() };
    for (cell, held) in (0..).zip(cells) {
        match (held, layout.runs.last_mut()) {
            (true, Some(run)) if run.first + run.count == cell => run.count += 1,
            (true, _) => layout.runs.push(Run { first: cell, count: 1 }),
            (false, _) => layout.fragments.push(Fragment {
                first: u64::from(cell) * u64::from(cell_bytes),
                bytes: fragment_bytes.clamp(1, cell_bytes - 1),
                fill: FILL,
            }),
        }
    }
    layout
}

impl Sample {
    fn lines(&self) -> Vec<FieldLine<'_>> {
        self.texts.windows(2).map(|pair| (&pair[0][..], &pair[1][..])).collect()
    }

    fn named_values(&self) -> Vec<NamedValue<'_>> {
        self.values.iter().map(|value| (&self.texts[0][..], value.as_deref())).collect()
    }

    fn response(&self) -> Response<'_> {
        let [request_time_ms, response_time_ms, store_time_ms, stale, id, offset] = self.numbers;
        let id = LogId(u128::from(id).to_le_bytes());
        Response {
            status: request_time_ms as u16,
            marks: RequestMarks { had_credentials: stale % 2 == 0, had_content: stale % 3 == 0 },
            request_time_ms,
            response_time_ms,
            store_time_ms,
            stale_since_ms: (stale % 2 == 0).then_some(stale),
            log: (id.0 != [0; 16]).then_some(LogCursor { id, offset: LogOffset(offset) }),
            method: &self.texts[1],
            target: &self.texts[2],
            reason: self.values.first().and_then(|value| value.as_deref()),
            head: self.lines(),
            judged: self.lines(),
            request: self.named_values(),
            body: self.body.body(),
        }
    }

    fn record(&self) -> Record<'_> {
        let id = |number: usize| FillId { process: number as u64, sequence: self.numbers[0] };
        let inside =
            Variant { nominated: self.named_values(), id: id(0), response: Some(Box::new(self.response())) };
        let apart =
            (1..=self.apart).map(|n| Variant { nominated: self.named_values(), id: id(n), response: None });
        let note = self.note.map(|shared| Note {
            kind: if shared { NoteKind::GaveUp } else { NoteKind::NotShared },
            scope: 2,
            until_ms: self.numbers[3],
            because: b"no-store",
        });
        Record { key: &self.texts[3], note, variants: std::iter::once(inside).chain(apart).collect() }
    }
}

fn encoded(record: &Record<'_>, keys: Option<&TagKeys>) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_record(record, RecordKind::Primary, keys, &mut bytes).unwrap();
    bytes
}

fn decoded<'a>(bytes: &'a [u8], key: &[u8], keys: Option<&TagKeys>) -> Result<Record<'a>, FormatError> {
    decode_record(bytes, RecordKind::Primary, key, keys)
}

/// Returns the bytes with a corrected checksum.
fn resealed(bytes: &[u8]) -> Vec<u8> {
    let content = &bytes[..bytes.len() - 8];
    [content, &XxHash3_64::oneshot(content).to_le_bytes()].concat()
}

/// Returns the number of bytes that the lists in a record allocate.
fn allocated_bytes(record: &Record<'_>) -> usize {
    fn bytes<T>(list: &Vec<T>) -> usize {
        list.capacity() * size_of::<T>()
    }
    let of_response = |response: &Response<'_>| {
        let pieces = match &response.body.content {
            Content::Inline(_) => 0,
            Content::Segments(layout) => bytes(&layout.runs) + bytes(&layout.fragments),
        };
        let lines = bytes(&response.head) + bytes(&response.judged) + bytes(&response.request);
        size_of::<Response<'_>>() + lines + pieces
    };
    let of_variant = |variant: &Variant<'_>| {
        bytes(&variant.nominated) + variant.response.as_deref().map_or(0, of_response)
    };
    bytes(&record.variants) + record.variants.iter().map(of_variant).sum::<usize>()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_written_is_read(sample in sample(), is_tagged in any::<bool>()) {
        let (record, keys) = (sample.record(), is_tagged.then(keys));
        let bytes = encoded(&record, keys.as_ref());
        prop_assert_eq!(decoded(&bytes, record.key, keys.as_ref()), Ok(record.clone()));
        prop_assert_eq!(decoded(&bytes, record.key, None), Ok(record.clone()), "without a secret, tags are ignored");
        prop_assert_eq!(declared(&bytes[..HEADER_BYTES]).unwrap().bytes, bytes.len());
        let alone = Record { note: None, variants: record.variants[..1].to_vec(), ..record };
        let mut apart = Vec::new();
        encode_record(&alone, RecordKind::Response, keys.as_ref(), &mut apart).unwrap();
        prop_assert_eq!(decode_record(&apart, RecordKind::Response, alone.key, keys.as_ref()), Ok(alone.clone()));
        prop_assert_eq!(decoded(&apart, alone.key, None), Err(FormatError::Other), "another kind");
    }

    /// Damaged bytes are an error. With a corrected checksum, decoding returns an error or other values, and never
    /// panics.
    #[test]
    fn what_was_changed_is_an_error(sample in sample(), at in any::<prop::sample::Index>(), flip in 1..=255u8) {
        let record = sample.record();
        let mut bytes = encoded(&record, None);
        let at = at.index(bytes.len());
        prop_assert!(decoded(&bytes[..at], record.key, None).is_err(), "cut at {}", at);
        bytes[at] ^= flip;
        prop_assert!(decoded(&bytes, record.key, None).is_err(), "changed at {}", at);
        let bytes = resealed(&bytes);
        if let Ok(other) = decoded(&bytes, record.key, None) {
            prop_assert_eq!(encoded(&other, None), bytes, "every byte that was read matters");
        }
    }
}

/// Returns a small record in which no part is empty.
fn small(numbers: [u64; 6]) -> Sample {
    Sample {
        texts: [b"name".as_slice(), b"GET", b"http://a/", b"key"].map(<[u8]>::to_vec).to_vec(),
        values: vec![None, Some(b"gzip".to_vec())],
        numbers,
        note: Some(true),
        apart: 1,
        body: SampleBody::Pieces { cell_bytes: 100, cells: vec![true, false, true, true], fragment_bytes: 9 },
    }
}

#[test]
fn every_truncation_and_every_changed_byte_is_an_error() {
    // With and without a position in a log.
    for numbers in [[1, 2, 3, 4, 5, 6], [1, 2, 3, 5, 0, 0]] {
        let sample = small(numbers);
        let (record, keys) = (sample.record(), keys());
        for keys in [None, Some(&keys)] {
            let bytes = encoded(&record, keys);
            for at in 0..bytes.len() {
                assert!(decoded(&bytes[..at], record.key, keys).is_err(), "cut at {at}");
                let flips = (0..8).map(|bit| 1 << bit).chain([0xff]);
                flips.for_each(|flip| check_change(&bytes, at, flip, record.key, keys));
            }
        }
    }
}

/// A changed byte is an error. With a corrected checksum, the record counts as forged, or decodes to a value that encodes
/// to the same bytes.
fn check_change(bytes: &[u8], at: usize, flip: u8, key: &[u8], keys: Option<&TagKeys>) {
    let mut changed = bytes.to_vec();
    changed[at] ^= flip;
    assert!(decoded(&changed, key, keys).is_err(), "changed at {at} by {flip}");
    let resealed = resealed(&changed);
    if let Ok(other) = decoded(&resealed, key, keys) {
        assert_eq!(encoded(&other, keys), resealed, "changed at {at} by {flip}");
        assert!(keys.is_none() || at >= bytes.len() - 8, "forged at {at} by {flip}");
    }
}

#[test]
fn there_is_nothing_behind_the_content() {
    let longer = |mut bytes: Vec<u8>| {
        bytes.insert(bytes.len() - 8, 0);
        let length = bytes.len() as u32;
        bytes[8..12].copy_from_slice(&length.to_le_bytes());
        resealed(&bytes)
    };
    let more = FormatError::Invalid("there are trailing bytes");
    let sample = small([1; 6]);
    let record = sample.record();
    assert_eq!(decoded(&longer(encoded(&record, None)), record.key, None), Err(more));
    let segment = SegmentFrame { id: SegmentId { fill: FILL, index: 0 }, cell_bytes: 9, data: b"x" };
    let mut bytes = Vec::new();
    encode_segment(&segment, None, &mut bytes).unwrap();
    assert_eq!(decode_segment(&longer(bytes), segment.id, None), Err(more));
}

#[test]
fn none_is_no_number_and_null_no_length() {
    let (mut out, too_long) = (Vec::new(), vec![0; 65_535]);
    let mut writer = bytes::Writer { out: &mut out };
    assert!(writer.some_u64(Some(u64::MAX)).is_err());
    assert!(writer.text(&too_long).is_err());
    writer.some_u64(Some(u64::MAX - 1)).unwrap();
    writer.some_u64(None).unwrap();
    writer.text(&too_long[1..]).unwrap();
    writer.text_or_null(None).unwrap();
    let mut reader = bytes::Reader::new(&out);
    assert_eq!((reader.some_u64(), reader.some_u64()), (Ok(Some(u64::MAX - 1)), Ok(None)));
    assert_eq!(reader.text(), Ok(&too_long[1..]));
    assert!(reader.text().is_err(), "null is no text");
}

#[test]
fn tags_are_of_one_secret_or_the_one_before() {
    let record = Record { key: b"key", note: None, variants: Vec::new() };
    let old = encoded(&record, Some(&TagKeys::new(b"old", None)));
    let untagged = encoded(&record, None);
    let [other, next] = [TagKeys::new(b"other", None), TagKeys::new(b"next", Some(b"new"))];
    assert_eq!(decoded(&old, b"key", Some(&keys())), Ok(record.clone()));
    for (bytes, keys) in [(&old, &other), (&old, &next), (&untagged, &next)] {
        assert_eq!(decoded(bytes, b"key", Some(keys)), Err(FormatError::Unauthenticated));
    }
    assert_eq!(format!("{other:?}"), "TagKeys");
}

#[test]
fn what_is_found_has_a_meaning() {
    let record = Record { key: b"key", note: None, variants: Vec::new() };
    let bytes = encoded(&record, None);
    let with = |at: usize, byte: u8| {
        let mut changed = bytes.clone();
        changed[at] = byte;
        changed
    };
    let longer = [&bytes[..], b"x"].concat();
    let cases: [(&[u8], FormatError, Meaning); 9] = [
        (&with(3, 2), FormatError::UnknownVersion(2), Meaning::Leave),
        (&with(0, b'l'), FormatError::NotOurs, Meaning::Corrupt),
        (&with(4, 9), FormatError::Invalid("the kind is not known"), Meaning::Corrupt),
        (&with(5, 2), FormatError::Invalid("a flag is not known"), Meaning::Corrupt),
        (&with(7, 1), FormatError::Invalid("a flag is not known"), Meaning::Corrupt),
        (
            &with(10, 2),
            FormatError::TooLong { bytes: 0x2_0000 + bytes.len(), bytes_max: RECORD_BYTES_MAX },
            Meaning::Corrupt,
        ),
        (&with(14, b'K'), FormatError::Checksum, Meaning::Corrupt),
        (&longer, FormatError::Length, Meaning::Corrupt),
        (b"", FormatError::Length, Meaning::Corrupt),
    ];
    for (bytes, error, meaning) in cases {
        assert_eq!((decoded(bytes, b"key", None), error.meaning()), (Err(error), meaning));
    }
    assert_eq!(decoded(&bytes, b"other", None), Err(FormatError::Other));
    assert_eq!(FormatError::Other.meaning(), Meaning::Replace);
    assert_eq!(FormatError::Unauthenticated.meaning(), Meaning::Forged);
}

fn check_body(expected: bool, change: impl FnOnce(&mut Body<'_>, &mut Layout)) {
    // Five cells of ten bytes, the last of them shorter: 0, 1 and 3 are stored whole, 2 and 4 in part.
    let mut layout = layout(10, &[true, true, false, true, false], 4);
    layout.fragments[1].bytes = 6;
    let content = Content::Inline(b"");
    let mut body = Body { state: BodyState::Part, complete_bytes: Some(47), content };
    change(&mut body, &mut layout);
    let shown = format!("{body:?} {layout:?}");
    if body.content == Content::Inline(b"") {
        body.content = Content::Segments(layout);
    }
    let mut out = Vec::new();
    assert_eq!(body.write(&mut bytes::Writer { out: &mut out }).is_ok(), expected, "{shown}");
}

#[test]
fn pieces_are_where_they_can_be() {
    let fragment = |first, bytes| Fragment { first, bytes, fill: FILL };
    check_body(true, |_, _| {});
    check_body(true, |body, _| body.complete_bytes = None);
    check_body(false, |body, _| body.state = BodyState::Complete);
    check_body(true, |body, layout| {
        body.state = BodyState::Complete;
        layout.runs = vec![Run { first: 0, count: 2 }, Run { first: 3, count: 2 }];
        layout.fragments = vec![fragment(20, 4), fragment(24, 6)];
    });
    check_body(false, |body, _| body.complete_bytes = Some(30));
    check_body(false, |_, layout| layout.runs[1] = Run { first: 2, count: 1 });
    check_body(false, |_, layout| layout.runs[1] = Run { first: 0, count: 1 });
    check_body(false, |_, layout| layout.runs[1].count = 0);
    check_body(false, |_, layout| layout.runs[1].count = u32::MAX);
    check_body(false, |_, layout| layout.runs[1].first = 5);
    check_body(false, |_, layout| layout.cell_bytes = 0);
    check_body(false, |_, layout| layout.cell_bytes = SEGMENT_BYTES_MAX as u32 + 1);
    for (first, bytes) in [(44, 4), (18, 4), (8, 2), (20, 4), (40, 7), (47, 1), (45, 0), (u64::MAX, 1)] {
        check_body(false, |_, layout| layout.fragments[1] = fragment(first, bytes));
    }
    check_body(false, |_, layout| layout.fragments = vec![fragment(22, 1); 2]);
    check_body(true, |_, layout| layout.fragments = Vec::new());
    check_body(false, |_, layout| {
        layout.fragments = Vec::new();
        layout.runs[1] = Run { first: 2, count: 1 };
    });
    check_body(false, |_, layout| layout.fragments = vec![fragment(11, 2)]);
    check_body(false, |_, layout| layout.fragments = (0..65).map(|n| fragment(20 + n / 10, 1)).collect());
    check_body(false, |body, _| body.content = Content::Inline(b"inline, but a part"));
}

#[test]
fn what_is_beyond_a_limit_is_not_written() {
    let long = vec![b'x'; RECORD_BYTES_MAX];
    let apart = Variant { nominated: Vec::new(), id: FILL, response: None };
    let many_lines = Variant { nominated: vec![(b"", None); 1025], ..apart.clone() };
    let note = Note { kind: NoteKind::GaveUp, scope: 0, until_ms: 0, because: &long[..65] };
    let plain = Record { key: b"key", note: None, variants: Vec::new() };
    let at_limit = Record { variants: vec![apart.clone(); 32], ..plain.clone() };
    let refused = [
        Record { key: &long, ..plain.clone() },
        Record { key: &long[..65_534], ..plain.clone() },
        Record { variants: vec![apart; 33], ..plain.clone() },
        Record { variants: vec![many_lines], ..plain.clone() },
        Record { note: Some(note), ..plain },
    ];
    let mut out = b"before".to_vec();
    for record in &refused {
        assert!(encode_record(record, RecordKind::Primary, None, &mut out).is_err());
        assert_eq!(out, b"before");
    }
    encode_record(&at_limit, RecordKind::Primary, None, &mut out).unwrap();
    assert!(encode_record(&at_limit, RecordKind::Response, None, &mut out).is_err());
}

/// The longest lists that fit: no memory is allocated for declared items whose bytes are missing.
#[test]
fn reading_allocates_little() {
    let response = |runs: u32| {
        let body = Body {
            state: BodyState::Part,
            complete_bytes: None,
            content: Content::Segments(Layout {
                fill: FILL,
                cell_bytes: 1,
                runs: (0..runs).map(|n| Run { first: n * 2, count: 1 }).collect(),
                fragments: Vec::new(),
            }),
        };
        let sample = Sample {
            texts: vec![Vec::new(); 4],
            values: Vec::new(),
            numbers: [1; 6],
            note: None,
            apart: 0,
            body: SampleBody::Inline(Vec::new()),
        };
        let response = sample.response();
        let empty: &[u8] = b"";
        let lines = vec![(empty, empty); 32];
        Box::new(Response {
            method: empty,
            target: empty,
            reason: None,
            head: lines,
            judged: Vec::new(),
            request: Vec::new(),
            body,
            ..response_numbers(&response)
        })
    };
    let variants =
        (0..32).map(|_| Variant { nominated: Vec::new(), id: FILL, response: Some(response(200)) });
    let record = Record { key: b"", note: None, variants: variants.collect() };
    let bytes = encoded(&record, None);
    let found = decoded(&bytes, b"", None).unwrap();
    assert_eq!(found, record);
    let allocated = allocated_bytes(&found);
    assert!(allocated <= 128 << 10, "{allocated} bytes of lists from {} bytes", bytes.len());
    let mut too_many = b"LAR\x01\x01\0\0\0\0\0\0\0\0\0\0\x01\x01\x04".to_vec();
    too_many.resize(too_many.len() + 5000, 0);
    let length = too_many.len() as u32;
    too_many[8..12].copy_from_slice(&length.to_le_bytes());
    let refused = Err(FormatError::Invalid("more field lines than a record may have"));
    assert_eq!(decoded(&resealed(&too_many), b"", None), refused);
    let mut lying = bytes;
    // Byte 16 is the number of nominated fields of the first variant.
    lying[16] = 0xff;
    assert_eq!(decoded(&resealed(&lying), b"", None), Err(FormatError::Invalid("the input ends early")));
}

/// Returns the numbers of a response, without its borrowed parts.
fn response_numbers(response: &Response<'_>) -> Response<'static> {
    Response {
        status: response.status,
        marks: response.marks,
        request_time_ms: response.request_time_ms,
        response_time_ms: response.response_time_ms,
        store_time_ms: response.store_time_ms,
        stale_since_ms: response.stale_since_ms,
        log: response.log,
        method: b"",
        target: b"",
        reason: None,
        head: Vec::new(),
        judged: Vec::new(),
        request: Vec::new(),
        body: Body { state: BodyState::Complete, complete_bytes: Some(0), content: Content::Inline(b"") },
    }
}

#[test]
fn segments_are_read_as_they_were_written() {
    let id = SegmentId { fill: FILL, index: 65_535 };
    let largest = vec![b'x'; SEGMENT_BYTES_MAX];
    let keys = keys();
    for (data, cell_bytes) in [(&b"x"[..], 1), (b"abc", 4), (&largest, SEGMENT_BYTES_MAX as u32)] {
        let segment = SegmentFrame { id, cell_bytes, data };
        let mut bytes = Vec::new();
        encode_segment(&segment, Some(&keys), &mut bytes).unwrap();
        assert!(bytes.len() <= SEGMENT_FRAME_BYTES_MAX);
        assert_eq!(decode_segment(&bytes, id, Some(&keys)), Ok(segment));
        let others = [SegmentId { index: 0, ..id }, SegmentId { fill: FillId { process: 1, ..FILL }, ..id }];
        for other in others {
            assert_eq!(decode_segment(&bytes, other, Some(&keys)), Err(FormatError::Other));
        }
        for at in (0..bytes.len()).step_by(bytes.len() / 80 + 1) {
            assert!(decode_segment(&bytes[..at], id, Some(&keys)).is_err(), "cut at {at}");
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(decode_segment(&changed, id, Some(&keys)).is_err(), "changed at {at}");
        }
    }
    for (data, cell_bytes, index) in [(&b""[..], 1, 0), (b"ab", 1, 0), (b"a", 1, 65_536), (b"a", u32::MAX, 0)]
    {
        let segment = SegmentFrame { id: SegmentId { fill: FILL, index }, cell_bytes, data };
        assert!(encode_segment(&segment, None, &mut Vec::new()).is_err(), "{segment:?}");
    }
}
