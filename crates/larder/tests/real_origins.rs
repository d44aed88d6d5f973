//! In front of servers as they exist: what their clients get through the cache is what they get without it.

mod compare;
mod crawl;

use std::path::Path;

use crawl::Crawl;
use testkit::{Nginx, RealServer};

#[test]
fn nginx() {
    let nginx = Nginx::start(
        "add_header Cache-Control max-age=600;
        autoindex on;
        gzip on;
        gzip_vary on;
        gzip_proxied any;
        gzip_min_length 100;
        gzip_types text/plain text/css;",
    );
    Crawl::of(&nginx).run(&["/sub", "/list", "/missing", "/.hidden"]);
}

#[test]
fn apache_httpd() {
    let apache = RealServer::apache(
        "ExpiresActive On
ExpiresDefault \"access plus 10 minutes\"
ExpiresByType text/css \"access plus 1 day\"
AddOutputFilterByType DEFLATE text/html text/plain text/css
AddLanguage en .en
AddLanguage de .de
LanguagePriority en de
ForceLanguagePriority Prefer Fallback
",
    );
    Crawl::of(&apache).run(&["/sub", "/list", "/missing", "/.hidden", "/negotiated/page"]);
}

#[test]
fn node() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/crawl/server.js");
    let node = RealServer::node(&script);
    Crawl::of(&node).run(&[
        "/sub",
        "/missing",
        "/.hidden",
        "/made/chunked",
        "/made/early",
        "/made/repeated",
        "/made/teapot",
        "/made/private",
        "/made/nothing",
        "/made/moved",
        "/made/language",
    ]);
}
