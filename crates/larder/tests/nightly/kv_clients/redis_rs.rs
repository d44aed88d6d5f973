//! redis-rs: blocking, and asynchronous with client-side caching.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use redis::caching::CacheConfig;
use redis::{
    AsyncCommands as _, AsyncConnectionConfig, Client, Commands as _, Connection, ErrorKind, ExistenceCheck,
    RedisError, RedisResult, ServerErrorKind, SetExpiry, SetOptions, cmd, pipe,
};
use testkit::wait;

use super::server::{Entrance, Kind, PASSWORD, Server};

fn client(address: SocketAddr, more: &str) -> Client {
    Client::open(format!("redis://{more}{address}/?protocol=resp3")).expect("a good URL")
}

fn connect(server: &Server) -> Connection {
    client(server.address(), "").get_connection().expect("it connects")
}

/// Runs a check with both servers. Redis goes first, to verify the check.
fn check(check: fn(&mut Server)) {
    for kind in [Kind::Redis, Kind::Larder] {
        check(&mut Server::start(kind, Entrance::Open));
    }
}

fn every() -> Vec<u8> {
    (0..=255).collect()
}

#[test]
fn a_connection_is_made_and_made_again() {
    check(|server| {
        // RESP2 is the client's default.
        let plain = Client::open(format!("redis://{}/5", server.address())).expect("a good URL");
        for (client, version) in [(plain, "resp=2"), (client(server.address(), ""), "resp=3")] {
            let mut connection = client.get_connection().expect("it connects");
            let info: String = cmd("CLIENT").arg("INFO").query(&mut connection).expect("an answer");
            assert!(info.contains(version), "{info}");
        }
        let mut client = connect(server);
        assert_eq!(client.set("before", "x"), Ok(()));
        server.restart();
        let error: RedisError = client.set::<_, _, ()>("after", "x").expect_err("the server has gone");
        assert!(error.is_io_error() || error.is_connection_dropped(), "{error}");
        let mut client = connect(server);
        assert_eq!((client.get("before"), client.set("after", "x")), (Ok(None::<String>), Ok(())));
    });
}

#[test]
fn strings_are_kept_and_expire() {
    check(|server| {
        // `conformance/resp` has all forms of these commands.
        let mut client = connect(server);
        assert_eq!(client.get("missing"), Ok(None::<String>));
        assert_eq!(client.set("key", "value"), Ok("OK".to_owned()));
        let absent = SetOptions::default().conditional_set(ExistenceCheck::NX);
        assert_eq!(client.set_options("key", "other", absent), Ok(None::<String>));
        assert_eq!(client.getrange("key", -2, -1), Ok("ue".to_owned()));
        assert_eq!((client.incr("n", 1), client.incr("n", 0.5)), (Ok(1), Ok(1.5)));
        client.mset::<_, _, ()>(&[("a", "1"), ("b", "2")]).expect("it is set");
        assert_eq!(client.mget(&["a", "b", "c"]), Ok((1, 2, None::<String>)));
        assert_eq!((client.exists("c"), client.del(&["a", "b"])), (Ok(false), Ok(2)));
        let error = |result: RedisResult<i64>| result.expect_err("an error").to_string();
        assert!(error(client.incr("key", 1)).contains("value is not an integer or out of range"));
        assert!(error(cmd("NOPE").arg("x").query(&mut client)).contains("unknown command"));

        let short = SetOptions::default().with_expiration(SetExpiry::PX(50));
        client.set_options::<_, _, ()>("short", "x", short).expect("it is set");
        wait::until_true("it expires", || client.get("short") == Ok(None::<String>));
        client.set_ex::<_, _, ()>("long", "x", 100).expect("it is set");
        assert!(client.ttl::<_, i64>("long").is_ok_and(|seconds| seconds > 90));
    });
}

#[test]
fn any_bytes_and_many_keys_go_through_pipelines() {
    check(|server| {
        let mut client = connect(server);
        let large = every().repeat(8 << 12);
        for value in [every(), Vec::new(), large] {
            client.set::<_, _, ()>(every(), &value).expect("it is set");
            let given: Vec<u8> = client.get(every()).expect("it is there");
            assert!(given == value, "a value of {} bytes", value.len());
        }
        let mut pipeline = pipe();
        for number in 0..5000 {
            pipeline.set(format!("pipe-{number}"), number).ignore().get(format!("pipe-{number}"));
        }
        assert_eq!(pipeline.query(&mut client), Ok((0..5000).collect::<Vec<_>>()));
        let keys = client.scan_match("pipe-1???").expect("it begins");
        let keys: HashSet<String> = keys.map(|key| key.expect("a key")).collect();
        assert_eq!(keys.len(), 1000);
    });
}

