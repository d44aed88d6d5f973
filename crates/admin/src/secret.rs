//! The bearer token.

use std::fmt;

use subtle::ConstantTimeEq;

use crate::error::AdminError;

/// A bearer token. Its `Debug` output hides the text.
#[derive(Clone)]
pub struct Secret(Box<[u8]>);

/// Shorter tokens can be guessed over the network.
const TOKEN_BYTES_MIN: usize = 16;

impl Secret {
    //= RFC 6750 section 2.1: b64token
    /// Returns the token in the text of its file, without surrounding whitespace.
    ///
    /// # Errors
    ///
    /// Returns [`AdminError::TokenUnusable`] if it is shorter than 16 bytes, or has bytes that a bearer token can't
    /// have.
    pub fn new(text: &str) -> Result<Self, AdminError> {
        let token = text.trim();
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-._~+/=".contains(&b);
        if token.len() < TOKEN_BYTES_MIN || !token.bytes().all(allowed) {
            return Err(AdminError::TokenUnusable { bytes_min: TOKEN_BYTES_MIN });
        }
        Ok(Self(token.as_bytes().into()))
    }

    /// Returns whether the text is the token. The comparison takes constant time for texts of equal length.
    pub fn matches(&self, text: &[u8]) -> bool {
        self.0.ct_eq(text).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_stays_hidden() {
        let secret = Secret::new(" 0123456789abcdef\n").expect("a token");
        assert_eq!(format!("{secret:?}"), "Secret(..)");
        assert!(secret.matches(b"0123456789abcdef"));
        for other in [&b""[..], b"0123456789abcdeF", b"0123456789abcdef0", b"0123456789abcde"] {
            assert!(!secret.matches(other));
        }
    }

    #[test]
    fn unusable_tokens_are_refused() {
        for text in ["", "\n", "short", "0123456789 abcdef", "0123456789abcdé"] {
            assert!(matches!(Secret::new(text), Err(AdminError::TokenUnusable { .. })), "{text:?}");
        }
    }
}
