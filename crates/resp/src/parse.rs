//! Decodes a reply of known length.

use crate::line::{self, Length, LineScan};
use crate::{DecodeError, Limits, Problem, Scanner, Value};

impl<'a> Value<'a> {
    /// Decodes a value that fills all of `bytes`. A [`Scanner`] with equal limits finds its length.
    ///
    /// # Errors
    /// If the bytes are not exactly one value, or exceed the limits.
    pub fn parse(bytes: &'a [u8], limits: &Limits) -> Result<Self, DecodeError> {
        // The functions below recurse, so depth and lengths are checked against the limits first.
        match Scanner::new(*limits).scan(bytes)? {
            Some(length) if length == bytes.len() => {}
            Some(length) => return Err(Problem::NotWhole.at(length)),
            None => return Err(Problem::NotWhole.at(bytes.len())),
        }
        Reader { bytes, at: 0, limits }.value()
    }
}

struct Reader<'a, 'l> {
    bytes: &'a [u8],
    at: usize,
    limits: &'l Limits,
}

impl<'a> Reader<'a, '_> {
    fn value(&mut self) -> Result<Value<'a>, DecodeError> {
        let begin = self.at;
        let kind = *self.bytes.get(begin).ok_or_else(|| Problem::NotWhole.at(begin))?;
        let text = self.line(begin + 1)?;
        let value = match kind {
            b'$' | b'!' | b'=' => self.bulk(kind, text)?,
            b'*' | b'~' | b'>' | b'%' | b'|' => self.aggregate(kind, text)?,
            _ => scalar(kind, text).map_err(|problem| problem.at(begin + 1))?,
        };
        Ok(value)
    }

    fn line(&mut self, begin: usize) -> Result<&'a [u8], DecodeError> {
        let length = LineScan::default().scan(self.bytes, begin, self.limits)?;
        let end = begin + length.ok_or_else(|| Problem::NotWhole.at(begin))?;
        self.at = end + 2;
        Ok(&self.bytes[begin..end])
    }

    fn bulk(&mut self, kind: u8, text: &[u8]) -> Result<Value<'a>, DecodeError> {
        let begin = self.at;
        let length = match line::length(text).map_err(|problem| problem.at(begin))? {
            Length::Null => return Ok(Value::NullBulk),
            Length::Of(length) => length,
        };
        let bytes = self.bytes.get(begin..begin + length).ok_or_else(|| Problem::NotWhole.at(begin))?;
        self.at = begin + length + 2;
        match (kind, bytes) {
            (b'$', _) => Ok(Value::Bulk(bytes)),
            (b'!', _) => Ok(Value::BulkError(bytes)),
            (_, [a, b, c, b':', text @ ..]) => Ok(Value::Verbatim { format: [*a, *b, *c], text }),
            _ => Err(Problem::Verbatim.at(begin)),
        }
    }

    fn aggregate(&mut self, kind: u8, text: &[u8]) -> Result<Value<'a>, DecodeError> {
        let begin = self.at;
        let length = match line::length(text).map_err(|problem| problem.at(begin))? {
            Length::Null => return Ok(Value::NullArray),
            Length::Of(length) => length,
        };
        match kind {
            b'*' => Ok(Value::Array(self.elements(length)?)),
            b'~' => Ok(Value::Set(self.elements(length)?)),
            b'>' => Ok(Value::Push(self.elements(length)?)),
            b'%' => Ok(Value::Map(self.pairs(length)?)),
            _ => self.attributed(length),
        }
    }

    /// Merges consecutive attributes of a value into one: their number is unbounded, and recursion could
    /// exhaust the stack.
    fn attributed(&mut self, length: usize) -> Result<Value<'a>, DecodeError> {
        let mut attributes = self.pairs(length)?;
        while self.bytes.get(self.at) == Some(&b'|') {
            let begin = self.at + 1;
            let length = line::length(self.line(begin)?).map_err(|problem| problem.at(begin))?;
            let Length::Of(length) = length else { return Err(Problem::Length.at(begin)) };
            attributes.append(&mut self.pairs(length)?);
        }
        Ok(Value::Attributed { attributes, value: Box::new(self.value()?) })
    }

    fn elements(&mut self, length: usize) -> Result<Vec<Value<'a>>, DecodeError> {
        (0..length).map(|_| self.value()).collect()
    }

    fn pairs(&mut self, length: usize) -> Result<Vec<(Value<'a>, Value<'a>)>, DecodeError> {
        (0..length).map(|_| Ok((self.value()?, self.value()?))).collect()
    }
}

fn scalar(kind: u8, text: &[u8]) -> Result<Value<'_>, Problem> {
    match kind {
        b'+' => Ok(Value::Simple(text)),
        b'-' => Ok(Value::Error(text)),
        b':' => line::integer(text).map(Value::Integer),
        b',' => line::double(text).map(Value::Double),
        b'(' => line::big_number(text).map(Value::BigNumber),
        b'_' if text.is_empty() => Ok(Value::Null),
        b'_' => Err(Problem::Null),
        b'#' => match text {
            b"t" => Ok(Value::Boolean(true)),
            b"f" => Ok(Value::Boolean(false)),
            _ => Err(Problem::Boolean),
        },
        _ => Err(Problem::UnknownType(kind)),
    }
}
