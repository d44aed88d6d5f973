//! Validations behind fresh responses whose lifetime ends soon (`refresh_ahead_percent`).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use testkit::{Client, Exchange, Larder, ScriptedOrigin, Setup, wait};

use crate::LARDER;
use crate::fleet::instances;
use crate::fleet::instances::{is_written, status};
use crate::fleet::store_servers::on_each_store;

const URLS: usize = 16;

/// When each URL was asked for at the origin.
#[derive(Clone, Default)]
struct Arrivals(Arc<Mutex<BTreeMap<String, Vec<Instant>>>>);

impl Arrivals {
    fn note(&self, exchange: &Exchange<'_>) {
        let target = exchange.request.target().to_owned();
        self.0.lock().unwrap().entry(target).or_default().push(Instant::now());
    }

    /// Whether each URL was asked for so often.
    fn are(&self, count: usize) -> bool {
        let arrivals = self.0.lock().unwrap();
        arrivals.len() == URLS && arrivals.values().all(|times| times.len() >= count)
    }

    /// The times between one request for a URL and the next.
    fn gaps(&self) -> Vec<Duration> {
        let between = |times: &Vec<Instant>| -> Vec<Duration> {
            times.windows(2).map(|pair| pair[1].duration_since(pair[0])).collect()
        };
        self.0.lock().unwrap().values().flat_map(between).collect()
    }
}

