//! Settings of the process as a whole: limits, admin API, logs.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use admin::{AdminConfig, AdminLimits, Reach};
use gateway::config::{IpNet, PurgeMethod};
use message::client::TrustedProxies;
use telemetry::logging::LogFormat;
use telemetry::{AccessFormat, AccessTarget};

use super::names::name;
use super::scope::Scope;
use crate::config::address::{LISTENED_ON, Part, parse_address};
use crate::config::overrides::Program;
use crate::config::tree::{Node, Table};

/// Settings of the logs.
#[derive(Clone, Debug)]
pub(crate) struct LogSettings {
    pub(crate) level: tracing::Level,
    pub(crate) format: LogFormat,
    pub(crate) access: AccessTarget,
    pub(crate) access_format: AccessFormat,
    pub(crate) access_queue_lines_max: usize,
    /// Query parameters whose values stay out of the access log.
    pub(crate) redact: Vec<String>,
}

impl LogSettings {
    /// Returns the filter of log levels. Events of sites always pass this filter, because the level of their site applies to them. Their
    /// filter is `debug`, since no event is finer: with `trace`, each start of a release build would warn that it has no such events.
    pub(crate) fn levels(&self) -> String {
        format!("{},{}=debug", self.level, gateway::events::TARGET)
    }
}

pub(super) fn workers(tree: &Table) -> usize {
    let available = || std::thread::available_parallelism().map_or(1, usize::from);
    tree.get::<Option<usize>>("workers").unwrap_or_else(available)
}

pub(super) fn server_name(scope: &mut Scope<'_>, tree: &Table) -> String {
    scope.parsed(tree, "server_name", name).unwrap_or_default()
}

/// Returns the addresses and networks in a list.
pub(super) fn networks(scope: &mut Scope<'_>, table: &Table, key: &str) -> Vec<IpNet> {
    scope.parsed_list(table, key, |text| {
        let address = || text.parse::<IpAddr>().map(IpNet::from);
        text.parse::<IpNet>()
            .or_else(|_| address())
            .map(as_addresses_are_compared)
            .map_err(|_| format!("expected an IP address or network, such as `10.0.0.0/8`; found {text:?}"))
    })
}

pub(super) fn trusted_proxies(scope: &mut Scope<'_>, tree: &Table) -> TrustedProxies {
    let networks = networks(scope, tree, "trusted_proxies");
    warn_of_everybody(scope, tree, &networks);
    TrustedProxies { networks, hops_max: tree.get("forwarded_hops_max") }
}

/// Warns of networks that together cover all addresses.
fn warn_of_everybody(scope: &mut Scope<'_>, tree: &Table, networks: &Vec<IpNet>) {
    let all = IpNet::aggregate(networks).into_iter().filter(|network| network.prefix_len() == 0);
    let all: Vec<String> = all.map(|network| network.to_string()).collect();
    if let (false, Some(node)) = (all.is_empty(), tree.node("trusted_proxies")) {
        let verb = if all.len() == 1 { "covers" } else { "cover" };
        scope.warning(node, format!("{} {verb} every address: {EVERYBODY_TRUSTED}", all.join(" and ")));
    }
}

const EVERYBODY_TRUSTED: &str = "any client can claim any address, scheme and host, and get past `clients_allowed` and rate limits; \
     list only your own proxies, such as `10.0.0.0/8`";

/// Returns IPv4-mapped networks as IPv4: addresses of clients are compared that way, whichever form the system reports.
fn as_addresses_are_compared(network: IpNet) -> IpNet {
    const MAPPED_BITS: u8 = 96;
    let IpNet::V6(written) = network else { return network };
    match (written.network().to_ipv4_mapped(), written.prefix_len().checked_sub(MAPPED_BITS)) {
        (Some(address), Some(bits)) => IpNet::new(address.into(), bits).unwrap_or(network),
        _ => network,
    }
}

/// Returns whether the configuration needs a gateway.
pub(super) fn has_gateway(tree: &Table) -> bool {
    !tree.list("site").is_empty() || (tree.optional_table("kv").is_none() && !tree.is_wrong("kv"))
}

/// The part of the admin API that is requested.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AskedFor {
    Nothing,
    Probes,
    Everything,
}

/// Returns the part of the admin API that the process needs. A gateway always has the API; `larder kv` has it only if the file or the
/// command line requests it. The environment variables of poor-man-s-cache request only the probes.
pub(super) fn asked(program: Program, tree: &Table) -> AskedFor {
    let admin = tree.table("admin");
    match program {
        Program::Serve => AskedFor::Everything,
        Program::Kv if tree.given("admin").is_some() || admin.given("listen").is_some() => {
            AskedFor::Everything
        }
        Program::Kv if admin.given("probes_listen").is_some() => AskedFor::Probes,
        Program::Kv => AskedFor::Nothing,
    }
}

