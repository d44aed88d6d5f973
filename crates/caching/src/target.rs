//! The normal form of request targets: one spelling for all equivalent ones, in keys, rules, purges and forwarded
//! requests.

/// Returns the path and query with the escapes of unreserved characters decoded and all others in upper case. Returns
/// `None` for a target in normal form. Most targets have no escape, so the function only searches for `%`.
///
/// Invalid escapes (`%`, `%2`, `%g1`) stay unchanged. An escaped hexadecimal digit next to an invalid escape also
/// stays unchanged: decoding it would complete an escape, and `%%361` would change each time it is normalised.
//= RFC 3986 section 6.2.2.1: the digits of escapes in upper case
//= RFC 3986 section 6.2.2.2: escapes of unreserved characters are decoded
pub fn normal_form(target: &str) -> Option<String> {
    let bytes = target.as_bytes();
    let is_other = |at: &usize| escape(bytes, *at).is_some_and(|byte| !is_in_form(bytes, *at, byte));
    let first = memchr::memchr_iter(b'%', bytes).find(is_other)?;
    let mut out = String::with_capacity(target.len());
    out.push_str(&target[..first]);
    let mut done = first;
    for at in memchr::memchr_iter(b'%', &bytes[first..]).map(|at| first + at) {
        let Some(byte) = escape(bytes, at) else { continue };
        out.push_str(&target[done..at]);
        match is_decoded(bytes, at, byte) {
            true => out.push(char::from(byte)),
            false => out.push_str(&target[at..at + 3].to_ascii_uppercase()),
        }
        done = at + 3;
    }
    out.push_str(&target[done..]);
    Some(out)
}

/// Returns the normal form of a target typed by a person: characters beyond ASCII and spaces are escaped, as in
/// requests.
pub fn normal_form_of_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_ascii_graphic() {
            out.push(character);
            continue;
        }
        let mut bytes = [0; 4];
        for byte in character.encode_utf8(&mut bytes).bytes() {
            let [high, low] =
                [byte >> 4, byte & 15].map(|digit| char::from(b"0123456789ABCDEF"[usize::from(digit)]));
            out.extend(['%', high, low]);
        }
    }
    normal_form(&out).unwrap_or(out)
}

fn is_in_form(text: &[u8], at: usize, byte: u8) -> bool {
    !text[at + 1..at + 3].iter().any(u8::is_ascii_lowercase) && !is_decoded(text, at, byte)
}

/// Returns the byte that the escape at a position encodes.
pub fn escape(text: &[u8], at: usize) -> Option<u8> {
    let [b'%', high, low] = text.get(at..at + 3)? else { return None };
    Some(digit(*high)? << 4 | digit(*low)?)
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

fn is_decoded(text: &[u8], at: usize, byte: u8) -> bool {
    is_unreserved(byte) && !(byte.is_ascii_hexdigit() && is_beside_stray(&text[..at]))
}

/// Returns whether a text ends with a `%` that begins no escape, or with such a `%` and a hexadecimal digit.
fn is_beside_stray(before: &[u8]) -> bool {
    matches!(before, [.., b'%']) || matches!(before, [.., b'%', digit] if digit.is_ascii_hexdigit())
}

//= RFC 3986 section 2.3: unreserved characters
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn equivalent_targets_have_one_form() {
        for (target, expected) in [
            ("/", None),
            ("/a/b?c=d", None),
            ("/%2F%3B%C3%A9?x=%26", None),
            ("/%7euser", Some("/~user")),
            ("/%61%2D%5f", Some("/a-_")),
            ("/%d2%b1", Some("/%D2%B1")),
            ("/a%2fb%3f", Some("/a%2Fb%3F")),
            ("/%2e%2E/x", Some("/../x")),
            ("/a?%77=%2b%41", Some("/a?w=%2BA")),
            ("/%25%36%31dmin", Some("/%2561dmin")),
            ("/%2561", None),
            ("/100%?b=%", None),
            ("/%g%31%zz", Some("/%g1%zz")),
            ("/%%36%31", Some("/%%361")),
            ("/%%361", None),
            ("/%6%31", None),
            ("/é%41", Some("/éA")),
        ] {
            assert_eq!(normal_form(target).as_deref(), expected, "{target}");
        }
    }

    #[test]
    fn what_people_write_is_escaped() {
        for (text, expected) in
            [("/a", "/a"), ("/caf\u{e9} 1", "/caf%C3%A9%201"), ("/%7e/\u{20ac}", "/~/%E2%82%AC")]
        {
            assert_eq!(normal_form_of_text(text), expected);
        }
    }

    proptest! {
        #[test]
        fn the_form_of_a_form_is_itself(target in "/(%|[0-9a-fA-Fg~]|%2[5fF]|%[36][1-9a-f]|é){0,12}") {
            if let Some(form) = normal_form(&target) {
                let again = normal_form(&form);
                prop_assert!(again.is_none() || again.as_ref() == Some(&form), "{target} {form} {again:?}");
                prop_assert!(form.len() <= target.len());
            }
        }
    }
}
