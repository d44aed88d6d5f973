//! Groups, keys and purges, matched against the membership of stored responses.

use caching::{
    CacheKey, ExchangeTimes, KeyParts, KeyRules, NominatedFields, NominatedValues, RequestFacts,
    ResponseFacts, Rules, StoredFacts,
};
use message::clock::test::{WALL, Wall};
use message::fields::PackedFields;
use store::backing::LogOffset;
use store::purge::{PurgeId, PurgeTarget, Selection};
use tokio::time::Instant;

use super::*;
use crate::entry::cold_fields::ColdFields;

const TARGET: Target<'_> = Target { scheme: b"http", authority: b"a.example", path: b"/", query: None };
const OTHER: Target<'_> = Target { scheme: b"http", authority: b"b.example", path: b"/", query: None };
const KEY: &[u8] = b"a key of nobody";

fn named(names: &[&str]) -> Groups {
    Groups::Named(names.iter().map(|&name| name.to_owned()).collect())
}

fn head(membership: Option<Membership>, asked_at: Stamp) -> StoredHead {
    let at = Timestamp::from_seconds(1_800_000_000);
    let times = ExchangeTimes { request: at, response: at, clock_ahead_ms: 0 };
    let rules = Rules::default();
    let response = ResponseFacts::parse(200, &[], times, &rules);
    let facts = StoredFacts::new(&RequestFacts::parse("GET", &[]), &response, &rules);
    let particulars = ColdFields::new(NominatedFields::default(), NominatedValues::default(), None);
    StoredHead::new(facts, PackedFields::default(), None, particulars, asked_at).with_membership(membership)
}

impl Invalidations {
    fn asked(&self, groups: &Groups, tags: &Groups) -> StoredHead {
        head(self.membership(groups, tags, &TARGET), self.stamp())
    }

    fn of_groups(&self, names: &[&str]) -> StoredHead {
        self.asked(&named(names), &named(&[]))
    }

    fn is_outdated(&self, head: &StoredHead) -> bool {
        self.judge(KEY, head) == Verdict::Invalidated
    }
}

fn check(member_of: &Groups, invalidated: &Groups, target: &Target<'_>, expected: bool) {
    let invalidations = Invalidations::new(Purgers::This);
    let before = invalidations.asked(member_of, &named(&[]));
    assert!(!invalidations.is_outdated(&before));
    invalidations.invalidate(invalidated, target, None);
    assert_eq!(invalidations.is_outdated(&before), expected, "{member_of:?} {invalidated:?}");
    let after = invalidations.asked(member_of, &named(&[]));
    assert!(!invalidations.is_outdated(&after), "what is asked for later is new");
}

//= RFC 9875 section 2.1: the same String and the same origin
#[test]
fn what_was_asked_for_before_is_outdated() {
    check(&named(&["x", "y"]), &named(&["y"]), &TARGET, true);
    check(&named(&["x", "y"]), &named(&["z"]), &TARGET, false);
    check(&named(&["x"]), &named(&["x"]), &OTHER, false);
    check(&named(&["x"]), &named(&[]), &TARGET, false);
    check(&named(&["x"]), &Groups::TooMany, &TARGET, true);
    check(&Groups::TooMany, &named(&["x"]), &TARGET, true);
    check(&Groups::TooMany, &Groups::TooMany, &TARGET, true);
    check(&Groups::TooMany, &Groups::TooMany, &OTHER, false);
}

#[test]
fn groups_of_a_response_are_invalidated_and_no_others() {
    let invalidations = Invalidations::new(Purgers::This);
    let [own, shares, apart] = [&["x"][..], &["x", "y"], &["y"]].map(|names| invalidations.of_groups(names));
    let any = invalidations.asked(&Groups::TooMany, &named(&[]));
    invalidations.invalidate(&named(&["x"]), &TARGET, None);
    assert_eq!(
        [&own, &shares, &apart, &any].map(|one| invalidations.is_outdated(one)),
        [true, true, false, true]
    );
}

