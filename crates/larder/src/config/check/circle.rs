//! Detects origins that are this process itself. A request that is forwarded to one of the gateway's listeners comes back, and is answered
//! with 508. The admin API would treat a forwarded request as local, so clients could purge and reload.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use admin::AdminConfig;
use gateway::config::Config;
use origin::settings::OriginAddress;

use super::scope::Scope;
use crate::config::address::is_local;
use crate::config::tree::Table;

/// Reports sites whose origin is one of this process's listeners. Only addresses and `localhost` are compared, because other names are
/// resolved only when they are used.
pub(super) fn check_origins(
    scope: &mut Scope<'_>,
    tree: &Table,
    config: &Config,
    admin: Option<&AdminConfig>,
) {
    let listeners: Vec<SocketAddr> = config.listeners.iter().map(|listener| listener.address).collect();
    let admin: Vec<SocketAddr> =
        admin.into_iter().flat_map(|admin| [Some(admin.listen), admin.probes_listen]).flatten().collect();
    let sites: HashMap<_, _> = config.sites.iter().map(|site| (site.name.as_str(), site)).collect();
    for table in tree.tables("site") {
        let Some(site) = table.text("name").and_then(|name| sites.get(name)) else { continue };
        let Some(node) = table.node("origin") else { continue };
        for server in &site.origin.servers {
            let OriginAddress::Tcp { host, port } = &server.endpoint.address else { continue };
            for (own, what) in [(&listeners, "which"), (&admin, "whose admin API")] {
                if let Some(own) = own_listener(host, *port, own, is_local) {
                    scope.error(node, format!("the origin is this process itself, {what} listens on {own}"));
                }
            }
        }
    }
}

/// Returns the listener that connections to this host and port reach.
fn own_listener(
    host: &str,
    port: u16,
    listeners: &[SocketAddr],
    is_local: impl Fn(IpAddr) -> bool,
) -> Option<SocketAddr> {
    let addresses = addresses(host);
    let reaches = |listener: &&SocketAddr| {
        let takes = |ip: &IpAddr| {
            let is_covered = listener.is_ipv6() || ip.is_ipv4();
            listener.ip() == *ip
                || listener.ip().is_unspecified() && is_covered && (ip.is_loopback() || is_local(*ip))
        };
        listener.port() == port && addresses.iter().any(takes)
    };
    listeners.iter().find(reaches).copied()
}

/// Returns the addresses of a host without a look-up. As a destination, an unspecified address means this machine.
fn addresses(host: &str) -> Vec<IpAddr> {
    let loopbacks = [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
    match host.parse::<IpAddr>() {
        Ok(ip) if ip.is_unspecified() => {
            loopbacks.into_iter().filter(|other| other.is_ipv4() == ip.is_ipv4()).collect()
        }
        Ok(ip) => vec![ip.to_canonical()],
        Err(_) if host == "localhost" || host.ends_with(".localhost") => loopbacks.to_vec(),
        Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reaches_a_listener() {
        let is_local = |ip: IpAddr| ip == IpAddr::from([192, 0, 2, 1]);
        let check = |host: &str, listener: &str, expected: bool| {
            let listeners = ["127.0.0.1:1", listener].map(|text| text.parse().unwrap());
            let found = own_listener(host, 8080, &listeners, is_local).is_some();
            assert_eq!(found, expected, "{host}:8080 and {listener}");
        };
        for host in ["127.0.0.1", "localhost", "app.localhost", "0.0.0.0", "192.0.2.1"] {
            check(host, "0.0.0.0:8080", true);
            check(host, "[::]:8080", true);
            check(host, "0.0.0.0:8081", false);
        }
        for (host, is_own) in [
            ("127.0.0.1", true),
            ("localhost", true),
            ("0.0.0.0", true),
            ("::ffff:127.0.0.1", true),
            ("127.0.0.2", false),
            ("192.0.2.1", false),
            ("::1", false),
            ("app.example", false),
        ] {
            check(host, "127.0.0.1:8080", is_own);
        }
        check("127.0.0.2", "0.0.0.0:8080", true);
        check("192.0.2.2", "0.0.0.0:8080", false);
        check("192.0.2.1", "192.0.2.1:8080", true);
        check("::1", "[::1]:8080", true);
        check("::1", "[::]:8080", true);
        check("::1", "0.0.0.0:8080", false);
        check("localhost", "[::1]:8080", true);
        check("app.example", "0.0.0.0:8080", false);
    }
}
