//! What a request does about the answer of a forward that it took part in, and how often it tries. `next_move.txt` and
//! `attempts.txt` show all of it.

use caching::NotReused;

use crate::cache::inflight::joining::Role;
use crate::cache::inflight::scope::ScopeKind;
use crate::cache::inflight::wanted::Sharing;
use crate::reason::{Detail, Reason};

/// Forwards that one request may take part in before it goes its own way.
const ATTEMPTS_MAX: usize = 4;

/// What came of a forward. `F` is how it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came<F> {
    /// A response whose body is on its way.
    Filling,
    /// The same, of a part.
    FillingPart,
    /// A stored response, freshened or just stored.
    Stored,
    /// The same, stored by another instance.
    Elsewhere,
    /// A stored response that may stand in for the failure.
    Stale(F),
    /// A response for the request that led alone, and why.
    Private(Status<F>, Detail),
    /// What the rest of a stored response was asked for is gone.
    Discarded,
    /// No response.
    Failed(F),
    /// The process stops.
    GivenUp,
}

/// The status code of a response for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status<F> {
    /// 200
    Whole,
    /// 206
    Part,
    /// 416
    Unsatisfiable,
    /// 500 and above, which is a failure to those who wait.
    ServerError(F),
    Other,
}

/// What counts in a move. Some of it costs, so that each is asked for when its turn comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fact {
    /// The response is one for the nominated fields of this request.
    IsSelected,
    /// The slowest of those who read its body sets the pace for all.
    IsInWindow,
    /// It is fresh, for this request.
    IsFresh,
    /// It has a lifetime: a newer one will be fresh for whoever waits from its beginning.
    WasFresh,
    /// Others may well share what this request gets, although one got an answer for itself.
    MayShare,
    HasIfRange,
    /// The request has a `Range` that is understood.
    WantsPart,
}

/// One answer, as seen by the request.
pub(crate) trait Trial {
    type Reply;
    type Failure;
    type Variant;
    type Scope;

    fn holds(&self, fact: Fact) -> bool;
    /// The reply that the answer makes, if it has what this request wants.
    fn reply(&mut self) -> Option<Self::Reply>;
    /// What asks for the bytes that the answer lacks; `None` for several ranges.
    fn rest(&self) -> Option<Self::Scope>;
    /// The variant that this request wants, now that it is known what it depends on.
    fn variant(&self) -> Self::Variant;
}

/// What a request does about an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Move<R, F, V, S> {
    Reply(R),
    /// The forward failed. Who waits for another forward goes on waiting.
    Failed(F),
    GivenUp,
    Again(Again<V, S>),
}

/// The moves of a kind of trial.
pub(crate) type MoveOf<T> =
    Move<<T as Trial>::Reply, <T as Trial>::Failure, <T as Trial>::Variant, <T as Trial>::Scope>;

/// What to do after an answer that is not for this request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again<V, S> {
    /// Join, or start, the forward for the variant that is now known.
    Join(V),
    /// Join, or start, one that begins now: this one's answer came too late, or from before a purge.
    Newer,
    /// Start a forward that nobody can join.
    Alone,
    /// Ask for other bytes.
    Ask(Ask<S>),
    /// Nothing to share came of the request that led, which says little about this one: once more, together.
    Anew(Detail),
    /// Forward as it is: the answer won't be stored.
    Forward(Detail),
}

/// Which bytes are asked for next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask<S> {
    /// Those that a stored response lacks.
    Rest(S),
    /// Those that are wanted where nothing is stored.
    Anew,
    Whole,
}

/// What a request in `role`, which asked for a scope of this kind, does about what came.
pub(crate) fn next_move<T: Trial>(
    role: Role,
    scope: ScopeKind,
    came: Came<T::Failure>,
    trial: &mut T,
) -> MoveOf<T> {
    match came {
        Came::Filling => filling(role, trial, Again::Alone),
        // No part is what the client gets in the end: its If-Range does not hold.
        Came::FillingPart => filling(role, trial, Again::Ask(Ask::Whole)),
        Came::Stored => stored(role, trial),
        Came::Elsewhere => elsewhere(role, trial),
        Came::Stale(failure) => stale(role, trial, failure),
        Came::Private(status, reason) => private((role, scope), trial, status, reason),
        Came::Discarded => Move::Again(Again::Ask(Ask::Anew)),
        Came::Failed(failure) => Move::Failed(failure),
        Came::GivenUp => Move::GivenUp,
    }
}

