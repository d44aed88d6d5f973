//! The command line of `larder-bench` from outside: generated outputs, and errors about wrong arguments.

use std::fs;
use std::io::ErrorKind;
use std::process::Command;

use testkit::wait;

const BENCH: &str = env!("CARGO_BIN_EXE_larder-bench");

fn bench(arguments: &str) -> testkit::Output {
    testkit::run(BENCH, arguments.split_whitespace())
}

#[test]
fn wrong_arguments_are_told_by_their_reader() {
    #[track_caller]
    fn check(arguments: &str, told: &str) {
        let output = bench(arguments);
        assert!(output.status == 2 && output.stderr.contains(told), "{arguments}: {}", output.stderr);
    }
    let connections = "expected a whole number from 1 to 65536";
    for command in ["http http://a/", "resp 127.0.0.1:1"] {
        check(&format!("{command} --connections 0"), connections);
        check(&format!("{command} --connections x"), connections);
        check(&format!("{command} --threads 257"), "expected a whole number from 1 to 256");
        check(&format!("{command} --requests 0"), "expected a whole number from 1 to");
        check(&format!("{command} --rate 0"), "expected a number from 0.001 to");
        check(&format!("{command} --rate nan"), "expected a number from 0.001 to");
    }
    check("http http://a --expect-status 1000", "expected a whole number from 100 to 999");
    check("http http://a --expect-status ok", "expected a whole number from 100 to 999");
    check("http http://a --pipeline 0", "expected a whole number from 1 to 10000");
    check("resp 127.0.0.1:1 --zipf 11", "expected a number from 0.01 to 10");
    check("resp --port 6379", "'--port'");
    let address = "expected a host and a port, such as 127.0.0.1:6379";
    for wrong in ["localhost", "localhost:", ":6379", "localhost:x", "redis://localhost", "localhost:70000"] {
        check(&format!("resp {wrong}"), address);
    }
    check("resp rediss://localhost:6379", "TLS isn't supported");
}

/// Nothing listens on the address and no experiment begins, so the failure doesn't come from a load.
#[test]
fn files_are_tried_before_the_load() {
    let folder = tempfile::tempdir().expect("a folder");
    let kept = folder.path().join("kept.json");
    fs::write(&kept, "before").expect("a file");
    let (place, file) = (folder.path().display(), kept.display());
    for command in ["http http://127.0.0.1:1/ -n 1", "resp 127.0.0.1:1 -n 1", "experiment coalescing -d 1"] {
        for (option, wrong) in [
            ("--json", format!("{place}/missing/report.json can't be written")),
            ("--html", format!("{place} can't be written")),
        ] {
            let path = wrong.split(' ').next().unwrap_or_default();
            let output = bench(&format!("{command} --quiet {option} {path}"));
            assert_eq!(output.status, 1, "{command} {option}");
            assert!(output.stderr.contains(&wrong), "{command} {option}: {}", output.stderr);
        }
    }
    // Writable files are unchanged, and missing files are still missing.
    let output =
        bench(&format!("http http://127.0.0.1:1/ -n 1 --quiet --json {file} --html {place}/page.html"));
    assert!(output.stderr.contains("can't connect to 127.0.0.1:1"), "{}", output.stderr);
    assert_eq!(fs::read_to_string(&kept).expect("the file"), "before");
    assert!(!folder.path().join("page.html").exists());
}

#[test]
fn a_report_that_is_none_is_named() {
    let output = bench("report nope");
    assert_eq!(output.status, 1);
    assert_eq!(
        output.stderr,
        "larder-bench: can't read the report nope: No such file or directory (os error 2)\n"
    );
    let output = bench(&format!("report {}/Cargo.toml", env!("CARGO_MANIFEST_DIR")));
    assert!(output.status == 1 && output.stderr.contains("Cargo.toml: not a report: "), "{}", output.stderr);
}

#[test]
fn larder_is_found_by_its_variable_beside_or_on_the_path() {
    let folder = tempfile::tempdir().expect("a folder");
    let alone = folder.path().join("larder-bench");
    fs::copy(BENCH, &alone).expect("a copy");
    let told = |larder: Option<&str>| {
        let mut command = Command::new(&alone);
        command
            .args(["experiment", "coalescing", "--quiet"])
            .env("PATH", "/nonexistent")
            .env_remove("LARDER");
        larder.into_iter().for_each(|name| {
            command.env("LARDER", name);
        });
        // Another test may have forked a process that keeps the copy open for writing until it calls exec.
        let output = wait::until("it runs", || match command.output() {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => None,
            ended => Some(ended.expect("it runs")),
        });
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).expect("UTF-8")
    };
    let missing = told(None);
    assert!(missing.contains("`larder` is neither in the directory of /"), "{missing}");
    assert!(missing.contains("name it with LARDER=FILE"), "{missing}");
    assert!(
        told(Some("/nonexistent/larder")).contains("LARDER names /nonexistent/larder, which isn't a program")
    );
    // The command is started, but it isn't a server.
    let ended = told(Some("/bin/false"));
    assert!(ended.contains("\"/bin/false origin ") && ended.contains("ended (exit status: 1)"), "{ended}");
    assert!(ended.contains("it wrote nothing"), "{ended}");
}

#[test]
fn the_version_is_that_of_the_server() {
    let told: serde_json::Value =
        serde_json::from_slice(&bench("version --json").succeeded().stdout).expect("JSON");
    assert_eq!(
        (&told["name"], &told["version"]),
        (&"larder-bench".into(), &env!("CARGO_PKG_VERSION").into())
    );
    assert!(bench("--version").succeeded().text().starts_with("larder-bench "));
}

#[test]
fn each_command_has_a_page() {
    let folder = tempfile::tempdir().expect("a folder");
    bench(&format!("manual --out {}", folder.path().display())).succeeded();
    for name in
        ["larder-bench.1", "larder-bench-http.1", "larder-bench-null-resp.1", "larder-bench-experiment.1"]
    {
        let page = fs::read_to_string(folder.path().join(name)).expect(name);
        assert!(page.contains(".SH NAME"), "{name}");
    }
}

#[test]
fn each_shell_has_completions() {
    // The completions for fish lack the values of positional arguments.
    for (shell, own) in [
        ("bash", ["complete -F", "coalescing"]),
        ("zsh", ["#compdef larder-bench", "coalescing"]),
        ("fish", ["complete -c larder-bench", "http2"]),
    ] {
        let text = bench(&format!("completions {shell}")).succeeded().text();
        for part in own.into_iter().chain(["null-resp", "server-cmd", "workflow"]) {
            assert!(text.contains(part), "{shell}: {part} is missing: {text}");
        }
    }
}
