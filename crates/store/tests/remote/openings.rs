//! Connecting to a server, and logging in.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use store::backing::{Backing, Tracking};
use store::remote::{Remote, RemoteSettings, Secret, Word, examine};
use testkit::{Authority, FaultProxy, Faults, Port, Redis};
use tokio::time::Instant;

use crate::kit::{VERIFICATION, connected, load, names, put, remote, settings, told, until};

const PASSWORD: &str = "quiet/place@night";

async fn works(settings: RemoteSettings) {
    let tier = connected(RemoteSettings { verification: VERIFICATION, ..settings }).await;
    put(&tier, b"key", b"one").await;
    assert_eq!(load(&tier, b"key").await.unwrap().bytes, b"one"[..]);
    let ahead = tier.clock_ahead_ms().expect("heartbeats have reported it");
    assert!(ahead.abs() < 1000, "the clock of the same machine is {ahead} ms ahead");
}

#[tokio::test]
async fn a_server_is_examined_before_use() {
    let redis = Redis::start(&format!(
        "maxmemory 100mb\nmaxmemory-policy volatile-lfu\nuser less on >{PASSWORD} ~larder:* +@all -append -role -config -info"
    ));
    let all = examine(&settings(&redis)).await.unwrap();
    assert!(all.version.as_deref().is_some_and(|version| version.starts_with("redis 7.")), "{all:?}");
    assert_eq!(
        (all.memory_bytes_max, all.eviction_policy.as_deref()),
        (Some(100 << 20), Some("volatile-lfu"))
    );
    assert_eq!((all.tracked_keys_max, all.is_master, all.tracks), (Some(1_000_000), Some(true), true));
    assert!(all.refused.is_empty() && all.clock_ahead_ms.is_some_and(|ahead| ahead.abs() < 1000), "{all:?}");
    assert!(names(&redis, "larder:*").is_empty(), "nothing is left of it");
    let (username, password) = (Some("less".into()), Some(Secret::new(PASSWORD)));
    let less = examine(&RemoteSettings { username, password, ..settings(&redis) }).await.unwrap();
    assert_eq!(less.refused, ["APPEND", "ROLE"]);
    assert_eq!((less.version, less.is_master, less.eviction_policy), (None, None, None));
    let nobody = settings(&redis);
    drop(redis);
    examine(&nobody).await.unwrap_err();
}