#[test]
fn keys_count_once_they_are_watched() {
    let invalidations = Invalidations::new(Purgers::This);
    invalidations.watch_keys();
    let of_key = |key: &[u8]| {
        head(
            Some(Membership { key: Some(invalidations.name(key)), ..Membership::default() }),
            invalidations.stamp(),
        )
    };
    let [own, other] = [b"a", b"b"].map(|key| of_key(key));
    invalidations.invalidate_key(b"a", PurgeEffect::Soft, None);
    assert_eq!(invalidations.judge(KEY, &own), Verdict::Stale(1));
    assert_eq!(invalidations.judge(KEY, &other), Verdict::Current);
    assert_eq!(invalidations.judge(KEY, &of_key(b"a")), Verdict::Current);
    invalidations.invalidate_key(b"a", PurgeEffect::Hard, None);
    assert_eq!(invalidations.judge(KEY, &own), Verdict::Removed(2));
}

fn purge(invalidations: &Invalidations, mode: PurgeMode, what: PurgeTarget) -> u64 {
    invalidations
        .purge(PurgeRecord { id: PurgeId([0; 16]), at_ms: 1_900_000_000_000, mode, what }, &[])
        .number
}

/// A purge makes responses stale for all later requests, whichever clock its time comes from.
#[tokio::test(start_paused = true)]
async fn a_purge_makes_stale_whatever_its_time() {
    const ARRIVED_MS: i64 = 1_800_000_000_000;
    let began_at = Timestamp::from_ms(ARRIVED_MS + 5_000);
    let stale_since = |at_ms: u64| {
        let invalidations = Invalidations::new(Purgers::Several);
        let head = invalidations.of_groups(&[]);
        let (id, mode) = (PurgeId([0; 16]), PurgeMode::Soft);
        let number =
            invalidations.purge(PurgeRecord { id, at_ms, mode, what: PurgeTarget::Everything }, &[]).number;
        invalidations.stale_since(number, &head).ms_since(Timestamp::from_ms(ARRIVED_MS))
    };
    for (at_ms, expected) in
        [(ARRIVED_MS - 1, 0), (ARRIVED_MS + 1, 1), (ARRIVED_MS + 35_000, 5_000), (i64::MAX, 5_000)]
    {
        let noted = Wall { begun: Instant::now(), began_at };
        let since = WALL.sync_scope(noted, || stale_since(at_ms.unsigned_abs()));
        assert_eq!(since, expected, "{at_ms}");
    }
}

fn tag(tag: &str) -> PurgeTarget {
    PurgeTarget::Selected(Selection {
        tags: vec![tag.to_owned()],
        site: Some("s".to_owned()),
        ..Selection::default()
    })
}

fn key_of_site(site: &[u8]) -> Vec<u8> {
    let parts = KeyParts {
        site,
        scheme: b"http",
        authority: b"a.example",
        path: b"/",
        query: None,
        method: "GET",
        extra: &[],
    };
    let mut key = Vec::new();
    caching::key::write_key(&parts, &KeyRules::default(), &mut key);
    key
}

#[test]
fn a_response_is_looked_at_once_after_a_purge_that_does_not_take_it() {
    let (invalidations, key) = (Invalidations::new(Purgers::This), key_of_site(b"s"));
    let [own, other] = [&["x"], &["y"]].map(|tags| invalidations.asked(&named(&[]), &named(tags)));
    let of_other_site = invalidations.asked(&named(&[]), &named(&["x"]));
    assert!(invalidations.is_checked(&other), "nothing was purged yet");
    let number = purge(&invalidations, PurgeMode::Hard, tag("x"));
    assert!(!invalidations.is_checked(&own) && !invalidations.is_checked(&other));
    assert_eq!(invalidations.judge(&key, &own), Verdict::Removed(number));
    assert_eq!(invalidations.judge(&key, &other), Verdict::Current);
    assert_eq!(invalidations.judge(&key_of_site(b"t"), &of_other_site), Verdict::Current);
    assert!(invalidations.is_checked(&other) && !invalidations.is_checked(&own));
    let copy = other.clone();
    assert!(invalidations.is_checked(&copy) && invalidations.is_checked(&other), "a copy knows it");
    assert_eq!(invalidations.judge(&key, &own), Verdict::Removed(number), "for ever");
}

