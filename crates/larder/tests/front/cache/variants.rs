//! Variants of one key, with room for a few: variants in use stay, even if clients request many others.

use testkit::{Client, Redis, ScriptedOrigin, Setup};

use super::basics::{bare, client_from, filled, with};
use crate::LARDER;
use crate::fleet::instances::{is_written, start};

/// The default of `variants_max`.
const ROOM: usize = 32;

fn origin() -> ScriptedOrigin {
    ScriptedOrigin::start(|exchange| {
        let kind = exchange.request.field("x-kind").to_owned();
        exchange.respond("200 OK", "Cache-Control: max-age=600\r\nVary: X-Kind\r\n", kind);
    })
}

/// Requests a variant `times` times, and returns whether the last response was a hit.
fn ask(client: &mut Client, kind: &str, times: usize) -> bool {
    let mut ask = || {
        let response = client.ask("GET", "/page", &format!("X-Kind: {kind}\r\n"));
        assert_eq!(response.text(), kind, "{:?}", response.head);
        response.is_hit()
    };
    (0..times).map(|_| ask()).last().expect("at least once")
}

fn is_stored(client: &mut Client, kind: &str) -> bool {
    let fields = format!("X-Kind: {kind}\r\nCache-Control: only-if-cached\r\n");
    client.ask("GET", "/page", &fields).status() == 200
}

/// Field bug: the newest variants were kept instead of those in use.
#[test]
fn a_variant_that_is_used_stays_when_rare_ones_come() {
    let origin = origin();
    let larder = bare(&origin);
    for (rare_client, rare) in [(1, ROOM), (1, 4 * ROOM), (2, 4 * ROOM)] {
        let (mut usual, mut other) = (client_from(&larder, 1), client_from(&larder, rare_client));
        assert!(ask(&mut usual, "usual", 100));
        (0..rare).for_each(|number| _ = ask(&mut other, &format!("rare-{rare}-{number}"), 1));
        assert!(ask(&mut usual, "usual", 1), "after {rare} rare variants of client {rare_client}");
    }
    assert!(
        is_stored(&mut client_from(&larder, 1), &format!("rare-{}-{}", 4 * ROOM, 4 * ROOM - 1)),
        "the newest"
    );
}

/// Field bug: two clients that requested each other's variants evicted those that all others used, because a variant with several
/// clients counted for none of them.
#[test]
fn clients_together_turn_over_nothing_that_is_used() {
    for clients in [2, 5] {
        let origin = origin();
        let larder = with("@site@[store]\nvariants_max = 4\n", &origin);
        assert!(ask(&mut client_from(&larder, 1), "usual", 4));
        let mut greedy: Vec<_> = (2..2 + clients).map(|number| client_from(&larder, number)).collect();
        for kind in (0..8).map(|number| format!("greedy-{number}")) {
            for _ in 0..4 {
                greedy.iter_mut().for_each(|client| _ = ask(client, &kind, 1));
            }
        }
        assert!(ask(&mut client_from(&larder, 1), "usual", 1), "{clients} clients");
        let refused = greedy[0].ask("GET", "/page", "X-Kind: greedy-8\r\n").cache_status();
        assert!(!refused.contains("stored") && refused.ends_with("detail=variants-max"), "{refused}");
        // The first variants stay, and each request for another one is forwarded.
        let left = (0..8).filter(|number| is_stored(&mut greedy[0], &format!("greedy-{number}")));
        assert_eq!(left.collect::<Vec<_>>(), [0, 1, 2]);
    }
}

/// The record that instances share has room for the same number of variants.
#[test]
fn a_variant_that_one_instance_uses_stays_when_another_gets_rare_ones() {
    let (origin, redis) = (origin(), Redis::start(""));
    let remote =
        format!("[store.remote]\nurl = \"redis://{}/0\"\nrecord_timeout = \"10s\"\n", redis.address());
    let gateways = start(2, |_| Setup::config(LARDER, &filled(&format!("@site@{remote}"), &origin)));
    assert!(ask(&mut client_from(&gateways[0], 1), "usual", 20));
    is_written(&gateways[0]);
    let mut greedy = client_from(&gateways[1], 2);
    for number in 0..2 * ROOM {
        ask(&mut greedy, &format!("rare-{number}"), 2);
        is_written(&gateways[1]);
    }
    for gateway in &gateways {
        assert!(ask(&mut client_from(gateway, 3), "usual", 1));
    }
    assert_eq!(origin.total(), 1 + 2 * ROOM);
}
