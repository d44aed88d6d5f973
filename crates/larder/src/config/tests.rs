//! Configurations as data: one file per case, with the expected problems after a separator.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::*;

/// Separates a case from its expected problems.
const SEPARATOR: &str = "# ---\n";

fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config_cases")
}

/// Returns the problems as lines, with file names relative to `directory`.
fn lines(checked: &Checked, directory: &Path) -> Vec<String> {
    let prefix = format!("{}/", directory.display());
    checked.problems.iter().map(|problem| problem.line(&checked.sources).replace(&prefix, "")).collect()
}

fn check_file(path: &Path) -> Checked {
    check(Some(Input::of_file(path)), &Overrides::default())
}

/// Checks `text` in a directory of its own.
fn check_text(text: &[u8]) -> Checked {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("larder.toml");
    fs::write(&path, text).expect("a file in it");
    check_file(&path)
}

/// Set this variable to write the found problems into the cases, and review the difference before keeping it.
const REWRITE: &str = "LARDER_REWRITE_CASES";

#[test]
fn cases_give_the_expected_problems() {
    let mut names: Vec<_> =
        fs::read_dir(cases()).expect("cases").map(|entry| entry.expect("a case").path()).collect();
    names.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    names.sort();
    assert!(!names.is_empty());
    for path in names {
        let text = fs::read_to_string(&path).expect("a readable case");
        let (input, expected) = text.split_once(SEPARATOR).expect("a case has a separator");
        let checked = check_file(&path);
        let mut found = lines(&checked, &cases());
        found.extend(checked.settings.map(|_| "usable".to_owned()));
        let found: String = found.iter().map(|line| format!("# {line}\n")).collect();
        if std::env::var_os(REWRITE).is_some() {
            fs::write(&path, format!("{input}{SEPARATOR}{found}")).expect("a writable case");
        } else {
            assert_eq!(found, expected, "{}", path.display());
        }
    }
}

#[test]
fn secrets_stay_hidden() {
    let checked = check_file(&cases().join("secrets_stay_hidden.toml"));
    let hint = |problem: &Problem| {
        format!("{}\n{}", problem.line(&checked.sources), checked.sources.excerpt(&problem.place))
    };
    let shown: Vec<_> = checked.problems.iter().map(hint).filter(|text| text.contains("hidden-")).collect();
    assert!(shown.is_empty(), "{shown:#?}");
}

/// The name of an unknown key is the mistake, so it is always shown; its value may be a secret in the wrong place.
#[test]
fn values_of_unknown_keys_are_shown_unless_they_may_be_secret() {
    #[track_caller]
    fn shows(text: &str, line: &str) {
        let checked = check_text(text.as_bytes());
        let excerpts: Vec<_> =
            checked.problems.iter().map(|problem| checked.sources.excerpt(&problem.place)).collect();
        assert!(excerpts.iter().any(|excerpt| excerpt.contains(line)), "{line}: {excerpts:#?}");
    }
    shows("[kv]\nmaxmemroy = \"1GiB\"", "2 | maxmemroy = \"1GiB\"");
    shows("[admin]\ntokn = \"abc\"", "2 | tokn = *****");
    shows("[admin]\ntoken = \"abc\"", "2 | token = *****");
    shows("[admin.tokens]\nx = \"abc\"", "1 | [admin.tokens]");
    shows("[admin]\ntokens = { x = \"abc\", y = 1 }", "2 | tokens = { x = *****, y = * }");
    shows("[admin]\npassword.value = \"abc\"", "2 | password.value = *****");
    shows("[purge]\ndrain_delay = \"5s\"", "2 | drain_delay = \"5s\"");
    shows("[[site]]\ntoken_file = \"abc\"", "2 | token_file = *****");
    shows("[[site]]\nfields = { Authorization = \"abc\" }", "2 | fields = { Authorization = ***** }");
    shows("[[site]]\norign = \"http://a:b@c\"", "2 | orign = **************");
}

