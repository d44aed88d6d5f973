use proptest::prelude::*;

use super::*;

fn compressible() -> Compressible {
    let content_types = ContentTypes::parse(["text/*", "application/json", "*/*+xml"]).unwrap();
    Compressible { codings: Coding::ALL.to_vec(), content_types, bytes_min: 1000 }
}

#[test]
fn a_response_may_be_encoded() {
    let check =
        |status: u16, lines: &[(&str, &str)], bytes: Option<u64>, expected: Result<(), NotEncoded>| {
            let lines = lines.iter().map(|(name, value)| (*name, value.as_bytes()));
            assert_eq!(
                compressible().may_encode(status, lines.clone(), bytes, &Rules::default()),
                expected,
                "{status} {bytes:?} {lines:?}"
            );
        };
    const HTML: (&str, &str) = ("Content-Type", "text/html");
    let long = Some(1000);
    for status in [200, 201, 203, 301, 404, 410, 500] {
        check(status, &[HTML], long, Ok(()));
    }
    for status in [101, 103, 204, 205, 206, 304] {
        check(status, &[HTML], long, Err(NotEncoded::Status));
    }
    check(200, &[HTML], None, Ok(()));
    check(200, &[HTML], Some(999), Err(NotEncoded::Small));
    check(200, &[], long, Err(NotEncoded::ContentType));
    check(200, &[HTML, HTML], long, Err(NotEncoded::ContentType));
    for (content_type, expected) in [
        ("TEXT/HTML;charset=utf-8", Ok(())),
        ("text/css ; a=b", Ok(())),
        ("application/json", Ok(())),
        ("application/jsonx", Err(NotEncoded::ContentType)),
        ("image/svg+xml", Ok(())),
        ("image/png", Err(NotEncoded::ContentType)),
        ("text/event-stream", Err(NotEncoded::ContentType)),
        ("", Err(NotEncoded::ContentType)),
        ("texts/html", Err(NotEncoded::ContentType)),
    ] {
        check(200, &[("content-type", content_type)], long, expected);
    }
    for (line, expected) in [
        (("Content-Encoding", "identity"), Ok(())),
        (("Content-Encoding", ""), Ok(())),
        (("Content-Encoding", "GZIP"), Err(NotEncoded::Encoded)),
        (("content-encoding", "aws-chunked"), Err(NotEncoded::Encoded)),
        (("content-encoding", "identity, br"), Err(NotEncoded::Encoded)),
        (("Cache-Control", "max-age=1, No-Transform"), Err(NotEncoded::NoTransform)),
        (("Cache-Control", "x=\"no-transform\""), Ok(())),
        (("Content-Range", "bytes 0-1/2"), Err(NotEncoded::Status)),
        (("Content-Digest", "a"), Err(NotEncoded::Digest)),
        (("Repr-Digest", "a"), Err(NotEncoded::Digest)),
        (("Content-MD5", "a"), Err(NotEncoded::Digest)),
        (("Digest", "a"), Err(NotEncoded::Digest)),
        (("Trailer", "X-Sum"), Ok(())),
        (("Trailer", "X-Sum, Content-digest"), Err(NotEncoded::Digest)),
        (("trailer", "Repr-Digest"), Err(NotEncoded::Digest)),
        (("CDN-Cache-Control", "max-age=1, no-transform"), Err(NotEncoded::NoTransform)),
        (("Other-Cache-Control", "no-transform"), Ok(())),
        (("Vary", "Accept"), Ok(())),
    ] {
        check(200, &[HTML, line], long, expected);
    }
}

#[test]
fn a_304_or_a_part_tells_of_the_whole() {
    let check = |lines: &[(&str, &str)], expected: bool| {
        let response = lines.iter().map(|(name, value)| (*name, value.as_bytes()));
        let found = compressible().whole_may_be_encoded(response, &Rules::default());
        assert_eq!(found, expected, "{lines:?}");
    };
    check(&[], true);
    check(&[("Content-Type", "text/html"), ("Content-Range", "bytes 0-1/2")], true);
    check(&[("Content-Type", "image/png"), ("Content-Range", "bytes 0-1/2")], false);
    check(&[("Content-Type", "text/html"), ("Content-Type", "text/html")], false);
    check(&[("Content-Encoding", "br")], false);
    check(&[("Cache-Control", "no-transform")], false);
}

