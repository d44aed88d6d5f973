//! Properties that hold in every order of calls, reports and times.

use breaker::{Breaker, Caller, Counts, Effect, Options, Outcome, Permit, Settings, State};
use proptest::collection::vec;
use proptest::prelude::*;

/// An event; an index selects one of the calls in progress.
#[derive(Clone, Copy, Debug)]
enum Event {
    Ask(Caller),
    Report(usize, Outcome),
    Drop(usize),
    Pass { ms: u64 },
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let outcome = prop::sample::select(&[Outcome::Success, Outcome::Failure][..]);
    let caller = prop_oneof![Just(Caller::Anyone), (0..5_u64).prop_map(Caller::Known)];
    let event = prop_oneof![
        4 => caller.prop_map(Event::Ask),
        4 => (any::<usize>(), outcome).prop_map(|(at, outcome)| Event::Report(at, outcome)),
        1 => any::<usize>().prop_map(Event::Drop),
        2 => (0..400_u64).prop_map(|ms| Event::Pass { ms }),
    ];
    vec(event, 0..300)
}

/// Generates options so small that every state is reached often.
fn options() -> impl Strategy<Value = Options> {
    let window = (100..700_u64, 1..8_u32, 1..6_u32, 1..=100_u32);
    let reset = (1..500_u64, 0..1_000_u64);
    let probes = (1..4_u32, 1..500_u64, 1..4_u32);
    (window, reset, probes).prop_map(|(window, reset, probes)| Options {
        window_ms: window.0,
        window_buckets: window.1,
        requests_min: window.2,
        error_percent: window.3,
        reset_ms: reset.0,
        reset_ms_max: reset.0 + reset.1,
        probes_max: probes.0,
        probe_ms_max: probes.1,
        successes_to_close: probes.2,
    })
}

/// A call in progress, and the state when it was admitted.
struct Call {
    permit: Permit,
    caller: Caller,
    admitted_ms: u64,
    /// Number of changes of state up to the admission, including a change that it caused.
    changes: usize,
    is_probe: bool,
}

/// A breaker, and a simple model of its permitted behaviour.
struct Watched {
    options: Options,
    breaker: Breaker,
    now_ms: u64,
    calls: Vec<Call>,
    changes: usize,
    /// Every result of the current closed state that counts, with its time.
    results: Vec<(u64, Caller, Outcome)>,
    /// Callers whose probe failed since the breaker was closed, and the time until which others go first.
    suspects: Vec<Caller>,
    suspects_until_ms: u64,
    open_until_ms: u64,
    /// Successful probes of the current half-open state.
    successes: u32,
    last_reset_ms: Option<u64>,
}

impl Watched {
    fn new(options: Options) -> Self {
        Self {
            options,
            breaker: Breaker::new(Settings::new(options).expect("within the ranges")),
            now_ms: 0,
            calls: Vec::new(),
            changes: 0,
            results: Vec::new(),
            suspects: Vec::new(),
            suspects_until_ms: 0,
            open_until_ms: 0,
            successes: 0,
            last_reset_ms: None,
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Ask(caller) => self.ask(caller),
            Event::Pass { ms } => self.now_ms += ms,
            Event::Report(..) | Event::Drop(_) if self.calls.is_empty() => {}
            Event::Drop(at) => drop(self.calls.swap_remove(at % self.calls.len())),
            Event::Report(at, outcome) => {
                let call = self.calls.swap_remove(at % self.calls.len());
                self.report(call, outcome);
            }
        }
        assert_eq!(self.breaker.counts(self.now_ms), self.counts(), "the window is the naive one");
    }

    /// Returns the number of probes that hold a slot.
    fn probes(&self) -> usize {
        let is_under_way = |call: &&Call| {
            let is_in_time = self.now_ms < call.admitted_ms + self.options.probe_ms_max;
            call.is_probe && call.changes == self.changes && is_in_time
        };
        self.calls.iter().filter(is_under_way).count()
    }

    fn ask(&mut self, caller: Caller) {
        let before = self.breaker.state();
        let is_first = !self.suspects.contains(&caller) || self.now_ms >= self.suspects_until_ms;
        let may_go = match before {
            State::Closed => true,
            State::Open { until_ms } => {
                assert_eq!(until_ms, self.open_until_ms);
                self.now_ms >= until_ms && is_first
            }
            State::HalfOpen => is_first && self.probes() < self.options.probes_max as usize,
        };
        let answer = self.breaker.admit(caller, self.now_ms);
        assert_eq!(answer.is_ok(), may_go, "{before:?} at {}", self.now_ms);
        match answer {
            Ok(permit) => self.admitted(permit, caller, before),
            Err(refusal) => {
                assert!(refusal.retry_ms >= 1);
                assert!(refusal.retry_ms <= 2 * self.options.reset_ms_max);
            }
        }
        assert!(self.probes() <= self.options.probes_max as usize);
    }

