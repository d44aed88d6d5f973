//! Cross-origin resource sharing (Fetch): decides which other web origins may read the responses of a site. The functions are pure.
//!
//! The gateway itself answers preflights. Other responses, stored or not, get the CORS fields when they are delivered, so that the
//! fields for one web origin are never stored for another. `Vary: Origin` has the same effect on caches closer to the client.

use caching::{FieldLine, fields};
use message::fields::PackedFields;

use super::rules::nominate;
use crate::config::{Cors, CorsHeaders, CorsOrigins, Sharing};

/// Returns whether a request is a preflight, by its method and fields.
pub(crate) fn is_preflight(method: &str, lines: &[FieldLine<'_>]) -> bool {
    method == "OPTIONS"
        && ["origin", "access-control-request-method"].iter().all(|name| fields::contains(lines, name))
}

/// Returns the fields of the response to a preflight.
pub(crate) fn preflight(cors: &Cors, lines: &[FieldLine<'_>]) -> PackedFields {
    let mut out = PackedFields::with_capacity(6);
    out.push("vary", b"Origin, Access-Control-Request-Method, Access-Control-Request-Headers");
    if !write_origin(cors, lines, &mut out) {
        return out;
    }
    out.push("access-control-allow-methods", cors.methods.join(", ").as_bytes());
    let asked = fields::first(lines, "access-control-request-headers");
    match (&cors.headers, asked) {
        (CorsHeaders::Any, Some(asked)) => out.push("access-control-allow-headers", asked),
        (CorsHeaders::Only(names), Some(_)) if !names.is_empty() => {
            out.push("access-control-allow-headers", names.join(", ").as_bytes());
        }
        _ => {}
    }
    if let Some(max_age_s) = cors.max_age_s {
        out.push("access-control-max-age", itoa::Buffer::new().format(max_age_s).as_bytes());
    }
    out
}

/// Replaces the CORS fields of the origin by those of the site.
pub(crate) fn lay_over(cors: &Cors, lines: &[FieldLine<'_>], out: &mut PackedFields) {
    out.retain(|name| !OF_RESPONSES.iter().any(|own| name.eq_ignore_ascii_case(own.as_bytes())));
    if is_told_apart(cors) {
        nominate("Origin", out);
    }
    if write_origin(cors, lines, out) && !cors.exposed.is_empty() {
        out.push("access-control-expose-headers", cors.exposed.join(", ").as_bytes());
    }
}

/// Returns whether the response depends on the requesting web origin.
fn is_told_apart(cors: &Cors) -> bool {
    !matches!((&cors.origins, cors.credentials), (CorsOrigins::Any, Sharing::Anonymous))
}

/// Writes the fields that allow the requesting web origin to read the response. Returns whether the web origin may read the
/// response.
fn write_origin(cors: &Cors, lines: &[FieldLine<'_>], out: &mut PackedFields) -> bool {
    let allowed: &[u8] = match &cors.origins {
        CorsOrigins::Any => b"*",
        CorsOrigins::Only(origins) => {
            let asking = fields::only(lines, "origin")
                .filter(|asking| origins.iter().any(|known| known.as_bytes() == *asking));
            let Some(asking) = asking else { return false };
            asking
        }
    };
    out.push("access-control-allow-origin", allowed);
    if cors.credentials == Sharing::WithCredentials {
        out.push("access-control-allow-credentials", b"true");
    }
    true
}

/// Fields that the site sets. The list includes preflight fields, because some origins send them in each response, and must not
/// override the site.
const OF_RESPONSES: [&str; 6] = [
    "access-control-allow-origin",
    "access-control-allow-credentials",
    "access-control-expose-headers",
    "access-control-allow-methods",
    "access-control-allow-headers",
    "access-control-max-age",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn cors(origins: CorsOrigins, credentials: Sharing) -> Cors {
        Cors {
            origins,
            methods: vec!["GET".to_owned(), "PUT".to_owned()],
            headers: CorsHeaders::Only(vec!["x-a".to_owned()]),
            credentials,
            max_age_s: Some(60),
            exposed: vec!["x-b".to_owned()],
        }
    }

    #[test]
    fn each_origin_gets_its_own_answer() {
        let one = || CorsOrigins::Only(vec!["https://a.example".to_owned()]);
        let check = |cors: &Cors, origin: &str, vary: Option<&str>, expected: &str| {
            let lines = [("Origin", origin.as_bytes())];
            let mut out =
                PackedFields::from_lines([("Access-Control-Allow-Origin", &b"https://old.example"[..])]);
            for name in ["Methods", "Headers"] {
                out.push(&format!("Access-Control-Allow-{name}"), b"*");
            }
            out.push("Access-Control-Max-Age", b"86400");
            vary.iter().for_each(|vary| out.push("Vary", vary.as_bytes()));
            lay_over(cors, &lines, &mut out);
            let found: Vec<_> = out
                .lines()
                .map(|(name, value)| {
                    format!(
                        "{}: {}",
                        name.to_lowercase().replace("access-control-", ""),
                        value.escape_ascii()
                    )
                })
                .collect();
            assert_eq!(found.join("; "), expected, "{origin} {vary:?}");
        };
        let only = cors(one(), Sharing::WithCredentials);
        let told = "allow-origin: https://a.example; allow-credentials: true; expose-headers: x-b";
        check(&only, "https://a.example", None, &format!("vary: Origin; {told}"));
        check(&only, "https://a.example", Some("Accept"), &format!("vary: Accept, Origin; {told}"));
        check(&only, "https://a.example", Some("origin"), &format!("vary: origin; {told}"));
        check(&only, "https://a.example.evil", None, "vary: Origin");
        check(&only, "null", None, "vary: Origin");
        let any = cors(CorsOrigins::Any, Sharing::Anonymous);
        check(&any, "https://b.example", None, "allow-origin: *; expose-headers: x-b");
    }
}
