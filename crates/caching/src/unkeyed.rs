//! Request fields by which a client can change a response although they aren't part of the cache key.
//!
//! The lists come from published attacks on caches ("Practical Web Cache Poisoning", "Web Cache Entanglement", "CPDoS",
//! the wordlist of Param Miner), from the documentation of content delivery networks, load balancers and application
//! platforms about the fields that they send to origins, and from the fields that servers and frameworks read: the
//! route of a request, the client's address and certificate, and replacements of method, host or target. WSGI replaces
//! `-` with `_`, and CGI every byte that is neither letter nor digit, so names that differ only in these bytes are
//! treated as equal.

use std::borrow::Cow;

use crate::hop_by_hop;

/// The effect of a request field on a shared response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldClass {
    /// No known effect: the field is forwarded, and a response that depends on it names it in `Vary`.
    Ordinary,
    /// Identifies the client. Only a trusted peer may send this field.
    Address,
    /// The scheme of the client's request, encoded in this form. Only a trusted peer may send this field.
    Scheme(SchemeForm),
    /// `X-Forwarded-Host`: the host of the client's request. Only a trusted peer may send this field.
    Host,
    /// `X-Forwarded-Port`: the port of the client's request. Only a trusted peer may send this field.
    Port,
    /// `X-Forwarded-For`, and `Forwarded` (RFC 7239), which contains all of these: the hops of the request. Only
    /// trusted peers may send these fields.
    Hops,
    /// Other facts about the route of the request or its response, or the client's certificate. Only a trusted peer may
    /// send this field.
    Way,
    /// Replaces the method; any client may send it.
    Method,
    /// Replaces host or target, or selects the part of a framework that answers.
    Override,
    /// `Proxy`: CGI programs mistake it for their setting `HTTP_PROXY`. No client has a reason to send it.
    Never,
}

/// How a field encodes the scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemeForm {
    /// `http` or `https`.
    Name,
    /// `on` for https.
    Switch,
}

impl SchemeForm {
    /// Returns whether a value means https; `None` if it means neither https nor http.
    pub fn is_https(self, value: &[u8]) -> Option<bool> {
        let is = |word: &str| value.eq_ignore_ascii_case(word.as_bytes());
        match self {
            Self::Name if is("https") => Some(true),
            Self::Name if is("http") => Some(false),
            Self::Switch if is("on") => Some(true),
            Self::Switch if is("off") => Some(false),
            _ => None,
        }
    }

