//! Values with variables, such as `{host}`: parsed once, expanded for each message.

use std::fmt;

use caching::sharing;
use http::HeaderName;
use option_table::Kind::{Map, Text};
use option_table::{KeyForm, Kind};

use super::field::readable;
use super::phase::Phase;
use super::terms::Author;

/// Fields, each with a value that may have variables.
pub(super) const VALUES: Kind = Map(KeyForm::FieldName, &Text("value, with variables such as `{host}`"));

/// Text with variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    pub(super) pieces: Vec<Piece>,
}

/// A piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Text(Box<[u8]>),
    Variable(Variable),
}

/// A variable in a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Variable {
    /// `{authority}`: the requested host and port, as sent.
    Authority,
    /// `{client.address}`: the address of the client, as in the access log.
    ClientAddress,
    /// `{header.NAME}`: the first value of a field of the message that is changed.
    Field(HeaderName),
    /// `{host}`: the requested host, without port.
    Host,
    /// `{path}`: the path as sent.
    Path,
    /// `{query}`: the query without its `?`.
    Query,
    /// `{request.header.NAME}`: the first value of a field of the client's request.
    RequestField(HeaderName),
    /// `{scheme}`: `http` or `https`.
    Scheme,
    /// `{status}`: the status of the response.
    Status,
}

impl Template {
    /// Parses text; `{{` and `}}` stand for single braces.
    ///
    /// # Errors
    /// A message with the problem.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if !http1::is_field_value(text.as_bytes()) || text.trim() != text {
            return Err(
                "expected a field value without control characters or leading or trailing spaces".to_owned()
            );
        }
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            literal.push_str(&rest[..at]);
            let (brace, after) = (&rest[at..=at], &rest[at + 1..]);
            if let Some(after) = after.strip_prefix(brace) {
                literal.push_str(brace);
                rest = after;
                continue;
            }
            let end = after.find('}').filter(|_| brace == "{");
            let end = end.ok_or("unmatched brace; write `{{` or `}}` for the character itself")?;
            pieces.extend(piece_of(&mut literal));
            pieces.push(Piece::Variable(Variable::parse(&after[..end])?));
            rest = &after[end + 1..];
        }
        literal.push_str(rest);
        pieces.extend(piece_of(&mut literal));
        Ok(Self { pieces })
    }

    /// Parses a value in a rule of a phase.
    ///
    /// # Errors
    /// A message with the problem, such as a variable that the phase lacks, or a field whose values must not be copied.
    pub(super) fn in_phase(text: &str, phase: Phase) -> Result<Self, String> {
        let unknown = |says| format!("{says}; this phase has the variables {}", phase.variables().join(", "));
        let template = Self::parse(text).map_err(unknown)?;
        for variable in template.variables() {
            if !phase.has(variable) {
                return Err(format!(
                    "`{{{variable}}}` can't be used in this phase, which has {}",
                    phase.variables().join(", ")
                ));
            }
            if let Variable::Field(name) | Variable::RequestField(name) = variable {
                readable(name.as_str())?;
            }
        }
        Ok(template)
    }

    /// Checks that a URL names the same server for all clients: before its path, it may contain only text and the requested host. A URL
    /// that begins with a path names no server.
    ///
    /// # Errors
    /// A message with the problem.
    pub(super) fn check_server(&self) -> Result<(), String> {
        let Some(Piece::Text(text)) = self.pieces.first() else { return Ok(()) };
        let text = String::from_utf8_lossy(text);
        let Some(begin) = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://")) else {
            return Ok(());
        };
        let mut authority = String::new();
        let rest = self.pieces[1..].iter().map(|piece| match piece {
            Piece::Text(text) => Ok(String::from_utf8_lossy(text)),
            Piece::Variable(variable) => Err(variable),
        });
        for piece in std::iter::once(Ok(begin.into())).chain(rest) {
            match piece {
                Ok(text) => match text.find(['/', '?', '#']) {
                    Some(end) => return check_server(&(authority + &text[..end])),
                    None => authority.push_str(&text),
                },
                Err(Variable::Host) => authority.push_str("host"),
                Err(Variable::Authority) => authority.push_str("host:80"),
                Err(Variable::Path) => break,
                Err(variable) => {
                    return Err(format!(
                        "`{{{variable}}}` would let a client choose the server: before the path only `{{host}}` and `{{authority}}` are allowed"
                    ));
                }
            }
        }
        check_server(&authority)
    }

    /// Returns the request fields that the value uses in a phase.
    pub(super) fn request_fields(&self, phase: Phase) -> impl Iterator<Item = &HeaderName> {
        self.variables().filter_map(move |variable| variable.of_request(phase))
    }

    /// Returns the party that determines the value in a request to the origin.
    pub(super) fn author(&self) -> Author {
        let is_client_s = |variable: &Variable| {
            matches!(variable, Variable::Field(_) | Variable::ClientAddress | Variable::Query)
        };
        if self.variables().any(is_client_s) { Author::Client } else { Author::Operator }
    }

    /// Returns whether the value is the same for all messages.
    pub(super) fn is_fixed(&self) -> bool {
        self.variables().next().is_none()
    }

    /// Returns the field with this value as text; hides the value if it may be a secret.
    pub(super) fn described(&self, name: &HeaderName) -> String {
        match sharing::is_credential(name.as_str()) || *name == http::header::SET_COOKIE {
            true => format!("{name}: (hidden)"),
            false => format!("{name}: {self}"),
        }
    }

    /// Returns the variables in the template.
    pub(super) fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Variable(variable) => Some(variable),
            Piece::Text(_) => None,
        })
    }
}

