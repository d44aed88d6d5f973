//! Permits for a limited resource, and the queue for them: a state machine without a clock or tasks.
//!
//! No client uses more than its share of the resource or of the queue. Waiters are served in the order of arrival, but a waiter
//! whose client already has its share is skipped.

use std::collections::{HashMap, VecDeque};

use message::client::Client;

/// Limits of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    pub(super) places_max: usize,
    pub(super) queue_max: usize,
    /// Maximum share of one client in permits and queue, in percent; it always allows one.
    pub(super) client_share_percent: usize,
}

/// Permits and queue entries of one client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Part {
    used: usize,
    waiting: usize,
}

/// Permits and queue entries of all clients that have any.
type ClientShares = HashMap<Client, Part>;

/// A limited number of permits, with a queue of waiters `W`.
#[derive(Debug)]
pub(super) struct FairQueue<W> {
    rules: Rules,
    used: usize,
    clients: ClientShares,
    /// In the order of their numbers.
    waiting: VecDeque<Waiting<W>>,
    next_number: u64,
}

#[derive(Debug)]
struct Waiting<W> {
    number: u64,
    client: Option<Client>,
    waiter: W,
}

/// Reason of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// All permits are in use, or the queue is full.
    Full,
    /// The client has used up its share.
    ClientShare,
}

impl Rules {
    fn share_of(self, count: usize) -> usize {
        count.saturating_mul(self.client_share_percent).div_ceil(100).max(1)
    }
}

impl<W> FairQueue<W> {
    pub(super) fn new(rules: Rules) -> Self {
        Self { rules, used: 0, clients: ClientShares::default(), waiting: VecDeque::new(), next_number: 0 }
    }

    /// Takes a permit. The share doesn't limit requests without a client.
    pub(super) fn enter(&mut self, client: Option<Client>) -> Result<(), Obstacle> {
        self.obstacle(client).map_or(Ok(()), Err)?;
        self.used += 1;
        self.change(client, |part| part.used += 1);
        Ok(())
    }

    /// Adds a waiter to the queue, and returns its number for [`Self::give_up`].
    pub(super) fn queue(&mut self, client: Option<Client>, waiter: W) -> Result<u64, Obstacle> {
        if self.waiting.len() >= self.rules.queue_max {
            return Err(Obstacle::Full);
        }
        if self.part(client).waiting >= self.rules.share_of(self.rules.queue_max) {
            return Err(Obstacle::ClientShare);
        }
        let number = self.next_number;
        self.next_number += 1;
        self.waiting.push_back(Waiting { number, client, waiter });
        self.change(client, |part| part.waiting += 1);
        Ok(number)
    }

    /// Releases a permit, and returns the waiter that gets it, if any.
    pub(super) fn leave(&mut self, client: Option<Client>) -> Option<(Option<Client>, W)> {
        self.used -= 1;
        self.change(client, |part| part.used -= 1);
        self.call_next()
    }

    /// Changes the rules. Permits in use stay valid and count, even above a new limit. Returns the waiters that get permits
    /// under the new rules.
    pub(super) fn change_rules(&mut self, rules: Rules) -> Vec<(Option<Client>, W)> {
        self.rules = rules;
        std::iter::from_fn(|| self.call_next()).collect()
    }

    /// Gives a permit to the first waiter that may have one.
    fn call_next(&mut self) -> Option<(Option<Client>, W)> {
        let next = self.waiting.iter().position(|waiting| self.obstacle(waiting.client).is_none())?;
        let Waiting { client, waiter, .. } = self.waiting.remove(next)?;
        self.used += 1;
        self.change(client, |part| (part.used, part.waiting) = (part.used + 1, part.waiting - 1));
        Some((client, waiter))
    }

    /// Leaves the queue; does nothing if the queue no longer contains the number.
    pub(super) fn give_up(&mut self, number: u64) -> Option<W> {
        let permit = self.waiting.binary_search_by_key(&number, |waiting| waiting.number).ok()?;
        let Waiting { client, waiter, .. } = self.waiting.remove(permit)?;
        self.change(client, |part| part.waiting -= 1);
        Some(waiter)
    }

    /// Returns whether a waiter needs a permit that this client holds.
    pub(super) fn wants_from(&self, client: Option<Client>) -> bool {
        let is_full = self.used >= self.rules.places_max;
        !self.waiting.is_empty() && (is_full || client.is_some() && self.part(client).waiting > 0)
    }

    /// Returns the reason why this client can't get one more permit, if any.
    pub(super) fn obstacle(&self, client: Option<Client>) -> Option<Obstacle> {
        if self.used >= self.rules.places_max {
            return Some(Obstacle::Full);
        }
        let share = self.rules.share_of(self.rules.places_max);
        (self.part(client).used >= share).then_some(Obstacle::ClientShare)
    }

    fn part(&self, client: Option<Client>) -> Part {
        client.and_then(|client| self.clients.get(&client)).copied().unwrap_or_default()
    }

