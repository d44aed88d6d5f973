//! Decides how a request reacts to the answer of its forward, and how many attempts it makes. `next_move.txt` and `attempts.txt` list
//! all cases.

use caching::NotReused;
use message::reason::{Detail, Reason};

use crate::request::fetch::fetch_spec::ScopeKind;
use crate::request::fetch::fetch_spec::Sharing;
use crate::request::fetch::job::Role;

/// Maximum number of forwards that one request takes part in before it is forwarded alone.
const ATTEMPTS_MAX: usize = 4;

/// Result of a forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutcomeKind {
    /// A response whose body is arriving.
    Filling,
    /// A part of a response, whose body is arriving.
    FillingPart,
    /// A stored response, freshened or just stored.
    Stored,
    /// A stored response, fetched by another instance.
    Elsewhere,
    /// A stored response that may be used in place of the failure.
    Stale,
    /// A response for the leader alone, with the reason why it can't be shared.
    Private(Status, Detail),
    /// The stored response whose missing bytes were requested has been removed.
    Discarded,
    /// No response.
    Failed,
    /// The process is stopping.
    GivenUp,
}

/// The status code of a response for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// 200
    Whole,
    /// 206
    Part,
    /// 416
    Unsatisfiable,
    /// 500 and above, which waiters treat as a failure.
    ServerError,
    Other,
}

/// Facts that decide a move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The response matches the nominated fields of this request.
    pub(crate) is_selected: bool,
    /// The body passes through a window, so its slowest reader sets the pace for all readers.
    pub(crate) is_in_window: bool,
    /// The response is fresh for this request.
    pub(crate) is_fresh: bool,
    /// The response had a freshness lifetime, so a newer response will be fresh for requests that wait for it from the start.
    pub(crate) was_fresh: bool,
    /// A response to this request may be shared, although the response to the leader may not.
    pub(crate) may_share: bool,
    pub(crate) has_if_range: bool,
    /// The request has a `Range` that the gateway understands.
    pub(crate) wants_part: bool,
}

/// Reaction of a request to an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    /// Reply with the answer. If the answer lacks requested bytes, make this attempt next.
    Reply(Again),
    /// The forward failed. A request that waits for another forward keeps waiting.
    Failed,
    GivenUp,
    Again(Again),
}

/// Next attempt after an answer that doesn't fit this request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// Join or start the forward for the variant that is now known.
    Join,
    /// Join or start a forward that begins now, because the answer arrived too late or is older than a purge.
    Newer,
    /// Start a forward that can't be joined.
    Alone,
    /// Request other bytes.
    Ask(Ask),
    /// Join or start a shared forward, because the next answer may be shared, although the leader's can't.
    Anew(Detail),
    /// Forward the request unchanged, because the response won't be stored.
    Forward(Detail),
}

/// Bytes to request next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// The bytes that a stored response lacks; [`NO_REST`] if they are several ranges.
    Rest,
    /// The bytes that the client requests, without using a stored response.
    Anew,
    Whole,
}

/// The attempt in place of [`Ask::Rest`] if no single range covers the missing bytes.
pub(crate) const NO_REST: Again = Again::Forward(Detail::Reuse(NotReused::Partial));

/// Returns the move of a request with this role, after a forward with a scope of this kind.
pub(crate) fn next_move(role: Role, scope: ScopeKind, came: OutcomeKind, facts: &Facts) -> Move {
    match came {
        OutcomeKind::Filling => filling(role, facts, Again::Alone),
        // If the client can't get a part because `If-Range` doesn't match, it gets the whole response.
        OutcomeKind::FillingPart => filling(role, facts, Again::Ask(Ask::Whole)),
        OutcomeKind::Stored => stored(role, facts),
        OutcomeKind::Elsewhere => elsewhere(role, facts),
        // A waiter may only use a stale response of its own.
        OutcomeKind::Stale if role == Role::Waiter => Move::Failed,
        OutcomeKind::Stale => Move::Reply(Again::Forward(Reason::SegmentEvicted.into())),
        OutcomeKind::Private(status, reason) => private((role, scope), facts, status, reason),
        OutcomeKind::Discarded => Move::Again(Again::Ask(Ask::Anew)),
        OutcomeKind::Failed => Move::Failed,
        OutcomeKind::GivenUp => Move::GivenUp,
    }
}

