//! Heads of hits in the form required by `h2`, kept from one hit to the next.
//!
//! Building a header map costs a hash and an allocation per field, which is several times the cost of the look-up. The head of a
//! popular response changes at most once per second, together with `Age`; until then, a copy with shared names and values is
//! sufficient.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use cache::entry::stored::StoredHead;
use caching::CacheStatus;
use http::Response;

use super::response::Http2Head;
use crate::active::ActiveConfig;
use crate::request::reply::{Length, Reply, ReplyHead};

/// Number of heads kept per thread, a power of two. A head takes about 2 KiB.
const SLOTS: usize = 256;

thread_local! {
    /// Heads by the address of the stored response.
    static KEPT: RefCell<Vec<Option<Box<Head>>>> = const { RefCell::new(Vec::new()) };
}

/// Returns the head of a reply. `live` is the configuration that produced the reply.
pub(super) fn response(reply: &Reply, live: &Arc<ActiveConfig>) -> Response<()> {
    let Some(stored) = kept(reply) else {
        return Http2Head::of(reply, &live.cache_name).into_response();
    };
    let facts = Facts {
        status: reply.status,
        length: reply.length,
        age_s: reply.age_s,
        cache_status: reply.cache_status,
        x_cache: reply.x_cache,
    };
    KEPT.with_borrow_mut(|slots| {
        if slots.is_empty() {
            slots.resize_with(SLOTS, || None);
        }
        let slot = &mut slots[slot(Arc::as_ptr(stored) as usize)];
        if let Some(kept) = slot
            && kept.is_for(stored, live, &facts)
        {
            return kept.head.clone().into_response();
        }
        let head = Http2Head::of(reply, &live.cache_name);
        let (stored, live) = (Arc::downgrade(stored), Arc::downgrade(live));
        *slot = Some(Box::new(Head { stored, live, facts, head: head.clone() }));
        head.into_response()
    })
}

/// Returns the stored head, if the reply adds no fields to it.
fn kept(reply: &Reply) -> Option<&Arc<StoredHead>> {
    match &reply.head {
        ReplyHead::Whole(stored) | ReplyHead::NotModified(stored) if reply.extra.is_empty() => Some(stored),
        _ => None,
    }
}

/// Values that a prepared head depends on, in addition to the stored head.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Facts {
    /// Also distinguishes a 304 from the whole response.
    status: u16,
    length: Length,
    age_s: Option<u64>,
    cache_status: CacheStatus<'static>,
    x_cache: Option<&'static str>,
}

/// A prepared head. The weak references are compared by address, and prevent reuse of these addresses.
struct Head {
    stored: Weak<StoredHead>,
    live: Weak<ActiveConfig>,
    facts: Facts,
    head: Http2Head,
}

impl Head {
    fn is_for(&self, stored: &Arc<StoredHead>, live: &Arc<ActiveConfig>, facts: &Facts) -> bool {
        self.stored.as_ptr() == Arc::as_ptr(stored)
            && self.live.as_ptr() == Arc::as_ptr(live)
            && self.facts == *facts
    }
}

/// Distributes addresses over the slots: their low bits are all equal.
fn slot(address: usize) -> usize {
    const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
    let spread = (address as u64).wrapping_mul(MULTIPLIER) >> (u64::BITS - SLOTS.trailing_zeros());
    usize::try_from(spread).unwrap_or(0) % SLOTS
}
