//! Requests to an origin, and their head in either protocol.

use std::borrow::Cow;
use std::sync::Arc;

use caching::hop_by_hop;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::Scheme;
use http1::encode;
use message::client::Client;
use message::explain_record::Record;
use message::fields::PackedFields;
use message::timeline::Timeline;
use smallvec::SmallVec;

use super::circuit::Probe;
use super::error::OriginError;
use super::request_body::RequestBody;
use crate::settings::{Credentials, OriginConfig};

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
    /// End-to-end fields only: the caller has removed those that belong to the client's connection. Framing fields and `Host` in
    /// here are ignored. Names are sent unchanged.
    pub fields: PackedFields,
    /// Content.
    pub body: RequestBody,
    /// Whether trailers of the response can be used (`TE: trailers`).
    pub accepts_trailers: bool,
    /// Protocol to upgrade to. Requires an HTTP/1.1 connection.
    pub upgrade: Option<HeaderValue>,
    /// A hash of the cache key, for picking a server by key.
    pub key: u64,
    /// Client to which the request counts, if any.
    pub client: Option<Client>,
    /// Records the time in the queue.
    pub timeline: Option<Arc<Timeline>>,
    /// Records decisions, for `larder explain`.
    pub record: Option<Arc<Record>>,
    /// Permission of the circuit breaker; if absent, it is requested when the request is sent.
    pub probe: Option<Probe>,
}

/// The head of a request as one attempt sends it: the request with the origin's policy applied. The target is copied only if it
/// gets a base path.
#[derive(Debug)]
pub(super) struct RequestHead<'a> {
    pub(super) request: &'a OriginRequest,
    pub(super) target: Cow<'a, str>,
    pub(super) authority: &'a HeaderValue,
    pub(super) framing: RequestFraming,
    pub(super) binding: Binding,
    /// Whether some fields of the request are left out, because the policy replaces them or the gateway writes them.
    is_filtered: bool,
    policy: &'a OriginConfig,
}

/// Framing of the request body.
#[derive(Clone, Copy, Debug)]
pub(super) enum RequestFraming {
    Bodyless,
    Length(u64),
    Unknown,
}

/// Checks that a request can be sent, and separates its body. Each attempt makes its own head from the unchanged request.
pub(super) fn accepted(
    policy: &OriginConfig,
    mut request: OriginRequest,
) -> Result<(Box<OriginRequest>, RequestBody), OriginError> {
    if !is_target(&policy.base_path, &request.path_and_query) {
        return Err(OriginError::invalid_request("characters in the target"));
    }
    let body = std::mem::replace(&mut request.body, RequestBody::Empty);
    Ok((Box::new(request), body))
}

impl<'a> RequestHead<'a> {
    /// Makes the head of an attempt. `body` is the content left to send: its length may have become known since the request
    /// arrived.
    pub(super) fn new(policy: &'a OriginConfig, request: &'a OriginRequest, body: &RequestBody) -> Self {
        let mut head = Self {
            request,
            target: target(&policy.base_path, &request.path_and_query),
            authority: policy.host_override.as_ref().unwrap_or(&request.authority),
            framing: request_framing(&request.method, body),
            binding: Binding::None,
            // This is rare, because the caller leaves such fields out.
            is_filtered: request.fields.has_any(|name| is_replaced(policy, name)),
            policy,
        };
        head.binding = Binding::of_request(head.values("authorization"));
        head
    }

    /// Iterates over all fields except `Host`.
    fn lines(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let given = self.request.fields.lines();
        given
            .filter(|(name, _)| !(self.is_filtered && is_replaced(self.policy, name.as_bytes())))
            .chain(self.set_lines())
    }

