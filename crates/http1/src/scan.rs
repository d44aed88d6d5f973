//! Finds the end of a head in a growing buffer, and refuses what is too large or cut wrongly before it has arrived.

use core::mem::MaybeUninit;

use crate::fields::is_token_byte;
use crate::head;
use crate::{FieldLine, Head, Limits, METHOD_BYTES_MAX, RequestError};

/// Remembers how far one head has been looked at, so that each byte is looked at once however slowly it arrives.
///
/// One scanner per head: call [`scan`](Self::scan) after every read until it gives a length, then
/// [`parse`](Self::parse), then start with a new scanner behind the head. The buffer may grow between the calls
/// but its start must not change.
///
/// The result does not depend on how the bytes were split over the calls.
#[derive(Debug, Clone, Default)]
pub struct HeadScanner {
    /// Bytes before this index hold no LF that is still to be looked at.
    scanned: usize,
    line_start: usize,
    stage: Stage,
    field_lines: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Stage {
    #[default]
    Start,
    RequestLine,
    FieldLines,
    Complete {
        bytes: usize,
    },
}

/// Reads the head at the start of `buf`, or gives `None` while its end has not arrived. On a connection, where the
/// buffer grows, use [`HeadScanner`]: this function starts from the first byte each time.
///
/// # Errors
/// See [`HeadScanner::parse`].
pub fn parse_head<'l, 'b>(
    buf: &'b [u8],
    limits: &Limits,
    lines: &'l mut [FieldLine<'b>],
) -> Result<Option<Head<'b, 'l>>, RequestError> {
    HeadScanner::default().parse(buf, limits, lines)
}

impl HeadScanner {
    /// The length of the head, or `None` while its end has not arrived.
    ///
    /// # Errors
    /// A limit is passed, a line ends in a bare LF, or the first byte cannot start a request. Other faults are
    /// found by [`parse`](Self::parse).
    pub fn scan(&mut self, buf: &[u8], limits: &Limits) -> Result<Option<usize>, RequestError> {
        if let Stage::Complete { bytes } = self.stage {
            return Ok(Some(bytes));
        }
        // Nothing behind the limit is looked at, or the answer would depend on how many bytes came in one read.
        let visible = &buf[..buf.len().min(limits.head_bytes_max)];
        let from = self.scanned.min(visible.len());
        for offset in memchr::memchr_iter(b'\n', &visible[from..]) {
            let end = from + offset + 1;
            self.end_line(&visible[self.line_start..end], end, limits)?;
            if let Stage::Complete { bytes } = self.stage {
                return Ok(Some(bytes));
            }
        }
        self.scanned = visible.len();
        self.check_partial_line(&visible[self.line_start..], limits)?;
        if buf.len() > limits.head_bytes_max {
            return Err(RequestError::HeadTooLarge);
        }
        Ok(None)
    }

    /// The head at the start of `buf`, its field lines in `lines`, or `None` while its end has not arrived.
    ///
    /// # Errors
    /// The request breaks a rule of RFC 9112 or a limit. `lines` is shorter than the number of field lines:
    /// [`RequestError::TooManyFields`].
    pub fn parse<'l, 'b>(
        &mut self,
        buf: &'b [u8],
        limits: &Limits,
        lines: &'l mut [FieldLine<'b>],
    ) -> Result<Option<Head<'b, 'l>>, RequestError> {
        if self.scanned == 0 && self.stage == Stage::Start {
            let mut raw = [const { MaybeUninit::uninit() }; Limits::FIELDS_CEILING];
            let mut request = httparse::Request::new(&mut []);
            if let Some(bytes) = head::tokenize_at_once(buf, limits, &mut request, &mut raw) {
                return head::assemble(&request, lines, bytes).map(Some);
            }
        }
        let Some(bytes) = self.scan(buf, limits)? else {
            return Ok(None);
        };
        head::parse_complete(&buf[..bytes], lines).map(Some)
    }

    fn end_line(&mut self, line: &[u8], end: usize, limits: &Limits) -> Result<(), RequestError> {
        self.check_partial_line(line, limits)?;
        //= RFC 9112 section 2.2: message parsing
        let content = line.strip_suffix(b"\r\n").ok_or(RequestError::BareLineFeed)?;
        self.line_start = end;
        self.stage = match self.stage {
            //= RFC 9112 section 2.2: ignore at least one empty line before the request line
            Stage::Start if content.is_empty() => Stage::RequestLine,
            Stage::Start | Stage::RequestLine => Stage::FieldLines,
            _ if content.is_empty() => Stage::Complete { bytes: end },
            other => other,
        };
        if self.stage == Stage::FieldLines {
            self.count_line(limits)?;
        }
        Ok(())
    }

    /// Counts the request line as the zeroth.
    const fn count_line(&mut self, limits: &Limits) -> Result<(), RequestError> {
        if self.field_lines > limits.fields_max || self.field_lines > Limits::FIELDS_CEILING {
            return Err(RequestError::TooManyFields);
        }
        self.field_lines += 1;
        Ok(())
    }

    fn check_partial_line(&self, line: &[u8], limits: &Limits) -> Result<(), RequestError> {
        match self.stage {
            Stage::Start => check_start(line).and_then(|()| check_request_line(line, limits)),
            Stage::RequestLine => check_first_byte(line).and_then(|()| check_request_line(line, limits)),
            _ => Ok(()),
        }
    }
}

fn check_start(line: &[u8]) -> Result<(), RequestError> {
    match line {
        [b'\r'] | [b'\r', b'\n', ..] => Ok(()),
        [b'\r', ..] => Err(RequestError::BareCarriageReturn),
        _ => check_first_byte(line),
    }
}

/// A method starts here. Clients that speak something else (TLS for example) never send a LF: waiting for the end
/// of the line would leave them hanging until a time-out.
fn check_first_byte(line: &[u8]) -> Result<(), RequestError> {
    match line.first() {
        None => Ok(()),
        Some(b'\n') => Err(RequestError::BareLineFeed),
        Some(&byte) if is_token_byte(byte) => Ok(()),
        Some(_) => Err(RequestError::InvalidMethod),
    }
}

//= RFC 9112 section 3: a method longer than any implemented gets 501, a target longer than wished 414
fn check_request_line(line: &[u8], limits: &Limits) -> Result<(), RequestError> {
    let Some(method_end) = line.iter().take(METHOD_BYTES_MAX + 1).position(|&byte| byte == b' ') else {
        return if line.len() > METHOD_BYTES_MAX { Err(RequestError::MethodTooLong) } else { Ok(()) };
    };
    let target = &line[method_end + 1..];
    let target = &target[..target.len().min(limits.target_bytes_max.saturating_add(1))];
    if target.len() > limits.target_bytes_max && memchr::memchr(b' ', target).is_none() {
        return Err(RequestError::TargetTooLong);
    }
    Ok(())
}
