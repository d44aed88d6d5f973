//! Finds the end of a head in a growing buffer, and refuses heads that are too large or malformed before they are
//! complete.

use core::mem::MaybeUninit;

use crate::fields::is_token_byte;
use crate::head;
use crate::{FieldLine, Head, Limits, METHOD_BYTES_MAX, RequestError};

/// Keeps the progress of scanning one head, so that each byte is scanned once, however slowly the bytes arrive.
///
/// One scanner per head: call [`scan`](Self::scan) after every read until it returns a length, then
/// [`parse`](Self::parse), then start with a new scanner after the head. The buffer may grow between calls, but its
/// start must not change.
///
/// The result doesn't depend on how the bytes are split over the calls.
#[derive(Debug, Clone, Default)]
pub struct HeadScanner {
    /// All LFs before this index have been processed.
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

/// Parses the head at the start of `buf`, or returns `None` until its end has arrived. If the buffer grows, as on a
/// connection, use [`HeadScanner`], because this function starts from the first byte each time.
///
/// # Errors
///
/// See [`HeadScanner::parse`].
pub fn parse_head<'l, 'b>(
    buf: &'b [u8],
    limits: &Limits,
    lines: &'l mut [FieldLine<'b>],
) -> Result<Option<Head<'b, 'l>>, RequestError> {
    HeadScanner::default().parse(buf, limits, lines)
}

impl HeadScanner {
    /// Returns the length of the head, or `None` until its end has arrived.
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is exceeded, a line ends in a bare LF, or the first byte can't start a request.
    /// [`parse`](Self::parse) finds all other faults.
    pub fn scan(&mut self, buf: &[u8], limits: &Limits) -> Result<Option<usize>, RequestError> {
        if let Stage::Complete { bytes } = self.stage {
            return Ok(Some(bytes));
        }
        // Bytes beyond the limit are ignored; otherwise the result would depend on the number of bytes in one read.
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

    /// Returns the head at the start of `buf`, with its field lines in `lines`, or `None` until its end has arrived.
    ///
    /// # Errors
    ///
    /// Returns an error if the request breaks a rule of RFC 9112 or exceeds a limit; [`RequestError::TooManyFields`]
    /// also if `lines` is shorter than the number of field lines.
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

    /// Counts the request line as line zero.
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

/// Checks the first byte, which starts a method. Clients of another protocol (TLS for example) may never send an LF:
/// waiting for the end of the line would leave them hanging until a timeout.
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
