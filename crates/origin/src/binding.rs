//! Credentials that count for a whole connection.
//!
//! With NTLM and Negotiate (RFC 4559) an origin server takes what comes on a connection for the user who has once authenticated
//! there, whatever HTTP says about requests standing alone. Such a connection is that user's: nobody else's request goes
//! out on it. Its user's next one doesn't either, so a handshake of several requests (all of NTLM) can't succeed here.

use http1::elements;

use message::fields::PackedFields;

/// Whose a connection is after an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binding {
    /// Everybody's.
    None,
    /// That of the exchange alone.
    Exchange,
}

impl Binding {
    /// By the values of `Authorization` of a request.
    //= RFC 9110 section 11.6.2: Authorization stays as it is
    pub(super) fn of_request<'a>(mut credentials: impl Iterator<Item = &'a [u8]>) -> Self {
        Self::if_any(credentials.any(is_bound))
    }

    /// By the challenges of a response, one of which may be half of a handshake, or what its server says of the connection.
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
