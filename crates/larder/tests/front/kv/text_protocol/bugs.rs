//! What is known to go wrong in poor-man-s-cache, number by number; none of it does here.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use testkit::{KvService, converse, wait};

use super::UNIT_SEPARATOR;
use super::messages::ask;
use crate::LARDER;

fn connect(kv: &KvService) -> TcpStream {
    let stream = TcpStream::connect(kv.address()).expect("it listens");
    stream.set_nodelay(true).expect("a socket option");
    stream.set_read_timeout(Some(wait::DEADLINE)).expect("a time limit");
    stream.set_write_timeout(Some(wait::DEADLINE)).expect("a time limit");
    stream
}

/// Sends it, and reads as many bytes as are expected.
#[track_caller]
fn check(stream: &mut TcpStream, requests: &[u8], replies: &[u8]) {
    stream.write_all(requests).expect("it reads");
    let mut given = vec![0; replies.len()];
    stream.read_exact(&mut given).expect("it answers");
    assert_eq!(String::from_utf8_lossy(&given), String::from_utf8_lossy(replies));
}

/// 1. A connection that is idle for too long stops the whole server.
#[test]
fn an_idle_client_is_closed_and_others_go_on() {
    let kv = KvService::start(LARDER, &format!("{UNIT_SEPARATOR}[kv.limits]\nidle_timeout = \"300ms\""));
    let (mut idle, mut busy) = (connect(&kv), connect(&kv));
    check(&mut idle, b"SET a 1\x1f", b"OK\x1f");
    idle.set_nonblocking(true).expect("a socket option");
    wait::until_true("it is closed", || {
        check(&mut busy, b"GET a\x1f", b"1\x1f");
        matches!(idle.read(&mut [0]), Ok(0))
    });
    check(&mut busy, b"GET a\x1f", b"1\x1f");
    check(&mut connect(&kv), b"GET a\x1f", b"1\x1f");
}

/// 2. More than 512 replies (1,024 of the Redis protocol) to what one read brings are lost.
#[test]
fn no_number_of_replies_is_too_many() {
    let kv = KvService::start(LARDER, UNIT_SEPARATOR);
    let mut stream = connect(&kv);
    for (request, reply) in [("GET none\x1f", "(nil)\x1f"), ("*2\r\n$3\r\nGET\r\n$4\r\nnone\r\n", "$-1\r\n")]
    {
        for count in [511, 513, 1023, 1025, 10_000] {
            check(&mut stream, request.repeat(count).as_bytes(), reply.repeat(count).as_bytes());
        }
    }
}

/// 3. A value that is read is freed by a SET or DEL in the same batch, before it is sent.
#[test]
fn a_reply_keeps_its_value_whatever_comes_after() {
    let kv = KvService::start(LARDER, UNIT_SEPARATOR);
    let (old, new) = ("o".repeat(100_000), "n".repeat(100_000));
    let requests = format!("SET a {old}\x1fGET a\x1fSET a {new}\x1fGET a\x1fDEL a\x1fGET a\x1f").repeat(8);
    let replies = format!("OK\x1f{old}\x1fOK\x1f{new}\x1fOK\x1f(nil)\x1f").repeat(8);
    let given = converse(kv.address(), requests.as_bytes(), usize::MAX);
    assert!(given == replies.as_bytes(), "{} bytes instead of {}", given.len(), replies.len());

    let set = |value: &str| format!("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$100000\r\n{value}\r\n");
    let (get, del) = ("*2\r\n$3\r\nGET\r\n$1\r\na\r\n", "*2\r\n$3\r\nDEL\r\n$1\r\na\r\n");
    let requests = format!("{}{get}{}{get}{del}{get}", set(&old), set(&new)).repeat(8);
    let replies = format!("+OK\r\n$100000\r\n{old}\r\n+OK\r\n$100000\r\n{new}\r\n:1\r\n$-1\r\n").repeat(8);
    let given = converse(kv.address(), requests.as_bytes(), usize::MAX);
    assert!(given == replies.as_bytes(), "{} bytes instead of {}", given.len(), replies.len());
}

/// 4. Every GET of a compressed value leaks it.
#[test]
fn reading_takes_no_memory() {
    let kv = KvService::start(LARDER, UNIT_SEPARATOR);
    let value = "{\"key\": \"value\"} ".repeat(4_000);
    let mut stream = connect(&kv);
    check(&mut stream, format!("SET a {value}\x1f").as_bytes(), b"OK\x1f");
    let (requests, replies) = ("GET a\x1f".repeat(100), format!("{value}\x1f").repeat(100));
    check(&mut stream, requests.as_bytes(), replies.as_bytes());
    let before = kv.service.resident_bytes();
    (0..20).for_each(|_| check(&mut stream, requests.as_bytes(), replies.as_bytes()));
    let grown = kv.service.resident_bytes().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes more after 136 MB of values were read");
}

/// 5. Overwriting counts as adding and deleting counts not, so that the table grows until it breaks.
#[test]
fn overwriting_and_deleting_leave_nothing_behind() {
    let kv = KvService::start(LARDER, UNIT_SEPARATOR);
    let mut stream = connect(&kv);
    let round = |stream: &mut TcpStream| {
        let sets: String = (0..1000).map(|key| format!("SET k{key} value\x1f")).collect();
        let dels: String = (0..1000).map(|key| format!("DEL k{key}\x1f")).collect();
        for requests in [&sets, &sets, &dels] {
            check(stream, requests.as_bytes(), "OK\x1f".repeat(1000).as_bytes());
        }
    };
    round(&mut stream);
    let used = || kv.metric("larder_kv_memory_bytes").expect("it is measured");
    let before = used();
    (0..30).for_each(|_| round(&mut stream));
    assert_eq!(kv.metric("larder_kv_keys"), Some(0.0));
    assert!(used() - before < 512.0 * 1024.0, "{} bytes, then {}", before, used());
}

