//! The caching properties of status codes.

/// The class of a status code in caching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusClass {
    /// Understood, with a heuristic lifetime (RFC 9110 section 15.1).
    Heuristic,
    /// Understood, but stored only with an explicit lifetime.
    Explicit,
    /// Not understood: stored only with an explicit lifetime, as the RFC permits for any final code, and never under
    /// `must-understand`.
    Unknown,
    /// 206: part of a representation, never stored as the whole.
    Partial,
    /// 304: not a response by itself.
    NotModified,
    /// Never stored: its definition forbids it, or it isn't a final status code.
    Never,
}

/// Classifies a status code.
//= RFC 9111 section 3: final status codes
//= RFC 9111 section 3: 206 and 304 need understanding
pub fn classify(status: u16) -> StatusClass {
    match status {
        //= RFC 9111 section 2: negative results and redirects
        200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501 => StatusClass::Heuristic,
        226
        | 302
        | 303
        | 307
        | 400..=403
        | 406..=409
        | 411..=413
        | 415..=418
        | 421
        | 422
        | 424..=426
        | 451
        | 500
        | 502..=504 => StatusClass::Explicit,
        206 => StatusClass::Partial,
        304 => StatusClass::NotModified,
        //= RFC 6585 section 3: 428 is not stored
        //= RFC 6585 section 4: 429 is not stored
        //= RFC 6585 section 5: 431 is not stored
        //= RFC 6585 section 6: 511 is not stored
        428 | 429 | 431 | 511 => StatusClass::Never,
        // Codes from 600 on are invalid, but some servers send them as final codes.
        //= RFC 9110 section 15: unrecognized status codes are treated as x00
        200..=999 => StatusClass::Unknown,
        _ => StatusClass::Never,
    }
}

/// Returns whether a code may be about parts of one client's request outside the cache key: a header section that is
/// too large, an unusual character, credentials, a precondition, a method in a field. If the response were stored,
/// one request would break the page for all (cache-poisoned denial of service). 404, 405, 410, 414 and 451 are about
/// the resource or its URL, which the key contains.
//= RFC 9110 section 15: unrecognized status codes are treated as x00
pub fn is_of_one_request(status: u16) -> bool {
    match status {
        402 | 404 | 405 | 409 | 410 | 414 | 418 | 451 => false,
        226 | 400..=499 => true,
        501 | 505 | 510 => true,
        _ => false,
    }
}

/// Returns whether a code may have a heuristic lifetime; a 206 may, as a part of a 200.
//= RFC 9110 section 15.1: heuristically cacheable status codes
pub fn is_heuristic(status: u16) -> bool {
    matches!(classify(status), StatusClass::Heuristic | StatusClass::Partial)
}

/// Returns whether the caching requirements of this code are known, as `must-understand` demands.
//= RFC 9111 section 3: understood means implemented
pub fn is_understood(status: u16) -> bool {
    !matches!(classify(status), StatusClass::Unknown | StatusClass::Never)
}

/// Returns whether `stale-if-error` allows a stale response in place of this error.
//= RFC 5861 section 4: 500, 502, 503 and 504
pub fn is_stale_if_error(status: u16) -> bool {
    //= RFC 9110 section 15: unrecognized status codes are treated as x00
    //= RFC 9110 section 15: status codes above 599 are treated as 5xx
    let is_like_500 = matches!(status, 512..=999);
    is_like_500 || matches!(status, 500 | 502 | 503 | 504)
}

#[cfg(test)]
mod tests {
    use super::*;

    //= RFC 6585 section 3: 428 is not stored
    //= RFC 6585 section 4: 429 is not stored
    //= RFC 6585 section 5: 431 is not stored
    //= RFC 6585 section 6: 511 is not stored
    //= RFC 9111 section 3: final status codes
    //= RFC 9111 section 3: 206 and 304 need understanding
    #[test]
    fn classes() {
        let codes_of = |class| (0..=1100).filter(|code| classify(*code) == class).collect::<Vec<u16>>();
        let never = codes_of(StatusClass::Never);
        assert!(
            never.iter().all(|code| matches!(code, 0..200 | 428 | 429 | 431 | 511 | 1000..)),
            "{never:?}"
        );
        assert_eq!(never.len(), 200 + 4 + 101);
        assert_eq!(codes_of(StatusClass::Partial), [206]);
        assert_eq!(codes_of(StatusClass::NotModified), [304]);
        for code in [299, 399, 499, 505, 599, 600, 999] {
            assert_eq!((classify(code), is_understood(code)), (StatusClass::Unknown, false), "{code}");
        }
    }

    #[test]
    fn of_one_request() {
        let codes: Vec<u16> = (0..=1100).filter(|code| is_of_one_request(*code)).collect();
        assert_eq!(codes[0], 226);
        let of_resource: Vec<u16> = (400..500).filter(|code| !codes.contains(code)).collect();
        assert_eq!(of_resource, [402, 404, 405, 409, 410, 414, 418, 451]);
        assert_eq!(codes[93..], [501, 505, 510]);
    }

    //= RFC 9110 section 15.1: heuristically cacheable status codes
    #[test]
    fn heuristically_cacheable() {
        let heuristic: Vec<u16> = (0..=1100).filter(|code| is_heuristic(*code)).collect();
        assert_eq!(heuristic, [200, 203, 204, 206, 300, 301, 308, 404, 405, 410, 414, 501]);
    }

    //= RFC 5861 section 4: 500, 502, 503 and 504
    //= RFC 9110 section 15: unrecognized status codes are treated as x00
    //= RFC 9110 section 15: status codes above 599 are treated as 5xx
    #[test]
    fn errors_that_a_stale_response_may_hide() {
        let errors: Vec<u16> = (0..=1100).filter(|code| is_stale_if_error(*code)).collect();
        assert_eq!(errors[..4], [500, 502, 503, 504]);
        assert_eq!(errors[4..], (512..=999).collect::<Vec<u16>>());
    }
}
