//! Merging with the tier's responses, and the placement of responses in records.

use std::collections::HashMap;

use caching::{NotStored, RefusalScope, Rules};
use message::reason::{Detail, Reason};
use store::FillId;
use store::format::{RecordKind, decode_record};

use crate::entry::stored::{CacheEntry, StoredHead, StoredResponse, Uncacheable};
use crate::portable::{Encoded, Merge, Writing, decode};
use crate::sample::{Asked, KEY, NOW, WRITING, World, at, encode_given, gathered, inline, written};

/// Returns a response to requests with this `X-Kind`.
fn of_kind(world: &World, kind: &str, filler_bytes: usize) -> StoredHead {
    let asked = Asked { method: "GET", lines: &[("X-Kind", kind.as_bytes())] };
    let filler = vec![b'x'; filler_bytes];
    let lines: &[_] = &[("cache-control", &b"max-age=60"[..]), ("vary", b"x-kind"), ("x-filler", &filler)];
    world.stored(asked, (200, lines), at(NOW)).unwrap()
}

/// Returns an entry with one response per letter. The case of a letter marks the instance, and has no other effect.
fn entry(world: &World, letters: &str, ids: &mut HashMap<FillId, char>) -> CacheEntry {
    let responses = letters.chars().map(|letter| {
        let head = of_kind(world, &letter.to_lowercase().to_string(), 0);
        ids.insert(head.inputs().unwrap().id, letter);
        inline(head, &[letter as u8])
    });
    world.entry(responses.collect())
}

/// Returns the responses that a primary record lists, with a `+` after the one inside it.
fn listed(primary: &[u8], ids: &HashMap<FillId, char>) -> String {
    let record = decode_record(primary, RecordKind::Primary, KEY, None).unwrap();
    let of_variant = |variant: &store::format::Variant<'_>| {
        let inside = variant.response.as_ref().map(|_| '+');
        std::iter::once(ids[&variant.id]).chain(inside).collect::<String>()
    };
    record.variants.iter().map(of_variant).collect()
}

#[track_caller]
fn check(ours: &str, theirs: &str, dropped: &str, expected: Option<&str>) {
    let (world, mut ids) = (World::new(Rules::default()), HashMap::new());
    let [ours, theirs] = [ours, theirs].map(|letters| entry(&world, letters, &mut ids));
    let theirs = encode_given(&WRITING, &theirs, Merge::default());
    let dropped: Vec<FillId> =
        ids.iter().filter(|(_, letter)| dropped.contains(**letter)).map(|(id, _)| *id).collect();
    let merge = Merge { theirs: theirs.as_ref().map(|theirs| &theirs.primary[..]), dropped: &dropped };
    let merged = encode_given(&WRITING, &ours, merge);
    assert_eq!(merged.as_ref().map(|merged| listed(&merged.primary, &ids)).as_deref(), expected);
    let Some(mut merged) = merged else { return };
    merged.apart.extend(theirs.into_iter().flat_map(|theirs| theirs.apart));
    let read = gathered_of(&merged, &ids);
    assert_eq!(
        Some(&*read),
        expected.map(|expected| expected.replace('+', "")).as_deref(),
        "nothing is lost"
    );
}

/// Returns the bodies of all readable responses, by letter.
fn gathered_of(encoded: &Encoded, ids: &HashMap<FillId, char>) -> String {
    let world = World::new(Rules::default());
    let mut decoded = decode(&encoded.primary, KEY).unwrap();
    for id in decoded.apart().collect::<Vec<_>>() {
        let (_, bytes) = encoded.apart.iter().find(|(apart, _)| *apart == id).expect("it is written");
        decoded.add_apart(id, bytes).unwrap();
    }
    let read = decoded.entry(&[], &world.reader()).unwrap();
    let letters = read.variants().iter().map(|variant| ids[&variant.head.inputs().unwrap().id]);
    letters.collect()
}

#[test]
fn theirs_stand_behind_ours() {
    check("a", "", "", Some("a+"));
    check("ab", "", "", Some("a+b"));
    check("a", "B", "", Some("a+B"));
    check("a", "BC", "", Some("a+BC"));
    check("a", "AB", "", Some("a+B"));
    check("ab", "BCA", "", Some("a+bC"));
    check("a", "BCD", "C", Some("a+BD"));
    check("a", "BCD", "B", Some("a+CD"));
    check("", "AB", "", Some("A+B"));
    check("", "AB", "A", Some("B"));
    check("", "AB", "AB", None);
    check("", "", "", None);
}

