//! Origin servers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use caching::StatusMatch;
use http::{HeaderName, HeaderValue};
use origin::settings::{
    BreakerConfig, Credentials, EjectionConfig, EndpointConfig, HealthConfig, OriginAddress, OriginConfig,
    OriginProtocol, OriginTls, PoolConfig, ServerConfig, Statuses,
};
use terminal::nearest;

use super::breaker;
use super::names::{doubled, field_name, host_and_port, host_name, name};
use super::scope::Scope;
use super::server::millis;
use super::tls;
use crate::config::raw::defaults;
use crate::config::status::status;
use crate::config::table;
use crate::config::tree::{Node, Table};

/// The origins of the files by name. An origin with problems keeps its name, so that sites can still be checked.
pub(super) struct Origins(BTreeMap<String, Option<Arc<OriginConfig>>>);

/// The parts of an origin URL.
#[derive(Debug, PartialEq, Eq)]
struct OriginUrl {
    address: OriginAddress,
    base_path: String,
    security: Security,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Security {
    Cleartext,
    Tls,
}

pub(super) fn origins(scope: &mut Scope<'_>, tree: &Table) -> Origins {
    for (node, first) in doubled(tree.nodes("origin.name")) {
        let first = scope.sources.describe(first);
        scope.error(node, format!("`{}` is the name of an earlier origin: {first}", node.as_text()));
    }
    let mut origins = BTreeMap::new();
    for table in tree.tables("origin") {
        let built = named_origin(scope, table).map(Arc::new);
        let Some(name) = table.text("name") else { continue };
        origins.entry(name.to_owned()).or_insert(built);
    }
    Origins(origins)
}

/// Warns of origins that no site uses: the name is probably misspelt in a site.
pub(super) fn warn_of_unused(scope: &mut Scope<'_>, tree: &Table) {
    let used: BTreeSet<_> = tree.nodes("site.origin").into_iter().map(Node::as_text).collect();
    let is_unused = |name: &&Node| !tree.is_wrong("site") && !used.contains(name.as_text());
    for name in tree.nodes("origin.name").into_iter().filter(is_unused) {
        scope.warning(name, "unused: no site has this name as its `origin`");
    }
}

impl Origins {
    /// Returns the origin that a site's `origin` key names, or the origin that the URL in the key describes.
    pub(super) fn resolve(&self, scope: &mut Scope<'_>, site: &Table) -> Option<Arc<OriginConfig>> {
        let (text, node) = site.text("origin").zip(site.node("origin"))?;
        // URLs have a colon, and names don't.
        if text.contains(':') {
            let url = scope.take(node, origin_url(text))?;
            let table = defaults(&table::ORIGIN);
            let server = Server { node, url: Some(url), weight: 1 };
            return origin(scope, &table, Some(text.to_owned()), vec![server]).map(Arc::new);
        }
        if let Some(origin) = self.0.get(text) {
            return origin.clone();
        }
        let names = self.0.keys().map(String::as_str);
        let message = match nearest(text, names) {
            Some(near) => format!("no origin has this name; did you mean `{near}`?"),
            None => "expected a URL, such as `http://host:port`, or the name of an `[[origin]]`".to_owned(),
        };
        scope.error(node, message);
        None
    }
}

fn named_origin(scope: &mut Scope<'_>, table: &Table) -> Option<OriginConfig> {
    let name = scope.parsed(table, "name", name);
    let servers = servers(scope, table);
    origin(scope, table, name, servers)
}

/// One server of an origin, as given.
struct Server<'a> {
    /// Node of the URL.
    node: &'a Node,
    /// `None` if the URL is wrong.
    url: Option<OriginUrl>,
    weight: u32,
}

/// Reads `url` or `servers`. Returns an empty list if both are absent or wrong.
fn servers<'a>(scope: &mut Scope<'_>, table: &'a Table) -> Vec<Server<'a>> {
    let alone = table.node("url").map(|node| {
        let url = scope.parsed(table, "url", origin_url);
        Server { node, url, weight: 1 }
    });
    let Some(list) = table.node("servers") else {
        if alone.is_none() && !table.is_wrong("url") && !table.is_wrong("servers") {
            let message = "needs the URL of a server in `url`, or those of several in `servers`";
            scope.error_in(table, message);
        }
        return alone.into_iter().collect();
    };
    if alone.is_some() {
        scope
            .error(list, "only one of `url` and `servers` can be set: move the server of `url` to `servers`");
    }
    let mut servers: Vec<_> = table.tables("servers").filter_map(|table| server(scope, table)).collect();
    if !table.is_wrong("servers") && servers.iter().all(|server| server.weight == 0) {
        scope.error(list, "expected at least one server with a `weight` above 0");
    }
    check_servers(scope, list, &servers);
    servers.truncate(SERVERS_MAX);
    servers
}

