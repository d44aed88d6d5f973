//! Replies, whole and split at arbitrary positions.

use proptest::prelude::*;
use resp::{DecodeError, Limits, Problem, Scanner, Value};

const LIMITS: Limits = Limits { depth_max: 4, elements_max: 64, bulk_bytes_max: 64, line_bytes_max: 32 };

/// Reads a sequence of values, first with the bytes up to each cut, then with all bytes.
fn read<'a>(bytes: &'a [u8], cuts: &[usize]) -> (Vec<Value<'a>>, Option<DecodeError>) {
    let mut scanner = Scanner::new(LIMITS);
    let (mut values, mut begin) = (Vec::new(), 0);
    for &cut in cuts.iter().chain([&bytes.len()]) {
        while begin < cut.min(bytes.len()) {
            match scanner.scan(&bytes[begin..cut.min(bytes.len())]) {
                Ok(None) => break,
                Ok(Some(length)) => {
                    match Value::parse(&bytes[begin..begin + length], &LIMITS) {
                        Ok(value) => values.push(value),
                        Err(error) => return (values, Some(error)),
                    }
                    begin += length;
                }
                Err(error) => return (values, Some(error)),
            }
        }
    }
    (values, None)
}

fn one(bytes: &[u8]) -> Value<'_> {
    let (mut values, error) = read(bytes, &[]);
    assert_eq!((values.len(), error), (1, None), "{}", bytes.escape_ascii());
    values.remove(0)
}

#[test]
fn each_type_is_read_and_written() {
    let attributes = vec![(Value::Simple(b"ttl"), Value::Integer(7))];
    let cases: [(&[u8], Value<'_>); 21] = [
        (b"+OK\r\n", Value::Simple(b"OK")),
        (b"+\r\n", Value::Simple(b"")),
        (b"-ERR no\r\n", Value::Error(b"ERR no")),
        (b":-12\r\n", Value::Integer(-12)),
        (b":9223372036854775807\r\n", Value::Integer(i64::MAX)),
        (b"$0\r\n\r\n", Value::Bulk(b"")),
        (b"$4\r\n\r\n\0+\r\n", Value::Bulk(b"\r\n\0+")),
        (b"$-1\r\n", Value::NullBulk),
        (b"*-1\r\n", Value::NullArray),
        (b"_\r\n", Value::Null),
        (b"*0\r\n", Value::Array(vec![])),
        (
            b"*2\r\n*1\r\n:1\r\n$1\r\na\r\n",
            Value::Array(vec![Value::Array(vec![Value::Integer(1)]), Value::Bulk(b"a")]),
        ),
        (b"#t\r\n", Value::Boolean(true)),
        (b",-1.5\r\n", Value::Double(-1.5)),
        (b",inf\r\n", Value::Double(f64::INFINITY)),
        (
            b"(-3492890328409238509324850943850943825024385\r\n",
            Value::BigNumber(b"-3492890328409238509324850943850943825024385"),
        ),
        (b"!5\r\nERR x\r\n", Value::BulkError(b"ERR x")),
        (b"=5\r\ntxt:a\r\n", Value::Verbatim { format: *b"txt", text: b"a" }),
        (b"%1\r\n+a\r\n:1\r\n", Value::Map(vec![(Value::Simple(b"a"), Value::Integer(1))])),
        (b">1\r\n+a\r\n", Value::Push(vec![Value::Simple(b"a")])),
        (
            b"|1\r\n+ttl\r\n:7\r\n~1\r\n_\r\n",
            Value::Attributed { attributes, value: Box::new(Value::Set(vec![Value::Null])) },
        ),
    ];
    for (bytes, value) in cases {
        if bytes.len() < 40 {
            assert_eq!(one(bytes), value, "{}", bytes.escape_ascii());
        }
        let mut written = Vec::new();
        value.encode(&mut written);
        assert_eq!(written.escape_ascii().to_string(), bytes.escape_ascii().to_string());
    }
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    let limit = LIMITS.line_bytes_max;
    let cases: [(&[u8], usize, Problem); 24] = [
        (b"hello\r\n", 0, Problem::UnknownType(b'h')),
        (b"*1\r\n\0", 4, Problem::UnknownType(0)),
        (b"+a\nb\r\n", 2, Problem::LineEnd),
        (b"+a\rb\r\n", 2, Problem::LineEnd),
        (b"$3\r\nabcd\r\n", 7, Problem::BulkEnd),
        (b"$3\r\nabc\rx", 8, Problem::BulkEnd),
        (b"$x\r\n", 1, Problem::Length),
        (b"$+3\r\n", 1, Problem::Length),
        (b"$\r\n", 1, Problem::Length),
        (b"$99999999999999999999\r\n", 1, Problem::Length),
        (b"!-1\r\n", 1, Problem::Length),
        (b"%-1\r\n", 1, Problem::Length),
        (b"$?\r\n", 1, Problem::Streamed),
        (b"*?\r\n", 1, Problem::Streamed),
        (b":9223372036854775808\r\n", 1, Problem::Integer),
        (b":+\r\n", 1, Problem::Integer),
        (b",infinity\r\n", 1, Problem::Double),
        (b"#T\r\n", 1, Problem::Boolean),
        (b"_x\r\n", 1, Problem::Null),
        (b"=3\r\ntxt\r\n", 4, Problem::Verbatim),
        (b"$65\r\n", 1, Problem::BulkOverLimit { limit: LIMITS.bulk_bytes_max }),
        (b"*65\r\n", 1, Problem::ElementsOverLimit { limit: LIMITS.elements_max }),
        (b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n", 16, Problem::DepthOverLimit { limit: LIMITS.depth_max }),
        (b"+0123456789012345678901234567890123", limit + 1, Problem::LineOverLimit { limit }),
    ];
    for (bytes, at, problem) in cases {
        let expected = (vec![], Some(DecodeError { at, problem }));
        assert_eq!(read(bytes, &[]), expected, "{}", bytes.escape_ascii());
    }
}

#[test]
fn elements_of_all_aggregates_count_together() {
    let mut bytes = b"*2\r\n".to_vec();
    bytes.extend_from_slice(b"*40\r\n");
    (0..40).for_each(|_| bytes.extend_from_slice(b":1\r\n"));
    let at = bytes.len() + 1;
    bytes.extend_from_slice(b"*40\r\n");
    let problem = Problem::ElementsOverLimit { limit: 64 };
    assert_eq!(read(&bytes, &[]).1, Some(DecodeError { at, problem }));
}

#[test]
fn many_attributes_before_one_value_are_no_recursion() {
    let limits = Limits { elements_max: 1 << 20, ..LIMITS };
    let mut bytes = b"|0\r\n".repeat(1 << 19);
    bytes.extend_from_slice(b":1\r\n");
    let value = Value::parse(&bytes, &limits).expect("it is within the limits");
    assert_eq!(value, Value::Attributed { attributes: vec![], value: Box::new(Value::Integer(1)) });
}

#[test]
fn value_and_more_is_not_one_value() {
    let error = Value::parse(b"+OK\r\n+OK\r\n", &LIMITS).expect_err("these are two");
    assert_eq!(error, DecodeError { at: 5, problem: Problem::NotWhole });
    let error = Value::parse(b"+OK\r", &LIMITS).expect_err("this is none");
    assert_eq!(error, DecodeError { at: 4, problem: Problem::NotWhole });
}

fn text() -> impl Strategy<Value = &'static [u8]> {
    prop_oneof![Just(&b""[..]), Just(&b"OK"[..]), Just(&b"ERR a b"[..]), Just(&b"$3\0\xff"[..])]
}

fn bytes() -> impl Strategy<Value = &'static [u8]> {
    prop_oneof![text(), Just(&b"\r\n"[..]), Just(&b"+OK\r\n"[..])]
}

