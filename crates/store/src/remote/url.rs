//! Server addresses as URLs.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::str::FromStr;

use super::settings::{Address, Host, Seeds, Sentinels, Server};

/// Error in the URL of a server. Never contains a part of the URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// The scheme is unknown.
    #[error(
        "must begin with redis://, redis+sentinel:// or redis+cluster://, the same with rediss for TLS, or unix://"
    )]
    Scheme,
    /// The host is missing.
    #[error("has no host")]
    Host,
    /// The host is invalid.
    #[error(
        "has a host that is neither a name of letters, digits, `-`, `_` and `.` nor an IPv4 address, nor an IPv6 address in brackets"
    )]
    HostName,
    /// The port is invalid.
    #[error("has a port that is not a number from 1 to 65535")]
    Port,
    /// The service is missing or invalid.
    #[error(
        "has no service of the sentinels; write redis+sentinel://host1,host2,host3/service/0, with a name of letters, digits, `.`, `-` and `_`"
    )]
    Service,
    /// The path of the socket is missing, relative or invalid.
    #[error("must have an absolute socket path of at most 107 bytes without control characters")]
    Path,
    /// The database is invalid.
    #[error(
        "has a database that is not a number from 0 to 4294967295; write redis://host:6379/0, or unix:///path?db=0"
    )]
    Database,
    /// A cluster was given a database.
    #[error("has a database; a cluster has only the database 0")]
    ClusterDatabase,
    /// The URL has an unexpected query or fragment.
    #[error(
        "has an unexpected query or fragment; only unix:// takes a query, for the database: unix:///path?db=0"
    )]
    UnexpectedPart,
    /// User or password can't be decoded.
    #[error(
        "has a user or a password that isn't UTF-8 after percent-decoding; write @, :, / and % as %40, %3A, %2F and %25"
    )]
    Escape,
}

/// A parsed URL.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Url {
    pub(super) address: Address,
    pub(super) username: Option<Box<str>>,
    pub(super) password: Option<Box<str>>,
    pub(super) database: u32,
}

/// Parses a URL.
pub(super) fn parse(text: &str) -> Result<Url, UrlError> {
    let (scheme, rest) = text.split_once("://").ok_or(UrlError::Scheme)?;
    if rest.contains('#') {
        return Err(UrlError::UnexpectedPart);
    }
    match scheme {
        "redis" => of_host(rest, Server::Tcp),
        "rediss" => of_host(rest, Server::Tls),
        "redis+sentinel" => of_sentinels(rest, Encryption::Off),
        "rediss+sentinel" => of_sentinels(rest, Encryption::On),
        "redis+cluster" => of_cluster(rest, Encryption::Off),
        "rediss+cluster" => of_cluster(rest, Encryption::On),
        "unix" => of_socket(rest),
        _ => Err(UrlError::Scheme),
    }
}

fn of_host(rest: &str, server: fn(Host) -> Server) -> Result<Url, UrlError> {
    let Parts { credentials: (username, password), hosts, path } = parts(rest)?;
    let address = Address::Server(server(host(hosts, PORT)?));
    Ok(Url { address, username, password, database: database(path)? })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Encryption {
    On,
    Off,
}

fn of_sentinels(rest: &str, encryption: Encryption) -> Result<Url, UrlError> {
    let Parts { credentials: (username, password), hosts, path } = parts(rest)?;
    let hosts = self::hosts(hosts, SENTINEL_PORT)?;
    let (service, number) = path.split_once('/').unwrap_or((path, ""));
    // The characters that Redis Sentinel allows.
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    if service.is_empty() || !service.bytes().all(is_allowed) {
        return Err(UrlError::Service);
    }
    let sentinels = Sentinels { hosts, service: service.into(), tls: encryption == Encryption::On };
    Ok(Url { address: Address::Sentinels(sentinels), username, password, database: database(number)? })
}

fn of_cluster(rest: &str, encryption: Encryption) -> Result<Url, UrlError> {
    let Parts { credentials: (username, password), hosts, path } = parts(rest)?;
    // A cluster has only the first database.
    if database(path)? != 0 {
        return Err(UrlError::ClusterDatabase);
    }
    let seeds = Seeds { hosts: self::hosts(hosts, PORT)?, tls: encryption == Encryption::On };
    Ok(Url { address: Address::Cluster(seeds), username, password, database: 0 })
}

fn hosts(text: &str, default_port: u16) -> Result<Box<[Host]>, UrlError> {
    text.split(',').map(|one| host(one, default_port)).collect()
}

/// A URL after its scheme.
struct Parts<'a> {
    credentials: Credentials,
    hosts: &'a str,
    /// Without the leading slash.
    path: &'a str,
}