/// Writes the template as in the configuration, but without doubled braces.
impl fmt::Display for Template {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pieces.iter().try_for_each(|piece| match piece {
            Piece::Text(text) => formatter.write_str(&String::from_utf8_lossy(text)),
            Piece::Variable(variable) => write!(formatter, "{{{variable}}}"),
        })
    }
}

fn check_server(authority: &str) -> Result<(), String> {
    let parsed = authority.parse::<http::uri::Authority>().ok();
    match parsed.is_some_and(|parsed| !parsed.host().is_empty() && !authority.contains('@')) {
        true => Ok(()),
        false => Err("expected a host after `http://` or `https://`, with or without a port".to_owned()),
    }
}

fn piece_of(literal: &mut String) -> Option<Piece> {
    let text = std::mem::take(literal);
    (!text.is_empty()).then(|| Piece::Text(text.into_bytes().into()))
}

impl Variable {
    /// Returns the request field that the variable reads in a phase, if any.
    fn of_request(&self, phase: Phase) -> Option<&HeaderName> {
        match self {
            Self::RequestField(name) => Some(name),
            Self::Field(name) if !phase.is_of_responses() => Some(name),
            _ => None,
        }
    }

    fn parse(name: &str) -> Result<Self, String> {
        let field = |name: &str| {
            HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| format!("`{name}` is not a header field name"))
        };
        match name {
            "authority" => Ok(Self::Authority),
            "client.address" => Ok(Self::ClientAddress),
            "host" => Ok(Self::Host),
            "path" => Ok(Self::Path),
            "query" => Ok(Self::Query),
            "scheme" => Ok(Self::Scheme),
            "status" => Ok(Self::Status),
            _ => match (name.strip_prefix("header."), name.strip_prefix("request.header.")) {
                (Some(name), _) => field(name).map(Self::Field),
                (_, Some(name)) => field(name).map(Self::RequestField),
                _ => Err(format!("`{{{name}}}` is not a variable")),
            },
        }
    }
}

impl fmt::Display for Variable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Authority => formatter.write_str("authority"),
            Self::ClientAddress => formatter.write_str("client.address"),
            Self::Field(name) => write!(formatter, "header.{name}"),
            Self::Host => formatter.write_str("host"),
            Self::Path => formatter.write_str("path"),
            Self::Query => formatter.write_str("query"),
            Self::RequestField(name) => write!(formatter, "request.header.{name}"),
            Self::Scheme => formatter.write_str("scheme"),
            Self::Status => formatter.write_str("status"),
        }
    }
}

