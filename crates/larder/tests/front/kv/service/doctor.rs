//! `larder doctor`, and its warnings when the server starts.

use std::fs;
use std::process::Command;

use testkit::{KvSetup, wait};

use crate::LARDER;

#[test]
fn too_few_open_files_are_told_when_the_server_starts_and_before() {
    let limit = "ulimit -n 256; exec \"$0\" \"$@\"";
    let output = testkit::run("sh", ["-c", limit, LARDER, "doctor"]);
    let advice = "SET   open files (ulimit -n, LimitNOFILE=) = 256: set at least 11152";
    assert!(output.status != 0 && output.text().contains(advice), "{}", output.text());
    let mut limited = Command::new("sh");
    limited.args(["-c", limit, LARDER]);
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
