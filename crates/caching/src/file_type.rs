//! Cache deception: an origin sends a page for the URL of a file.
//!
//! Many origins answer `/account/x.css` with the page of `/account`. An attacker who makes a user open such a link, and then requests it
//! too, gets the user's page if a rule or the origin gives files a lifetime. Larder therefore compares a response with the extension of its
//! URL, in any spelling: a page, or data of an API, is neither a style sheet nor an image. Nothing else is compared: an unknown extension
//! proves nothing, nor does a type that servers use for unknown files.

use crate::{NotStored, Rules, TypeMismatch};

/// The kind of a file, by the extension of its URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Style,
    Script,
    Image,
    Media,
    Font,
    /// Archives, programs and documents, whose types are not those of pages.
    Download,
}

/// Checks whether a response may be stored under its URL, as far as the extension shows.
///
/// # Errors
///
/// Returns [`NotStored::TypeMismatch`] if the type doesn't match the extension and the operator has enabled the check.
pub fn permits<'a>(
    rules: &Rules,
    path_and_query: &str,
    status: u16,
    content_types: impl Iterator<Item = &'a [u8]>,
) -> Result<(), NotStored> {
    let permits =
        rules.type_mismatch == TypeMismatch::Store || fits_extension(path_and_query, status, content_types);
    permits.then_some(()).ok_or(NotStored::TypeMismatch)
}

/// Returns whether a response matches the extension of its path. A query is ignored.
fn fits_extension<'a>(
    path_and_query: &str,
    status: u16,
    mut content_types: impl Iterator<Item = &'a [u8]>,
) -> bool {
    // An error page is allowed under any extension: an origin that sends an account page for the URL of a file doesn't send an error
    // status.
    if !(200..300).contains(&status) {
        return true;
    }
    let Some(kind) = kind_of(path_and_query) else { return true };
    content_types.all(|content_type| kind.may_be(content_type))
}

impl Kind {
    fn of_extension(extension: &str) -> Option<Self> {
        const LENGTH_MAX: usize = 5;
        if extension.len() > LENGTH_MAX {
            return None;
        }
        Some(match extension.to_ascii_lowercase().as_str() {
            "css" => Self::Style,
            "js" | "mjs" | "cjs" => Self::Script,
            "apng" | "avif" | "bmp" | "eps" | "gif" | "heic" | "ico" | "jpeg" | "jpg" | "jxl" | "pict"
            | "png" | "svg" | "svgz" | "tif" | "tiff" | "webp" => Self::Image,
            "aac" | "avi" | "flac" | "m4a" | "m4v" | "mid" | "midi" | "mkv" | "mov" | "mp3" | "mp4"
            | "mpeg" | "mpg" | "oga" | "ogg" | "ogv" | "opus" | "wav" | "weba" | "webm" | "wmv" => {
                Self::Media
            }
            "eot" | "otf" | "ttf" | "woff" | "woff2" => Self::Font,
            "7z" | "apk" | "bin" | "bz2" | "class" | "deb" | "dmg" | "doc" | "docx" | "epub" | "exe"
            | "gz" | "iso" | "jar" | "msi" | "odp" | "ods" | "odt" | "pdf" | "pls" | "ppt" | "pptx"
            | "ps" | "rar" | "rpm" | "swf" | "tar" | "tgz" | "wasm" | "xls" | "xlsx" | "xz" | "zip"
            | "zst" => Self::Download,
            _ => return None,
        })
    }

    /// Returns whether a file of this kind may have this `Content-Type`.
    fn may_be(self, content_type: &[u8]) -> bool {
        let media_type = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let media_type = String::from_utf8_lossy(media_type).to_ascii_lowercase();
        let (class, name) = media_type.split_once('/').unwrap_or((&media_type, ""));
        if says_nothing(class, name) {
            return true;
        }
        match self {
            Self::Style => media_type == "text/css",
            Self::Script => name.contains("javascript") || name.contains("ecmascript"),
            Self::Image => ["image", "video"].contains(&class) || name == "postscript",
            Self::Media => ["audio", "video"].contains(&class) || !is_page(class, name),
            Self::Font | Self::Download => !is_page(class, name),
        }
    }
}

/// Returns whether servers use this type for unknown files.
fn says_nothing(class: &str, name: &str) -> bool {
    class.is_empty() || name == "octet-stream" || (class, name) == ("text", "plain")
}

/// Returns whether a type is that of pages and data.
fn is_page(class: &str, name: &str) -> bool {
    let is_data = ["json", "html", "javascript"].iter().any(|data| name.contains(data));
    class == "text" || is_data || name == "xml" || name.ends_with("+xml")
}

/// Determines the kind by the extension of the path. Origins may decode the path, so this also tries it decoded once and twice.
fn kind_of(path_and_query: &str) -> Option<Kind> {
    let path = path_and_query.split('?').next().unwrap_or_default().as_bytes();
    let as_written = kind_of_name(path);
    if as_written.is_some() || !path.contains(&b'%') {
        return as_written;
    }
    let once = percent_decoded(path);
    kind_of_name(&once).or_else(|| kind_of_name(&percent_decoded(&once)))
}

