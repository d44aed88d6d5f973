//! Writes the whole state machine, and compares it with `machine.txt`: the effect of each event in each state.
//!
//! Each cell has the next state and the effect. A dash means that the event can't happen: no call is in progress, or
//! there was no earlier state.

use std::hash::{BuildHasher, RandomState};

use Caller::Anyone;
use Outcome::{Failure, Success};
use breaker::{Breaker, Caller, Effect, Options, Outcome, Permit, Refusal, Settings, State};

const OPTIONS: Options = Options {
    window_ms: 1_000,
    window_buckets: 10,
    requests_min: 4,
    error_percent: 50,
    reset_ms: 1_000,
    reset_ms_max: 3_000,
    probes_max: 2,
    probe_ms_max: 400,
    successes_to_close: 2,
};

/// A breaker in some state, with calls that it has admitted.
struct Stage {
    breaker: Breaker,
    now_ms: u64,
    /// A call of the current state.
    call: Option<Permit>,
    /// A call that was admitted before the last change of state.
    late: Option<Permit>,
    /// Other calls of the current state.
    _others: Vec<Permit>,
}

impl Stage {
    fn new() -> Self {
        let breaker = Breaker::new(Settings::new(OPTIONS).expect("allowed"));
        Self { breaker, now_ms: 0, call: None, late: None, _others: Vec::new() }
    }

    fn reports(mut self, outcomes: &[Outcome]) -> Self {
        for outcome in outcomes {
            let permit = self.breaker.admit(Anyone, self.now_ms).expect("a call");
            self.breaker.report(permit, *outcome, self.now_ms);
        }
        self
    }

    fn later(mut self, ms: u64) -> Self {
        self.now_ms += ms;
        self
    }

    fn under_way(mut self, calls: usize) -> Self {
        let mut admit = || self.breaker.admit(Anyone, self.now_ms).expect("a call");
        self.call = Some(admit());
        self._others = (1..calls).map(|_| admit()).collect();
        self
    }

    fn under_way_apart(mut self, calls: usize) -> Self {
        let mut admit = || self.breaker.admit_apart(Anyone, self.now_ms).expect("a call");
        self.call = Some(admit());
        self._others = (1..calls).map(|_| admit()).collect();
        self
    }

    /// Admits a call, then opens the breaker, so that the call is late.
    fn opened(mut self) -> Self {
        self.late = self.breaker.admit(Anyone, self.now_ms).ok();
        self.reports(&[Failure; 4])
    }

    fn half_open(self) -> Self {
        let mut stage = self.later(1_000);
        drop(stage.breaker.admit(Anyone, stage.now_ms).expect("a probe"));
        stage
    }

    /// Returns to half-open after a failed probe.
    fn half_open_again(self, reset_ms: u64) -> Self {
        let mut stage = self.under_way(1);
        stage.late = stage.call.take();
        let mut stage = stage.reports(&[Failure]).later(reset_ms);
        drop(stage.breaker.admit(Anyone, stage.now_ms).expect("a probe"));
        stage
    }

    fn closed_again(self) -> Self {
        self.opened().half_open().reports(&[Success, Success])
    }
}

/// A function that reaches a state.
type Reach = fn() -> Stage;

/// An event of a state, and the cell that shows its result.
type Happen = fn(Stage) -> String;

const STATES: [(&str, Reach); 18] = [
    ("Closed, new", || Stage::new().under_way(1)),
    ("Closed again", || Stage::new().closed_again().under_way(1)),
    ("Closed, 3 results, 3 of them failures", || {
        Stage::new().closed_again().reports(&[Failure; 3]).under_way(1)
    }),
    ("Closed, 6 results, 2 of them failures", || {
        Stage::new().closed_again().reports(&[Success; 4]).reports(&[Failure; 2]).under_way(1)
    }),
    ("Closed, 7 results, 3 of them failures", || {
        Stage::new().closed_again().reports(&[Success; 4]).reports(&[Failure; 3]).under_way(1)
    }),
    ("Closed, 8 results, 3 of them failures", || {
        Stage::new().closed_again().reports(&[Success; 5]).reports(&[Failure; 3]).under_way(1)
    }),
    ("Closed, 3 failures 900 ms ago", || {
        Stage::new().closed_again().reports(&[Failure; 3]).later(900).under_way(1)
    }),
    ("Closed, 3 failures 1,000 ms ago", || {
        Stage::new().closed_again().reports(&[Failure; 3]).later(1_000).under_way(1)
    }),
    ("Open", || Stage::new().opened()),
    ("Open, 1 ms left", || Stage::new().opened().later(999)),
    ("Open, time over", || Stage::new().opened().later(1_000)),
    ("HalfOpen, 1 of 2 places taken", || Stage::new().opened().half_open().under_way(1)),
    ("HalfOpen, all places taken", || Stage::new().opened().half_open().under_way(2)),
    ("HalfOpen, all places overdue", || Stage::new().opened().half_open().under_way(2).later(400)),
    ("HalfOpen, all places apart taken", || Stage::new().opened().half_open().under_way_apart(2)),
    ("HalfOpen, 1 of 2 successes", || Stage::new().opened().half_open().reports(&[Success]).under_way(2)),
    ("HalfOpen, after 1 probe that failed", || {
        Stage::new().opened().half_open().half_open_again(2_000).under_way(1)
    }),
    ("HalfOpen, after 2 probes that failed", || {
        Stage::new().opened().half_open().half_open_again(2_000).half_open_again(3_000).under_way(1)
    }),
];

