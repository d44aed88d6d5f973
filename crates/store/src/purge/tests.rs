//! A purged response is never treated as current, and encoded purges can be decoded.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;

/// A randomly generated purge. The value ranges are small, so that purges often match responses.
#[derive(Debug, Clone)]
struct Purge {
    tags: Vec<u8>,
    site: Option<u8>,
    host: Option<(u8, bool)>,
    scheme: Option<bool>,
    prefix: Option<String>,
    key: Option<u8>,
    force: PurgeEffect,
}

#[derive(Debug, Clone)]
struct Response {
    tags: Option<Vec<u8>>,
    site: u8,
    host: (u8, bool),
    is_https: bool,
    path: String,
    key: Option<u8>,
}

fn host_text((host, has_port): (u8, bool)) -> String {
    if has_port { format!("h{host}:8080") } else { format!("h{host}") }
}

fn scheme(is_https: bool) -> UrlScheme {
    if is_https { UrlScheme::Https } else { UrlScheme::Http }
}

fn path() -> impl Strategy<Value = String> {
    "/[ab]{0,3}".prop_map(|path| path.replace('b', "\u{fc}"))
}

fn purge() -> impl Strategy<Value = Purge> {
    let force = any::<bool>().prop_map(|is_hard| if is_hard { PurgeEffect::Hard } else { PurgeEffect::Soft });
    let parts = (vec(0..4_u8, 0..3), option::of(0..3_u8), option::of((0..3_u8, any::<bool>())));
    let more = (option::of(any::<bool>()), option::of(path()), option::weighted(0.1, 0..9_u8), force);
    (parts, more).prop_map(|((tags, site, host), (scheme, prefix, key, force))| Purge {
        tags,
        site,
        host,
        scheme,
        prefix,
        key,
        force,
    })
}

fn response() -> impl Strategy<Value = Response> {
    let parts = (option::weighted(0.9, vec(0..4_u8, 0..3)), 0..3_u8, (0..3_u8, any::<bool>()));
    (parts, any::<bool>(), path(), option::of(0..9_u8)).prop_map(
        |((tags, site, host), is_https, path, key)| Response { tags, site, host, is_https, path, key },
    )
}

fn of_key(key: &[u8]) -> ResponseUrl<'_> {
    ResponseUrl { rest: key, ..ResponseUrl::default() }
}

impl Purge {
    /// Returns whether the purge matches a response. Uses none of the code under test.
    fn takes(&self, response: &Response) -> bool {
        if let Some(key) = self.key {
            return response.key == Some(key);
        }
        let has_tags =
            response.tags.as_ref().is_none_or(|tags| self.tags.iter().all(|tag| tags.contains(tag)));
        has_tags
            && self.site.is_none_or(|site| site == response.site)
            && self.scheme.is_none_or(|is_https| is_https == response.is_https)
            && self.host.is_none_or(|(host, has_port)| {
                let is_any_port = self.scheme.is_none() && !has_port;
                host == response.host.0 && (is_any_port || has_port == response.host.1)
            })
            && self.prefix.as_ref().is_none_or(|prefix| response.path.starts_with(prefix))
    }

    fn note(&self, index: &PurgeIndex, number: u64) {
        if let Some(key) = self.key {
            return index.mark_key(index.key(&of_key(&[key])), self.force, number);
        }
        let limits = UrlConditions {
            site: self.site.map(|site| format!("s{site}").into()),
            scheme: self.scheme.map(scheme),
            host: self.host.map(|host| host_text(host).into()),
            prefix: self.prefix.as_deref().map(Into::into),
        };
        let tags = self.tags.iter().map(|tag| index.tag(&tag.to_string())).collect();
        index.add(Clause { tags, limits }, self.force, number);
    }
}

impl Response {
    fn judge(&self, index: &PurgeIndex, since: u64) -> LastPurges {
        let (site, authority) = (format!("s{}", self.site), host_text(self.host));
        let place = ResponseUrl {
            site: site.as_bytes(),
            scheme: scheme(self.is_https).as_str().as_bytes(),
            authority: authority.as_bytes(),
            path: self.path.as_bytes(),
            rest: b"",
        };
        let tags: Option<Vec<Name>> =
            self.tags.as_ref().map(|tags| tags.iter().map(|tag| index.tag(&tag.to_string())).collect());
        let key = self.key.map(|key| index.key(&of_key(&[key])));
        index.judge(&PurgeSubject { place, tags: tags.as_deref(), key }, since)
    }
}

/// Returns the numbers of the last purge and of the last hard purge that match a response, from an exact list.
fn exactly(purges: &[Purge], response: &Response, since: u64) -> LastPurges {
    let taking = || (1_u64..).zip(purges).filter(|(number, purge)| *number > since && purge.takes(response));
    let last = taking().last().map_or(0, |(number, _)| number);
    let hard = taking().filter(|(_, purge)| purge.force == PurgeEffect::Hard).last();
    LastPurges { last, hard: hard.map_or(0, |(number, _)| number) }
}

