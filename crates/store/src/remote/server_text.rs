//! Texts of a server, made fit for logs.

/// Maximum length; longer texts are cut.
const CHARACTERS_MAX: usize = 300;

/// Separator before the arguments of an unknown command in an error; those of HELLO contain the password.
const ARGUMENTS: &str = ", with args beginning with";

/// Returns the text as one line without control characters and without the arguments of a command, which may be secret.
pub(super) fn sanitize(text: &str) -> String {
    let text = text.split(ARGUMENTS).next().unwrap_or_default();
    text.chars().take(CHARACTERS_MAX).map(|one| if one.is_control() { '\u{fffd}' } else { one }).collect()
}

/// Like [`sanitize`], but also masks a password that the server may repeat.
pub(super) fn sanitize_without(password: Option<&str>, text: &str) -> String {
    match password.filter(|password| !password.is_empty()) {
        Some(password) => sanitize(&text.replace(password, "***")),
        None => sanitize(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_arguments_nor_control_characters_are_shown() {
        for (text, expected) in [
            ("ERR no", "ERR no"),
            ("ERR \x1b[31mred\r\nforged", "ERR \u{fffd}[31mred\u{fffd}\u{fffd}forged"),
            (
                "unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'a' 's3cret'",
                "unknown command 'HELLO'",
            ),
            ("wrong password 's3cret'", "wrong password '***'"),
        ] {
            assert_eq!(sanitize_without(Some("s3cret"), text), expected);
        }
        assert_eq!(sanitize_without(Some(""), "ERR no"), "ERR no");
        assert_eq!(sanitize(&"x".repeat(1000)).len(), CHARACTERS_MAX);
    }
}
