//! The grammar of hosts.

use http1::Authority;

/// A text, and the expected host, port, and whether the host is an address.
type Row<'a> = (&'a str, Option<(&'a str, Option<u16>, bool)>);

//= RFC 9110 section 7.2: Host = uri-host [ ":" port ]
//= RFC 3986 section 3.2.2: host
#[test]
fn grammar() {
    let rows: &[Row<'_>] = &[
        ("example.com", Some(("example.com", None, false))),
        ("Example.COM:8080", Some(("Example.COM", Some(8080), false))),
        ("a_b-c~d.e", Some(("a_b-c~d.e", None, false))),
        ("x:", Some(("x", None, false))),
        ("x:0", Some(("x", Some(0), false))),
        ("x:65535", Some(("x", Some(65535), false))),
        ("x:00080", Some(("x", Some(80), false))),
        ("127.0.0.1:80", Some(("127.0.0.1", Some(80), true))),
        ("256.0.0.1", Some(("256.0.0.1", None, false))),
        ("[::1]", Some(("[::1]", None, true))),
        ("[2001:db8::1]:443", Some(("[2001:db8::1]", Some(443), true))),
        ("[::ffff:1.2.3.4]", Some(("[::ffff:1.2.3.4]", None, true))),
        ("", None),
        (":80", None),
        ("x:65536", None),
        ("x:000080", None),
        ("x:+80", None),
        ("x:80:80", None),
        ("::1", None),
        ("[::1", None),
        ("[::1]x", None),
        ("[::1]]", None),
        ("[]", None),
        ("[127.0.0.1]", None),
        ("[fe80::1%25eth0]", None),
        ("[v1.a]", None),
        ("user@x", None),
        ("user:pass@x", None),
        ("x/y", None),
        ("x?y", None),
        ("x#y", None),
        ("x y", None),
        ("x,y", None),
        ("x;y", None),
        ("x%41", None),
        ("x\\y", None),
        ("x\0", None),
        ("\u{e9}", None),
    ];
    for &(text, expected) in rows {
        let parsed = Authority::parse(text.as_bytes());
        assert!(parsed.is_none_or(|authority| authority.as_str() == text));
        let parsed = parsed.map(|authority| (authority.host(), authority.port(), authority.ip().is_some()));
        assert_eq!(parsed, expected, "{text:?}");
    }
    assert!(Authority::parse("a".repeat(255).as_bytes()).is_some());
    assert!(Authority::parse("a".repeat(256).as_bytes()).is_none());
}

//= RFC 9110 section 4.2.3: http(s) normalization and comparison
#[test]
fn same_server() {
    let rows = [
        ("x", "X", Some(80), true),
        ("x", "x:80", Some(80), true),
        ("x:80", "x:", Some(80), true),
        ("x", "x:80", Some(443), false),
        ("x", "x:80", None, false),
        ("x:1", "x:2", Some(80), false),
        ("x", "y", Some(80), false),
        ("x", "x.", Some(80), false),
    ];
    for (one, other, default_port, expected) in rows {
        let parse = |text: &'static str| Authority::parse(text.as_bytes()).unwrap();
        assert_eq!(parse(one).same_server(&parse(other), default_port), expected, "{one} {other}");
        assert_eq!(parse(other).same_server(&parse(one), default_port), expected, "{other} {one}");
    }
}