/// Returns `None` if the token can't be used: the API would be open without it.
pub(super) fn admin(scope: &mut Scope<'_>, table: &Table, asked: AskedFor) -> Option<AdminConfig> {
    let listen = scope.parsed(table, "listen", parse_address);
    let probes_listen = scope.parsed(table, "probes_listen", parse_address);
    let limits = AdminLimits::default();
    if asked == AskedFor::Probes {
        let (listen, reach) = (probes_listen?, Reach::Probes);
        return Some(AdminConfig { listen, reach, probes_listen: None, token: None, limits });
    }
    let token = token(scope, table)?;
    if let (Some(address), None, Some(node)) = (listen, &token, table.node("listen"))
        && !address.ip().is_loopback()
    {
        scope.error(node, OPEN_ADMIN);
    }
    Some(AdminConfig { listen: listen?, reach: Reach::Admin, probes_listen, token, limits })
}

/// Returns `None` without a token, which disables purges through client addresses. An unusable token is reported
/// separately.
pub(super) fn purge_method(scope: &mut Scope<'_>, table: &Table) -> Option<PurgeMethod> {
    let token = token(scope, table)??;
    Some(PurgeMethod::new(move |text| token.matches(text)))
}

/// Returns `None` if the token can't be used, and `Some(None)` if there is none.
fn token(scope: &mut Scope<'_>, table: &Table) -> Option<Option<admin::Secret>> {
    let Some(node) = table.node("token_file") else { return Some(None) };
    let secret = scope.secret(node)?;
    let token = admin::Secret::new(secret.reveal()).map_err(|error| error.to_string());
    scope.take(node, token).map(Some)
}

pub(super) fn log(scope: &mut Scope<'_>, table: &Table) -> LogSettings {
    let access = match table.node("access").map(|node| (node, node.as_text())) {
        Some((_, "stdout")) => AccessTarget::Stdout,
        Some((_, "off")) | None => AccessTarget::Off,
        Some((node, _)) => access_file(scope, node),
    };
    LogSettings {
        level: table.get("level"),
        format: table.get("format"),
        access,
        access_format: table.get("access_format"),
        access_queue_lines_max: table.get("access_queue_lines_max"),
        redact: table.list("redact").iter().map(|node| node.as_text().to_owned()).collect(),
    }
}

/// Checks that listening addresses don't conflict: each is used once, and a port on all addresses can't be used by
/// another part of the process.
pub(super) fn check_addresses(scope: &mut Scope<'_>, tree: &Table, asked: AskedFor) {
    let listens = |part| match part {
        Part::Gateway => has_gateway(tree),
        Part::Kv => true,
        Part::Admin => asked == AskedFor::Everything,
        Part::Probes => asked != AskedFor::Nothing,
    };
    let parts = LISTENED_ON.into_iter().filter(|(part, _)| listens(*part));
    let nodes = parts.flat_map(|(part, path)| tree.nodes(path).into_iter().map(move |node| (part, node)));
    let mut seen: Vec<(Part, SocketAddr, &Node)> = Vec::new();
    for (part, node) in nodes {
        let Ok(address) = node.as_text().parse::<SocketAddr>() else { continue };
        let clashes = |(other_part, other, _): &&(Part, SocketAddr, &Node)| {
            *other == address && address.port() != 0 || *other_part != part && overlap(*other, address)
        };
        match seen.iter().find(clashes) {
            Some((_, _, other)) => {
                scope.error(node, format!("{address} is already used by `{}`", other.path))
            }
            None => seen.push((part, address, node)),
        }
    }
}

/// Returns whether a connection could match both addresses. `[::]` accepts IPv4 too.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let covers = |all: IpAddr, ip: IpAddr| all.is_unspecified() && (all.is_ipv6() || ip.is_ipv4());
    let (a, b) = (one.ip(), other.ip());
    one.port() == other.port() && one.port() != 0 && (a == b || covers(a, b) || covers(b, a))
}

fn access_file(scope: &mut Scope<'_>, node: &Node) -> AccessTarget {
    let path = scope.path(node);
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if directory.is_some_and(|directory| !directory.is_dir()) {
        scope.error(
            node,
            format!(
                "expected `off`, `stdout` or the path of a file; the directory of {} doesn't exist",
                path.display()
            ),
        );
    } else if path.is_dir() {
        scope.error(node, format!("{} is a directory", path.display()));
    }
    AccessTarget::File(path)
}

/// Converts to milliseconds, in the integer type of the crates without I/O.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

const OPEN_ADMIN: &str = "without `token_file` the admin API must listen on a loopback address: anyone who can reach it \
                          could purge everything (for probes and metrics alone, use `probes_listen`)";