//= RFC 9111 section 4: collapsed requests
fn filling(role: Role, facts: &Facts, otherwise: Again) -> Move {
    match role {
        Role::Waiter if !facts.is_selected => Move::Again(Again::Join),
        Role::Waiter if facts.is_in_window => Move::Again(Again::Alone),
        Role::Waiter if !facts.is_fresh => Move::Again(instead_of_stale(facts)),
        Role::Leader | Role::Waiter => Move::Reply(otherwise),
    }
}

fn stored(role: Role, facts: &Facts) -> Move {
    match role {
        Role::Waiter if !facts.is_selected => Move::Again(Again::Alone),
        Role::Waiter if !facts.is_fresh => Move::Again(instead_of_stale(facts)),
        Role::Leader | Role::Waiter => Move::Reply(Again::Ask(Ask::Rest)),
    }
}

/// Returns the move for a response that isn't fresh. Requests for a response that is never fresh don't wait for each other, because
/// each would wait for one forward after another.
fn instead_of_stale(facts: &Facts) -> Again {
    if facts.was_fresh { Again::Newer } else { Again::Alone }
}

/// Returns the move after another instance's fetch. A waiter for a different variant joins again, because one instance may fetch that
/// variant for all instances, too.
fn elsewhere(role: Role, facts: &Facts) -> Move {
    match role {
        Role::Waiter if !facts.is_selected => Move::Again(Again::Join),
        Role::Leader | Role::Waiter => stored(role, facts),
    }
}

fn private((role, scope): (Role, ScopeKind), facts: &Facts, status: Status, reason: Detail) -> Move {
    match (role, status) {
        (Role::Waiter, Status::ServerError) => Move::Failed,
        (Role::Waiter, _) if facts.may_share => Move::Again(Again::Anew(reason)),
        (Role::Leader, status) if may_have(scope, status, facts) => Move::Reply(Again::Forward(reason)),
        _ => Move::Again(Again::Forward(reason)),
    }
}

/// Returns whether a response that isn't stored answers the leader's own request. If the forward requested different bytes than the
/// client, or omitted its `If-Range`, the request needs its own response from the origin.
fn may_have(scope: ScopeKind, status: Status, facts: &Facts) -> bool {
    let is_of_part = matches!(status, Status::Part | Status::Unsatisfiable);
    match scope {
        ScopeKind::Range => !(is_of_part && facts.has_if_range),
        // The missing bytes of a stored response can't answer a request by themselves.
        ScopeKind::MissingRange if is_of_part => false,
        ScopeKind::Whole | ScopeKind::AsAsked | ScopeKind::MissingRange => {
            let is_of_range = is_of_part || status == Status::Whole;
            !(is_of_range && facts.wants_part)
        }
    }
}

/// Attempts of one request to get a response, one forward after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attempts {
    left: usize,
    sharing: Sharing,
    renewal: Renewal,
}

/// Whether a request may wait with others again after a response that can't be shared or arrived too late. A request may do this once,
/// so that responses for single clients don't keep it waiting for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Renewal {
    Allowed,
    Used,
}

/// Result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryDecision {
    /// Try again.
    Attempt,
    /// No attempts are left.
    GivenUp,
    /// Forward the request for its client alone.
    Forward(Detail),
}

impl Attempts {
    pub(crate) fn new(sharing: Sharing) -> Self {
        Self { left: ATTEMPTS_MAX, sharing, renewal: Renewal::Allowed }
    }

    /// Returns how the next forward is shared.
    pub(crate) fn sharing(&self) -> Sharing {
        self.sharing
    }

    pub(crate) fn after(&mut self, again: Again) -> RetryDecision {
        match again {
            Again::Forward(detail) => return RetryDecision::Forward(detail),
            Again::Anew(detail) if self.renewal == Renewal::Used => return RetryDecision::Forward(detail),
            Again::Newer if self.renewal == Renewal::Used => self.sharing = Sharing::Alone,
            Again::Anew(_) | Again::Newer => self.renewal = Renewal::Used,
            Again::Alone => self.sharing = Sharing::Alone,
            Again::Join | Again::Ask(_) => {}
        }
        self.left = self.left.saturating_sub(1);
        if self.left == 0 { RetryDecision::GivenUp } else { RetryDecision::Attempt }
    }
}

#[cfg(test)]
mod tests {
    use caching::{RefusalScope, Timestamp};
    use testkit::decision_table::{Column, compare, table};

    use super::*;
    use cache::entry::stored::Uncacheable;