#[test]
fn messages_are_heard() {
    check(|server| {
        let (mut client, mut other) = (connect(server), connect(server));
        let mut listener = other.as_pubsub();
        listener.subscribe(&["news", "sport"]).expect("it subscribes");
        listener.psubscribe("n*").expect("it subscribes");
        // With RESP3, the client doesn't wait for the confirmation of the subscription.
        wait::until_true("both are subscribed", || {
            let channels: Vec<String> = cmd("PUBSUB").arg("CHANNELS").query(&mut client).expect("an answer");
            channels.len() == 2 && cmd("PUBSUB").arg("NUMPAT").query(&mut client) == Ok(1)
        });
        assert_eq!(client.publish("news", every()), Ok(2));
        for _ in 0..2 {
            let message = listener.get_message().expect("a message");
            assert_eq!((message.get_channel_name(), message.get_payload_bytes()), ("news", &every()[..]));
        }
        listener.unsubscribe(&["news", "sport"]).expect("it unsubscribes");
        listener.punsubscribe("n*").expect("it unsubscribes");
        drop(listener);
        wait::until_true("it has no subscriber", || client.publish("news", "nobody") == Ok(0));
        assert_eq!(other.set("while", "the connection is usable"), Ok(()));
    });
}

#[test]
fn transactions_are_all_or_nothing() {
    check(|server| {
        let (mut client, mut other) = (connect(server), connect(server));
        let replies = pipe().atomic().set("t", 1).incr("t", 1).get("t").query(&mut client);
        assert_eq!(replies, Ok(("OK".to_owned(), 2, "2".to_owned())));
        let mut attempts = 0;
        let doubled = redis::transaction(&mut client, &["t"], |client, pipeline| {
            attempts += 1;
            let value: i64 = client.get("t")?;
            if attempts == 1 {
                other.set::<_, _, ()>("t", 10)?;
            }
            pipeline.set("t", value * 2).ignore().get("t").query(client)
        });
        assert_eq!((doubled, attempts), (Ok((20,)), 2), "the second attempt sees the change in between");
        client.set::<_, _, ()>("text", "x").expect("it is set");
        let failed = pipe().atomic().set("t", 1).incr("text", 1).query::<(String, i64)>(&mut client);
        assert!(failed.expect_err("an error").to_string().contains("not an integer"));
        let refused = pipe().atomic().set("t", 2).cmd("NOPE").query::<(String, i64)>(&mut client);
        let kind = refused.expect_err("an error").kind();
        assert!(matches!(kind, ErrorKind::Server(ServerErrorKind::ExecAbort)), "{kind:?}");
        assert_eq!(client.get("t"), Ok(1));
    });
}

#[test]
fn its_cache_is_told_of_changes() {
    check(|server| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(cached(server.address())).expect("no error");
    });
}

async fn cached(address: SocketAddr) -> RedisResult<()> {
    let config = AsyncConnectionConfig::new().set_cache_config(CacheConfig::new());
    let mut client = client(address, "").get_multiplexed_async_connection_with_config(&config).await?;
    let mut other = self::client(address, "").get_multiplexed_async_connection().await?;
    for value in ["old", "new", ""] {
        if value.is_empty() {
            cmd("FLUSHALL").exec_async(&mut other).await?;
        } else {
            other.set::<_, _, ()>("cached", value).await?;
        }
        let end = std::time::Instant::now() + wait::DEADLINE;
        while client.get::<_, Option<String>>("cached").await?.unwrap_or_default() != value {
            assert!(std::time::Instant::now() < end, "the change to {value:?} is not seen");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let hits = client.get_cache_statistics().map_or(0, |counts| counts.hit);
        client.get::<_, Option<String>>("cached").await?;
        assert_eq!(client.get_cache_statistics().map(|counts| counts.hit), Some(hits + 1));
    }
    Ok(())
}

#[test]
fn a_password_is_asked_for() {
    for kind in [Kind::Redis, Kind::Larder] {
        let server = Server::start(kind, Entrance::Locked);
        let open = |password: &str| client(server.address(), password).get_connection();
        open(&format!(":{PASSWORD}@")).expect("the password is right");
        let wrong = open(":wrong@").err().expect("it is wrong");
        assert!(wrong.to_string().contains("WRONGPASS"), "{wrong}");
        let none = open("").err().expect("one is needed");
        assert!(none.to_string().contains("NOAUTH"), "{none}");
    }
}