    fn admitted(&mut self, permit: Permit, caller: Caller, before: State) {
        if matches!(before, State::Open { .. }) {
            (self.changes, self.successes) = (self.changes + 1, 0);
        }
        let is_probe = self.breaker.state() == State::HalfOpen;
        self.calls.push(Call { permit, caller, admitted_ms: self.now_ms, changes: self.changes, is_probe });
    }

    fn report(&mut self, call: Call, outcome: Outcome) {
        let expected = self.expected(&call, outcome);
        let effect = self.breaker.report(call.permit, outcome, self.now_ms);
        assert_eq!(effect, expected);
        if let Effect::Opened { reset_ms } = effect {
            self.open_until_ms = self.now_ms + reset_ms;
            self.suspects_until_ms = self.open_until_ms + self.options.reset_ms;
            self.last_reset_ms = Some(reset_ms);
        }
        if effect == Effect::Closed {
            self.last_reset_ms = None;
            self.suspects.clear();
        }
        if matches!(effect, Effect::Opened { .. } | Effect::Closed) {
            self.changes += 1;
            self.results.clear();
        }
    }

    fn expected(&mut self, call: &Call, outcome: Outcome) -> Effect {
        if call.changes != self.changes {
            return Effect::Ignored;
        }
        if call.is_probe && outcome == Outcome::Success {
            self.successes += 1;
            let is_last = self.successes == self.options.successes_to_close;
            return if is_last { Effect::Closed } else { Effect::Counted };
        }
        self.results.retain(|(_, caller, _)| *caller == Caller::Anyone || *caller != call.caller);
        self.results.push((self.now_ms, call.caller, outcome));
        if call.is_probe && call.caller != Caller::Anyone {
            self.suspects.push(call.caller);
        }
        if call.is_probe || (outcome == Outcome::Failure && self.is_trouble()) {
            let double = self.last_reset_ms.map_or(self.options.reset_ms, |reset_ms| reset_ms * 2);
            return Effect::Opened { reset_ms: double.min(self.options.reset_ms_max) };
        }
        Effect::Counted
    }

    fn is_trouble(&self) -> bool {
        let Counts { successes, failures } = self.counts();
        let total = successes + failures;
        let percent = failures as f64 * 100.0 / total as f64;
        failures >= self.options.requests_min.into() && percent >= self.options.error_percent.into()
    }

    /// Counts all results from scratch.
    fn counts(&self) -> Counts {
        let bucket_ms = self.options.window_ms.div_ceil(self.options.window_buckets.into());
        let age = |then_ms: u64| self.now_ms / bucket_ms - then_ms / bucket_ms;
        let count = |sought: Outcome| {
            let counts = |(then_ms, _, outcome): &&(u64, Caller, Outcome)| {
                *outcome == sought && age(*then_ms) < self.options.window_buckets.into()
            };
            self.results.iter().filter(counts).count() as u64
        };
        Counts { successes: count(Outcome::Success), failures: count(Outcome::Failure) }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn it_does_what_the_naive_account_says(options in options(), events in events()) {
        let mut watched = Watched::new(options);
        events.iter().for_each(|event| watched.take(*event));
    }

    #[test]
    fn calls_that_are_never_reported_do_not_shut_it_for_ever(options in options(), events in events()) {
        let mut watched = Watched::new(options);
        events.iter().for_each(|event| watched.take(*event));
        let now_ms = watched.now_ms + options.reset_ms_max.max(options.probe_ms_max);
        prop_assert!(watched.breaker.admit(Caller::Anyone, now_ms).is_ok());
    }

    /// With a clock that jumps the breaker may be wrong, but doesn't panic.
    #[test]
    fn any_times_are_survived(events in vec((any::<u64>(), any::<bool>()), 0..100)) {
        let mut breaker = Breaker::new(Settings::default());
        for (now_ms, is_success) in events {
            let outcome = if is_success { Outcome::Success } else { Outcome::Failure };
            if let Ok(permit) = breaker.admit(Caller::Known(now_ms % 3), now_ms) {
                breaker.report(permit, outcome, now_ms);
            }
            let counts = breaker.counts(now_ms);
            prop_assert!(counts.successes + counts.failures <= 100);
        }
    }
}
