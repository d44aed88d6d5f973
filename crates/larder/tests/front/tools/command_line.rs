//! The command line: arguments, exit statuses, and outputs of `check`, `doctor`, `version`, `manual` and `completions`.

mod examples;

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use testkit::{Port, ScriptedOrigin, run};

use crate::LARDER;
use crate::admin::operator::{SITE, site};

/// A folder without configuration, so that files installed on this machine have no effect.
const NOWHERE: &str = "CONFIGURATION_DIRECTORY=/nonexistent";

/// Runs the binary with environment variables and standard input, and returns the status and both outputs.
#[track_caller]
fn larder_with(variables: &[&str], arguments: &[&str], input: &[u8]) -> (i32, [String; 2]) {
    let mut command = Command::new("env");
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config_cases"));
    command.arg(NOWHERE).args(variables).arg(LARDER).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    // Most commands don't read standard input.
    let _ = child.stdin.take().expect("a pipe").write_all(input);
    let output = child.wait_with_output().expect("it ends");
    let outputs = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.code().expect("no signal ends it"), outputs)
}

#[track_caller]
fn larder(arguments: &str) -> (i32, [String; 2]) {
    larder_with(&[], &arguments.split_whitespace().collect::<Vec<_>>(), b"")
}

#[track_caller]
fn check(arguments: &str, expected: i32, part: &str) {
    let (status, [out, err]) = larder(arguments);
    assert_eq!(status, expected, "{arguments}\n{out}{err}");
    // Results are on standard output, errors on standard error.
    let is_result = expected == 0 || arguments.starts_with("check ");
    let told = if is_result && !out.is_empty() { out } else { err };
    assert!(told.contains(part), "{arguments}: {part:?} is not in {told}");
}

fn file(text: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("larder.toml");
    fs::write(&path, text).expect("a file");
    (folder, path)
}

#[test]
fn check_prints_problems_with_excerpts() {
    check("check usable_minimal.toml", 0, "usable_minimal.toml: usable\n");
    check("check warnings.toml", 0, "0 errors, 5 warnings");
    let excerpt = "unknown_keys.toml:1:1: error: drain_limt: unknown key; did you mean `drain_limit`?\n  \
                   |\n1 | drain_limt = \"5s\"\n  | ^^^^^^^^^^\n";
    check("check unknown_keys.toml", 1, excerpt);
    let error = "no-such-file.toml: error: can't be read: No such file or directory (os error 2)";
    check("check no-such-file.toml", 1, &format!("{error}\n1 error, 0 warnings"));
}

#[test]
fn check_reads_standard_input_and_writes_json() {
    let read = |arguments: &[&str], input: &[u8]| {
        let (status, [out, _]) = larder_with(&[], &[&["check", "-"], arguments].concat(), input);
        (status, out)
    };
    assert_eq!(read(&[], SITE.as_bytes()), (0, "stdin: usable\n".to_owned()));
    let (status, text) = read(&[], format!("drain_limt = \"5s\"\n{SITE}").as_bytes());
    assert!(text.starts_with("stdin:1:1: error: drain_limt: unknown key") && status == 1, "{text}");
    let (_, text) = read(&[], b"[[site]]\nname = \"a\xff\"\norigin = \"http://\xff\"\n");
    let is_one = text.starts_with("stdin:2:10: error: not UTF-8\n") && text.contains("1 error, 0");
    assert!(is_one, "a file that isn't text has one mistake: {text}");
    assert_eq!(read(&["--json"], SITE.as_bytes()).1, "{\"problems\":[],\"usable\":true}\n");
    let (status, text) = read(&["--json"], format!("{SITE}cache = 1\n").as_bytes());
    let report: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&report["usable"], status), (&false.into(), 1), "{text}");
    let place = ["key", "file", "line", "column"].map(|name| report["problems"][0][name].clone());
    assert_eq!(place, ["site[a].cache".into(), "stdin".into(), Value::from(4), Value::from(1)], "{text}");
}

