//! Plays the conversations of `conformance/caching` through the running binary, with an origin that says what the
//! files say. Many at once, in real time: one gateway per profile, a path per case.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Write as _;
use std::io::Write as _;
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
use testkit::{Client, End, Exchange, Fields, Larder, ScriptedOrigin, Setup, wait};

use crate::LARDER;

/// What is behind memory.
#[derive(Clone, Copy)]
enum Behind {
    Nothing,
    /// A tier that takes so long for each answer, beneath a memory that keeps notes alone.
    #[cfg(feature = "test-store")]
    Tier {
        latency_ms: u32,
    },
}

#[test]
fn every_conversation_goes_as_written() {
    check(Behind::Nothing);
}

/// What is stored is in the tier alone, or on its way there.
#[cfg(feature = "test-store")]
#[test]
fn every_conversation_goes_as_written_over_a_tier_at_hand() {
    check(Behind::Tier { latency_ms: 0 });
}

#[cfg(feature = "test-store")]
#[test]
fn every_conversation_goes_as_written_over_a_tier_that_takes_its_time() {
    check(Behind::Tier { latency_ms: 5 });
}

fn check(behind: Behind) {
    let groups = read_groups(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/caching"));
    let desks = desks(&groups);
    let origin = origin(desks.clone());
    let gateways = gateways(&groups, &origin.url(), behind);
    let problems = play_all(&players(&groups, &gateways, &desks));
    gateways.values().for_each(|larder| behind.was_used(larder));
    report(&groups, &problems);
}

/// Plays side by side: many enough that those which wait cost nothing, few enough that each step is quick. Who waits
/// longest begins.
const PLAYERS: usize = 96;

fn play_all(players: &[Player<'_>]) -> Vec<(usize, Vec<String>)> {
    let mut order: Vec<&Player<'_>> = players.iter().collect();
    order.sort_by_key(|player| Reverse(player.case.seconds()));
    let next = AtomicUsize::new(0);
    let work = || {
        let mut problems = Vec::new();
        while let Some(player) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            problems.push((player.group, player.play()));
        }
        problems
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..PLAYERS).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a player")).collect()
    })
}

/// What the origin knows of a case that is being played.
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

fn desks(groups: &[Group]) -> Desks {
    let paths = groups.iter().flat_map(|group| (0..group.cases.len()).map(|index| group.path(index)));
    Arc::new(paths.map(|path| (path, Mutex::default())).collect())
}

fn origin(desks: Desks) -> ScriptedOrigin {
    ScriptedOrigin::start(move |exchange| {
        let body = exchange.read_body().iter().map(|byte| char::from(*byte)).collect();
        let request = &exchange.request;
        let target = request.target().to_owned();
        let received = Forwarded {
            method: request.method().to_owned(),
            target: target.clone(),
            fields: request.head.fields.clone(),
            body,
        };
        let desk = desks.iter().find(|(path, _)| target.starts_with(path.as_str())).map(|(_, desk)| desk);
        match desk.and_then(|desk| lock(desk).next(received)) {
            Some(answer) => give(exchange, &answer),
            None => {
                exchange.respond("500 Uninvited", "", "the origin must not be asked here");
            }
        }
    })
}

impl Desk {
    /// The answer to a request. A failure is repeated: who gets no answer may ask again.
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
    if let Some(fails) = answer.fails {
        match fails {
            Fails::Close => exchange.close(),
            Fails::Reset => exchange.reset(),
        };
        return;
    }
    if let Some(wire) = &answer.wire {
        exchange.send(latin1(wire));
        if !answer.open {
            exchange.close();
        }
        return;
    }
    for (status, fields) in &answer.interim {
        exchange.send(latin1(&format!("HTTP/1.1 {status} Interim\r\n{}\r\n", lines(fields))));
    }
    let is_head = exchange.request.method() == "HEAD";
    let has_content = !is_head && !matches!(answer.status, 204 | 304);
    exchange.send(latin1(&format!(
        "HTTP/1.1 {} {}\r\n{}",
        answer.status,
        answer.reason,
        lines(&answer.fields)
    )));
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
    fields.0.iter().fold(String::new(), |mut text, (name, value)| {
        let _ = write!(text, "{name}: {value}\r\n");
        text
    })
}

fn gateways(groups: &[Group], origin: &str, behind: Behind) -> BTreeMap<Profile, Larder> {
    let config = |profile: Profile| {
        let mut config = format!(
            "profile = \"{}\"\n[[site]]\nname = \"conversations\"\norigin = \"{origin}\"\n",
            profile.as_str()
        );
        let cases = groups.iter().flat_map(|group| group.cases.iter().enumerate().map(move |it| (group, it)));
        for (group, (index, case)) in cases {
            if case.profile == profile && !case.rules.is_empty() {
                config.push_str(&rule(&group.path(index), case));
            }
        }
        config
    };
    // All dates of the cases are GMT; nothing changes where the clock on the wall is most of a day ahead.
    //= RFC 9111 section 4.2: local time zones have no influence
    let gateway = |profile| Setup::config(LARDER, &config(profile)).environment("TZ", "Pacific/Kiritimati");
    let start = |profile| (profile, behind.set(gateway(profile)).start());
    [Profile::Safe, Profile::Rfc9111].map(start).into()
}

/// Of a record that says what is not stored, with its key, in the mean of all conversations. Close enough that there is no room for a single
/// stored response among them, which takes 250 bytes more and its body.
const NOTE_BYTES_MAX: f64 = 324.0;