/// 6. SET after a DEL takes a slot without looking for its key behind it: the old value comes back.
#[test]
fn a_key_is_there_once() {
    let kv = KvService::start(LARDER, UNIT_SEPARATOR);
    let keys = 5_000;
    let sets = |value: &str| (0..keys).map(|key| format!("SET k{key} {value}\x1f")).collect::<String>();
    let of = |verb: &str, step| {
        (0..keys).step_by(step).map(|key| format!("{verb} k{key}\x1f")).collect::<String>()
    };
    let mut stream = connect(&kv);
    check(&mut stream, sets("old").as_bytes(), "OK\x1f".repeat(keys).as_bytes());
    check(&mut stream, of("DEL", 2).as_bytes(), "OK\x1f".repeat(keys / 2).as_bytes());
    check(&mut stream, sets("new").as_bytes(), "OK\x1f".repeat(keys).as_bytes());
    assert_eq!(kv.metric("larder_kv_keys"), Some(5_000.0));
    check(&mut stream, of("GET", 1).as_bytes(), "new\x1f".repeat(keys).as_bytes());
    check(&mut stream, of("DEL", 1).as_bytes(), "OK\x1f".repeat(keys).as_bytes());
    check(&mut stream, of("GET", 1).as_bytes(), "(nil)\x1f".repeat(keys).as_bytes());
}

/// 7. A request of the Redis protocol that is split behind `*`, `$` or `\r` closes the connection.
#[test]
fn a_split_anywhere_is_no_error() {
    let kv = KvService::start(LARDER, UNIT_SEPARATOR);
    let request = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\nvv\r\n";
    for split in 1..request.len() {
        let mut stream = connect(&kv);
        stream.write_all(&request[..split]).expect("it reads");
        // Another connection's reply shows that the first part has been read.
        check(&mut connect(&kv), b"GET none\x1f", b"(nil)\x1f");
        check(&mut stream, &request[split..], b"+OK\r\n");
        check(&mut stream, b"GET k\x1f", b"vv\x1f");
    }
}

/// 8. Values end at their first NUL; a client that goes away, or does not read, stops the others.
#[test]
fn any_byte_is_kept_and_nobody_waits_for_others() {
    let kv = KvService::start(LARDER, &format!("{UNIT_SEPARATOR}workers = 1"));
    let value: Vec<u8> = (0..=255).collect();
    let set = [&b"*3\r\n$3\r\nSET\r\n$3\r\na\0b\r\n$256\r\n"[..], &value, b"\r\n"].concat();
    let reply = [&b"+OK\r\n$256\r\n"[..], &value, b"\r\n"].concat();
    check(&mut connect(&kv), &[&set[..], b"*2\r\n$3\r\nGET\r\n$3\r\na\0b\r\n"].concat(), &reply);

    let large = format!("SET large {}\x1f", "l".repeat(1 << 20));
    check(&mut connect(&kv), large.as_bytes(), b"OK\x1f");
    let mut deaf: Vec<_> = (0..10).map(|_| connect(&kv)).collect();
    deaf.iter_mut()
        .for_each(|stream| stream.write_all("GET large\x1f".repeat(20).as_bytes()).expect("it reads"));
    // These are gone before their replies come.
    (0..10).for_each(|_| connect(&kv).write_all("GET large\x1f".repeat(20).as_bytes()).expect("it reads"));
    let begin = Instant::now();
    (0..100).for_each(|_| check(&mut connect(&kv), b"GET none\x1f", b"(nil)\x1f"));
    assert!(begin.elapsed() < wait::DEADLINE);
}

/// 9. Two threads use the table of connections at once, mostly without its lock.
#[test]
fn connections_come_and_go_on_all_workers() {
    let kv = KvService::start(LARDER, &format!("{UNIT_SEPARATOR}workers = 4"));
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let kv = &kv;
            scope.spawn(move || {
                for round in 0..100 {
                    let request = format!("SET k{thread} v{round}\x1fGET k{thread}\x1f");
                    check(&mut connect(kv), request.as_bytes(), format!("OK\x1fv{round}\x1f").as_bytes());
                }
            });
        }
    });
}

/// 10 and 11. Sizes of the table that are no primes, and a hash whose seed is known: keys collide until SET fails. Here the seed is drawn at each
/// start, so no list of keys is bad; this many fit whatever their hashes.
#[test]
fn sets_do_not_fail_for_their_neighbours() {
    let kv = KvService::start(LARDER, UNIT_SEPARATOR);
    let mut stream = connect(&kv);
    for batch in 0..100 {
        let sets: String = (0..1000).map(|key| format!("SET key{} value\x1f", batch * 1000 + key)).collect();
        check(&mut stream, sets.as_bytes(), "OK\x1f".repeat(1000).as_bytes());
    }
    assert_eq!(kv.metric("larder_kv_keys"), Some(100_000.0));
    assert_eq!(ask(&kv, &["GET key0", "GET key99999"]), ["value", "value"]);
}