/// `doctor` finds an unreachable origin or a wrong clock before clients notice.
#[test]
fn doctor_looks_at_origins() {
    let origin = ScriptedOrigin::start(|exchange| {
        exchange.respond("204 No Content", "Date: Tue, 24 Nov 2020 00:00:00 GMT\r\n", "");
    });
    let url = origin.url();
    let (_, [told, _]) = larder(&format!("doctor --origin {url}"));
    for part in [
        &format!("good  origin {url} = answers HEAD with 204 No Content after "),
        &format!("SET   clock of origin {url} = "),
        "s behind this machine: set both clocks by NTP",
        "open files",
    ] {
        assert!(told.contains(part), "{part:?} is not in {told}");
    }
    assert!(!told.contains("hugepage = never"), "{told}");
    let request = &origin.received()[0];
    assert_eq!((request.method(), request.field("host")), ("HEAD", url.trim_start_matches("http://")));
    let (_, [told, _]) = larder("doctor --origin http://127.0.0.1:1");
    assert!(told.contains("SET   origin http://127.0.0.1:1 = no answer (Connection refused"), "{told}");
}

/// nginx with `gzip on` does so by default.
#[test]
fn doctor_finds_origins_that_stop_compressing_for_proxies() {
    for (says, via, config, expected) in [
        ("gzip", "", "", true),
        ("gzip", "gzip", "", false),
        ("", "", "", false),
        ("gzip", "", "compress = true\n", false),
    ] {
        let origin = ScriptedOrigin::start(move |exchange| {
            let request = &exchange.request;
            let coding = if request.field("via").is_empty() { says } else { via };
            let is_get = request.method() == "GET" && request.field("accept-encoding") == "gzip";
            let fields = if is_get && !coding.is_empty() { "Content-Encoding: gzip\r\n" } else { "" };
            exchange.respond("200 OK", fields, "x");
        });
        let (_folder, path) = file(&site(&origin, config));
        let (_, [told, _]) = larder(&format!("doctor --config {}", path.display()));
        let coding = "= gzip for clients, none for requests with `Via`";
        let line = format!("SET   compression of origin {} {coding}", origin.url());
        assert_eq!(told.contains(&line), expected, "{says:?} {via:?} {config:?}: {told}");
    }
}

/// All nodes may share one file, with `node` set on each machine.
#[test]
fn a_cluster_is_checked_for_any_node_or_for_one() {
    let is_cluster = |example: &(String, String)| example.0 == "kv-cluster.md" && example.1.contains("nodes");
    let guide = guide_examples().into_iter().find(is_cluster).expect("the guide has an example");
    let (_folder, from_guide) = file(&guide.1);
    for file in [Path::new("../../../../config/kv-cluster.toml"), &from_guide] {
        let file = file.display();
        check(&format!("check {file}"), 0, "usable");
        check(&format!("check {file} --cluster-node cache-3"), 0, "usable");
        check(&format!("check {file} --cluster-node cache-4"), 1, "cache-4");
        for (node, part) in [
            ("", "net.core.somaxconn"),
            ("--cluster-node cache-2", "net.core.somaxconn"),
            ("--cluster-node cache-4", "cache-4"),
        ] {
            let (_, told) = larder(&format!("doctor --config {file} {node}"));
            assert!(told.concat().contains(part), "{node}: {told:?}");
        }
    }
    let told = "--cluster-node: error: kv.cluster: the file has no such table";
    check("check kv.toml --cluster-node a", 1, told);
}

/// Returns the configurations in the guides, with the names of the pages.
fn guide_examples() -> Vec<(String, String)> {
    let mut examples = Vec::new();
    for (name, text) in testkit::guides() {
        let blocks = text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
        examples.extend(blocks.map(|block| (name.clone(), block.to_owned())));
    }
    assert!(examples.len() > 10, "{} examples", examples.len());
    examples
}

/// An excerpt of a file may lack its site, or the files and hosts that it names; any other problem is an error.
#[test]
fn configurations_of_the_guides_are_accepted() {
    let lacks = ["can't be read", "doesn't exist", "has room for", "No such file", "unused: no site"];
    for (page, mut text) in guide_examples() {
        if text.contains("[origin.") && !text.contains("[[origin]]") {
            let servers = "\"http://127.0.0.1:1\", \"http://127.0.0.1:2\"";
            text.insert_str(0, &format!("[[origin]]\nname = \"added\"\nservers = [{servers}]\n"));
        }
        if !text.contains("[[site]]") {
            let has_site_keys = text.contains("[site.") || text.contains("[[site.");
            text.insert_str(if has_site_keys { 0 } else { text.len() }, &format!("\n{SITE}"));
        }
        let (_folder, path) = file(&text);
        let (_, [told, _]) = larder(&format!("check {}", path.display()));
        let told = told.lines().filter(|line| line.contains("error: ") || line.contains("warning: "));
        let wrong: Vec<_> = told.filter(|line| !lacks.iter().any(|lack| line.contains(lack))).collect();
        assert!(wrong.is_empty(), "{page}: {wrong:#?}\n{text}");
    }
}

