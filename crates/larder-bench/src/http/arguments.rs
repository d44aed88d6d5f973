//! Command line of `larder-bench http`.

use std::path::PathBuf;
use std::time::Duration;

use bench::progress::Style;
use clap::Args;
use terminal::quantity::whole_number;

use super::super::amount::{Amount, time};
use super::super::outputs::OutputArguments;
use super::super::server::ServerArguments;

/// Load-test HTTP servers
///
/// In a closed loop (the default), each connection sends the next request as soon as it has the response: this finds a
/// server's maximum. With --rate, requests are due at fixed times, and their latency counts from then, even while the
/// server stalls: this measures the latency that users notice.
///
/// Examples:
///
///   larder-bench http http://127.0.0.1:8080/ -c 64 -d 10s
///
///   larder-bench http http://127.0.0.1:8080/ -c 200 --rate 5000 -d 1m --json result.json
///
///   larder-bench http --list urls.txt --per-url -c 2 --compare http://127.0.0.1:8081/
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
#[command(group(clap::ArgGroup::new("what").required(true).args(["urls", "list"])))]
pub(crate) struct HttpArguments {
    /// URLs to request, in turn
    #[arg(value_name = "URL")]
    pub(super) urls: Vec<String>,

    /// File with a URL, or a method and a URL, per line; `#` begins a comment
    #[arg(long, value_name = "FILE")]
    pub(super) list: Option<PathBuf>,

    /// Server to send the paths of a list to
    #[arg(long, value_name = "URL")]
    pub(super) base: Option<String>,

    #[command(flatten)]
    pub(super) amount: Amount,

    #[command(flatten)]
    pub(super) connections: Connections,

    #[command(flatten)]
    pub(super) request: Request,

    #[command(flatten)]
    pub(super) tls: Tls,

    /// Second server to send the same paths to, in alternating rounds
    #[arg(long, value_name = "URL", help_heading = "Comparison", conflicts_with_all = ["server_pid", "server_cmd", "server_core"])]
    pub(super) compare: Option<String>,

    /// Rounds of --compare: runs of each server, alternating
    #[arg(long, value_name = "N", help_heading = "Comparison", default_value_t = 5, value_parser = whole_number(1..=1000_u32))]
    pub(super) rounds: u32,

    #[command(flatten)]
    pub(super) server: ServerArguments,

    /// Report each URL separately as well
    #[arg(long, help_heading = "Output")]
    pub(super) per_url: bool,

    /// Don't print progress
    #[arg(short, long, help_heading = "Output")]
    quiet: bool,

    #[command(flatten)]
    pub(super) outputs: OutputArguments,
}

impl HttpArguments {
    pub(super) fn progress(&self) -> Style {
        if self.quiet { Style::Quiet } else { Style::Shown }
    }
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Load")]
pub(super) struct Connections {
    /// Concurrent connections
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = whole_number(1..=65_536_usize))]
    pub(super) connections: usize,

    /// HTTP/1.1 requests to send on a connection before the first response
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "http2", value_parser = whole_number(1..=10_000_usize))]
    pub(super) pipeline: usize,

    /// Use HTTP/2: over TLS with ALPN, otherwise with prior knowledge
    #[arg(long)]
    pub(super) http2: bool,

    /// Concurrent HTTP/2 requests on a connection
    #[arg(long, value_name = "N", default_value_t = 1, requires = "http2", value_parser = whole_number(1..=10_000_usize))]
    pub(super) streams: usize,

    /// Open a connection for each request
    #[arg(long)]
    pub(super) no_keep_alive: bool,

    /// Think time on a connection before each request: random within a range, such as 100ms-2s
    #[arg(long, value_name = "FROM-TO", value_parser = range)]
    pub(super) think: Option<(Duration, Duration)>,

    /// Request the URLs in random order
    #[arg(long)]
    pub(super) random: bool,

    /// Seed of random order and think times
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,

    /// Give up on a request after this time
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "30s")]
    pub(super) timeout: Duration,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Request")]
pub(super) struct Request {
    /// Method for URLs without one
    #[arg(short = 'X', long, value_name = "METHOD", default_value = "GET")]
    pub(super) method: String,

    /// Header field; repeatable
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = field)]
    pub(super) fields: Vec<(String, String)>,

    /// Body of each request
    #[arg(long, value_name = "TEXT", conflicts_with = "body_file")]
    pub(super) body: Option<String>,

    /// File with the body of each request
    #[arg(long, value_name = "FILE")]
    pub(super) body_file: Option<PathBuf>,

    /// Count responses with another status as errors
    #[arg(long, value_name = "STATUS", value_parser = whole_number(100..=999_u16))]
    pub(super) expect_status: Option<u16>,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "TLS")]
pub(super) struct Tls {
    /// Disable certificate verification
    #[arg(long, conflicts_with = "cacert")]
    pub(super) insecure: bool,

    /// PEM file with the certificate authorities to trust, instead of the system's
    #[arg(long, value_name = "FILE")]
    pub(super) cacert: Option<PathBuf>,

    /// Name for SNI and verification, instead of the URL's host
    #[arg(long, value_name = "NAME")]
    pub(super) server_name: Option<String>,

    /// Disable TLS session resumption
    #[arg(long)]
    pub(super) no_resumption: bool,
}

fn range(text: &str) -> Result<(Duration, Duration), String> {
    let (from, to) = text.split_once('-').ok_or("expected a range of times, such as 100ms-2s")?;
    let from = if from == "0" { Duration::ZERO } else { time(from)? };
    let to = time(to)?;
    if from > to {
        return Err("expected the shorter time first".into());
    }
    Ok((from, to))
}

fn field(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("expected a header field, such as `Name: value`")?;
    Ok((name.trim().into(), value.trim().into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_rise() {
        let ms = Duration::from_millis;
        assert_eq!(range("100ms-2s"), Ok((ms(100), ms(2000))));
        assert_eq!(range("0-1"), Ok((ms(0), ms(1000))));
        for text in ["1s", "2s-1s", "a-b"] {
            assert!(range(text).is_err(), "{text}");
        }
    }
}