#[test]
fn what_was_written_is_not_listed_twice() {
    let (world, mut ids) = (World::new(Rules::default()), HashMap::new());
    let ours = entry(&world, "abc", &mut ids);
    let before = written(&ours);
    let again = encode_given(&WRITING, &ours, Merge { theirs: Some(&before.primary), dropped: &[] }).unwrap();
    assert_eq!((again.primary, again.apart), (before.primary, before.apart));
    for garbage in [&b""[..], b"LAR", &[0; 100]] {
        let merged = encode_given(&WRITING, &ours, Merge { theirs: Some(garbage), dropped: &[] }).unwrap();
        assert_eq!(listed(&merged.primary, &ids), "a+bc");
    }
    let elsewhere = Writing { key: b"another", ..WRITING };
    let theirs = encode_given(&elsewhere, &entry(&world, "D", &mut ids), Merge::default()).unwrap().primary;
    let merged = encode_given(&WRITING, &ours, Merge { theirs: Some(&theirs), dropped: &[] }).unwrap();
    assert_eq!(listed(&merged.primary, &ids), "a+bc", "what lies under another key is nothing");
}

#[test]
fn a_record_lists_32_at_most() {
    let world = World::new(Rules::default());
    let many = |count: usize, prefix: &str| {
        let heads = (0..count).map(|number| of_kind(&world, &format!("{prefix}{number}"), 0));
        world.entry(heads.map(|head| inline(head, b"")).collect())
    };
    let theirs = written(&many(32, "their"));
    let merged =
        encode_given(&WRITING, &many(3, "our"), Merge { theirs: Some(&theirs.primary), dropped: &[] })
            .unwrap();
    let record = decode_record(&merged.primary, RecordKind::Primary, KEY, None).unwrap();
    assert_eq!(record.variants.len(), 32);
    assert!(record.variants.iter().all(|variant| variant.nominated[0].1 != Some(b"their29")));
    assert_eq!(merged.apart.len(), 3, "two of ours, and theirs that was inside");
}

/// Checks which of the responses with these sizes the record lists.
#[track_caller]
fn check_sizes(sizes: &[(usize, usize)], expected: &str) {
    let world = World::new(Rules::default());
    let (mut ids, mut responses): (_, Vec<StoredResponse>) = (HashMap::new(), Vec::new());
    for (letter, (kind_bytes, filler_bytes)) in ('a'..).zip(sizes) {
        let head = of_kind(&world, &letter.to_string().repeat(*kind_bytes), *filler_bytes);
        ids.insert(head.inputs().unwrap().id, letter);
        responses.push(inline(head, b"body"));
    }
    let encoded = encode_given(&WRITING, &world.entry(responses), Merge::default());
    assert_eq!(encoded.as_ref().map_or(String::new(), |encoded| listed(&encoded.primary, &ids)), expected);
    let read = encoded.map_or(String::new(), |encoded| gathered_of(&encoded, &ids));
    assert_eq!(read, expected.replace('+', ""));
}

#[test]
fn the_newest_is_inside_where_it_fits() {
    check_sizes(&[(1, 0), (1, 0)], "a+b");
    check_sizes(&[(1, 40_000), (1, 40_000)], "a+b");
    check_sizes(&[(1, 70_000), (1, 0), (1, 0)], "bc");
    check_sizes(&[(1, 0), (1, 70_000), (1, 0)], "a+c");
    check_sizes(&[(1, 70_000)], "");
    let and_many = |newest| [vec![newest], vec![(3_000, 0); 6]].concat();
    check_sizes(&and_many((3_000, 40_000)), "a+bcdefg");
    check_sizes(&and_many((3_000, 50_000)), "abcdefg");
    check_sizes(&[(20_000, 0); 5], "abc");
}

#[test]
fn notes_go_with_what_is_stored() {
    let (world, mut ids) = (World::new(Rules::default()), HashMap::new());
    let until = NOW.plus_ms(60_000);
    let stored = NotStored::ALL.iter().map(|reason| Detail::from(*reason));
    let known: Vec<Detail> = stored.chain(Reason::ALL.iter().map(|reason| Detail::from(*reason))).collect();
    for because in known {
        for scope in [RefusalScope::Authorization, RefusalScope::Credentials, RefusalScope::All] {
            let note = Uncacheable { until, because, scope };
            let alone = CacheEntry::new(world.memory.budget(), Vec::new(), Some(note)).unwrap();
            let read = world.read(&written(&alone)).unwrap().uncacheable().unwrap();
            let code = read.because.as_str();
            assert_eq!((read.until, read.scope, code), (until, scope, because.as_str()));
        }
    }
    let over = Uncacheable { until: NOW, because: Reason::TooLarge.into(), scope: RefusalScope::All };
    let entry = entry(&world, "ab", &mut ids);
    let with_note = CacheEntry::new(world.memory.budget(), entry.variants().to_vec(), Some(over)).unwrap();
    let encoded = written(&with_note);
    assert!(
        gathered(&encoded).entry(&[], &world.reader()).unwrap().uncacheable().is_none(),
        "its time is over"
    );
    let alone = CacheEntry::new(world.memory.budget(), Vec::new(), Some(over)).unwrap();
    assert!(encode_given(&WRITING, &alone, Merge::default()).is_none());
}