fn parts(rest: &str) -> Result<Parts<'_>, UrlError> {
    if rest.contains('?') {
        return Err(UrlError::UnexpectedPart);
    }
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    if path.contains('@') {
        return Err(UrlError::Escape);
    }
    let (who, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    Ok(Parts { credentials: credentials(who)?, hosts, path })
}

fn of_socket(rest: &str) -> Result<Url, UrlError> {
    let start = rest.find('/').ok_or(UrlError::Path)?;
    let (who, path) = rest.split_at(start);
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let who = match who {
        "" => "",
        who => who.strip_suffix('@').ok_or(UrlError::Path)?,
    };
    let (username, password) = credentials(who)?;
    let database = match query {
        "" => 0,
        query => {
            number(query.strip_prefix("db=").ok_or(UrlError::UnexpectedPart)?).ok_or(UrlError::Database)?
        }
    };
    // `sockaddr_un` limits the length, and logs can't show control characters.
    if !(2..=107).contains(&path.len()) || path.contains(char::is_control) {
        return Err(UrlError::Path);
    }
    Ok(Url { address: Address::Server(Server::Unix(Path::new(path).into())), username, password, database })
}

type Credentials = (Option<Box<str>>, Option<Box<str>>);

fn credentials(who: &str) -> Result<Credentials, UrlError> {
    let (user, password) = match who.split_once(':') {
        Some((user, password)) => (user, Some(unescape(password)?)),
        None => (who, None),
    };
    let user = if user.is_empty() { None } else { Some(unescape(user)?) };
    Ok((user, password))
}

fn host(text: &str, default_port: u16) -> Result<Host, UrlError> {
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (name, rest) = rest.split_once(']').ok_or(UrlError::HostName)?;
            name.parse::<Ipv6Addr>().map_err(|_| UrlError::HostName)?;
            let port =
                if rest.is_empty() { None } else { Some(rest.strip_prefix(':').ok_or(UrlError::Port)?) };
            (name, port)
        }
        // An IPv6 address without brackets.
        None if text.matches(':').count() > 1 => return Err(UrlError::HostName),
        None => {
            let (name, port) = text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port)));
            (host_name(name)?, port)
        }
    };
    let port = port.map_or(Some(default_port), number).filter(|port| *port > 0).ok_or(UrlError::Port)?;
    Ok(Host { name: name.into(), port })
}

/// The resolver would treat a name that ends in a number as an abbreviated address.
pub(super) fn host_name(name: &str) -> Result<&str, UrlError> {
    if name.is_empty() {
        return Err(UrlError::Host);
    }
    let is_label = |label: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        (1..=63).contains(&label.len()) && label.bytes().all(is_allowed)
    };
    // A trailing dot disables search domains.
    let labels = name.strip_suffix('.').unwrap_or(name);
    let is_name = name.len() <= 253 && labels.split('.').all(is_label);
    let is_numeric = |label: &str| match label.to_ascii_lowercase().strip_prefix("0x") {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => label.bytes().all(|byte| byte.is_ascii_digit()),
    };
    let ends_in_number = labels.rsplit('.').next().is_some_and(is_numeric);
    let is_host = is_name && (!ends_in_number || name.parse::<Ipv4Addr>().is_ok());
    is_host.then_some(name).ok_or(UrlError::HostName)
}

