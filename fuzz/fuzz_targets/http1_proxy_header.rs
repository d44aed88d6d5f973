//! Parses any bytes as a PROXY header. The result doesn't depend on the bytes after the header, or
//! on the pieces in which it arrives.

#![no_main]

use http1::proxy_protocol::{V2_BYTES_MAX, parse_proxy_header};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let whole = parse_proxy_header(bytes);
    let first =
        (0..=bytes.len()).map(|end| parse_proxy_header(&bytes[..end])).find(|outcome| *outcome != Ok(None));
    assert_eq!(first.unwrap_or(Ok(None)), whole);
    if let Ok(Some(header)) = whole {
        assert!(header.bytes <= bytes.len().min(V2_BYTES_MAX));
        assert_eq!(parse_proxy_header(&bytes[..header.bytes]), whole);
    }
});
