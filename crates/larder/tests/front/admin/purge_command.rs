//! `larder purge`: URLs, lists of URLs, hosts, prefixes and tags; counts, warnings and exit statuses.

use testkit::{Larder, Output, ScriptedOrigin, Setup};

use crate::LARDER;
use crate::admin::operator::{check, lasting, operate, printed, shell, site, start};

#[track_caller]
fn purge(larder: &Larder, words: &str) -> Output {
    operate(larder, &format!("purge {words}").split(' ').collect::<Vec<_>>())
}

/// The URL has the host that clients request, not the address to which they connect.
#[test]
fn a_purge_of_a_url_says_how_much_it_took() {
    let origin = ScriptedOrigin::fixed("Cache-Control: max-age=60\r\nETag: \"1\"\r\nVary: A\r\n", "body");
    let larder = Setup::origin(LARDER, &origin.url()).start();
    let url = "http://test.example/x";
    let ask = |variant: &str| larder.ask("GET", "/x", &format!("A: {variant}\r\n")).cache_status();
    ["1", "2"].iter().for_each(|variant| assert!(ask(variant).contains("stored")));
    let told = "(hard): stored responses 2 (all variants of 1 cache key), responses still arriving 0";
    check(&purge(&larder, url), 0, told);
    assert!(ask("1").contains("fwd=uri-miss"));
    check(&purge(&larder, &format!("--soft {url}")), 0, "(soft): stored responses 1");
    assert!(ask("1").contains("fwd=stale"));
    let nothing = purge(&larder, "http://test.example/never-asked");
    check(&nothing, 3, "no stored response for http://test.example/never-asked");
    check(&nothing, 3, "site default: any other host, paths below /");
    check(&purge(&larder, "nonsense"), 1, "refused (400 Bad Request)");
    // A site for all hosts also serves a host `assets`, but the operator hardly means that.
    check(&purge(&larder, "--prefix assets"), 0, "write `/assets` for a path");
}

/// A list of URLs has one result and one exit status. An invalid URL doesn't prevent the purge of the others.
#[test]
fn a_purge_of_many_urls_counts_them() {
    let origin = lasting();
    let larder = Setup::origin(LARDER, &origin.url()).start();
    let store = || ["/a", "/b", "/c"].iter().for_each(|path| drop(larder.get(path)));
    let [a, b, c] = ["a", "b", "c"].map(|name| format!("http://test.example/{name}"));
    let counts =
        |purged, nothing| format!("URLs: {purged} purged, {nothing} without a stored response, 0 refused\n");
    store();
    check(&purge(&larder, &format!("{a} {b} {c}")), 0, &counts(3, 0));
    check(&purge(&larder, &format!("{a} {b}")), 3, &counts(0, 2));
    store();
    let piped = |input: &str, words: &str| {
        shell(&format!("printf '{input}' | larder purge {words} --admin {}", larder.admin()))
    };
    let purged = piped(&format!("{a}\\n\\nnonsense\\n  {b}\\r\\n"), "-");
    check(&purged, 1, "URLs: 2 purged, 0 without a stored response, 1 refused\n");
    check(&purged, 1, "larder: nonsense: refused (400 Bad Request)");
    check(&piped(&a, &format!("{c} - --soft")), 0, "URLs: 1 purged, 1 without");
    check(&piped("", "-"), 3, "URLs: 0 purged");
    store();
    let purged = piped(&format!("\\377\\n{a}\\n"), "-");
    check(&purged, 1, "line 1");
    check(&purged, 1, "URLs: 1 purged, 0 without a stored response, 1 refused");
}

/// Responses whose keys have more than the URL can't be counted, but they are purged too.
#[test]
fn a_purge_says_what_it_does_not_count() {
    let origin = lasting();
    let larder = Setup::origin(LARDER, &origin.url()).start();
    let query = || larder.ask("QUERY", "/x", "Content-Type: a/b\r\nContent-Length: 0\r\n").cache_status();
    let purge = || purge(&larder, "http://test.example/x");
    let not_counted = "they are not counted";
    let before = purge();
    check(&before, 3, "no stored response for http://test.example/x");
    assert!(!before.stderr.contains(not_counted), "nothing has such a key");
    assert!(query().contains("stored") && query().contains("hit"));
    check(&purge(), 3, not_counted);
    assert!(query().contains("fwd="));
    larder.get("/x");
    check(&purge(), 0, "stored responses 1");
    check(&purge(), 3, not_counted);
}