    const WHY: Detail = Detail::Here(Reason::TooLarge);
    const CAME: [(&str, OutcomeKind); 13] = [
        ("Filling", OutcomeKind::Filling),
        ("FillingPart", OutcomeKind::FillingPart),
        ("Stored", OutcomeKind::Stored),
        ("Elsewhere", OutcomeKind::Elsewhere),
        ("Stale", OutcomeKind::Stale),
        ("Private 200", OutcomeKind::Private(Status::Whole, WHY)),
        ("Private 206", OutcomeKind::Private(Status::Part, WHY)),
        ("Private 416", OutcomeKind::Private(Status::Unsatisfiable, WHY)),
        ("Private 5xx", OutcomeKind::Private(Status::ServerError, WHY)),
        ("Private other", OutcomeKind::Private(Status::Other, WHY)),
        ("Discarded", OutcomeKind::Discarded),
        ("Failed", OutcomeKind::Failed),
        ("GivenUp", OutcomeKind::GivenUp),
    ];
    const ROLES: [Role; 2] = [Role::Leader, Role::Waiter];
    const SCOPES: [ScopeKind; 4] =
        [ScopeKind::Whole, ScopeKind::AsAsked, ScopeKind::Range, ScopeKind::MissingRange];
    type Set = fn(&mut Facts) -> &mut bool;
    const FACTS: [(&str, Set); 7] = [
        ("IsSelected", |facts| &mut facts.is_selected),
        ("IsInWindow", |facts| &mut facts.is_in_window),
        ("IsFresh", |facts| &mut facts.is_fresh),
        ("WasFresh", |facts| &mut facts.was_fresh),
        ("MayShare", |facts| &mut facts.may_share),
        ("HasIfRange", |facts| &mut facts.has_if_range),
        ("WantsPart", |facts| &mut facts.wants_part),
    ];
    const NO_YES: [bool; 2] = [false, true];

    fn columns() -> Vec<Column> {
        let no_yes =
            |name: &str| Column::new(name, &NO_YES, |holds| if *holds { "yes" } else { "no" }.to_owned());
        let mut columns = vec![
            Column::new("came", &CAME, |(name, _)| (*name).to_owned()),
            Column::new("role", &ROLES, |role| format!("{role:?}")),
            Column::new("scope", &SCOPES, |scope| format!("{scope:?}")),
        ];
        columns.extend(FACTS.iter().map(|(name, _)| no_yes(name)));
        columns.extend(["makes a reply", "has a rest"].map(no_yes));
        columns
    }

    fn moved(at: &[usize]) -> String {
        let (came, role, scope) = (CAME[at[0]].1, ROLES[at[1]], SCOPES[at[2]]);
        let mut facts = Facts::default();
        FACTS.iter().zip(&at[3..]).for_each(|((_, set), holds)| *set(&mut facts) = NO_YES[*holds]);
        let [makes_reply, has_rest] = [0, 1].map(|column| NO_YES[at[3 + FACTS.len() + column]]);
        match next_move(role, scope, came, &facts) {
            Move::Reply(_) if makes_reply => "reply".to_owned(),
            Move::Reply(Again::Ask(Ask::Rest)) if !has_rest => shown(&NO_REST),
            Move::Reply(again) | Move::Again(again) => shown(&again),
            Move::Failed => "failed".to_owned(),
            Move::GivenUp => "given up".to_owned(),
        }
    }

    fn shown(again: &Again) -> String {
        let named = |detail: &Detail| if *detail == WHY { "its reason" } else { detail.as_str() };
        match again {
            Again::Join => "join the variant".to_owned(),
            Again::Newer => "newer".to_owned(),
            Again::Alone => "alone".to_owned(),
            Again::Ask(Ask::Rest) => "ask for the rest".to_owned(),
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
    const AGAIN: [Again; 8] = [
        Again::Join,
        Again::Newer,
        Again::Alone,
        Again::Ask(Ask::Rest),
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
            match attempts.after(AGAIN[at[0]]) {
                RetryDecision::GivenUp => "given up".to_owned(),
                RetryDecision::Forward(detail) => shown(&Again::Forward(detail)),
                RetryDecision::Attempt => {
                    assert_eq!(attempts.left, at[2], "one less");
                    format!("attempt, {}, {:?}", sharing_shown(&attempts.sharing), attempts.renewal)
                }
            }
        };
        compare(&table(&columns, outcome), include_str!("attempts.txt"));
    }

    /// Returns the maximum number of attempts from this state, for any answers of the origin.
    fn longest(attempts: Attempts) -> usize {
        let follows = AGAIN.iter().map(|again| {
            let mut next = attempts;
            if next.after(*again) == RetryDecision::Attempt { longest(next) } else { 0 }
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