/// Determines the kind by the last segment of a path, or by any of the parts that parameters (`;`) divide it into. A
/// decoded segment may contain further characters that origins treat as the end of a name.
fn kind_of_name(path: &[u8]) -> Option<Kind> {
    let segment = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let of = |name: &[u8]| {
        let (name, dot) = (name.trim_ascii(), name.trim_ascii().iter().rposition(|byte| *byte == b'.')?);
        Kind::of_extension(std::str::from_utf8(&name[dot + 1..]).ok()?)
    };
    of(segment).or_else(|| segment.split(|byte| b";?#\0".contains(byte)).find_map(of))
}

fn percent_decoded(path: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let [first, after @ ..] = rest {
        let encoded = after.first_chunk().filter(|_| *first == b'%').and_then(of_digits);
        decoded.push(encoded.unwrap_or(*first));
        rest = if encoded.is_some() { &after[2..] } else { after };
    }
    decoded
}

/// Returns the byte that two hexadecimal digits encode.
fn of_digits(digits: &[u8; 2]) -> Option<u8> {
    let value = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    Some(value(digits[0])? << 4 | value(digits[1])?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, content_type: &str, expected: bool) {
        let fits = fits_extension(path, 200, [content_type.as_bytes()].into_iter());
        assert_eq!(fits, expected, "{path} as {content_type}");
    }

    #[test]
    fn pages_are_no_files() {
        for path in [
            "/account/x.css",
            "/account/x.JS",
            "/account%2Fx.png",
            "/account;x.woff2",
            "/account/x.pdf;v=1",
            "/account.php/x.mp4?y=/z.html",
            "/account/%0a.ico",
            "/account/x%2ecss",
            "/account/x.c%73s",
            "/account/x%2E%70%6Eg",
            "/account;x%2ecss",
            "/account%2fx%2ecss",
            "/account/x%252ecss",
            "/account%252fx%252e%256as",
            "/account/x.css%3by",
            "/account/%e9.css;y.html;z",
            "/account/a;x.css;b",
            "/account/x.css%00.html",
            "/account/x.css%0a",
            "/account/x.css%3f.html",
            "/account/%.css",
            "/x.zip",
        ] {
            for page in ["text/html; charset=utf-8", "Text/HTML", "application/json", "application/xhtml+xml"]
            {
                check(path, page, false);
            }
            check(path, "application/problem+json", false);
            check(path, "text/xml", false);
            for unknown in ["application/octet-stream", "binary/octet-stream", "text/plain", ""] {
                check(path, unknown, true);
            }
        }
        for (path, content_type) in [
            ("/account/x.css", "image/png"),
            ("/account/x.js", "text/css"),
            ("/account/x.png", "text/javascript"),
            ("/account/x.png", "application/pdf"),
            ("/account/x.woff", "text/javascript"),
        ] {
            check(path, content_type, false);
        }
    }

    #[test]
    fn files_are_what_they_say() {
        for (path, content_type) in [
            ("/x.css", "text/css; charset=utf-8"),
            ("/x.js", "text/javascript"),
            ("/x.mjs", "application/javascript"),
            ("/x.js", "application/x-javascript"),
            ("/x.jpg", "image/webp"),
            ("/x.gif", "video/mp4"),
            ("/x.svg", "image/svg+xml"),
            ("/x.eps", "application/postscript"),
            ("/x.ico", "image/vnd.microsoft.icon"),
            ("/x.mp4", "application/mp4"),
            ("/x.ogg", "application/ogg"),
            ("/x.woff", "application/font-woff"),
            ("/x.eot", "application/vnd.ms-fontobject"),
            ("/x.ttf", "application/x-font-ttf"),
            ("/x.pdf", "application/pdf"),
            ("/x.docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
            ("/x.wasm", "application/wasm"),
            ("/x.tar.gz", "application/gzip"),
        ] {
            check(path, content_type, true);
        }
    }

    #[test]
    fn what_is_no_file_is_not_judged() {
        for path in [
            "/",
            "/account",
            "/x.html",
            "/x.json",
            "/x.xml",
            "/x.txt",
            "/x.php",
            "/v1.2/users",
            "/.css/x",
            "/x%2ehtml",
            "/x%2",
            "/x%+2css",
        ] {
            check(path, "text/html", true);
        }
        // Redirects, errors, and responses without a type have any extension.
        for status in [301, 404, 410, 500] {
            assert!(fits_extension("/x.css", status, [b"text/html".as_slice()].into_iter()));
        }
        assert!(fits_extension("/x.css", 200, std::iter::empty()));
        let both = [b"text/css".as_slice(), b"text/html"];
        assert!(!fits_extension("/x.css", 200, both.into_iter()));
    }
}
