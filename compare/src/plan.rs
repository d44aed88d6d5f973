//! The rows of the comparison, the servers that take part in each, and the budgets of the design.

use bench::peers::{Peer, Shaping};
use clap::ValueEnum as _;

use crate::kv;
use crate::load::Protocol;
use crate::row::Subject;

/// A row of the comparison: the argument WHAT of `make compare`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum What {
    Hit,
    Vary,
    #[value(name = "304")]
    NotModified,
    Miss,
    #[value(name = "10k")]
    TenKib,
    #[value(name = "64k")]
    SixtyFourKib,
    #[value(name = "1m")]
    OneMib,
    Tls,
    H2,
    OpenLoop,
    /// Idle connections: HTTP/1.1, HTTP/2, TLS
    Memory,
    /// Memory of a stored response beyond its body
    Overhead,
    Waiters,
    Expiry,
    /// Hits alongside misses
    Mixed,
    /// Upload of 64 MiB through the server to the origin
    Upload,
    /// Ten matching transformation rules
    Rules,
    /// A hit of 20 KiB for clients that accept gzip
    Gzip,
    /// A forwarded miss of 20 KiB, compressed for each request
    GzipMiss,
    /// A rate limit for each client
    Limit,
    /// All rows of the kv server
    Kv,
    KvGet,
    KvSet,
    KvValues,
    /// 10 M keys
    KvKeys,
    KvMemory,
    /// redis-benchmark instead of our generator
    KvTools,
}

/// A row that is measured as core time per request.
pub(crate) struct CoreTime {
    pub(crate) title: &'static str,
    pub(crate) path: &'static str,
    pub(crate) fields: &'static [(&'static str, &'static str)],
    pub(crate) status: u16,
    pub(crate) protocol: Protocol,
    /// Required source of the responses.
    pub(crate) answered_by: AnsweredBy,
    /// Whether Larder's plain hit is also measured, as the reference of a budget.
    pub(crate) beside_plain_hit: bool,
    /// Shaping of the row. The row also measures each server without shaping.
    pub(crate) shaping: Shaping,
}

/// Source of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnsweredBy {
    Cache,
    Origin,
}

/// The design's limit for Larder's first figure in a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Limit {
    /// Larder's figure is at most this multiple of the reference's figure.
    Times(f64, Reference),
    /// Larder's figure is at most this value, in the unit of the measure.
    AtMost(f64),
}

/// The figure of the same run that a limit refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reference {
    Of(Subject),
    /// The lowest figure of all other caches in the row.
    BestPeer,
}

const MEMORY_CACHES: &[Peer] =
    &[Peer::Larder, Peer::Haproxy, Peer::NginxProxyCache, Peer::Varnish, Peer::TrafficServer];

const HIT: CoreTime = CoreTime {
    title: "hit, 14 bytes",
    path: "/small",
    fields: &[],
    status: 200,
    protocol: Protocol::Http1,
    answered_by: AnsweredBy::Cache,
    beside_plain_hit: false,
    shaping: Shaping::None,
};

const GZIP: CoreTime = CoreTime { fields: &[("Accept-Encoding", "gzip")], shaping: Shaping::Gzip, ..HIT };

impl What {
    /// Returns the rows to measure: all rows of the gateway if none were requested.
    pub(crate) fn resolved(asked: &[Self]) -> Vec<Self> {
        let all = |is_wanted: fn(Self) -> bool| {
            Self::value_variants().iter().copied().filter(move |row| is_wanted(*row))
        };
        let parts = |what: &Self| match what {
            Self::Kv => all(|row| row.is_kv() && row != Self::Kv).collect(),
            _ => vec![*what],
        };
        if asked.is_empty() {
            all(|row| !row.is_kv()).collect()
        } else {
            asked.iter().flat_map(parts).collect()
        }
    }

    /// Returns whether this is a row of the kv server. Rows of the kv server are the last variants.
    pub(crate) fn is_kv(self) -> bool {
        self >= Self::Kv
    }

