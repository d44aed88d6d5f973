//! The binary from outside: arguments, exit status, what is printed where.

mod examples;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::LARDER;

/// What is installed on this machine is not meant.
const NOWHERE: &str = "/nonexistent";

fn larder(arguments: &[&str]) -> Output {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config_cases");
    Command::new(LARDER)
        .current_dir(directory)
        .env("CONFIGURATION_DIRECTORY", NOWHERE)
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
    check("check warnings.toml", 0, "0 errors, 5 warnings", "");
    let excerpt = "unknown_keys.toml:1:1: error: drain_limt: unknown key; did you mean `drain_limit`?\n  \
                   |\n1 | drain_limt = \"5s\"\n  | ^^^^^^^^^^\n";
    check("check unknown_keys.toml", 1, excerpt, "");
    check(
        "check no-such-file.toml",
        1,
        "no-such-file.toml: error: can't be read: No such file or directory (os error 2)\n1 error, 0 warnings",
        "",
    );
}

/// What isn't text has one mistake.
#[test]
fn a_file_that_is_not_utf_8_is_one_error() {
    let mut command = Command::new(LARDER);
    command.args(["check", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    let text = b"[[site]]\nname = \"a\xff\"\norigin = \"http://\xff\"\n";
    child.stdin.take().expect("a pipe").write_all(text).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let told = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(told.starts_with("stdin:2:10: error: not UTF-8\n") && told.contains("1 error, 0"), "{told}");
}

#[test]
fn check_reads_standard_input_and_writes_json() {
    let run = |arguments: &[&str], input: &str| {
        let mut command = Command::new(LARDER);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
        let output = child.wait_with_output().expect("it ends");
        (String::from_utf8(output.stdout).expect("UTF-8"), output.status.code())
    };
    let site = "[[site]]\nname = \"a\"\norigin = \"http://a\"\n";
    assert_eq!(run(&["check", "-"], site), ("stdin: usable\n".to_owned(), Some(0)));
    let (text, status) = run(&["check", "-"], &format!("drain_limt = \"5s\"\n{site}"));
    assert!(text.starts_with("stdin:1:1: error: drain_limt: unknown key") && status == Some(1), "{text}");
    assert_eq!(run(&["check", "-", "--json"], site).0, "{\"problems\":[],\"usable\":true}\n");
    let (text, status) = run(&["check", "--json", "-"], &format!("{site}cache = 1\n"));
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let problem = &report["problems"][0];
    assert_eq!((&report["usable"], status), (&false.into(), Some(1)), "{text}");
    let (key, place) = (&problem["key"], (&problem["file"], &problem["line"], &problem["column"]));
    assert_eq!((key, place), (&"site[a].cache".into(), (&"stdin".into(), &4.into(), &1.into())), "{text}");
}

/// An origin that is away, or whose clock is wrong, is told before clients see it.
#[test]
fn doctor_looks_at_origins() {
    let doctor = |origin: &str| {
        let output = larder(&["doctor", "--origin", origin]);
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let origin = testkit::ScriptedOrigin::start(|exchange| {
        exchange.respond("204 No Content", "Date: Tue, 24 Nov 2020 00:00:00 GMT\r\n", "");
    });
    let told = doctor(&origin.url());
    let url = origin.url();
    assert!(
        told.contains(&format!("good  origin {url} = answers HEAD with 204 No Content after ")),
        "{told}"
    );
    assert!(told.contains(&format!("SET   clock of origin {url} = ")), "{told}");
    assert!(told.contains("s behind this machine: set both clocks by NTP"), "{told}");
    assert!(told.contains("open files") && !told.contains("hugepage = never"), "{told}");
    let request = &origin.received()[0];
    assert_eq!((request.method(), request.field("host")), ("HEAD", url.trim_start_matches("http://")));
    let told = doctor("http://127.0.0.1:1");
    assert!(told.contains("SET   origin http://127.0.0.1:1 = no answer (Connection refused"), "{told}");
}

/// nginx does so by default, with `gzip on`.
#[test]
fn doctor_finds_origins_that_stop_compressing_for_proxies() {
    for (says, via, config, expected) in [
        ("gzip", "", "", true),
        ("gzip", "gzip", "", false),
        ("", "", "", false),
        ("gzip", "", "compress = true\n", false),
    ] {
        let origin = testkit::ScriptedOrigin::start(move |exchange| {
            let coding = if exchange.request.field("via").is_empty() { says } else { via };
            let is_get =
                exchange.request.method() == "GET" && exchange.request.field("accept-encoding") == "gzip";
            let fields = if is_get && !coding.is_empty() { "Content-Encoding: gzip\r\n" } else { "" };
            exchange.respond("200 OK", fields, "x");
        });
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("larder.toml");
        fs::write(&file, format!("[[site]]\nname = \"a\"\norigin = \"{}\"\n{config}", origin.url()))
            .expect("a file");
        let output = larder(&["doctor", "--config", file.to_str().expect("a path in UTF-8")]);
        let told = String::from_utf8(output.stdout).expect("UTF-8");
        let line = format!(
            "SET   compression of origin {} = gzip for clients, none for requests with `Via`",
            origin.url()
        );
        assert_eq!(told.contains(&line), expected, "{says:?} {via:?} {config:?}: {told}");
    }
}

/// One file is for all nodes, and `node` is for the machine to know.
#[test]
fn a_cluster_is_checked_for_any_node_or_for_one() {
    let file = "../../../../config/kv-cluster.toml";
    let guide =
        guide_examples().into_iter().find(|(name, text)| *name == "kv-cluster.md" && text.contains("nodes"));
    let folder = tempfile::tempdir().expect("a folder");
    let from_guide = folder.path().join("cluster.toml");
    fs::write(&from_guide, guide.expect("the guide has an example").1).expect("a file");
    for file in [file, from_guide.to_str().expect("a path in UTF-8")] {
        check(&format!("check {file}"), 0, "usable", "");
        check(&format!("check {file} --cluster-node cache-3"), 0, "usable", "");
        check(&format!("check {file} --cluster-node cache-4"), 1, "cache-4", "");
        let doctor = |more: &str| {
            let output = larder(
                &["doctor", "--config", file].into_iter().chain(more.split_whitespace()).collect::<Vec<_>>(),
            );
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
        };
        assert!(doctor("").contains("net.core.somaxconn"), "{}", doctor(""));
        assert!(doctor("--cluster-node cache-2").contains("net.core.somaxconn"), "{}", doctor(""));
        assert!(doctor("--cluster-node cache-4").contains("cache-4"), "{}", doctor(""));
    }
    check(
        "check kv.toml --cluster-node a",
        1,
        "--cluster-node: error: kv.cluster: the file has no such table",
        "",
    );
}

/// The configurations in the guides, with the names of the pages.
fn guide_examples() -> Vec<(String, String)> {
    let mut examples = Vec::new();
    for (name, text) in testkit::guides() {
        let blocks = text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
        examples.extend(blocks.map(|block| (name.clone(), block.to_owned())));
    }
    assert!(examples.len() > 10, "{} examples", examples.len());
    examples
}

/// A part of a file may lack its site, or the files and machines that it names; anything else is wrong.
#[test]
fn configurations_of_the_guides_are_accepted() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("example.toml");
    for (page, mut text) in guide_examples() {
        if text.contains("[origin.") && !text.contains("[[origin]]") {
            let servers = "\"http://127.0.0.1:1\", \"http://127.0.0.1:2\"";
            text.insert_str(0, &format!("[[origin]]\nname = \"added\"\nservers = [{servers}]\n"));
        }
        if !text.contains("[[site]]") {
            let site = "[[site]]\nname = \"added\"\norigin = \"http://127.0.0.1:1\"\n";
            let of_site = text.find("[site.").or_else(|| text.find("[[site."));
            text.insert_str(if of_site.is_some() { 0 } else { text.len() }, &format!("\n{site}"));
        }
        fs::write(&file, &text).expect("a file");
        let output = larder(&["check", &file.display().to_string()]);
        let told = String::from_utf8_lossy(&output.stdout);
        let lacks = |line: &&str| {
            ["can't be read", "doesn't exist", "has room for", "No such file", "unused: no site"]
                .iter()
                .any(|lack| line.contains(lack))
        };
        let wrong: Vec<_> = told
            .lines()
            .filter(|line| line.contains("error: ") || line.contains("warning: "))
            .filter(|line| !lacks(line))
            .collect();
        assert!(wrong.is_empty(), "{page}: {wrong:#?}\n{text}");
    }
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
    let example = "from 2MiB to 16TiB, such as \"512MiB\" or a number of bytes; found \"64KiB\"";
    check("serve --origin http://a --memory 64KiB", 1, "", example);
}

#[test]
fn wrong_usage_has_its_own_status() {
    check("", 2, "", "Usage");
    check(
        "serve",
        2,
        "",
        "expected --origin <URL>|--config <FILE>: the default file /nonexistent/larder.toml",
    );
    check("serve --origin http://a --config b", 2, "", "cannot be used with");
    check("check", 2, "", "expected <FILE>: the default file /nonexistent/larder.toml doesn't exist");
    check("purge http://a --admin nowhere", 2, "", "--admin");
    for wrong in ["a/b", "http://a", "user@a", "a b", ""] {
        let output = larder(&["purge", "--host", wrong, "--admin", "127.0.0.1:1"]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(2) && told.contains("expected a host, such as"),
            "{wrong:?}: {told}"
        );
    }
    check("purge --all", 2, "", "use --everything to purge the whole cache");
    check("kv --port 6380", 2, "", "larder kv has no --port: use --listen ADDRESS");
    check("kv --bind=0.0.0.0", 2, "", "larder kv has no --bind: use --listen ADDRESS");
    check("kv --requirepass secret", 2, "", "larder kv has no --requirepass: set `password_files`");
    check("serve --origin http://a --port 80", 2, "", "larder serve has no --port: use --listen ADDRESS");
}

/// Whoever has it in a script learns where it went.
#[test]
fn measuring_is_a_program_of_its_own() {
    for arguments in ["bench", "bench http http://a/ -n 1", "bench --help", "help bench", "help bench http"] {
        check(arguments, 2, "", "use `larder-bench`, which has the same commands and options");
    }
    check("--help", 0, "run `larder-bench`", "");
}

/// People try either form, and it is the same for all commands that read a configuration.
#[test]
fn the_file_is_an_argument_or_an_option() {
    for command in ["serve", "kv", "check", "doctor"] {
        for file in ["", "--config ", "-c "] {
            let output =
                larder(&format!("{command} {file}unknown_keys.toml").split_whitespace().collect::<Vec<_>>());
            let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            assert_eq!(output.status.code(), Some(1), "{command} {file}: {text}");
            assert!(text.contains("drain_limt: unknown key"), "{command} {file}: {text}");
        }
        check(&format!("{command} a.toml --config b.toml"), 2, "", "cannot be used with");
    }
    for command in ["serve", "doctor"] {
        check(&format!("{command} a.toml --origin http://a"), 2, "", "cannot be used with");
    }
    check("doctor --cluster-node a", 2, "", "required");
}

#[test]
fn numbers_say_their_range() {
    for (arguments, told) in [
        ("serve --origin http://a --workers x", "expected a whole number from 1 to 1024"),
        ("kv --workers 0", "expected a whole number from 1 to 1024"),
    ] {
        check(arguments, 2, "", told);
    }
}

#[test]
fn purge_and_reload_say_when_nothing_answers() {
    // Port 1 of loopback: nothing listens there.
    check("purge http://a/ --admin 127.0.0.1:1", 1, "", "can't reach the admin API on 127.0.0.1:1");
    check("reload --admin 127.0.0.1:1", 1, "", "can't reach the admin API on 127.0.0.1:1");
    check("status --admin 127.0.0.1:1", 1, "", "`larder kv` has one only with `--admin` or `[admin]`");
    check("reload --admin 127.0.0.1:1 --token-file no-such-file", 1, "", "no-such-file can't be read");
    check("reload --admin 127.0.0.1:1 --token-file /dev/null", 1, "", "must be the token; it is empty");
    // What is wrong with the question is told whoever answers.
    check("purge nothing --admin 127.0.0.1:1", 1, "", "\"nothing\" is not an absolute http or https URL");
    check("explain nothing --admin 127.0.0.1:1", 1, "", "the URL must be absolute");
    check("explain http://a/ -X POST --admin 127.0.0.1:1", 1, "", "only GET and HEAD can be explained");
}

#[test]
fn version_is_that_of_the_package() {
    check("--version", 0, concat!("larder ", env!("CARGO_PKG_VERSION")), "");
    check("version", 0, concat!("larder ", env!("CARGO_PKG_VERSION")), "");
    let output = larder(&["version", "--json"]);
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&told["name"], &told["version"]), (&"larder".into(), &env!("CARGO_PKG_VERSION").into()));
    assert_eq!(told["commit"].is_null(), told["profile"] == "debug", "{told}");
    assert!(told["target"].as_str().is_some_and(|target| target.contains("linux")), "{told}");
}

