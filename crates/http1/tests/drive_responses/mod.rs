//! Parses responses as a client does, with the bytes arriving in any pieces, and records the results of the codec.
//! Shared by the tests and the fuzz targets.

use http1::{
    Asked, BodyDecoder, BodyError, Decoded, Input, Limits, LineSpace, Persistence, ResponseError,
    ResponseFraming, ResponseHead, ResponseReader, TransferCoding,
};

/// A result of the codec. Adjacent data is merged into one event, so that splits make no difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    Head(String),
    Data(Vec<u8>),
    Trailer(String, Vec<u8>),
    End,
    /// The connection ended too early.
    CutOff,
    HeadRefused(ResponseError),
    BodyRefused(BodyError),
}

/// Returns the events of one connection whose bytes arrive in pieces that end at `cuts` (ascending) and at the end,
/// where it closes. Parses responses as long as they allow reuse of the connection.
pub(crate) fn events(bytes: &[u8], cuts: &[usize], asked: Asked, limits: &Limits) -> Vec<Event> {
    let mut client = Client::new(asked, limits);
    for &cut in cuts.iter().filter(|&&cut| cut < bytes.len()) {
        client.receive(&bytes[..cut], Input::Open);
    }
    client.receive(bytes, Input::Open);
    client.receive(bytes, Input::Ended);
    client.events
}

/// Formats all parts of a head.
fn summary(head: &ResponseHead<'_, '_>) -> String {
    let fields = head.lines().map(|(name, value)| format!("{name}={}", value.escape_ascii()));
    format!(
        "{} {:?} {:?} {:?} {:?} {:?} bytes={} [{}]",
        head.status,
        head.reason,
        head.version,
        head.framing,
        head.transfer_coding,
        head.persistence,
        head.bytes,
        fields.collect::<Vec<_>>().join("|"),
    )
}

enum Stage {
    Head(ResponseReader),
    Body(BodyDecoder, Persistence),
    UntilClose,
    Over,
}

struct Client<'a> {
    asked: Asked,
    limits: &'a Limits,
    stage: Stage,
    consumed: usize,
    events: Vec<Event>,
}

impl<'a> Client<'a> {
    fn new(asked: Asked, limits: &'a Limits) -> Self {
        let stage = Stage::Head(ResponseReader::default());
        Self { asked, limits, stage, consumed: 0, events: Vec::new() }
    }

    /// Processes all bytes that have arrived so far.
    fn receive(&mut self, bytes: &[u8], input: Input) {
        loop {
            let rest = &bytes[self.consumed..];
            let goes_on = match std::mem::replace(&mut self.stage, Stage::Over) {
                Stage::Head(reader) => self.head(reader, rest, input),
                Stage::Body(body, persistence) => self.body(body, persistence, rest, input),
                Stage::UntilClose => self.until_close(rest, input),
                Stage::Over => return,
            };
            if !goes_on {
                return;
            }
        }
    }

    fn head(&mut self, mut reader: ResponseReader, rest: &[u8], input: Input) -> bool {
        let mut space = LineSpace::default();
        match reader.read(rest, input, self.asked, self.limits, &mut space) {
            Ok(None) if input == Input::Ended => {
                self.events.extend((!rest.is_empty()).then_some(Event::CutOff));
                return false;
            }
            Ok(None) => {
                self.stage = Stage::Head(reader);
                return false;
            }
            Ok(Some(head)) => {
                assert!(head.bytes <= rest.len());
                self.consumed += head.bytes;
                self.events.push(Event::Head(summary(&head)));
                self.stage = self.behind(&head);
            }
            Err(error) => self.events.push(Event::HeadRefused(error)),
        }
        true
    }

    fn behind(&self, head: &ResponseHead<'_, '_>) -> Stage {
        if head.status < 200 {
            assert_eq!(head.framing, ResponseFraming::None);
            return Stage::Head(ResponseReader::default());
        }
        let is_clear = matches!(head.transfer_coding, TransferCoding::None | TransferCoding::Chunked);
        let persistence = if is_clear { head.persistence } else { Persistence::Close };
        match BodyDecoder::of_response(head.framing, self.limits) {
            Some(body) => Stage::Body(body, persistence),
            None => Stage::UntilClose,
        }
    }

    fn body(&mut self, mut body: BodyDecoder, persistence: Persistence, rest: &[u8], input: Input) -> bool {
        let decoded = match body.decode(rest) {
            Ok(decoded) => decoded,
            Err(error) => {
                self.events.push(Event::BodyRefused(error));
                return false;
            }
        };
        assert!(decoded.consumed() <= rest.len());
        self.consumed += decoded.consumed();
        match decoded {
            Decoded::Data(range) => self.data(&rest[range]),
            Decoded::NeedMore { .. } if input == Input::Ended => {
                self.events.push(Event::CutOff);
                return false;
            }
            Decoded::NeedMore { .. } => {
                self.stage = Stage::Body(body, persistence);
                return false;
            }
            Decoded::End { .. } => {
                let trailers = body.trailers().map(|(name, value)| Event::Trailer(name.into(), value.into()));
                self.events.extend(trailers);
                self.events.push(Event::End);
                if persistence == Persistence::KeepAlive {
                    self.stage = Stage::Head(ResponseReader::default());
                }
                return true;
            }
        }
        self.stage = Stage::Body(body, persistence);
        true
    }

    fn until_close(&mut self, rest: &[u8], input: Input) -> bool {
        self.consumed += rest.len();
        if !rest.is_empty() {
            self.data(rest);
        }
        match input {
            Input::Open => self.stage = Stage::UntilClose,
            Input::Ended => self.events.push(Event::End),
        }
        false
    }

    fn data(&mut self, data: &[u8]) {
        assert!(!data.is_empty());
        match self.events.last_mut() {
            Some(Event::Data(before)) => before.extend_from_slice(data),
            _ => self.events.push(Event::Data(data.to_vec())),
        }
    }
}
