//! Parses any bytes as `Forwarded` and as `X-Forwarded-For`, with a limit. A client's text doesn't change the element
//! that a proxy appends to it. Parsed hops round-trip: written out again, they parse to the same hops.

#![no_main]

use caching::forwarded::{End, Hops, Node, Source};
use libfuzzer_sys::fuzz_target;

const PROXY: &str = "192.0.2.1";

fuzz_target!(|bytes: &[u8]| {
    let Some((&limit, claims)) = bytes.split_first() else { return };
    let hops_max = usize::from(limit) + 1;
    for source in [Source::Forwarded, Source::XForwardedFor] {
        let lines = [(source.name(), claims)];
        let hops = Hops::read(&lines, hops_max);
        assert!(hops.nearest.len() <= hops_max);
        assert!(hops.end != End::Limit || hops.nearest.len() == hops_max);
        let nodes: Vec<Node> = hops.nearest.iter().filter_map(|hop| hop.node.clone()).collect();
        check_written(&nodes);
        check_behind(source, claims, &nodes);
    }
});

/// Checks that both forms have the same meaning.
fn check_written(nodes: &[Node]) {
    for source in [Source::Forwarded, Source::XForwardedFor] {
        let written: Vec<Vec<u8>> = nodes.iter().rev().map(|node| element(source, node)).collect();
        let written = written.join(&b", "[..]);
        let lines = [(source.name(), &written[..])];
        let again = Hops::read(&lines, nodes.len() + 1);
        assert_eq!(again.end, End::Complete, "{}", written.escape_ascii());
        let read: Vec<Node> = again.nearest.into_iter().filter_map(|hop| hop.node).collect();
        assert_eq!(read, nodes, "{}", written.escape_ascii());
    }
}

fn element(source: Source, node: &Node) -> Vec<u8> {
    let mut text = Vec::new();
    match source {
        Source::XForwardedFor => node.write(&mut text),
        Source::Forwarded => {
            text.extend_from_slice(b"for=");
            node.write_as_value(&mut text);
        }
    }
    text
}

/// Checks that a proxy's element after a client's claims, in the same line or a separate one, is the nearest hop, and
/// that it doesn't change how the claims are parsed.
fn check_behind(source: Source, claims: &[u8], alone: &[Node]) {
    let proxy = Node::parse(PROXY.as_bytes()).expect("it is an address");
    let text = element(source, &proxy);
    let joined = [claims, b", ", &text].concat();
    let (one, two) = ([(source.name(), &joined[..])], [(source.name(), claims), (source.name(), &text[..])]);
    for lines in [&one[..], &two] {
        let hops = Hops::read(lines, usize::MAX);
        let nodes: Vec<Node> = hops.nearest.into_iter().filter_map(|hop| hop.node).collect();
        assert_eq!(nodes[0], proxy, "{}", joined.escape_ascii());
        assert!(nodes[1..].starts_with(alone), "{}", joined.escape_ascii());
    }
}
