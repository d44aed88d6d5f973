//! Messages that actions change, and the values of templates for them.
//!
//! Values can't split a message: the values of variables were parsed as parts of a message, and each value is checked again before it
//! is written.

use std::net::IpAddr;

use caching::FieldLine;
use http::HeaderName;
use http1::is_field_value;
use message::fields::PackedFields;
use message::head::RequestHead;

use super::captures::Captured;
use super::phase::Phase;
use super::template::{Piece, Template, Variable};
use crate::urls::{address_text, host_of, path_of};

/// The request that is changed, or whose response is changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    pub(crate) method: &'a str,
    pub(crate) scheme: &'static str,
    pub(crate) authority: &'a str,
    /// Path and query, as far as rules may read them.
    pub(crate) path_and_query: &'a str,
    pub(crate) fields: &'a [FieldLine<'a>],
    pub(crate) client: IpAddr,
}

/// Message that rules are applied to.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) seen: &'a Seen<'a>,
    /// Status of a response, and the status that rules are compared with.
    pub(crate) status: Option<(u16, u16)>,
}

impl<'a> Seen<'a> {
    /// Returns the request as seen by the rules of a phase. In phase `origin_response`, rules see no query and no fields: the response is
    /// stored under a key that has the path, but may lack query parameters and fields. A response to HEAD updates the stored response to
    /// GET, so the same rules transform it.
    pub(crate) fn of(request: &RequestHead<'a>, client: IpAddr, phase: Phase) -> Self {
        let whole = request.path_and_query;
        let is_shared = phase == Phase::OriginResponse;
        Self {
            method: if is_shared && request.method == "HEAD" { "GET" } else { request.method },
            scheme: request.scheme.as_str(),
            authority: request.authority,
            path_and_query: if is_shared { path_of(whole) } else { whole },
            fields: if is_shared { &[] } else { request.fields },
            client,
        }
    }
}

impl Subject<'_> {
    /// Returns whether a field is the `Content-Type` of a multipart 206: the parts can't be parsed without its boundary (RFC 9110
    /// section 15.3.7.2).
    pub(super) fn frames_parts(&self, name: &HeaderName, fields: &PackedFields) -> bool {
        let is_of_parts = |value: &[u8]| {
            value.get(..BYTE_RANGES.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(BYTE_RANGES))
        };
        self.status.is_some_and(|(status, _)| status == 206)
            && *name == http::header::CONTENT_TYPE
            && fields.value("content-type").is_some_and(is_of_parts)
    }

    pub(super) fn is_304(&self) -> bool {
        self.status.is_some_and(|(status, _)| status == 304)
    }

    /// Returns the value of a template; `None` if it isn't a valid field value.
    pub(super) fn value(&self, template: &Template, fields: &PackedFields) -> Option<Vec<u8>> {
        self.value_with(template, fields, |text, value| value.extend_from_slice(text))
    }

    /// Like [`Self::value`], with captures of an expression in its text. Also returns `None` if the expression doesn't match.
    pub(super) fn value_captured(
        &self,
        template: &Template,
        captured: &Captured,
        fields: &PackedFields,
    ) -> Option<Vec<u8>> {
        let captures = captured.of(self.seen.path_and_query)?;
        self.value_with(template, fields, |text, value| {
            let mut expanded = String::new();
            captures.expand(&String::from_utf8_lossy(text), &mut expanded);
            value.extend_from_slice(expanded.as_bytes());
        })
    }

    fn value_with(
        &self,
        template: &Template,
        fields: &PackedFields,
        write_text: impl Fn(&[u8], &mut Vec<u8>),
    ) -> Option<Vec<u8>> {
        let mut value = Vec::new();
        for piece in &template.pieces {
            match piece {
                Piece::Text(text) => write_text(text, &mut value),
                Piece::Variable(variable) => self.write_variable(variable, fields, &mut value),
            }
        }
        let value = value.trim_ascii();
        is_field_value(value).then(|| value.to_vec())
    }

    fn write_variable(&self, variable: &Variable, fields: &PackedFields, out: &mut Vec<u8>) {
        let seen = self.seen;
        match variable {
            Variable::Authority => out.extend_from_slice(seen.authority.as_bytes()),
            Variable::Host => out.extend_from_slice(host_of(seen.authority).as_bytes()),
            Variable::Path => out.extend_from_slice(path_of(seen.path_and_query).as_bytes()),
            Variable::Query => {
                let query = seen.path_and_query.split_once('?').map_or("", |(_, query)| query);
                out.extend_from_slice(query.as_bytes());
            }
            Variable::Scheme => out.extend_from_slice(seen.scheme.as_bytes()),
            Variable::ClientAddress => out.extend_from_slice(address_text(seen.client).as_bytes()),
            Variable::Status => {
                let status = self.status.map_or(0, |(status, _)| status);
                out.extend_from_slice(itoa::Buffer::new().format(status).as_bytes());
            }
            Variable::Field(name) => out.extend_from_slice(fields.value(name.as_str()).unwrap_or_default()),
            Variable::RequestField(name) => {
                let value = caching::fields::first(seen.fields, name.as_str());
                out.extend_from_slice(value.unwrap_or_default());
            }
        }
    }
}

const BYTE_RANGES: &[u8] = b"multipart/byteranges";
