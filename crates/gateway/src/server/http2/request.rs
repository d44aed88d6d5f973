//! The head of an HTTP/2 request in the form shared by both protocols.
//!
//! `h2` has already refused malformed messages: upper-case names, connection-specific fields, `TE` other than `trailers`, pseudo-fields
//! that are unknown, repeated or out of place, a `Content-Length` that the data doesn't match. Anything else that an HTTP/1 hop behind
//! this one could interpret differently is refused here.

use caching::{FieldLine, target};
use http::header::{self, HeaderMap};
use http::{Method, Request};
use http1::{Authority, is_field_value};
use message::head::{ClientEnd, Content, Nominations, RequestHead, Scheme, Version};
use smallvec::SmallVec;

use crate::config::{ClientLimits, Config};
use crate::request::respond::Problem;
use crate::rewrite::reading;

/// Whether frames with content follow the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    HeadOnly,
    BodyFollows,
}

/// Field lines; most requests need no allocation for them.
pub(super) type Lines<'a> = SmallVec<[FieldLine<'a>; 16]>;

/// Joins several crumbs of `Cookie` into one line.
//= RFC 9113 section 8.2.3: cookie crumbs are joined before they reach anything but HTTP/2
pub(super) fn joined_cookies(fields: &HeaderMap) -> Option<Vec<u8>> {
    let mut crumbs = fields.get_all(header::COOKIE).iter();
    let (first, second) = (crumbs.next()?, crumbs.next()?);
    let mut joined = first.as_bytes().to_vec();
    for crumb in std::iter::once(second).chain(crumbs) {
        joined.extend_from_slice(b"; ");
        joined.extend_from_slice(crumb.as_bytes());
    }
    Some(joined)
}

/// Checks and returns the field lines. `cookies` replaces the lines that were joined into it. Limits apply to the head in HTTP/1.1
/// form, so that both protocols refuse the same requests.
pub(super) fn lines<'a, B>(
    request: &'a Request<B>,
    cookies: Option<&'a [u8]>,
    limits: &ClientLimits,
) -> Result<Lines<'a>, Problem> {
    let fields = request.headers();
    let mut lines = Lines::with_capacity(fields.len());
    let mut head_bytes = start_bytes(request);
    let mut add = |line: FieldLine<'a>| {
        head_bytes += line.0.len() + line.1.len() + ": \r\n".len();
        lines.push(line);
    };
    for (name, value) in fields {
        if cookies.is_some() && name == header::COOKIE {
            continue;
        }
        if !is_whole_value(value.as_bytes()) {
            return Err(Problem::new(400, "invalid-field-value", format!("the value of {name} is invalid")));
        }
        add((name.as_str(), value.as_bytes()));
    }
    if let Some(cookies) = cookies {
        add((header::COOKIE.as_str(), cookies));
    }
    // `:authority` becomes Host if the request has none.
    let count = lines.len() + usize::from(!fields.contains_key(header::HOST));
    if count > limits.fields_max {
        let detail = format!("more than {} field lines", limits.fields_max);
        return Err(Problem::new(431, "too-many-fields", detail));
    }
    if head_bytes > limits.head_bytes_max {
        let detail = format!("longer than {} bytes", limits.head_bytes_max);
        return Err(Problem::new(431, "head-too-large", detail));
    }
    Ok(lines)
}

/// Returns the size of the request line, the `Host` line and the end of the head in the HTTP/1.1 form of the request.
fn start_bytes<B>(request: &Request<B>) -> usize {
    let uri = request.uri();
    let target = uri.path_and_query().map_or(0, |target| target.as_str().len());
    let host = uri.authority().map_or(0, |authority| authority.as_str().len() + "host: \r\n".len());
    request.method().as_str().len() + target + host + "  HTTP/1.1\r\n\r\n".len()
}

//= RFC 9113 section 8.2.1: no CR, LF, NUL, and no whitespace at either end
fn is_whole_value(value: &[u8]) -> bool {
    is_field_value(value) && value.trim_ascii().len() == value.len()
}