/// People write names, and a port that is taken shows that the name was understood.
#[test]
fn addresses_may_be_names() {
    check("reload --admin localhost:1", 1, "", "can't reach the admin API on 127.0.0.1:1");
    check("purge http://a/ --admin no-such-name.invalid:1", 2, "", "no-such-name.invalid has no address");
    let taken = testkit::Port::reserve();
    let _listener = std::net::TcpListener::bind(taken.address()).expect("it is reserved");
    let name = format!("localhost:{}", taken.address().port());
    let in_use = format!("can't listen on {}: address in use", taken.address());
    check(&format!("serve --origin http://a --admin localhost:0 --listen {name}"), 1, "", &in_use);
    check(&format!("kv --listen {name}"), 1, "", &in_use);
    check(&format!("origin --listen {name}"), 1, "", &in_use);
    // Of a network for documentation: nobody's.
    let foreign = "can't listen on 192.0.2.1:80: no interface of this machine has this address";
    check("kv --listen 192.0.2.1:80", 1, "", foreign);
    check(
        "kv --listen no-such-name.invalid:1",
        1,
        "",
        "--listen: error: kv.listen[1]: no-such-name.invalid has no address",
    );
}

/// Whoever has an account on the machine would have the token too.
#[test]
fn check_warns_of_secrets_that_everybody_can_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, token) = (folder.path().join("larder.toml"), folder.path().join("token"));
    fs::write(&token, "0123456789abcdef\n").expect("a file");
    let text = "[admin]\ntoken_file = \"token\"\n[[site]]\nname = \"a\"\norigin = \"http://a\"\n";
    fs::write(&file, text).expect("a file");
    for (mode, is_told) in [(0o644, true), (0o604, true), (0o640, false), (0o600, false)] {
        fs::set_permissions(&token, fs::Permissions::from_mode(mode)).expect("it is ours");
        let output = larder(&["check", &file.display().to_string()]);
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(0), "{told}");
        let warning = "admin.token_file: every user of this machine can read";
        assert_eq!(told.contains(warning), is_told, "{mode:o}: {told}");
    }
}