const EVENTS: [(&str, Happen); 7] = [
    ("is asked", |mut stage| ask(&mut stage)),
    ("is asked apart", |mut stage| ask_apart(&mut stage)),
    ("a success", |mut stage| stage.call.take().map_or_else(none, |call| report(&mut stage, call, Success))),
    ("a failure", |mut stage| stage.call.take().map_or_else(none, |call| report(&mut stage, call, Failure))),
    ("a drop, is asked", |mut stage| {
        stage.call.take().map_or_else(none, |call| {
            drop(call);
            ask(&mut stage)
        })
    }),
    ("a late success", |mut stage| {
        stage.late.take().map_or_else(none, |call| report(&mut stage, call, Success))
    }),
    ("a late failure", |mut stage| {
        stage.late.take().map_or_else(none, |call| report(&mut stage, call, Failure))
    }),
];

fn none() -> String {
    "-".to_owned()
}

fn ask(stage: &mut Stage) -> String {
    let answer = stage.breaker.admit(Anyone, stage.now_ms);
    answered(stage, &answer)
}

fn ask_apart(stage: &mut Stage) -> String {
    let answer = stage.breaker.admit_apart(Anyone, stage.now_ms);
    answered(stage, &answer)
}

fn answered(stage: &Stage, answer: &Result<Permit, Refusal>) -> String {
    let effect = match answer {
        Ok(_) => "admits".to_owned(),
        Err(Refusal { retry_ms }) => format!("refuses {retry_ms} ms"),
    };
    cell(stage, &effect)
}

fn report(stage: &mut Stage, call: Permit, outcome: Outcome) -> String {
    let effect = match stage.breaker.report(call, outcome, stage.now_ms) {
        Effect::Ignored => "ignored".to_owned(),
        Effect::Counted => "counted".to_owned(),
        Effect::Closed => "closes".to_owned(),
        Effect::Opened { reset_ms } => format!("opens {reset_ms} ms"),
    };
    cell(stage, &effect)
}

fn cell(stage: &Stage, effect: &str) -> String {
    let state = match stage.breaker.state() {
        State::Closed => "Closed",
        State::Open { .. } => "Open",
        State::HalfOpen => "HalfOpen",
    };
    format!("{state}: {effect}")
}

fn line(name: &str, cells: impl Iterator<Item = String>) -> String {
    let cells: String = cells.map(|cell| format!("| {cell:<25}")).collect();
    format!("{name:<40}{cells}").trim_end().to_owned()
}

#[test]
fn the_whole_machine_is_as_written() {
    let head = line("", EVENTS.iter().map(|(name, _)| (*name).to_owned()));
    let lines = STATES.iter().map(|(name, stage)| line(name, EVENTS.iter().map(|(_, event)| event(stage()))));
    let lines: Vec<String> = [head].into_iter().chain(lines).collect();
    let text = format!("{OPTIONS:#?}\n\n{}\n", lines.join("\n"));
    let written = include_str!("machine.txt");
    let differing = text.lines().zip(written.lines()).find(|(now, written)| now != written);
    assert!(text == written, "{differing:#?}, in:\n{text}");
}

/// New settings change neither the admitted calls nor a running open time; they apply from the next change of state.
#[test]
fn other_settings_keep_the_state() {
    let settings = |reset_ms| Settings::new(Options { reset_ms, ..OPTIONS }).expect("allowed");
    let open = || Stage::new().reports(&[Failure; 4]).breaker;
    let mut breaker = open();
    breaker.change(settings(2_000));
    assert_eq!(breaker.state(), State::Open { until_ms: 1_000 });
    let probe = breaker.admit(Anyone, 1_000).expect("the time is over");
    assert_eq!(breaker.report(probe, Failure, 1_000), Effect::Opened { reset_ms: 2_000 });

    let mut breaker = Stage::new().reports(&[Failure; 3]).breaker;
    breaker.change(settings(500));
    let call = breaker.admit(Anyone, 0).expect("closed");
    assert_eq!(breaker.report(call, Failure, 0), Effect::Opened { reset_ms: 500 });

    let mut breaker = Stage::new().reports(&[Failure; 3]).breaker;
    breaker.change(Settings::new(Options { window_ms: 2_000, ..OPTIONS }).expect("allowed"));
    assert_eq!(breaker.counts(0).failures, 0, "another window begins at zero");
}

