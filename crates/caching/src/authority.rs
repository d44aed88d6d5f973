//! The normal form of an authority: host in lower case, without a final dot, and without the default port of its
//! scheme.

/// An authority, split into host and port.
#[derive(Clone, Copy)]
pub(crate) struct Authority<'a> {
    host: &'a [u8],
    /// The port without leading zeros; empty for the default port of the scheme.
    port: &'a [u8],
}

impl<'a> Authority<'a> {
    pub(crate) fn new(scheme: &[u8], authority: &'a [u8]) -> Self {
        let (host, port) = split_port(authority);
        // A name with a final dot is the same absolute name, and origins treat both equally. Removes all final dots,
        // so that normalising again changes nothing.
        let name_bytes = host.iter().rposition(|byte| *byte != b'.').map_or(host.len(), |last| last + 1);
        let host = &host[..name_bytes];
        let zeros = port.iter().take_while(|digit| **digit == b'0').count();
        let port = &port[zeros..];
        let default: &[u8] = match scheme {
            // The schemes that the gateway supports.
            b"http" => b"80",
            b"https" => b"443",
            scheme if scheme.eq_ignore_ascii_case(b"http") => b"80",
            scheme if scheme.eq_ignore_ascii_case(b"https") => b"443",
            _ => b"",
        };
        let is_port_zero = port.is_empty() && zeros > 0;
        match port {
            _ if is_port_zero => Self { host, port: b"0" },
            port if port == default => Self { host, port: b"" },
            port => Self { host, port },
        }
    }

    pub(crate) fn without_port(self) -> Self {
        Self { port: b"", ..self }
    }

    pub(crate) fn len(&self) -> usize {
        self.host.len() + if self.port.is_empty() { 0 } else { 1 + self.port.len() }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(self.host);
        out[start..].make_ascii_lowercase();
        if !self.port.is_empty() {
            out.push(b':');
            out.extend_from_slice(self.port);
        }
    }

    pub(crate) fn is_same(&self, other: &Authority<'_>) -> bool {
        self.host.eq_ignore_ascii_case(other.host) && self.port == other.port
    }
}

/// Returns the normal form of an authority under this scheme: host in lower case and without a final dot, port without
/// leading zeros; a default port is omitted.
pub fn normalised(scheme: &str, authority: &str) -> String {
    // Most clients send an authority without a port in normal form.
    if is_plain(authority.as_bytes()) {
        return authority.to_owned();
    }
    let mut out = Vec::with_capacity(authority.len());
    Authority::new(scheme.as_bytes(), authority.as_bytes()).write(&mut out);
    String::from_utf8(out).unwrap_or_else(|_| authority.to_owned())
}

/// Returns whether an authority has the normal form under every scheme.
pub(crate) fn is_plain(authority: &[u8]) -> bool {
    !authority.ends_with(b".") && !authority.iter().any(|byte| *byte == b':' || byte.is_ascii_uppercase())
}

/// Splits host and port. The text after the last colon is a port only if it consists of digits; the colons of an IPv6 literal are inside
/// brackets, and a literal without brackets stays unchanged.
fn split_port(authority: &[u8]) -> (&[u8], &[u8]) {
    // Searches from the end: few names end in digits, so another byte is found soon.
    let Some(before) = authority.iter().rposition(|byte| !byte.is_ascii_digit()) else {
        return (authority, b"");
    };
    let (host, port) = (&authority[..before], &authority[before + 1..]);
    let is_whole_host = || memchr::memchr(b':', host).is_none() || host.ends_with(b"]");
    if authority[before] == b':' && is_whole_host() { (host, port) } else { (authority, b"") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(scheme: &str, authority: &str, expected: &str) {
        let normal = Authority::new(scheme.as_bytes(), authority.as_bytes());
        let mut out = Vec::new();
        normal.write(&mut out);
        assert_eq!(std::str::from_utf8(&out).unwrap(), expected, "{scheme}://{authority}");
        assert_eq!(normal.len(), out.len());
        assert_eq!(normalised(scheme, authority), expected);
    }

    #[test]
    fn one_form_for_each() {
        check("http", "Example.COM", "example.com");
        check("http", "example.com:80", "example.com");
        check("http", "example.com:", "example.com");
        check("http", "example.com:0080", "example.com");
        check("http", "example.com.", "example.com");
        check("http", "Example.com.:80", "example.com");
        check("http", "example.com..", "example.com");
        check("http", ".", ".");
        check("http", "example.com.:8080", "example.com:8080");
        check("http", "example.com:443", "example.com:443");
        check("HTTPS", "example.com:443", "example.com");
        check("http", "example.com:0", "example.com:0");
        check("http", "example.com:08080", "example.com:8080");
        check("http", "[::1]:80", "[::1]");
        check("http", "[::1]:8080", "[::1]:8080");
        check("http", "[::80]", "[::80]");
        check("http", "::80", "::80");
        check("http", "a:b", "a:b");
        check("http", "", "");
    }
}
