//! Parses any bytes as requests in RESP and in the 0x1F text protocol. The result for RESP is the same for every split
//! of the bytes, even if arguments are kept separately while they arrive. The first four bytes are the lengths of the
//! pieces, repeated.

#![no_main]

use libfuzzer_sys::fuzz_target;
use resp::separator::{self, Request};
use resp::{Begun, DecodeError, Limits, RequestScanner};

const LIMITS: Limits = Limits { depth_max: 1, elements_max: 64, bulk_bytes_max: 512, line_bytes_max: 128 };

fuzz_target!(|input: &[u8]| {
    let Some((pieces, bytes)) = input.split_first_chunk::<4>() else {
        return;
    };
    let ends = pieces.iter().cycle().scan(0, |end, &piece| {
        *end += usize::from(piece).max(1);
        (*end < bytes.len()).then_some(*end)
    });
    let whole = requests(bytes, std::iter::empty());
    assert_eq!(requests(bytes, ends.clone()), whole);
    assert_eq!(Apart::default().requests(bytes, ends), whole);
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

/// Parses requests, and keeps each incomplete argument in a separate buffer.
struct Apart {
    scanner: RequestScanner,
    unread: Vec<u8>,
    argument: Option<(Begun, Vec<u8>)>,
    found: Vec<Vec<Vec<u8>>>,
}

impl Default for Apart {
    fn default() -> Self {
        let (scanner, unread, found) = (RequestScanner::new(LIMITS), Vec::new(), Vec::new());
        Self { scanner, unread, argument: None, found }
    }
}

impl Apart {
    fn requests(mut self, bytes: &[u8], cuts: impl Iterator<Item = usize>) -> Requests {
        let mut at = 0;
        for cut in cuts.chain([bytes.len()]) {
            if let Err(error) = self.hear(&bytes[at..cut]) {
                return (self.found, Some(error));
            }
            at = cut;
        }
        (self.found, None)
    }

    fn hear(&mut self, mut piece: &[u8]) -> Result<(), DecodeError> {
        if let Some((begun, argument)) = &mut self.argument {
            let (own, rest) = piece.split_at(piece.len().min(begun.length - argument.len()));
            argument.extend_from_slice(own);
            piece = rest;
            if argument.len() < begun.length {
                return Ok(());
            }
        }
        self.unread.extend_from_slice(piece);
        while !self.unread.is_empty() && self.take_request()? {}
        Ok(())
    }

    /// Removes the first complete request from the input; returns whether there was one.
    fn take_request(&mut self) -> Result<bool, DecodeError> {
        let apart = self.argument.as_ref().map_or(0, |(_, argument)| argument.len());
        match self.scanner.scan(&self.unread) {
            Ok(Some(arguments)) => {
                let arguments = match &self.argument {
                    Some((begun, argument)) => arguments.with(begun.index, argument),
                    None => arguments,
                };
                let bytes = arguments.bytes;
                assert_eq!(arguments.bytes_everywhere(), bytes + apart);
                self.found.push(arguments.iter().map(<[u8]>::to_vec).collect());
                self.unread.drain(..bytes);
                self.argument = None;
                Ok(true)
            }
            Ok(None) => {
                self.set_apart();
                Ok(false)
            }
            // Position in the request: the bytes in the separate buffer precede it, because no bytes after them have
            // been parsed yet.
            Err(error) => Err(DecodeError { at: error.at + apart, ..error }),
        }
    }

    fn set_apart(&mut self) {
        let (None, Some(begun)) = (&self.argument, self.scanner.begun()) else { return };
        let end = self.unread.len().min(begun.at + begun.length);
        self.scanner.detach();
        self.argument = Some((begun, self.unread.drain(begun.at..end).collect()));
    }
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
