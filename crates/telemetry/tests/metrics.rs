//! Checks the exposition with a strict parser of the format, and counts against the recorded events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread;

use telemetry::{
    AdminRefusal, Buckets, BuildInfo, COMMAND_BOUNDS, CacheResult, ConnectionKind, FillState, METRICS,
    Method, Metric, MetricType, Number, OriginAnswer, PurgeAnswer, RequestOutcome, RuleId, SiteId, Telemetry,
    WorkerRecorder,
};

/// A series: its name with suffix, and its labels in order.
type Series = (String, Vec<(String, String)>);

/// Parses the text format strictly: HELP before TYPE before samples, families together, each series once,
/// declared labels only, buckets cumulative and complete.
fn read_strictly(text: &str) -> BTreeMap<Series, f64> {
    assert!(text.ends_with('\n'), "the last line has no end");
    let mut lines = text.lines().peekable();
    let (mut families, mut values) = (BTreeSet::new(), BTreeMap::new());
    while let Some(help) = lines.next() {
        let (name, text) = help.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')).expect(help);
        let row = METRICS.iter().find(|row| row.name == name).expect("declared");
        assert_eq!(text, row.help);
        assert_eq!(lines.next(), Some(&*format!("# TYPE {name} {}", row.metric_type.as_str())));
        assert!(families.insert(name.to_owned()), "{name} comes twice");
        let mut samples = 0;
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            let (series, value) = read_line(line);
            check_series(row, &series, value);
            assert!(values.insert(series, value).is_none(), "twice: {line}");
            samples += 1;
        }
        assert!(samples > 0, "{name} has no sample");
    }
    check_buckets(&values);
    values
}

fn check_series(row: &telemetry::Declaration, (name, labels): &Series, value: f64) {
    let suffix = name.strip_prefix(row.name).expect("samples stand below their family");
    let mut names: Vec<_> = labels.iter().map(|(label, _)| label.as_str()).collect();
    match (row.metric_type, suffix) {
        (MetricType::Histogram, "_bucket") => assert_eq!(names.pop(), Some("le")),
        (MetricType::Histogram, "_sum" | "_count") | (MetricType::Counter | MetricType::Gauge, "") => {}
        _ => panic!("{name} is no sample of {}", row.name),
    }
    // Only the label `store` may be absent.
    let declared = row.labels.iter().filter(|label| **label != "store" || names.contains(label));
    assert_eq!(names, declared.copied().collect::<Vec<_>>(), "{name}");
    assert!(value >= 0.0, "{name} is {value}");
}

fn read_line(line: &str) -> (Series, f64) {
    let name_end = line.find(['{', ' ']).expect(line);
    let (name, mut rest) = line.split_at(name_end);
    assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, tail) = rest.split_once("=\"").expect(line);
            let (value, tail) = read_label_value(tail);
            labels.push((label.to_owned(), value));
            match tail.split_at(1) {
                (",", tail) => rest = tail,
                ("}", tail) => break rest = tail,
                _ => panic!("{line}"),
            }
        }
    }
    let value = rest.strip_prefix(' ').expect(line);
    assert!(value.bytes().all(|b| b.is_ascii_digit() || b == b'.'), "{line}");
    ((name.to_owned(), labels), value.parse().expect(line))
}

/// Returns the value up to its closing quote, unescaped, and the rest.
fn read_label_value(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((index, c)) = chars.next() {
        match c {
            '"' => return (value, &text[index + 1..]),
            '\\' => value.push(match chars.next() {
                Some((_, 'n')) => '\n',
                Some((_, c @ ('\\' | '"'))) => c,
                other => panic!("escape {other:?}"),
            }),
            c => value.push(c),
        }
    }
    panic!("no closing quote in {text}")
}