fn server<'a>(scope: &mut Scope<'_>, table: &'a Table) -> Option<Server<'a>> {
    let url = scope.parsed(table, "url", origin_url);
    Some(Server { node: table.node("url")?, url, weight: table.get("weight") })
}

/// Checks that the servers of an origin fit together.
fn check_servers(scope: &mut Scope<'_>, list: &Node, servers: &[Server<'_>]) {
    if servers.len() > SERVERS_MAX {
        scope.error(list, format!("{} servers; at most {SERVERS_MAX} are allowed", servers.len()));
    }
    for (at, Server { node, url, .. }) in servers.iter().enumerate() {
        let Some(url) = url else { continue };
        let mut earlier = servers[..at].iter().filter_map(|earlier| earlier.url.as_ref());
        if earlier.clone().any(|earlier| earlier.base_path != url.base_path) {
            scope.error(node, "servers of one origin must have the same path");
        } else if earlier.any(|earlier| is_same_server(earlier, url)) {
            scope.error(node, "this server is in the list already: use `weight` to give it a larger share");
        }
    }
}

/// Compares servers in any spelling: a server listed twice would get two shares, and would still get requests through one entry if they are
/// kept from the other.
fn is_same_server(one: &OriginUrl, other: &OriginUrl) -> bool {
    let address = |url: &OriginUrl| match &url.address {
        OriginAddress::Tcp { host, port } => {
            let ip = host.parse().map(|ip: IpAddr| ip.to_canonical().to_string());
            OriginAddress::Tcp { host: ip.unwrap_or_else(|_| host.to_ascii_lowercase()), port: *port }
        }
        address => address.clone(),
    };
    address(one) == address(other) && one.security == other.security
}

/// Maximum number of servers, which is limited because each choice of a server examines all of them.
const SERVERS_MAX: usize = 100;

/// Checks every key, even if the name or URL is wrong, so that all problems are reported at once.
fn origin(
    scope: &mut Scope<'_>,
    table: &Table,
    name: Option<String>,
    servers: Vec<Server<'_>>,
) -> Option<OriginConfig> {
    let protocol = table.get("protocol");
    let tls = tls_of(scope, table, &servers, protocol);
    let credentials = credentials(scope, table.table("credentials"));
    if let (Some(_), Some((_, node))) = (&credentials, given_authorization(table)) {
        scope.error(node, "`credentials` sets this field already");
    }
    let address = |text: &str| text.parse().map_err(|_| "not an IP address".to_owned());
    let local_address = scope.parsed(table, "local_address", address);
    let pool = pool(scope, table.table("pool"));
    let server = |Server { url, weight, .. }: Server<'_>| {
        let OriginUrl { address, security, .. } = url?;
        let tls = tls.clone()?.filter(|_| security == Security::Tls);
        let address_family = table.get("address_family");
        let endpoint = EndpointConfig { address, protocol, tls, local_address, address_family, pool };
        Some(ServerConfig { endpoint, weight })
    };
    Some(OriginConfig {
        balance: table.get("balance"),
        slow_start: table.get("slow_start"),
        retries: table.get("retries"),
        ejection: ejection(scope, table.table("ejection")),
        health: health(scope, table.table("health")),
        breaker: breaker(scope, table.table("breaker")),
        host_override: scope.parsed(table, "host", host_field),
        fixed_fields: fixed_fields(scope, table),
        credentials,
        interim_responses_max: table.get("interim_responses_max"),
        admission: table.get("pool"),
        // These come last, because nothing is checked after a missing part.
        name: name?,
        base_path: servers.first()?.url.as_ref()?.base_path.clone(),
        servers: servers.into_iter().map(server).collect::<Option<_>>()?,
    })
}

fn ejection(scope: &mut Scope<'_>, table: &Table) -> Option<EjectionConfig> {
    let (duration, duration_max) = scope.ordered(table, "duration", "duration_max");
    let config = EjectionConfig {
        failures: table.get("failures"),
        duration,
        duration_max,
        servers_percent_max: table.get("servers_percent_max"),
        statuses: statuses(scope, table, "statuses"),
    };
    table.flag("enabled").then_some(config)
}

fn health(scope: &mut Scope<'_>, table: &Table) -> Option<HealthConfig> {
    let path = scope.parsed(table, "path", health_path);
    let (timeout, interval) = scope.ordered(table, "timeout", "interval");
    let statuses = statuses(scope, table, "statuses");
    Some(HealthConfig {
        path: path?,
        interval,
        timeout,
        unhealthy_after: table.get("unhealthy_after"),
        healthy_after: table.get("healthy_after"),
        statuses,
    })
}

fn health_path(text: &str) -> Result<String, String> {
    let is_path = text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
    is_path
        .then(|| text.to_owned())
        .ok_or_else(|| "expected a path that begins with `/`, in visible ASCII".to_owned())
}