/// Checks that logging in fails, and that the reason contains `why` but nothing secret.
async fn fails(settings: RemoteSettings, why: &str) {
    let tier = Remote::connect(&RemoteSettings { verification: VERIFICATION, ..settings });
    until("it says why", async || tier.trouble().is_some_and(|text| text.contains(why))).await;
    let error = tier.load(&[b"key"], Tracking::Off).await.unwrap_err();
    let text = told(&error);
    assert!(text.contains(why) && !text.contains(PASSWORD) && !text.contains("quiet"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[tokio::test]
async fn a_password_is_needed() {
    let redis = Redis::start(&format!("requirepass {PASSWORD}"));
    let with = |password: &str| RemoteSettings { password: Some(Secret::new(password)), ..settings(&redis) };
    works(with(PASSWORD)).await;
    fails(with("quiet/place@day"), "WRONGPASS").await;
    fails(settings(&redis), "NOAUTH").await;
    let url = format!("redis://:quiet%2Fplace%40night@{}", redis.address());
    works(RemoteSettings::from_url(&url).unwrap()).await;
}

#[tokio::test]
async fn a_user_may_have_just_what_is_used() {
    let redis = Redis::start(&format!(
        "user larder on >{PASSWORD} ~larder:* -@all +hello +select +client|tracking +client|caching +time +set +getrange +unlink \
         +del +pttl +pexpire +rename +strlen +append +multi +exec +watch +unwatch +ping\nuser nobody on >{PASSWORD} ~larder:* -@all +hello"
    ));
    let with = |user: &str| {
        let (username, password) = (Some(user.into()), Some(Secret::new(PASSWORD)));
        RemoteSettings { username, password, ..settings(&redis) }
    };
    let (own, other) = (connected(with("larder")).await, connected(with("larder")).await);
    let bench = store::backing::suite::Bench { own, other, verification: VERIFICATION };
    store::backing::suite::check(&bench).await.unwrap();
    fails(with("nobody"), "NOPERM").await;
}

#[tokio::test]
async fn databases_and_prefixes_are_apart() {
    let redis = Redis::start("");
    let first = remote(&redis).await;
    let second = connected(RemoteSettings { database: 3, ..settings(&redis) }).await;
    let prefix = Word::new("other:").unwrap();
    let third = connected(RemoteSettings { prefix, ..settings(&redis) }).await;
    put(&first, b"key", b"first").await;
    assert_eq!((load(&second, b"key").await, load(&third, b"key").await), (None, None));
    put(&second, b"key", b"second").await;
    assert_eq!(load(&first, b"key").await.unwrap().bytes, b"first"[..]);
    fails(RemoteSettings { database: 99, ..settings(&redis) }, "out of range").await;
}

#[tokio::test]
async fn sockets_of_this_machine_do() {
    let redis = Redis::start("unixsocket @dir@/redis.sock");
    let url = format!("unix://{}/redis.sock?db=1", redis.folder().display());
    works(RemoteSettings::from_url(&url).unwrap()).await;
    let url = format!("unix://{}/none.sock", redis.folder().display());
    fails(RemoteSettings::from_url(&url).unwrap(), "No such file").await;
}

/// The default `connect_timeout` is a second. The proxy is local and TLS is off, so the count excludes their round trips.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_may_be_far_away() {
    const ONE_WAY_MS: u64 = 100;
    let redis = Redis::start("");
    let proxy = FaultProxy::start(redis.address());
    proxy.set(Faults { latency_ms: ONE_WAY_MS, ..Faults::default() });
    let through = RemoteSettings::from_url(&format!("redis://{}", proxy.address())).unwrap();
    let begun = Instant::now();
    let tier = connected(through).await;
    let round_trips = begun.elapsed().as_millis() / u128::from(2 * ONE_WAY_MS);
    assert!((2..4).contains(&round_trips), "{round_trips} round trips");
    put(&tier, b"key", b"one").await;
    assert_eq!(load(&tier, b"key").await.unwrap().bytes, b"one"[..]);
}

fn trusting(authority: &Authority) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority.file()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
}

#[tokio::test]
async fn certificates_are_checked() {
    let authority = Authority::new();
    let identity = authority.identity(&["localhost"]);
    let port = Port::reserve();
    let redis = Redis::start(&format!(
        "tls-port {}\ntls-cert-file {}\ntls-key-file {}\ntls-ca-cert-file {}\ntls-auth-clients no",
        port.address().port(),
        identity.certificate.display(),
        identity.key.display(),
        authority.file().display(),
    ));
    let with = |host: &str, tls| {
        let settings =
            RemoteSettings::from_url(&format!("rediss://{host}:{}", port.address().port())).unwrap();
        RemoteSettings { tls, ..settings }
    };
    works(with("localhost", Some(trusting(&authority)))).await;
    fails(with("127.0.0.1", Some(trusting(&authority))), "not valid for name").await;
    fails(with("localhost", Some(trusting(&Authority::new()))), "certificate").await;
    fails(with("localhost", None), "certificate").await;
    drop(redis);
}

/// Another program listens on the port.
#[tokio::test]
async fn what_is_no_server_of_the_protocol_is_told() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let answer = b"HTTP/1.1 400 Bad Request\r\n\r\n";
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, answer).await;
        }
    });
    let settings = RemoteSettings::from_url(&url).unwrap();
    fails(settings, "the server refused the handshake").await;
}

/// A server may stop at any moment, even just after HELLO: the client retries.
#[tokio::test]
async fn who_stands_still_after_hello_is_tried_again() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let settings = RemoteSettings::from_url(&format!("redis://{}", listener.local_addr().unwrap())).unwrap();
    let tier = Remote::connect(&RemoteSettings { connect_timeout: VERIFICATION / 8, ..settings });
    for _ in 0..3 {
        let (stream, _) = listener.accept().await.unwrap();
        tokio::spawn(says_hello(stream));
    }
    until("it says why", async || {
        tier.trouble().is_some_and(|why| why.contains("no connection within 100 ms"))
    })
    .await;
}

async fn says_hello(mut stream: tokio::net::TcpStream) {
    let mut asked = [0; 1000];
    while tokio::io::AsyncReadExt::read(&mut stream, &mut asked).await.is_ok_and(|bytes| bytes > 0) {
        if asked.windows(5).any(|word| word == b"HELLO") {
            tokio::io::AsyncWriteExt::write_all(&mut stream, b"%1\r\n+server\r\n+silent\r\n").await.unwrap();
            asked = [0; 1000];
        }
    }
}