fn check_buckets(values: &BTreeMap<Series, f64>) {
    let mut counts: BTreeMap<Series, Vec<(f64, f64)>> = BTreeMap::new();
    for ((name, labels), value) in values {
        if let (Some(base), [labels @ .., (_, le)]) = (name.strip_suffix("_bucket"), &labels[..]) {
            let bound = if le == "+Inf" { f64::INFINITY } else { le.parse().expect("a bound") };
            counts.entry((base.to_owned(), labels.to_vec())).or_default().push((bound, *value));
        }
    }
    for ((base, labels), mut buckets) in counts {
        buckets.sort_by(|left, right| left.0.total_cmp(&right.0));
        assert!(buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{base} is not cumulative");
        let (last_bound, last_count) = *buckets.last().expect("a bucket");
        assert_eq!(last_bound, f64::INFINITY);
        assert_eq!(values[&(format!("{base}_count"), labels.clone())], last_count);
        assert!(values.contains_key(&(format!("{base}_sum"), labels)));
    }
}

fn outcome(site: SiteId) -> RequestOutcome {
    RequestOutcome {
        site,
        rule: RuleId::NONE,
        method: Method::Get,
        status: 200,
        cache: CacheResult::Hit,
        duration_ns: 20_000,
        body_bytes_sent: 14,
        body_bytes_received: 3,
    }
}

fn value_of(values: &BTreeMap<Series, f64>, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let labels = labels.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect();
    values.get(&(name.to_owned(), labels)).copied()
}

fn add_of_servers(sample: &mut telemetry::Sample) {
    sample.add(Metric::LogDroppedTotal, &[], 1);
    sample.add(Metric::OriginBreaker, &["back", "open"], 1);
    sample.add(Metric::OriginBreakerOpenedTotal, &["back"], 1);
    sample.add(Metric::OriginRetriesOverBudgetTotal, &["back"], 1);
    sample.add(Metric::OriginServerChecksTotal, &["back", "a", "passed"], 1);
    sample.add(Metric::OriginServerEjectionsTotal, &["back", "a"], 1);
    sample.add(Metric::OriginServerFailuresTotal, &["back", "a", "connection-refused"], 1);
    sample.add(Metric::OriginServerRequestsInFlight, &["back", "a"], 1);
    sample.add(Metric::OriginServerRequestsTotal, &["back", "a"], 1);
    sample.add(Metric::OriginServerState, &["back", "a", "up"], 1);
    sample.add(Metric::TierSilenceSeconds, &[""], 1);
}

fn count_compression(recorder: &WorkerRecorder) {
    recorder.compression(Ok("gzip"));
    recorder.compression(Err("small"));
    recorder.compressed_bytes("gzip", 100, 10);
}

fn full_telemetry() -> Arc<Telemetry> {
    let build = BuildInfo { version: "1.2.3", commit: "abc", rustc: "1.90" };
    let telemetry = Telemetry::with_build(2, build);
    let (site, origin) = (telemetry.register_site("a\"b\\c\nd"), telemetry.register_origin("back"));
    let recorder = telemetry.worker(1);
    recorder.request(&outcome(site));
    recorder.request(&RequestOutcome { status: 42, method: Method::Other, ..outcome(SiteId::NONE) });
    let rule = telemetry.register_rule("images");
    recorder.miss_refused(site, rule);
    recorder.rate_limited(site, rule, "refused");
    recorder.transform(site, rule);
    count_compression(&recorder);
    recorder.client_error("bare_lf");
    recorder.connection_refused("limit");
    recorder.connection_evicted();
    recorder.fill_aborted("origin_closed");
    recorder.not_stored("no-store");
    recorder.background_validation("ahead");
    recorder.invalidation("url");
    recorder.missing_part("spliced");
    let duration_ns = 2_000_000_000;
    recorder.origin_request(&OriginAnswer { origin, method: Method::Get, status: Some(304), duration_ns });
    recorder.origin_error(origin, "connect");
    recorder.origin_retry(origin);
    let purge = PurgeAnswer { form: "url", mode: "hard", reach: "partial", duration_ns };
    telemetry.background().purge(&purge);
    add_orders(&telemetry.background());
    telemetry.collect_from(Box::new(|sample| {
        add_of_servers(sample);
        sample.add(Metric::OriginConnections, &["back", "idle"], 2);
        sample.add(Metric::OriginConnectionsOpenedTotal, &["back"], 1);
        sample.add(Metric::OriginConnectionsReusedTotal, &["back"], 1);
        sample.add(Metric::OriginExchanges, &["back", "queued"], 3);
        sample.add(Metric::StoreBytes, &["", "stored"], u64::MAX);
        sample.add(Metric::StoreMaxBytes, &[""], 1);
        sample.add(Metric::StoreMaxBytes, &["static"], 2);
        sample.add(Metric::StoreEntries, &[""], 1);
        sample.add(Metric::StoreNotes, &[""], 1);
        sample.add(Metric::StoreFileBytes, &[""], 1);
        sample.add(Metric::TierClockAheadSeconds, &[""], 1);
        sample.add(Metric::TierDoubtsTotal, &["", "changed"], 1);
        sample.add(Metric::TierInstances, &[""], 1);
        sample.add(Metric::TierPurgesHeardTotal, &[""], 1);
        sample.add(Metric::TierLeasesTotal, &["", "taken"], 1);
        sample.add(Metric::TierLeaseWaitSecondsTotal, &[""], 1);
        sample.add(Metric::TierLoadsTotal, &["", "hit"], 1);
        sample.add(Metric::TierLog, &[""], 1);
        sample.add(Metric::TierPendingKeys, &[""], 1);
        sample.add(Metric::TierUnusableTotal, &["", "corrupt"], 1);
        sample.add(Metric::TierWritesTotal, &["", "written"], 1);
        sample.add(Metric::ConnectionsMax, &[], 1);
        sample.add(Metric::CertificateExpiryTimestampSeconds, &["shop.example"], 1);
        sample.add(Metric::TierBreaker, &["", "open"], 1);
        sample.add(Metric::TierBreakerOpenedTotal, &[""], 1);
        sample.add(Metric::TierVerified, &[""], 1);
        sample.add(Metric::RegionCarrier, &["eu"], 1);
        sample.add(Metric::RegionPurgeLagSeconds, &["us"], 1);
        let mut durations = Buckets::new(&COMMAND_BOUNDS);
        durations.add(200, 3);
        durations.add_sum(400);
        sample.histogram(Metric::TierOperationDurationSeconds, &["", "record"], &durations);
        sample.histogram(Metric::KvCommandDurationSeconds, &["get"], &durations);
        sample.add(Metric::TraceExportsTotal, &["accepted"], 1);
        sample.add(Metric::TraceSpansTotal, &["exported"], 1);
        kv_metrics().for_each(|metric| sample.add(metric, &[], 1));
        sample.add(Metric::KvCommandSecondsTotal, &["get"], 1);
        sample.add(Metric::KvCommandsTotal, &["get"], 1);
        sample.add(Metric::KvErrorsTotal, &["ERR"], 1);
        sample.add(Metric::KvConnectionsEndedTotal, &["auth-timeout"], 1);
    }));
    telemetry
}

/// Counts a reload, a failed upgrade, a refusal by the admin API, and similar events.
fn add_orders(recorder: &WorkerRecorder) {
    recorder.reload("applied");
    recorder.upgrade("failed");
    recorder.admin_refused(AdminRefusal::TokenWrong);
    recorder.purge_refused("purge-token-wrong");
}

/// Returns the metrics of the Redis-compatible server that have no labels.
fn kv_metrics() -> impl Iterator<Item = Metric> {
    let of_kv = METRICS.iter().filter(|row| row.name.starts_with("larder_kv_") && row.labels.is_empty());
    of_kv.map(|row| row.metric)
}

#[test]
fn every_declared_metric_appears_and_reads_strictly() {
    let telemetry = full_telemetry();
    let text = telemetry.exposition();
    let values = read_strictly(&text);
    for row in METRICS {
        assert!(values.keys().any(|(name, _)| name.starts_with(row.name)), "{} is missing", row.name);
    }
    assert!(
        text.contains("larder_store_bytes{class=\"stored\"} 18446744073709551615\n"),
        "exact beyond 2^53"
    );
    let of_static = [("store", "static")];
    assert_eq!(value_of(&values, "larder_store_max_bytes", &of_static), Some(2.0));
    assert_eq!(value_of(&values, "larder_store_max_bytes", &[]), Some(1.0), "without a name as before");
    let odd = [("site", "a\"b\\c\nd"), ("method", "GET"), ("status", "200"), ("cache", "hit")];
    assert_eq!(value_of(&values, "larder_requests_total", &odd), Some(1.0));
    let bounded = [("site", "none"), ("method", "other"), ("status", "0"), ("cache", "hit")];
    assert_eq!(value_of(&values, "larder_requests_total", &bounded), Some(1.0));
    assert_eq!(
        value_of(&values, "larder_origin_fetch_duration_seconds_sum", &[("origin", "back")]),
        Some(2.0)
    );
    let of_origin = [("origin", "back"), ("outcome", "failed")];
    assert_eq!(value_of(&values, "larder_origin_requests_total", &of_origin), Some(0.0), "before the first");
    let of_command = [("command", "get"), ("le", "0.00000025")];
    assert_eq!(value_of(&values, "larder_kv_command_duration_seconds_bucket", &of_command), Some(3.0));
}

#[test]
fn rules_are_told_apart_and_add_up_to_their_site() {
    let telemetry = Telemetry::new(1);
    let (shop, blog) = (telemetry.register_site("shop"), telemetry.register_site("blog"));
    let (images, pages) = (telemetry.register_rule("images"), telemetry.register_rule("pages"));
    let recorder = telemetry.worker(0);
    for (site, rule, status) in
        [(shop, images, 200), (shop, images, 404), (shop, pages, 200), (blog, images, 200)]
    {
        recorder.request(&RequestOutcome { rule, status, duration_ns: 1, ..outcome(site) });
    }
    let values = read_strictly(&telemetry.exposition());
    let of_rule =
        |name: &str, site, rule| value_of(&values, name, &[("site", site), ("rule", rule), ("cache", "hit")]);
    assert_eq!(of_rule("larder_rule_requests_total", "shop", "images"), Some(2.0));
    assert_eq!(of_rule("larder_rule_requests_total", "shop", "pages"), Some(1.0));
    assert_eq!(of_rule("larder_rule_requests_total", "blog", "images"), Some(1.0));
    assert_eq!(of_rule("larder_rule_response_bytes_total", "shop", "images"), Some(28.0));
    let of_shop = [("site", "shop"), ("method", "GET"), ("status", "200"), ("cache", "hit")];
    assert_eq!(value_of(&values, "larder_requests_total", &of_shop), Some(2.0), "of all rules");
    // The sum is exact to the nanosecond, because a rounded sum could decrease between scrapes.
    assert_eq!(value_of(&values, "larder_response_seconds_total", &of_shop), Some(2e-9));
    assert_eq!(value_of(&values, "larder_response_bytes_total", &[of_shop[0], of_shop[3]]), Some(42.0));
}

/// An origin may send any number as status; each would be a series.
#[test]
fn statuses_of_origins_are_bounded() {
    let telemetry = Telemetry::new(1);
    let origin = telemetry.register_origin("back");
    for status in [None, Some(42), Some(1000), Some(200)] {
        let answer = OriginAnswer { origin, method: Method::Post, status, duration_ns: 500 };
        telemetry.worker(0).origin_request(&answer);
    }
    let values = read_strictly(&telemetry.exposition());
    let labels = |status| [("origin", "back"), ("method", "POST"), ("status", status)];
    assert_eq!(value_of(&values, "larder_origin_responses_total", &labels("0")), Some(3.0));
    assert_eq!(value_of(&values, "larder_origin_responses_total", &labels("200")), Some(1.0));
    assert_eq!(value_of(&values, "larder_origin_response_seconds_total", &labels("0")), Some(1.5e-6));
}

#[test]
fn an_empty_registry_reads_strictly() {
    let values = read_strictly(&Telemetry::new(1).exposition());
    assert_eq!(value_of(&values, "larder_collapsed_requests_total", &[]), Some(0.0));
    assert_eq!(value_of(&values, "larder_connections_total", &[("protocol", "http2")]), Some(0.0));
    assert!(!values.keys().any(|(name, _)| name.starts_with("larder_kv_")), "no such server runs");
    let without_gateway = read_strictly(&Telemetry::new(0).exposition());
    let of_all = ["larder_reloads_total", "larder_admin_refused_total"];
    let is_of_gateway = |name: &str| name.starts_with("larder_") && !of_all.contains(&name);
    assert!(!without_gateway.keys().any(|(name, _)| is_of_gateway(name)), "no gateway runs");
}

#[test]
fn concurrent_recording_sums_exactly_while_scraped() {
    const WORKERS: usize = 4;
    const REQUESTS: u64 = 5_000;
    let telemetry = Telemetry::new(WORKERS);
    let site = telemetry.register_site("shop");
    thread::scope(|scope| {
        for index in 0..WORKERS {
            let recorder = telemetry.worker(index);
            scope.spawn(move || {
                for status in (200..300).cycle().take(REQUESTS as usize) {
                    let _in_flight = recorder.in_flight();
                    recorder.request(&RequestOutcome { status, ..outcome(site) });
                }
            });
        }
        scope.spawn(|| (0..50).for_each(|_| drop(read_strictly(&telemetry.exposition()))));
    });
    let total = WORKERS as u64 * REQUESTS;
    let values = read_strictly(&telemetry.exposition());
    let requests: f64 =
        values.iter().filter(|((name, _), _)| name == "larder_requests_total").map(|(_, value)| value).sum();
    assert_eq!(requests, total as f64);
    let labels = [("site", "shop"), ("cache", "hit")];
    assert_eq!(value_of(&values, "larder_response_duration_seconds_count", &labels), Some(total as f64));
    assert_eq!(value_of(&values, "larder_response_bytes_total", &labels), Some((total * 14) as f64));
    assert_eq!(value_of(&values, "larder_request_bytes_total", &labels[..1]), Some((total * 3) as f64));
    assert_eq!(value_of(&values, "larder_requests_in_flight", &[]), Some(0.0));
}

#[test]
fn guards_raise_and_lower_gauges_from_any_thread() {
    let telemetry = Telemetry::new(2);
    let recorder = telemetry.worker(0);
    let connection = recorder.connection(ConnectionKind::Http2);
    let waiter = recorder.collapsed();
    let mut fill = recorder.fill(FillState::Waiting);
    let in_flight = recorder.in_flight();
    let check = |metric, labels: &[&str], want: u64| {
        assert_eq!(
            telemetry.sample().value(metric, labels),
            Some(Number::Whole(want)),
            "{metric:?} {labels:?}"
        );
    };
    check(Metric::Connections, &["http2"], 1);
    check(Metric::WorkerConnections, &["0"], 1);
    check(Metric::WorkerConnections, &["1"], 0);
    check(Metric::CollapsedWaiters, &[], 1);
    check(Metric::Fills, &["waiting"], 1);
    check(Metric::RequestsInFlight, &[], 1);
    drop(std::mem::replace(&mut fill, recorder.fill(FillState::Streaming)));
    check(Metric::Fills, &["waiting"], 0);
    check(Metric::Fills, &["streaming"], 1);
    thread::scope(|scope| drop(scope.spawn(|| drop((connection, waiter, fill, in_flight)))));
    check(Metric::Connections, &["http2"], 0);
    check(Metric::ConnectionsTotal, &["http2"], 1);
    check(Metric::CollapsedWaiters, &[], 0);
    check(Metric::CollapsedRequestsTotal, &[], 1);
    check(Metric::Fills, &["streaming"], 0);
    check(Metric::RequestsInFlight, &[], 0);
}

#[test]
fn names_keep_their_numbers_and_are_bounded() {
    let telemetry = Telemetry::new(1);
    let first = telemetry.register_site("first");
    let second = telemetry.register_site("second");
    assert_ne!(first, second);
    assert_eq!(telemetry.register_site("first"), first);
    assert_eq!(telemetry.site_name(second), "second");
    assert_eq!(telemetry.site_name(SiteId::NONE), "none");
}

#[test]
fn providers_add_up_and_wrong_labels_are_refused() {
    let telemetry = Telemetry::new(1);
    for part in [1_u64, 2] {
        telemetry.collect_from(Box::new(move |sample| sample.add(Metric::StoreEntries, &[""], part)));
    }
    assert_eq!(telemetry.sample().value(Metric::StoreEntries, &[""]), Some(Number::Whole(3)));
    let wrong = std::panic::catch_unwind(|| telemetry::Sample::default().add(Metric::StoreBytes, &[""], 1));
    assert!(wrong.is_err());
}
