//! Decides what to do with the result of a look-up, as a pure function of values. `decide.txt` lists the decision for every case.
//!
//! The decision is the same for stored responses from memory and from the tier.

use std::sync::Arc;

use cache::entry::stored::{CacheEntry, Hit, Uncacheable};
use caching::{
    FwdReason, MethodClass, Miss, NotReused, RequestFacts, Reuse, Timestamp, on_miss, refresh_ahead, reuse,
    reuse_in_doubt, was_shared_lately,
};
use message::reason::Reason;
use twox_hash::XxHash3_64;

use crate::config::{CacheRule, PreconditionMiss};
use crate::request::fetch::fetch_spec::Sharing;
use crate::request::plan::ForwardReason;
use crate::request::serve::Use;

/// A request, and the entry under its key.
#[derive(Clone, Copy)]
pub(crate) struct ReuseInput<'a> {
    pub(crate) facts: &'a RequestFacts,
    pub(crate) rule: &'a CacheRule,
    pub(crate) entry: Option<&'a Arc<CacheEntry>>,
    pub(crate) key: &'a [u8],
    /// For this time after its expiration, a stored response still proves that responses for the key are shared.
    pub(crate) lately_ms: u64,
    pub(crate) now: Timestamp,
}

/// Validity of a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Valid,
    Invalidated,
    /// Another instance may have changed the response, and the tier doesn't answer.
    Unverified,
}

/// Decision about a look-up. `H` is the stored response that the request selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision<H> {
    /// The stored response is used.
    Use(H, Use),
    /// The request is forwarded, and its response is for this client alone. A stored response may be used if the origin fails.
    Forward(ForwardReason, Option<H>),
    /// The request is forwarded, and its response may be stored.
    Fetch(Asking<H>),
    /// `only-if-cached`, and no stored response can be used.
    Unavailable,
}

/// Request to the origin for a response that may be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asking<H> {
    pub(crate) reason: NotReused,
    /// Stored response that may be validated, or used if the origin fails.
    pub(crate) stale: Option<H>,
    pub(crate) sharing: Sharing,
    pub(crate) asked_for: AskedFor,
}

/// Extent of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AskedFor {
    /// The complete response.
    Whole,
    /// The client's own request, with its preconditions.
    AsAsked,
    /// The range that the client requests, if it requests nothing else and no fetch of the complete response is in progress.
    OnMiss,
}

/// Circumstances that matter if the request is forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Circumstances {
    pub(crate) stored: Stored,
    pub(crate) note: Note,
    pub(crate) precondition_miss: PreconditionMiss,
}

/// Stored responses under the key, from the point of view of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    Nothing,
    /// Responses that this request doesn't select.
    Others,
    /// A selected response whose body lacks bytes.
    Part,
    /// A selected response with its whole body.
    Whole,
}

/// Meaning of a hit-for-miss note under the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// No valid note applies to this request.
    Silent,
    /// A note applies: the response to this request won't be stored either.
    Holds(Uncacheable),
    /// A note exists, but a stored response is fresh, or was fresh until recently.
    Refuted,
}

/// Returns a pseudo-random number from a key for [`caching::refresh_ahead`], equal in all instances of a fleet.
fn draw(key: &[u8]) -> u16 {
    (XxHash3_64::oneshot(key) >> 48) as u16
}

impl ReuseInput<'_> {
    /// Applies the policy to the stored response that the request selected.
    pub(crate) fn reuse(&self, selected: Option<(&Hit, Standing)>) -> Reuse {
        let rules = &self.rule.caching;
        let in_doubt = |hit: &Hit, reason| reuse_in_doubt(self.facts, &hit.head.facts, rules, reason);
        match selected {
            Some((hit, Standing::Valid)) => {
                let (stored, now) = (&hit.head.facts, self.now);
                let decided = reuse(self.facts, stored, rules, now);
                refresh_ahead(decided, self.facts, stored, rules, now, || draw(self.key))
            }
            Some((hit, Standing::Invalidated)) => in_doubt(hit, NotReused::Invalidated),
            Some((hit, Standing::Unverified)) => in_doubt(hit, NotReused::Unverified),
            None => on_miss(self.facts, rules, self.miss()),
        }
    }

    pub(crate) fn decide(&self, reuse: Reuse, selected: Option<Hit>) -> Decision<Hit> {
        decide(self.facts, reuse, selected, |stale| self.circumstances(stale))
    }

    fn circumstances(&self, stale: Option<&Hit>) -> Circumstances {
        Circumstances {
            stored: match stale {
                None => self.unselected(),
                Some(hit) if hit.body.is_whole() => Stored::Whole,
                Some(_) => Stored::Part,
            },
            note: self.note(stale),
            precondition_miss: self.rule.precondition_miss,
        }
    }

    fn unselected(&self) -> Stored {
        match self.entry {
            Some(entry) if !entry.variants().is_empty() => Stored::Others,
            _ => Stored::Nothing,
        }
    }

    //= RFC 9111 section 4.1: no match is forwarded
    fn miss(&self) -> Miss {
        if self.unselected() == Stored::Nothing { Miss::Uri } else { Miss::Vary }
    }

    fn note(&self, stale: Option<&Hit>) -> Note {
        let note = self.entry.and_then(|entry| entry.uncacheable_for(self.facts, self.now));
        let is_shared = || was_shared_lately(stale.map(|hit| &hit.head.facts), self.now, self.lately_ms);
        match note {
            None => Note::Silent,
            Some(_) if is_shared() => Note::Refuted,
            Some(note) => Note::Holds(note),
        }
    }
}

