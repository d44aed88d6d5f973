//! JSON of the vectors in `conformance/store`.

use std::fmt::Write as _;

/// Formats bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// Formats a JSON string.
pub(crate) fn text(text: &str) -> String {
    let escaped = text.chars().fold(String::new(), |mut all, character| {
        match character {
            '"' | '\\' => all.extend(['\\', character]),
            ' '..='~' => all.push(character),
            other => _ = write!(all, "\\u{:04x}", u32::from(other)),
        }
        all
    });
    format!("\"{escaped}\"")
}

/// Formats an object of members that are JSON already.
pub(crate) fn object(members: &[(&str, String)]) -> String {
    let members: Vec<String> = members.iter().map(|(name, value)| format!("\"{name}\": {value}")).collect();
    format!("{{{}}}", members.join(", "))
}

/// Formats a list of items that are JSON already.
pub(crate) fn list(members: &[String]) -> String {
    format!("[{}]", members.join(", "))
}
