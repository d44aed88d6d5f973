//! The bytes of a request, prepared once and sent many times.

use super::LoadError;
use super::load::{HttpLoad, Protocol, Reuse, Target};
use super::response::Body;

#[derive(Clone, Debug)]
pub(super) struct Prepared {
    /// HTTP/1.1: the whole request.
    pub(super) bytes: Vec<u8>,
    /// HTTP/2: the request without its content.
    pub(super) request: Option<http::Request<()>>,
    /// HTTP/2: its content.
    pub(super) payload: bytes::Bytes,
    /// Whether the answer has a body.
    pub(super) body: Body,
    /// The expected status. `None` accepts any.
    pub(super) status: Option<u16>,
    /// Index of its figures.
    pub(super) figure: usize,
}

/// Prepares the bytes.
pub(super) fn request(target: &Target, load: &HttpLoad, figure: usize) -> Result<Prepared, LoadError> {
    check(target)?;
    let body = if target.method == "HEAD" { Body::Never } else { Body::AsFramed };
    let mut prepared = Prepared {
        bytes: Vec::new(),
        request: None,
        payload: bytes::Bytes::new(),
        body,
        status: target.status,
        figure,
    };
    match load.protocol {
        Protocol::Http1 { .. } => {
            prepared.bytes = [head(target, load.reuse).as_bytes(), &target.body].concat();
        }
        Protocol::Http2 { .. } => {
            prepared.request = Some(h2_request(target)?);
            prepared.payload = target.body.clone();
        }
    }
    Ok(prepared)
}

fn head(target: &Target, reuse: Reuse) -> String {
    let mut head = format!("{} {} HTTP/1.1\r\n", target.method, target.url.path);
    if !has_field(target, "host") {
        head += &format!("Host: {}\r\n", target.url.authority());
    }
    for (name, value) in &target.fields {
        head += &format!("{name}: {value}\r\n");
    }
    if let Some(length) = content_length(target) {
        head += &format!("Content-Length: {length}\r\n");
    }
    if reuse == Reuse::OnePerRequest {
        head += "Connection: close\r\n";
    }
    head + "\r\n"
}

fn h2_request(target: &Target) -> Result<http::Request<()>, LoadError> {
    let is_host = |name: &str| name.eq_ignore_ascii_case("host");
    let host = target.fields.iter().find(|(name, _)| is_host(name));
    let authority = host.map_or_else(|| target.url.authority(), |(_, value)| value.clone());
    let uri = http::Uri::builder().scheme(target.url.scheme.name()).authority(authority);
    let uri = uri.path_and_query(target.url.path.as_str()).build();
    let mut request = http::Request::builder().method(target.method.as_str());
    request = request.uri(uri.map_err(|error| LoadError::Settings(error.to_string()))?);
    for (name, value) in target.fields.iter().filter(|(name, _)| !is_host(name)) {
        request = request.header(name, value);
    }
    if let Some(length) = content_length(target) {
        request = request.header("content-length", length);
    }
    request.body(()).map_err(|error| LoadError::Settings(error.to_string()))
}

/// Length of the content. `None` if the method usually has no content.
fn content_length(target: &Target) -> Option<usize> {
    let is_usual = !target.body.is_empty() || matches!(target.method.as_str(), "POST" | "PUT" | "PATCH");
    (is_usual && !has_field(target, "content-length")).then_some(target.body.len())
}

fn has_field(target: &Target, name: &str) -> bool {
    target.fields.iter().any(|(field, _)| field.eq_ignore_ascii_case(name))
}

/// Refuses requests that would break the framing, or have an ambiguous meaning.
fn check(target: &Target) -> Result<(), LoadError> {
    let wrong = |what: String| Err(LoadError::Settings(what));
    if http::Method::from_bytes(target.method.as_bytes()).is_err() {
        return wrong(format!("{:?} isn't a method", target.method));
    }
    if target.method == "CONNECT" {
        return wrong("CONNECT opens a tunnel, which can't be measured".into());
    }
    for (name, value) in &target.fields {
        if http::HeaderName::from_bytes(name.as_bytes()).is_err() {
            return wrong(format!("{name:?} isn't a field name"));
        }
        if http::HeaderValue::from_str(value).is_err() {
            return wrong(format!("{value:?} isn't a value of the field {name}"));
        }
        if ["transfer-encoding", "connection", "upgrade", "expect"].contains(&&*name.to_ascii_lowercase()) {
            return wrong(format!("the field {name} is set by the load, because it determines the framing"));
        }
    }
    Ok(())
}