/// Decides what to do, given the policy's result `reuse`. `circumstances` is called only if the request may have to be forwarded.
fn decide<H>(
    facts: &RequestFacts,
    reuse: Reuse,
    selected: Option<H>,
    circumstances: impl FnOnce(Option<&H>) -> Circumstances,
) -> Decision<H> {
    match (reuse, selected) {
        (Reuse::Fresh, Some(hit)) => Decision::Use(hit, Use::Fresh),
        (Reuse::RefreshAhead, Some(hit)) => Decision::Use(hit, Use::RefreshAhead),
        (Reuse::Stale, Some(hit)) => Decision::Use(hit, Use::Stale(Reason::MaxStale)),
        (Reuse::StaleWhileRevalidate, Some(hit)) => Decision::Use(hit, Use::StaleWhileRevalidate),
        (Reuse::Unavailable(_), _) => Decision::Unavailable,
        // The stored response is for other clients, so it must not be used for this one even if the origin fails.
        (Reuse::Forward(NotReused::Credentials), _) => {
            ask(facts, NotReused::Credentials, None, circumstances)
        }
        // A stale response without a validator is still useful if the origin fails.
        (Reuse::Validate(reason) | Reuse::Forward(reason), stale) => ask(facts, reason, stale, circumstances),
        // The policy never permits reuse without a stored response. Forwarding is always correct.
        (_, None) => ask(facts, NotReused::Miss, None, circumstances),
    }
}

fn ask<H>(
    facts: &RequestFacts,
    reason: NotReused,
    stale: Option<H>,
    circumstances: impl FnOnce(Option<&H>) -> Circumstances,
) -> Decision<H> {
    let fwd = reason.fwd();
    let why = ForwardReason { fwd, detail: reason.into() };
    if facts.has_origin_conditions || matches!(fwd, FwdReason::Bypass | FwdReason::Method) {
        return Decision::Forward(why, None);
    }
    // A response to HEAD has no body to store.
    if facts.method == MethodClass::Head {
        return Decision::Forward(why, stale);
    }
    let circumstances = circumstances(stale.as_ref());
    // The origin can answer such a request with less than the complete response, which is enough for one client. If there is a stale
    // response, this doesn't apply, because it may be validated, or used if the origin fails.
    let is_partial = facts.has_conditions || facts.has_range;
    if is_partial && stale.is_none() && matches!(circumstances.note, Note::Holds(_)) {
        return Decision::Forward(ForwardReason { fwd, detail: Reason::KnownUncacheable.into() }, stale);
    }
    let origin_judges = origin_judges(facts, circumstances);
    // If the precondition holds, the origin sends a part, which is for this client only.
    if facts.has_range && origin_judges {
        return Decision::Forward(why, stale);
    }
    let asked_for = match circumstances.stored {
        Stored::Nothing if origin_judges => AskedFor::AsAsked,
        Stored::Nothing | Stored::Others | Stored::Part => AskedFor::OnMiss,
        Stored::Whole => AskedFor::Whole,
    };
    // A client that requires a newer response must not get a response that was requested earlier. If the last response wasn't stored,
    // the next one may not be stored either, so no request waits for it. A response that is stored only for requests without
    // credentials indicates that responses aren't shared with other clients.
    let is_alone = fwd == FwdReason::Request || origin_judges || reason == NotReused::Credentials;
    let sharing = match circumstances.note {
        Note::Holds(known) => Sharing::Unlikely(known),
        Note::Silent | Note::Refuted if is_alone => Sharing::Alone,
        Note::Silent | Note::Refuted => Sharing::Joined,
    };
    Decision::Fetch(Asking { reason, stale, sharing, asked_for })
}

/// Returns whether the origin evaluates the preconditions of the client, because there is no stored response to compare with.
//= RFC 9111 section 4.3.2: preconditions where nothing is stored
fn origin_judges(facts: &RequestFacts, circumstances: Circumstances) -> bool {
    facts.has_conditions
        && circumstances.precondition_miss == PreconditionMiss::Forward
        && circumstances.stored == Stored::Nothing
}

