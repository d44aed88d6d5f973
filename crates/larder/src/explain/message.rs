//! Message heads in files, in HTTP/1.1 form. Lines may end with LF, because people write these files by hand.

use std::path::Path;

use anyhow::{Context, bail, ensure};
use caching::FieldLine;
use http::{HeaderName, HeaderValue, Method};
use terminal::input_file::{self, Kind};

/// A start line and header fields.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) start: String,
    fields: Vec<(String, String)>,
}

/// The parts of a request line.
#[derive(Debug)]
pub(super) struct RequestLine {
    pub(super) method: String,
    pub(super) path_and_query: String,
    pub(super) authority: String,
}

/// Limit of head and content together; the content is ignored.
const MESSAGE_BYTES_MAX: u64 = 16 << 20;

impl Message {
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let bytes = input_file::read(path, Kind::RegularOrPipe, MESSAGE_BYTES_MAX);
        let bytes = bytes.with_context(|| format!("{} can't be read", path.display()))?;
        Self::parse(&bytes).with_context(|| format!("{} can't be used", path.display()))
    }

    /// Parses the head. Content after the empty line is ignored.
    fn parse(bytes: &[u8]) -> anyhow::Result<Self> {
        let mut lines =
            bytes.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let start = text(lines.next().unwrap_or_default()).context("line 1 isn't text")?;
        ensure!(
            !start.trim().is_empty(),
            "line 1 is empty: a start line such as `GET /a HTTP/1.1` belongs there"
        );
        let mut fields = Vec::new();
        for (number, line) in (2..).zip(lines).take_while(|(_, line)| !line.is_empty()) {
            fields.push(field(line).with_context(|| format!("line {number}"))?);
        }
        Ok(Self { start, fields })
    }

    pub(super) fn lines(&self) -> Vec<FieldLine<'_>> {
        self.fields.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect()
    }

    fn value(&self, name: &str) -> Option<&str> {
        let named = |(found, _): &&(String, String)| found.eq_ignore_ascii_case(name);
        self.fields.iter().find(named).map(|(_, value)| value.as_str())
    }

    /// Parses the request line: `GET /path HTTP/1.1`, or with an absolute URL.
    pub(super) fn request_line(&self) -> anyhow::Result<RequestLine> {
        let mut words = self.start.split(' ');
        let (Some(method), Some(target)) = (words.next(), words.next()) else {
            bail!("line 1: {:?} isn't a request line: write `GET /a HTTP/1.1`", self.start);
        };
        Method::from_bytes(method.as_bytes())
            .with_context(|| format!("line 1: {method:?} isn't a method"))?;
        let url: http::Uri =
            target.parse().with_context(|| format!("line 1: {target:?} isn't a request target"))?;
        let authority = url.authority().map(ToString::to_string);
        let host = || self.value("host").unwrap_or_default().to_owned();
        Ok(RequestLine {
            method: method.to_owned(),
            path_and_query: url.path_and_query().map_or("/", |target| target.as_str()).to_owned(),
            authority: authority.unwrap_or_else(host),
        })
    }

    /// Parses the status of a response: `HTTP/1.1 200 OK`.
    pub(super) fn status(&self) -> anyhow::Result<u16> {
        let code = self.start.split(' ').nth(1).filter(|_| self.start.starts_with("HTTP/"));
        match code.and_then(|code| code.parse().ok()) {
            Some(status @ 100..=999) => Ok(status),
            _ => bail!("line 1: {:?} isn't a status line: write `HTTP/1.1 200 OK`", self.start),
        }
    }
}

fn field(line: &[u8]) -> anyhow::Result<(String, String)> {
    let line = text(line).context("this isn't text")?;
    let Some((name, value)) = line.split_once(':') else {
        bail!("{line:?} isn't a header field: write `Name: value`");
    };
    HeaderName::from_bytes(name.as_bytes()).with_context(|| format!("{name:?} isn't a field name"))?;
    HeaderValue::from_str(value.trim()).context("this isn't a field value")?;
    Ok((name.to_owned(), value.trim().to_owned()))
}

fn text(line: &[u8]) -> anyhow::Result<String> {
    Ok(std::str::from_utf8(line)?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads() {
        let check = |text: &str, want: Result<&str, &str>| {
            let read = Message::parse(text.as_bytes()).and_then(|message| {
                if message.start.starts_with("HTTP/") {
                    return Ok(format!("{} {:?}", message.status()?, message.fields));
                }
                let line = message.request_line()?;
                Ok(format!("{} {} {} {:?}", line.method, line.authority, line.path_and_query, message.fields))
            });
            match (read, want) {
                (Ok(shown), Ok(want)) => assert_eq!(shown, want, "{text:?}"),
                (Err(error), Err(part)) => {
                    assert!(format!("{error:#}").contains(part), "{error:#} lacks {part}")
                }
                (read, want) => panic!("{text:?}: {read:?}, not {want:?}"),
            }
        };
        check("GET /a?b HTTP/1.1\r\nHost: h\r\n\r\nbody", Ok(r#"GET h /a?b [("Host", "h")]"#));
        check("HEAD http://i/ HTTP/1.1\nHost: h\nA:  b ", Ok(r#"HEAD i / [("Host", "h"), ("A", "b")]"#));
        check("HTTP/1.1 299 Odd\nAge: 1\n\nAge: 2\n", Ok(r#"299 [("Age", "1")]"#));
        check("", Err("line 1 is empty"));
        check("GET", Err("isn't a request line"));
        check("G(T / HTTP/1.1", Err("isn't a method"));
        check("HTTP/1.1 20 OK", Err("isn't a status line"));
        check("GET / HTTP/1.1\nHost h", Err("line 2: \"Host h\" isn't a header field"));
        check("GET / HTTP/1.1\nHost: h\n a: b", Err("line 3: \" a\" isn't a field name"));
    }
}