#[test]
fn wrong_values_and_wrong_usage_have_statuses_of_their_own() {
    let size = "from 2MiB to 16TiB, such as \"512MiB\" or a number of bytes; found \"64KiB\"";
    let default = "the default file /nonexistent/larder.toml";
    let foreign = "can't listen on 192.0.2.1:80: no interface of this machine has this";
    let no_address = "--listen: error: kv.listen[1]: no-such-name.invalid has no";
    for (arguments, status, told) in [
        ("serve --config unknown_keys.toml", 1, "drain_limt: unknown key; did you mean `drain_limit`?"),
        ("serve --origin ftp://a", 1, "--origin: error: site[default].origin: expected `http://host"),
        ("serve --origin http://a --memory 1", 1, "--memory: error: store.memory: expected a size from 2MiB"),
        ("serve --origin http://a --memory 64KiB", 1, size),
        ("", 2, "Usage"),
        ("serve", 2, &format!("expected --origin <URL>|--config <FILE>: {default}")),
        ("serve --origin http://a --config b", 2, "cannot be used with"),
        ("check", 2, &format!("expected <FILE>: {default} doesn't exist")),
        ("purge http://a --admin nowhere", 2, "--admin"),
        ("purge --host a/b --admin 127.0.0.1:1", 2, "expected a host, such as"),
        ("purge --host user@a --admin 127.0.0.1:1", 2, "expected a host, such as"),
        ("purge --host= --admin 127.0.0.1:1", 2, "expected a host, such as"),
        ("purge --all", 2, "use --everything to purge the whole cache"),
        ("kv --port 6380", 2, "larder kv has no --port: use --listen ADDRESS"),
        ("kv --bind=0.0.0.0", 2, "larder kv has no --bind: use --listen ADDRESS"),
        ("kv --requirepass secret", 2, "larder kv has no --requirepass: set `password_files`"),
        ("serve --origin http://a --port 80", 2, "larder serve has no --port: use --listen ADDRESS"),
        ("serve --origin http://a --workers x", 2, "expected a whole number from 1 to 1024"),
        ("kv --workers 0", 2, "expected a whole number from 1 to 1024"),
        // Port 1 of loopback: nothing listens there.
        ("purge http://a/ --admin 127.0.0.1:1", 1, "can't reach the admin API on 127.0.0.1:1"),
        ("reload --admin 127.0.0.1:1", 1, "can't reach the admin API on 127.0.0.1:1"),
        ("reload --admin localhost:1", 1, "can't reach the admin API on 127.0.0.1:1"),
        ("status --admin 127.0.0.1:1", 1, "`larder kv` has one only with `--admin` or `[admin]`"),
        ("explain http://a/ --admin 127.0.0.1:1", 1, "can't reach the admin API on 127.0.0.1:1"),
        ("reload --admin 127.0.0.1:1 --token-file no-such-file", 1, "no-such-file can't be read"),
        ("reload --admin 127.0.0.1:1 --token-file /dev/null", 1, "must be the token; it is empty"),
        // Mistakes in arguments are reported even if no admin API answers.
        ("purge nothing --admin 127.0.0.1:1", 1, "\"nothing\" is not an absolute http or https URL"),
        ("explain nothing --admin 127.0.0.1:1", 1, "the URL must be absolute"),
        ("explain http://a/ -X POST --admin 127.0.0.1:1", 1, "only GET and HEAD can be explained"),
        // Scripts that use a former command learn its replacement.
        ("bench", 2, "use `larder-bench`, which has the same commands and options"),
        ("help bench http", 2, "use `larder-bench`, which has the same commands and options"),
        ("--help", 0, "run `larder-bench`"),
        // A name without an address, and an address of a documentation network, which no machine has.
        ("purge http://a/ --admin no-such-name.invalid:1", 2, "no-such-name.invalid has no address"),
        ("kv --listen 192.0.2.1:80", 1, foreign),
        ("kv --listen no-such-name.invalid:1", 1, no_address),
    ] {
        check(arguments, status, told);
    }
}