fn breaker(scope: &mut Scope<'_>, table: &Table) -> Option<BreakerConfig> {
    let rest = ::breaker::Options {
        probes_max: table.get("probes_max"),
        probe_ms_max: millis(table.get("probe_time_max")),
        successes_to_close: table.get("successes_to_close"),
        ..::breaker::Options::default()
    };
    let (settings, statuses) = (breaker::breaker(scope, table, rest), statuses(scope, table, "statuses"));
    let settings = settings?;
    table.flag("enabled").then_some(BreakerConfig { settings, statuses })
}

fn statuses(scope: &mut Scope<'_>, table: &Table, key: &str) -> Statuses {
    Statuses::new(scope.parsed_list(table, key, status_range))
}

fn status_range(text: &str) -> Result<RangeInclusive<u16>, String> {
    match status(text) {
        Ok(StatusMatch::Exact(code @ 200..)) => Ok(code..=code),
        Ok(StatusMatch::Class(class @ 2..)) => Ok(u16::from(class) * 100..=u16::from(class) * 100 + 99),
        _ => {
            Err("expected a status code from 200 to 599, such as `503`, or a class, such as `5xx`".to_owned())
        }
    }
}

/// Returns the TLS settings, or `Some(None)` if no server needs them. Returns `None` if they are wrong.
fn tls_of(
    scope: &mut Scope<'_>,
    table: &Table,
    servers: &[Server<'_>],
    protocol: OriginProtocol,
) -> Option<Option<OriginTls>> {
    let security = |server: &Server<'_>| server.url.as_ref().map(|url| url.security);
    if let Some(secured) = servers.iter().find(|server| security(server) == Some(Security::Tls)) {
        return tls(scope, table, secured.node, protocol).map(Some);
    }
    if !servers.is_empty() && servers.iter().all(|server| security(server) == Some(Security::Cleartext)) {
        let keys = [&["server_name", "verify"], &tls::KEYS[..]].concat();
        scope.refuse(table, &keys, "only applies to an `https://` origin");
    }
    Some(None)
}

fn pool(scope: &mut Scope<'_>, table: &Table) -> PoolConfig {
    let idle_connections_max = table.get("idle_connections_max");
    let keep_alive = table.flag("keep_alive");
    if let (false, Some(node)) = (keep_alive, table.given("idle_connections_max"))
        && idle_connections_max > 0
    {
        scope.error(node, "contradicts `keep_alive = false`, which keeps no idle connection");
    }
    PoolConfig {
        idle_connections_max: if keep_alive { idle_connections_max } else { 0 },
        idle_timeout: table.get("idle_timeout"),
    }
}

fn fixed_fields(scope: &mut Scope<'_>, table: &Table) -> Vec<(HeaderName, HeaderValue)> {
    scope.parsed_map(table, "fields", |name, value| {
        let name = field_name(name)?;
        if MANAGED_FIELDS.contains(&name.as_str()) {
            let instead = if name == http::header::HOST { "; use the key `host`" } else { "" };
            return Err(format!("Larder sets this field itself{instead}"));
        }
        let value = HeaderValue::from_str(value).map_err(|_| "not a header field value".to_owned())?;
        Ok((name, value))
    })
}

fn given_authorization(table: &Table) -> Option<&(String, Node)> {
    table.map("fields").iter().find(|(key, _)| key.eq_ignore_ascii_case("authorization"))
}

fn credentials(scope: &mut Scope<'_>, table: &Table) -> Option<Credentials> {
    let (basic, bearer) = (table.node("basic_file"), table.node("bearer_file"));
    if let (Some(_), Some(node)) = (basic, bearer) {
        scope.error(node, "only one of `basic_file` and `bearer_file` can be sent");
    }
    let node = basic.or(bearer)?;
    let secret = scope.secret(node)?;
    let secret = secret.reveal();
    if basic.is_some() && !secret.contains(':') {
        scope.error(node, "the first line of the file must be `user:password`");
    }
    let value = match basic {
        Some(_) => format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(secret)),
        None => format!("Bearer {secret}"),
    };
    let mut value = HeaderValue::from_str(&value).expect("a secret is visible ASCII");
    value.set_sensitive(true);
    Some(Credentials(value))
}

fn tls(scope: &mut Scope<'_>, table: &Table, url: &Node, protocol: OriginProtocol) -> Option<OriginTls> {
    let server_name = scope.parsed(table, "server_name", host_name);
    let (client, fingerprint) = tls::client(scope, (table, url), table.get("verify"), protocol)?;
    Some(OriginTls { server_name, client, fingerprint })
}

fn host_field(text: &str) -> Result<HeaderValue, String> {
    let authority: http::uri::Authority = text.parse().map_err(|_| "not a host name".to_owned())?;
    match text.contains('@') {
        true => Err("not a host name".to_owned()),
        false => HeaderValue::from_str(authority.as_str()).map_err(|_| "not a host name".to_owned()),
    }
}