impl Behind {
    fn set(self, setup: Setup) -> Setup {
        match self {
            Self::Nothing => setup,
            #[cfg(feature = "test-store")]
            Self::Tier { latency_ms } => {
                setup.environment("LARDER_TEST_STORE", &format!("latency_ms={latency_ms}"))
            }
        }
    }

    /// All that was used from the cache came from where it should.
    fn was_used(self, larder: &Larder) {
        match self {
            Self::Nothing => assert!(larder.metric("larder_store_entries", &[]) > 0.0),
            #[cfg(feature = "test-store")]
            Self::Tier { .. } => {
                assert!(larder.metric("larder_tier_loads_total", &["result=\"hit\""]) > 0.0);
                let notes = larder.metric("larder_store_notes", &[]);
                assert_eq!(larder.metric("larder_store_entries", &[]), 0.0, "memory keeps no response");
                let bytes = larder.metric("larder_store_bytes", &["class=\"stored\""]);
                assert!(bytes <= notes * NOTE_BYTES_MAX, "{notes} records take {bytes} bytes");
            }
        }
    }
}

fn rule(path: &str, case: &Case) -> String {
    let keys = case.rules.iter().map(|(key, value)| format!("{key} = {}\n", toml(value)));
    format!("[[site.rule]]\npath = {{ prefix = \"{path}\" }}\n{}", keys.collect::<String>())
}

/// A value of JSON as one of TOML: only tables are written in another way.
fn toml(value: &Value) -> String {
    match value.as_object() {
        Some(table) => {
            let entries = table.iter().map(|(key, value)| format!("{key:?} = {}", toml(value)));
            format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
        }
        None => value.to_string(),
    }
}

/// One case on its way.
struct Player<'a> {
    group: usize,
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
    let of_group = |(number, group): (usize, &'a Group)| {
        group.cases.iter().enumerate().map(move |(index, case)| {
            let path = group.path(index);
            let desk = &desks[&path];
            Player { group: number, name: &group.name, case, path, larder: &gateways[&case.profile], desk }
        })
    };
    groups.iter().enumerate().flat_map(of_group).collect()
}

impl Player<'_> {
    fn play(&self) -> Vec<String> {
        let (start_s, began) = (now_s(), Instant::now());
        let mut script = Duration::ZERO;
        let mut problems = Vec::new();
        let mut comes_soon = false;
        for (index, step) in self.case.steps.iter().enumerate() {
            pause(step.wait_s);
            let context = Context { path: self.path.clone(), start_s, now_s: now_s(), number: index + 1 };
            script += Duration::from_secs(step.wait_s.into());
            let played = || match self.step(&context, step) {
                Ok(seen) => step.differences(&context, &Seen { late: began.elapsed() - script, ..seen }),
                Err(problem) => vec![problem],
            };
            let differences = if comes_soon { until_as_written(played) } else { played() };
            comes_soon = step.is_background() && self.is_hit(index + 1);
            let place = format!("{} ({}), {}, step {}", self.name, self.path, self.case.name, index + 1);
            problems.extend(differences.into_iter().map(|difference| format!("{place}: {difference}")));
        }
        let uninvited = std::mem::take(&mut lock(self.desk).uninvited);
        problems.extend(uninvited.into_iter().map(|request| {
            format!("{} ({}), {}: uninvited at the origin: {request}", self.name, self.path, self.case.name)
        }));
        problems
    }

    /// Whether a step needs no origin.
    fn is_hit(&self, index: usize) -> bool {
        self.case.steps.get(index).is_some_and(|step| step.origin.list().is_empty())
    }

    fn step(&self, context: &Context, step: &Step) -> Result<Seen, String> {
        {
            let mut desk = lock(self.desk);
            desk.received.clear();
            desk.answers = context.answers(step).into();
        }
        let mut seen = ask(self.larder, &context.request(step))?;
        if step.is_background() {
            wait::until_true(
                &format!("{}: the origin is asked behind the client's back", self.case.name),
                || lock(self.desk).received.len() >= step.origin.list().len(),
            );
        }
        seen.forwarded.clone_from(&lock(self.desk).received);
        Ok(seen)
    }
}

/// Plays a step that depends on what comes behind the clients' backs: the origin has sent it, but nobody outside is told
/// when it is stored.
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
    let mut client = Client::connect(larder.address());
    client.send(latin1(&format!("{method} {target} HTTP/{version}\r\n{}\r\n{body}", lines(fields))));
    let response = client.try_response_to(method).map_err(|error| format!("no response: {error}"))?;
    let reason = response.head.start.splitn(3, ' ').nth(2).unwrap_or_default().to_owned();
    Ok(Seen {
        status: response.status(),
        reason,
        fields: response.head.fields.clone(),
        body: response.body.iter().map(|byte| char::from(*byte)).collect(),
        trailers: response.trailers.clone(),
        interim: response.interim.iter().map(testkit::Head::status).collect(),
        truncated: response.end == End::Truncated,
        ..Seen::default()
    })
}

/// Time that the conversation itself wants to pass.
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

fn report(groups: &[Group], problems: &[(usize, Vec<String>)]) {
    let mut text = String::new();
    for (number, group) in groups.iter().enumerate() {
        let failed = problems.iter().filter(|(own, problems)| *own == number && !problems.is_empty()).count();
        let _ = writeln!(text, "{}: {} conversations, {failed} fail", group.name, group.cases.len());
    }
    // Past the capture of the test harness: the counts are worth seeing when all is well.
    let _ = std::io::stdout().write_all(text.as_bytes());
    let all: Vec<&str> =
        problems.iter().flat_map(|(_, problems)| problems.iter().map(String::as_str)).collect();
    assert!(all.is_empty(), "\n{}", all.join("\n"));
}