/// A variable stands for the option of its command, and an option goes over it.
#[test]
fn options_may_be_variables() {
    let run = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = Command::new(LARDER);
        command.env("CONFIGURATION_DIRECTORY", NOWHERE);
        let output =
            command.args(arguments).envs(variables.iter().copied()).output().expect("the binary runs");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let text = run(&["kv"], &[("LARDER_KV_MAXMEMORY", "1")]);
    assert!(text.contains("--maxmemory: error: kv.maxmemory: expected a size"), "{text}");
    let text = run(&["kv", "--maxmemory", "2"], &[("LARDER_KV_MAXMEMORY", "1GiB")]);
    assert!(text.contains("found \"2\""), "{text}");
    let text = run(&["serve"], &[("LARDER_SERVE_ORGN", "http://a"), ("LARDER_SERVICE_HOST", "10.0.0.1")]);
    let near = "LARDER_SERVE_ORGN: warning: unknown variable; did you mean `LARDER_SERVE_ORIGIN`?";
    assert!(text.starts_with(near) && !text.contains("LARDER_SERVICE_HOST"), "{text}");
    let text = run(&["--version"], &[("LARDER_SERVE_ORGN", "http://a")]);
    assert_eq!(text, "", "what has no settings warns of none");
    let text = run(&["serve"], &[("LARDER_SERVE_ORIGIN", "ftp://a"), ("LARDER_SERVE_LISTEN", "x,y")]);
    assert!(
        text.contains("--origin: error: ") && text.contains("listen[2].address: expected an address"),
        "{text}"
    );
}

