//! A single silent connection while the others work, as in some networks; and slow connections.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use store::backing::{Backing, CopyStatus, Expected, Tracking};
use store::remote::{Remote, RemoteSettings};
use store::{FillId, SegmentId};
use testkit::{FaultProxy, Faults, Redis};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::kit::{connected, follow, load, put, settings, until, write};

const CONTROL: Range<usize> = 0..1;
const BULK: Range<usize> = 1..2;
const EXCLUSIVE: Range<usize> = 2..3;
/// One-way delay to a distant server. Opening a connection takes two of these delays (none for TCP), and using it four.
const ONE_WAY: Duration = Duration::from_millis(ONE_WAY_MS);
const ONE_WAY_MS: u64 = 20;
/// Deadline for a caller.
const DEADLINE: Duration = Duration::from_millis(50);

/// Proxy that forwards all connections, but drops the clients' data on connections whose numbers are in `silent`.
struct Proxy {
    address: SocketAddr,
    silent: Arc<Mutex<Range<usize>>>,
}

impl Proxy {
    async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, silent) = (listener.local_addr().unwrap(), Arc::<Mutex<Range<usize>>>::default());
        let known = Arc::clone(&silent);
        tokio::spawn(async move {
            for number in 0.. {
                let (client, _) = listener.accept().await.unwrap();
                let server = TcpStream::connect(target).await.unwrap();
                let ((from, mut to_client), (mut answers, to)) = (client.into_split(), server.into_split());
                tokio::spawn(pass_on(from, to, number, Arc::clone(&known)));
                tokio::spawn(async move { copy(&mut answers, &mut to_client).await });
            }
        });
        Self { address, silent }
    }

    async fn remote(&self, redis: &Redis) -> Arc<Remote> {
        let direct = settings(redis);
        let through = RemoteSettings::from_url(&format!("redis://{}", self.address)).unwrap();
        let verification = direct.verification / 4;
        connected(RemoteSettings { address: through.address, verification, ..direct }).await
    }

    fn silence(&self, numbers: Range<usize>) {
        *self.silent.lock() = numbers;
    }
}

async fn pass_on(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    number: usize,
    silent: Arc<Mutex<Range<usize>>>,
) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if !silent.lock().contains(&number) && to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn control_is_given_up_with_its_source() {
    let redis = Redis::start("");
    let proxy = Proxy::start(redis.address()).await;
    let tier = proxy.remote(&redis).await;
    put(&tier, b"key", b"one").await;
    let copy = follow(&tier, b"key").await;
    proxy.silence(CONTROL);
    until("it is no longer verified", async || tier.standing(copy.source) != CopyStatus::Verified).await;
    until("another one answers", async || tier.load(&[b"key"], Tracking::Off).await.is_ok()).await;
    assert!(load(&tier, b"key").await.unwrap().source.generation > copy.source.generation);
}

#[tokio::test]
async fn bulk_is_given_up_alone() {
    let redis = Redis::start("");
    let proxy = Proxy::start(redis.address()).await;
    let tier = proxy.remote(&redis).await;
    put(&tier, b"key", b"one").await;
    let copy = follow(&tier, b"key").await;
    proxy.silence(BULK);
    let id = SegmentId { fill: FillId::next(), index: 0 };
    let stored = tier.put_segment(id, Bytes::from_static(b"x"), Duration::from_secs(60));
    assert!(stored.await.is_err(), "it waits until the connection is closed");
    until("another one answers", async || tier.load_segments(id.fill, &[0]).await.is_ok()).await;
    assert_eq!(tier.standing(copy.source), CopyStatus::Verified);
}

#[tokio::test]
async fn an_exclusive_connection_is_not_used_again_after_a_deadline() {
    let redis = Redis::start("");
    let proxy = Proxy::start(redis.address()).await;
    let tier = proxy.remote(&redis).await;
    put(&tier, b"key", b"one").await;
    let known = load(&tier, b"key").await.unwrap();
    let upon = || tier.put(b"key", write(b"one", Expected::Is(&known)));
    upon().await.unwrap();
    proxy.silence(EXCLUSIVE);
    assert!(timeout(DEADLINE, upon()).await.is_err());
    let stored = timeout(DEADLINE * 20, upon()).await.expect("another one answers");
    stored.unwrap();
}

/// Opening a connection takes less than the deadline, but opening it and executing the operation takes more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exclusive_connection_is_kept_that_answers_after_a_deadline() {
    let redis = Redis::start("");
    let proxy = FaultProxy::start(redis.address());
    let direct = settings(&redis);
    let through = RemoteSettings::from_url(&format!("redis://{}", proxy.address())).unwrap();
    let tier = connected(RemoteSettings { address: through.address, ..direct }).await;
    put(&tier, b"key", b"one").await;
    let known = load(&tier, b"key").await.unwrap();
    proxy.set(Faults { latency_ms: ONE_WAY_MS, ..Faults::default() });
    until("one of them is used again", async || {
        let put = timeout(ONE_WAY * 5, tier.put(b"key", write(b"one", Expected::Is(&known)))).await;
        put.is_ok_and(|put| put.is_ok())
    })
    .await;
}
