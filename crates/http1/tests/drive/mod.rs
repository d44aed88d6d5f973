//! Drives the codec as a connection loop does, with the bytes arriving in any pieces, and records its results. Shared
//! by the tests and the fuzz targets.

use http1::{BodyDecoder, BodyError, Decoded, EMPTY_LINE, Head, HeadScanner, Limits, RequestError};

/// A result of the codec. Adjacent data is merged into one event, so that splits make no difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    Head(String),
    Data(Vec<u8>),
    Trailer(String, Vec<u8>),
    End,
    HeadRefused(RequestError),
    BodyRefused(BodyError),
}

/// Returns the events of one connection whose bytes arrive in pieces that end at `cuts` (ascending) and at the end.
pub(crate) fn events(bytes: &[u8], cuts: &[usize], limits: &Limits) -> Vec<Event> {
    let mut connection = Connection::new(limits);
    for &cut in cuts.iter().filter(|&&cut| cut < bytes.len()) {
        connection.receive(&bytes[..cut]);
    }
    connection.receive(bytes);
    connection.events
}

/// Formats all parts of a head.
fn summary(head: &Head<'_, '_>) -> String {
    let fields = head.fields.iter().map(|(name, value)| format!("{name}={}", value.escape_ascii()));
    format!(
        "{} {:?} {:?} {} {} {:?} {:?} {:?} upgrade={:?} continue={} trailers={} bytes={} [{}]",
        head.method,
        head.form,
        head.scheme,
        head.authority.as_str(),
        head.path_and_query,
        head.version,
        head.framing,
        head.persistence,
        head.upgrade.map(|value| value.escape_ascii().to_string()),
        head.expects_continue,
        head.accepts_trailers,
        head.bytes,
        fields.collect::<Vec<_>>().join("|"),
    )
}

struct Connection<'a> {
    limits: &'a Limits,
    scanner: HeadScanner,
    body: Option<BodyDecoder>,
    consumed: usize,
    refused: bool,
    events: Vec<Event>,
}

impl<'a> Connection<'a> {
    fn new(limits: &'a Limits) -> Self {
        let scanner = HeadScanner::default();
        Self { limits, scanner, body: None, consumed: 0, refused: false, events: Vec::new() }
    }

    /// Processes all bytes that have arrived so far.
    fn receive(&mut self, bytes: &[u8]) {
        while !self.refused {
            let rest = &bytes[self.consumed..];
            let goes_on = match self.body.take() {
                None => self.head(rest),
                Some(body) => self.body(body, rest),
            };
            if !goes_on {
                return;
            }
        }
    }

    fn head(&mut self, rest: &[u8]) -> bool {
        let mut lines = [EMPTY_LINE; 100];
        match self.scanner.parse(rest, self.limits, &mut lines) {
            Ok(None) => return false,
            Ok(Some(head)) => {
                self.consumed += head.bytes;
                self.events.push(Event::Head(summary(&head)));
                self.body = Some(BodyDecoder::new(head.framing, self.limits));
                self.scanner = HeadScanner::default();
            }
            Err(error) => self.refuse(Event::HeadRefused(error)),
        }
        true
    }

    fn body(&mut self, mut body: BodyDecoder, rest: &[u8]) -> bool {
        let decoded = match body.decode(rest) {
            Ok(decoded) => decoded,
            Err(error) => {
                assert_eq!(body.decode(rest), Err(error), "a refused body stays refused");
                self.refuse(Event::BodyRefused(error));
                return true;
            }
        };
        assert!(decoded.consumed() <= rest.len());
        self.consumed += decoded.consumed();
        match decoded {
            Decoded::Data(range) => self.data(&rest[range]),
            Decoded::NeedMore { consumed } => {
                assert_eq!(consumed, rest.len());
                self.body = Some(body);
                return false;
            }
            Decoded::End { .. } => {
                let trailers = body.trailers().map(|(name, value)| Event::Trailer(name.into(), value.into()));
                self.events.extend(trailers);
                self.events.push(Event::End);
                return true;
            }
        }
        self.body = Some(body);
        true
    }

    fn data(&mut self, data: &[u8]) {
        assert!(!data.is_empty());
        match self.events.last_mut() {
            Some(Event::Data(before)) => before.extend_from_slice(data),
            _ => self.events.push(Event::Data(data.to_vec())),
        }
    }

    fn refuse(&mut self, event: Event) {
        self.events.push(event);
        self.refused = true;
    }
}