#[cfg(test)]
mod tests {
    use caching::RefusalScope;
    use message::reason::Detail;
    use testkit::decision_table::{Column, compare, table};

    use super::*;

    const SELECTED: [Option<()>; 2] = [Some(()), None];
    const METHODS: [MethodClass; 5] = [
        MethodClass::Get,
        MethodClass::Query,
        MethodClass::OtherSafe,
        MethodClass::Unsafe,
        MethodClass::Head,
    ];
    const KNOWN: Uncacheable = Uncacheable {
        until: Timestamp::from_seconds(1),
        because: Detail::Here(Reason::TooLarge),
        scope: RefusalScope::All,
    };
    const NOTES: [Note; 3] = [Note::Silent, Note::Refuted, Note::Holds(KNOWN)];
    const STORED: [Stored; 4] = [Stored::Nothing, Stored::Others, Stored::Part, Stored::Whole];
    const JUDGES: [PreconditionMiss; 2] = [PreconditionMiss::Whole, PreconditionMiss::Forward];
    const NO_YES: [bool; 2] = [false, true];

    fn policies() -> Vec<Reuse> {
        let reasons = |reuse: fn(NotReused) -> Reuse| NotReused::ALL.iter().map(move |reason| reuse(*reason));
        let used = [Reuse::Fresh, Reuse::RefreshAhead, Reuse::Stale, Reuse::StaleWhileRevalidate];
        let asked = reasons(Reuse::Validate).chain(reasons(Reuse::Forward));
        used.into_iter().chain(asked).chain(reasons(Reuse::Unavailable)).collect()
    }

    fn columns() -> Vec<Column> {
        let asks =
            |name| Column::new(name, &NO_YES, |is_there| if *is_there { "yes" } else { "no" }.to_owned());
        vec![
            Column::new("selected", &SELECTED, |hit| hit.map_or("nothing", |()| "a response").to_owned()),
            Column::new("policy", &policies(), |reuse| format!("{reuse:?}")),
            asks("If-Match"),
            Column::new("method", &METHODS, |method| format!("{method:?}")),
            Column::new("note", &NOTES, |note| match note {
                Note::Holds(_) => "Holds".to_owned(),
                Note::Silent | Note::Refuted => format!("{note:?}"),
            }),
            Column::new("stored", &STORED, |stored| format!("{stored:?}")),
            asks("If-None-Match"),
            Column::new("precondition_miss", &JUDGES, |judge| format!("{judge:?}")),
            asks("Range"),
        ]
    }

    fn outcome(at: &[usize]) -> String {
        let &[selected, policy, of_origin, method, note, stored, conditions, judge, range] = at else {
            unreachable!("one index per column")
        };
        let facts = RequestFacts {
            method: METHODS[method],
            has_origin_conditions: NO_YES[of_origin],
            has_conditions: NO_YES[conditions],
            has_range: NO_YES[range],
            ..RequestFacts::parse("GET", &[])
        };
        let circumstances =
            Circumstances { stored: STORED[stored], note: NOTES[note], precondition_miss: JUDGES[judge] };
        let reuse = policies()[policy];
        shown(reuse, decide(&facts, reuse, SELECTED[selected], |_| circumstances))
    }

    /// Describes a decision. The reason is that of the policy, unless the decision has a reason of its own.
    fn shown(reuse: Reuse, decision: Decision<()>) -> String {
        let given = match reuse {
            Reuse::Fresh | Reuse::RefreshAhead | Reuse::Stale | Reuse::StaleWhileRevalidate => {
                NotReused::Miss
            }
            Reuse::Validate(reason) | Reuse::Forward(reason) | Reuse::Unavailable(reason) => reason,
        };
        let keeps = |stale: Option<()>| stale.map_or("", |()| ", and keeps the response");
        match decision {
            Decision::Use((), used) => format!("use: {used:?}"),
            Decision::Unavailable => "unavailable".to_owned(),
            Decision::Forward(why, stale) => {
                assert_eq!(why.fwd, given.fwd());
                let own = if why.detail == given.into() { "" } else { " as known-uncacheable" };
                assert!(own.is_empty() || why.detail == Reason::KnownUncacheable.into());
                format!("forward{own}{}", keeps(stale))
            }
            Decision::Fetch(Asking { reason, stale, sharing, asked_for }) => {
                assert_eq!(reason, given);
                let sharing = match sharing {
                    Sharing::Unlikely(known) => {
                        assert_eq!(known, KNOWN);
                        "Unlikely".to_owned()
                    }
                    Sharing::Joined | Sharing::Alone => format!("{sharing:?}"),
                };
                format!("fetch {asked_for:?}, {sharing}{}", keeps(stale))
            }
        }
    }

    #[test]
    fn what_is_done_is_as_written() {
        compare(&table(&columns(), outcome), include_str!("decide.txt"));
    }
}
