//! Addresses with a port, also as host names. A name to listen on is looked up once, so that all later steps see one IP
//! address.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};

use super::check::names::{host_name, number};
use super::tree::{Node, Table, Value};

/// Parses an IP address or a host name, with a port. A name stands for its first IPv4 address, or for its first address
/// if it has no IPv4 address.
pub(crate) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    parse(text, |_| true)
}

/// Parses an address to listen on. A name stands for the first of its addresses that this machine has, not for all of them: a machine
/// without IPv6 still has `::1` in its hosts file, and port 0 would pick a different port for each. If the machine has none of the
/// addresses, listening on the address fails with an error.
pub(crate) fn parse_listen_address(text: &str) -> Result<SocketAddr, String> {
    parse(text, |address| is_local(address.ip()))
}

/// Returns whether an address belongs to this machine.
pub(super) fn is_local(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

fn parse(text: &str, is_wanted: impl Fn(SocketAddr) -> bool) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let (host, port) = name_and_port(text).ok_or_else(|| wrong(text))?;
    let found =
        (host.as_str(), port).to_socket_addrs().map_err(|error| format!("{host} has no address: {error}"))?;
    chosen(found.collect(), is_wanted).ok_or_else(|| format!("{host} has no address"))
}

/// Sorts IPv4 addresses first, and returns the first wanted address, or the first if none is wanted.
fn chosen(mut found: Vec<SocketAddr>, is_wanted: impl Fn(SocketAddr) -> bool) -> Option<SocketAddr> {
    found.sort_by_key(SocketAddr::is_ipv6);
    found.iter().find(|address| is_wanted(**address)).or_else(|| found.first()).copied()
}

/// The names to listen on, with the addresses that they had at the start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names(BTreeMap<String, String>);

/// The parts with listeners.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Gateway,
    Kv,
    Admin,
    Probes,
}

/// Key paths of addresses to listen on.
pub(super) const LISTENED_ON: [(Part, &str); 5] = [
    (Part::Gateway, "listen.address"),
    (Part::Kv, "kv.listen"),
    (Part::Kv, "kv.tls.listen"),
    (Part::Admin, "admin.listen"),
    (Part::Probes, "admin.probes_listen"),
];

/// Replaces names that resolve with their addresses, so that a reload compares addresses. A running process keeps its listeners' addresses:
/// their names are not looked up again.
pub(super) fn resolve(tree: &mut Table, running: &Names) -> Names {
    let mut names = Names::default();
    let mut resolve = |node: &mut Node| {
        if let Value::Text(text) = &mut node.value {
            names.resolve(text, running);
        }
    };
    LISTENED_ON.iter().for_each(|(_, path)| tree.each_node(path, &mut resolve));
    names
}

impl Names {
    #[cfg(test)]
    pub(super) fn of<const N: usize>(names: [(&str, &str); N]) -> Self {
        Self(names.map(|(name, address)| (name.to_owned(), address.to_owned())).into())
    }

    fn resolve(&mut self, text: &mut String, running: &Self) {
        let address = match running.0.get(text) {
            Some(address) => address.clone(),
            None => match parse_listen_address(text) {
                Ok(address) => address.to_string(),
                // The check that reads the value reports the error.
                Err(_) => return,
            },
        };
        let name = std::mem::replace(text, address.clone());
        self.0.insert(name, address);
    }
}

fn name_and_port(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    host_name(host).ok().zip(number(port))
}

const EXPECTED: &str =
    "expected an address and port, such as `127.0.0.1:8080`, `[::1]:8080` or `localhost:8080`";

fn wrong(text: &str) -> String {
    match text.strip_prefix(':').map(str::parse::<u16>) {
        Some(Ok(port)) => {
            format!("expected an address and port; for every address write `0.0.0.0:{port}` or `[::]:{port}`")
        }
        // The text before an `@` may be a password.
        _ if text.contains('@') => format!("{EXPECTED}, without a user or a password"),
        _ => format!("{EXPECTED}; found {text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_numbers_or_names() {
        assert_eq!(parse_address("[::1]:80"), Ok(SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 80))));
        assert_eq!(parse_address("localhost:80"), Ok(SocketAddr::from(([127, 0, 0, 1], 80))));
        for (text, message) in [
            (":80", "for every address write `0.0.0.0:80`"),
            ("127.0.0.1", "expected an address and port"),
            ("nowhere", "expected an address and port"),
            ("1.2.3:80", "expected an address and port"),
            ("http://a:80", "expected an address and port"),
            ("a:65536", "expected an address and port"),
            ("localhost:+80", "expected an address and port"),
            ("a b:80", "expected an address and port"),
            ("me:hush@a:80", "without a user or a password"),
            ("0x7f000001:80", "expected an address and port"),
            ("no-such-name.invalid:80", "no-such-name.invalid has no address"),
        ] {
            let error = parse_address(text).expect_err(text);
            assert!(error.contains(message), "{text}: {error}");
        }
    }

    #[test]
    fn of_the_addresses_of_a_name_one_of_this_machine_counts() {
        let [elsewhere, v6, v4, other] = ["192.0.2.1:80", "[::1]:80", "127.0.0.1:80", "127.0.0.2:80"]
            .map(|text| text.parse::<SocketAddr>().expect("an address"));
        let check = |found: &[SocketAddr], here: &[SocketAddr], expected: Option<SocketAddr>| {
            let chosen = chosen(found.to_vec(), |address| here.contains(&address));
            assert_eq!(chosen, expected, "{found:?} where there are {here:?}");
        };
        check(&[elsewhere, v6, v4, other], &[v6, v4, other], Some(v4));
        check(&[elsewhere, v6], &[v6], Some(v6));
        check(&[v6, elsewhere], &[], Some(elsewhere));
        check(&[], &[], None);
        assert!(is_local(v4.ip()) && !is_local(elsewhere.ip()));
    }
}
