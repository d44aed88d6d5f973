//! Origins with several servers: which of them gets a request, and what becomes of requests when one is in trouble.

use testkit::{Client, Gate, Larder, ScriptedOrigin, Setup, run, wait};

const LARDER: &str = env!("CARGO_BIN_EXE_larder");

/// Answers with its number, and may not be stored.
fn numbered(number: usize) -> ScriptedOrigin {
    ScriptedOrigin::start(move |exchange| {
        exchange.read_body();
        exchange.respond("200 OK", "Cache-Control: no-store\r\n", number.to_string());
    })
}

fn numbered_servers(count: usize) -> Vec<ScriptedOrigin> {
    (0..count).map(numbered).collect()
}

/// An origin with these servers and weights, and more settings of it.
fn config(servers: &[(String, u32)], settings: &str) -> String {
    let server = |(url, weight): &(String, u32)| format!("{{ url = \"{url}\", weight = {weight} }}");
    let servers = servers.iter().map(server).collect::<Vec<_>>().join(", ");
    format!(
        "[[origin]]\nname = \"group\"\nservers = [{servers}]\n{settings}\n\
         [[site]]\nname = \"a\"\norigin = \"group\"\n"
    )
}

fn weighted(servers: &[ScriptedOrigin], weights: &[u32]) -> Vec<(String, u32)> {
    servers.iter().map(ScriptedOrigin::url).zip(weights.iter().copied()).collect()
}

fn start(servers: &[ScriptedOrigin], weights: &[u32], settings: &str) -> Larder {
    Setup::config(LARDER, &config(&weighted(servers, weights), settings)).start()
}

#[track_caller]
fn reload(larder: &mut Larder, config: &str) {
    larder.write_config(config);
    assert_eq!(larder.ask_admin("POST", "/reload", "").status(), 200);
}

/// The numbers of the servers that answered so many requests for different URLs, one after the other.
fn answers(client: &mut Client, count: usize) -> Vec<usize> {
    let one = |number| {
        let response = client.get(&format!("/{number}"));
        assert_eq!(response.status(), 200);
        response.text().parse().expect("the number of a server")
    };
    (0..count).map(one).collect()
}

#[test]
fn each_method_distributes_by_weight() {
    const REQUESTS: usize = 300;
    // By lot, counts differ: of 300 with a chance of a half, one in a million times by more than 42.
    for (balance, tolerance) in
        [("round-robin", 0), ("least-requests", 0), ("power-of-two", 50), ("consistent-hash", 50)]
    {
        let servers = numbered_servers(4);
        let weights = [3, 0, 2, 1];
        let larder = start(&servers, &weights, &format!("balance = \"{balance}\""));
        answers(&mut larder.client(), REQUESTS);
        let counts: Vec<_> = servers.iter().map(ScriptedOrigin::total).collect();
        eprintln!("{balance}: {REQUESTS} requests, weights {weights:?}, counts {counts:?}");
        assert_eq!(counts.iter().sum::<usize>(), REQUESTS, "{balance}");
        for ((count, weight), server) in counts.iter().zip(weights).zip(&servers) {
            let expected = REQUESTS * weight as usize / 6;
            assert!(count.abs_diff(expected) <= tolerance, "{balance}: {counts:?}");
            assert!(weight > 0 || *count == 0, "{balance}: {counts:?}");
            let url = format!("server=\"{}\"", server.url());
            let counted = larder.metric("larder_origin_server_requests_total", &["origin=\"group\"", &url]);
            assert!((counted - *count as f64).abs() < 0.5, "{balance}: {counted} {count}");
        }
    }
}

