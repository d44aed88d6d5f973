//! An origin that gets ten times the requests it can answer: its limit holds, hits are served, and excess requests are refused
//! immediately.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use testkit::{Larder, ScriptedOrigin, Setup, wait};

use crate::LARDER;

/// Maximum number of concurrent requests at the origin.
const PLACES: usize = 4;
const TAKES: Duration = Duration::from_millis(50);
const PACE: Duration = Duration::from_millis(100);
/// Number of clients, each of which sends up to ten requests a second, or fewer while queued. The origin can answer 80 a second in all.
const CLIENTS: usize = 110;
const HIT_CLIENTS: usize = 20;
/// Half of `queue_timeout`, because refused requests don't wait in the queue.
const REFUSED_P99_MAX: Duration = Duration::from_millis(100);
/// Time for recovery. Refused requests must not delay later ones.
const RECOVERED_MAX: Duration = Duration::from_secs(5);

/// Keeps the origin overloaded for a while.
pub(crate) fn run(duration: Duration) {
    let (present, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = (Arc::clone(&present), Arc::clone(&most));
    let origin = ScriptedOrigin::start(move |exchange| {
        let (present, most) = &counts;
        most.fetch_max(present.fetch_add(1, SeqCst) + 1, SeqCst);
        exchange.delay_ms(TAKES.as_millis() as u64);
        let is_stored = exchange.request.target().starts_with("/hit");
        present.fetch_sub(1, SeqCst);
        let control = if is_stored { "max-age=86400" } else { "no-store" };
        exchange.respond("200 OK", &format!("Cache-Control: {control}\r\n"), "page");
    });
    let larder = Setup::config(LARDER, &config(&origin.url())).start();
    assert_eq!(larder.get("/hit").status(), 200);
    let (forwarded, mut refused) = load(&larder, Instant::now() + duration);
    assert_eq!(most.load(SeqCst), PLACES, "the limit is used and kept");
    let capacity = duration.as_secs_f64() / TAKES.as_secs_f64() * PLACES as f64;
    assert!(forwarded as f64 >= 0.5 * capacity, "{forwarded} of {capacity} were answered");
    assert!(refused.len() > forwarded, "{} refused, {forwarded} answered: no overload", refused.len());
    refused.sort();
    let p99 = refused[refused.len() * 99 / 100];
    assert!(p99 <= REFUSED_P99_MAX, "a refusal took {p99:?}");
    eprintln!("{forwarded} answered, {} refused, p99 {p99:?}", refused.len());
    wait::until_within(RECOVERED_MAX, "it answers as before", || {
        let begun = Instant::now();
        (larder.get("/after").status() == 200 && begun.elapsed() < 2 * TAKES).then_some(())
    });
}

fn config(origin: &str) -> String {
    format!(
        "[[origin]]\nname = \"app\"\nurl = \"{origin}\"\n[origin.pool]\nrequests_in_flight_max = {PLACES}\nqueue_max = 16\n\
         client_share_percent = 100\n[[site]]\nname = \"s\"\norigin = \"app\"\n"
    )
}

/// Returns how many requests were forwarded, and how long each refusal took. Checks that every request for the stored
/// page is a hit.
fn load(larder: &Larder, end: Instant) -> (usize, Vec<Duration>) {
    let visit = |target: String| {
        let (mut client, mut forwarded, mut refused) = (larder.client(), 0, Vec::new());
        while Instant::now() < end {
            let begun = Instant::now();
            let response = client.get(&target);
            match (response.status(), response.is_hit()) {
                (200, is_hit) if is_hit == (target == "/hit") => forwarded += usize::from(!is_hit),
                (503, _) if response.head.fields.has("retry-after") && target != "/hit" => {
                    refused.push(begun.elapsed());
                }
                _ => panic!("{target}: {:?}", response.head),
            }
            thread::park_timeout(PACE.saturating_sub(begun.elapsed()));
        }
        (forwarded, refused)
    };
    thread::scope(|scope| {
        let targets = (0..CLIENTS).map(|number| format!("/other/{number}"));
        let targets = targets.chain((0..HIT_CLIENTS).map(|_| "/hit".to_owned()));
        let clients: Vec<_> = targets.map(|target| scope.spawn(move || visit(target))).collect();
        clients.into_iter().fold((0, Vec::new()), |(forwarded, mut refused), client| {
            let (more, others) = client.join().expect("every answer is right");
            refused.extend(others);
            (forwarded + more, refused)
        })
    })
}
