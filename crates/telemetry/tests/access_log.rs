//! Lines of the access log: valid for every input, without secrets, counted if dropped, and complete after
//! rotation and shutdown.

use std::fs;
use std::path::Path;
use std::thread;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;
use telemetry::{
    AccessFormat, AccessLog, AccessLogError, AccessLogOptions, AccessRecord, AccessTarget, CacheResult,
    Metric, Number, Redaction, Reopened, Telemetry,
};

fn options(path: &Path, format: AccessFormat) -> AccessLogOptions {
    AccessLogOptions {
        target: AccessTarget::File(path.to_owned()),
        format,
        queue_lines_max: 10_000,
        redaction: Redaction::default(),
        workers: 2,
    }
}

fn record<'a>(target: &'a [u8], user_agent: &'a [u8]) -> AccessRecord<'a> {
    AccessRecord {
        unix_ms: 951_782_400_123,
        client: Some("192.0.2.7".parse().expect("an address")),
        method: b"GET",
        target,
        host: Some(b"shop.example"),
        protocol: "HTTP/1.1",
        status: 200,
        body_bytes: 14,
        duration_ns: 1_234_567,
        site: Some("shop"),
        server: None,
        cache: CacheResult::Hit,
        cache_status: Some(b"larder; hit; ttl=30"),
        referer: Some(b"http://shop.example/?password=p&page=2"),
        user_agent: Some(user_agent),
        tls_version: None,
        sni: None,
        trace: None,
    }
}

/// Returns the content of a log with these records, after the log was closed.
fn logged(format: AccessFormat, records: &[AccessRecord<'_>]) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("access.log");
    let log = AccessLog::open(options(&path, format)).expect("opens");
    let recorder = log.worker(0);
    records.iter().for_each(|record| recorder.record(record));
    drop(log);
    fs::read(path).expect("readable")
}

fn logged_json(record: &AccessRecord<'_>) -> Value {
    let line = logged(AccessFormat::Json, &[*record]);
    assert_eq!(line.iter().filter(|b| **b == b'\n').count(), 1);
    serde_json::from_slice(&line).expect("one JSON object")
}

#[test]
fn a_json_line_has_every_field() {
    let value = logged_json(&record(b"/a?b=c", b"curl/8"));
    let want = serde_json::json!({
        "timestamp": "2000-02-29T00:00:00.123Z", "client": "192.0.2.7", "method": "GET", "target": "/a?b=c",
        "host": "shop.example", "protocol": "HTTP/1.1", "status": 200, "body_bytes": 14,
        "duration_seconds": 0.001234, "site": "shop", "cache": "hit", "cache_status": "larder; hit; ttl=30",
        "referer": "http://shop.example/?password=REDACTED&page=2", "user_agent": "curl/8",
    });
    assert_eq!(value, want);
}

#[test]
fn a_combined_line_is_escaped_as_nginx_does() {
    let line = logged(AccessFormat::Combined, &[record(b"/a\"b\\c\x01\xff?key=k", b"x\ny")]);
    let want = "192.0.2.7 - - [29/Feb/2000:00:00:00 +0000] \"GET /a\\x22b\\x5Cc\\x01\\xFF?key=REDACTED HTTP/1.1\" \
                200 14 \"http://shop.example/?password=REDACTED&page=2\" \"x\\x0Ay\"\n";
    assert_eq!(String::from_utf8(line).expect("ASCII"), want);
}

#[test]
fn absent_fields_are_dashes_or_left_out() {
    let bare = AccessRecord { client: None, referer: None, user_agent: None, ..record(b"*", b"") };
    let line = String::from_utf8(logged(AccessFormat::Combined, &[bare])).expect("ASCII");
    assert!(line.starts_with("unix: - - [") && line.ends_with(" \"-\" \"-\"\n"), "{line}");
    assert!(logged_json(&bare).get("referer").is_none());
}

#[test]
fn secrets_in_targets_are_redacted() {
    let cases = [
        ("/?token=s3cret", "/?token=REDACTED"),
        ("/?a=1&Token=s3cret&b=2", "/?a=1&Token=REDACTED&b=2"),
        ("/?%74oken=s3cret", "/?%74oken=REDACTED"),
        ("/?a;key=s3cret;b", "/?a;key=REDACTED;b"),
        ("/?password=s3cret=s3cret#x", "/?password=REDACTED#x"),
        ("/?tokens=1&tok%en=2&%=3&%7=4", "/?tokens=1&tok%en=2&%=3&%7=4"),
        ("/?token", "/?token"),
        ("/token=path", "/token=path"),
        ("http://user:s3cret@h/?a=b@c", "http://REDACTED@h/?a=b@c"),
        ("http://h/@x", "http://h/@x"),
        ("//user:s3cret@h/", "//REDACTED@h/"),
        ("/?u=http://a@b", "/?u=http://a@b"),
    ];
    for (target, want) in cases {
        assert_eq!(logged_json(&record(target.as_bytes(), b""))["target"], want, "{target}");
    }
}

#[test]
fn secrets_in_user_agents_are_redacted() {
    let cases = [
        ("Mozilla/5.0 (X11; rv:1) a@b", "Mozilla/5.0 (X11; rv:1) a@b"),
        ("Bot/1 (+http://h/about; bot@h)", "Bot/1 (+http://h/about; bot@h)"),
        (
            "Bot/1 (+https://u:s3cret@h/?token=s3cret) http://v:s3cret@i",
            "Bot/1 (+https://REDACTED@h/?token=REDACTED) http://REDACTED@i",
        ),
    ];
    for (agent, want) in cases {
        let record = AccessRecord { user_agent: Some(agent.as_bytes()), ..record(b"/", b"") };
        assert_eq!(logged_json(&record)["user_agent"], want, "{agent}");
    }
}

#[test]
fn one_line_is_bounded() {
    let long = vec![0xff_u8; 1 << 20];
    let line = logged(AccessFormat::Json, &[record(&long, &long)]);
    assert!(line.len() < 64 * 1024, "{}", line.len());
}

#[test]
fn a_full_queue_drops_and_counts() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("access.log");
    let small = AccessLogOptions { queue_lines_max: 4, ..options(&path, AccessFormat::Json) };
    let log = AccessLog::open(small).expect("opens");
    let telemetry = Telemetry::new(1);
    log.report_to(&telemetry);
    let recorder = log.worker(1);
    (0..1_000).for_each(|_| recorder.record(&record(b"/", b"")));
    let dropped = log.dropped_lines();
    assert!(dropped > 0);
    assert_eq!(telemetry.sample().value(Metric::AccessLogDroppedTotal, &[]), Some(Number::Whole(dropped)));
    drop(log);
    let written = fs::read_to_string(path).expect("readable").lines().count() as u64;
    assert_eq!(written + dropped, 1_000);
}

