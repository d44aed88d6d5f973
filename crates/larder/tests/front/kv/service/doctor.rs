//! `larder doctor`, and its warnings when the server starts.

use std::fs;
use std::process::Command;

use testkit::{KvSetup, wait};

use crate::LARDER;

#[test]
fn each_setting_has_a_line_and_too_few_open_files_are_told() {
    for limit in [1000, 256] {
        let script = format!("ulimit -n {limit}; exec \"$0\" doctor");
        let output = testkit::run("sh", ["-c", &script, LARDER]);
        let text = output.text();
        for setting in
            ["somaxconn", "tcp_max_syn_backlog", "open files", "tcp_rmem", "tcp_wmem", "overcommit", "memory"]
        {
            assert!(text.lines().any(|line| line.contains(setting)), "no {setting} in {text}");
        }
        assert_eq!(output.status == 0, text.lines().all(|line| line.starts_with("good")), "{text}");
        let advice = format!("SET   open files (ulimit -n, LimitNOFILE=) = {limit}: set at least 11152");
        assert!(limit == 1000 || text.contains(&advice), "{text}");
    }
}

#[test]
fn the_server_warns_when_it_starts() {
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 256; exec \"$0\" \"$@\"", LARDER]);
    let kv = KvSetup::of(limited).start("");
    wait::until_true("it warns", || {
        let log = kv.service.stderr();
        log.lines().any(|line| line.contains("WARN") && line.contains("open files") && line.contains("11152"))
    });
}

/// The documentation of the OS settings promises this.
#[test]
fn the_file_for_sysctl_satisfies_it() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/sysctl.d/larder.conf");
    let text = fs::read_to_string(file).expect("the file");
    let number = |name: &str| -> u64 {
        let line =
            text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name}"));
        line.split_whitespace().next_back().and_then(|number| number.parse().ok()).expect("a number")
    };
    assert!(number("net.core.somaxconn =") >= 4096);
    assert!(number("net.ipv4.tcp_max_syn_backlog =") >= 1024);
    assert!(number("net.ipv4.tcp_rmem =") >= 4 << 20);
    assert!(number("net.ipv4.tcp_wmem =") >= 4 << 20);
    assert_ne!(number("vm.overcommit_memory ="), 2);
}