#[test]
fn the_hardest_of_several_counts() {
    let (invalidations, key) = (Invalidations::new(Purgers::This), key_of_site(b"s"));
    let response = invalidations.asked(&named(&["g"]), &named(&["x"]));
    let soft = purge(&invalidations, PurgeMode::Soft, tag("x"));
    assert_eq!(invalidations.judge(&key, &response), Verdict::Stale(soft));
    invalidations.invalidate(&named(&["g"]), &TARGET, None);
    assert_eq!(invalidations.judge(&key, &response), Verdict::Invalidated);
    let hard = purge(&invalidations, PurgeMode::Hard, PurgeTarget::Everything);
    purge(&invalidations, PurgeMode::Refresh, tag("x"));
    assert_eq!(invalidations.judge(&key, &response), Verdict::Removed(hard));
}

#[test]
fn purges_are_remembered_for_a_while() {
    let (invalidations, key) = (Invalidations::new(Purgers::This), key_of_site(b"s"));
    assert!(invalidations.last_purge_of(&key).is_none());
    let first = purge(&invalidations, PurgeMode::Hard, PurgeTarget::Everything);
    assert_eq!(invalidations.last_purge_of(&key).unwrap().number, first);
    for number in 0..300 {
        purge(&invalidations, PurgeMode::Hard, tag(&number.to_string()));
    }
    assert!(invalidations.purge_of(first).is_none());
    assert_eq!(invalidations.purge_of(first + 300).unwrap().record.what, tag("299"));
    assert!(invalidations.last_purge_of(&key).is_none(), "of tags nobody can tell by the key");
    let long = PurgeTarget::Url(format!("http://a/{}", "x".repeat(16_000)));
    for _ in 0..100 {
        purge(&invalidations, PurgeMode::Hard, long.clone());
    }
    assert!(invalidations.purge_of(first + 300).is_none(), "their texts have a limit too");
}

fn in_log(offset: u64) -> LogCursor {
    LogCursor { id: LogId([9; 16]), offset: LogOffset(offset) }
}

fn of_everything(id: u8) -> PurgeRecord {
    PurgeRecord { id: PurgeId([id; 16]), at_ms: 0, mode: PurgeMode::Hard, what: PurgeTarget::Everything }
}

fn shared() -> Invalidations {
    let invalidations = Invalidations::new(Purgers::Several);
    invalidations.log_begins(in_log(100));
    invalidations
}

#[test]
fn purges_of_others_take_what_was_asked_for_before() {
    let (invalidations, key) = (shared(), key_of_site(b"s"));
    let stored = |invalidations: &Invalidations| invalidations.asked(&named(&[]), &named(&[]));
    let before = stored(&invalidations);
    let url = PurgeRecord { what: PurgeTarget::Url("http://a/".to_owned()), ..of_everything(1) };
    assert!(invalidations.hear(url.clone(), &[&key_of_site(b"t")], LogOffset(110)).is_some());
    assert_eq!(invalidations.judge(&key, &before), Verdict::Current, "that was another key");
    let kept = invalidations.hear(url, &[&key], LogOffset(120)).unwrap();
    assert_eq!(invalidations.judge(&key, &before), Verdict::Removed(kept.number));
    assert_eq!(invalidations.judge(&key, &stored(&invalidations)), Verdict::Current);
    // Responses from the tier are judged by the log position at which they were requested.
    let loaded = |offset| head(None, invalidations.stamp_at(in_log(offset)).unwrap());
    assert_eq!(invalidations.judge(&key, &loaded(119)), Verdict::Removed(kept.number));
    assert_eq!(invalidations.judge(&key, &loaded(120)), Verdict::Current);
    assert_eq!(invalidations.log_read(), Some(in_log(120)));
}