/// The requests for a URL go to one server, whatever their method, and to the same one after a restart. When a server goes,
/// nobody else's URLs move.
#[test]
fn consistent_hashing_moves_nothing_but_the_urls_of_the_server_that_goes() {
    const URLS: usize = 100;
    let servers = numbered_servers(3);
    let settings = "balance = \"consistent-hash\"";
    let mut larder = start(&servers, &[1, 1, 1], settings);
    let before = answers(&mut larder.client(), URLS);
    for (number, server) in before.iter().enumerate() {
        let target = format!("/{number}");
        let seen = servers[*server].count(&target);
        for method in ["HEAD", "POST"] {
            assert_eq!(larder.ask(method, &target, "Content-Length: 0\r\n").status(), 200);
        }
        assert_eq!(servers[*server].count(&target), seen + 2, "{target}");
    }
    let again = start(&servers, &[1, 1, 1], settings);
    assert_eq!(answers(&mut again.client(), URLS), before);
    reload(&mut larder, &config(&weighted(&servers, &[1, 0, 1]), settings));
    let after = answers(&mut larder.client(), URLS);
    let moved: Vec<_> = before.iter().zip(&after).filter(|(before, after)| before != after).collect();
    assert!(moved.iter().all(|(before, after)| **before == 1 && **after != 1), "{moved:?}");
    assert_eq!(moved.len(), before.iter().filter(|server| **server == 1).count());
}

/// A server that is drained gets nothing new, and finishes what it has.
#[test]
fn a_drained_server_finishes_what_it_has() {
    let gate = Gate::new();
    let held = gate.clone();
    let slow = ScriptedOrigin::start(move |exchange| {
        held.pass();
        exchange.respond("200 OK", "Cache-Control: no-store\r\n", "0");
    });
    let servers = [slow, numbered(1)];
    let mut larder = start(&servers, &[1, 1], "");
    let mut waiting = larder.client();
    waiting.send("GET /slow HTTP/1.1\r\nHost: test.example\r\n\r\n");
    servers[0].wait_for("/slow", 1);
    reload(&mut larder, &config(&weighted(&servers, &[0, 1]), ""));
    assert_eq!(answers(&mut larder.client(), 20), [1; 20]);
    let slow = format!("server=\"{}\"", servers[0].url());
    let in_flight = || larder.metric("larder_origin_server_requests_in_flight", &[&slow]);
    assert!((in_flight() - 1.0).abs() < 0.5);
    gate.open();
    let response = waiting.response();
    assert_eq!((response.status(), response.text().as_str()), (200, "0"));
    wait::until_true("nothing is in flight", || in_flight() < 0.5);
}

/// What a busy server has not answered keeps new requests from it.
#[test]
fn least_requests_and_power_of_two_spare_a_busy_server() {
    for balance in ["least-requests", "power-of-two"] {
        let gate = Gate::new();
        let held = gate.clone();
        let busy = ScriptedOrigin::start(move |exchange| {
            held.pass();
            exchange.respond("200 OK", "Cache-Control: no-store\r\n", "0");
        });
        let servers = [busy, numbered(1)];
        let larder = start(&servers, &[1, 1], &format!("balance = \"{balance}\""));
        let mut waiting: Vec<Client> = Vec::new();
        wait::until_true("the busy server has a request", || {
            let mut client = larder.client();
            client.send("GET /held HTTP/1.1\r\nHost: test.example\r\n\r\n");
            waiting.push(client);
            wait::until_true("one has it", || {
                servers.iter().map(ScriptedOrigin::total).sum::<usize>() >= waiting.len()
            });
            servers[0].total() == 1
        });
        assert_eq!(answers(&mut larder.client(), 30), [1; 30], "{balance}");
        gate.open();
        for mut client in waiting {
            assert_eq!(client.response().status(), 200);
        }
    }
}

#[test]
fn a_pick_is_explained() {
    let servers = numbered_servers(2);
    let larder = start(&servers, &[1, 0], "balance = \"power-of-two\"");
    let output = run(LARDER, ["explain", "http://test.example/", "--admin", &larder.admin().to_string()]);
    let text = output.text();
    for part in [
        &format!("pick     the request goes to {}", servers[0].url()),
        "balance = power-of-two",
        "servers that take requests = 1 of 2",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
