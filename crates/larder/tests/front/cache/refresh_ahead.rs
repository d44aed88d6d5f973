//! Background validations of fresh responses whose lifetime ends soon (`refresh_ahead_percent`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use testkit::{Client, Exchange, Larder, ScriptedOrigin, Setup, wait};

use super::basics::{client_from, filled, with};
use crate::LARDER;
use crate::fleet::instances::{self, is_written};
use crate::fleet::store_servers::on_each_store;

const URLS: usize = 16;

#[derive(Clone, Default)]
struct Arrivals(Arc<Mutex<BTreeMap<String, Vec<Instant>>>>);

impl Arrivals {
    fn note(&self, exchange: &Exchange<'_>) {
        let target = exchange.request.target().to_owned();
        self.0.lock().unwrap().entry(target).or_default().push(Instant::now());
    }

    fn are(&self, count: usize) -> bool {
        let arrivals = self.0.lock().unwrap();
        arrivals.len() == URLS && arrivals.values().all(|times| times.len() >= count)
    }

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

fn settings(percent: u8) -> String {
    format!("@site@[[site.rule]]\nrefresh_ahead_percent = {percent}\n")
}

fn store_all(client: &mut Client) {
    (0..URLS).for_each(|url| assert_eq!(client.get(&format!("/{url}")).text(), "page"));
}

/// Answers validations with a 304 with the fields `validated`, and other requests with a page that is fresh for
/// `fresh_s` seconds.
fn tagged(exchange: &mut Exchange<'_>, fresh_s: u32, validated: &str) {
    match exchange.request.field("if-none-match") {
        "" => {
            let fields = format!("ETag: \"1\"\r\nCache-Control: max-age={fresh_s}\r\n");
            exchange.respond("200 OK", &fields, "page")
        }
        _ => exchange.respond("304 Not Modified", validated, ""),
    };
}

/// Requests all URLs, whose responses must be fresh hits, and returns how many of them report a background
/// validation.
fn hits(client: &mut Client) -> usize {
    let mut is_ahead = |url: usize| {
        let response = client.get(&format!("/{url}"));
        let status = response.cache_status();
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
    let origin = origin(&arrivals, |exchange| tagged(exchange, 14, "Cache-Control: max-age=3600\r\n"));
    let larder = with(&settings(90), &origin);
    let mut client = larder.client();
    store_all(&mut client);
    let mut told = 0;
    while !arrivals.are(2) {
        told += hits(&mut client);
    }
    assert!(told >= URLS, "{told} reported a validation");
    assert_eq!(validations(&larder, "ahead"), URLS as f64);
    let gaps = arrivals.gaps();
    let (first, last) = (gaps.iter().min().unwrap(), gaps.iter().max().unwrap());
    // Within the first half of the window, which is 6.3 s, at a random time for each of 16.
    assert!(*last - *first > Duration::from_secs(3), "{gaps:?}");
}

const FORBIDDEN: &str = "403 Forbidden";

/// The origin refuses the constant requests of some clients after a while. The response is still renewed for others.
fn check_renewal_beside(refused_clients: u8, (status, delay_ms): (&'static str, u64), refused_max: usize) {
    let refused = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&refused);
    let origin = ScriptedOrigin::start(move |exchange| {
        let is_first = exchange.request.earlier == 0;
        if is_first || exchange.request.field("x-refused").is_empty() {
            let fields = "Cache-Control: max-age=1, stale-while-revalidate=600\r\n";
            exchange.respond("200 OK", fields, if is_first { "old" } else { "new" });
        } else {
            counted.fetch_add(1, Ordering::Relaxed);
            exchange.delay_ms(delay_ms).respond(status, "Cache-Control: no-store\r\n", "refused");
        }
    });
    let larder = with(&settings(0), &origin);
    let mut others: Vec<Client> =
        (0..refused_clients).map(|number| client_from(&larder, 2 + number)).collect();
    let mut client = client_from(&larder, 1);
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
    assert!(refused <= refused_max, "{refused} validations failed before another client's succeeded");
}

#[test]
fn clients_whose_requests_are_refused_leave_the_validation_to_others() {
    // One is expected; more if this machine delays all requests for half a second.
    check_renewal_beside(1, (FORBIDDEN, 0), 4);
    // Each client pauses for half a second at first, while two others are refused; then for longer.
    check_renewal_beside(3, (FORBIDDEN, 300), 12);
    // A server error for one request doesn't count against others.
    check_renewal_beside(1, ("500 Internal Server Error", 0), 4);
}

/// Two instances under constant requests: one validates for both, and no response is stale.
#[test]
fn one_of_several_instances_validates_ahead() {
    on_each_store(|store| {
        let arrivals = Arrivals::default();
        let origin = origin(&arrivals, |exchange| tagged(exchange, 5, "Cache-Control: max-age=5\r\n"));
        let remote = format!("[store.remote]\nurl = \"redis://{store}/0\"\nrecord_timeout = \"10s\"\n");
        let config = filled(&format!("{}{remote}", settings(60)), &origin);
        let fleet = instances::start(2, |_| Setup::config(LARDER, &config));
        for gateway in &fleet {
            store_all(&mut gateway.client());
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
