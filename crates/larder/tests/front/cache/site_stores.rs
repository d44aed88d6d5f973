//! Sites with their own stores: events in one store don't affect the sites of another.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use testkit::{Larder, Redis, Response, ScriptedOrigin, Setup, Signal, run, wait};

use super::basics::{ask_host, filled, get_of, reload, with};
use crate::LARDER;
use crate::fleet::instances::{self, is_written, status};
use crate::fleet::purge_waits::{doubts, purge};

const SHOP: &str = "shop.test";
const ASSETS: &str = "assets.test";
const TOKEN: &str = "0123456789abcdef";
const TOKEN_FILE: &str = "[purge]\ntoken_file = \"token\"\n";

/// Two instances with two sites: one in `[store]`, one in `[stores.static]`, each store on its own server.
struct World {
    shop: Redis,
    assets: Redis,
    origin: ScriptedOrigin,
    version: Arc<AtomicUsize>,
    text: String,
    gateways: Vec<Larder>,
}

impl World {
    fn start() -> Self {
        let (shop, assets) = (Redis::start(""), Redis::start(""));
        let version = Arc::new(AtomicUsize::new(1));
        let current = Arc::clone(&version);
        let origin = ScriptedOrigin::start(move |exchange| {
            let version = current.load(Ordering::SeqCst);
            let host = exchange.request.field("host").to_owned();
            let fields = "Cache-Control: max-age=3600\r\nCache-Tag: news\r\nCache-Groups: \"g\"\r\n";
            exchange.respond("200 OK", fields, format!("{host} {version}"));
        });
        let text = format!("{}{TOKEN_FILE}", config(&origin, &shop, &assets));
        let gateways = instances::start(2, |_| Setup::config(LARDER, &text).file("token", TOKEN));
        Self { shop, assets, origin, version, text, gateways }
    }

    /// The responses of one instance to the sites' URLs; each contains its version.
    fn stored_at(&self, gateway: usize, target: &str) -> [Response; 2] {
        let responses = [SHOP, ASSETS].map(|host| get_of(&self.gateways[gateway], host, target));
        is_written(&self.gateways[gateway]);
        responses
    }

    fn is_hit(&self, gateway: usize, host: &str, target: &str) -> bool {
        get_of(&self.gateways[gateway], host, target).is_hit()
    }

    /// The number of records on each server, including those about instances.
    fn records(&self) -> [usize; 2] {
        [&self.shop, &self.assets].map(|server| {
            let counted = server.command("EVAL \"return #redis.call('KEYS','larder:[rm]:*')\" 0");
            counted.trim_start_matches(':').parse().expect("a number")
        })
    }
}

fn site(host: &str, store: &str) -> String {
    let name = host.split('.').next().expect("a label");
    let named = format!("[[site]]\nname = \"{name}\"\nhosts = [\"{host}\"]\n");
    format!("{named}origin = \"@origin@\"\nstore = \"{store}\"\ntags = [\"cache-tag\"]\n")
}

fn config(origin: &ScriptedOrigin, shop: &Redis, assets: &Redis) -> String {
    // A busy machine must not look like an unreachable server.
    let [shop, assets] = [shop, assets].map(|server| {
        format!("remote = {{ url = \"redis://{}/0\", record_timeout = \"10s\" }}\n", server.address())
    });
    let sites = [site(SHOP, "default"), site(ASSETS, "static")].concat();
    filled(&format!("[store]\n{shop}[stores.static]\n{assets}{sites}"), origin)
}

