//! Clients of a server in memory, and what is to hold whatever they say.

mod observer;
mod play;
mod script;

pub use play::Play;
pub use script::Form;

/// Ends the process, or lets it wait.
pub fn is_harmful(script: &[u8]) -> bool {
    has_word(script, &["shutdown", "sleep"])
}

/// Replies to these differ from one run to the next, or with the pieces that the bytes came in.
pub fn depends_on_chance_or_clock(script: &[u8]) -> bool {
    let words = [
        "random", "time", "info", "slowlog", "latency", "list", "memory", "stats", "doctor", "debug",
        "channels", "monitor",
    ];
    // Broadcasts tell at once of all that changed with the same bytes.
    has_word(script, &words) || has_word(script, &["bcast"])
}

/// In capitals or not.
pub fn has_word(script: &[u8], words: &[&str]) -> bool {
    let text = script.to_ascii_lowercase();
    words.iter().any(|word| text.windows(word.len()).any(|window| window == word.as_bytes()))
}
