//! Replies with values that are kept compressed: they are unpacked when nothing is locked.

use engine::{Found, Stored, Value};

use crate::reply::Reply;

/// Values that are still missing among the replies.
#[derive(Debug, Default)]
pub(super) struct Later {
    /// Where each belongs.
    missing: Vec<(usize, Stored)>,
}

impl Later {
    /// Replies with what was found, or leaves it for later.
    pub(super) fn reply(&mut self, found: Option<&Found<'_>>, reply: &mut Reply<'_>) {
        match found.map(|found| found.value) {
            None => reply.null(),
            Some(Value::Large(packed @ Stored::Packed(_))) => {
                self.missing.push((reply.out.len(), packed.clone()));
            }
            Some(value) => reply.bulk(value.plain().unwrap_or_default()),
        }
    }

    /// Everything that was replied from there on is gone.
    pub(super) fn begin_again(&mut self, begin: usize, reply: &mut Reply<'_>) {
        reply.out.truncate(begin);
        self.missing.clear();
    }

    /// Replies with the rest. Nothing may be locked.
    pub(super) fn finish(self, reply: &mut Reply<'_>) {
        let Some(begin) = self.missing.first().map(|(at, _)| *at) else { return };
        let others = reply.out.split_off(begin);
        let mut told = 0;
        for (at, packed) in self.missing {
            reply.out.extend_from_slice(&others[told..at - begin]);
            told = at - begin;
            reply.bulk(&packed.plain());
        }
        reply.out.extend_from_slice(&others[told..]);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use engine::{Access, Database, Engine, Expiry, Policy, Settings};

    use super::*;
    use crate::reply::Version;

    #[test]
    fn values_stand_where_they_were_asked_for() {
        let engine =
            Engine::new(&Settings { bytes_max: 16 << 20, policy: Policy::default(), seed: 1, threads: 1 });
        engine.set_pack_from_bytes(20_000);
        let long = b"again ".repeat(5_000);
        let mut out = b"before".to_vec();
        let mut reply = Reply { out: &mut out, version: Version::Resp3 };
        let mut later = Later::default();
        let values: [Option<&[u8]>; 6] =
            [None, Some(&long), Some(b"one"), Some(&long), Some(&long), Some(b"two")];
        for (number, value) in values.into_iter().enumerate() {
            let name = number.to_string();
            let key = engine.key(Database::default(), name.as_bytes());
            let mut located = engine.lock(&key);
            if let Some(value) = value {
                let stored = engine.pack(Arc::new(value.to_vec()));
                located.set_stored(stored, Expiry::Never, 0).expect("there is room");
            }
            later.reply(located.get(Access::Use, 0).as_ref(), &mut reply);
        }
        later.finish(&mut reply);
        let mut expected = b"before".to_vec();
        let mut reply = Reply { out: &mut expected, version: Version::Resp3 };
        values.into_iter().for_each(|value| reply.bulk_or_null(value));
        assert!(out == expected);
    }
}