#[test]
fn each_site_is_in_its_own_server_only() {
    let mut world = World::start();
    let [of_shop, of_assets] = world.records();
    for (host, response) in [SHOP, ASSETS].into_iter().zip(world.stored_at(0, "/page")) {
        assert_eq!(response.text(), format!("{host} 1"));
    }
    assert_eq!(world.records(), [of_shop + 1, of_assets + 1]);
    get_of(&world.gateways[0], ASSETS, "/third");
    is_written(&world.gateways[0]);
    assert_eq!(world.records(), [of_shop + 1, of_assets + 2]);
    let asked = world.origin.total();
    for host in [SHOP, ASSETS] {
        let response = get_of(&world.gateways[1], host, "/page");
        assert!(response.is_hit(), "{}", status(&response));
        assert_eq!(response.text(), format!("{host} 1"), "the same path on two sites");
    }
    assert_eq!(world.origin.total(), asked);
    let loads = |parts: &[&str]| world.gateways[1].metric("larder_tier_loads_total", parts);
    assert_eq!(loads(&["result=\"hit\"", "store=\"static\""]), 1.0);
    assert_eq!(loads(&["result=\"hit\""]), 2.0, "series without a store name belong to [store]");
    let explained = world.gateways[1].ask_admin("POST", "/explain", "{\"url\":\"http://assets.test/page\"}");
    assert!(explained.text().contains("the site has its own store"), "{}", explained.text());

    // Records that are still waiting when the process stops are written to both servers.
    let both = [&world.shop, &world.assets];
    both.iter().for_each(|server| server.signal(Signal::STOP));
    [SHOP, ASSETS].iter().for_each(|host| drop(get_of(&world.gateways[0], host, "/last")));
    world.gateways[0].signal(Signal::TERM);
    both.iter().for_each(|server| server.signal(Signal::CONT));
    world.gateways[0].service().end();
    assert_eq!([SHOP, ASSETS].map(|host| world.is_hit(1, host, "/last")), [true, true]);
}

#[test]
fn a_purge_reaches_the_stores_that_it_is_for() {
    let world = World::start();
    let heard = |store: &[&str]| world.gateways[1].metric("larder_tier_purges_heard_total", store);
    for (query, is_gone) in [
        ("site=assets", [false, true]),
        ("site=shop&tag=news", [true, false]),
        ("host=assets.test", [false, true]),
        ("url=http://shop.test/page", [true, false]),
        ("prefix=assets.test/pa", [false, true]),
        ("everything=true", [true, true]),
        ("prefix=/pa", [true, true]),
    ] {
        (0..2).for_each(|gateway| drop(world.stored_at(gateway, "/page")));
        let counted = world.gateways[1].ask_admin("POST", &format!("/purge?{query}&dry_run=true"), "").text();
        let matched = is_gone.iter().filter(|gone| **gone).count();
        assert!(counted.contains(&format!("\"responses_purged\":{matched}")), "{query}: {counted}");
        let heard_before = [heard(&[]), heard(&["store=\"static\""])];
        let purged = purge(&world.gateways[0], query);
        assert!(purged.is_complete, "{query}: {}", purged.text);
        let named = purged.text.matches("\"store\":\"static\"").count();
        let all = purged.text.matches("\"reached_ms\"").count();
        assert_eq!(
            (all - named, named),
            (2 * usize::from(is_gone[0]), 2 * usize::from(is_gone[1])),
            "{query}"
        );
        let in_static = heard(&["store=\"static\""]) - heard_before[1];
        let in_all = heard(&[]) - heard_before[0];
        let expected = is_gone.map(|gone| f64::from(u8::from(gone)));
        assert_eq!([in_all - in_static, in_static], expected, "{query}: nothing is in the other log");
        for gateway in [0, 1] {
            let is_hit = [SHOP, ASSETS].map(|host| world.is_hit(gateway, host, "/page"));
            // The first instance has fetched it anew, for both.
            let expected = is_gone.map(|gone| !gone || gateway == 1);
            assert_eq!(is_hit, expected, "{query} at {gateway}");
            is_written(&world.gateways[gateway]);
        }
    }
    world.stored_at(1, "/page");
    let token = format!("Authorization: Bearer {TOKEN}\r\n");
    let answer = ask_host(&world.gateways[0], ("PURGE", ASSETS, "/page"), &token).text();
    assert!(answer.contains("\"responses_purged\":1") && answer.contains("\"complete\":true"), "{answer}");
    assert_eq!([SHOP, ASSETS].map(|host| world.is_hit(1, host, "/page")), [true, false]);

    let admin = world.gateways[0].admin().to_string();
    let told = run(LARDER, ["purge", "--everything", "--admin", &admin]).succeeded().stderr;
    assert!(told.contains("all 2 instances have applied it"), "{told}");
    assert!(told.contains("all 2 instances of the store static have applied it"), "{told}");
}

