//! The encoder: its output, its refusals, and that the decoder reads the output back.

mod drive;

use core::num::NonZeroU64;

use drive::{Event, events};
use http1::encode::{
    CHUNK_END, EncodeError, end_head, write_chunk_head, write_field, write_field_number, write_interim,
    write_last_chunk, write_status_line,
};
use http1::{FieldLine, Limits, reason_phrase};
use proptest::collection::vec;
use proptest::prelude::*;

/// Checks the output, or that there is none if the writer refuses.
fn check(write: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>, expected: Result<&str, EncodeError>) {
    let mut out = b"before;".to_vec();
    let result = write(&mut out);
    let written = out.strip_prefix(b"before;").unwrap().escape_ascii().to_string();
    assert_eq!(result.map(|()| written.as_str()), expected, "wrote {written}");
    assert!(result.is_ok() || written.is_empty(), "wrote {written} and failed");
}

//= RFC 9112 section 4: status-line = HTTP-version SP status-code SP [ reason-phrase ]
//= RFC 9110 section 2.5: a server sends its own minor version
#[test]
fn status_lines() {
    check(|out| write_status_line(out, 200, None), Ok(r"HTTP/1.1 200 OK\r\n"));
    check(|out| write_status_line(out, 299, None), Ok(r"HTTP/1.1 299 \r\n"));
    check(|out| write_status_line(out, 200, Some(b"Fine \xff")), Ok(r"HTTP/1.1 200 Fine \xff\r\n"));
    check(|out| write_status_line(out, 200, Some(b"")), Ok(r"HTTP/1.1 200 \r\n"));
    check(|out| write_status_line(out, 99, None), Err(EncodeError::InvalidStatus));
    check(|out| write_status_line(out, 1000, None), Err(EncodeError::InvalidStatus));
    check(|out| write_status_line(out, 200, Some(b"a\r\nb: c")), Err(EncodeError::InvalidReason));
}

//= RFC 9110 section 5.5: field values
#[test]
fn fields() {
    check(|out| write_field(out, "A", b"b c\t\x80"), Ok(r"A: b c\t\x80\r\n"));
    check(|out| write_field(out, "A", b""), Ok(r"A: \r\n"));
    let number = |out: &mut Vec<u8>| {
        write_field_number(out, "Age", u64::MAX);
        Ok(())
    };
    check(number, Ok(r"Age: 18446744073709551615\r\n"));
    check(|out| write_field(out, "A", b"b\r\nC: d"), Err(EncodeError::InvalidFieldValue));
    check(|out| write_field(out, "A", b"b\nC: d"), Err(EncodeError::InvalidFieldValue));
    check(|out| write_field(out, "A", b"b\rc"), Err(EncodeError::InvalidFieldValue));
    check(|out| write_field(out, "A", b"\0"), Err(EncodeError::InvalidFieldValue));
    check(|out| write_field(out, "", b"b"), Err(EncodeError::InvalidFieldName));
    check(|out| write_field(out, "A: b\r\nC", b"d"), Err(EncodeError::InvalidFieldName));
    check(|out| write_field(out, "\u{e9}", b"d"), Err(EncodeError::InvalidFieldName));
}

//= RFC 9110 section 15.2: a 1xx response ends with its header section
#[test]
fn interim_responses() {
    let link: FieldLine<'_> = ("Link", b"</a>");
    check(|out| write_interim(out, 100, []), Ok(r"HTTP/1.1 100 Continue\r\n\r\n"));
    check(|out| write_interim(out, 103, [link]), Ok(r"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"));
    check(|out| write_interim(out, 101, []), Err(EncodeError::InvalidStatus));
    check(|out| write_interim(out, 200, []), Err(EncodeError::InvalidStatus));
    check(|out| write_interim(out, 103, [link, ("a", b"\n")]), Err(EncodeError::InvalidFieldValue));
}

//= RFC 9112 section 7.1.2: chunked trailer section
#[test]
fn last_chunks() {
    check(|out| write_last_chunk(out, []), Ok(r"0\r\n\r\n"));
    check(|out| write_last_chunk(out, [("A", &b"b"[..])]), Ok(r"0\r\nA: b\r\n\r\n"));
    check(|out| write_last_chunk(out, [("Content-Length", &b"1"[..])]), Ok(r"0\r\n\r\n"));
    check(|out| write_last_chunk(out, [("A", &b"b\r\n\r\n"[..])]), Err(EncodeError::InvalidFieldValue));
}

#[test]
fn chunk_heads() {
    for (length, expected) in
        [(1, "1\r\n"), (10, "a\r\n"), (0x1000, "1000\r\n"), (u64::MAX, "ffffffffffffffff\r\n")]
    {
        let head = &mut [0; 18];
        assert_eq!(write_chunk_head(NonZeroU64::new(length).unwrap(), head), expected.as_bytes());
    }
}

#[test]
fn the_table_of_phrases_is_sorted() {
    let known = (0..1000).filter(|&status| !reason_phrase(status).is_empty()).count();
    assert_eq!((known, reason_phrase(431)), (60, "Request Header Fields Too Large"));
}

proptest! {
    #[test]
    fn chunked_bodies_come_back(
        chunks in vec(vec(any::<u8>(), 1..40), 0..6),
        trailers in vec(("[Xx]-[a-z]{1,8}", "[!-~]([ -~]{0,8}[!-~])?"), 0..4),
    ) {
        let mut bytes = b"POST / HTTP/1.1\r\n".to_vec();
        write_field(&mut bytes, "Host", b"x").unwrap();
        write_field(&mut bytes, "Transfer-Encoding", b"chunked").unwrap();
        end_head(&mut bytes);
        for chunk in &chunks {
            let length = NonZeroU64::new(chunk.len() as u64).unwrap();
            bytes.extend_from_slice(write_chunk_head(length, &mut [0; 18]));
            bytes.extend_from_slice(chunk);
            bytes.extend_from_slice(CHUNK_END);
        }
        write_last_chunk(&mut bytes, trailers.iter().map(|(name, value)| (&**name, value.as_bytes()))).unwrap();

        let mut expected = Vec::new();
        if !chunks.is_empty() {
            expected.push(Event::Data(chunks.concat()));
        }
        expected.extend(trailers.into_iter().map(|(name, value)| Event::Trailer(name, value.into_bytes())));
        expected.push(Event::End);
        prop_assert_eq!(&events(&bytes, &[], &Limits::default())[1..], expected);
    }

    #[test]
    fn a_written_field_stays_one_field(name in ".{0,8}", value in vec(any::<u8>(), 0..24)) {
        let mut bytes = b"GET / HTTP/1.0\r\n".to_vec();
        if write_field(&mut bytes, &name, &value).is_err() {
            prop_assert_eq!(bytes, b"GET / HTTP/1.0\r\n");
            return Ok(());
        }
        end_head(&mut bytes);
        let mut lines = [http1::EMPTY_LINE; 4];
        if let Some(head) = http1::parse_head(&bytes, &Limits::default(), &mut lines).ok().flatten() {
            prop_assert_eq!(head.fields, [(&*name, value.trim_ascii())]);
            prop_assert_eq!(head.bytes, bytes.len());
        }
    }
}
