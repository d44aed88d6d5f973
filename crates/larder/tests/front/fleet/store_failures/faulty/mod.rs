//! A fleet whose store fails in every way, with an origin whose responses can all be verified.

pub(crate) mod damage;
pub(crate) mod pages;
pub(crate) mod store;

use std::net::SocketAddr;

use pages::Pages;

/// Time for which instances trust their copies, unless a test sets another: the default.
pub(crate) const VERIFICATION_MS: u64 = 2000;

/// Configuration of a gateway with a site for each of `pages`, named after its host.
pub(crate) fn config(store: SocketAddr, memory: &str, verification_ms: u64, pages: &[&Pages]) -> String {
    config_at(&format!("redis://{store}/0"), memory, verification_ms, pages)
}

/// The same with the URL of the store.
pub(crate) fn config_at(url: &str, memory: &str, verification_ms: u64, pages: &[&Pages]) -> String {
    let site = |pages: &&Pages| {
        let (name, url) = (pages.host(), pages.url());
        format!("[[site]]\nname = \"{name}\"\nhosts = [\"{name}\"]\norigin = \"{url}\"\n")
    };
    let sites: String = pages.iter().map(site).collect();
    format!(
        "[store]\nmemory = \"{memory}\"\n[store.remote]\nurl = \"{url}\"\n\
         verification_time = \"{verification_ms}ms\"\nrecord_timeout = \"500ms\"\n{sites}"
    )
}