fn origin(arrivals: &Arrivals, answer: impl Fn(&mut Exchange<'_>) + Send + Sync + 'static) -> ScriptedOrigin {
    let seen = arrivals.clone();
    ScriptedOrigin::start(move |exchange| {
        seen.note(exchange);
        answer(exchange);
    })
}

fn settings(origin: &str, percent: u8) -> String {
    format!(
        "[[site]]\nname = \"default\"\norigin = \"{origin}\"\n[[site.rule]]\nrefresh_ahead_percent = {percent}\n"
    )
}

/// Asks for all URLs, whose responses must be fresh hits. How many of them say that they are validated behind.
fn hits(client: &mut Client) -> usize {
    let mut is_ahead = |url: usize| {
        let response = client.get(&format!("/{url}"));
        let status = status(&response);
        assert!(response.text() == "page" && status.contains("larder; hit"), "/{url}: {status}");
        status.contains("detail=refresh-ahead")
    };
    (0..URLS).filter(|url| is_ahead(*url)).count()
}

fn validations(larder: &Larder, event: &str) -> f64 {
    larder.metric("larder_background_validations_total", &[&format!("event=\"{event}\"")])
}

#[test]
fn what_is_asked_for_is_validated_before_it_expires_and_not_all_of_it_at_once() {
    let arrivals = Arrivals::default();
    let origin = origin(&arrivals, |exchange| {
        let fields = "ETag: \"1\"\r\nCache-Control: max-age=14\r\n";
        match exchange.request.field("if-none-match") {
            "" => exchange.respond("200 OK", fields, "page"),
            _ => exchange.respond("304 Not Modified", "Cache-Control: max-age=3600\r\n", ""),
        };
    });
    let larder = Setup::config(LARDER, &settings(&origin.url(), 90)).start();
    let mut client = larder.client();
    (0..URLS).for_each(|url| assert_eq!(client.get(&format!("/{url}")).text(), "page"));
    let mut told = 0;
    while !arrivals.are(2) {
        told += hits(&mut client);
    }
    assert!(told >= URLS, "{told} said that they are validated");
    assert_eq!(validations(&larder, "ahead"), URLS as f64);
    let gaps = arrivals.gaps();
    let (first, last) = (gaps.iter().min().unwrap(), gaps.iter().max().unwrap());
    // Within the first half of the window, which is 6.3 s, with a draw for each of 16.
    assert!(*last - *first > Duration::from_secs(3), "{gaps:?}");
}

#[test]
fn an_origin_that_fails_is_not_asked_again_at_once() {
    let arrivals = Arrivals::default();
    let origin = origin(&arrivals, |exchange| match exchange.request.earlier {
        0 => _ = exchange.respond("200 OK", "Cache-Control: max-age=20\r\n", "page"),
        _ => _ = exchange.respond("503 Service Unavailable", "", "down"),
    });
    let larder = Setup::config(LARDER, &settings(&origin.url(), 90)).start();
    let mut client = larder.client();
    (0..URLS).for_each(|url| assert_eq!(client.get(&format!("/{url}")).text(), "page"));
    // The first validations of a URL and what follows them.
    let is_enough = || arrivals.0.lock().unwrap().values().any(|times| times.len() >= 4);
    while !is_enough() {
        hits(&mut client);
    }
    let validated = |times: &Vec<Instant>| -> Vec<Duration> {
        times[1..].windows(2).map(|pair| pair[1].duration_since(pair[0])).collect()
    };
    let pauses: Vec<_> = arrivals.0.lock().unwrap().values().flat_map(validated).collect();
    assert!(pauses.iter().all(|pause| *pause > Duration::from_millis(450)), "{pauses:?}");
    assert!(validations(&larder, "in_vain") >= 3.0);
}

#[expect(clippy::disallowed_methods, reason = "an origin that takes a while to refuse")]
fn refuse_after(exchange: &mut Exchange<'_>, status: &str, refusal: Duration) {
    thread::sleep(refusal);
    exchange.respond(status, "Cache-Control: no-store\r\n", "refused");
}

const FORBIDDEN: &str = "403 Forbidden";

/// Some ask all the time for what the origin refuses after a while. What others ask for is renewed all the same.
fn check_renewal_beside(
    refused_clients: u8,
    (status, refusal): (&'static str, Duration),
    refused_max: usize,
) {
    let [asks, refused] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let (counted, counted_refused) = (Arc::clone(&asks), Arc::clone(&refused));
    let origin = ScriptedOrigin::start(move |exchange| {
        let is_refused = !exchange.request.field("x-refused").is_empty();
        let fields = "Cache-Control: max-age=1, stale-while-revalidate=600\r\n";
        let is_first = counted.fetch_add(1, Ordering::Relaxed) == 0;
        if is_refused && !is_first {
            counted_refused.fetch_add(1, Ordering::Relaxed);
            return refuse_after(exchange, status, refusal);
        }
        exchange.respond("200 OK", fields, if is_first { "old" } else { "new" });
    });
    let larder = Setup::config(LARDER, &settings(&origin.url(), 0)).start();
    let from = |number| Client::connect_from(IpAddr::from([127, 0, 0, number]), larder.address());
    let mut others: Vec<Client> = (0..refused_clients).map(|number| from(2 + number)).collect();
    let mut client = from(1);
    assert_eq!(client.get("/").text(), "old");
    wait::until_true("it is refused", || {
        assert_eq!(others[0].ask("GET", "/", "X-Refused: 1\r\n").text(), "old");
        refused.load(Ordering::Relaxed) > 0
    });
    wait::until_true("it is renewed", || {
        for number in 0..50 * others.len() {
            let other = number % others.len();
            others[other].ask("GET", "/", "X-Refused: 1\r\n");
        }
        client.get("/").text() == "new"
    });
    let refused = refused.load(Ordering::Relaxed);
    assert!(refused <= refused_max, "{refused} validations were in vain before one was somebody else's");
}

#[test]
fn clients_whose_requests_are_refused_leave_the_validation_to_others() {
    // One is to be expected; more if this machine lets nobody ask for half a second.
    check_renewal_beside(1, (FORBIDDEN, Duration::ZERO), 4);
    // Each waits for half a second at first, and meanwhile two others are refused; then for longer.
    check_renewal_beside(3, (FORBIDDEN, Duration::from_millis(300)), 12);
    // A server error of one request says nothing of others.
    check_renewal_beside(1, ("500 Internal Server Error", Duration::ZERO), 4);
}

/// Of 100 pages, which the origin refuses this client: each is asked for once the validation before is over.
#[test]
fn a_client_that_is_refused_for_many_urls_leaves_all_of_them_to_others() {
    const PAGES: usize = 100;
    let origin = ScriptedOrigin::start(|exchange| {
        if !exchange.request.field("x-refused").is_empty() {
            return refuse_after(exchange, FORBIDDEN, Duration::ZERO);
        }
        let page = if exchange.request.earlier == 0 { "old" } else { "new" };
        exchange.respond("200 OK", "Cache-Control: max-age=1, stale-while-revalidate=600\r\n", page);
    });
    let larder = Setup::config(LARDER, &settings(&origin.url(), 0)).start();
    let [mut refused, mut other] =
        [2, 3].map(|number| Client::connect_from(IpAddr::from([127, 0, 0, number]), larder.address()));
    (0..PAGES).for_each(|page| assert_eq!(other.get(&format!("/{page}")).text(), "old"));
    let last = format!("/{}", PAGES - 1);
    wait::until_true("the last one is stale", || {
        refused.ask("GET", &last, "X-Refused: 1\r\n");
        validations(&larder, "stale") > 0.0
    });
    let began = Instant::now();
    for page in 0..PAGES {
        assert_eq!(refused.ask("GET", &format!("/{page}"), "X-Refused: 1\r\n").text(), "old");
        wait::until_true("it is over", || validations(&larder, "stale") == validations(&larder, "in_vain"));
    }
    // 64 at first, and one more for each 125 ms.
    let (most, found) = (65.0 + began.elapsed().as_secs_f64() * 8.0, validations(&larder, "in_vain"));
    assert!((64.0..=most).contains(&found), "{found} validations were in vain, {most} may be");
    wait::until_true("it is renewed for others", || other.get(&last).text() == "new");
}

/// Two instances, asked all the time: one validates for both, and nobody finds a response stale.
#[test]
fn one_of_several_instances_validates_ahead() {
    on_each_store(|store| {
        let arrivals = Arrivals::default();
        let origin = origin(&arrivals, |exchange| {
            let fields = "ETag: \"1\"\r\nCache-Control: max-age=5\r\n";
            match exchange.request.field("if-none-match") {
                "" => exchange.respond("200 OK", fields, "page"),
                _ => exchange.respond("304 Not Modified", fields, ""),
            };
        });
        let config = format!(
            "{}[store.remote]\nurl = \"redis://{store}/0\"\nrecord_timeout = \"10s\"\n",
            settings(&origin.url(), 60)
        );
        let fleet = instances::start(2, |_| Setup::config(LARDER, &config));
        for gateway in &fleet {
            (0..URLS).for_each(|url| assert_eq!(gateway.get(&format!("/{url}")).text(), "page"));
            is_written(gateway);
        }
        thread::scope(|scope| {
            for gateway in &fleet {
                let arrivals = &arrivals;
                scope.spawn(move || {
                    let mut client = gateway.client();
                    while !arrivals.are(3) {
                        hits(&mut client);
                    }
                });
            }
        });
        // Due between 2 s and 3.5 s after the last time.
        let gaps = arrivals.gaps();
        assert!(gaps.iter().all(|gap| *gap > Duration::from_secs(1)), "{store}: {gaps:?}");
        assert!(fleet.iter().map(|gateway| validations(gateway, "ahead")).sum::<f64>() >= URLS as f64 * 2.0);
    });
}