/// Builds the request's head. `lines` are the field lines of the request, and `normal` is its target in normal form, if that differs.
pub(super) fn head<'a, B>(
    request: &'a Request<B>,
    (lines, normal): (&'a [FieldLine<'a>], Option<&'a str>),
    stage: Stage,
    client: &'a ClientEnd,
    config: &Config,
) -> Result<RequestHead<'a>, Problem> {
    check_method_and_scheme(request)?;
    let scheme = reading::scheme(client.peer, lines, &config.trusted_proxies);
    let path_and_query = path_and_query(request, &config.limits)?;
    let path_and_query = normal.unwrap_or(path_and_query);
    Ok(RequestHead {
        method: request.method().as_str(),
        scheme,
        authority: authority(request, scheme)?.as_str(),
        path_and_query,
        version: Version::Http2,
        fields: lines,
        //= RFC 9113 section 8.2.2: connection-specific fields are not sent
        nominations: Nominations::None,
        sent: None,
        keyed: &[],
        content: content(request.headers(), stage),
        upgrade: None,
        record: None,
        timeline: None,
        peer: client.peer,
        tls: client.tls.as_ref(),
    })
}

//= RFC 9112 section 3: a method longer than any implemented gets 501, a target longer than wished 414
//= RFC 9113 section 8.3.1: request pseudo-header fields
fn check_method_and_scheme<B>(request: &Request<B>) -> Result<(), Problem> {
    if request.method().as_str().len() > http1::METHOD_BYTES_MAX {
        return Err(Problem::new(501, "method-too-long", "the method is longer than any known method"));
    }
    // `http` drops the scheme of a request without an authority. A gateway supports only these two schemes.
    match request.uri().scheme_str() {
        None | Some("http" | "https") => Ok(()),
        Some(_) => Err(Problem::new(400, "unsupported-scheme", "the scheme is neither http nor https")),
    }
}

/// Returns the target of a request in normal form, or `None` if it is in that form already.
pub(super) fn normal_target<B>(request: &Request<B>) -> Option<String> {
    target::normal_form(request.uri().path_and_query()?.as_str())
}

/// Returns the checked target. It has no fragment: `http` removes it while parsing, for both the cache key and the origin.
fn path_and_query<'a, B>(request: &'a Request<B>, limits: &ClientLimits) -> Result<&'a str, Problem> {
    if request.method() == Method::CONNECT {
        return Err(Problem::new(405, "connect", "this server isn't a proxy"));
    }
    let target = request.uri().path_and_query().map_or("", http::uri::PathAndQuery::as_str);
    if target.len() > limits.target_bytes_max {
        return Err(Problem::new(
            414,
            "target-too-long",
            format!("longer than {} bytes", limits.target_bytes_max),
        ));
    }
    //= RFC 9113 section 8.3.1: :path starts with "/" or is "*" for OPTIONS
    let is_well_formed = match target {
        "*" => request.method() == Method::OPTIONS,
        path => path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic()),
    };
    if is_well_formed {
        Ok(target)
    } else {
        Err(Problem::new(400, "invalid-target", "the request target is invalid"))
    }
}

/// Returns the authority of the target, from `:authority` or else from `Host`. If the two differ, the request is refused, because another
/// hop may have used `Host`.
//= RFC 9113 section 8.3.1: a Host that differs from :authority is malformed, as is user information
fn authority<B>(request: &Request<B>, scheme: Scheme) -> Result<Authority<'_>, Problem> {
    let invalid = || Problem::new(400, "invalid-authority", "the authority of the request is invalid");
    let parse = |bytes| Authority::parse(bytes).ok_or_else(invalid);
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let host = hosts.next().map(|host| parse(host.as_bytes())).transpose()?;
    if hosts.next().is_some() {
        return Err(Problem::new(400, "duplicate-host", "the request has more than one Host field"));
    }
    let named =
        request.uri().authority().map(|authority| parse(authority.as_str().as_bytes())).transpose()?;
    match (named, host) {
        (Some(named), Some(host)) if !named.same_server(&host, Some(default_port(scheme))) => {
            Err(Problem::new(400, "host-mismatch", ":authority and Host name different servers"))
        }
        (Some(authority), _) | (None, Some(authority)) => Ok(authority),
        (None, None) => {
            Err(Problem::new(400, "missing-authority", "the request has neither :authority nor Host"))
        }
    }
}

fn default_port(scheme: Scheme) -> u16 {
    match scheme {
        Scheme::Http => 80,
        Scheme::Https => 443,
    }
}

