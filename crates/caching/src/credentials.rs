//! Request fields that identify the user, by convention.

/// First letters of the names below. Most request fields, such as Host and User-Agent, begin with another letter.
const FIRST_LETTERS: u32 = bits_of(b"acdijoprstx");

const fn bits_of(letters: &[u8]) -> u32 {
    let (mut bits, mut at) = (0, 0);
    while at < letters.len() {
        bits |= bit_of(letters[at]);
        at += 1;
    }
    bits
}

/// Upper and lower case share a bit, as do some other characters: further names may pass this filter, but no credential
/// is missed.
const fn bit_of(letter: u8) -> u32 {
    1 << (letter & 0x1f)
}

/// Returns whether a field of this name identifies the user, by convention.
#[inline]
pub fn is_credential(name: &str) -> bool {
    let begins = |first: &u8| FIRST_LETTERS & bit_of(*first) != 0;
    name.as_bytes().first().is_some_and(begins) && is_known(name)
}

/// Returns whether the list contains this name. Length and first letter rule out most names that pass the filter.
fn is_known(name: &str) -> bool {
    let is_one_of = |known: &[&str]| known.iter().any(|known| name.eq_ignore_ascii_case(known));
    let is_such = match (name.len(), name.as_bytes().first().map_or(0, |first| first | 0x20)) {
        (4, b'd') => is_one_of(&["dpop"]),
        (5, b't') => is_one_of(&["token"]),
        (6, b'a') => is_one_of(&["apikey"]),
        (6, b'c') => is_one_of(&["cookie"]),
        (6, b'x') => is_one_of(&["x-auth"]),
        (7, b'a') => is_one_of(&["api-key"]),
        (7, b'c') => is_one_of(&["cookie2"]),
        (8, b'x') => is_one_of(&["x-apikey"]),
        (9, b'a') => is_one_of(&["api-token"]),
        (9, b'j') => is_one_of(&["job-token"]),
        (9, b'x') => is_one_of(&["x-api-key"]),
        (10, b'a') => is_one_of(&["auth-token"]),
        (10, b'x') => is_one_of(&["x-auth-key", "x-id-token"]),
        (11, b'r') => is_one_of(&["remote-user", "remote-name"]),
        (11, b'x') => is_one_of(&["x-auth-user", "x-api-token", "x-jwt-token"]),
        (12, b'a') => is_one_of(&["access-token"]),
        (12, b'c') => is_one_of(&["circle-token"]),
        (12, b'r') => is_one_of(&["remote-email"]),
        (12, b'x') => {
            is_one_of(&["x-auth-token", "x-auth-email", "x-access-key", "x-vouch-user", "x-plex-token"])
        }
        (13, b'a') => is_one_of(&["authorization"]),
        (13, b'p') => is_one_of(&["private-token"]),
        (13, b'r') => is_one_of(&["remote-groups"]),
        (13, b'x') => is_one_of(&["x-remote-user", "x-vault-token"]),
        (14, b'x') => is_one_of(&["x-access-token", "x-gitlab-token", "x-webauth-user", "x-goog-api-key"]),
        (15, b'x') => is_one_of(&[
            "x-session-token",
            "x-authorization",
            "x-jwt-assertion",
            "x-functions-key",
            "x-subject-token",
        ]),
        (16, b'i') => is_one_of(&["impersonate-user"]),
        (16, b'x') => is_one_of(&["x-hasura-user-id"]),
        (17, b'x') => is_one_of(&["x-redmine-api-key"]),
        (19, b'p') => is_one_of(&["proxy-authorization"]),
        (19, b'x') => is_one_of(&["x-consumer-username"]),
        (20, b't') => is_one_of(&["tailscale-user-login"]),
        (20, b'x') => is_one_of(&["x-amz-security-token", "x-authentik-username"]),
        (21, b'x') => is_one_of(&["x-hasura-admin-secret"]),
        (22, b'x') => is_one_of(&["x-shopify-access-token"]),
        (23, b'c') => is_one_of(&["cf-access-jwt-assertion", "cf-access-client-secret"]),
        (23, b'x') => is_one_of(&["x-endpoint-api-userinfo"]),
        (24, b'x') => is_one_of(&["x-goog-iap-jwt-assertion", "x-pomerium-jwt-assertion"]),
        (25, b'o') => is_one_of(&["ocp-apim-subscription-key"]),
        (25, b'x') => is_one_of(&["x-apigateway-api-userinfo"]),
        _ => false,
    };
    is_such || is_of_family(name)
}

