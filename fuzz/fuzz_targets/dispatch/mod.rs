//! Clients of a server in memory, and checks that hold for any input.

mod observer;
mod play;
mod script;

pub use play::Play;
pub use script::Form;

/// Whether a script may end the process or make it wait.
pub fn is_harmful(script: &[u8]) -> bool {
    has_word(script, &["shutdown", "sleep"])
}

/// Whether replies to the script may differ between runs, or with the way in which its bytes are split.
pub fn depends_on_chance_or_clock(script: &[u8]) -> bool {
    let words = [
        "random", "time", "info", "slowlog", "latency", "list", "memory", "stats", "doctor", "debug",
        "channels", "monitor",
    ];
    // A broadcast covers all changes in the same read.
    has_word(script, &words) || has_word(script, &["bcast"])
}

/// Whether the script has one of these words, in any case.
pub fn has_word(script: &[u8], words: &[&str]) -> bool {
    let text = script.to_ascii_lowercase();
    words.iter().any(|word| text.windows(word.len()).any(|window| window == word.as_bytes()))
}
