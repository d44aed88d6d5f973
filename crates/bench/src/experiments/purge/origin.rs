//! Responses that say how many there were before them: what was stored before a purge can be told from what came after.

use crate::origin::{BODY, Reply};

/// Pages below a folder of this name are sent in parts.
pub(super) const DRIPPING: &str = "drip";
const PARTS: usize = 10;

/// `/SITE/FOLDER/PAGE` has the tag `FOLDER`.
pub(super) fn page(target: &str, version: u64) -> Reply {
    let folder = target.split('/').nth(2).unwrap_or_default();
    let head = format!(
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nCache-Tag: {folder}\r\nX-Version: {version}\r\nContent-Length: {}\r\n\r\n",
        BODY.len()
    );
    if folder != DRIPPING {
        return Reply::Parts(vec![[head.as_bytes(), &BODY].concat()]);
    }
    let parts = BODY.chunks(BODY.len() / PARTS).map(<[u8]>::to_vec);
    Reply::Parts([head.into_bytes()].into_iter().chain(parts).collect())
}
