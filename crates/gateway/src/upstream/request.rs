//! Requests to an origin: what is asked for, and the head as either protocol sends it.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::Scheme;
use http1::encode;
use smallvec::SmallVec;

use super::binding::Binding;
use super::error::OriginError;
use super::request_body::RequestBody;
use crate::client::Client;
use crate::config::OriginConfig;
use crate::message::fields::PackedFields;

/// One request to forward.
#[derive(Debug)]
pub struct OriginRequest {
    /// Method.
    pub method: http::Method,
    /// Path and query in origin form, or `*`. The origin's base path is put before it.
    pub path_and_query: String,
    /// `Host` or `:authority`, unless the origin overrides it.
    pub authority: HeaderValue,
    /// `:scheme`.
    pub scheme: Scheme,
    /// End-to-end fields only: the caller has removed those that belong to the client's connection.
    /// Framing fields and `Host` in here are ignored. Names are sent as they are.
    pub(crate) fields: PackedFields,
    /// Content.
    pub body: RequestBody,
    /// Whether trailers of the response can be used (`TE: trailers`).
    pub accepts_trailers: bool,
    /// Protocol to upgrade to. Asks for an HTTP/1.1 connection.
    pub upgrade: Option<HeaderValue>,
    /// Whom it is counted for; absent: nobody in particular.
    pub(crate) client: Option<Client>,
}

/// Everything of a request but its body, with the origin's settings applied; sent once or twice.
#[derive(Debug)]
pub(super) struct RequestHead {
    pub(super) method: http::Method,
    /// Of [`is_target`].
    pub(super) target: String,
    pub(super) authority: HeaderValue,
    pub(super) scheme: Scheme,
    pub(super) upgrade: Option<HeaderValue>,
    /// Without `Host`.
    fields: PackedFields,
    pub(super) framing: RequestFraming,
    pub(super) binding: Binding,
    accepts_trailers: bool,
}

/// How the request body's end is told.
#[derive(Clone, Copy, Debug)]
pub(super) enum RequestFraming {
    Bodyless,
    Length(u64),
    Unknown,
}

/// Fields that belong to one connection, framing and `Host`, which we write ourselves.
const OWN_FIELDS: [&str; 6] = ["host", "content-length", "transfer-encoding", "connection", "upgrade", "te"];

impl RequestHead {
    pub(super) fn new(
        config: &OriginConfig,
        request: OriginRequest,
    ) -> Result<(Self, RequestBody), OriginError> {
        let OriginRequest { method, path_and_query, authority, scheme, fields, body, .. } = request;
        let authority = config.host_override.clone().unwrap_or(authority);
        let fields = own_fields_applied(config, fields);
        let head = Self {
            binding: Binding::of_request(&fields),
            target: target(&config.base_path, path_and_query)?,
            framing: request_framing(&method, &body),
            method,
            scheme,
            upgrade: request.upgrade,
            fields,
            authority,
            accepts_trailers: request.accepts_trailers,
        };
        Ok((head, body))
    }