/// The purge applies on the instance that receives it and on the one that is notified.
#[test]
fn a_purge_reaches_sites_that_a_reload_took_away() {
    let mut world = World::start();
    let text = world.text.clone();
    let without = text.rsplit_once("[[site]]").expect("a site").0.to_owned() + TOKEN_FILE;
    for query in ["prefix=/pa", "prefix=assets.test/pa", "host=assets.test", "everything=true"] {
        (0..2).for_each(|gateway| drop(world.stored_at(gateway, "/page")));
        reload(&mut world.gateways[0], &without, &world.origin);
        let purged = purge(&world.gateways[0], query);
        assert!(purged.is_complete, "{query}: {}", purged.text);
        assert!(!world.is_hit(1, ASSETS, "/page"), "{query}");
        is_written(&world.gateways[1]);
        reload(&mut world.gateways[0], &text, &world.origin);
        world.version.fetch_add(1, Ordering::SeqCst);
    }
    for query in ["url=http://assets.test/page", "url=http://assets.test/page?q"] {
        let target = query.strip_prefix("url=http://assets.test").expect("a target");
        (0..2).for_each(|gateway| drop(world.stored_at(gateway, target)));
        reload(&mut world.gateways[1], &without, &world.origin);
        let current = world.version.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(purge(&world.gateways[0], query).is_complete, "{query}");
        reload(&mut world.gateways[1], &text, &world.origin);
        assert_eq!(get_of(&world.gateways[1], ASSETS, target).text(), format!("assets.test {current}"));
    }
}

#[test]
fn a_server_that_is_gone_is_nothing_to_the_other_store() {
    let mut world = World::start();
    world.stored_at(0, "/page");
    world.assets.kill();
    wait::until_true("both have noticed", || {
        world.gateways.iter().all(|gateway| doubts(gateway, "all") >= 1.0)
    });
    for (round, host) in (0..50).flat_map(|round| [(round, SHOP), (round, ASSETS)]) {
        let responses = [0, 1].map(|gateway| get_of(&world.gateways[gateway], host, &format!("/{round}")));
        assert_eq!((responses[0].status(), responses[0].text()), (200, format!("{host} 1")));
        assert_eq!(responses[1].status(), 200);
    }
    let failed = |parts: &[&str]| world.gateways[0].metric("larder_tier_loads_total", parts);
    assert_eq!(failed(&["failed"]), failed(&["failed", "static"]), "none of them in the other store");
    let pending_in_shop = || {
        let pending = |parts: &[&str]| world.gateways[0].metric("larder_tier_pending_keys", parts);
        pending(&[]) - pending(&["static"])
    };
    wait::until_true("the reachable server has the purge", || pending_in_shop() == 0.0);
    assert!(world.is_hit(1, SHOP, "/page"), "it still shares");

    let of_shop = purge(&world.gateways[0], "site=shop");
    assert!(of_shop.is_complete, "{}", of_shop.text);
    world.version.store(2, Ordering::SeqCst);
    assert_eq!(get_of(&world.gateways[1], SHOP, "/page").text(), "shop.test 2");
    let of_all = purge(&world.gateways[0], "everything=true");
    assert!(!of_all.is_complete && of_all.text.contains("\"silent_stores\":[\"static\"]"), "{}", of_all.text);
    assert!(of_all.text.matches("\"reached_ms\"").count() == 2, "those of the other: {}", of_all.text);
    let admin = world.gateways[0].admin().to_string();
    let told = run(LARDER, ["purge", "--site", "assets", "--admin", &admin]);
    assert_eq!(told.status, 4, "{}", told.stderr);
    assert!(told.stderr.contains("the store static has not received the purge yet"), "{}", told.stderr);
    wait::until_true("status tells which store is silent", || {
        let told = run(LARDER, ["status", "--admin", &admin]).text();
        let mut stores = told.lines().filter(|line| line.contains("store"));
        let [shop, assets, silent] = [(); 3].map(|()| stores.next().unwrap_or_default());
        shop.ends_with("; instances 2")
            && assets.starts_with("store static: ")
            && !assets.contains("instances")
            && silent.starts_with("shared store of static: no answer for ")
            && silent.ends_with(" s; serving alone")
            && stores.next().is_none()
    });

    world.assets.start_again();
    wait::until_true("it is used again", || purge(&world.gateways[0], "site=assets").is_complete);
    assert_eq!(get_of(&world.gateways[1], ASSETS, "/page").text(), "assets.test 2");
}

