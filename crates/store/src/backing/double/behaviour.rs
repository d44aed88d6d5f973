//! Behaviour of a connection to the double, drawn from a seed.

use std::time::Duration;

use super::super::rng::Rng;

/// Rates of faults, in permille, with their parameters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Behaviour {
    /// Seed of all random draws: the same operations in the same order meet the same faults.
    pub seed: u64,
    /// Time from request to reply.
    pub latency: Duration,
    /// Operations that fail, half of them after taking effect.
    pub unreachable_permille: u16,
    /// Operations that never get a reply, half of them after taking effect.
    pub silent_permille: u16,
    /// Operations before which the tier evicts an entry.
    pub evicting_permille: u16,
    /// Pushes that never arrive. A lost push breaks the connection; the instance notices this when verification
    /// ends.
    pub lost_permille: u16,
    /// Pushes that arrive twice.
    pub doubled_permille: u16,
    /// Pushes that arrive late, and out of order.
    pub late_permille: u16,
    /// Maximum delay; never longer than the verification time.
    pub late_max: Duration,
    /// Substring of the keys whose puts and removals always meet contention. If it is empty, no key does.
    pub contended_keys: &'static str,
    /// Delay after which puts of records take effect without a reply. With zero, puts behave like other
    /// operations.
    pub late_puts: Duration,
}

impl Behaviour {
    /// No faults and no latency.
    pub const GOOD: Self = Self {
        seed: 1,
        latency: Duration::ZERO,
        unreachable_permille: 0,
        silent_permille: 0,
        evicting_permille: 0,
        lost_permille: 0,
        doubled_permille: 0,
        late_permille: 0,
        late_max: Duration::ZERO,
        contended_keys: "",
        late_puts: Duration::ZERO,
    };

    pub(super) fn is_contended(&self, key: &[u8]) -> bool {
        let part = self.contended_keys.as_bytes();
        !part.is_empty() && key.windows(part.len()).any(|window| window == part)
    }
}

/// Faults of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InjectedFaults {
    pub(super) fault: Option<(FaultKind, FaultTiming)>,
    /// Entry that is evicted before the operation.
    pub(super) evicted: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FaultKind {
    Unreachable,
    Silent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FaultTiming {
    BeforeEffect,
    AfterEffect,
}

/// Delivery of one push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Delivery {
    Lost,
    /// The push is delivered once after each of these delays.
    After(Vec<Duration>),
}

impl Rng {
    fn happens(&mut self, permille: u16) -> bool {
        self.next() % 1000 < u64::from(permille)
    }

    pub(super) fn faults(&mut self, behaviour: &Behaviour) -> InjectedFaults {
        let fault =
            match (self.happens(behaviour.unreachable_permille), self.happens(behaviour.silent_permille)) {
                (true, _) => Some(FaultKind::Unreachable),
                (false, true) => Some(FaultKind::Silent),
                (false, false) => None,
            };
        let moment = if self.happens(500) { FaultTiming::BeforeEffect } else { FaultTiming::AfterEffect };
        let evicts = self.happens(behaviour.evicting_permille);
        let which = self.next();
        InjectedFaults { fault: fault.map(|fault| (fault, moment)), evicted: evicts.then_some(which) }
    }

    pub(super) fn delivery(&mut self, behaviour: &Behaviour) -> Delivery {
        if self.happens(behaviour.lost_permille) {
            return Delivery::Lost;
        }
        let times = if self.happens(behaviour.doubled_permille) { 2 } else { 1 };
        Delivery::After((0..times).map(|_| self.lateness(behaviour)).collect())
    }

    fn lateness(&mut self, behaviour: &Behaviour) -> Duration {
        let micros_max = u64::try_from(behaviour.late_max.as_micros()).unwrap_or(u64::MAX);
        let micros = self.next().checked_rem(micros_max).unwrap_or(0);
        if self.happens(behaviour.late_permille) { Duration::from_micros(micros) } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUNDS: usize = 20_000;

    #[test]
    fn what_is_drawn_follows_from_the_seed_and_the_shares() {
        let late_max = Duration::from_millis(7);
        let behaviour = Behaviour {
            unreachable_permille: 100,
            silent_permille: 50,
            evicting_permille: 200,
            lost_permille: 100,
            doubled_permille: 100,
            late_permille: 500,
            late_max,
            ..Behaviour::default()
        };
        let draw = |seed| {
            let mut chance = Rng::new(seed);
            let draws = (0..ROUNDS).map(|_| (chance.faults(&behaviour), chance.delivery(&behaviour)));
            draws.collect::<Vec<_>>()
        };
        let drawn = draw(7);
        assert_eq!(drawn, draw(7));
        assert_ne!(drawn, draw(8));
        let share = |is: &dyn Fn(&(InjectedFaults, Delivery)) -> bool| {
            drawn.iter().filter(|draw| is(draw)).count() * 1000 / ROUNDS
        };
        let fault = |kind| share(&|draw| draw.0.fault.is_some_and(|(fault, _)| fault == kind));
        let times = |count| share(&|draw| matches!(&draw.1, Delivery::After(all) if all.len() == count));
        let shares = [
            (fault(FaultKind::Unreachable), 100),
            (fault(FaultKind::Silent), 45),
            (share(&|draw| draw.0.evicted.is_some()), 200),
            (share(&|draw| draw.1 == Delivery::Lost), 100),
            (times(2), 90),
            (times(1), 810),
        ];
        for (found, expected) in shares {
            assert!(found.abs_diff(expected) <= 12, "{found} instead of {expected}: {shares:?}");
        }
        let lateness = drawn.iter().flat_map(|draw| match &draw.1 {
            Delivery::Lost => Vec::new(),
            Delivery::After(all) => all.clone(),
        });
        assert!(lateness.clone().all(|late| late < late_max) && lateness.max() > Some(late_max / 2));
    }
}
