//! An origin that counts versions.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::book::{Book, FetchId};
use super::urls::URLS;

/// An origin that counts versions of its URLs.
pub(super) struct Origin {
    versions: Mutex<HashMap<&'static str, u64>>,
    book: Arc<Book>,
}

/// Answer to a GET.
pub(super) enum Answered {
    /// The client's version is still current.
    Same {
        fetch: FetchId,
    },
    Whole {
        fetch: FetchId,
        version: u64,
    },
}

/// Body sizes: the first fits into a record, and the second doesn't.
const BODY_BYTES: [usize; 2] = [40, 6000];

impl Origin {
    pub(super) fn new(book: &Arc<Book>) -> Self {
        Self { versions: Mutex::default(), book: Arc::clone(book) }
    }

    pub(super) fn change(&self, url: &'static str) {
        *self.versions.lock().entry(url).or_default() += 1;
    }

    pub(super) fn answer(&self, instance: usize, url: &'static str, names: &[u64]) -> Answered {
        let version = *self.versions.lock().entry(url).or_default();
        let fetch = self.book.fetched();
        self.book.note(format!("{instance} fetches {url}: {fetch}, version {version}, known {names:?}"));
        if names.contains(&version) { Answered::Same { fetch } } else { Answered::Whole { fetch, version } }
    }
}

/// Returns the bytes of a version.
pub(super) fn body(url: &str, version: u64) -> Bytes {
    let place = URLS.iter().position(|(known, _)| *known == url).unwrap_or_default();
    let text = format!("{url} {version} ");
    text.repeat(BODY_BYTES[place % 2] / text.len() + 1).into()
}