/// Field bug: `larder check` showed the passwords of mistyped URLs.
#[test]
fn passwords_in_mistyped_urls_are_hidden() {
    for url in [
        "redis://u:hunter2",
        "redis:u:hunter2@c",
        "redis//u:hunter2@c",
        "REDIS:/u:hunter2@c",
        "u:hunter2@c",
        "redis://c?password=hunter2",
        "redis://c/0?Password=hunter2",
        "unix:///s?db=1&password=hunter2",
    ] {
        let checked = check_text(format!("[store.remote]\nurl = \"{url}\"\n").as_bytes());
        let shown =
            |problem: &Problem| problem.line(&checked.sources) + &checked.sources.excerpt(&problem.place);
        let shown: Vec<String> = checked.problems.iter().map(shown).collect();
        assert!(!shown.is_empty() && !shown.concat().contains("hunter2"), "{url}: {shown:#?}");
    }
}

#[test]
fn examples_are_usable() {
    let folder = examples();
    let examples = folder.path();
    let mut count = 0;
    for entry in fs::read_dir(examples).expect("examples") {
        let path = entry.expect("an example").path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let checked = check_file(&path);
        assert_eq!(lines(&checked, examples), Vec::<String>::new());
        assert!(checked.settings.is_some());
        count += 1;
    }
    assert!(count >= 14, "{count} examples");
}

/// A key that no check reads would have no effect; a key that a check misspells is not in the option table.
#[test]
fn every_key_is_read() {
    let folder = examples();
    fs::write(folder.path().join("rest.toml"), REST).expect("a file");
    let of_folder = |folder: &Path| {
        let entries: Vec<_> = fs::read_dir(folder).expect("a folder").collect();
        entries.into_iter().map(|entry| entry.expect("a file").path())
    };
    for path in of_folder(folder.path()).chain(of_folder(&cases())) {
        if path.extension().is_some_and(|extension| extension == "toml") {
            check_file(&path);
        }
    }
    let noted = tree::reads::noted();
    let mut unread = BTreeSet::new();
    visit(&table::ROOT, &mut |section, key| {
        let name = format!("{}.{key}", section.name);
        unread.extend((!noted.contains(&name)).then_some(name));
    });
    assert!(unread.is_empty(), "{unread:?}");
}

/// Keys that are read only together with others, and that no example needs.
const REST: &str = r#"
[tracing]
endpoint = "http://127.0.0.1:4318"

[kv]
compression = "lz4"
[kv.tls]
listen = ["127.0.0.1:1"]
cert = "example.org.pem"
key = "example.org.key"
client_ca_file = "example.org.pem"

[[site]]
name = "a"
origin = "http://a"
[site.maintenance]
enabled = true
body_file = "kv-sessions.password"
[[site.error_page]]
statuses = [502]
body_file = "kv-sessions.password"
"#;

/// Calls `act` for each key of a table and of the tables in it.
fn visit(section: &'static table::Section, act: &mut dyn FnMut(&table::Section, &'static str)) {
    for option in section.options() {
        act(section, option.key);
        option.kind.section().into_iter().for_each(|section| visit(section, act));
    }
}

/// Returns all examples, with the files that they refer to.
fn examples() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config");
    fs::create_dir(folder.path().join("sites.d")).expect("a folder");
    for inner in ["", "sites.d"] {
        for entry in fs::read_dir(from.join(inner)).expect("examples") {
            let path = entry.expect("an example").path();
            let name = path.file_name().expect("a name");
            if path.is_file() {
                fs::copy(&path, folder.path().join(inner).join(name)).expect("a copy");
            }
        }
    }
    for name in ["example.org", "example.net"] {
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let certificate = params.self_signed(&key).expect("a certificate");
        fs::write(folder.path().join(format!("{name}.pem")), certificate.pem()).expect("a file");
        fs::write(folder.path().join(format!("{name}.key")), key.serialize_pem()).expect("a file");
    }
    fs::write(folder.path().join("kv-sessions.password"), "correct horse\n").expect("a file");
    folder
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        show(&check_text(&bytes));
    }

    #[test]
    fn any_mixture_of_keys_and_values_is_answered(lines in proptest::collection::vec(line(), 0..20)) {
        show(&check_text(lines.join("\n").as_bytes()));
    }
}

/// Displaying problems must not panic either.
fn show(checked: &Checked) {
    for problem in &checked.problems {
        let _ = (problem.line(&checked.sources), checked.sources.excerpt(&problem.place));
    }
    assert_eq!(checked.settings.is_none(), checked.problems.iter().any(|p| p.severity == Severity::Error));
}

