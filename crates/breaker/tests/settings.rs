//! Valid and invalid options.

use breaker::{Options, Settings, SettingsError};

#[track_caller]
fn check(change: fn(&mut Options), expected: Option<&str>) {
    let mut options = Options::default();
    change(&mut options);
    let found = Settings::new(options).map_err(|error: SettingsError| error.to_string());
    assert_eq!(found.as_ref().err().map(String::as_str), expected);
    if let Ok(settings) = found {
        assert_eq!(*settings.options(), options);
    }
}

#[test]
fn options_have_ranges() {
    check(|_| (), None);
    check(|options| options.window_ms = 99, Some("`window_ms` is 99; allowed: 100 to 3600000"));
    check(|options| options.window_ms = 3_600_000, None);
    check(|options| options.window_buckets = 0, Some("`window_buckets` is 0; allowed: 1 to 60"));
    check(|options| options.window_buckets = 61, Some("`window_buckets` is 61; allowed: 1 to 60"));
    check(|options| options.requests_min = 0, Some("`requests_min` is 0; allowed: 1 to 1000000"));
    check(|options| options.error_percent = 101, Some("`error_percent` is 101; allowed: 1 to 100"));
    check(|options| options.reset_ms = 0, Some("`reset_ms` is 0; allowed: 1 to 3600000"));
    check(|options| options.reset_ms_max = 4_999, Some("`reset_ms_max` is 4999; allowed: 5000 to 3600000"));
    check(|options| options.reset_ms_max = 5_000, None);
    check(
        |options| options.reset_ms_max = 3_600_001,
        Some("`reset_ms_max` is 3600001; allowed: 5000 to 3600000"),
    );
    check(|options| options.probes_max = 0, Some("`probes_max` is 0; allowed: 1 to 100"));
    check(|options| options.probe_ms_max = 0, Some("`probe_ms_max` is 0; allowed: 1 to 3600000"));
    check(|options| options.successes_to_close = 0, Some("`successes_to_close` is 0; allowed: 1 to 1000"));
}

/// `Settings::default` skips the checks.
#[test]
fn the_defaults_are_allowed() {
    assert_eq!(Settings::new(Options::default()), Ok(Settings::default()));
}
