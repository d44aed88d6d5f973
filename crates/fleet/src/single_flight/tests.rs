use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use tokio::task::{JoinSet, yield_now};

use super::*;

type Questions = SingleFlight<u8, u32>;

fn left(together: &Questions) -> usize {
    together.by_key.lock().len()
}

fn poll<F: Future>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test]
async fn many_ask_once() {
    let (together, asked) = (Arc::new(Questions::default()), Arc::new(AtomicUsize::new(0)));
    let mut all = JoinSet::new();
    for _ in 0..100 {
        let (together, asked) = (Arc::clone(&together), Arc::clone(&asked));
        all.spawn(async move {
            let ask = async {
                asked.fetch_add(1, Ordering::Relaxed);
                yield_now().await;
                7
            };
            together.get(1, ask).await
        });
    }
    assert_eq!(all.join_all().await, [7; 100]);
    assert_eq!((asked.load(Ordering::Relaxed), left(&together)), (1, 0));
    assert_eq!(together.get(1, async { 8 }).await, 8, "an answer is only for callers that waited for it");
}

#[test]
fn whoever_leaves_leaves_nothing_behind() {
    let together = Questions::default();
    let mut first = Box::pin(together.get(1, std::future::pending()));
    let mut second = Box::pin(together.get(1, async { 8 }));
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
    drop(first);
    assert_eq!(poll(&mut second), Poll::Ready(8), "the next caller asks");
    drop(second);
    assert_eq!(left(&together), 0);
    let mut alone = Box::pin(together.get(2, std::future::pending()));
    assert!(poll(&mut alone).is_pending());
    drop(alone);
    assert_eq!(left(&together), 0, "it was dropped while it waited");
}