/// Returns whether a field belongs to a family by which a proxy identifies its client: names of certificates and users.
/// Fields that report the verification of a certificate are sent for all clients, even those without one.
fn is_of_family(name: &str) -> bool {
    let begins =
        |known: &&str| name.get(..known.len()).is_some_and(|start| start.eq_ignore_ascii_case(known));
    let families: &[&str] = match name.as_bytes() {
        [b'x' | b'X', b'-', third, ..] => match third | 0x20 {
            b'a' => &["x-amzn-oidc-", "x-auth-request-"],
            b'c' => &["x-client-cert"],
            b'g' => &["x-goog-authenticated-user-"],
            b'm' => &["x-ms-client-principal", "x-ms-token-"],
            b's' => &["x-ssl-client-"],
            _ => &[],
        },
        [b'c' | b'C', b'l' | b'L', ..] => &["client-cert"],
        [b's' | b'S', b's' | b'S', ..] => &["ssl-client-"],
        _ => &[],
    };
    families.iter().any(begins) && !is_verdict(name)
}

fn is_verdict(name: &str) -> bool {
    let name = name.as_bytes();
    name.last_chunk::<7>().is_some_and(|end| end.eq_ignore_ascii_case(b"-verify"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_known_by_name() {
        for name in [
            "Cookie",
            "AUTHORIZATION",
            "X-API-Key",
            "api-key",
            "x-auth-token",
            "private-token",
            "x-access-token",
            "Proxy-Authorization",
            "X-SSL-Client-S-DN",
            "Client-Cert-Chain",
            "Token",
            "X-Pomerium-JWT-Assertion",
            "Tailscale-User-Login",
            "Remote-Groups",
            "Impersonate-User",
            "CF-Access-Client-Secret",
            "X-Hasura-User-Id",
        ] {
            assert!(is_credential(name), "{name}");
        }
        for name in [
            "cookie3",
            "accept",
            "x-api-kez",
            "x-ssl-clien",
            "X-SSL-Client-Verify",
            "x-client-ce\u{e4}",
            "authorizatiom",
            "content-type",
            "tokens",
            "x-csrf-token",
            "impersonate-group",
            "",
        ] {
            assert!(!is_credential(name), "{name}");
        }
    }

    /// Checks that every known name passes the filter.
    #[test]
    fn every_name_begins_with_one_of_the_letters() {
        const NAMES: &str = "\
            dpop token apikey cookie x-auth api-key cookie2 x-apikey api-token job-token x-api-key auth-token \
            x-auth-key x-id-token remote-user remote-name x-auth-user x-api-token x-jwt-token access-token \
            circle-token remote-email x-auth-token x-auth-email x-access-key x-vouch-user x-plex-token \
            authorization private-token remote-groups x-remote-user x-vault-token x-access-token x-gitlab-token \
            x-webauth-user x-goog-api-key x-session-token x-authorization x-jwt-assertion x-functions-key \
            x-subject-token impersonate-user x-hasura-user-id x-redmine-api-key proxy-authorization \
            x-consumer-username tailscale-user-login x-amz-security-token x-authentik-username \
            x-hasura-admin-secret x-shopify-access-token cf-access-jwt-assertion cf-access-client-secret \
            x-endpoint-api-userinfo x-goog-iap-jwt-assertion x-pomerium-jwt-assertion ocp-apim-subscription-key \
            x-apigateway-api-userinfo x-amzn-oidc-id x-auth-request-id x-client-cert \
            x-goog-authenticated-user-id x-ms-client-principal x-ms-token-id x-ssl-client-id client-cert \
            ssl-client-id";
        for name in NAMES.split(' ') {
            assert!(is_credential(name) && is_credential(&name.to_ascii_uppercase()), "{name}");
        }
    }
}
