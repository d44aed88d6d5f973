//! The design's budgets for the kv server.

use super::{Store, memory};
use crate::plan::Limit::{self, AtMost, Times};
use crate::plan::Reference;
use crate::row::Subject;

/// The budgets of a row.
pub(crate) fn of(title: &str) -> Vec<Limit> {
    let null = |limit| Times(limit, Reference::Of(Subject::Store(Store::Null)));
    let redis = |limit| Times(limit, Reference::Of(Subject::Store(Store::Redis)));
    match title {
        "kv: GET, P=100" => vec![null(2.0), redis(0.22)],
        "kv: GET, P=10" => vec![redis(0.65)],
        "kv: GET, P=1, 50 connections" | "kv: GET of 1 KiB, P=1" => vec![redis(0.9)],
        "kv: GET, P=1, 256 connections" => vec![redis(0.93)],
        "kv: SET, P=100" => vec![redis(0.28)],
        "kv: GET of 64 KiB, P=1" => vec![redis(0.85)],
        "kv: GET, P=100, 10 M keys" => vec![Times(1.6, Reference::Of(Subject::HotKeys))],
        memory::NO_TTL => vec![AtMost(24.0)],
        memory::TTL => vec![AtMost(30.0)],
        _ => Vec::new(),
    }
}