/// Generates almost valid lines: known tables and keys with values of any type.
fn line() -> impl Strategy<Value = String> {
    let sections = [
        "[[site]]",
        "[[site.rule]]",
        "[site.rule.path]",
        "[[origin]]",
        "[origin.fields]",
        "[origin.pool]",
        "[limits]",
        "[admin]",
        "[log]",
        "[[listen]]",
        "[[listen.certificates]]",
        "[site.timeouts]",
        "[kv]",
        "[kv.tls]",
        "[kv.limits]",
        "[listen",
        "[[x]]",
        "#",
    ];
    let keys = all_keys();
    let values = [
        "0",
        "-1",
        "99999999999999999999",
        "0x10",
        "1.5",
        "true",
        "\"\"",
        "\"é\"",
        "\"/\"",
        "\"http://a\"",
        "\"5s\"",
        "\"1MiB\"",
        "[]",
        "[1]",
        "[\"GET\"]",
        "{}",
        "{ regex = \"(\" }",
        "{ 200 = \"1s\" }",
        "1979-05-27",
        "\"*.a\"",
        "'",
        "[{ address = \"127.0.0.1:0\" }]",
        "\"\u{1b}\"",
        "nan",
    ];
    prop_oneof![
        1 => proptest::sample::select(sections.to_vec()).prop_map(str::to_owned),
        3 => (proptest::sample::select(keys), proptest::sample::select(values.to_vec()))
            .prop_map(|(key, value)| format!("{key} = {value}")),
    ]
}

fn all_keys() -> Vec<&'static str> {
    let mut keys = vec!["", "\"a b\"", "unknown"];
    visit(&table::ROOT, &mut |_, key| keys.push(key));
    keys
}

