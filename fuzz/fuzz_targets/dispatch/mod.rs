//! Clients of an in-memory server, and properties that hold for every script.

mod observer;
mod play;
mod script;

pub use play::Play;
pub use script::Form;

/// Returns whether the script ends or blocks the process.
pub fn is_harmful(script: &[u8]) -> bool {
    has_word(script, &["shutdown", "sleep"])
}

/// Returns whether replies may differ between runs or between splits of the bytes.
pub fn depends_on_chance_or_clock(script: &[u8]) -> bool {
    let words = [
        "random", "time", "info", "slowlog", "latency", "list", "memory", "stats", "doctor", "debug",
        "channels", "monitor",
    ];
    // A broadcast reports all keys together that changed in the same read.
    has_word(script, &words) || has_word(script, &["bcast"])
}

/// Returns whether the script has one of the words, in any case.
pub fn has_word(script: &[u8], words: &[&str]) -> bool {
    let text = script.to_ascii_lowercase();
    words.iter().any(|word| text.windows(word.len()).any(|window| window == word.as_bytes()))
}
