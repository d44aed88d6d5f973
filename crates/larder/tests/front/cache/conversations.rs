//! Plays the conversations of `conformance/caching` through the running binary, concurrently and in real time, with a path for each case.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use testkit::conversation::{
    Case, Context, Fails, Forwarded, Group, OriginAnswer, Profile, Seen, SentRequest, Step, latin1,
    read_groups,
};
use testkit::{End, Exchange, Fields, Larder, RedisCluster, ScriptedOrigin, Setup, wait};

use crate::LARDER;

/// What is behind the memory of the gateways.
enum Behind {
    Nothing,
    /// A tier that takes so many milliseconds for each answer. Memory has room only for notes.
    #[cfg(feature = "test-store")]
    Simulated {
        latency_ms: u32,
    },
    /// A cluster.
    Cluster(RedisCluster),
}

#[test]
fn every_conversation_goes_as_written() {
    check(&Behind::Nothing);
}

#[test]
fn every_conversation_goes_as_written_over_a_cluster() {
    check(&Behind::Cluster(RedisCluster::start()));
}

/// Stored responses are only in the tier, or on their way there.
#[cfg(feature = "test-store")]
#[test]
fn every_conversation_goes_as_written_over_a_tier_at_hand() {
    check(&Behind::Simulated { latency_ms: 0 });
}

#[cfg(feature = "test-store")]
#[test]
fn every_conversation_goes_as_written_over_a_tier_that_takes_its_time() {
    check(&Behind::Simulated { latency_ms: 5 });
}

fn check(behind: &Behind) {
    let groups = read_groups(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/caching"));
    let paths = groups.iter().flat_map(|group| (0..group.cases.len()).map(|index| group.path(index)));
    let desks: Desks = Arc::new(paths.map(|path| (path, Mutex::default())).collect());
    let origin = origin(Arc::clone(&desks));
    let gateways = gateways(&groups, &origin.url(), behind);
    let problems = play_all(&players(&groups, &gateways, &desks));
    gateways.values().for_each(|larder| was_used(larder, behind));
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

/// Concurrent players: enough that waiting ones cost no time, and few enough that each step is quick.
const PLAYERS: usize = 96;

/// Plays all cases, starting with the longest.
fn play_all(players: &[Player<'_>]) -> Vec<String> {
    let mut order: Vec<&Player<'_>> = players.iter().collect();
    order.sort_by_key(|player| Reverse(player.case.seconds()));
    let next = AtomicUsize::new(0);
    let work = || {
        let mut problems = Vec::new();
        while let Some(player) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            problems.extend(player.play());
        }
        problems
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..PLAYERS).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a player")).collect()
    })
}

/// The origin's side of a running case.
#[derive(Default)]
struct Desk {
    answers: VecDeque<OriginAnswer>,
    received: Vec<Forwarded>,
    uninvited: Vec<String>,
}

type Desks = Arc<HashMap<String, Mutex<Desk>>>;

fn lock(desk: &Mutex<Desk>) -> MutexGuard<'_, Desk> {
    desk.lock().expect("no holder of this lock panics")
}

fn origin(desks: Desks) -> ScriptedOrigin {
    ScriptedOrigin::start(move |exchange| {
        let body = exchange.read_body().iter().map(|byte| char::from(*byte)).collect();
        let (method, target) = (exchange.request.method().to_owned(), exchange.request.target().to_owned());
        let desk = desks.iter().find(|(path, _)| target.starts_with(path.as_str())).map(|(_, desk)| desk);
        let received = Forwarded { method, target, fields: exchange.request.head.fields.clone(), body };
        match desk.and_then(|desk| lock(desk).next(received)) {
            Some(answer) => give(exchange, &answer),
            None => _ = exchange.respond("500 Uninvited", "", "the origin must not be asked here"),
        }
    })
}

impl Desk {
    /// The answer to a request. A failure is repeated, because a request without an answer may be sent again.
    fn next(&mut self, received: Forwarded) -> Option<OriginAnswer> {
        let answer = self.answers.front().cloned();
        match &answer {
            Some(answer) if answer.fails.is_some() => {}
            Some(_) => drop(self.answers.pop_front()),
            None => self.uninvited.push(format!("{} {}", received.method, received.target)),
        }
        self.received.push(received);
        answer
    }
}