#[test]
fn a_purge_of_this_instance_counts_once() {
    let (invalidations, key) = (shared(), key_of_site(b"s"));
    let before = invalidations.asked(&named(&[]), &named(&[]));
    invalidations.purge(of_everything(1), &[]);
    let after = invalidations.asked(&named(&[]), &named(&[]));
    assert!(invalidations.hear(of_everything(1), &[], LogOffset(110)).is_none());
    assert!(matches!(invalidations.judge(&key, &before), Verdict::Removed(_)));
    assert_eq!(invalidations.judge(&key, &after), Verdict::Current);
    // In the log, the other instance's purge is after the request and before this instance's purge. Both purges remove the response.
    invalidations.purge(of_everything(2), &[]);
    invalidations.hear(of_everything(3), &[], LogOffset(120)).unwrap();
    assert!(invalidations.hear(of_everything(2), &[], LogOffset(130)).is_none());
    let stamp = invalidations.stamp_at(in_log(129)).unwrap();
    assert!(matches!(invalidations.judge(&key, &head(None, stamp)), Verdict::Removed(_)));
}

#[test]
fn what_was_asked_for_in_another_log_is_unknown() {
    let invalidations = shared();
    let own = invalidations.place_of(invalidations.stamp());
    assert_eq!(invalidations.stamp_at(own), Some(invalidations.stamp()));
    assert_eq!(invalidations.shared_place(own), in_log(100));
    let other = LogCursor { id: LogId([8; 16]), offset: LogOffset(100) };
    assert_eq!([other, in_log(99)].map(|place| invalidations.stamp_at(place)), [None, None]);
    let before = invalidations.asked(&named(&[]), &named(&[]));
    invalidations.log_was_lost(other);
    assert!(matches!(invalidations.judge(KEY, &before), Verdict::Stale(_)), "nobody knows what was purged");
    assert_eq!(invalidations.stamp_at(in_log(100)), None);
    assert_eq!(
        invalidations.judge(KEY, &head(None, invalidations.stamp_at(other).unwrap())),
        Verdict::Current
    );
}

/// A reload may have removed the site of a URL, or changed the part of a query that belongs to its key.
#[test]
fn a_url_that_may_have_moved_is_purged_in_all_sites_and_with_any_query() {
    let key = |site: &str, path: &str, query: Option<&'static str>| {
        let parts = KeyParts {
            site: site.as_bytes(),
            scheme: b"http",
            authority: b"a.example",
            path: path.as_bytes(),
            query: query.map(str::as_bytes),
            method: "GET",
            extra: &[],
        };
        CacheKey::new(&parts, &KeyRules::default())
    };
    let stored =
        [key("a", "/x", Some("q")), key("a", "/x", None), key("b", "/x", Some("q")), key("a", "/y", None)];
    for (moves, purged, expected) in [
        (0, &stored[0], [true, false, false, false]),
        (1, &stored[0], [true, true, true, false]),
        (0, &key("", "/x", None), [true, true, true, false]),
    ] {
        let invalidations = Invalidations::new(Purgers::Several);
        let heads = stored.each_ref().map(|_| head(None, invalidations.stamp()));
        (0..moves).for_each(|_| invalidations.urls_move());
        let what = PurgeTarget::Url("http://a.example/x?q".into());
        let record = PurgeRecord { id: PurgeId([1; 16]), at_ms: 0, mode: PurgeMode::Hard, what };
        let kept = invalidations.purge(record, &[purged.as_bytes()]);
        let takes = |key: &CacheKey| kept.reach.takes(key.as_bytes(), Some(&[]));
        assert_eq!(stored.each_ref().map(takes), expected);
        for ((key, head), expected) in stored.iter().zip(&heads).zip(expected) {
            let is_removed = matches!(invalidations.judge(key.as_bytes(), head), Verdict::Removed(_));
            assert_eq!(is_removed, expected, "{key:?}");
        }
    }
}