fn scalar() -> impl Strategy<Value = Value<'static>> {
    prop_oneof![
        text().prop_map(Value::Simple),
        text().prop_map(Value::Error),
        any::<i64>().prop_map(Value::Integer),
        bytes().prop_map(Value::Bulk),
        Just(Value::NullBulk),
        Just(Value::NullArray),
        Just(Value::Null),
        any::<bool>().prop_map(Value::Boolean),
        any::<f32>()
            .prop_filter("nan is not equal to itself", |number| !number.is_nan())
            .prop_map(|number| Value::Double(number.into())),
        Just(Value::BigNumber(b"+12345678901234567890123")),
        bytes().prop_map(Value::BulkError),
        bytes().prop_map(|text| Value::Verbatim { format: *b"mkd", text }),
    ]
}

fn value() -> impl Strategy<Value = Value<'static>> {
    let pairs = |value: BoxedStrategy<Value<'static>>| prop::collection::vec((value.clone(), value), 0..3);
    scalar().prop_recursive(2, 12, 3, move |inner| {
        let inner = inner.boxed();
        let elements = prop::collection::vec(inner.clone(), 0..3);
        prop_oneof![
            elements.clone().prop_map(Value::Array),
            elements.clone().prop_map(Value::Set),
            elements.prop_map(Value::Push),
            pairs(inner.clone()).prop_map(Value::Map),
            (pairs(inner), scalar())
                .prop_map(|(attributes, value)| Value::Attributed { attributes, value: Box::new(value) }),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(values in prop::collection::vec(value(), 1..4)) {
        let mut bytes = Vec::new();
        values.iter().for_each(|value| value.encode(&mut bytes));
        prop_assert_eq!(read(&bytes, &[]), (values, None));
    }

    #[test]
    fn pieces_say_the_same_as_the_whole(
        values in prop::collection::vec(value(), 1..4),
        broken in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let mut bytes = Vec::new();
        values.iter().for_each(|value| value.encode(&mut bytes));
        if let Some((at, byte)) = broken {
            *at.get_mut(&mut bytes) = byte;
        }
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        cuts.sort_unstable();
        let whole = read(&bytes, &[]);
        prop_assert_eq!(&read(&bytes, &cuts), &whole);
        let each: Vec<usize> = (1..bytes.len()).collect();
        prop_assert_eq!(&read(&bytes, &each), &whole);
    }
}
