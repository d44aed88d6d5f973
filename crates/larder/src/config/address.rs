//! Addresses with a port, also as host names. A name that is to be listened on is looked up once, so that all that follows sees one IP address.

use std::net::{SocketAddr, ToSocketAddrs};

use super::tree::{Node, Table, Value};

/// An IP address with a port, or a host name with a port: then its first address, of IPv4 if it has one. One address and not all, because a
/// machine without IPv6 still has it in its files, and a free port would be another for each.
pub(crate) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let (host, port) = name_and_port(text).ok_or_else(|| wrong(text))?;
    let found = (host, port).to_socket_addrs().map_err(|error| format!("{host} has no address: {error}"))?;
    found.min_by_key(SocketAddr::is_ipv6).ok_or_else(|| format!("{host} has no address"))
}

/// Puts the addresses of names in the place of the names, where they have one: a reload then compares what is listened on.
pub(super) fn resolve(tree: &mut Table) {
    each_table(tree, "listen", &mut |listener| each_text(listener, "address"));
    each_table(tree, "kv", &mut |kv| {
        each_text(kv, "listen");
        each_table(kv, "tls", &mut |tls| each_text(tls, "listen"));
    });
    each_table(tree, "admin", &mut |admin| {
        each_text(admin, "listen");
        each_text(admin, "probes_listen");
    });
}

fn each_table(table: &mut Table, key: &str, act: &mut dyn FnMut(&mut Table)) {
    each_node(table, key, &mut |node| {
        if let Value::Table(inner) = &mut node.value {
            act(inner);
        }
    });
}

fn each_text(table: &mut Table, key: &str) {
    each_node(table, key, &mut |node| {
        if let Value::Text(text) = &mut node.value
            && let Ok(address) = parse_address(text)
        {
            *text = address.to_string();
        }
    });
}

/// The value of a key, or the elements of a list.
fn each_node(table: &mut Table, key: &str, act: &mut dyn FnMut(&mut Node)) {
    for (_, node) in table.entries.iter_mut().filter(|(name, _)| *name == key) {
        match &mut node.value {
            Value::List(nodes) => nodes.iter_mut().for_each(&mut *act),
            _ => act(node),
        }
    }
}

/// No name ends in a number: the resolver would take `1.2.3` for an address with a part left out.
fn name_and_port(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    let last = host.rsplit('.').next()?;
    let is_name = host.split('.').all(label) && !last.bytes().all(|byte| byte.is_ascii_digit());
    is_name.then_some((host, port.parse().ok()?))
}

fn wrong(text: &str) -> String {
    match text.strip_prefix(':').map(str::parse::<u16>) {
        Some(Ok(port)) => {
            format!("not an address and port; for every address write `0.0.0.0:{port}` or `[::]:{port}`")
        }
        _ => "not an address and port, such as `127.0.0.1:8080`, `[::1]:8080` or `localhost:8080`".to_owned(),
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
            ("127.0.0.1", "not an address and port"),
            ("nowhere", "not an address and port"),
            ("1.2.3:80", "not an address and port"),
            ("http://a:80", "not an address and port"),
            ("a:65536", "not an address and port"),
            ("a b:80", "not an address and port"),
            ("no-such-name.invalid:80", "no-such-name.invalid has no address"),
        ] {
            let error = parse_address(text).expect_err(text);
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
