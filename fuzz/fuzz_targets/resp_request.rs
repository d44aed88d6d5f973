//! Any bytes as requests, of RESP and of the 0x1F text protocol. RESP says the same however the bytes are split. The
//! first four bytes are the lengths of the pieces, again and again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use resp::separator::{self, Request};
use resp::{DecodeError, Limits, RequestScanner};

const LIMITS: Limits = Limits { depth_max: 1, elements_max: 64, bulk_bytes_max: 512, line_bytes_max: 128 };

fuzz_target!(|input: &[u8]| {
    let Some((pieces, bytes)) = input.split_first_chunk::<4>() else {
        return;
    };
    let ends = pieces.iter().cycle().scan(0, |end, &piece| {
        *end += usize::from(piece).max(1);
        (*end < bytes.len()).then_some(*end)
    });
    assert_eq!(requests(bytes, ends), requests(bytes, std::iter::empty()));
    check_separator(bytes);
});

type Requests = (Vec<Vec<Vec<u8>>>, Option<DecodeError>);

fn requests(bytes: &[u8], cuts: impl Iterator<Item = usize>) -> Requests {
    let mut scanner = RequestScanner::new(LIMITS);
    let (mut requests, mut begin) = (Vec::new(), 0);
    for cut in cuts.chain([bytes.len()]) {
        while begin < cut {
            match scanner.scan(&bytes[begin..cut]) {
                Ok(None) => break,
                Ok(Some(arguments)) => {
                    requests.push(arguments.iter().map(<[u8]>::to_vec).collect());
                    begin += arguments.bytes;
                }
                Err(error) => return (requests, Some(error)),
            }
        }
    }
    (requests, None)
}

fn check_separator(mut bytes: &[u8]) {
    while let Some(length) = separator::message_length(bytes, 0) {
        if let Ok(request) = Request::parse(&bytes[..length]) {
            let mut written = Vec::new();
            if request.encode(&mut written).is_ok() {
                assert_eq!(Request::parse(&written[..written.len() - 1]), Ok(request));
            }
        }
        bytes = &bytes[length + 1..];
    }
}
