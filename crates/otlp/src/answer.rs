//! The meaning of a collector's response (OTLP, section "OTLP/HTTP Response").

use std::time::Duration;

use prost::Message;

use crate::message::ExportResponse;

/// The next step for spans that were sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The collector has accepted them, except for rejected ones.
    Accepted { rejected: usize, why: String },
    /// They are sent again, after this delay if the collector names one.
    Again(Option<Duration>),
    /// They are refused with this status, and would be refused again.
    Refused(u16),
}

/// Evaluates status, `Retry-After` and content.
pub(crate) fn judge(status: u16, retry_after: Option<&[u8]>, content: &[u8]) -> Verdict {
    match status {
        200..=299 => {
            // A success whose content can't be decoded is still a success.
            let told = ExportResponse::decode(content).ok().and_then(|response| response.partial_success);
            let told = told.unwrap_or_default();
            let rejected = usize::try_from(told.rejected_spans).unwrap_or(0);
            Verdict::Accepted { rejected, why: told.error_message }
        }
        429 | 502 | 503 | 504 => Verdict::Again(retry_after.and_then(seconds)),
        status => Verdict::Refused(status),
    }
}

/// Parses seconds. Dates are ignored: clocks differ, and the default pause is good enough.
fn seconds(value: &[u8]) -> Option<Duration> {
    std::str::from_utf8(value).ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// Pauses between attempts to send the same spans.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    taken: u32,
}

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// New spans are queued meanwhile, and dropped if there is no room. New spans are worth more than old ones, so attempts
/// are limited.
const PAUSES_MAX: u32 = 4;

impl Pauses {
    /// Returns the next pause, or `None` after enough attempts.
    pub(crate) fn next(&mut self, asked: Option<Duration>) -> Option<Duration> {
        if self.taken == PAUSES_MAX {
            return None;
        }
        let own = FIRST_PAUSE * 2_u32.pow(self.taken);
        self.taken += 1;
        Some(asked.unwrap_or(own).clamp(FIRST_PAUSE, PAUSE_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::PartialSuccess;

    #[test]
    fn what_answers_mean() {
        let accepted = |rejected, why: &str| Verdict::Accepted { rejected, why: why.to_owned() };
        let partial = |rejected_spans, error_message: &str| {
            let partial = PartialSuccess { rejected_spans, error_message: error_message.to_owned() };
            ExportResponse { partial_success: Some(partial) }.encode_to_vec()
        };
        let after = |seconds| Verdict::Again(Some(Duration::from_secs(seconds)));
        let cases: [(u16, Option<&str>, Vec<u8>, Verdict); 14] = [
            (200, None, Vec::new(), accepted(0, "")),
            (202, None, Vec::new(), accepted(0, "")),
            (200, None, b"<html>".to_vec(), accepted(0, "")),
            (200, None, partial(3, "too old"), accepted(3, "too old")),
            (200, None, partial(-1, "odd"), accepted(0, "odd")),
            (429, None, Vec::new(), Verdict::Again(None)),
            (429, Some("7"), Vec::new(), after(7)),
            (503, Some(" 0 "), Vec::new(), after(0)),
            (503, Some("Fri, 31 Dec 1999 23:59:59 GMT"), Vec::new(), Verdict::Again(None)),
            (502, Some("-1"), Vec::new(), Verdict::Again(None)),
            (504, None, Vec::new(), Verdict::Again(None)),
            (400, None, Vec::new(), Verdict::Refused(400)),
            (500, Some("1"), Vec::new(), Verdict::Refused(500)),
            (301, None, Vec::new(), Verdict::Refused(301)),
        ];
        for (status, retry_after, content, expected) in cases {
            let verdict = judge(status, retry_after.map(str::as_bytes), &content);
            assert_eq!(verdict, expected, "{status} {retry_after:?}");
        }
    }

    #[test]
    fn pauses_grow_and_end() {
        let mut pauses = Pauses::default();
        let taken: Vec<_> = std::iter::from_fn(|| pauses.next(None)).map(|pause| pause.as_secs()).collect();
        assert_eq!(taken, [1, 2, 4, 8]);
        let asked = |seconds| Pauses::default().next(Some(Duration::from_secs(seconds))).unwrap().as_secs();
        assert_eq!((asked(0), asked(7), asked(86_400)), (1, 7, 30));
    }
}