/// An installed server needs no options.
#[test]
fn the_default_file_is_read_where_nothing_else_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("larder.toml");
    let run = |arguments: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
        command.env("CONFIGURATION_DIRECTORY", folder.path()).args(arguments.split(' '));
        let output = command.output().expect("the binary runs");
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    };
    fs::write(&file, "drain_limt = \"5s\"\n").expect("a file");
    let problem = format!("{}:1:1: error: drain_limt: unknown key", file.display());
    for command in ["serve", "serve --listen 127.0.0.1:0", "kv --listen 127.0.0.1:0", "check"] {
        let (status, text) = run(command);
        assert!(status == Some(1) && text.contains(&problem), "{command}: {text}");
        let said = format!("larder: configuration: {}\n", file.display());
        assert_eq!(text.contains(&said), command != "check", "{command}: {text}");
    }
    let own = folder.path().join("kv.toml");
    fs::write(&own, "maxmem = 1\n").expect("a file");
    let (status, text) = run("kv --listen 127.0.0.1:0");
    assert!(status == Some(1) && text.contains(&format!("{}:1:1: error: maxmem", own.display())), "{text}");
    assert!(!text.contains("larder.toml"), "its own file goes first: {text}");
    fs::write(&own, "[kv]\nsave_file = \"/nonexistent/kv\"\n").expect("a file");
    let (_, text) = run("kv --listen x");
    assert!(text.contains("the directory /nonexistent doesn't exist"), "{text}");
    // No disk has room for so much.
    for (save_file, is_file) in [("saved", true), ("off", false)] {
        let (_, text) = run(&format!("kv --listen x --maxmemory 16TiB --save-file {save_file}"));
        assert!(text.contains("expected an address") && !text.contains("/nonexistent"), "{text}");
        assert_eq!(text.contains("a save fails"), is_file, "{save_file}: {text}");
    }
    for command in ["serve --origin ftp://a", "serve --config no-such-file", "check no-such-file"] {
        let (status, text) = run(command);
        assert!(status == Some(1) && !text.contains("drain_limt"), "{command}: {text}");
    }
    fs::write(&file, "[kv]\n").expect("a file");
    assert_eq!(run("check"), (Some(0), format!("{}: usable\n", file.display())));
}