//= RFC 9111 section 4: collapsed requests
fn filling<T: Trial>(role: Role, trial: &mut T, otherwise: Again<T::Variant, T::Scope>) -> MoveOf<T> {
    if role == Role::Waiter && !trial.holds(Fact::IsSelected) {
        return Move::Again(Again::Join(trial.variant()));
    }
    if role == Role::Waiter && trial.holds(Fact::IsInWindow) {
        return Move::Again(Again::Alone);
    }
    if role == Role::Waiter && !trial.holds(Fact::IsFresh) {
        return Move::Again(instead_of_stale(trial));
    }
    trial.reply().map_or(Move::Again(otherwise), Move::Reply)
}

fn stored<T: Trial>(role: Role, trial: &mut T) -> MoveOf<T> {
    if role == Role::Waiter && !trial.holds(Fact::IsSelected) {
        return Move::Again(Again::Alone);
    }
    if role == Role::Waiter && !trial.holds(Fact::IsFresh) {
        return Move::Again(instead_of_stale(trial));
    }
    match trial.reply() {
        Some(reply) => Move::Reply(reply),
        None => Move::Again(match trial.rest() {
            Some(scope) => Again::Ask(Ask::Rest(scope)),
            None => Again::Forward(NotReused::Partial.into()),
        }),
    }
}

/// A crowd that waits for what is never fresh would wait for one forward after the other.
fn instead_of_stale<T: Trial>(trial: &T) -> Again<T::Variant, T::Scope> {
    if trial.holds(Fact::WasFresh) { Again::Newer } else { Again::Alone }
}

/// Of another variant, too, one instance may fetch what all wait for.
fn elsewhere<T: Trial>(role: Role, trial: &mut T) -> MoveOf<T> {
    match role {
        Role::Waiter if !trial.holds(Fact::IsSelected) => Move::Again(Again::Join(trial.variant())),
        Role::Leader | Role::Waiter => stored(role, trial),
    }
}

fn stale<T: Trial>(role: Role, trial: &mut T, failure: T::Failure) -> MoveOf<T> {
    // Who waits looks for a stale response of its own.
    if role == Role::Waiter {
        return Move::Failed(failure);
    }
    let evicted = Again::Forward(Reason::SegmentEvicted.into());
    trial.reply().map_or(Move::Again(evicted), Move::Reply)
}

fn private<T: Trial>(
    (role, scope): (Role, ScopeKind),
    trial: &mut T,
    status: Status<T::Failure>,
    reason: Detail,
) -> MoveOf<T> {
    match (role, status) {
        (Role::Waiter, Status::ServerError(failure)) => Move::Failed(failure),
        (Role::Waiter, _) if trial.holds(Fact::MayShare) => Move::Again(Again::Anew(reason)),
        (Role::Leader, status) if may_have(scope, &status, trial) => {
            trial.reply().map_or(Move::Again(Again::Forward(reason)), Move::Reply)
        }
        _ => Move::Again(Again::Forward(reason)),
    }
}

/// Whether an answer that isn't stored is one to this very request. Where other bytes were asked for than the
/// client wants, or its `If-Range` was left out, it shall get its own answer from the origin.
fn may_have<T: Trial>(scope: ScopeKind, status: &Status<T::Failure>, trial: &T) -> bool {
    let is_of_part = matches!(status, Status::Part | Status::Unsatisfiable);
    match scope {
        ScopeKind::Range => !(is_of_part && trial.holds(Fact::HasIfRange)),
        // The bytes that something stored lacks are nobody's answer.
        ScopeKind::MissingRange if is_of_part => false,
        ScopeKind::Whole | ScopeKind::AsAsked | ScopeKind::MissingRange => {
            let is_of_range = is_of_part || matches!(status, Status::Whole);
            !(is_of_range && trial.holds(Fact::WantsPart))
        }
    }
}

/// The forwards that a request takes part in, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attempts {
    left: usize,
    sharing: Sharing,
    renewal: Renewal,
}

