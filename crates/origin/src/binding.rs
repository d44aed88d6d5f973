//! Credentials that count for a whole connection.
//!
//! With NTLM and Negotiate (RFC 4559) an origin server attributes all requests on a connection to the user who once authenticated
//! there, although HTTP requests stand alone. Such a connection belongs to that user: no other request is sent on it. The user's
//! own next request isn't either, so a handshake of several requests (always with NTLM) can't succeed here.

use http1::elements;
use message::fields::PackedFields;

/// Owner of a connection after an exchange.
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
        let is_challenge = || fields.values("www-authenticate").flat_map(elements).any(is_bound);
        Self::if_any(is_challenge() || fields.value("persistent-auth").is_some())
    }

    fn if_any(is_bound: bool) -> Self {
        if is_bound { Self::Exchange } else { Self::None }
    }
}

/// Whether credentials, or an element of a list of challenges, begin with a scheme that authenticates a connection.
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