/// What is made from the definition of the command line, so that it can't lag behind.
#[test]
fn each_command_has_a_page_and_completions() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("man1");
    assert!(larder(&["manual", "--out", &out.display().to_string()]).status.success());
    let page =
        |name: &str| fs::read_to_string(out.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let help = String::from_utf8(larder(&["--help"]).stdout).expect("UTF-8");
    let listed =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let commands: Vec<_> = listed.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(commands.contains(&"serve") && commands.contains(&"completions"), "{help}");
    for command in commands.iter().filter(|command| **command != "help") {
        assert!(page(&format!("larder-{command}.1")).contains(".SH NAME"), "{command}");
    }
    let serve = page("larder-serve.1");
    assert!(serve.contains("\\-\\-access\\-log") && serve.contains("LARDER_SERVE_LISTEN"), "{serve}");
    for (shell, sign) in [("bash", "complete -F"), ("zsh", "#compdef larder"), ("fish", "complete -c larder")]
    {
        let text = String::from_utf8(larder(&["completions", shell]).stdout).expect("UTF-8");
        assert!(text.contains(sign) && text.contains("maxmemory-policy"), "{shell}: {text}");
        assert!(!text.contains("reference"), "{shell} offers a command that is hidden: {text}");
    }
}

/// Sites were compared with each other, which took minutes where there are many.
#[test]
fn many_sites_are_checked_in_seconds() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("larder.toml");
    let site = |number: usize| {
        let hosts: Vec<_> = (0..10).map(|host| format!("\"{host}.{number}.example\"")).collect();
        format!(
            "[[site]]\nname = \"{number}\"\nhosts = [{}]\norigin = \"http://origin.example\"\n",
            hosts.join(",")
        )
    };
    let sites: String = (0..10_000).chain([9_999]).map(site).collect();
    fs::write(&path, sites).expect("a file");
    // Processor time, so that the machine may be busy: four times what it takes without optimisation; comparing all pairs takes longer.
    let check =
        ["--cpu=50", LARDER, "check"].map(str::to_owned).into_iter().chain([path.display().to_string()]);
    let output = testkit::run("prlimit", check);
    let text = output.text() + &output.stderr;
    assert!(text.contains("`9999` is the name of an earlier site"), "{text}");
    assert_eq!(text.matches("belongs to an earlier site").count(), 10, "{text}");
}

/// `cargo xtask codegen` brings it up to date.
#[test]
fn the_committed_reference_is_current() {
    let generated = tempfile::tempdir().expect("a folder");
    check(&format!("reference --out {}", generated.path().display()), 0, "/config.md\n", "");
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    for page in fs::read_dir(generated.path()).expect("the folder") {
        let page = page.expect("a page").path();
        let name = page.file_name().expect("a name");
        let same = fs::read(&page).ok() == fs::read(committed.join(name)).ok();
        assert!(same, "docs/reference/{}: run `cargo xtask codegen`", name.display());
    }
}