/// All commands that read a configuration accept the file in the same ways.
#[test]
fn the_file_is_an_argument_or_an_option() {
    for command in ["serve", "kv", "check", "doctor"] {
        for file in ["", "--config ", "-c "] {
            let (status, told) = larder(&format!("{command} {file}unknown_keys.toml"));
            assert_eq!(status, 1, "{command} {file}: {told:?}");
            assert!(told.concat().contains("drain_limt: unknown key"), "{command} {file}: {told:?}");
        }
        let (status, told) = larder(&format!("{command} a.toml --config b.toml"));
        assert!(status == 2 && told[1].contains("cannot be used with"), "{command}: {told:?}");
    }
    for command in ["serve", "doctor"] {
        check(&format!("{command} a.toml --origin http://a"), 2, "cannot be used with");
    }
    check("doctor --cluster-node a", 2, "required");
}

#[test]
fn version_is_that_of_the_package() {
    for arguments in ["--version", "version"] {
        check(arguments, 0, concat!("larder ", env!("CARGO_PKG_VERSION")));
    }
    let (_, [told, _]) = larder("version --json");
    let told: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!((&told["name"], &told["version"]), (&"larder".into(), &env!("CARGO_PKG_VERSION").into()));
    assert_eq!(told["commit"].is_null(), told["profile"] == "debug", "{told}");
    assert!(told["target"].as_str().is_some_and(|target| target.contains("linux")), "{told}");
}

/// An error about a taken port shows that the name was resolved.
#[test]
fn addresses_to_listen_on_may_be_names() {
    let taken = Port::reserve();
    let _listener = TcpListener::bind(taken.address()).expect("it is reserved");
    let in_use = format!("can't listen on {}: address in use", taken.address());
    for command in ["serve --origin http://a --admin localhost:0", "kv", "origin"] {
        check(&format!("{command} --listen localhost:{}", taken.address().port()), 1, &in_use);
    }
}

/// Every user of the machine could read the token.
#[test]
fn check_warns_of_secrets_that_everybody_can_read() {
    let (folder, path) = file(&format!("[admin]\ntoken_file = \"token\"\n{SITE}"));
    let token = folder.path().join("token");
    fs::write(&token, "0123456789abcdef\n").expect("a file");
    for (mode, is_told) in [(0o644, true), (0o604, true), (0o640, false), (0o600, false)] {
        fs::set_permissions(&token, fs::Permissions::from_mode(mode)).expect("it is ours");
        let (status, [told, _]) = larder(&format!("check {}", path.display()));
        let is_warned = told.contains("admin.token_file: every user of this machine can read");
        assert_eq!((status, is_warned), (0, is_told), "{mode:o}: {told}");
    }
}

/// A variable stands for the option of its command, and an option overrides it.
#[test]
fn options_may_be_variables() {
    let near = "LARDER_SERVE_ORGN: warning: unknown variable; did you mean `LARDER_SERVE_ORIGIN`?";
    let listen = "listen[2].address: expected an address";
    for (arguments, variables, part) in [
        ("kv", "LARDER_KV_MAXMEMORY=1", "--maxmemory: error: kv.maxmemory: expected a size"),
        ("kv --maxmemory 2", "LARDER_KV_MAXMEMORY=1GiB", "found \"2\""),
        ("serve", "LARDER_SERVE_ORGN=http://a LARDER_SERVICE_HOST=10.0.0.1", near),
        ("serve", "LARDER_SERVE_ORIGIN=ftp://a LARDER_SERVE_LISTEN=127.0.0.1:0", "--origin: error: "),
        ("serve", "LARDER_SERVE_ORIGIN=http://a LARDER_SERVE_LISTEN=x,y", listen),
    ] {
        let [variables, words] = [variables, arguments].map(|text| text.split(' ').collect::<Vec<_>>());
        let (_, [_, told]) = larder_with(&variables, &words, b"");
        assert!(told.contains(part) && !told.contains("LARDER_SERVICE_HOST"), "{variables:?}: {told}");
    }
    let (_, [_, told]) = larder_with(&["LARDER_SERVE_ORGN=http://a"], &["--version"], b"");
    assert_eq!(told, "", "a command without settings doesn't warn about variables");
}