fn content(fields: &HeaderMap, stage: Stage) -> Content {
    if stage == Stage::HeadOnly {
        return Content::None;
    }
    let length = fields.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    length.map_or(Content::Unknown, Content::Length)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::tests::{client, limits};
    use super::*;
    use crate::config::sample;

    fn problem_of(request: http::request::Builder) -> Result<String, (u16, &'static str)> {
        let request = request.body(()).unwrap();
        let cookies = joined_cookies(request.headers());
        let limits = ClientLimits { fields_max: 3, target_bytes_max: 20, ..limits() };
        let site = sample::site(([127, 0, 0, 1], 1).into());
        let config = sample::config(Arc::new(site), limits.clone());
        let refused = |problem: Problem| (problem.status, problem.reason);
        let lines = lines(&request, cookies.as_deref(), &limits).map_err(refused)?;
        let client = client();
        let target = (&lines[..], None);
        let head = head(&request, target, Stage::BodyFollows, &client, &config).map_err(refused)?;
        Ok(head.authority.to_owned())
    }

    fn request(method: &str, uri: &str, fields: &[(&str, &str)]) -> http::request::Builder {
        fields.iter().fold(Request::builder().method(method).uri(uri), |request, (name, value)| {
            request.header(*name, http::HeaderValue::from_bytes(value.as_bytes()).unwrap())
        })
    }

    //= RFC 9113 section 8.3.1: a Host that differs from :authority is malformed, as is user information
    //= RFC 9113 section 8.2.1: no CR, LF, NUL, and no whitespace at either end
    //= RFC 9113 section 8.3.1: :path starts with "/" or is "*" for OPTIONS
    #[test]
    fn heads_are_checked() {
        type Case<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], Result<&'a str, (u16, &'a str)>);
        let cases: [Case<'_>; 20] = [
            ("M234567890123456789012345678901", "http://a.example/x", &[], Ok("a.example")),
            ("M2345678901234567890123456789012345", "http://a.example/x", &[], Err((501, "method-too-long"))),
            ("GET", "http://a.example/x", &[], Ok("a.example")),
            ("GET", "/x", &[("host", "a.example")], Ok("a.example")),
            ("GET", "http://a.example/x", &[("host", "A.example:80")], Ok("a.example")),
            ("GET", "http://a.example/x", &[("host", "b.example")], Err((400, "host-mismatch"))),
            ("GET", "http://a.example/x", &[("host", "a.example:81")], Err((400, "host-mismatch"))),
            ("GET", "http://a.example/x", &[("host", "")], Err((400, "invalid-authority"))),
            ("GET", "/x", &[("host", "a"), ("host", "a")], Err((400, "duplicate-host"))),
            ("GET", "/x", &[], Err((400, "missing-authority"))),
            ("GET", "http://user@a.example/x", &[], Err((400, "invalid-authority"))),
            ("GET", "http://a,b/x", &[], Err((400, "invalid-authority"))),
            ("OPTIONS", "*", &[("host", "a.example")], Ok("a.example")),
            ("GET", "*", &[("host", "a.example")], Err((400, "invalid-target"))),
            ("GET", "http://a.example/\u{e9}", &[], Err((400, "invalid-target"))),
            ("GET", "http://a.example/01234567890123456789", &[], Err((414, "target-too-long"))),
            ("CONNECT", "a.example:443", &[], Err((405, "connect"))),
            (
                "GET",
                "http://a/",
                &[("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")],
                Err((431, "too-many-fields")),
            ),
            ("GET", "http://a/", &[("a", " 1")], Err((400, "invalid-field-value"))),
            ("GET", "http://a/", &[("a", "1\t")], Err((400, "invalid-field-value"))),
        ];
        for (method, uri, fields, expected) in cases {
            let found = problem_of(request(method, uri, fields));
            assert_eq!(found.as_deref().map_err(|problem| *problem), expected, "{method} {uri} {fields:?}");
        }
    }

    //= RFC 9113 section 8.2.3: cookie crumbs are joined before they reach anything but HTTP/2
    #[test]
    fn cookie_crumbs_become_one_line() {
        let cases: [(&[&str], Option<&[u8]>); 4] = [
            (&[], None),
            (&["a=1"], None),
            (&["a=1", "b=2"], Some(b"a=1; b=2")),
            (&["a", "b", "c"], Some(b"a; b; c")),
        ];
        for (crumbs, expected) in cases {
            let mut request = Request::new(());
            for crumb in crumbs {
                request.headers_mut().append(header::COOKIE, http::HeaderValue::from_str(crumb).unwrap());
            }
            let joined = joined_cookies(request.headers());
            assert_eq!(joined.as_deref(), expected);
            let lines = lines(&request, joined.as_deref(), &limits()).unwrap();
            assert_eq!(lines.len(), crumbs.len().min(1));
        }
    }
}