/// Reports of callers, and the effect of the last one.
type Story<'a> = (&'a [(u64, Outcome)], Effect);

/// Failures of one caller alone don't open the breaker, however many there are; nor do its successes keep it closed.
#[test]
fn a_known_caller_counts_once() {
    let opened = Effect::Opened { reset_ms: OPTIONS.reset_ms };
    let stories: [Story<'_>; 7] = [
        (&[(1, Failure); 40], Effect::Counted),
        (&[(1, Failure), (2, Failure), (3, Failure), (3, Failure), (2, Failure)], Effect::Counted),
        (&[(1, Failure), (2, Failure), (3, Failure), (4, Failure)], opened),
        // Half of four.
        (&[(1, Success), (2, Success), (3, Failure), (4, Failure)], Effect::Counted),
        // Half of eight results fail; each caller has one result.
        (
            &[
                (1, Success),
                (1, Success),
                (2, Success),
                (3, Success),
                (4, Success),
                (5, Failure),
                (6, Failure),
                (7, Failure),
                (8, Failure),
            ],
            opened,
        ),
        (&[(1, Success), (2, Failure), (3, Failure), (4, Failure), (4, Failure)], Effect::Counted),
        // The latest result of each caller.
        (&[(1, Success), (2, Failure), (3, Failure), (4, Failure), (1, Failure)], opened),
    ];
    for (reports, expected) in stories {
        let mut breaker = Stage::new().breaker;
        let effects = reports.iter().map(|(caller, outcome)| {
            let permit = breaker.admit(Caller::Known(*caller), 0).expect("closed");
            breaker.report(permit, *outcome, 0)
        });
        assert_eq!(effects.last(), Some(expected), "{reports:?}");
    }
}

/// Four callers count, whatever their numbers, because the state of the breaker must not depend on a hash of addresses.
#[test]
fn callers_that_meet_in_a_place_all_count() {
    let seats = Caller::SEATS as u64;
    for step in [1, 2, seats / 4, seats, seats * 3] {
        let mut breaker = Stage::new().breaker;
        let effects = (1..=4).map(|number| {
            let permit = breaker.admit(Caller::Known(number * step), 0).expect("closed");
            breaker.report(permit, Failure, 0)
        });
        assert_eq!(effects.last(), Some(Effect::Opened { reset_ms: OPTIONS.reset_ms }), "{step}");
    }
}

/// Slightly more callers than the highest allowed `requests_min` are enough to reach it, with any hash.
#[test]
fn a_thousand_callers_have_seats() {
    for _ in 0..20 {
        let hasher = RandomState::new();
        let settings = Settings::new(Options { requests_min: 1_000, ..OPTIONS }).expect("within the ranges");
        let mut breaker = Breaker::new(settings);
        for number in 0..1_100 {
            let permit = breaker.admit(Caller::Known(hasher.hash_one(number)), 0).expect("closed");
            if breaker.report(permit, Failure, 0) != Effect::Counted {
                break;
            }
        }
        assert!(matches!(breaker.state(), State::Open { .. }), "{:?}", breaker.counts(0));
    }
}

/// A caller whose probe failed leaves the next probe to others, for the time of the first reset.
#[test]
fn a_caller_whose_probe_failed_comes_last() {
    let (one, other) = (Caller::Known(1), Caller::Known(2));
    let mut breaker = Stage::new().reports(&[Failure; 4]).breaker;
    let probe = breaker.admit(one, 1_000).expect("the time is over");
    assert_eq!(breaker.report(probe, Failure, 1_000), Effect::Opened { reset_ms: 2_000 });
    assert_eq!(breaker.admit(one, 3_000).unwrap_err(), Refusal { retry_ms: 1_000 });
    assert!(matches!(breaker.state(), State::Open { .. }), "it has begun no trial");
    let probe = breaker.admit(other, 3_000).expect("the time is over");
    assert_eq!(breaker.admit(one, 3_000).unwrap_err(), Refusal { retry_ms: 1_000 });
    assert_eq!(breaker.report(probe, Success, 3_000), Effect::Counted);
    // No other caller requests a probe, so this caller gets one after its wait.
    drop(breaker.admit(one, 4_000).expect("it has waited"));
    let probe = breaker.admit(other, 4_000).expect("a place");
    assert_eq!(breaker.report(probe, Success, 4_000), Effect::Closed);
    assert!(breaker.admit(one, 4_000).is_ok());
}
