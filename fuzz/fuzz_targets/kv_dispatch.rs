//! Any bytes from two clients of a server in memory: it answers each in whole replies, as often as there are commands, the same
//! however the bytes are split, and the invariants of its engine hold. The first byte says how the bytes are split.

#![no_main]

use std::sync::Arc;

use engine::{Engine, Policy, Settings};
use kv::Offline;
use libfuzzer_sys::fuzz_target;
use resp::{Limits, Scanner};

const NOW_MS: u64 = 1_700_000_000_000;

fuzz_target!(|input: &[u8]| {
    let Some((&piece, bytes)) = input.split_first() else { return };
    let whole = replies(bytes, bytes.len().max(1));
    let split = replies(bytes, usize::from(piece).max(1));
    if !depends_on_chance_or_clock(bytes) {
        assert_eq!(whole.escape_ascii().to_string(), split.escape_ascii().to_string());
    }
});

/// Replies to these differ from one run to the next.
fn depends_on_chance_or_clock(bytes: &[u8]) -> bool {
    let text = bytes.to_ascii_lowercase();
    let words: [&[u8]; 8] =
        [b"random", b"time", b"info", b"slowlog", b"latency", b"client", b"memory", b"hello"];
    words.iter().any(|word| text.windows(word.len()).any(|window| window == *word))
}

fn replies(bytes: &[u8], piece: usize) -> Vec<u8> {
    let settings = Settings { bytes_max: 2 << 20, policy: Policy::default(), seed: 7, threads: 1 };
    let engine = Arc::new(Engine::new(&settings));
    let server = Offline::new(Arc::clone(&engine)).expect("an event queue");
    let (mut first, mut second) = (server.connect(NOW_MS), server.connect(NOW_MS));
    // Somebody whom pub/sub and tracking may tell.
    let mut told = Vec::new();
    second.hear(b"HELLO 3\r\nSUBSCRIBE a\r\n", NOW_MS, &mut told);
    let mut replies = Vec::new();
    for piece in bytes.chunks(piece) {
        if first.hear(piece, NOW_MS, &mut replies).is_none() {
            break;
        }
    }
    second.hear(b"", NOW_MS, &mut told);
    assert_whole(&replies);
    assert_whole(&told);
    engine.shards().try_for_each(|shard| shard.check()).expect("the invariants hold");
    replies
}

fn assert_whole(mut replies: &[u8]) {
    while !replies.is_empty() {
        let length = Scanner::new(Limits::default()).scan(replies).expect("replies are RESP");
        replies = &replies[length.expect("replies are whole")..];
    }
}
