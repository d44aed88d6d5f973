//! Applies the actions of transformation rules to a header section. Pure: a section in, a section out.
//!
//! Nothing that could split a message gets in: the values of variables were parsed as parts of a message, and each value is checked
//! once more before it is written.

use std::net::IpAddr;

use caching::sharing;
use http1::is_field_value;
use message::fields::PackedFields;
use origin::{FIELDS_MAX, HEAD_BYTES_MAX};
use regex::Regex;

use super::forwarding::address_text;
use super::rules::{Matching, Seen, SeenAnswer};
use crate::config::{Action, CookieChange, Piece, PrefixChange, Template, TransformRule, Variable, path_of};
use crate::routing::host_of;

/// Message that rules are applied to.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) seen: &'a Seen<'a>,
    /// Status of a response, and the status that is meant by it.
    pub(crate) status: Option<(u16, u16)>,
}

/// The section exceeds the limits of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

/// A change as text: the action, and its object.
pub(crate) type Change = (&'static str, String);

impl<'a> Context<'a> {
    pub(crate) fn of_request(seen: &'a Seen<'a>) -> Self {
        Self { seen, status: None }
    }

    pub(crate) fn of_answer(seen: &'a Seen<'a>, answer: &SeenAnswer<'_>) -> Self {
        Self { seen, status: Some((answer.status, answer.status_meant())) }
    }

    /// Applies the `matching` rules, in their order.
    ///
    /// # Errors
    /// If the section becomes too large for any message.
    pub(crate) fn apply(
        &self,
        rules: &[TransformRule],
        matching: &Matching,
        fields: &mut PackedFields,
    ) -> Result<(), TooLarge> {
        let matching = matching.iter().filter_map(|place| rules.get(usize::from(*place)));
        for action in matching.flat_map(|rule| &rule.actions) {
            self.act(action, fields);
            if fields.len() > FIELDS_MAX || fields.view().wire().len() > HEAD_BYTES_MAX {
                return Err(TooLarge);
            }
        }
        Ok(())
    }

    fn act(&self, action: &Action, fields: &mut PackedFields) {
        if self.frames_parts(action, fields) {
            return;
        }
        match action {
            Action::Copy { from, to } => copy(from.as_str(), to.as_str(), fields),
            Action::Remove(name) => {
                fields.retain(|other| !other.eq_ignore_ascii_case(name.as_str().as_bytes()))
            }
            Action::Set(name, template) => {
                if let Some(value) = self.value(template, fields) {
                    fields.set(name.as_str(), &value);
                }
            }
            // A field in a 304 replaces all stored lines of its name, and a 304 need not repeat those of the origin.
            Action::Add(name, _) if self.is_304() && fields.value(name.as_str()).is_none() => {}
            Action::Add(name, template) => {
                if let Some(value) = self.value(template, fields) {
                    fields.push(name.as_str(), &value);
                }
            }
            Action::CacheControl(entries) => {
                let status = self.status.map_or(0, |(_, meant)| meant);
                if let Some((_, value)) = entries.iter().find(|(known, _)| known.matches(status)) {
                    fields.set("cache-control", value.as_bytes());
                }
            }
            Action::Location(changes) => ["location", "content-location"]
                .into_iter()
                .for_each(|name| change_values(name, fields, |value| changed_prefix(changes, value))),
            Action::Cookies(change) => {
                change_values("set-cookie", fields, |value| changed_cookie(change, value))
            }
            // These don't concern fields: see `shape`.
            Action::Rewrite(_) | Action::Redirect(_) => {}
        }
    }

    /// Whether an action concerns the `Content-Type` that holds the parts of a 206 together: the parts can't be read without its
    /// boundary (RFC 9110 section 15.3.7.2).
    fn frames_parts(&self, action: &Action, fields: &PackedFields) -> bool {
        let (Action::Copy { to: name, .. }
        | Action::Remove(name)
        | Action::Set(name, _)
        | Action::Add(name, _)) = action
        else {
            return false;
        };
        let is_of_parts = |value: &[u8]| {
            value.get(..BYTE_RANGES.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(BYTE_RANGES))
        };
        self.status.is_some_and(|(status, _)| status == 206)
            && *name == http::header::CONTENT_TYPE
            && fields.value("content-type").is_some_and(is_of_parts)
    }

    fn is_304(&self) -> bool {
        self.status.is_some_and(|(status, _)| status == 304)
    }

    /// Value of a template; `None` if it isn't a valid field value.
    pub(crate) fn value(&self, template: &Template, fields: &PackedFields) -> Option<Vec<u8>> {
        self.value_with(template, fields, |text, value| value.extend_from_slice(text))
    }

    /// Like [`Self::value`], with captures of path and query in its text. `None` also if the expression doesn't match them.
    pub(crate) fn value_captured(
        &self,
        template: &Template,
        expression: &Regex,
        fields: &PackedFields,
    ) -> Option<Vec<u8>> {
        let captures = expression.captures(self.seen.path_and_query)?;
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
            Variable::ClientAddress => write_address(seen.client, out),
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

fn write_address(client: IpAddr, out: &mut Vec<u8>) {
    out.extend_from_slice(address_text(client).as_bytes());
}

fn copy(from: &str, to: &str, fields: &mut PackedFields) {
    let values: Vec<Vec<u8>> = fields.values(from).map(<[u8]>::to_vec).collect();
    if values.is_empty() || from.eq_ignore_ascii_case(to) {
        return;
    }
    fields.retain(|other| !other.eq_ignore_ascii_case(to.as_bytes()));
    values.iter().for_each(|value| fields.push(to, value));
}

/// Replaces the values for which `change` returns another.
fn change_values(name: &str, fields: &mut PackedFields, change: impl Fn(&[u8]) -> Option<Vec<u8>>) {
    if !fields.values(name).any(|value| change(value).is_some()) {
        return;
    }
    let mut changed = PackedFields::with_capacity(fields.len());
    for (other, value) in fields.lines() {
        match change(value).filter(|value| other.eq_ignore_ascii_case(name) && is_field_value(value)) {
            Some(value) => changed.push(other, &value),
            None => changed.push(other, value),
        }
    }
    *fields = changed;
}

const BYTE_RANGES: &[u8] = b"multipart/byteranges";

/// Value with another beginning, by the first of the changes that fits. `None` if the text that followed the old beginning would then
/// name a server.
fn changed_prefix(changes: &[PrefixChange], value: &[u8]) -> Option<Vec<u8>> {
    let (change, rest) =
        changes.iter().find_map(|change| Some((change, behind(value, change.from.as_bytes())?)))?;
    let to = change.to.as_bytes();
    let begin = to.strip_suffix(b"/").filter(|_| rest.starts_with(b"/")).unwrap_or(to);
    let changed = [begin, rest].concat();
    (names_server(to) || !names_server(&changed)).then_some(changed)
}

/// Text that follows the beginning of a URL or a path, including the slash if the beginning ends in one. The beginning must end where a
/// component does, so that it matches no other host and no longer name; scheme and host have no case (RFC 3986 section 6.2.2.1).
fn behind<'a>(value: &'a [u8], from: &[u8]) -> Option<&'a [u8]> {
    let (begin, rest) = value.split_at_checked(from.len())?;
    let caseless = authority_end(from);
    let is_same =
        begin[..caseless].eq_ignore_ascii_case(&from[..caseless]) && begin[caseless..] == from[caseless..];
    let is_whole = match from.last() {
        Some(b'/') => from != b"/" || !names_server(value),
        _ if memchr::memchr2(b'?', b'#', from).is_some() => true,
        _ => rest.first().is_none_or(|next| b"/?#".contains(next)),
    };
    let rest = if from.ends_with(b"/") { &value[from.len() - 1..] } else { rest };
    (is_same && is_whole).then_some(rest)
}

/// Whether a URL without a scheme names a server: `//host`. Browsers take `\` for a slash too, and skip tabs.
fn names_server(url: &[u8]) -> bool {
    let mut bytes = url.iter().filter(|byte| **byte != b'\t');
    let mut is_slash = || bytes.next().is_some_and(|byte| b"/\\".contains(byte));
    is_slash() && is_slash()
}

/// End of scheme and authority in a URL, or in its beginning.
fn authority_end(url: &[u8]) -> usize {
    let is_end = |byte: &u8| b"/?#".contains(byte);
    let scheme_end = url.iter().position(|byte| *byte == b':' || is_end(byte));
    let after_scheme = scheme_end.filter(|at| url[*at] == b':').map_or(0, |at| at + 1);
    match url[after_scheme..].strip_prefix(b"//") {
        Some(rest) => after_scheme + 2 + rest.iter().position(is_end).unwrap_or(rest.len()),
        None => after_scheme,
    }
}

/// `Set-Cookie` with changed attributes (RFC 6265 section 4.1.1). Attributes that it lacks aren't added.
fn changed_cookie(change: &CookieChange, value: &[u8]) -> Option<Vec<u8>> {
    let mut parts = value.split(|byte| *byte == b';');
    let mut changed = parts.next()?.to_vec();
    for part in parts {
        let (name, old) = attribute(part);
        if let Some(domain) = &change.domain
            && name.eq_ignore_ascii_case(b"domain")
        {
            if !domain.is_empty() {
                changed.extend_from_slice(b"; Domain=");
                changed.extend_from_slice(domain.as_bytes());
            }
            continue;
        }
        let path = changed_prefix(&change.paths, old).filter(|_| name.eq_ignore_ascii_case(b"path"));
        match path {
            Some(path) => {
                changed.extend_from_slice(b"; Path=");
                changed.extend_from_slice(&path);
            }
            None => {
                changed.push(b';');
                changed.extend_from_slice(part);
            }
        }
    }
    (changed != value).then_some(changed)
}

/// Adds a request field that a response depends on to its `Vary`.
pub(crate) fn nominate(name: &str, fields: &mut PackedFields) {
    let is_listed = |member: &[u8]| member == b"*" || member.eq_ignore_ascii_case(name.as_bytes());
    if !caching::fields::members(&fields.to_lines(), "vary").any(is_listed) {
        fields.append_to_list("vary", &[name.as_bytes()]);
    }
}

fn attribute(part: &[u8]) -> (&[u8], &[u8]) {
    let at = memchr::memchr(b'=', part).unwrap_or(part.len());
    (part[..at].trim_ascii(), part.get(at + 1..).unwrap_or_default().trim_ascii())
}

/// Changes that a rule makes, as text.
pub(crate) fn changes(rule: &TransformRule) -> Vec<Change> {
    rule.actions.iter().map(described).collect()
}

fn described(action: &Action) -> Change {
    match action {
        Action::Copy { from, to } => ("copy", format!("{from} to {to}")),
        Action::Remove(name) => ("remove", name.to_string()),
        Action::Set(name, template) => ("set", named(name.as_str(), template)),
        Action::Add(name, template) => ("add", named(name.as_str(), template)),
        Action::CacheControl(_) => ("set", "cache-control by status".to_owned()),
        Action::Location(_) => ("rewrite", "location, content-location".to_owned()),
        Action::Cookies(_) => ("rewrite", "set-cookie".to_owned()),
        Action::Rewrite(_) => ("rewrite", "path and query".to_owned()),
        Action::Redirect(redirect) => ("redirect", redirect.status.to_string()),
    }
}

/// Field with its value, unless that may be a secret.
fn named(name: &str, template: &Template) -> String {
    match sharing::is_credential(name) || name == "set-cookie" {
        true => format!("{name}: (hidden)"),
        false => format!("{name}: {template}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_change_at_whole_segments() {
        let check = |from: &str, to: &str, value: &str, expected: Option<&str>| {
            let change = PrefixChange { from: from.to_owned(), to: to.to_owned() };
            let found = changed_prefix(&[change], value.as_bytes());
            let found = found.map(|value| String::from_utf8(value).unwrap());
            assert_eq!(found.as_deref(), expected, "{from} to {to}: {value:?}");
        };
        for (value, expected) in [
            ("/app", Some("/")),
            ("/app/", Some("/")),
            ("/app/x", Some("/x")),
            ("/app?x", Some("/?x")),
            ("/app#x", Some("/#x")),
            ("/app/evil.example", Some("/evil.example")),
            ("/apple", None),
            ("/app//evil.example", None),
            ("/app/\\evil.example", None),
            ("/app/\t/evil.example", None),
            ("/x", None),
        ] {
            check("/app", "/", value, expected);
        }
        check("/app", "", "/app/x", Some("/x"));
        check("/app", "", "/app//x", None);
        check("/app/", "/base", "/app/x", Some("/base/x"));
        check("/app/", "/base/", "/app/x", Some("/base/x"));
        check("/app/", "/base/", "/app", None);
        check("/app", "/base/", "/app/x", Some("/base/x"));
        check("/app", "/base", "/app//x", Some("/base//x"));
        check("/", "/base/", "/x", Some("/base/x"));
        check("/", "/base", "/", Some("/base/"));
        for other in ["//evil.example", "/\\evil.example", "\\/evil.example", "/\t/evil.example"] {
            check("/", "/base/", other, None);
        }
        check("/", "//own.example/", "/x", Some("//own.example/x"));
        check("http://in.example", "", "http://in.example//evil.example", None);
        check("http://in.example", "https://a.example/", "HTTP://In.example/x", Some("https://a.example/x"));
        check("http://in.example/", "https://a.example", "http://in.example/x", Some("https://a.example/x"));
        check("http://in.example", "https://a.example", "http://in.example:80/", None);
        check("/a?b=", "/c?b=", "/a?b=1", Some("/c?b=1"));
    }

    #[test]
    fn the_path_of_a_cookie_stays_on_its_server() {
        let paths = vec![PrefixChange { from: "/app".to_owned(), to: "/".to_owned() }];
        let change = CookieChange { domain: None, paths };
        let check = |value: &str, expected: Option<&str>| {
            let found = changed_cookie(&change, value.as_bytes());
            let found = found.map(|value| String::from_utf8(value).unwrap());
            assert_eq!(found.as_deref(), expected, "{value}");
        };
        check("a=1; Path=/app/x; Secure", Some("a=1; Path=/x; Secure"));
        check("a=1; Path=/app", Some("a=1; Path=/"));
        check("a=1; Path=/app//x", None);
        check("a=1; Path=/apple", None);
    }
}