/// Whether a request may go on waiting with others after an answer that nobody shares, or that came too late. Once: what is for one client
/// alone is to keep nobody waiting for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Renewal {
    Allowed,
    Used,
}

/// What follows an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Another one.
    Attempt,
    /// There were enough.
    GivenUp,
    /// The request is forwarded for its client alone.
    Forward(Detail),
}

impl Attempts {
    pub(crate) fn new(sharing: Sharing) -> Self {
        Self { left: ATTEMPTS_MAX, sharing, renewal: Renewal::Allowed }
    }

    /// How the next one goes.
    pub(crate) fn sharing(&self) -> Sharing {
        self.sharing
    }

    pub(crate) fn after<V, S>(&mut self, again: &Again<V, S>) -> Next {
        match again {
            Again::Forward(detail) => return Next::Forward(*detail),
            Again::Anew(detail) if self.renewal == Renewal::Used => return Next::Forward(*detail),
            Again::Newer if self.renewal == Renewal::Used => self.sharing = Sharing::Alone,
            Again::Anew(_) | Again::Newer => self.renewal = Renewal::Used,
            Again::Alone => self.sharing = Sharing::Alone,
            Again::Join(_) | Again::Ask(_) => {}
        }
        self.left = self.left.saturating_sub(1);
        if self.left == 0 { Next::GivenUp } else { Next::Attempt }
    }
}

#[cfg(test)]
mod tests {
    use caching::{RefusalScope, Timestamp};

    use super::*;
    use crate::cache::record::stored::Uncacheable;
    use crate::decision_table::{Column, compare, table};

    const WHY: Detail = Detail::Here(Reason::TooLarge);
    const CAME: [(&str, Came<()>); 13] = [
        ("Filling", Came::Filling),
        ("FillingPart", Came::FillingPart),
        ("Stored", Came::Stored),
        ("Elsewhere", Came::Elsewhere),
        ("Stale", Came::Stale(())),
        ("Private 200", Came::Private(Status::Whole, WHY)),
        ("Private 206", Came::Private(Status::Part, WHY)),
        ("Private 416", Came::Private(Status::Unsatisfiable, WHY)),
        ("Private 5xx", Came::Private(Status::ServerError(()), WHY)),
        ("Private other", Came::Private(Status::Other, WHY)),
        ("Discarded", Came::Discarded),
        ("Failed", Came::Failed(())),
        ("GivenUp", Came::GivenUp),
    ];
    const ROLES: [Role; 2] = [Role::Leader, Role::Waiter];
    const SCOPES: [ScopeKind; 4] =
        [ScopeKind::Whole, ScopeKind::AsAsked, ScopeKind::Range, ScopeKind::MissingRange];
    const FACTS: [Fact; 7] = [
        Fact::IsSelected,
        Fact::IsInWindow,
        Fact::IsFresh,
        Fact::WasFresh,
        Fact::MayShare,
        Fact::HasIfRange,
        Fact::WantsPart,
    ];
    const NO_YES: [bool; 2] = [false, true];