#[test]
fn a_target_that_fails_counts_its_lines() {
    let full = Path::new("/dev/full");
    if !full.exists() {
        return;
    }
    let log = AccessLog::open(options(full, AccessFormat::Json)).expect("opens");
    log.worker(0).record(&record(b"/", b""));
    log.flush().expect("the target takes them");
    assert_eq!(log.dropped_lines(), 1);
}

#[test]
fn reopen_goes_on_in_a_new_file_without_loss() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, rotated) = (folder.path().join("access.log"), folder.path().join("access.log.1"));
    let log = AccessLog::open(options(&path, AccessFormat::Json)).expect("opens");
    log.worker(0).record(&record(b"/before", b""));
    log.flush().expect("the target takes them");
    fs::rename(&path, &rotated).expect("renames");
    log.reopen().expect("reopens");
    log.worker(1).record(&record(b"/after", b""));
    log.flush().expect("the target takes them");
    let (old, new) = (fs::read_to_string(rotated).expect("old"), fs::read_to_string(&path).expect("new"));
    assert!(old.contains("/before") && !old.contains("/after"), "{old}");
    assert!(new.contains("/after") && !new.contains("/before"), "{new}");
    fs::remove_file(&path).expect("removes");
    fs::create_dir(&path).expect("a folder in the way");
    assert!(matches!(log.reopen(), Err(AccessLogError::FileNotOpened { .. })));
}

#[test]
fn a_file_that_cannot_be_opened_is_a_clear_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("absent/access.log");
    let error = AccessLog::open(options(&path, AccessFormat::Json)).expect_err("no such folder");
    let text = error.to_string();
    assert!(text.contains("absent/access.log") && text.contains("No such file"), "{text}");
}

#[test]
fn lines_of_all_workers_arrive_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("access.log");
    let log = AccessLog::open(options(&path, AccessFormat::Json)).expect("opens");
    thread::scope(|scope| {
        for worker in 0..4 {
            let recorder = log.worker(worker);
            scope.spawn(move || (0..500).for_each(|_| recorder.record(&record(b"/", b"agent"))));
        }
    });
    log.flush().expect("the target takes them");
    let text = fs::read_to_string(path).expect("readable");
    assert_eq!(text.lines().count() as u64 + log.dropped_lines(), 2_000);
    assert!(text.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
}

#[test]
fn off_records_nothing() {
    let off =
        AccessLogOptions { target: AccessTarget::Off, ..options(Path::new("unused"), AccessFormat::Json) };
    let log = AccessLog::open(off).expect("opens");
    let recorder = log.worker(0);
    assert!(!recorder.is_on());
    recorder.record(&record(b"/", b""));
    log.flush().expect("the target takes them");
    assert_eq!(log.reopen().expect("nothing to open"), Reopened::NoFile);
    assert_eq!(log.dropped_lines(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn json_lines_are_valid_for_any_bytes(target in vec(any::<u8>(), 0..200), agent in vec(any::<u8>(), 0..200)) {
        let value = logged_json(&record(&target, &agent));
        if let Ok(agent) = std::str::from_utf8(&agent) {
            prop_assert_eq!(value["user_agent"].as_str(), Some(agent));
        }
    }

    #[test]
    fn no_secret_survives(prefix in "[a-z=&;%#?]{0,12}", suffix in "[a-z=&;%#?]{0,12}") {
        let target = format!("/{prefix}?token=S3CRET&{suffix}");
        let value = logged_json(&record(target.as_bytes(), b""));
        let target = value["target"].as_str().expect("a target");
        prop_assert!(!target.contains("S3CRET"), "{}", target);
    }

    #[test]
    fn combined_lines_are_printable_for_any_bytes(target in vec(any::<u8>(), 0..200)) {
        let line = logged(AccessFormat::Combined, &[record(&target, &target)]);
        prop_assert!(line.iter().all(|b| (0x20..0x7f).contains(b) || *b == b'\n'));
        prop_assert_eq!(line.iter().filter(|b| **b == b'"').count(), 6);
    }
}
