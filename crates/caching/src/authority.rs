//! One form for each authority: host in lower case and without a dot at its end, without the default port of its scheme.

/// An authority cut into what is written and how its port reads.
#[derive(Clone, Copy)]
pub(crate) struct Authority<'a> {
    host: &'a [u8],
    /// As written, without leading zeros; empty for the default port of the scheme.
    port: &'a [u8],
}

impl<'a> Authority<'a> {
    pub(crate) fn new(scheme: &[u8], authority: &'a [u8]) -> Self {
        let (host, port) = split_port(authority);
        // With it, a name is the same absolute name, and origins answer both alike. All of them, so that what was done once changes nothing again.
        let name_bytes = host.iter().rposition(|byte| *byte != b'.').map_or(host.len(), |last| last + 1);
        let host = &host[..name_bytes];
        let zeros = port.iter().take_while(|digit| **digit == b'0').count();
        let port = &port[zeros..];
        let default: &[u8] = match scheme {
            // As the gateway has them.
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

/// The one form of an authority under this scheme: host in lower case and without a dot at its end, the port without leading zeros, and none
/// where it is the default.
pub fn normalised(scheme: &str, authority: &str) -> String {
    // Most clients write it so, where no port is needed.
    if is_plain(authority.as_bytes()) {
        return authority.to_owned();
    }
    let mut out = Vec::with_capacity(authority.len());
    Authority::new(scheme.as_bytes(), authority.as_bytes()).write(&mut out);
    String::from_utf8(out).unwrap_or_else(|_| authority.to_owned())
}

/// Whether it has that form under every scheme.
pub(crate) fn is_plain(authority: &[u8]) -> bool {
    !authority.ends_with(b".") && !authority.iter().any(|byte| *byte == b':' || byte.is_ascii_uppercase())
}

/// Host and port digits. What follows the last colon is a port only if it is all digits; the colons of
/// an IPv6 literal stand inside brackets, and one without brackets is left alone.
fn split_port(authority: &[u8]) -> (&[u8], &[u8]) {
    // From the end: few names end in digits, and those soon show what stands before them.
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