    fn change(&mut self, client: Option<Client>, change: impl FnOnce(&mut Part)) {
        let Some(client) = client else { return };
        let part = self.clients.entry(client).or_default();
        change(part);
        if *part == Part::default() {
            self.clients.remove(&client);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use proptest::prelude::*;

    use super::*;

    fn client(number: u8) -> Option<Client> {
        // Number 0 is a request without a client.
        (number > 0).then(|| Client::of(IpAddr::V4(Ipv4Addr::new(192, 0, 2, number))))
    }

    /// Number of permits, share in percent, clients in order of entry, and the result for each.
    type Case<'a> = (usize, usize, &'a [u8], &'a [Option<Obstacle>]);

    #[test]
    fn a_client_gets_its_share_and_others_the_rest() {
        use Obstacle::{ClientShare, Full};
        let cases: [Case<'_>; 6] = [
            (4, 50, &[1, 1, 1, 2, 2, 3], &[None, None, Some(ClientShare), None, None, Some(Full)]),
            (4, 25, &[1, 1, 2], &[None, Some(ClientShare), None]),
            (4, 100, &[1, 1, 1, 1, 2], &[None, None, None, None, Some(Full)]),
            (3, 50, &[1, 1, 1], &[None, None, Some(ClientShare)]),
            (1, 1, &[1, 1], &[None, Some(Full)]),
            (3, 50, &[0, 0, 0, 1], &[None, None, None, Some(Full)]),
        ];
        for (places_max, client_share_percent, clients, expected) in cases {
            let mut line = FairQueue::<()>::new(Rules { places_max, queue_max: 0, client_share_percent });
            let got: Vec<_> = clients.iter().map(|number| line.enter(client(*number)).err()).collect();
            assert_eq!(got, expected, "{places_max} places, {client_share_percent} %, {clients:?}");
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        FetchScope(u8),
        /// The member at this position of the list leaves.
        Leave(usize),
        /// The waiter at this position of the list gives up.
        GiveUp(usize),
        /// The number of permits changes to this.
        Limit(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0_u8..5).prop_map(Step::FetchScope),
            2 => any::<usize>().prop_map(Step::Leave),
            1 => any::<usize>().prop_map(Step::GiveUp),
            1 => (1_usize..6).prop_map(Step::Limit),
        ]
    }

    /// Clients of the members, and numbers and clients of the waiters.
    #[derive(Default)]
    struct Model {
        inside: Vec<u8>,
        waiting: Vec<(u64, u8)>,
    }

    impl Model {
        fn apply(&mut self, line: &mut FairQueue<u8>, step: Step) {
            match step {
                Step::FetchScope(number) if line.enter(client(number)).is_ok() => self.inside.push(number),
                Step::FetchScope(number) => {
                    if let Ok(ticket) = line.queue(client(number), number) {
                        self.waiting.push((ticket, number));
                    }
                }
                Step::Leave(at) if !self.inside.is_empty() => {
                    let number = self.inside.remove(at % self.inside.len());
                    line.leave(client(number)).into_iter().for_each(|called| self.go_in(called));
                }
                Step::Limit(places_max) => {
                    let rules = Rules { places_max, ..line.rules };
                    line.change_rules(rules).into_iter().for_each(|called| self.go_in(called));
                }
                Step::GiveUp(at) if !self.waiting.is_empty() => {
                    let (ticket, number) = self.waiting.remove(at % self.waiting.len());
                    assert_eq!(line.give_up(ticket), Some(number));
                    assert_eq!(line.give_up(ticket), None);
                }
                Step::Leave(_) | Step::GiveUp(_) => {}
            }
        }

        fn go_in(&mut self, (who, waiter): (Option<Client>, u8)) {
            assert_eq!(who, client(waiter));
            let first = self.waiting.iter().position(|(_, number)| *number == waiter);
            self.waiting.remove(first.expect("only waiters get places"));
            self.inside.push(waiter);
        }

        /// Checks the invariants. After a change of limits there may be too many members, but no member is added above the
        /// limit.
        fn check(&self, line: &FairQueue<u8>, before: &[u8]) {
            let of = |inside: &[u8], number: u8| inside.iter().filter(|inside| **inside == number).count();
            assert_eq!((line.used, line.waiting.len()), (self.inside.len(), self.waiting.len()));
            assert!(line.used <= line.rules.places_max.max(before.len()));
            assert!(line.waiting.len() <= line.rules.queue_max);
            for number in 1..5 {
                let share = line.rules.share_of(line.rules.places_max);
                assert!(of(&self.inside, number) <= share.max(of(before, number)));
            }
            // No waiter is left that could enter.
            assert!(self.waiting.iter().all(|(_, number)| line.obstacle(client(*number)).is_some()));
        }
    }

    proptest! {
        #[test]
        fn no_place_is_lost_or_given_twice(
            places_max in 1_usize..6,
            queue_max in 0_usize..6,
            client_share_percent in 1_usize..=100,
            steps in proptest::collection::vec(step(), 0..200),
        ) {
            let mut line = FairQueue::new(Rules { places_max, queue_max, client_share_percent });
            let mut model = Model::default();
            for step in steps {
                let before = model.inside.clone();
                model.apply(&mut line, step);
                model.check(&line, &before);
            }
            while !model.inside.is_empty() {
                let before = model.inside.clone();
                model.apply(&mut line, Step::Leave(0));
                model.check(&line, &before);
            }
            prop_assert!(line.clients == ClientShares::default() && line.waiting.is_empty() && line.used == 0);
        }
    }
}