    /// The servers of the row.
    pub(crate) fn peers(self) -> &'static [Peer] {
        use Peer::{Apache, Haproxy, Larder, NginxLua, NginxProxyCache, NginxStatic, TrafficServer, Varnish};
        match self {
            Self::Hit => Peer::value_variants(),
            Self::Vary | Self::NotModified | Self::Mixed | Self::Expiry => MEMORY_CACHES,
            Self::Miss => &[Larder, Peer::LarderTier, Haproxy, NginxProxyCache, Varnish, TrafficServer],
            Self::TenKib | Self::SixtyFourKib | Self::OneMib => {
                &[Larder, Haproxy, NginxProxyCache, NginxStatic, Varnish, TrafficServer]
            }
            Self::Tls => &[Larder, Haproxy, NginxProxyCache, NginxLua],
            Self::H2 => &[Larder, Haproxy, NginxProxyCache, Apache],
            // The null server shows the latency of the machine itself.
            Self::OpenLoop => {
                &[Peer::Null, Larder, Haproxy, NginxProxyCache, NginxLua, Varnish, TrafficServer]
            }
            Self::Memory | Self::Rules | Self::Gzip | Self::GzipMiss | Self::Limit => {
                &[Larder, Haproxy, NginxProxyCache]
            }
            // The other servers allocate all of their memory at the start, or keep bodies in files.
            Self::Overhead => &[Larder, Varnish],
            // Leaves out HAProxy, which doesn't send 100 (Continue) itself but waits for the origin's.
            Self::Upload => &[Larder, NginxProxyCache],
            // Leaves out HAProxy, which doesn't collapse requests.
            Self::Waiters => &[Larder, NginxProxyCache, Varnish],
            _ => &[],
        }
    }

    /// The settings of a row of core time. `None` for other rows.
    pub(crate) fn core_time(self) -> Option<CoreTime> {
        let large = |title, path| CoreTime { title, path, ..HIT };
        Some(match self {
            Self::Hit => HIT,
            Self::Vary => CoreTime {
                title: "hit with Vary, 14 bytes",
                path: "/vary",
                fields: &[("Accept-Encoding", "gzip")],
                beside_plain_hit: true,
                ..HIT
            },
            Self::NotModified => CoreTime {
                title: "304 for If-None-Match",
                fields: &[("If-None-Match", "\"one\"")],
                status: 304,
                beside_plain_hit: true,
                ..HIT
            },
            Self::Miss => CoreTime {
                title: "forwarded miss (no-store), 14 bytes",
                path: "/forward/small",
                answered_by: AnsweredBy::Origin,
                ..HIT
            },
            Self::TenKib => large("hit, 10 KiB", "/10k"),
            Self::SixtyFourKib => large("hit, 64 KiB", "/64k"),
            Self::OneMib => large("hit, 1 MiB", "/1m"),
            Self::Tls => {
                CoreTime { title: "hit over TLS 1.3, 14 bytes", protocol: Protocol::Http1Tls, ..HIT }
            }
            Self::H2 => CoreTime { title: "hit over HTTP/2, 14 bytes", protocol: Protocol::Http2, ..HIT },
            Self::Rules => {
                CoreTime { title: "hit, 14 bytes, ten matching rules", shaping: Shaping::Rules, ..HIT }
            }
            Self::Gzip => CoreTime { title: "hit, 20 KiB of text, gzip", path: "/text", ..GZIP },
            Self::GzipMiss => CoreTime {
                title: "forwarded miss (no-store), 20 KiB of text, gzip",
                path: "/forward/text",
                answered_by: AnsweredBy::Origin,
                ..GZIP
            },
            Self::Limit => CoreTime {
                title: "hit, 14 bytes, a rate limit for each client",
                shaping: Shaping::Limit,
                ..HIT
            },
            _ => return None,
        })
    }

    /// The gateway's budgets in the design; in addition, TLS hits and tail latencies must be ahead of every peer.
    pub(crate) fn budgets(self, title: &str) -> Vec<Limit> {
        use Limit::{AtMost, Times};
        let to = |peer, limit| Times(limit, Reference::Of(Subject::Peer(peer)));
        match self {
            Self::Hit => vec![
                to(Peer::Null, 1.15),
                to(Peer::Haproxy, 0.8),
                to(Peer::NginxLua, 0.55),
                to(Peer::NginxProxyCache, 0.35),
                to(Peer::Varnish, 0.3),
            ],
            Self::Vary | Self::NotModified => vec![Times(1.15, Reference::Of(Subject::PlainHit))],
            Self::Miss => vec![to(Peer::NginxProxyCache, 1.0)],
            Self::TenKib | Self::SixtyFourKib | Self::OneMib => vec![to(Peer::NginxStatic, 1.0)],
            Self::Tls => vec![Times(0.9, Reference::BestPeer)],
            Self::H2 => vec![to(Peer::Haproxy, 1.35)],
            Self::OpenLoop => vec![Times(1.0, Reference::BestPeer)],
            Self::Memory if title.contains("HTTP/1.1") => vec![AtMost(8.0)],
            Self::Memory if title.contains("HTTP/2") => vec![AtMost(28.0)],
            // Memory over TLS has no budget.
            Self::Memory => Vec::new(),
            // These rows have no budget.
            Self::Rules | Self::Gzip | Self::GzipMiss | Self::Limit => Vec::new(),
            Self::Overhead => vec![AtMost(600.0)],
            Self::Waiters => vec![AtMost(100.0)],
            Self::Expiry => vec![AtMost(1.0)],
            Self::Mixed => vec![AtMost(1000.0)],
            Self::Upload => vec![to(Peer::NginxProxyCache, 1.5)],
            _ => kv::budgets(title),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_takes_part_in_its_row() {
        for what in What::resolved(&[]) {
            assert!(what.peers().contains(&Peer::Larder) || what.peers().is_empty(), "{what:?}");
            for budget in what.budgets("") {
                if let Limit::Times(_, Reference::Of(Subject::Peer(peer))) = budget {
                    assert!(what.peers().contains(&peer), "{what:?} refers to {peer:?}");
                }
            }
        }
    }

    #[test]
    fn everything_belongs_to_the_gateway_or_to_kv() {
        let (gateway, kv) = (What::resolved(&[]), What::resolved(&[What::Kv]));
        assert_eq!((gateway.first(), gateway.last()), (Some(&What::Hit), Some(&What::Limit)));
        assert_eq!((kv.first(), kv.last()), (Some(&What::KvGet), Some(&What::KvTools)));
        assert_eq!(gateway.len() + kv.len() + 1, What::value_variants().len());
    }
}
