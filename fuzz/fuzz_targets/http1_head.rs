//! Parses any bytes as a request head. An accepted head follows the rules and round-trips: written out again,
//! it parses to the same parts.

#![no_main]

use http1::{EMPTY_LINE, Framing, Head, Limits, Version, is_field_value, is_token, parse_head};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits { head_bytes_max: 4096, target_bytes_max: 256, fields_max: 16, ..Limits::default() };
    let mut lines = [EMPTY_LINE; 16];
    let Ok(Some(head)) = parse_head(bytes, &limits, &mut lines) else {
        return;
    };
    check_grammar(&head, &bytes[..head.bytes]);
    check_framing(&head);
    check_rewritten(&head, &limits);
});

fn check_grammar(head: &Head<'_, '_>, bytes: &[u8]) {
    assert!(bytes.ends_with(b"\r\n\r\n"));
    for (index, byte) in bytes.iter().enumerate() {
        match byte {
            b'\r' => assert_eq!(bytes[index + 1], b'\n'),
            b'\n' => assert_eq!(bytes[index - 1], b'\r'),
            _ => {}
        }
    }
    assert!(is_token(head.method.as_bytes()));
    assert!(head.target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#'));
    assert!(head.target.ends_with(head.path_and_query) || ["/", "*"].contains(&head.path_and_query));
    for (name, value) in head.fields {
        assert!(is_token(name.as_bytes()));
        assert!(is_field_value(value));
        assert_eq!(value.trim_ascii(), *value);
    }
}

fn check_framing(head: &Head<'_, '_>) {
    let lengths = head.values("content-length").count();
    let codings: Vec<&[u8]> = head.values("transfer-encoding").collect();
    match head.framing {
        Framing::None => assert!(lengths == 0 && codings.is_empty()),
        Framing::Length(_) => assert!(lengths == 1 && codings.is_empty()),
        Framing::Chunked => {
            assert!(lengths == 0 && codings.len() == 1 && head.version == Version::Http11);
            assert!(codings[0].eq_ignore_ascii_case(b"chunked"));
        }
    }
    let hosts = head.values("host").count();
    assert!(hosts == 1 || (hosts == 0 && head.version == Version::Http10));
}

fn check_rewritten(head: &Head<'_, '_>, limits: &Limits) {
    let version = if head.version == Version::Http10 { "0" } else { "1" };
    let mut bytes = format!("{} {} HTTP/1.{version}\r\n", head.method, head.target).into_bytes();
    for (name, value) in head.fields {
        http1::encode::write_field(&mut bytes, name, value).expect("it was read from a head");
    }
    http1::encode::end_head(&mut bytes);
    let limits = Limits { head_bytes_max: usize::MAX, ..*limits };
    let mut lines = [EMPTY_LINE; 16];
    let again = parse_head(&bytes, &limits, &mut lines).expect("it is still valid").expect("it is whole");
    let of =
        |head: &Head<'_, '_>| format!("{:?}", (head.target, head.authority, head.framing, head.persistence));
    assert_eq!(of(&again), of(head));
    assert_eq!(again.fields, head.fields);
}