impl Phase {
    /// Returns whether a variable may be used in this phase. A stored response is for all requests with the same key, so it must not
    /// contain data of only one of them.
    fn has(self, variable: &Variable) -> bool {
        match variable {
            Variable::Authority | Variable::Host | Variable::Path | Variable::Scheme | Variable::Field(_) => {
                true
            }
            Variable::Status => self.is_of_responses(),
            Variable::Query | Variable::ClientAddress => self != Self::OriginResponse,
            Variable::RequestField(_) => self == Self::ClientResponse,
        }
    }

    /// Returns the variables that may be used in this phase, as written.
    fn variables(self) -> Vec<String> {
        let any = HeaderName::from_static("name");
        let all = [
            Variable::Authority,
            Variable::ClientAddress,
            Variable::Field(any.clone()),
            Variable::Host,
            Variable::Path,
            Variable::Query,
            Variable::RequestField(any),
            Variable::Scheme,
            Variable::Status,
        ];
        let shown =
            all.iter().filter(|variable| self.has(variable)).map(|variable| format!("`{{{variable}}}`"));
        shown.map(|text| text.replace(".name}", ".NAME}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_text_and_variables() {
        let check = |text: &str, expected: Result<&str, &str>| {
            let shown = Template::parse(text).map(|template| {
                let piece = |piece: &Piece| match piece {
                    Piece::Text(text) => format!("'{}'", String::from_utf8_lossy(text)),
                    Piece::Variable(variable) => format!("<{variable}>"),
                };
                template.pieces.iter().map(piece).collect::<Vec<_>>().join(" ")
            });
            match expected {
                Ok(expected) => assert_eq!(shown.as_deref(), Ok(expected), "{text}"),
                Err(part) => assert!(shown.is_err_and(|error| error.contains(part)), "{text}"),
            }
        };
        check("", Ok(""));
        check("plain", Ok("'plain'"));
        check("{host}{path}", Ok("<host> <path>"));
        check("a {status} b", Ok("'a ' <status> ' b'"));
        check("{{host}} }}", Ok("'{host} }'"));
        check("{header.X-A}", Ok("<header.x-a>"));
        check("{request.header.Origin}", Ok("<request.header.origin>"));
        check("{client.address}, {scheme}, {query}", Ok("<client.address> ', ' <scheme> ', ' <query>"));
        check("{hots}", Err("is not a variable"));
        check("{header.a b}", Err("is not a header field name"));
        check("{header.}", Err("is not a header field name"));
        check("{host", Err("unmatched brace"));
        check("host}", Err("unmatched brace"));
        check("a\r\nb: c", Err("without control characters"));
        check(" a", Err("leading or trailing spaces"));
    }

    #[test]
    fn no_client_chooses_the_server() {
        let check = |text: &str, expected: Option<&str>| {
            let found = Template::parse(text).unwrap().check_server().err();
            let fits = match (&found, expected) {
                (Some(found), Some(part)) => found.contains(part),
                (found, expected) => found.is_none() && expected.is_none(),
            };
            assert!(fits, "{text}: {found:?}");
        };
        for text in [
            "/{query}",
            "{path}?{query}",
            "https://{host}{path}?{query}",
            "https://{authority}",
            "http://{host}:8443/{header.X-A}",
            "https://www.{host}?{query}",
            "https://shop.example#{query}",
            "https://[2001:db8::1]:80{path}",
        ] {
            check(text, None);
        }
        let (chosen, host) = (Some("would let a client choose"), Some("expected a host"));
        check("https://{query}.x.example/", chosen);
        check("https://x.example{query}", chosen);
        check("https://{header.X-A}/", chosen);
        check("https://{client.address}/", chosen);
        check("https://user@x.example/", host);
        check("https://{host}@x.example/", host);
        check("https://{authority}:80/", host);
        check("http://", host);
        check("https:///{query}", host);
        check("https://{path}", host);
        check("https://:80/", host);
        check("https://a b/", host);
    }
}
