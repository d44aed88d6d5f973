//! The same bytes give the same events for every split, in random valid and damaged connections.

mod damage;
mod drive;

use damage::damage;
use drive::{Event, events};
use http1::Limits;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

const LIMITS: Limits = Limits {
    head_bytes_max: 220,
    target_bytes_max: 60,
    fields_max: 6,
    chunk_extension_bytes_max: 24,
    trailer_bytes_max: 48,
};

#[derive(Debug, Clone)]
enum Body {
    None,
    Length(Vec<u8>),
    Chunked { chunks: Vec<(Vec<u8>, String)>, trailers: Vec<String> },
}

impl Body {
    fn framing_line(&self) -> String {
        match self {
            Self::None => String::new(),
            Self::Length(data) => format!("Content-Length: {}\r\n", data.len()),
            Self::Chunked { .. } => "Transfer-Encoding: chunked\r\n".into(),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::None => Vec::new(),
            Self::Length(data) => data.clone(),
            Self::Chunked { chunks, trailers } => chunked_bytes(chunks, trailers),
        }
    }

    fn data(&self) -> Vec<u8> {
        match self {
            Self::None => Vec::new(),
            Self::Length(data) => data.clone(),
            Self::Chunked { chunks, .. } => chunks.iter().flat_map(|chunk| chunk.0.clone()).collect(),
        }
    }
}

fn chunked_bytes(chunks: &[(Vec<u8>, String)], trailers: &[String]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (data, extension) in chunks {
        bytes.extend_from_slice(format!("{:x}{extension}\r\n", data.len()).as_bytes());
        bytes.extend_from_slice(data);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n");
    for line in trailers {
        bytes.extend_from_slice(format!("{line}\r\n").as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes
}

fn bodies() -> impl Strategy<Value = Body> {
    let extension =
        prop_oneof![Just(""), Just(";a"), Just("; b=\"c\""), Just(" ;d=e")].prop_map(String::from);
    let chunk = (vec(any::<u8>(), 1..12), extension);
    let trailer = prop_oneof![Just("A: b"), Just("Digest: =?"), Just("Host: x")].prop_map(String::from);
    prop_oneof![
        Just(Body::None),
        vec(any::<u8>(), 0..20).prop_map(Body::Length),
        (vec(chunk, 0..4), vec(trailer, 0..3))
            .prop_map(|(chunks, trailers)| Body::Chunked { chunks, trailers }),
    ]
}

/// Generates a valid request and the data of its body.
fn requests() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let line = prop_oneof!["[A-Z]{1,7} /[a-z/?=&%]{0,20} HTTP/1[.]1", Just("OPTIONS * HTTP/1.1".to_owned())]
        .prop_filter("CONNECT has its own form of target", |line| !line.starts_with("CONNECT "));
    let field =
        prop_oneof![Just("Accept: */*"), Just("Connection: keep-alive"), Just("X:\t\u{e9} "), Just("Y:")];
    let start = prop_oneof![Just(""), Just("\r\n")];
    (start, line, vec(field, 0..4), bodies()).prop_map(|(start, line, fields, body)| {
        let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
        let head = format!("{start}{line}\r\nHost: x\r\n{fields}{}\r\n", body.framing_line());
        ([head.as_bytes(), &body.bytes()].concat(), body.data())
    })
}

fn connections() -> impl Strategy<Value = Vec<(Vec<u8>, Vec<u8>)>> {
    vec(requests(), 1..3)
}

/// Checks every split into two pieces, into single bytes, and at the given cuts.
fn assert_same_under_splits(bytes: &[u8], cuts: &[Index]) -> Result<(), TestCaseError> {
    let expected = events(bytes, &[], &LIMITS);
    for cut in 0..bytes.len() {
        prop_assert_eq!(&events(bytes, &[cut], &LIMITS), &expected, "cut at {}", cut);
    }
    let every: Vec<usize> = (0..bytes.len()).collect();
    prop_assert_eq!(&events(bytes, &every, &LIMITS), &expected, "byte by byte");
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    cuts.sort_unstable();
    prop_assert_eq!(&events(bytes, &cuts, &LIMITS), &expected, "cuts at {:?}", cuts);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn valid_connections(requests in connections(), cuts in vec(any::<Index>(), 0..8)) {
        let bytes: Vec<u8> = requests.iter().flat_map(|request| request.0.clone()).collect();
        let ends = events(&bytes, &[], &LIMITS).iter().filter(|event| **event == Event::End).count();
        prop_assert_eq!(ends, requests.len());
        assert_same_under_splits(&bytes, &cuts)?;
    }

    #[test]
    fn valid_connections_keep_their_data(requests in connections()) {
        let bytes: Vec<u8> = requests.iter().flat_map(|request| request.0.clone()).collect();
        let sent: Vec<u8> = requests.iter().flat_map(|request| request.1.clone()).collect();
        let got: Vec<u8> = events(&bytes, &[], &LIMITS)
            .into_iter()
            .flat_map(|event| if let Event::Data(data) = event { data } else { Vec::new() })
            .collect();
        prop_assert_eq!(got, sent);
    }

    #[test]
    fn damaged_connections(
        requests in connections(),
        damage in damage(),
        cuts in vec(any::<Index>(), 0..8),
    ) {
        let mut bytes: Vec<u8> = requests.iter().flat_map(|request| request.0.clone()).collect();
        damage.apply(&mut bytes);
        assert_same_under_splits(&bytes, &cuts)?;
    }

    #[test]
    fn any_bytes(bytes in vec(any::<u8>(), 0..64), cuts in vec(any::<Index>(), 0..8)) {
        assert_same_under_splits(&bytes, &cuts)?;
    }
}