#[test]
fn an_unsafe_request_invalidates_groups_in_all_stores_of_its_host() {
    let origin = ScriptedOrigin::start(|exchange| {
        let fields = match exchange.request.method() {
            "POST" => "Cache-Group-Invalidation: \"g\"\r\n",
            _ => "Cache-Control: max-age=3600\r\nCache-Groups: \"g\"\r\n",
        };
        exchange.respond("200 OK", fields, "x");
    });
    let site =
        |name: &str, rest: &str| format!("[[site]]\nname = \"{name}\"\norigin = \"@origin@\"\n{rest}\n");
    let sites = [
        site("shop", "hosts = [\"shop.test\"]"),
        site("files", "hosts = [\"shop.test\"]\npath_prefix = \"/files\"\nstore = \"static\""),
        site("other", "store = \"other\""),
    ];
    let larder = with(&format!("[stores.static]\n[stores.other]\n{}", sites.concat()), &origin);
    let urls = [(SHOP, "/page"), (SHOP, "/files/page"), (ASSETS, "/page")];
    let hits = || urls.map(|(host, target)| get_of(&larder, host, target).is_hit());
    assert_eq!((hits(), hits()), ([false; 3], [true; 3]));
    ask_host(&larder, ("POST", SHOP, "/change"), "Content-Length: 0\r\n");
    assert_eq!(hits(), [false, false, true]);
    assert_eq!(hits(), [true; 3]);
    ask_host(&larder, ("DELETE", SHOP, "/files/page"), "");
    assert_eq!(hits(), [true, false, true]);
}

#[test]
fn each_store_has_its_own_limits_and_evicts_nothing_in_another() {
    let fields = "Cache-Control: max-age=3600\r\nVary: Accept-Language\r\n";
    let origin = ScriptedOrigin::fixed(fields, vec![b'x'; 100 << 10]);
    let limits = "[store]\nmemory = \"8MiB\"\n[stores.static]\nmemory = \"4MiB\"\nvariants_max = 1\n";
    let larder = with(&[limits, &site(SHOP, "default"), &site(ASSETS, "static")].concat(), &origin);
    let kept: Vec<String> = (0..20).map(|number| format!("/kept/{number}")).collect();
    kept.iter().for_each(|target| drop(get_of(&larder, SHOP, target)));
    (0..200).for_each(|number| drop(get_of(&larder, ASSETS, &format!("/{number}"))));
    let of = |name: &str| {
        let of_static = larder.metric(name, &["store=\"static\""]);
        [larder.metric(name, &[]) - of_static, of_static]
    };
    let [in_first, in_static] = of("larder_store_evictions_total");
    assert!(in_first == 0.0 && in_static >= 100.0, "{in_first} {in_static}");
    assert!(kept.iter().all(|target| get_of(&larder, SHOP, target).is_hit()));
    assert_eq!(of("larder_store_max_bytes"), [f64::from(8 << 20), f64::from(4 << 20)]);
    assert!(of("larder_store_bytes")[1] <= f64::from(4 << 20));
    assert_eq!(of("larder_store_entries")[0], 20.0);
    let hits = |host: &str| {
        let ask =
            |language| ask_host(&larder, ("GET", host, "/"), &format!("Accept-Language: {language}\r\n"));
        ["de", "en", "de"].map(|language| ask(language).is_hit())
    };
    assert_eq!(hits(SHOP), [false, false, true]);
    assert_eq!(hits(ASSETS), [false, false, false], "one variant makes room for the other");
}