/// Responses for a host without a site may remain from former sites; more often, the host is misspelt.
#[test]
fn a_purge_of_a_host_that_no_site_serves_says_so() {
    let origin = lasting();
    let more = "hosts = [\"www.example.org\"]\n".to_owned()
        + &site(&origin, "hosts = [\"z.example\"]\n").replace("\"a\"", "\"Z\"")
        + &site(&origin, "hosts = [\"*.b.example\"]\npath_prefix = \"/shop\"\n").replace("\"a\"", "\"B\"");
    let larder = start(&site(&origin, &more));
    let listed = "site B: *.b.example, paths below /shop\nsite Z: z.example, paths below /\nsite a: www";
    for (form, place, told) in [
        ("host", "www.exmaple.org", "no site serves the host www.exmaple.org\n"),
        ("prefix", "https://www.exmaple.org/a", "no site serves the host www.exmaple.org below /a\n"),
        ("prefix", "assets/", "`assets` is taken as a host; write `/assets/` for a path\n"),
        ("prefix", "x.b.example/img", "no site serves the host x.b.example below /img\n"),
        ("host", "WWW.example.org", ""),
        ("host", "x.b.example:8080", ""),
        ("prefix", "x.b.example/sh", ""),
        ("prefix", "x.b.example/shop/a", ""),
        ("prefix", "/assets", ""),
    ] {
        let purged = purge(&larder, &format!("--{form} {place}"));
        let status = if told.is_empty() { 0 } else { 3 };
        check(&purged, status, &format!("purged {form} {place} (hard)"));
        match told {
            "" => assert!(!purged.stderr.contains("warning"), "{purged:?}"),
            _ => [&format!("warning: {told}"), listed].iter().for_each(|part| check(&purged, status, part)),
        }
    }
    for (words, status, told) in [
        ("--site Z --host www.example.org", 3, "warning: site Z doesn't serve the host www.example.org\n"),
        ("--site B --prefix /img", 3, "warning: site B doesn't serve below /img\n"),
        ("--host *.b.example", 1, "isn't a host: write it as clients send it"),
        ("--host z.example:99999", 1, "isn't a host: write it as clients send it"),
        ("http://foreign.example/", 1, "no site serves this URL\nsite B: *.b.example, paths below /shop\n"),
        ("https://www.example.org:1/x", 3, "no stored response for https://www.example.org:1/x"),
    ] {
        check(&purge(&larder, words), status, told);
    }
}

/// An operator must notice if a tag can't match anything.
#[test]
fn a_purge_by_tag_says_that_it_found_nothing() {
    const WARNING: &str = "only `Cache-Groups` is read for tags: set `tags` in the site";
    let tagged = "Cache-Control: max-age=60\r\nCache-Tag: one\r\nCache-Tags: two\r\nSurrogate-Key: three\r\nxkey: four\r\n";
    let origin = ScriptedOrigin::fixed(tagged, "tagged");
    for (tags, is_warned) in [("tags = []\n", true), ("", false), ("tags = [\"cache-tags\"]\n", false)] {
        let gateway = start(&site(&origin, tags));
        let purged = purge(&gateway, "--tag news");
        check(&purged, 3, "no stored response for tag news");
        assert_eq!(printed(&purged).contains(WARNING), is_warned, "{}", printed(&purged));
        let answer = gateway.ask_admin("POST", "/purge", r#"{"tags":["news"],"dry_run":true}"#).text();
        assert_eq!(answer.contains(WARNING), is_warned, "{answer}");
        let by_host = gateway.ask_admin("POST", "/purge", r#"{"host":"a.example"}"#).text();
        assert!(!by_host.contains("warnings"), "{by_host}");
        for tag in ["one", "two", "three", "four"] {
            gateway.get("/");
            let is_read = !is_warned && (tags.is_empty() || tag == "two");
            assert!(gateway.get("/").is_hit(), "{tag}");
            let purged = purge(&gateway, &format!("--tag {tag}"));
            check(&purged, if is_read { 0 } else { 3 }, "");
            let is_told = printed(&purged).contains(&format!("no stored response for tag {tag}"));
            assert_eq!((is_told, gateway.get("/").is_hit()), (!is_read, !is_read), "{tag} {tags}");
        }
    }
}

#[test]
fn a_purge_by_tag_of_a_host_is_warned_of_its_own_sites() {
    let origin = lasting();
    let site = |name: &str, keys: &str| site(&origin, keys).replace("\"a\"", &format!("\"{name}\""));
    let config = [
        site("plain", "hosts = [\"plain.example\"]\ntags = []\n"),
        site("tagged", "hosts = [\"tagged.example\", \"mixed.example\"]\n"),
        site("mixed", "hosts = [\"mixed.example\"]\npath_prefix = \"/x\"\ntags = []\n"),
    ];
    let gateway = start(&config.concat());
    for (words, expected) in [
        ("--host plain.example", Some("plain")),
        ("--prefix https://PLAIN.example:8080/x", Some("plain")),
        ("--site mixed", Some("mixed")),
        ("--host tagged.example", None),
        ("--host mixed.example", None),
        ("--site tagged", None),
    ] {
        let told = printed(&purge(&gateway, &format!("--tag news {words}")));
        let site = told.split_once("set `tags` in the site ").and_then(|(_, site)| site.lines().next());
        assert_eq!((site, told.contains("Cache-Groups")), (expected, expected.is_some()), "{words}: {told}");
    }
}