proptest! {
    #[test]
    fn an_index_with_room_is_exact(purges in vec(purge(), 0..100), responses in vec(response(), 1..20)) {
        let index = PurgeIndex::default();
        (1..).zip(&purges).for_each(|(number, purge)| purge.note(&index, number));
        for (since, response) in (0..).step_by(5).zip(&responses) {
            prop_assert_eq!(response.judge(&index, since), exactly(&purges, response, since), "{:?}", response);
        }
    }

    /// Compares an index that gets more names and clauses than it can hold with an exact list.
    #[test]
    fn a_full_index_takes_too_much_and_never_too_little(
        purges in vec(purge(), 0..100),
        responses in vec(response(), 1..20),
        clauses_max in 1..5_usize,
    ) {
        let index = PurgeIndex::with_limits(1, clauses_max);
        (1..).zip(&purges).for_each(|(number, purge)| purge.note(&index, number));
        for (since, response) in (0..).step_by(5).zip(&responses) {
            let (judged, exact) = (response.judge(&index, since), exactly(&purges, response, since));
            prop_assert!(judged.last >= exact.last && judged.hard >= exact.hard, "{:?} {:?}", response, exact);
            prop_assert!(judged.last <= purges.len() as u64 && judged.hard <= judged.last);
        }
        let newest = purges.len() as u64;
        prop_assert!(responses.iter().all(|response| response.judge(&index, newest) == LastPurges::default()));
    }

    #[test]
    fn what_was_written_is_read(record in record(), cut in any::<prop::sample::Index>()) {
        let bytes = record.encode().unwrap();
        prop_assert!(bytes.len() <= PURGE_RECORD_BYTES_MAX);
        prop_assert_eq!(PurgeRecord::decode(&bytes), Ok(record));
        prop_assert!(PurgeRecord::decode(&bytes[..cut.index(bytes.len())]).is_err());
        prop_assert!(PurgeRecord::decode(&[&bytes[..], b"x"].concat()).is_err());
    }
}

fn record() -> impl Strategy<Value = PurgeRecord> {
    let mode = (0..3_usize).prop_map(|index| PurgeMode::ALL[index]);
    (any::<[u8; 16]>(), any::<u64>(), mode, what()).prop_map(|(id, at_ms, mode, what)| PurgeRecord {
        id: PurgeId(id),
        at_ms,
        mode,
        what,
    })
}

fn what() -> impl Strategy<Value = PurgeTarget> {
    let host = option::of("[a-z.]{1,20}(:[0-9]{1,5})?");
    let parts = (vec("[ -~\u{e4}]{1,30}", 0..5), any::<bool>(), option::of("[a-z]{1,9}"), host);
    let selected = (parts, option::of(any::<bool>()), option::of(path())).prop_filter_map(
        "something is selected",
        |((tags, is_all, site, host), is_https, prefix)| {
            let tags_match = if is_all && tags.len() > 1 { TagsMatch::All } else { TagsMatch::Any };
            let scheme = is_https.filter(|_| host.is_some()).map(scheme);
            let selection = Selection { tags, tags_match, site, host, scheme, prefix };
            (selection != Selection::default()).then_some(PurgeTarget::Selected(selection))
        },
    );
    prop_oneof![
        "https?://[a-z]{1,9}/[!-\"$-~]{0,20}".prop_map(PurgeTarget::Url),
        selected,
        Just(PurgeTarget::Everything)
    ]
}

/// Returns the longest valid record.
fn longest() -> PurgeRecord {
    let long = |bytes: usize| "x".repeat(bytes);
    let selection = Selection {
        tags: vec![long(TAG_BYTES_MAX); TAGS_MAX],
        tags_match: TagsMatch::All,
        site: Some(long(SITE_BYTES_MAX)),
        host: Some(long(HOST_BYTES_MAX)),
        scheme: Some(UrlScheme::Https),
        prefix: Some(format!("/{}", long(PREFIX_BYTES_MAX - 1))),
    };
    PurgeRecord {
        id: PurgeId([7; 16]),
        at_ms: 8,
        mode: PurgeMode::Refresh,
        what: PurgeTarget::Selected(selection),
    }
}

#[test]
fn the_longest_record_goes_into_a_log() {
    let bytes = longest().encode().unwrap();
    assert!(bytes.len() <= PURGE_RECORD_BYTES_MAX, "{}", bytes.len());
    const { assert!(PURGE_RECORD_BYTES_MAX <= crate::backing::LOG_APPEND_BYTES_MAX) };
    let url = PurgeTarget::Url(format!("http://{}", "x".repeat(URL_BYTES_MAX - 7)));
    assert!(PurgeRecord { what: url, ..longest() }.encode().unwrap().len() <= PURGE_RECORD_BYTES_MAX);
}