#[test]
fn what_credentials_select() {
    let rules = Rules { credential_fields: ["X-User".into()].into(), ..Rules::default() };
    let check = |request: &str, vary: &[&str], keyed: &[&str], expected: bool| {
        let lines: &[FieldLine<'_>] = &[(request, b"a")];
        let facts = RequestFacts::parse("GET", lines).with_credentials_of(lines, &rules);
        let lines = vary.iter().map(|value| value.as_bytes());
        let found = is_stored_for_one(&facts, lines, keyed.iter().copied(), &rules);
        assert_eq!(found, expected, "{request} {vary:?} {keyed:?}");
    };
    check("Cookie", &["Accept", "Origin, cookie"], &[], true);
    check("Authorization", &["Authorization"], &[], true);
    check("X-User", &["x-user"], &[], true);
    check("X-User", &[], &["x-user"], true);
    check("Cookie", &["Accept-Encoding"], &["x-tenant"], false);
    check("X-Other", &["Cookie"], &["cookie"], false);
}

#[test]
fn patterns_of_types() {
    for (pattern, name, expected) in [
        ("*/*", "image/png", true),
        ("*/*", "text/event-stream", false),
        ("text/event-stream", "text/event-stream", true),
        ("*/*+JSON", "application/ld+json", true),
        ("*/*+json", "application/json", false),
        ("Image/*", "image/bmp", true),
    ] {
        let types = ContentTypes::parse([pattern]).unwrap();
        assert_eq!(types.have(name.as_bytes()), expected, "{pattern} {name}");
    }
    for wrong in
        ["text", "text/", "/html", "te*/html", "text/h*", "*/html", "*/*json", "text/html; charset=utf-8", ""]
    {
        assert_eq!(ContentTypes::parse(["text/css", wrong]), Err(wrong));
    }
}

/// Checks a value of the field (absent for `None`) against the codings selected from all codings, from gzip and
/// brotli, and from gzip alone.
//= RFC 9110 section 12.5.3: Accept-Encoding
#[test]
fn codings_are_negotiated() {
    let offers: [&[Coding]; 3] = [&Coding::ALL, &[Coding::Gzip, Coding::Brotli], &[Coding::Gzip]];
    let check = |sent: Option<&str>, expected: [&str; 3]| {
        let lines: Vec<FieldLine<'_>> =
            sent.iter().map(|sent| ("Accept-Encoding", sent.as_bytes())).collect();
        let facts = RequestFacts::parse("GET", &lines);
        let found = offers.map(|codings| {
            let offer = Compressible { codings: codings.to_vec(), ..compressible() };
            offer.choose(&facts, &lines).map_or("", Coding::name)
        });
        assert_eq!(found, expected, "{sent:?}");
    };
    check(None, ["", "", ""]);
    check(Some(""), ["", "", ""]);
    check(Some("identity"), ["", "", ""]);
    check(Some("deflate"), ["", "", ""]);
    check(Some("gzip"), ["gzip", "gzip", "gzip"]);
    check(Some("x-gzip"), ["gzip", "gzip", "gzip"]);
    check(Some("GZip"), ["gzip", "gzip", "gzip"]);
    check(Some("gzip, deflate, br, zstd"), ["zstd", "gzip", "gzip"]);
    check(Some("gzip, deflate, br"), ["br", "gzip", "gzip"]);
    check(Some("gzip;q=0.8, br;q=0.9"), ["br", "br", "gzip"]);
    check(Some("gzip;q=0"), ["", "", ""]);
    check(Some("gzip;q=0.001"), ["gzip", "gzip", "gzip"]);
    check(Some("*"), ["zstd", "gzip", "gzip"]);
    check(Some("*;q=0"), ["", "", ""]);
    check(Some("*, gzip;q=0"), ["zstd", "br", ""]);
    check(Some("br, *;q=0"), ["br", "br", ""]);
    check(Some("*;q=0.5, zstd;q=0.1"), ["br", "gzip", "gzip"]);
    check(Some("identity;q=0"), ["", "", ""]);
    check(Some("identity;q=0, gzip;q=0.1"), ["gzip", "gzip", "gzip"]);
    check(Some("identity, gzip;q=0.5"), ["", "", ""]);
    check(Some("identity;q=0.5, gzip;q=0.5"), ["gzip", "gzip", "gzip"]);
    check(Some("identity, *;q=0.5"), ["", "", ""]);
    check(Some("gzip;level=9"), ["", "", ""]);
    check(Some("gzip;q=2"), ["", "", ""]);
    check(Some("gzip, gzip;q=0"), ["", "", ""]);
}

#[test]
fn a_request_may_want_no_coding() {
    let check = |line: (&str, &str), expected: Result<Coding, NotEncoded>| {
        let lines: [FieldLine<'_>; 2] = [("Accept-Encoding", b"gzip"), (line.0, line.1.as_bytes())];
        assert_eq!(compressible().choose(&RequestFacts::parse("GET", &lines), &lines), expected, "{line:?}");
    };
    check(("Range", "bytes=0-1"), Err(NotEncoded::Range));
    check(("Cache-Control", "no-transform"), Err(NotEncoded::NoTransform));
    check(("Cache-Control", "no-cache"), Ok(Coding::Gzip));
}

#[test]
fn what_is_for_one_client() {
    let check = |request: &[(&str, &str)], response: &[(&str, &str)], expected: bool| {
        let request: Vec<_> = request.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
        let response = response.iter().map(|(name, value)| (*name, value.as_bytes()));
        let facts = RequestFacts::parse("GET", &request);
        assert_eq!(
            is_personal(&facts, response.clone(), &Rules::default()),
            expected,
            "{request:?} {response:?}"
        );
    };
    check(&[], &[("Cache-Control", "no-store")], false);
    check(&[], &[("Cache-Control", "no-store, Private")], true);
    check(&[], &[("cache-control", "private=\"set-cookie\"")], true);
    check(&[], &[("CDN-Cache-Control", "private")], true);
    check(&[], &[("Other-Cache-Control", "private")], false);
    check(&[], &[("Set-Cookie", "a=b")], true);
    check(&[("Cookie", "a=b")], &[], true);
    check(&[("Authorization", "Basic YTpi")], &[], true);
}

//= RFC 9110 section 8.8.3.3: entity tags vary on content coding
#[test]
fn tags_of_forms() {
    let check = |tag: &str, expected: Option<&str>| {
        let found = tag_in(Coding::Gzip, tag.as_bytes()).map(|tag| String::from_utf8(tag).unwrap());
        assert_eq!(found.as_deref(), expected, "{tag}");
    };
    check("\"a\"", Some("W/\"a+gzip\""));
    check("\"\"", Some("W/\"+gzip\""));
    check("\"a+gzip\"", Some("W/\"a+gzip+gzip\""));
    check("W/\"a\"", None);
    check("a", None);
    check("", None);
}

#[test]
fn tags_of_the_origin_are_read_from_them() {
    let check = |lines: &[&str], codings: &[Coding], expected: Option<&str>| {
        let found = with_tags_of_origin(lines.iter().map(|line| line.as_bytes()), codings);
        assert_eq!(found.map(|value| String::from_utf8(value).unwrap()).as_deref(), expected, "{lines:?}");
    };
    let all = &Coding::ALL;
    check(&["W/\"a+gzip\""], all, Some("W/\"a+gzip\", \"a\""));
    check(&["\"a+br\""], all, Some("\"a+br\", \"a\""));
    check(&["W/\"a+gzip\""], &[Coding::Brotli], None);
    check(&["W/\"a\", \"b\"", "W/\"c+zstd\""], all, Some("W/\"a\", \"b\", W/\"c+zstd\", \"c\""));
    check(&["\"a-gzip\", \"gzip\", *"], all, None);
    check(&["*"], all, None);
    check(&[], all, None);
}

#[test]
fn a_client_names_the_form_that_it_has() {
    let check = |line: &str, expected: bool| {
        assert_eq!(names_form([line.as_bytes()].into_iter(), b"W/\"a+gzip\""), expected, "{line}");
    };
    check("W/\"a+gzip\"", true);
    check("\"b\", \"a+gzip\"", true);
    check("\"a\"", false);
    check("*", false);
}

fn accept_encoding() -> impl Strategy<Value = String> {
    let coding =
        prop::sample::select(vec!["gzip", "br", "zstd", "deflate", "identity", "*", "x-gzip", "GZIP"]);
    let member = (coding, prop::option::of(0..=1000u16));
    prop::collection::vec(member, 0..6).prop_map(|members| {
        let text = |(coding, weight): (&str, Option<u16>)| match weight {
            None => coding.to_owned(),
            Some(weight) => format!("{coding};q={}.{:03}", weight / 1000, weight % 1000),
        };
        members.into_iter().map(text).collect::<Vec<_>>().join(", ")
    })
}

fn chosen(value: &[u8]) -> Option<Coding> {
    let lines: [FieldLine<'_>; 1] = [("accept-encoding", value)];
    compressible().choose(&RequestFacts::parse("GET", &lines), &lines).ok()
}

proptest! {
    #[test]
    fn any_bytes_are_read(value in prop::collection::vec(any::<u8>(), 0..80)) {
        chosen(&value);
        with_tags_of_origin([&value[..]].into_iter(), &Coding::ALL);
        tag_in(Coding::Gzip, &value);
    }

    /// A client that gets a coding has accepted it, by name or by `*`, with a weight above zero.
    #[test]
    fn what_is_refused_is_never_chosen(value in accept_encoding()) {
        if let Some(coding) = chosen(value.as_bytes()) {
            let is = |name: &str| name.eq_ignore_ascii_case(coding.name()) || (name == "x-gzip" && coding == Coding::Gzip);
            let weight = |member: &str| member.split_once(";q=").map_or(1.0, |(_, weight)| weight.parse::<f32>().unwrap());
            let members: Vec<(&str, f32)> = value
                .split(", ")
                .map(|member| (member.split(';').next().unwrap(), weight(member)))
                .collect();
            let named = members.iter().find(|(name, _)| is(name));
            let weight = named.or_else(|| members.iter().find(|(name, _)| *name == "*")).map(|(_, weight)| *weight);
            prop_assert!(weight.is_some_and(|weight| weight > 0.0), "{value}: {coding:?}");
        }
    }

    /// The origin's tag can be derived from the tag of each form.
    #[test]
    fn a_tag_comes_back(opaque in "[!#-~]{0,12}") {
        let tag = format!("\"{opaque}\"");
        for coding in Coding::ALL {
            let form = tag_in(coding, tag.as_bytes()).unwrap();
            let value = with_tags_of_origin([&form[..]].into_iter(), &[coding]).unwrap();
            let origin = EntityTag::parse(tag.as_bytes()).unwrap();
            prop_assert!(EntityTags::new(&value).any(|tag| tag.matches_strongly(&origin)));
        }
    }
}
