//! The head of an HTTP/1.x request in the form shared by both protocols.

use caching::unkeyed::{self, FieldClass, class_of};
use caching::{FieldLine, hop_by_hop, sharing, target};
use http1::{Framing, RequestError, Version as WireVersion};
use message::head::{ClientEnd, Content, Nominations, RequestHead, Version};

use crate::config::{ClientLimits, Config};
use crate::request::respond::Problem;
use crate::rewrite::reading;
use crate::routing::Routes;

/// Returns whether `Connection` names a forwarding field, a credential, or a field that a site reads. With such a `Connection`, a client
/// could remove a field that a load balancer has written, if the load balancer forwards `Connection` unchanged.
//= RFC 9110 section 7.6.1: fields for all recipients are not named
pub(super) fn takes_out_what_others_say(lines: &[FieldLine<'_>], routes: &Routes) -> bool {
    let is_known = |name: &str| {
        class_of(name) != FieldClass::Ordinary || sharing::is_credential(&unkeyed::plain_name(name))
    };
    let is_such = |name: &str| !hop_by_hop::ends_here(name) && (is_known(name) || routes.read_field(name));
    let connections = lines.iter().filter(|(name, _)| name.eq_ignore_ascii_case("connection"));
    connections
        .flat_map(|(_, value)| http1::elements(value))
        .any(|option| std::str::from_utf8(option).is_ok_and(is_such))
}

/// Returns the target in normal form, or `None` if it is in that form already. Adds a path to a target in absolute-form that has only a
/// query.
//= RFC 9110 section 4.2.3: http(s) normalization and comparison
pub(super) fn normal_target(head: &http1::Head<'_, '_>) -> Option<String> {
    if head.path_and_query.starts_with('?') {
        let completed = format!("/{}", head.path_and_query);
        return target::normal_form(&completed).or(Some(completed));
    }
    target::normal_form(head.path_and_query)
}

/// Builds the request's head.
pub(super) fn head<'a>(
    head: &http1::Head<'a, 'a>,
    path_and_query: &'a str,
    (client, config): (&'a ClientEnd, &Config),
) -> RequestHead<'a> {
    RequestHead {
        method: head.method,
        scheme: reading::scheme(client.peer, head.fields, &config.trusted_proxies),
        authority: head.authority.as_str(),
        path_and_query,
        version: match head.version {
            WireVersion::Http10 => Version::Http10,
            WireVersion::Http11 => Version::Http11,
        },
        fields: head.fields,
        nominations: if head.nominates_fields { Nominations::Some } else { Nominations::None },
        sent: None,
        keyed: &[],
        content: match head.framing {
            Framing::None | Framing::Length(0) => Content::None,
            Framing::Length(bytes) => Content::Length(bytes),
            Framing::Chunked => Content::Unknown,
        },
        upgrade: head.upgrade.and_then(tunnelled),
        record: None,
        timeline: None,
        peer: client.peer,
        tls: client.tls.as_ref(),
    }
}

/// Returns the protocol to switch to: the first one offered that the origin may support. The upgrade to cleartext HTTP/2 is left out: it is
/// obsolete (RFC 9113 section 3.1), and a client that offers it also accepts HTTP/1.1 (RFC 9110 section 7.8). An origin that accepted the
/// upgrade would receive requests that bypass all checks made here.
//= RFC 9110 section 7.8: Upgrade
//= RFC 9113 section 3.1: h2c is obsolete
fn tunnelled(offered: &[u8]) -> Option<&str> {
    let mut protocols = std::str::from_utf8(offered).ok()?.split(',').map(str::trim);
    protocols.find(|protocol| !protocol.is_empty() && !protocol.eq_ignore_ascii_case("h2c"))
}

/// Converts the error of a head that can't be parsed to the problem reported to the client.
pub(super) fn refusal(error: RequestError) -> Problem {
    Problem::new(error.status(), error.reason(), error.to_string())
}

pub(super) fn codec_limits(limits: &ClientLimits) -> http1::Limits {
    http1::Limits {
        head_bytes_max: limits.head_bytes_max,
        target_bytes_max: limits.target_bytes_max,
        fields_max: limits.fields_max,
        ..http1::Limits::default()
    }
}