fn give(exchange: &mut Exchange<'_>, answer: &OriginAnswer) {
    pause(answer.delay_s);
    match (answer.fails, &answer.wire) {
        (Some(Fails::Close), _) => _ = exchange.close(),
        (Some(Fails::Reset), _) => _ = exchange.reset(),
        (None, Some(wire)) if answer.open => _ = exchange.send(latin1(wire)),
        (None, Some(wire)) => _ = exchange.send(latin1(wire)).close(),
        (None, None) => give_in_full(exchange, answer),
    }
}

fn give_in_full(exchange: &mut Exchange<'_>, answer: &OriginAnswer) {
    for (status, fields) in &answer.interim {
        exchange.send(latin1(&format!("HTTP/1.1 {status} Interim\r\n{}\r\n", lines(fields))));
    }
    let has_content = exchange.request.method() != "HEAD" && !matches!(answer.status, 204 | 304);
    let start = format!("HTTP/1.1 {} {}\r\n", answer.status, answer.reason);
    exchange.send(latin1(&(start + &lines(&answer.fields))));
    let is_framed = answer.fields.has("content-length") || answer.fields.has("transfer-encoding");
    if !answer.trailers.0.is_empty() {
        exchange.send("Transfer-Encoding: chunked\r\n\r\n");
        exchange.chunk(latin1(&answer.body)).last_chunk(&lines(&answer.trailers));
        return;
    }
    if has_content && !is_framed {
        exchange.send(format!("Content-Length: {}\r\n", latin1(&answer.body).len()));
    }
    exchange.send("\r\n");
    if has_content {
        exchange.send(latin1(&answer.body));
    }
}

fn lines(fields: &Fields) -> String {
    fields.0.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect()
}

fn gateways(groups: &[Group], origin: &str, behind: &Behind) -> BTreeMap<Profile, Larder> {
    let start = |profile: Profile| {
        let site = format!("[[site]]\nname = \"conversations\"\norigin = \"{origin}\"\n");
        let mut config = format!("profile = \"{}\"\n{site}", profile.as_str());
        let cases = groups.iter().flat_map(|group| group.cases.iter().enumerate().map(move |it| (group, it)));
        for (group, (index, case)) in cases {
            if case.profile == profile && !case.rules.is_empty() {
                config.push_str(&rule(&group.path(index), case));
            }
        }
        if let Behind::Cluster(cluster) = behind {
            let (url, prefix) = (cluster.url(), profile.as_str());
            config.push_str(&format!(
                "[store.remote]\nurl = \"{url}\"\nprefix = \"{prefix}:\"\nrecord_timeout = \"5s\"\nsegment_timeout = \"5s\"\n"
            ));
        }
        // All dates of the cases are GMT: a local time most of a day ahead changes nothing.
        //= RFC 9111 section 4.2: local time zones have no influence
        let setup = Setup::config(LARDER, &config).environment("TZ", "Pacific/Kiritimati");
        let larder = match behind {
            Behind::Nothing => setup.start(),
            #[cfg(feature = "test-store")]
            Behind::Simulated { latency_ms } => {
                setup.environment("LARDER_TEST_STORE", &format!("latency_ms={latency_ms}")).start()
            }
            Behind::Cluster(_) => {
                let larder = setup.start();
                larder.wait_for("larder_tier_verified", &[], |verified| verified == 1.0);
                larder
            }
        };
        (profile, larder)
    };
    [Profile::Safe, Profile::Rfc9111].map(start).into()
}

/// The mean size of a note and its key over all conversations. The limit is so tight that not a single stored response fits, which takes
/// 250 bytes more plus its body.
const NOTE_BYTES_MAX: f64 = 324.0;

/// Checks that all reused responses came from the expected place.
fn was_used(larder: &Larder, behind: &Behind) {
    let entries = larder.metric("larder_store_entries", &[]);
    match behind {
        Behind::Nothing => assert!(entries > 0.0),
        Behind::Cluster(_) => {
            assert!(larder.metric("larder_tier_writes_total", &["result=\"written\""]) > 100.0);
        }
        #[cfg(feature = "test-store")]
        Behind::Simulated { .. } => {
            assert!(larder.metric("larder_tier_loads_total", &["result=\"hit\""]) > 0.0);
            assert_eq!(entries, 0.0, "memory keeps no response");
            let notes = larder.metric("larder_store_notes", &[]);
            let bytes = larder.metric("larder_store_bytes", &["class=\"stored\""]);
            assert!(bytes <= notes * NOTE_BYTES_MAX, "{notes} records take {bytes} bytes");
        }
    }
}

fn rule(path: &str, case: &Case) -> String {
    let keys = case.rules.iter().map(|(key, value)| format!("{key} = {}\n", toml(value)));
    format!("[[site.rule]]\npath = {{ prefix = \"{path}\" }}\n{}", keys.collect::<String>())
}