    /// A trial of which everything is known: the facts, then whether there is a reply and a rest.
    struct Known<'a>(&'a [usize]);

    impl Trial for Known<'_> {
        type Reply = ();
        type Failure = ();
        type Variant = ();
        type Scope = ();

        fn holds(&self, fact: Fact) -> bool {
            NO_YES[self.0[FACTS.iter().position(|known| *known == fact).expect("a column")]]
        }

        fn reply(&mut self) -> Option<()> {
            NO_YES[self.0[FACTS.len()]].then_some(())
        }

        fn rest(&self) -> Option<()> {
            NO_YES[self.0[FACTS.len() + 1]].then_some(())
        }

        fn variant(&self) {}
    }

    fn columns() -> Vec<Column> {
        let no_yes =
            |name: &str| Column::new(name, &NO_YES, |holds| if *holds { "yes" } else { "no" }.to_owned());
        let mut columns = vec![
            Column::new("came", &CAME, |(name, _)| (*name).to_owned()),
            Column::new("role", &ROLES, |role| format!("{role:?}")),
            Column::new("scope", &SCOPES, |scope| format!("{scope:?}")),
        ];
        columns.extend(FACTS.iter().map(|fact| no_yes(&format!("{fact:?}"))));
        columns.extend(["makes a reply", "has a rest"].map(no_yes));
        columns
    }

    fn moved(at: &[usize]) -> String {
        let (came, role, scope) = (CAME[at[0]].1, ROLES[at[1]], SCOPES[at[2]]);
        match next_move(role, scope, came, &mut Known(&at[3..])) {
            Move::Reply(()) => "reply".to_owned(),
            Move::Failed(()) => "failed".to_owned(),
            Move::GivenUp => "given up".to_owned(),
            Move::Again(again) => shown(&again),
        }
    }

    fn shown(again: &Again<(), ()>) -> String {
        let named = |detail: &Detail| if *detail == WHY { "its reason" } else { detail.as_str() };
        match again {
            Again::Join(()) => "join the variant".to_owned(),
            Again::Newer => "newer".to_owned(),
            Again::Alone => "alone".to_owned(),
            Again::Ask(Ask::Rest(())) => "ask for the rest".to_owned(),
            Again::Ask(Ask::Anew) => "ask anew".to_owned(),
            Again::Ask(Ask::Whole) => "ask for the whole".to_owned(),
            Again::Anew(detail) => format!("once more: {}", named(detail)),
            Again::Forward(detail) => format!("forward: {}", named(detail)),
        }
    }

    #[test]
    fn moves_are_as_written() {
        compare(&table(&columns(), moved), include_str!("next_move.txt"));
    }

    const SHARING: [Sharing; 3] = [
        Sharing::Joined,
        Sharing::Alone,
        Sharing::Unlikely(Uncacheable {
            until: Timestamp::from_seconds(1),
            because: WHY,
            scope: RefusalScope::All,
        }),
    ];
    const AGAIN: [Again<(), ()>; 8] = [
        Again::Join(()),
        Again::Newer,
        Again::Alone,
        Again::Ask(Ask::Rest(())),
        Again::Ask(Ask::Anew),
        Again::Ask(Ask::Whole),
        Again::Anew(WHY),
        Again::Forward(WHY),
    ];
    const RENEWALS: [Renewal; 2] = [Renewal::Allowed, Renewal::Used];

    fn state(left: usize, sharing: usize, renewal: usize) -> Attempts {
        Attempts { left: left + 1, sharing: SHARING[sharing], renewal: RENEWALS[renewal] }
    }

    fn sharing_shown(sharing: &Sharing) -> String {
        match sharing {
            Sharing::Unlikely(_) => "Unlikely".to_owned(),
            Sharing::Joined | Sharing::Alone => format!("{sharing:?}"),
        }
    }

    #[test]
    fn attempts_are_as_written() {
        let left: Vec<usize> = (1..=ATTEMPTS_MAX).collect();
        let columns = [
            Column::new("after", &AGAIN, shown),
            Column::new("renewal", &RENEWALS, |renewal| format!("{renewal:?}")),
            Column::new("left", &left, ToString::to_string),
            Column::new("sharing", &SHARING, sharing_shown),
        ];
        let outcome = |at: &[usize]| {
            let mut attempts = state(at[2], at[3], at[1]);
            match attempts.after(&AGAIN[at[0]]) {
                Next::GivenUp => "given up".to_owned(),
                Next::Forward(detail) => shown(&Again::Forward(detail)),
                Next::Attempt => {
                    assert_eq!(attempts.left, at[2], "one less");
                    format!("attempt, {}, {:?}", sharing_shown(&attempts.sharing), attempts.renewal)
                }
            }
        };
        compare(&table(&columns, outcome), include_str!("attempts.txt"));
    }

    /// The attempts that the most stubborn origin gets from this state.
    fn longest(attempts: Attempts) -> usize {
        let follows = AGAIN.iter().map(|again| {
            let mut next = attempts;
            if next.after(again) == Next::Attempt { longest(next) } else { 0 }
        });
        1 + follows.max().unwrap_or_default()
    }

    #[test]
    fn attempts_end() {
        for left in 0..ATTEMPTS_MAX {
            for (sharing, renewal) in (0..SHARING.len()).flat_map(|sharing| [(sharing, 0), (sharing, 1)]) {
                assert_eq!(longest(state(left, sharing, renewal)), left + 1);
            }
        }
        assert_eq!(longest(Attempts::new(Sharing::Joined)), ATTEMPTS_MAX);
    }
}
