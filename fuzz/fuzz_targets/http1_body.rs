//! Decodes any bytes as a chunked body. An accepted body round-trips: encoded again, it decodes to
//! the same body.

#![no_main]

use core::num::NonZeroU64;

use http1::encode::{CHUNK_END, write_chunk_head, write_last_chunk};
use http1::{BodyDecoder, Decoded, Framing, Limits};
use libfuzzer_sys::fuzz_target;

type Trailers = Vec<(String, Vec<u8>)>;

struct Body {
    chunks: Vec<Vec<u8>>,
    trailers: Trailers,
    consumed: usize,
}

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits { chunk_extension_bytes_max: 64, trailer_bytes_max: 256, ..Limits::default() };
    let Some(body) = read(bytes, &limits) else {
        return;
    };
    assert!(body.consumed <= bytes.len());
    assert!(bytes[..body.consumed].ends_with(b"\r\n"));
    let written = write(&body);
    let again = read(&written, &Limits { trailer_bytes_max: usize::MAX, ..limits }).expect("we wrote it");
    assert_eq!(again.chunks, body.chunks);
    assert_eq!(again.trailers, body.trailers);
    assert_eq!(again.consumed, written.len());
});

/// Returns the body, or `None` if it is refused or incomplete.
fn read(bytes: &[u8], limits: &Limits) -> Option<Body> {
    let mut decoder = BodyDecoder::new(Framing::Chunked, limits);
    let mut chunks = Vec::new();
    let mut consumed = 0;
    loop {
        let rest = &bytes[consumed..];
        let decoded = decoder.decode(rest).ok()?;
        consumed += decoded.consumed();
        match decoded {
            Decoded::Data(range) => chunks.push(rest[range].to_vec()),
            Decoded::NeedMore { .. } => return None,
            Decoded::End { .. } => break,
        }
    }
    let trailers = decoder.trailers().map(|(name, value)| (name.to_owned(), value.to_vec())).collect();
    Some(Body { chunks, trailers, consumed })
}

fn write(body: &Body) -> Vec<u8> {
    let mut bytes = Vec::new();
    for chunk in &body.chunks {
        let length = NonZeroU64::new(chunk.len() as u64).expect("data is never empty");
        bytes.extend_from_slice(write_chunk_head(length, &mut [0; 18]));
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(CHUNK_END);
    }
    let trailers = body.trailers.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
    write_last_chunk(&mut bytes, trailers).expect("the trailers were read from a body");
    bytes
}