fn origin_url(text: &str) -> Result<OriginUrl, String> {
    let Some((scheme, rest)) = text.split_once(':') else { return Err(URL_FORM.to_owned()) };
    let security = match scheme.to_ascii_lowercase().as_str() {
        "http" => Security::Cleartext,
        "https" => Security::Tls,
        "unix" => return unix_url(rest),
        _ => return Err(URL_FORM.to_owned()),
    };
    let Some(rest) = rest.strip_prefix("//") else { return Err(URL_FORM.to_owned()) };
    let (authority, path) = rest.find(['/', '?', '#']).map_or((rest, ""), |at| rest.split_at(at));
    if authority.contains('@') {
        return Err("a URL must not contain credentials; use `[origin.credentials]`".to_owned());
    }
    if path.contains(['?', '#']) {
        return Err("an origin's URL can't have a query or a fragment".to_owned());
    }
    let (host, port) = host_and_port(authority)?;
    let port = port.unwrap_or(if security == Security::Tls { 443 } else { 80 });
    Ok(OriginUrl { address: OriginAddress::Tcp { host, port }, base_path: base_path(path)?, security })
}

fn unix_url(path: &str) -> Result<OriginUrl, String> {
    // `unix:///run/x` is a common spelling of `unix:/run/x`.
    let path = path.strip_prefix("//").unwrap_or(path);
    let path = socket_path(path)?;
    let security = Security::Cleartext;
    Ok(OriginUrl { address: OriginAddress::Unix(path), base_path: String::new(), security })
}

/// Parses a socket path that fits into `sockaddr_un` and that logs can show.
fn socket_path(path: &str) -> Result<PathBuf, String> {
    if !path.starts_with('/') {
        return Err("a Unix socket needs an absolute path: `unix:/run/app.sock`".to_owned());
    }
    match path.len() <= SOCKET_PATH_BYTES_MAX && !path.contains(char::is_control) {
        true => Ok(PathBuf::from(path)),
        false => Err(format!(
            "the path of a Unix socket has at most {SOCKET_PATH_BYTES_MAX} bytes, and no control characters"
        )),
    }
}

fn base_path(path: &str) -> Result<String, String> {
    let path = path.trim_end_matches('/');
    let visible = path.bytes().all(|byte| byte.is_ascii_graphic());
    visible
        .then(|| path.to_owned())
        .ok_or_else(|| "the path must be in visible ASCII; percent-encode the rest".to_owned())
}

const SOCKET_PATH_BYTES_MAX: usize = 107;

const URL_FORM: &str = "expected `http://host[:port][/path]`, `https://...` or `unix:/path/of/socket`";

/// Fields that the gateway sets itself.
const MANAGED_FIELDS: [&str; 13] = [
    "host",
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "content-length",
    "expect",
    "via",
    "cdn-loop",
    "forwarded",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        #[track_caller]
        fn check(text: &str, host: &str, port: u16, base_path: &str, security: Security) {
            let address = OriginAddress::Tcp { host: host.to_owned(), port };
            let expected = OriginUrl { address, base_path: base_path.to_owned(), security };
            assert_eq!(origin_url(text), Ok(expected), "{text}");
        }
        check("http://127.0.0.1:3030", "127.0.0.1", 3030, "", Security::Cleartext);
        check("HTTP://Example.org/", "example.org", 80, "", Security::Cleartext);
        check("https://example.org/api/v1/", "example.org", 443, "/api/v1", Security::Tls);
        check("http://[::1]:81/x", "::1", 81, "/x", Security::Cleartext);
        check("http://[::1]", "::1", 80, "", Security::Cleartext);
        let socket = origin_url("unix:/run/app.sock").expect("a URL");
        assert_eq!(socket.address, OriginAddress::Unix(PathBuf::from("/run/app.sock")));
    }

    #[test]
    fn urls_that_are_refused() {
        #[track_caller]
        fn check(text: &str, message: &str) {
            let error = origin_url(text).expect_err(text);
            assert!(error.contains(message), "{text}: {error}");
        }
        check("example.org", "http://host");
        check("ftp://example.org", "http://host");
        check("http:example.org", "http://host");
        check("http://u:p@example.org", "credentials");
        check("http://example.org?x", "a query or a fragment");
        check("http://example.org/#x", "a query or a fragment");
        check("http://example.org:0", "port");
        check("http://example.org:99999", "port");
        check("http://example.org:+80", "port");
        check("http://10.0.0:80", "IPv4");
        check("http://", "host name");
        check("unix:app.sock", "absolute");
        check("unix:/run/a\0", "control");
        check(&format!("unix:/{}", "a".repeat(107)), "107 bytes");
    }
}
