//! What is measured: the rows of the comparison, the servers that take part in each, and what a design budget asks.

use serde::{Deserialize, Serialize};

use crate::load::Protocol;
use crate::peers::Peer;

/// A row of the comparison; the argument WHAT of `make compare`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum What {
    Hit,
    Vary,
    #[value(name = "304")]
    #[serde(rename = "304")]
    NotModified,
    Miss,
    #[value(name = "10k")]
    #[serde(rename = "10k")]
    TenKib,
    #[value(name = "64k")]
    #[serde(rename = "64k")]
    SixtyFourKib,
    #[value(name = "1m")]
    #[serde(rename = "1m")]
    OneMib,
    Tls,
    H2,
}

/// A row that is measured as core time per request.
pub(crate) struct CoreTime {
    pub(crate) title: &'static str,
    pub(crate) path: &'static str,
    pub(crate) fields: &'static [&'static str],
    pub(crate) protocol: Protocol,
    /// What a request must find.
    pub(crate) answered_by: AnsweredBy,
    pub(crate) peers: &'static [Peer],
    /// Larder's plain hit is measured beside, as what a budget refers to.
    pub(crate) beside_plain_hit: bool,
}

/// Who has the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnsweredBy {
    Cache,
    Origin,
}

/// What design asks of Larder: at most `limit` times the reference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Budget {
    pub(crate) reference: Reference,
    pub(crate) limit: f64,
}

/// What Larder is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reference {
    Peer(Peer),
    /// The best of all caches in the row.
    BestPeer,
    /// Larder's own plain hit in the same run.
    PlainHit,
}

const EVERYBODY: &[Peer] = &Peer::ALL;
const CACHES: &[Peer] =
    &[Peer::Larder, Peer::Haproxy, Peer::NginxProxyCache, Peer::Varnish, Peer::TrafficServer];
const LARGE: &[Peer] = &[
    Peer::Larder,
    Peer::Haproxy,
    Peer::NginxProxyCache,
    Peer::NginxStatic,
    Peer::Varnish,
    Peer::TrafficServer,
];

const HIT: CoreTime = CoreTime {
    title: "hit, 14 bytes",
    path: "/small",
    fields: &[],
    protocol: Protocol::Http1,
    answered_by: AnsweredBy::Cache,
    peers: EVERYBODY,
    beside_plain_hit: false,
};

impl What {
    pub(crate) fn core_time(self) -> CoreTime {
        let large = |title, path| CoreTime { title, path, peers: LARGE, ..HIT };
        match self {
            Self::Hit => HIT,
            Self::Vary => CoreTime {
                title: "hit with Vary, 14 bytes",
                path: "/vary",
                fields: &["Accept-Encoding: gzip"],
                peers: CACHES,
                beside_plain_hit: true,
                ..HIT
            },
            Self::NotModified => CoreTime {
                title: "304 for If-None-Match",
                fields: &["If-None-Match: \"one\""],
                peers: CACHES,
                beside_plain_hit: true,
                ..HIT
            },
            Self::Miss => CoreTime {
                title: "forwarded miss (no-store), 14 bytes",
                path: "/forward/small",
                answered_by: AnsweredBy::Origin,
                peers: CACHES,
                ..HIT
            },
            Self::TenKib => large("hit, 10 KiB", "/10k"),
            Self::SixtyFourKib => large("hit, 64 KiB", "/64k"),
            Self::OneMib => large("hit, 1 MiB", "/1m"),
            Self::Tls => CoreTime {
                title: "hit over TLS 1.3, 14 bytes",
                protocol: Protocol::Http1Tls,
                peers: &[Peer::Larder, Peer::Haproxy, Peer::NginxProxyCache, Peer::NginxLua],
                ..HIT
            },
            Self::H2 => CoreTime {
                title: "hit over HTTP/2, 14 bytes",
                protocol: Protocol::Http2,
                peers: &[Peer::Larder, Peer::Haproxy, Peer::NginxProxyCache, Peer::Apache],
                ..HIT
            },
        }
    }

    /// Design section 4, and the issue's own for TLS.
    pub(crate) fn budgets(self) -> Vec<Budget> {
        let budget = |reference, limit| Budget { reference, limit };
        let to = |peer, limit| budget(Reference::Peer(peer), limit);
        match self {
            Self::Hit => vec![
                to(Peer::Null, 1.15),
                to(Peer::Haproxy, 0.8),
                to(Peer::NginxLua, 0.55),
                to(Peer::NginxProxyCache, 0.35),
                to(Peer::Varnish, 0.3),
            ],
            Self::Vary | Self::NotModified => vec![budget(Reference::PlainHit, 1.15)],
            Self::Miss => vec![to(Peer::NginxProxyCache, 1.0)],
            Self::TenKib | Self::SixtyFourKib | Self::OneMib => vec![to(Peer::NginxStatic, 1.0)],
            Self::Tls => vec![budget(Reference::BestPeer, 0.9)],
            Self::H2 => vec![to(Peer::Haproxy, 1.35)],
        }
    }
}