#[test]
fn the_schema_is_json_and_has_every_key() {
    let schema = reference::json_schema();
    assert!(serde_json::from_str::<serde_json::Value>(&schema).is_ok_and(|schema| schema.is_object()));
    let missing: Vec<_> =
        all_keys().into_iter().skip(3).filter(|key| !schema.contains(&format!("\"{key}\""))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_full_example_names_every_key() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/larder.toml");
    let text = fs::read_to_string(example).expect("the example");
    let named = |key: &&str| {
        let words =
            |line: &str| line.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|word| word == *key);
        text.lines().any(words)
    };
    let missing: Vec<_> = all_keys().into_iter().skip(3).filter(|key| !named(key)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Checks the reload of `before` into `after`, and returns the settings that the running process then has.
#[track_caller]
fn check_reload(before: &str, after: &str, warnings: &[&str]) -> Settings {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("larder.toml");
    let site = "\n[[site]]\nname = \"a\"\norigin = \"http://a\"\n";
    fs::write(&path, format!("{before}{site}")).expect("a file");
    let running = check_file(&path).settings.expect("a usable configuration");
    fs::write(&path, format!("{after}{site}")).expect("a file");
    let checked = check_again(Some(&path), &Overrides::default(), &running);
    let paths: Vec<_> = checked.problems.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(paths, warnings);
    checked.settings.expect("a usable configuration")
}

fn gateway(settings: &Settings) -> &gateway::config::Config {
    settings.gateway.as_ref().expect("there is a site")
}

#[test]
fn a_reload_keeps_what_it_cannot_change() {
    let settings = check_reload(
        "workers = 1\nlisten = [\"127.0.0.1:1\"]\ndrain_limit = \"1s\"\n[store]\nmemory = \"8MiB\"",
        "workers = 2\nlisten = [\"127.0.0.1:2\"]\ndrain_limit = \"2s\"\n[store]\nmemory = \"9MiB\"\nvariants_max = 5",
        &["workers", "listen[1].address", "drain_limit", "store.memory"],
    );
    assert_eq!(gateway(&settings).workers, 1);
    assert_eq!(gateway(&settings).listeners[0].address.port(), 1);
    assert_eq!(gateway(&settings).stores[0].memory_bytes_max, 8 << 20);
    assert_eq!(gateway(&settings).stores[0].variants_max, 5);
    assert_eq!(gateway(&settings).drain_limit.as_secs(), 1);
}

#[test]
fn a_reload_keeps_listeners_when_their_number_changes() {
    let settings = check_reload(
        "listen = [\"127.0.0.1:1\"]",
        "listen = [\"127.0.0.1:1\", \"127.0.0.1:2\"]",
        &["listen"],
    );
    assert_eq!(gateway(&settings).listeners.len(), 1);
}

#[test]
fn a_reload_without_changes_is_silent() {
    let text = "workers = 3\nlisten = [{ address = \"127.0.0.1:1\", proxy_protocol = true, proxy_protocol_from = [\"10.0.0.0/8\"] }]\n[log]\naccess = \"stdout\"";
    check_reload(text, text, &[]);
    check_reload("", "listen = [\"127.0.0.1:8080\"]\n[admin]\nlisten = \"127.0.0.1:8081\"", &[]);
}

#[test]
fn a_reload_says_when_a_key_appears_or_goes() {
    check_reload("", "workers = 3", &["workers"]);
    check_reload("workers = 3", "", &["workers"]);
}

/// Checks a file like `larder kv --config`.
fn check_kv(text: &str, overrides: KvOverrides) -> Checked {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("larder.toml");
    fs::write(&path, text).expect("a file in it");
    check(
        Some(Input::of_file(&path)),
        &Overrides { program: Program::Kv, kv: overrides, ..Overrides::default() },
    )
}

#[test]
fn what_runs_depends_on_what_is_configured() {
    #[track_caller]
    fn check(text: &str, gateway: bool, kv: bool) {
        let settings = check_text(text.as_bytes()).settings.expect("usable");
        assert_eq!((settings.gateway.is_some(), settings.kv.is_some()), (gateway, kv), "{text}");
        assert!(settings.admin.is_some());
        let settings = check_kv(text, KvOverrides::default()).settings.expect("usable");
        assert_eq!((settings.gateway.is_some(), settings.kv.is_some()), (false, true), "larder kv: {text}");
        assert_eq!(settings.admin.is_some(), text.contains("[admin]"), "{text}");
    }
    let site = "[[site]]\nname = \"a\"\norigin = \"http://a\"\n";
    check(site, true, false);
    check("[kv]", false, true);
    check(&format!("[admin]\n[kv]\n{site}"), true, true);
}

#[test]
fn arguments_go_over_the_kv_table() {
    let text = "[kv]\nlisten = [\"127.0.0.1:1\"]\nmaxmemory = \"8MiB\"\nworkers = 3\n";
    let overrides =
        KvOverrides { maxmemory: Some("9MiB".to_owned()), workers: Some(2), ..KvOverrides::default() };
    let kv = check_kv(text, overrides).settings.expect("usable").kv.expect("larder kv always has it");
    assert_eq!((kv.listen[0].address.port(), kv.bytes_max, kv.workers), (1, 9 << 20, 2));
    let wrong = KvOverrides { maxmemory: Some("1MiB".to_owned()), ..KvOverrides::default() };
    let checked = check_kv(text, wrong);
    let problem = checked.problems.first().expect("too small").line(&checked.sources);
    let told = "--maxmemory: error: kv.maxmemory: expected a size from 2MiB to 16TiB";
    assert!(problem.starts_with(told) && checked.settings.is_none(), "{problem}");
}

#[test]
fn certificates_give_their_names() {
    let certified =
        |name: &str| rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
    let (one, two) = (certified("one.example"), certified("two.example"));
    let directory = tempfile::tempdir().expect("a temporary directory");
    let write = |name: &str, text: String| fs::write(directory.path().join(name), text).expect("a file");
    write("one.pem", one.cert.pem());
    write("one.key", one.signing_key.serialize_pem());
    write("two.pem", two.cert.pem());
    write("two.key", two.signing_key.serialize_pem());
    let check = |certificates: &str| {
        let listen = format!("[[listen]]\naddress = \"127.0.0.1:0\"\ncertificates = [{certificates}]\n");
        write("larder.toml", format!("{listen}[[site]]\nname = \"a\"\norigin = \"http://a\"\n"));
        check_file(&directory.path().join("larder.toml"))
    };
    let good = check(
        "{ cert = \"one.pem\", key = \"one.key\" }, { cert = \"two.pem\", key = \"two.key\", names = [\"*.Two.example\"] }",
    );
    assert_eq!(lines(&good, directory.path()), Vec::<String>::new());
    let tls = gateway(&good.settings.expect("usable")).listeners[0].tls.clone().expect("TLS");
    let names: Vec<_> = tls.certificates.iter().map(|certificate| certificate.names.clone()).collect();
    assert_eq!(names, [["one.example"], ["*.two.example"]]);

    let wrong = check("{ cert = \"one.pem\", key = \"two.key\" }");
    let message = "larder.toml:3:43: error: listen[1].certificates[1].key: isn't the private key of the first \
                   certificate in `cert`";
    assert_eq!(lines(&wrong, directory.path()), [message]);

    write("old.pem", OLD_CERTIFICATE.to_owned());
    let wrong = check("{ cert = \"old.pem\", key = \"two.key\" }");
    let message = "larder.toml:3:26: error: listen[1].certificates[1].cert: the first certificate can't be used: TLS \
                   needs one of X.509 version 3";
    assert_eq!(lines(&wrong, directory.path()), [message]);
}

/// A version 1 certificate for old.example.
const OLD_CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\n\
MIIBJzCBzwIUJm1YYFfnkyirWyJtHFDEopZiWkAwCgYIKoZIzj0EAwIwFjEUMBIG\n\
A1UEAwwLb2xkLmV4YW1wbGUwIBcNMjYxMTI1MjAwNDAyWhgPMjEyNjExMDEyMDA0\n\
MDJaMBYxFDASBgNVBAMMC29sZC5leGFtcGxlMFkwEwYHKoZIzj0CAQYIKoZIzj0D\n\
AQcDQgAEEiJLiW6NL8OkrQHLEOjaSF5Qlx4PKchzlHaQ2WRNVsqe34J6xSv420Kj\n\
y2pk0clihFozFrcJ4Rh7fLIDjSGFBjAKBggqhkjOPQQDAgNHADBEAiAIMmwT3RmE\n\
7u1+cV+HaggMRSLiRLpu/OUjqYZmxW9VIAIgU5ABd/UY+D8g8LVyVhjKeOSzkumE\n\
cfIOWmhlAYBz+gI=\n\
-----END CERTIFICATE-----\n\n";

/// Field bug: a reload warned of a change after the name of a listener resolved to a different address, or to none.
#[test]
fn a_reload_does_not_look_up_again_what_is_listened_on() {
    let text = "[[listen]]\naddress = \"ADDRESS\"\n[admin]\nlisten = \"localhost:8081\"\n\
                [[site]]\nname = \"a\"\norigin = \"http://origin.example\"\n";
    let mut running =
        check_text(text.replace("ADDRESS", "127.0.0.2:8080").as_bytes()).settings.expect("usable");
    running.names = Names::of([("was-known.invalid:8080", "127.0.0.2:8080")]);
    let check = |address: &str, problems: &[&str]| {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("larder.toml");
        fs::write(&path, text.replace("ADDRESS", address)).expect("a file in it");
        let checked = check_again(Some(&path), &Overrides::default(), &running);
        let lines = lines(&checked, directory.path());
        assert_eq!(lines.len(), problems.len(), "{address}: {lines:?}");
        for (line, problem) in lines.iter().zip(problems) {
            assert!(line.starts_with(problem), "{address}: {line}");
        }
        let is_refused = problems.iter().any(|problem| problem.contains(": error: "));
        let listens = checked.settings.and_then(|settings| Some(settings.gateway?.listeners[0].address));
        let expected = "127.0.0.2:8080".parse().ok().filter(|_| !is_refused);
        assert_eq!(listens, expected, "{address}");
    };
    check("was-known.invalid:8080", &[]);
    check("127.0.0.2:8080", &[]);
    let changed = "larder.toml:2:11: warning: listen[1].address: changed, but takes effect only after a restart or `larder upgrade`";
    // A start would refuse this file, so a reload does too.
    check(
        "never-known.invalid:8080",
        &["larder.toml:2:11: error: listen[1].address: never-known.invalid has no address"],
    );
    check("127.0.0.3:8080", &[changed]);
}