/// An installed server needs no options.
#[test]
fn the_default_file_is_read_where_nothing_else_is_said() {
    let (folder, file) = file("drain_limt = \"5s\"\n");
    let variable = format!("CONFIGURATION_DIRECTORY={}", folder.path().display());
    let check = |arguments: &str, expected: i32, has: &str, lacks: &str| {
        let (status, told) = larder_with(&[&variable], &arguments.split(' ').collect::<Vec<_>>(), b"");
        let told = told.concat();
        let is_right = told.contains(has) && (lacks.is_empty() || !told.contains(lacks));
        assert!(status == expected && is_right, "{arguments}: {status} {told}");
    };
    let problem = format!("{}:1:1: error: drain_limt: unknown key", file.display());
    let said = format!("larder: configuration: {}\n", file.display());
    for command in ["serve", "serve --listen 127.0.0.1:0", "kv --listen 127.0.0.1:0"] {
        check(command, 1, &problem, "");
        check(command, 1, &said, "");
    }
    check("check", 1, &problem, &said);
    for command in ["serve --origin ftp://a", "serve --config no-such-file", "check no-such-file"] {
        check(command, 1, "", "drain_limt");
    }
    let own = folder.path().join("kv.toml");
    fs::write(&own, "maxmem = 1\n").expect("a file");
    let problem = format!("{}:1:1: error: maxmem", own.display());
    check("kv --listen 127.0.0.1:0", 1, &problem, "larder.toml");
    fs::write(&own, "[kv]\nsave_file = \"/nonexistent/kv\"\n").expect("a file");
    check("kv --listen x", 1, "the directory /nonexistent doesn't exist", "");
    // No disk has room for 16 TiB.
    let large = "kv --listen x --maxmemory 16TiB --save-file";
    check(&format!("{large} saved"), 1, "a save fails", "/nonexistent");
    for lacks in ["/nonexistent", "a save fails"] {
        check(&format!("{large} off"), 1, "expected an address", lacks);
    }
    fs::write(&file, "[kv]\n").expect("a file");
    let (status, told) = larder_with(&[&variable], &["check"], b"");
    assert_eq!((status, told.concat()), (0, format!("{}: usable\n", file.display())));
}

/// Both are generated from the definition of the command line, so they can't become outdated.
#[test]
fn each_command_has_a_page_and_completions() {
    let folder = tempfile::tempdir().expect("a folder");
    check(&format!("manual --out {}", folder.path().display()), 0, "");
    let page = |name: &str| fs::read_to_string(folder.path().join(name)).expect(name);
    let (_, [help, _]) = larder("--help");
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| !line.is_empty());
    let commands: Vec<_> = listed.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(commands.contains(&"serve") && commands.contains(&"completions"), "{help}");
    for command in commands.iter().filter(|command| **command != "help") {
        assert!(page(&format!("larder-{command}.1")).contains(".SH NAME"), "{command}");
    }
    let serve = page("larder-serve.1");
    assert!(serve.contains("\\-\\-access\\-log") && serve.contains("LARDER_SERVE_LISTEN"), "{serve}");
    for (shell, sign) in [("bash", "complete -F"), ("zsh", "#compdef larder"), ("fish", "complete -c larder")]
    {
        let (_, [text, _]) = larder(&format!("completions {shell}"));
        assert!(text.contains(sign) && text.contains("maxmemory-policy"), "{shell}: {text}");
        assert!(!text.contains("reference"), "{shell} offers a command that is hidden: {text}");
    }
}

/// Field bug: all pairs of sites were compared, which took minutes for many sites.
#[test]
fn many_sites_are_checked_in_seconds() {
    let site = |number: usize| {
        let hosts: Vec<_> = (0..10).map(|host| format!("\"{host}.{number}.example\"")).collect();
        SITE.replace("\"a\"", &format!("\"{number}\"")) + &format!("hosts = [{}]\n", hosts.join(","))
    };
    let (_folder, path) = file(&(0..10_000).chain([9_999]).map(site).collect::<String>());
    // A limit on processor time, so that the machine may be busy: four times the time without optimisation, but less than comparing all
    // pairs takes.
    let output = run("prlimit", ["--cpu=50", LARDER, "check", &path.display().to_string()]);
    let text = output.text() + &output.stderr;
    assert!(text.contains("`9999` is the name of an earlier site"), "{text}");
    assert_eq!(text.matches("belongs to an earlier site").count(), 10, "{text}");
}
