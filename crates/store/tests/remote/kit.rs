//! Instances connected to a server, and a watcher.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use store::backing::suite::Bench;
use store::backing::{
    Backing, BackingError, CopyStatus, Expected, Loaded, PutOutcome, Source, Tracking, Watcher, Write,
};
use store::remote::{Remote, RemoteSettings};
use testkit::Redis;
use tokio::time::{Instant, sleep};

/// Verification time, which is short so that tests are fast.
pub(crate) const VERIFICATION: Duration = Duration::from_millis(800);
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn settings(redis: &Redis) -> RemoteSettings {
    let settings = RemoteSettings::from_url(&format!("redis://{}", redis.address())).unwrap();
    RemoteSettings { verification: VERIFICATION, ..settings }
}

/// Returns a connected instance.
pub(crate) async fn connected(settings: RemoteSettings) -> Arc<Remote> {
    let remote = Arc::new(Remote::connect(&settings));
    until("it is connected", async || remote.trouble().is_none()).await;
    remote
}

pub(crate) async fn remote(redis: &Redis) -> Arc<Remote> {
    connected(settings(redis)).await
}

/// Returns two connected instances.
pub(crate) async fn bench(settings: &RemoteSettings) -> Bench {
    let (own, other) = tokio::join!(connected(settings.clone()), connected(settings.clone()));
    Bench { own, other, verification: settings.verification }
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) -> impl Future<Output = ()> {
    let place = std::panic::Location::caller();
    async move {
        let end = Instant::now() + PATIENCE;
        while !holds().await {
            assert!(Instant::now() < end, "{place}: not within {PATIENCE:?}: {what}");
            sleep(Duration::from_millis(2)).await;
        }
    }
}

pub(crate) fn write<'a>(bytes: &[u8], expected: Expected<'a>) -> Write<'a> {
    Write { bytes: Bytes::copy_from_slice(bytes), expected, ttl: Duration::from_secs(60), lease: None }
}

pub(crate) async fn put(tier: &Remote, key: &[u8], bytes: &[u8]) {
    let put = tier.put(key, write(bytes, Expected::Any)).await.unwrap();
    assert!(matches!(put, PutOutcome::Stored(_)), "{put:?}");
}

pub(crate) async fn load(tier: &Remote, key: &[u8]) -> Option<Loaded> {
    tier.load(&[key], Tracking::Off).await.unwrap().pop().flatten()
}

/// Loads a record, and follows it from then on.
pub(crate) async fn follow(tier: &Remote, key: &[u8]) -> Loaded {
    let found = tier.load(&[key], Tracking::UntilChanged).await.unwrap().pop().flatten();
    let found = found.expect("it is there");
    assert_eq!((found.tracking, tier.standing(found.source)), (Tracking::UntilChanged, CopyStatus::Verified));
    found
}

/// Returns the names on the server that match a pattern.
pub(crate) fn names(redis: &Redis, pattern: &str) -> Vec<String> {
    let replies =
        testkit::converse(redis.address(), format!("KEYS {pattern}\r\nQUIT\r\n").as_bytes(), usize::MAX);
    let replies = String::from_utf8(replies).unwrap();
    replies.lines().map(str::to_owned).filter(|line| line.starts_with("larder:")).collect()
}

/// Returns the text of an error with its causes.
pub(crate) fn told(error: &BackingError) -> String {
    let mut text = format!("{error} {error:?}");
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        write!(text, ": {error}").unwrap();
        cause = error.source();
    }
    text
}

pub(crate) fn is_unreachable<T>(answer: &Result<T, BackingError>) -> bool {
    matches!(answer, Err(BackingError::Unreachable(_)))
}

/// Watcher that counts announcements.
#[derive(Default)]
pub(crate) struct Notes {
    suspect: Mutex<Vec<Vec<u8>>>,
    all: Mutex<Vec<Option<Source>>>,
    log: AtomicUsize,
}

impl Notes {
    pub(crate) fn of(tier: &Remote) -> Arc<Self> {
        let notes = Arc::new(Self::default());
        let watcher: Weak<Self> = Arc::downgrade(&notes);
        tier.watch(watcher);
        notes
    }

    /// Returns how often a key was announced.
    pub(crate) fn count(&self, key: &[u8]) -> usize {
        self.suspect.lock().iter().filter(|told| *told == key).count()
    }

    pub(crate) fn is_suspect(&self, source: Source) -> bool {
        self.all.lock().contains(&Some(source))
    }

    /// Returns how often a change of the log was announced.
    pub(crate) fn log_count(&self) -> usize {
        self.log.load(Ordering::SeqCst)
    }
}

impl Watcher for Notes {
    fn suspect(&self, keys: &[&[u8]]) {
        self.suspect.lock().extend(keys.iter().map(|key| key.to_vec()));
    }

    fn all_suspect(&self, source: Option<Source>) {
        self.all.lock().push(source);
    }

    fn log_changed(&self) {
        self.log.fetch_add(1, Ordering::SeqCst);
    }
}
