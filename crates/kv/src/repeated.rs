//! Client input quoted in error texts: arbitrary bytes, although texts are UTF-8 here.
//!
//! Bytes that aren't valid UTF-8 are mapped to private-use characters, and back to bytes when the text is
//! sent. If a client sends such a character, its bytes are mapped one by one, so it gets them back unchanged.

/// The first of 256 characters in the last plane for private use, one for each byte.
const FIRST: u32 = 0x0010_FE00;

/// Quotes input as Redis does: up to the first zero byte.
pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0);
    whole(&bytes[..end.unwrap_or(bytes.len())])
}

/// Like [`text`], with at most `bytes_max` bytes.
pub(crate) fn text_within(bytes: &[u8], bytes_max: usize) -> String {
    text(&bytes[..bytes.len().min(bytes_max)])
}

/// Quotes the whole input, including zero bytes.
pub(crate) fn whole(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            match carried(char) {
                None => text.push(char),
                Some(_) => text.extend(char.encode_utf8(&mut [0; 4]).bytes().map(carrier)),
            }
        }
        text.extend(chunk.invalid().iter().map(|byte| carrier(*byte)));
    }
    text
}

/// The bytes that a text stands for.
pub(crate) fn bytes(text: &str) -> impl Iterator<Item = u8> {
    text.chars().flat_map(|char| {
        let mut buffer = [0; 4];
        let length = match carried(char) {
            Some(byte) => {
                buffer[0] = byte;
                1
            }
            None => char.encode_utf8(&mut buffer).len(),
        };
        buffer.into_iter().take(length)
    })
}

/// The character that stands for a byte.
fn carrier(byte: u8) -> char {
    char::from_u32(FIRST + u32::from(byte)).expect("the last plane has 65,534 such characters")
}

/// The byte that a character stands for.
fn carried(char: char) -> Option<u8> {
    u8::try_from(u32::from(char).checked_sub(FIRST)?).ok()
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_text_ends_at_a_zero_byte() {
        assert_eq!([text(b"a\0b"), text(b"\0"), text_within(b"abc", 2)], ["a", "", "ab"]);
        assert_eq!(text("é".as_bytes()), "é");
    }

    proptest! {
        #[test]
        fn any_bytes_come_back(given in prop_oneof![
            any::<Vec<u8>>(),
            prop::collection::vec(prop_oneof![any::<char>(), (0_u8..=255).prop_map(carrier)], 0..20)
                .prop_map(|chars| chars.into_iter().collect::<String>().into_bytes()),
        ]) {
            prop_assert_eq!(bytes(&whole(&given)).collect::<Vec<_>>(), given);
        }
    }
}