/// Converts a JSON value to TOML: only tables differ.
fn toml(value: &Value) -> String {
    match value.as_object() {
        Some(table) => {
            let entries = table.iter().map(|(key, value)| format!("{key:?} = {}", toml(value)));
            format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
        }
        None => value.to_string(),
    }
}

/// A running case.
struct Player<'a> {
    name: &'a str,
    case: &'a Case,
    path: String,
    larder: &'a Larder,
    desk: &'a Mutex<Desk>,
}

fn players<'a>(
    groups: &'a [Group],
    gateways: &'a BTreeMap<Profile, Larder>,
    desks: &'a Desks,
) -> Vec<Player<'a>> {
    let of_group = |group: &'a Group| {
        group.cases.iter().enumerate().map(move |(index, case)| {
            let path = group.path(index);
            let desk = &desks[&path];
            Player { name: &group.name, case, path, larder: &gateways[&case.profile], desk }
        })
    };
    groups.iter().flat_map(of_group).collect()
}

impl Player<'_> {
    fn play(&self) -> Vec<String> {
        let (start_s, began) = (now_s(), Instant::now());
        let mut script = Duration::ZERO;
        let mut problems = Vec::new();
        let mut comes_soon = false;
        let place = format!("{} ({}), {}", self.name, self.path, self.case.name);
        for (index, step) in self.case.steps.iter().enumerate() {
            pause(step.wait_s);
            let context = Context { path: self.path.clone(), start_s, now_s: now_s(), number: index + 1 };
            script += Duration::from_secs(step.wait_s.into());
            let played = || match self.step(&context, step) {
                Ok(seen) => step.differences(&context, &Seen { late: began.elapsed() - script, ..seen }),
                Err(problem) => vec![problem],
            };
            let differences = if comes_soon { until_as_written(played) } else { played() };
            // The next step is a hit, which needs no origin.
            let next = self.case.steps.get(index + 1);
            comes_soon = step.is_background() && next.is_some_and(|step| step.origin.list().is_empty());
            let told = |difference| format!("{place}, step {}: {difference}", index + 1);
            problems.extend(differences.into_iter().map(told));
        }
        let uninvited = std::mem::take(&mut lock(self.desk).uninvited);
        problems
            .extend(uninvited.iter().map(|request| format!("{place}: uninvited at the origin: {request}")));
        problems
    }

    fn step(&self, context: &Context, step: &Step) -> Result<Seen, String> {
        {
            let mut desk = lock(self.desk);
            desk.received.clear();
            desk.answers = context.answers(step).into();
        }
        let mut seen = ask(self.larder, &context.request(step))?;
        if step.is_background() {
            let what = format!("{}: the origin is asked in the background", self.case.name);
            wait::until_true(&what, || lock(self.desk).received.len() >= step.origin.list().len());
        }
        seen.forwarded.clone_from(&lock(self.desk).received);
        Ok(seen)
    }
}

/// Plays a step that depends on a background response: the origin has sent it, but when it is stored can't be observed from outside.
fn until_as_written(play: impl Fn() -> Vec<String>) -> Vec<String> {
    let end = Instant::now() + wait::DEADLINE;
    loop {
        let differences = play();
        if differences.is_empty() || Instant::now() > end {
            return differences;
        }
        thread::park_timeout(Duration::from_millis(5));
    }
}

fn ask(larder: &Larder, request: &SentRequest) -> Result<Seen, String> {
    let SentRequest { method, target, fields, body, version } = request;
    let mut client = larder.client();
    client.send(latin1(&format!("{method} {target} HTTP/{version}\r\n{}\r\n{body}", lines(fields))));
    let response = client.try_response_to(method).map_err(|error| format!("no response: {error}"))?;
    Ok(Seen {
        status: response.status(),
        reason: response.head.start.splitn(3, ' ').nth(2).unwrap_or_default().to_owned(),
        fields: response.head.fields.clone(),
        body: response.body.iter().map(|byte| char::from(*byte)).collect(),
        trailers: response.trailers.clone(),
        interim: response.interim.iter().map(testkit::Head::status).collect(),
        truncated: response.end == End::Truncated,
        ..Seen::default()
    })
}

/// Sleeps for a pause that the conversation prescribes.
fn pause(wait_s: u32) {
    let end = Instant::now() + Duration::from_secs(wait_s.into());
    while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        thread::park_timeout(left);
    }
}

fn now_s() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    i64::try_from(since.as_secs()).expect("the clock is right")
}