fn database(text: &str) -> Result<u32, UrlError> {
    if text.is_empty() { Ok(0) } else { number(text).ok_or(UrlError::Database) }
}

/// Parses a number of digits only, because `parse` also accepts a sign.
fn number<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Decodes percent escapes (RFC 3986, section 2.1).
fn unescape(text: &str) -> Result<Box<str>, UrlError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, more)) = rest.split_first() {
        rest = more;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let (digits, more) = rest.split_at_checked(2).ok_or(UrlError::Escape)?;
        bytes.push(hex(digits[0])? << 4 | hex(digits[1])?);
        rest = more;
    }
    String::from_utf8(bytes).map(String::into_boxed_str).map_err(|_| UrlError::Escape)
}

fn hex(digit: u8) -> Result<u8, UrlError> {
    let value = char::from(digit).to_digit(16).ok_or(UrlError::Escape)?;
    Ok(value as u8)
}

/// Default port of Redis.
const PORT: u16 = 6379;
/// Default port of Redis Sentinel.
const SENTINEL_PORT: u16 = 26_379;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn url(address: Address, who: (&str, &str), database: u32) -> Result<Url, UrlError> {
        let some = |text: &str| (!text.is_empty()).then(|| text.into());
        Ok(Url { address, username: some(who.0), password: some(who.1), database })
    }

    fn host_of(name: &str, port: u16) -> Host {
        Host { name: name.into(), port }
    }

    fn tcp(name: &str, port: u16) -> Address {
        Address::Server(Server::Tcp(host_of(name, port)))
    }

    fn unix(path: &str) -> Address {
        Address::Server(Server::Unix(Path::new(path).into()))
    }

    fn check(text: &str, expected: &Result<Url, UrlError>) {
        assert_eq!(&parse(text), expected, "{text}");
    }

    #[test]
    fn urls_are_read() {
        check("redis://cache", &url(tcp("cache", 6379), ("", ""), 0));
        check("redis://cache:7000/3", &url(tcp("cache", 7000), ("", ""), 3));
        check("redis://cache/", &url(tcp("cache", 6379), ("", ""), 0));
        check("redis://cache_1.Internal.", &url(tcp("cache_1.Internal.", 6379), ("", ""), 0));
        check("redis://10.0.0.1", &url(tcp("10.0.0.1", 6379), ("", ""), 0));
        check("redis://[::1]:7000", &url(tcp("::1", 7000), ("", ""), 0));
        check("redis://[::1]", &url(tcp("::1", 6379), ("", ""), 0));
        check("redis://:hush@cache", &url(tcp("cache", 6379), ("", "hush"), 0));
        check("redis://me:h%40sh%2F%25@cache", &url(tcp("cache", 6379), ("me", "h@sh/%"), 0));
        check("redis://me:a@b:c@cache", &url(tcp("cache", 6379), ("me", "a@b:c"), 0));
        check("rediss://me@cache", &url(Address::Server(Server::Tls(host_of("cache", 6379))), ("me", ""), 0));
        let sentinels = |hosts: &[Host], tls| {
            Address::Sentinels(Sentinels { hosts: hosts.into(), service: "main-1".into(), tls })
        };
        let (one, two) = (host_of("a", 26_379), host_of("::1", 7000));
        check("redis+sentinel://a/main-1", &url(sentinels(std::slice::from_ref(&one), false), ("", ""), 0));
        check(
            "rediss+sentinel://me:hush@a,[::1]:7000/main-1/3",
            &url(sentinels(&[one, two], true), ("me", "hush"), 3),
        );
        let seeds = Seeds { hosts: [host_of("a", 6379), host_of("b", 7000)].into(), tls: false };
        check("redis+cluster://:hush@a,b:7000/", &url(Address::Cluster(seeds), ("", "hush"), 0));
        check("unix:///run/redis.sock", &url(unix("/run/redis.sock"), ("", ""), 0));
        check("unix://:hush@/run/r?db=2", &url(unix("/run/r"), ("", "hush"), 2));
    }

    #[test]
    fn what_is_wrong_is_told() {
        for (text, error) in [
            ("", UrlError::Scheme),
            ("cache:6379", UrlError::Scheme),
            ("http://cache", UrlError::Scheme),
            ("redis://", UrlError::Host),
            ("redis://:6379", UrlError::Host),
            ("redis://[::1", UrlError::HostName),
            ("redis://[zz]:1", UrlError::HostName),
            ("redis://::1:6379", UrlError::HostName),
            ("redis://0x7f000001", UrlError::HostName),
            ("redis://:a/b@cache/0", UrlError::Escape),
            ("unix:///run/a\u{1b}", UrlError::Path),
            ("redis://[]", UrlError::HostName),
            ("redis://%63", UrlError::HostName),
            ("redis://a..b", UrlError::HostName),
            ("redis://.:1", UrlError::HostName),
            ("redis://10.0.0", UrlError::HostName),
            ("redis://10.0.0.256", UrlError::HostName),
            ("redis:// cache", UrlError::HostName),
            ("redis://:hush@ca che:6379", UrlError::HostName),
            ("rediss://cache /0", UrlError::HostName),
            ("redis://[::1 ]:7000", UrlError::HostName),
            ("redis://ca\u{a0}che", UrlError::HostName),
            ("redis://cache :7000", UrlError::HostName),
            ("redis://cache:port", UrlError::Port),
            ("redis://cache:0", UrlError::Port),
            ("redis://cache:65536", UrlError::Port),
            ("redis://cache:+6379", UrlError::Port),
            ("redis://cache:", UrlError::Port),
            ("redis://[::1]7000", UrlError::Port),
            ("redis://cache/one", UrlError::Database),
            ("redis://cache/-1", UrlError::Database),
            ("redis://cache/+1", UrlError::Database),
            ("redis://cache?db=1", UrlError::UnexpectedPart),
            ("redis://cache#part", UrlError::UnexpectedPart),
            ("redis://:%zz@cache", UrlError::Escape),
            ("redis://:%4@cache", UrlError::Escape),
            ("redis://:%ff@cache", UrlError::Escape),
            ("unix://", UrlError::Path),
            ("unix:///", UrlError::Path),
            ("unix://run/redis.sock", UrlError::Path),
            ("unix:///run/r?port=1", UrlError::UnexpectedPart),
            ("unix:///run/r?db=x", UrlError::Database),
            ("unix:///run/r?db=", UrlError::Database),
            ("redis://cache/4294967296", UrlError::Database),
            ("redis://a,b", UrlError::HostName),
            ("redis+cluster://a/1", UrlError::ClusterDatabase),
            ("redis+cluster://a/x", UrlError::Database),
            ("redis+cluster://", UrlError::Host),
            ("redis+sentinel://a", UrlError::Service),
            ("redis+sentinel://a/", UrlError::Service),
            ("redis+sentinel://a/one two", UrlError::Service),
            ("redis+sentinel://a/one/x", UrlError::Database),
            ("redis+sentinel://a,/one", UrlError::Host),
            ("redis+sentinel:///one", UrlError::Host),
            ("redis+sentinel://a,b:0/one", UrlError::Port),
        ] {
            check(text, &Err(error));
        }
        let long =
            |label: usize, labels: usize| format!("redis://{}", vec!["a".repeat(label); labels].join("."));
        check(&long(64, 1), &Err(UrlError::HostName));
        check(&long(50, 6), &Err(UrlError::HostName));
        check(&format!("unix:///{}", "a".repeat(107)), &Err(UrlError::Path));
    }

    proptest! {
        #[test]
        fn an_escaped_password_comes_back(password in "\\PC{1,20}", text in "\\PC{0,30}") {
            let escaped: String = password.bytes().map(|byte| format!("%{byte:02x}")).collect();
            let read = parse(&format!("redis://:{escaped}@host")).unwrap();
            prop_assert_eq!(read.password.as_deref(), Some(&*password));
            // Parsing never panics, whatever the input.
            let _ = (parse(&text), parse(&format!("redis://{text}")), parse(&format!("unix://{text}")));
        }
    }
}