    /// Appends the head as HTTP/1.1 sends it.
    //= RFC 9112 section 3: request-line = method SP request-target SP HTTP-version
    pub(super) fn write_http1(&self, out: &mut Vec<u8>, connection: KeepAlive) {
        for part in [self.method.as_str(), " ", &self.target, " HTTP/1.1\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
        //= RFC 9112 section 3.2: Host is the first field
        write_line(out, "host", self.authority.as_bytes());
        out.extend_from_slice(self.fields.view().wire());
        match self.framing {
            RequestFraming::Bodyless => {}
            RequestFraming::Length(length) => encode::write_field_number(out, "content-length", length),
            RequestFraming::Unknown => write_line(out, "transfer-encoding", b"chunked"),
        }
        self.write_connection_options(out, connection);
        encode::end_head(out);
    }

    fn write_connection_options(&self, out: &mut Vec<u8>, connection: KeepAlive) {
        let mut options: SmallVec<[&[u8]; 3]> = SmallVec::new();
        if let Some(protocol) = &self.upgrade {
            write_line(out, "upgrade", protocol.as_bytes());
            options.push(b"upgrade");
        }
        if self.accepts_trailers {
            //= RFC 9110 section 10.1.4: TE needs the TE connection option
            write_line(out, "te", b"trailers");
            options.push(b"TE");
        }
        if connection == KeepAlive::Off {
            options.push(b"close");
        }
        if !options.is_empty() {
            write_line(out, "connection", &options.join(&b", "[..]));
        }
    }

    /// The names in `Trailer`.
    //= RFC 9110 section 6.6.2: Trailer names what may come
    pub(super) fn announced_trailers(&self) -> Vec<HeaderName> {
        let names = self.fields.values("trailer").flat_map(http1::elements);
        names.filter_map(|name| HeaderName::from_bytes(name).ok()).collect()
    }

    /// The header section as HTTP/2 sends it: no connection-specific fields (RFC 9113 section 8.2.2).
    pub(super) fn http2_fields(&self) -> HeaderMap {
        let mut fields = HeaderMap::with_capacity(self.fields.len() + 2);
        for (name, value) in self.fields.lines() {
            if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_bytes(value)) {
                fields.append(name, value);
            }
        }
        if let RequestFraming::Length(length) = self.framing {
            fields.insert(header::CONTENT_LENGTH, length.into());
        }
        if self.accepts_trailers {
            fields.insert(header::TE, HeaderValue::from_static("trailers"));
        }
        fields
    }
}

/// Whether an HTTP/1 connection is to be kept after the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeepAlive {
    Off,
    On,
}

fn own_fields_applied(config: &OriginConfig, mut fields: PackedFields) -> PackedFields {
    let is_own = |name: &[u8]| {
        // The lengths of those.
        let may_be = matches!(name.len(), 2 | 4 | 7 | 10 | 14 | 17);
        may_be && OWN_FIELDS.iter().any(|own| own.as_bytes().eq_ignore_ascii_case(name))
            || config.credentials.is_some() && name.eq_ignore_ascii_case(b"authorization")
    };
    let is_fixed = |name: &[u8]| {
        config.fixed_fields.iter().any(|(fixed, _)| fixed.as_str().as_bytes().eq_ignore_ascii_case(name))
    };
    // Hardly ever: what forwards has left out its own.
    if fields.has_any(|name| is_own(name) || is_fixed(name)) {
        fields.retain(|name| !is_own(name) && !is_fixed(name));
    }
    for (name, value) in config.fixed_fields.iter().filter(|(name, _)| !is_own(name.as_str().as_bytes())) {
        fields.push(name.as_str(), value.as_bytes());
    }
    if let Some(credentials) = &config.credentials {
        fields.push("authorization", credentials.0.as_bytes());
    }
    fields
}

fn request_framing(method: &http::Method, body: &RequestBody) -> RequestFraming {
    let expects_content = ["POST", "PUT", "PATCH", "QUERY"].iter().any(|known| *known == method.as_str());
    match body {
        //= RFC 9110 section 8.6: Content-Length 0 where the method gives content a meaning
        RequestBody::Empty if expects_content => RequestFraming::Length(0),
        RequestBody::Empty => RequestFraming::Bodyless,
        RequestBody::Full(_) | RequestBody::Channel(_) => {
            body.length_bytes().map_or(RequestFraming::Unknown, RequestFraming::Length)
        }
    }
}

/// The target to send.
fn target(base_path: &str, path_and_query: String) -> Result<String, OriginError> {
    let full = match path_and_query.as_str() {
        _ if base_path.is_empty() => path_and_query,
        "*" => path_and_query,
        path if path.starts_with('/') => format!("{base_path}{path}"),
        query => format!("{base_path}/{query}"),
    };
    if is_target(&full) { Ok(full) } else { Err(OriginError::invalid_request("characters in the target")) }
}

/// Whether this can be sent as a target: a path with or without a query, or `*`, and no byte that ends it early for
/// somebody, a fragment among them.
fn is_target(target: &str) -> bool {
    let can_stand = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'#' | b'<' | b'>');
    if target == "*" {
        return true;
    }
    if !target.starts_with('/') || !target.bytes().all(can_stand) {
        return false;
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    !path.contains('`') && !query.contains('"')
}

/// Appends a line whose parts have been looked at.
fn write_line(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    for part in [name.as_bytes(), b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}
