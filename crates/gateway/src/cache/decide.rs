//! What is done with what a look-up found: values in, a decision out. What it comes to in every case stands in
//! `decide.txt`.
//!
//! Whoever looks anywhere for a response can ask: where the record comes from makes no difference.

use std::sync::Arc;

use caching::{
    FwdReason, MethodClass, Miss, NotReused, RequestFacts, Reuse, Timestamp, on_miss, refresh_ahead, reuse,
    reuse_in_doubt, was_shared_lately,
};
use message::reason::Reason;
use twox_hash::XxHash3_64;

use crate::cache::inflight::wanted::Sharing;
use crate::cache::record::stored::{CacheEntry, Hit, Uncacheable};
use crate::cache::using::Use;
use crate::config::{CacheRule, PreconditionMiss};
use crate::request::plan::ForwardReason;

/// A request, and what is stored under its key.
#[derive(Clone, Copy)]
pub(crate) struct Question<'a> {
    pub(crate) facts: &'a RequestFacts,
    pub(crate) rule: &'a CacheRule,
    pub(crate) entry: Option<&'a Arc<CacheEntry>>,
    pub(crate) key: &'a [u8],
    /// How long after the end of its lifetime a stored response still tells that others share it.
    pub(crate) lately_ms: u64,
    pub(crate) now: Timestamp,
}

/// Whether a stored response still is what it was when it was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Valid,
    Invalidated,
    /// Others may have changed it, and whoever could tell does not answer.
    Unverified,
}

/// What is done. `H` is the stored response that the request selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision<H> {
    /// It answers.
    Use(H, Use),
    /// The answer of the origin is for this client alone; what is stored may stand in for it.
    Forward(ForwardReason, Option<H>),
    /// The origin must be asked; the answer may be stored.
    Fetch(Asking<H>),
    /// `only-if-cached`, and nothing can be used.
    Unavailable,
}

/// How the origin is asked for what may be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asking<H> {
    pub(crate) reason: NotReused,
    /// What may be validated, or stand in for an origin that fails.
    pub(crate) stale: Option<H>,
    pub(crate) sharing: Sharing,
    pub(crate) asked_for: AskedFor,
}

/// How much is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AskedFor {
    /// The complete response.
    Whole,
    /// What the client asks for, with its own preconditions.
    AsAsked,
    /// The range that the client wants, if that is all it wants and the whole is not about to bring it.
    OnMiss,
}

/// What counts where the origin is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Circumstances {
    pub(crate) stored: Stored,
    pub(crate) note: Note,
    pub(crate) precondition_miss: PreconditionMiss,
}

/// What is stored under the key, as seen by the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    Nothing,
    /// Responses of which this request may have none.
    Others,
    /// A response that it selected, of whose body bytes are missing.
    Part,
    /// A response that it selected.
    Whole,
}

/// What a note says that an answer for this key was not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// Nothing about this request, now.
    Silent,
    /// This one will not be stored either.
    Holds(Uncacheable),
    /// The same, but what is stored was shared a short while ago.
    Refuted,
}

/// The moment a key draws for [`caching::refresh_ahead`]: the same in each instance of a fleet.
fn draw(key: &[u8]) -> u16 {
    (XxHash3_64::oneshot(key) >> 48) as u16
}

impl Question<'_> {
    /// What the policy has for the stored response that the request selected.
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

/// What is done where the policy says `reuse`. Circumstances are asked for where the origin may have to be.
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
        // Made for others: it is not for this request, whatever happens.
        (Reuse::Forward(NotReused::Credentials), _) => {
            ask(facts, NotReused::Credentials, None, circumstances)
        }
        // A stale response without a validator is of use still: if the origin fails.
        (Reuse::Validate(reason) | Reuse::Forward(reason), stale) => ask(facts, reason, stale, circumstances),
        // Reuse without a stored response does not happen; asking the origin is right in any case.
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
    // HEAD brings no body to store.
    if facts.method == MethodClass::Head {
        return Decision::Forward(why, stale);
    }
    let circumstances = circumstances(stale.as_ref());
    // The origin can answer these with less than the whole, which is all that a response for one client has
    // to be. A stale response is worth more: it may be validated, or stand in for an origin that fails.
    let is_partial = facts.has_conditions || facts.has_range;
    if is_partial && stale.is_none() && matches!(circumstances.note, Note::Holds(_)) {
        return Decision::Forward(ForwardReason { fwd, detail: Reason::KnownUncacheable.into() }, stale);
    }
    let origin_judges = origin_judges(facts, circumstances);
    // A part for one client, if the precondition holds.
    if facts.has_range && origin_judges {
        return Decision::Forward(why, stale);
    }
    let asked_for = match circumstances.stored {
        Stored::Nothing if origin_judges => AskedFor::AsAsked,
        Stored::Nothing | Stored::Others | Stored::Part => AskedFor::OnMiss,
        Stored::Whole => AskedFor::Whole,
    };
    // Who asks for something newer than what others get must not be given an answer that was asked
    // for before. What was uncacheable will be so again, or not: nobody waits for it, and it is stored if it can be.
    // What is stored for requests without credentials alone tells that nothing is shared with others.
    let is_alone = fwd == FwdReason::Request || origin_judges || reason == NotReused::Credentials;
    let sharing = match circumstances.note {
        Note::Holds(known) => Sharing::Unlikely(known),
        Note::Silent | Note::Refuted if is_alone => Sharing::Alone,
        Note::Silent | Note::Refuted => Sharing::Joined,
    };
    Decision::Fetch(Asking { reason, stale, sharing, asked_for })
}

/// Whether the preconditions of the client are left to the origin: nothing is stored that they could be judged by.
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

    /// The reason is that of the policy where none is shown.
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
