//! What this cache knows about status codes.

/// How a status code takes part in caching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusClass {
    /// Understood, and fit for a heuristic lifetime (RFC 9110 section 15.1).
    Heuristic,
    /// Understood; stored with an explicit lifetime only.
    Explicit,
    /// Not understood: stored as the RFC has it for any final code, with an explicit lifetime only, and
    /// never under `must-understand`.
    Unknown,
    /// 206: part of a representation, never stored as the whole.
    Partial,
    /// 304: no response of its own.
    NotModified,
    /// Speaks about one client's connection, credentials or preconditions.
    OfOneRequest,
    /// Not final, or no status code at all: never stored.
    NotFinal,
}

/// Classifies a status code.
//= RFC 9111 section 3: final status codes; 206 and 304 need understanding
pub fn classify(status: u16) -> StatusClass {
    match status {
        200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501 => StatusClass::Heuristic,
        302 | 303 | 307 | 400 | 401 | 402 | 403 | 406 | 409 | 411 | 415 | 418 | 421 | 422 | 424 | 451
        | 500 | 502 | 503 | 504 => StatusClass::Explicit,
        206 => StatusClass::Partial,
        304 => StatusClass::NotModified,
        // Caused by fields that take no part in the key: stored, one client could poison the others.
        407 | 408 | 412 | 413 | 416 | 417 | 425 | 426 | 431 => StatusClass::OfOneRequest,
        // From 600 on they are not valid, but in use, and final.
        200..=999 => StatusClass::Unknown,
        _ => StatusClass::NotFinal,
    }
}

/// Whether a lifetime may be guessed for this code, 206 as part of a 200.
//= RFC 9110 section 15.1: heuristically cacheable status codes
pub fn is_heuristic(status: u16) -> bool {
    matches!(classify(status), StatusClass::Heuristic | StatusClass::Partial)
}

/// Whether caching requirements of this code are known, as `must-understand` asks.
pub fn is_understood(status: u16) -> bool {
    matches!(classify(status), StatusClass::Heuristic | StatusClass::Explicit)
}

/// The errors for which `stale-if-error` lets a stale response stand in.
//= RFC 5861 section 4: 500, 502, 503 and 504
pub fn is_stale_if_error(status: u16) -> bool {
    matches!(status, 500 | 502 | 503 | 504)
}
