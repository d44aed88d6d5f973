//! Decides, for a shared HTTP cache, which responses may be stored and reused, and how: RFC 9111, the parts of RFC 9110
//! that a cache needs (dates, entity tags, preconditions, ranges, `Vary`), RFC 5861, and the `Cache-Status` field of
//! RFC 9211.
//!
//! It does no IO, never reads a clock and never waits: every function depends on values and `now` (a [`Timestamp`])
//! only. It stores no responses; it decides how a caller may use its stored responses.
//!
//! The steps of a request:
//!
//! 1. [`RequestFacts::parse`] parses the request once; [`key::write_key`] writes its cache key.
//! 2. If there are stored responses, [`NominatedFields::matches`] selects those with the same nominated request fields,
//!    and [`reuse()`] decides how one may be used ([`Reuse`]).
//! 3. On a hit, [`conditional::evaluate`] and [`range::evaluate`] choose between 200, 304, 206, 416.
//! 4. With a response from the origin server, [`ResponseFacts::parse`] reads it once and
//!    [`may_store`] answers with [`Storable`] or the reason, [`NotStored`]. A 304 goes through
//!    [`validation::judge`] and [`validation::freshen`].
//! 5. After an unsafe method, [`invalidation::invalidated`] lists what to invalidate.
//! 6. [`CacheStatus`] reports the outcome.
//!
//! A response that may belong to one user is never sent to another: [`sharing`].
//!
//! RFC 9111 leaves choices open, and permits some uses that are unsafe. [`Rules`] hold these choices, and a [`Profile`]
//! is a set of defaults for them (`docs/operate/profiles.md`). `docs/reference/rfc9111.md` lists the deliberate
//! deviations from the RFCs.
//!
//! Steps 1 to 3 don't allocate (except for more than [`key::PARAMETERS_INLINE`] query parameters to sort, and more than
//! [`range::RANGES_INLINE`] ranges), so that a hit needs no heap memory.
//!
//! ```
//! use caching::{ExchangeTimes, RequestFacts, ResponseFacts, Reuse, Rules, Timestamp, may_store, reuse};
//!
//! let (rules, then) = (Rules::default(), Timestamp::from_seconds(1_790_000_000));
//! let request = RequestFacts::parse("GET", &[("host", b"example.com")]);
//! let times = ExchangeTimes { request: then, response: then, clock_ahead_ms: 0 };
//! let response = ResponseFacts::parse(200, &[("cache-control", b"max-age=60")], times, &rules);
//!
//! let stored = may_store(&request, &response, &rules, then).unwrap().facts;
//! assert_eq!(reuse(&request, &stored, &rules, then.plus_ms(59_999)), Reuse::Fresh);
//! assert!(matches!(reuse(&request, &stored, &rules, then.plus_ms(60_000)), Reuse::Forward(_)));
//! ```
//!
//! A stored response takes 48 bytes for [`StoredFacts`], and 8 for [`StoredValidators`], whose text stays in its
//! fields; [`NominatedValues`] holds copies of the values.
//!
//! A header section is a slice of [`FieldLine`]s. Fuzz targets check that these functions return for any bytes without
//! a panic: [`date::parse`], [`RequestDirectives::parse`], [`ResponseDirectives::parse`], [`EntityTag::parse`],
//! [`EntityTags`], [`range::parse`], [`NominatedFields::parse`], [`fields::Members`], [`key::write_key`] and
//! [`invalidation::resolve`].

#![deny(missing_docs)]

pub mod age;
pub mod asked;
pub mod authority;
pub mod cache_status;
mod codes;
pub mod compression;
pub mod conditional;
pub mod content_range;
pub mod control;
mod credentials;
pub mod date;
mod decimal;
pub mod directives;
pub mod entity_tag;
pub mod explain;
pub mod facts;
pub mod fields;
pub mod file_type;
pub mod forwarded;
pub mod freshness;
pub mod groups;
pub mod head_update;
pub mod hop_by_hop;
pub mod invalidation;
pub mod key;
mod max_forwards;
pub mod multipart;
pub mod negotiation;
mod opened;
pub mod partial;
pub mod post;
pub mod query;
pub mod range;
pub mod refresh_ahead;
pub mod refusal;
pub mod reuse;
pub mod rules;
pub mod sharing;
pub mod status;
pub mod stored;
pub mod storing;
pub mod tags;
pub mod target;
pub mod unkeyed;
pub mod validation;
pub mod validators;
pub mod vary;

pub use asked::Asked;
pub use cache_status::{CacheName, CacheStatus, FwdReason, Outcome};
pub use conditional::Precondition;
pub use content_range::ContentRange;
pub use control::Control;
pub use date::Timestamp;
pub use directives::{DeltaSeconds, MaxStale, Qualified, RequestDirectives, ResponseDirectives};
pub use entity_tag::{EntityTag, EntityTags};
pub use facts::{ExchangeTimes, Expires, MethodClass, RequestFacts, ResponseFacts};
pub use fields::FieldLine;
pub use forwarded::Hops;
pub use freshness::{Lifetime, LifetimeSource};
pub use head_update::HeadUpdate;
pub use hop_by_hop::HopByHop;
pub use key::{CacheKey, KeyParts, KeyRules, QueryOrder, QueryParameters};
pub use max_forwards::MaxForwards;
pub use negotiation::{Codings, Negotiation};
pub use range::{ByteRange, Ranges};
pub use refresh_ahead::refresh_ahead;
pub use refusal::{RefusalScope, was_shared_lately};
pub use reuse::{Failure, Matching, Miss, NotReused, Reuse, may_serve_stale, on_miss, reuse, reuse_in_doubt};
pub use rules::{
    GroupsInvalidated, Heuristic, HeuristicFor, Profile, Rules, StaleLimit, StatusMatch, StoredCredentialed,
    StoredErrors, TtlTable, TypeMismatch,
};
pub use stored::StoredFacts;
pub use storing::{NotStored, Storable, StorageFilter, may_store, may_store_by_directives};
pub use validators::{StoredValidators, Validators};
pub use vary::{NominatedFields, NominatedValues, Selecting, VaryUnusable};