    /// Returns the value that encodes a scheme.
    pub fn value(self, scheme: &'static str) -> &'static str {
        match (self, scheme) {
            (Self::Name, scheme) => scheme,
            (Self::Switch, "https") => "on",
            (Self::Switch, _) => "off",
        }
    }
}

/// Returns whether a name has bytes other than letters, digits and `-`: some origin servers mistake it for another
/// name.
pub fn is_spelled_oddly(name: &str) -> bool {
    !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Returns the name with `-` for each byte that is neither letter nor digit, as CGI, WSGI and PHP interpret it.
pub fn plain_name(name: &str) -> Cow<'_, str> {
    if !is_spelled_oddly(name) {
        return Cow::Borrowed(name);
    }
    let plain = |byte: u8| if byte.is_ascii_alphanumeric() { char::from(byte) } else { '-' };
    name.bytes().map(plain).collect()
}

/// Returns whether CGI maps both names to the same variable.
pub fn are_read_alike(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.bytes().map(dashed).eq(other.bytes().map(dashed))
}

/// Returns the class of a field name, in any case.
pub fn class_of(name: &str) -> FieldClass {
    // The first two letters rule out most names.
    let [first, second, ..] = name.as_bytes() else { return FieldClass::Ordinary };
    match [first | 0x20, second | 0x20] {
        [b'x', second] if !second.is_ascii_alphanumeric() => class_of_candidate(name),
        [b'f', b'o' | b'r' | b'a' | b'l'] | [b'c', b'f' | b'l' | b'd'] => class_of_candidate(name),
        // Cookie, Connection and Content-Type are in most requests.
        [b'c', b'o'] if name.len() == "coming-from".len() => class_of_candidate(name),
        [b'p', b'r' | b'a'] | [b't', b'r'] | [b'w', b'l'] | [b'a', b'k' | b'l'] => class_of_candidate(name),
        [b'b', b'a'] | [b'd', b'i' | b'o'] | [b'e', b'o'] | [b'h', b't'] => class_of_candidate(name),
        [b'i', b'n'] | [b'o', b'x'] | [b'r', b'e'] | [b's', b'c' | b's'] => class_of_candidate(name),
        _ => FieldClass::Ordinary,
    }
}

fn class_of_candidate(name: &str) -> FieldClass {
    let is = |known: &&str| is_same_name(name, known);
    let begins = |prefix: &&str| name.get(..prefix.len()).is_some_and(|start| is_same_name(start, prefix));
    if let Some((_, class)) = NAMED.iter().find(|(known, _)| is(known)) {
        return *class;
    }
    if ADDRESSES.iter().any(is) || ADDRESS_PREFIXES.iter().any(begins) {
        FieldClass::Address
    } else if WAYS.iter().any(is) || WAY_PREFIXES.iter().any(begins) {
        FieldClass::Way
    } else if METHODS.iter().any(is) {
        FieldClass::Method
    } else if OVERRIDES.iter().any(is) || OVERRIDE_PREFIXES.iter().any(begins) {
        FieldClass::Override
    } else {
        FieldClass::Ordinary
    }
}

/// Returns whether CGI maps a name to the same variable as a known field name.
fn is_same_name(name: &str, known: &str) -> bool {
    name.len() == known.len() && name.bytes().map(dashed).eq(known.bytes())
}

fn dashed(byte: u8) -> u8 {
    if byte.is_ascii_alphanumeric() { byte.to_ascii_lowercase() } else { b'-' }
}

const NAMED: [(&str, FieldClass); 12] = [
    ("forwarded", FieldClass::Hops),
    ("front-end-https", FieldClass::Scheme(SchemeForm::Switch)),
    ("proxy", FieldClass::Never),
    ("x-forwarded-for", FieldClass::Hops),
    ("x-forwarded-host", FieldClass::Host),
    ("x-forwarded-port", FieldClass::Port),
    ("x-forwarded-proto", FieldClass::Scheme(SchemeForm::Name)),
    ("x-forwarded-protocol", FieldClass::Scheme(SchemeForm::Name)),
    ("x-forwarded-scheme", FieldClass::Scheme(SchemeForm::Name)),
    ("x-forwarded-ssl", FieldClass::Scheme(SchemeForm::Switch)),
    ("x-scheme", FieldClass::Scheme(SchemeForm::Name)),
    ("x-url-scheme", FieldClass::Scheme(SchemeForm::Name)),
];

const ADDRESSES: [&str; 43] = [
    "akamai-client-ip",
    "ali-cdn-real-ip",
    "ali-real-client-ip",
    "cdn-src-ip",
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "cf-pseudo-ipv4",
    "client-ip",
    "cloudfront-viewer-address",
    "coming-from",
    "do-connecting-ip",
    "eo-connecting-ip",
    "fastly-client-ip",
    "fly-client-ip",
    "forwarded-for",
    "incap-client-ip",
    "oxy-connecting-ip",
    "proxy-client-ip",
    "true-client-ip",
    "wl-proxy-client-ip",
    "x-bb-ip",
    "x-client-ip",
    "x-client-port",
    "x-clientip",
    "x-cluster-client-ip",
    "x-coming-from",
    "x-custom-ip-authorization",
    "x-envoy-external-address",
    "x-forward-for",
    "x-forwarded",
    "x-forwarder-for",
    "x-nf-client-connection-ip",
    "x-original-forwarded-for",
    "x-originating-ip",
    "x-proxyuser-ip",
    "x-real-ip",
    "x-remote-addr",
    "x-remote-ip",
    "x-source-ip",
    "x-sucuri-clientip",
    "x-true-client-ip",
    "x-vercel-forwarded-for",
    "x-vercel-proxied-for",
];

/// Fields of App Engine and Azure Front Door describe the client of one request, including its address.
const ADDRESS_PREFIXES: [&str; 2] = ["x-appengine-", "x-azure-"];

/// Fields for scheme, port and certificate of the client (RFC 9440), as content delivery networks and load balancers
/// send them. With `X-Sendfile-Type` and `X-Accel-Mapping` a server in front offers to send files itself: the origin
/// then answers with the name of a file, without its content.
const WAYS: [&str; 28] = [
    "cf-visitor",
    "client-cert",
    "client-cert-chain",
    "client-certificate",
    "cloudfront-forwarded-proto",
    "cloudfront-viewer-tls",
    "fastly-ssl",
    "x-accel-mapping",
    "x-arr-clientcert",
    "x-arr-ssl",
    "x-client-cert",
    "x-client-certificate",
    "x-client-cn",
    "x-client-dn",
    "x-client-scheme",
    "x-client-serial",
    "x-client-subject",
    "x-client-verify",
    "x-clientcert",
    "x-https",
    "x-proto",
    "x-protocol",
    "x-proxy-scheme",
    "x-real-port",
    "x-real-proto",
    "x-request-scheme",
    "x-sendfile-type",
    "x-ssl",
];

const WAY_PREFIXES: [&str; 12] = [
    "cf-cert-",
    "cf-client-cert-",
    "cloudfront-viewer-cert-",
    "fly-forwarded-",
    "ssl-client-",
    "wl-proxy-",
    "x-amzn-mtls-",
    "x-client-cert-",
    "x-clientcert-",
    "x-forward",
    "x-ssl-",
    "x-tls-client-",
];

const METHODS: [&str; 4] =
    ["x-http-method", "x-http-method-override", "x-method-override", "x-override-method"];

const OVERRIDES: [&str; 55] = [
    "base-url",
    "disguised-host",
    "fastly-orig-host",
    "http-url",
    "path-info",
    "request-uri",
    "script-name",
    "x-app-host",
    "x-astro-locals",
    "x-astro-path",
    "x-backend-host",
    "x-base-url",
    "x-cdn-host",
    "x-dev-host",
    "x-edge-host",
    "x-envoy-original-host",
    "x-envoy-original-path",
    "x-fastly-host",
    "x-gateway-host",
    "x-host",
    "x-host-name",
    "x-host-override",
    "x-http-destinationurl",
    "x-http-host",
    "x-http-host-override",
    "x-http-path-override",
    "x-ingress-path",
    "x-matched-path",
    "x-ms-original-url",
    "x-netlify-original-pathname",
    "x-nextjs-data",
    "x-nextjs-redirect",
    "x-nextjs-rewrite",
    "x-now-route-matches",
    "x-origin-host",
    "x-override-host",
    "x-override-url",
    "x-path",
    "x-path-info",
    "x-prerender-revalidate",
    "x-proxy-host",
    "x-proxy-url",
    "x-real-base-url",
    "x-real-host",
    "x-real-url",
    "x-request-uri",
    "x-request-url",
    "x-script-name",
    "x-server-name",
    "x-sveltekit-pathname",
    "x-sveltekit-search",
    "x-uri",
    "x-url",
    "x-wap-profile",
    "x-waws-unencoded-url",
];

const OVERRIDE_PREFIXES: [&str; 6] =
    ["x-invoke-", "x-middleware-", "x-orig-", "x-original-", "x-react-router-", "x-rewrite-"];

/// Returns whether a gateway may write or drop a field of this name, so that the origin doesn't receive it as the
/// client sent it.
pub fn is_written_or_dropped(name: &str) -> bool {
    class_of(name) != FieldClass::Ordinary
        || is_spelled_oddly(name)
        || matches!(name, "via" | "expect" | "max-forwards" | "trailer")
        || matches!(name, "traceparent" | "tracestate" | "larder-timing")
        || hop_by_hop::is_written_by_sender(name)
        || hop_by_hop::ends_here(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(names: &[&str], expected: FieldClass) {
        for name in names {
            let other = |with| name.replace('-', with);
            for spelled in [(*name).to_owned(), name.to_ascii_uppercase(), other("_"), other("."), other("~")]
            {
                assert_eq!(class_of(&spelled), expected, "{spelled}");
            }
        }
    }

    #[test]
    fn known_names_have_their_class_in_every_spelling() {
        check(&ADDRESSES, FieldClass::Address);
        check(&ADDRESS_PREFIXES, FieldClass::Address);
        check(&OVERRIDES, FieldClass::Override);
        check(&OVERRIDE_PREFIXES, FieldClass::Override);
        check(&WAYS, FieldClass::Way);
        check(&WAY_PREFIXES, FieldClass::Way);
        check(&METHODS, FieldClass::Method);
        for (name, class) in NAMED {
            check(&[name], class);
        }
        let way = ["x-forwarded-prefix", "x-forwarded-client-cert", "x-forward-host", "x-forwarded-"];
        check(&way, FieldClass::Way);
        check(&["x-original-url", "x-original-host", "x-rewrite-url", "x-original-"], FieldClass::Override);
        check(&["x-orig-url", "x-orig-host", "x-real-url", "x-host-name"], FieldClass::Override);
        check(&["x-sendfile-type", "x-accel-mapping", "x-client-certificate"], FieldClass::Way);
        check(&["akamai-client-ip", "ali-real-client-ip", "x-clientip"], FieldClass::Address);
    }

    #[test]
    fn other_names_are_ordinary() {
        let names = [
            "",
            "x",
            "f",
            "x-",
            "accept",
            "accept-encoding",
            "cookie",
            "connection",
            "host",
            "origin",
            "via",
            "from",
            "x-requested-with",
            "x-csrf-token",
            "forwarded-forever",
            "x-original",
            "xforwarded-host",
            "x-forwarx",
            "referer",
            "digest",
            "range",
            "traceparent",
            "transfer-encoding",
            "proxy-authorization",
            "priority",
            "x-request-id",
            "client-ip-address",
            "client-certificates",
            "cloudfront-viewer-country",
            "fly-region",
            "x-client-version",
            "x-client-data",
            "do-not-track",
            "x-azure",
            "x-origin",
            "x-orig",
            "x-sendfile",
            "x-accel-redirect",
            "x-sveltekit-action",
            "x-sslish",
            "accept-ch",
            "sec-ch-ua",
            "x-forwar\u{f6}",
            "sec-fetch-site",
        ];
        check(&names, FieldClass::Ordinary);
    }

    #[test]
    fn names_that_some_take_for_others() {
        for (name, is_odd) in [
            ("x-forwarded-host", false),
            ("X-1", false),
            ("x_forwarded_host", true),
            ("x.forwarded.host", true),
            ("x~a", true),
            ("a!", true),
            ("\u{e4}", true),
        ] {
            assert_eq!(is_spelled_oddly(name), is_odd, "{name}");
            let plain = plain_name(name);
            assert!(!is_spelled_oddly(&plain) && are_read_alike(name, &plain), "{name}");
        }
        assert!(are_read_alike("X_Secret", "x-secret") && are_read_alike("x-secret", "X.SECRET"));
        assert!(!are_read_alike("x-secret", "x-secrets") && !are_read_alike("x-secret", "x-secre_"));
    }

    #[test]
    fn schemes_are_read_and_written_in_their_form() {
        for (form, value, expected) in [
            (SchemeForm::Name, "HTTPS", Some("https")),
            (SchemeForm::Name, "http", Some("http")),
            (SchemeForm::Name, "on", None),
            (SchemeForm::Name, "", None),
            (SchemeForm::Name, "https ", None),
            (SchemeForm::Switch, "On", Some("on")),
            (SchemeForm::Switch, "off", Some("off")),
            (SchemeForm::Switch, "https", None),
        ] {
            let scheme =
                form.is_https(value.as_bytes()).map(|is_https| if is_https { "https" } else { "http" });
            assert_eq!(scheme.map(|scheme| form.value(scheme)), expected, "{form:?} {value}");
        }
    }
}