/// The example in the documentation of the format.
#[test]
fn the_example_of_the_page_is_read() {
    let selection =
        Selection { tags: vec!["news".to_owned()], site: Some("shop".to_owned()), ..Selection::default() };
    let record = PurgeRecord {
        id: PurgeId(std::array::from_fn(|index| index as u8)),
        at_ms: 1_800_000_000_000,
        mode: PurgeMode::Soft,
        what: PurgeTarget::Selected(selection),
    };
    let bytes = record.encode().unwrap();
    let shown: String = bytes.iter().map(|byte| format!("{byte:02x} ")).collect();
    let page = include_str!("../../../../docs/internals/purge-log.md");
    let example: String = page
        .lines()
        .skip_while(|line| !line.starts_with("```hex"))
        .skip(1)
        .take_while(|line| *line != "```")
        .flat_map(|line| [line, " "])
        .collect();
    assert_eq!(example, shown);
    assert_eq!(PurgeRecord::decode(&bytes), Ok(record));
}

fn refused(bytes: &[u8], part: &str) {
    let error = PurgeRecord::decode(bytes).unwrap_err().to_string();
    assert!(error.contains(part), "{error} lacks {part}");
}

#[test]
fn bytes_that_are_no_purge_are_refused_with_a_reason() {
    let head =
        |form: u8, mode: u8, flags: u8, rest: &[u8]| [&[1, form, mode, flags][..], &[0; 24], rest].concat();
    refused(b"", "length");
    refused(&[9], "version 9");
    refused(&head(9, 1, 0, b""), "form 9");
    refused(&head(3, 9, 0, b""), "mode 9");
    refused(&head(3, 0, 0, b""), "mode 0");
    refused(&head(3, 1, 2, b""), "flag 2");
    refused(&head(2, 1, 64, b"\0"), "flag 64");
    refused(&head(2, 1, 24, b"\0"), "flag 24");
    refused(&head(2, 1, 0, b"\0"), "nothing selected");
    refused(&head(2, 1, 1, b"\x01\x01\0x"), "two tags");
    refused(&head(2, 1, 8, b"\x01\x01\0x"), "a scheme needs a host");
    refused(&head(2, 1, 0, b"\x01\x01\0\xff"), "not text");
    refused(&head(2, 1, 0, b"\x01\0\0"), "a tag has 0 bytes");
    refused(&head(2, 1, 0, b"\x01\x01\0\n"), "control");
    refused(&head(2, 1, 4, b"\0\x01\0X"), "lower-case");
    refused(&head(2, 1, 32, b"\0\x01\0x"), "must begin with /");
    refused(&head(2, 1, 0, &[&[31][..], &b"\x01\0x".repeat(31)].concat()), "31 tags");
    refused(&head(1, 1, 0, b"\x01\0x"), "the URL is invalid");
    refused(&head(3, 1, 0, b"\0"), "length");
}

#[test]
fn a_record_says_what_it_takes() {
    let check = |what: PurgeTarget, form: &str, says: &str| {
        assert_eq!((what.form(), &*what.to_string()), (form, says))
    };
    let selected = |selection: Selection| PurgeTarget::Selected(selection);
    let tags = vec!["a".to_owned(), "b".to_owned()];
    let none = Selection::default;
    check(PurgeTarget::Url("http://a/".to_owned()), "url", "http://a/");
    check(PurgeTarget::Everything, "everything", "everything");
    check(
        selected(Selection { tags: tags.clone(), site: Some("s".to_owned()), ..none() }),
        "tag",
        "any of the tags a, b, site s",
    );
    check(selected(Selection { tags, tags_match: TagsMatch::All, ..none() }), "tag", "all of the tags a, b");
    check(selected(Selection { site: Some("s".to_owned()), ..none() }), "site", "site s");
    let host = Some("h".to_owned());
    check(
        selected(Selection { host: host.clone(), scheme: Some(UrlScheme::Https), ..none() }),
        "host",
        "host https://h",
    );
    check(
        selected(Selection { host, prefix: Some("/a".to_owned()), ..none() }),
        "prefix",
        "host h, paths that begin with /a",
    );
}

/// Compares a table that gets more names than it can hold with an exact list.
#[test]
fn no_name_is_taken_for_older_than_it_is() {
    let table = NameTable::with_sets(2);
    let mut last = [0_u64; 40];
    let mut random = 1_u64;
    for number in 1..5000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let name = (random >> 33) as usize % last.len();
        table.mark(Name((name as u64) << 32 | 1), number);
        last[name] = number;
        for (name, last) in last.iter().enumerate() {
            let told = table.last(Name((name as u64) << 32 | 1));
            assert!((*last..=number).contains(&told), "name {name}: {told}");
        }
    }
}