    fn values(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.lines().filter(move |(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Iterates over the fields that the policy sets, in place of the client's.
    fn set_lines(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let policy = self.policy;
        let fixed = policy.fixed_fields.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let fixed = fixed.filter(|(name, _)| !is_own(policy, name.as_bytes()));
        let credentials =
            policy.credentials.iter().map(|Credentials(value)| ("authorization", value.as_bytes()));
        fixed.chain(credentials)
    }

    /// Appends the head in HTTP/1.1 form.
    //= RFC 9112 section 3: request-line = method SP request-target SP HTTP-version
    pub(super) fn write_http1(&self, out: &mut Vec<u8>, connection: KeepAlive) {
        for part in [self.request.method.as_str(), " ", &self.target, " HTTP/1.1\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
        //= RFC 9112 section 3.2: Host is the first field
        write_line(out, "host", self.authority.as_bytes());
        if self.is_filtered {
            self.lines().for_each(|(name, value)| write_line(out, name, value));
        } else {
            out.extend_from_slice(self.request.fields.view().wire());
            self.set_lines().for_each(|(name, value)| write_line(out, name, value));
        }
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
        if let Some(protocol) = &self.request.upgrade {
            write_line(out, "upgrade", protocol.as_bytes());
            options.push(b"upgrade");
        }
        if self.request.accepts_trailers {
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

    /// Returns the names in `Trailer`.
    //= RFC 9110 section 6.6.2: Trailer names what may come
    pub(super) fn announced_trailers(&self) -> Vec<HeaderName> {
        let names = self.values("trailer").flat_map(http1::elements);
        names.filter_map(|name| HeaderName::from_bytes(name).ok()).collect()
    }

    /// Returns the header section in HTTP/2 form: no connection-specific fields (RFC 9113 section 8.2.2).
    pub(super) fn http2_fields(&self) -> HeaderMap {
        let mut fields = HeaderMap::with_capacity(self.request.fields.len() + 2);
        for (name, value) in self.lines() {
            if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_bytes(value)) {
                fields.append(name, value);
            }
        }
        if let RequestFraming::Length(length) = self.framing {
            fields.insert(header::CONTENT_LENGTH, length.into());
        }
        if self.request.accepts_trailers {
            fields.insert(header::TE, HeaderValue::from_static("trailers"));
        }
        fields
    }
}

/// Whether an HTTP/1 connection is kept after the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeepAlive {
    Off,
    On,
}

/// Returns whether the gateway alone writes fields of this name.
fn is_own(policy: &OriginConfig, name: &[u8]) -> bool {
    hop_by_hop::is_connection_specific(name)
        || hop_by_hop::is_written_by_sender(name)
        || policy.credentials.is_some() && name.eq_ignore_ascii_case(b"authorization")
}

/// Returns whether the client's fields of this name are left out.
fn is_replaced(policy: &OriginConfig, name: &[u8]) -> bool {
    let is_fixed =
        |(fixed, _): &(HeaderName, HeaderValue)| fixed.as_str().as_bytes().eq_ignore_ascii_case(name);
    is_own(policy, name) || policy.fixed_fields.iter().any(is_fixed)
}

fn request_framing(method: &http::Method, body: &RequestBody) -> RequestFraming {
    let expects_content = ["POST", "PUT", "PATCH", "QUERY"].iter().any(|known| *known == method.as_str());
    match body.length_bytes() {
        //= RFC 9110 section 8.6: Content-Length 0 where the method gives content a meaning
        Some(0) if !expects_content => RequestFraming::Bodyless,
        Some(bytes) => RequestFraming::Length(bytes),
        None => RequestFraming::Unknown,
    }
}

/// Returns the target to send.
fn target<'a>(base_path: &str, path_and_query: &'a str) -> Cow<'a, str> {
    match path_and_query {
        target if base_path.is_empty() || target == "*" => target.into(),
        path if path.starts_with('/') => format!("{base_path}{path}").into(),
        query => format!("{base_path}/{query}").into(),
    }
}

/// Returns whether this can be sent as a target: a path with or without a query, or `*`, without bytes that some recipients treat
/// as its end, such as the `#` of a fragment.
fn is_target(base_path: &str, path_and_query: &str) -> bool {
    let can_stand = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'#' | b'<' | b'>');
    if path_and_query == "*" {
        return true;
    }
    let begins_with_a_slash = path_and_query.starts_with('/') || !base_path.is_empty();
    if !begins_with_a_slash || !base_path.bytes().chain(path_and_query.bytes()).all(can_stand) {
        return false;
    }
    let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
    !base_path.contains('`') && !path.contains('`') && !query.contains('"')
}

/// Appends a line whose parts are known to be valid.
fn write_line(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    for part in [name.as_bytes(), b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// Owner of a connection after an exchange.
///
/// With NTLM and Negotiate (RFC 4559) an origin server attributes all requests on a connection to the user who once authenticated
/// there, although HTTP requests are independent. Such a connection belongs to that user: no other request is sent on it, not
/// even the user's own next request. So a handshake of several requests (always with NTLM) can't succeed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binding {
    /// No owner: any exchange may use the connection.
    None,
    /// Only this exchange may use the connection.
    Exchange,
}

impl Binding {
    /// Returns the binding that the `Authorization` values of a request cause.
    //= RFC 9110 section 11.6.2: Authorization stays as it is
    pub(super) fn of_request<'a>(mut credentials: impl Iterator<Item = &'a [u8]>) -> Self {
        Self::if_any(credentials.any(is_bound))
    }

    /// Returns the binding that a response causes: a challenge may be half of a handshake, and `Persistent-Auth` describes the
    /// connection.
    pub(super) fn of_response(fields: &PackedFields) -> Self {
        let is_challenge = || fields.values("www-authenticate").flat_map(http1::elements).any(is_bound);
        Self::if_any(is_challenge() || fields.value("persistent-auth").is_some())
    }

    fn if_any(is_bound: bool) -> Self {
        if is_bound { Self::Exchange } else { Self::None }
    }
}

/// Returns whether credentials, or an element of a list of challenges, begin with a scheme that authenticates a connection.
fn is_bound(credentials: &[u8]) -> bool {
    let end = credentials.iter().position(u8::is_ascii_whitespace).unwrap_or(credentials.len());
    SCHEMES.iter().any(|scheme| scheme.as_bytes().eq_ignore_ascii_case(&credentials[..end]))
}

const SCHEMES: [&str; 5] = ["negotiate", "ntlm", "nego2", "kerberos", "credssp"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_of_connections() {
        let check = |name: &str, value: &str, expected: Binding| {
            let mut fields = PackedFields::default();
            fields.push(name, value.as_bytes());
            let bindings =
                [Binding::of_request(fields.values("authorization")), Binding::of_response(&fields)];
            assert_eq!(
                bindings.contains(&Binding::Exchange),
                expected == Binding::Exchange,
                "{name}: {value}"
            );
        };
        for value in ["NTLM", "ntlm TlRMTVNTUAAB", "Negotiate YII=", "NEGOTIATE", "Nego2 a", "Kerberos\ta"] {
            check("authorization", value, Binding::Exchange);
            check("www-authenticate", value, Binding::Exchange);
            check("www-authenticate", &format!("Basic realm=\"a\", {value}"), Binding::Exchange);
            check("x-authorization", value, Binding::None);
        }
        for value in ["", "Basic bnRsbQ==", "Bearer NTLM", "Digest realm=NTLM", "NTLMv2 a", "Negotiated"] {
            check("authorization", value, Binding::None);
            check("www-authenticate", value, Binding::None);
        }
        check("persistent-auth", "true", Binding::Exchange);
    }
}