#[test]
fn a_reload_moves_no_site_and_loses_nothing() {
    let origin = ScriptedOrigin::fixed("Cache-Control: max-age=3600\r\n", "x");
    let named = "[stores.static]\nvariants_max = 2\n";
    let mut larder = with(&[named, &site(SHOP, "default"), &site(ASSETS, "static")].concat(), &origin);
    [SHOP, ASSETS].iter().for_each(|host| drop(get_of(&larder, host, "/page")));
    let mut reload = |text: &[&str]| {
        larder.write_config(&filled(&text.concat(), &origin));
        let answer = larder.ask_admin("POST", "/reload", "");
        let hits = [SHOP, ASSETS].map(|host| get_of(&larder, host, "/page").is_hit());
        assert_eq!(hits, [true; 2], "{}", answer.text());
        (answer.status(), answer.text())
    };
    let stays = "changed, but takes effect only after a restart";
    let (status, told) = reload(&[named, &site(SHOP, "static"), &site(ASSETS, "static")]);
    assert!(status == 200 && told.contains(&format!("site[shop].store: {stays}")), "{told}");
    let (status, told) = reload(&[&site(SHOP, "default"), &site(ASSETS, "static")]);
    assert!(status == 422 && told.contains("no store is named"), "as at a start: {status} {told}");
    let added = "[stores.new]\nmemory = \"4MiB\"\n";
    let (status, told) = reload(&[added, named, &site(SHOP, "new"), &site(ASSETS, "static")]);
    assert!(status == 200 && told.contains(&format!("stores.new: {stays}")), "{told}");
    assert!(told.contains(&format!("site[shop].store: {stays}")), "{told}");
    // Some settings may change, and a new site may use any running store.
    let changed = "[stores.static]\nvariants_max = 3\n";
    let third = site("third.test", "static");
    let (status, told) = reload(&[changed, &site(SHOP, "default"), &site(ASSETS, "static"), &third]);
    assert!(status == 200 && told.contains("\"warnings\":[]"), "{told}");
    let fourth = site("fourth.test", "new");
    let (status, told) = reload(&[added, changed, &site(SHOP, "default"), &site(ASSETS, "static"), &fourth]);
    assert!(status == 422 && told.contains("no store is named"), "{status} {told}");
}

#[test]
fn doctor_looks_at_the_server_of_each_store() {
    let (shop, assets) = (Redis::start(""), Redis::start("maxmemory 64mb\nmaxmemory-policy volatile-lfu"));
    let origin = ScriptedOrigin::fixed("", "x");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("larder.toml");
    std::fs::write(&file, config(&origin, &shop, &assets)).expect("a file in the folder");
    let told = run(LARDER, ["doctor", "--config", &file.display().to_string()]);
    assert_eq!(told.status, 1, "the first has no limit: {}", told.text());
    let text = told.text();
    let (of_shop, of_assets) = text.split_once("[stores.static]").expect("a heading");
    assert!(of_shop.contains("SET   maxmemory of the store"), "{text}");
    assert!(of_assets.contains("good  maxmemory of the store = 64MiB"), "{text}");
}

/// Each refusal is logged once, with the message of the server, and doctor finds all of them.
#[test]
fn a_store_user_that_may_not_do_everything_is_told_of() {
    let redis = Redis::start("");
    assert_eq!(redis.command("ACL SETUSER larder on >secret ~* &* +@all -del -exec -time -role"), "+OK");
    let origin = ScriptedOrigin::fixed("Cache-Control: max-age=60\r\n", "x");
    let remote = format!("[store.remote]\nurl = \"redis://{}/0\"\nusername = \"larder\"\n", redis.address());
    let text = filled(&format!("{remote}password_file = \"@dir@/secret\"\n@site@"), &origin);
    let larder = Setup::config(LARDER, &text).file("secret", "secret\n").start();
    let told = || -> Vec<String> {
        let of_refusals =
            |line: &&str| line.contains("the shared store refuses a command: see `larder doctor`");
        larder.stderr().lines().filter(of_refusals).map(str::to_owned).collect()
    };
    wait::until_true("the log names EXEC, which fails a whole transaction", || {
        assert_eq!(larder.ask("GET", "/", "Cache-Control: no-cache\r\n").status(), 200);
        told().iter().any(|line| line.contains("'exec'"))
    });
    let told = told();
    assert!(told.iter().all(|line| line.contains("'del'") || line.contains("'exec'")), "{told:?}");
    let file = larder.folder().join("larder.toml");
    let doctor = run(LARDER, ["doctor", "--config", &file.display().to_string()]);
    assert_eq!(doctor.status, 1, "{}", doctor.text());
    assert!(doctor.text().contains("without EXEC, DEL, ROLE, TIME"), "{}", doctor.text());
}
