//! The binary from outside: arguments, exit status, what is printed where.

use std::path::Path;
use std::process::{Command, Output};

fn larder(arguments: &[&str]) -> Output {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config_cases");
    Command::new(env!("CARGO_BIN_EXE_larder"))
        .current_dir(directory)
        .args(arguments)
        .output()
        .expect("the binary runs")
}

#[track_caller]
fn check(arguments: &str, status: i32, stdout: &str, stderr: &str) {
    let output = larder(&arguments.split_whitespace().collect::<Vec<_>>());
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(status), "{arguments}\n{out}{err}");
    assert!(out.contains(stdout), "{arguments}: {out}");
    assert!(err.contains(stderr), "{arguments}: {err}");
}

#[test]
fn check_prints_problems_with_excerpts() {
    check("check usable_minimal.toml", 0, "usable_minimal.toml: usable\n", "");
    check("check warnings.toml", 0, "0 errors, 4 warnings", "");
    let excerpt = "unknown_keys.toml:1:1: error: drain_limt: unknown key; did you mean `drain_limit`?\n  \
                   |\n1 | drain_limt = \"5s\"\n  | ^^^^^^^^^^\n";
    check("check unknown_keys.toml", 1, excerpt, "");
    check("check no-such-file.toml", 1, "no-such-file.toml:1:1: error: can't be read", "");
}

#[test]
fn serve_refuses_what_check_refuses() {
    check("serve --config unknown_keys.toml", 1, "", "drain_limt: unknown key; did you mean `drain_limit`?");
    check("serve --origin ftp://a", 1, "", "--origin: error: site[default].origin: expected `http://host");
    check(
        "serve --origin http://a --memory 1",
        1,
        "",
        "--memory: error: store.memory: expected a size from 2MiB",
    );
}

#[test]
fn wrong_usage_has_its_own_status() {
    check("", 2, "", "Usage");
    check("serve", 2, "", "--origin <URL>|--config <FILE>");
    check("serve --origin http://a --config b", 2, "", "cannot be used with");
    check("check", 2, "", "<FILE>");
    check("purge http://a --admin nowhere", 2, "", "--admin");
}

#[test]
fn purge_and_reload_say_when_nothing_answers() {
    // Port 1 of loopback: nothing listens there.
    check("purge http://a/ --admin 127.0.0.1:1", 1, "", "no admin API on 127.0.0.1:1");
    check("reload --admin 127.0.0.1:1", 1, "", "no admin API on 127.0.0.1:1");
    check("reload --admin 127.0.0.1:1 --token-file no-such-file", 1, "", "no-such-file can't be read");
}

#[test]
fn version_is_that_of_the_package() {
    check("--version", 0, concat!("larder ", env!("CARGO_PKG_VERSION")), "");
}
