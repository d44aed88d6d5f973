//! Real origin servers: clients get the same responses through the cache as without it.

mod crawl;

use std::path::Path;

use crawl::Crawl;
use testkit::{Nginx, RealServer};

const OF_NGINX: [&str; 4] = ["/sub", "/list", "/missing", "/.hidden"];

fn nginx_with(directives: &str) -> Nginx {
    Nginx::start(&format!(
        "{directives}
        autoindex on;
        gzip on;
        gzip_vary on;
        gzip_proxied any;
        gzip_min_length 100;
        gzip_types text/plain text/css;"
    ))
}

#[test]
fn nginx() {
    Crawl::of(&nginx_with("add_header Cache-Control max-age=600;")).run(&OF_NGINX);
}

/// Every response is revalidated, with the validators of the stored response.
#[test]
fn nginx_that_wants_to_be_asked() {
    Crawl::of(&nginx_with("add_header Cache-Control no-cache;")).run(&OF_NGINX);
}

const OF_APACHE: [&str; 5] = ["/sub", "/list", "/missing", "/.hidden", "/negotiated/page"];

fn apache_with(directives: &str) -> RealServer {
    RealServer::apache(&format!(
        "{directives}
AddOutputFilterByType DEFLATE text/html text/plain text/css
AddLanguage en .en
AddLanguage de .de
LanguagePriority en de
ForceLanguagePriority Prefer Fallback"
    ))
}

#[test]
fn apache_httpd() {
    let apache = apache_with(
        "ExpiresActive On
ExpiresDefault \"access plus 10 minutes\"
ExpiresByType text/css \"access plus 1 day\"",
    );
    Crawl::of(&apache).run(&OF_APACHE);
}

/// HTTP/2 only loses the reason phrase.
#[test]
fn apache_httpd_over_http2() {
    let apache = apache_with("Header set Cache-Control max-age=600");
    Crawl::over_http2(&apache).run(&OF_APACHE);
}

/// Every response is revalidated, with the validators of the stored response.
#[test]
fn apache_httpd_that_wants_to_be_asked() {
    Crawl::of(&apache_with("Header set Cache-Control no-cache")).run(&OF_APACHE);
}

#[test]
fn node() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/front/origin/real_origins/server.js");
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
