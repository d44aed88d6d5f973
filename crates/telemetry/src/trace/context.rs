//! `traceparent` (W3C Trace Context, section 3.2): the trace of a request, and the span of its sender.

use super::ids::{SpanId, TraceId};

/// The position of a request in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace_id: TraceId,
    /// The span that sent the request.
    pub span_id: SpanId,
    /// The flags of the trace.
    pub flags: TraceFlags,
}

/// The flags of `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceFlags(u8);

impl TraceFlags {
    /// The sender does not record the trace.
    pub const NOT_SAMPLED: Self = Self(0);
    /// The sender records the trace.
    pub const SAMPLED: Self = Self(1);
    /// The defined flags: sampled, and random trace id. Other flags are not passed on.
    const KNOWN: u8 = 0b11;

    /// Returns whether the sender may have recorded the trace.
    pub fn is_sampled(self) -> bool {
        self.0 & Self::SAMPLED.0 != 0
    }

    /// Returns the bits.
    pub fn bits(self) -> u8 {
        self.0
    }
}

/// Length of version `00`: `00-` trace id `-` span id `-` flags.
const BYTES: usize = 55;
/// A version number that the specification forbids.
const NO_VERSION: u8 = 0xff;

impl TraceContext {
    /// Returns the root of a new trace.
    pub fn root(flags: TraceFlags) -> Self {
        Self { trace_id: TraceId::draw(), span_id: SpanId::draw(), flags }
    }

    /// Returns a new span in the same trace.
    pub fn child(&self) -> Self {
        Self { span_id: SpanId::draw(), ..*self }
    }

    /// Parses a `traceparent`; returns `None` if it is invalid. A later version is parsed as far as this
    /// version defines it.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (known, more) = value.split_at_checked(BYTES)?;
        let version = hex::<1>(&known[..2])?[0];
        let is_whole = match version {
            NO_VERSION => false,
            0 => more.is_empty(),
            _ => more.is_empty() || more[0] == b'-',
        };
        let has_dashes = [2, 35, 52].iter().all(|place| known[*place] == b'-');
        if !is_whole || !has_dashes {
            return None;
        }
        Some(Self {
            trace_id: TraceId::from_bytes(hex(&known[3..35])?)?,
            span_id: SpanId::from_bytes(hex(&known[36..52])?)?,
            flags: TraceFlags(hex::<1>(&known[53..])?[0] & TraceFlags::KNOWN),
        })
    }

    /// Returns the value of `traceparent` in version `00`.
    pub fn to_traceparent(&self) -> String {
        format!("00-{}-{}-{:02x}", self.trace_id, self.span_id, self.flags.bits())
    }
}

/// Decodes lower-case hexadecimal digits.
fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    let (pairs, rest) = digits.as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    fn read(value: &str) -> Option<String> {
        TraceContext::parse(value.as_bytes()).map(|context| context.to_traceparent())
    }

    /// The cases of the specification and of its test suite.
    #[test]
    fn what_is_read() {
        let written = |flags: &str| Some(format!("00-{TRACE}-{SPAN}-{flags}"));
        let zero = |digits: usize| "0".repeat(digits);
        let cases = [
            (format!("00-{TRACE}-{SPAN}-01"), written("01")),
            (format!("00-{TRACE}-{SPAN}-00"), written("00")),
            (format!("00-{TRACE}-{SPAN}-03"), written("03")),
            (format!("00-{TRACE}-{SPAN}-ff"), written("03")),
            // A `traceparent` of a later version may be longer.
            (format!("cc-{TRACE}-{SPAN}-01"), written("01")),
            (format!("cc-{TRACE}-{SPAN}-01-what"), written("01")),
            (format!("cc-{TRACE}-{SPAN}-01."), None),
            (format!("ff-{TRACE}-{SPAN}-01"), None),
            // A `traceparent` of version `00` may not be longer.
            (format!("00-{TRACE}-{SPAN}-01-"), None),
            (format!("00-{TRACE}-{SPAN}-01-what"), None),
            (format!("00-{TRACE}-{SPAN}-1"), None),
            (format!("00-{TRACE}-{SPAN}"), None),
            (format!("0-{TRACE}-{SPAN}-01"), None),
            (format!("000-{TRACE}-{SPAN}-01"), None),
            (format!("00_{TRACE}-{SPAN}-01"), None),
            (format!("00-{TRACE}_{SPAN}-01"), None),
            (format!("00-{TRACE}-{SPAN}_01"), None),
            (format!("00-{}-{SPAN}-01", zero(32)), None),
            (format!("00-{TRACE}-{}-01", zero(16)), None),
            (format!("00-{}-{SPAN}-01", TRACE.to_uppercase()), None),
            (format!("00-{TRACE}-{}-01", SPAN.to_uppercase()), None),
            (format!("00-{TRACE}-{SPAN}-0A"), None),
            (format!("0.-{TRACE}-{SPAN}-01"), None),
            (format!(" 00-{TRACE}-{SPAN}-01"), None),
            (format!("00-{TRACE}-{SPAN}-01 "), None),
            (format!("00-{TRACE}-{SPAN}-01,00-{TRACE}-{SPAN}-01"), None),
            (String::new(), None),
        ];
        for (value, expected) in cases {
            assert_eq!(read(&value), expected, "{value:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(trace in any::<[u8; 16]>(), span in any::<[u8; 8]>(), bits in 0..4_u8) {
            let parts = TraceId::from_bytes(trace).zip(SpanId::from_bytes(span));
            let Some((trace_id, span_id)) = parts else { return Ok(()) };
            let context = TraceContext { trace_id, span_id, flags: TraceFlags(bits) };
            prop_assert_eq!(TraceContext::parse(context.to_traceparent().as_bytes()), Some(context));
        }

        #[test]
        fn nothing_that_is_read_is_other_than_what_was_sent(value in "[0-9a-f]{2}-[0-9a-fA-F]{30,34}-[0-9a-f]{15,17}-[0-9a-f]{2}(-x)?") {
            if let Some(context) = TraceContext::parse(value.as_bytes()) {
                prop_assert_eq!(&context.to_traceparent()[2..53], &value[2..53]);
            }
        }

        #[test]
        fn any_bytes_are_read_without_harm(value in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = TraceContext::parse(&value);
        }
    }
}
