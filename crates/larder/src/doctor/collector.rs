//! Checks that the collector of `[tracing]` accepts spans.

use std::borrow::Cow;

use super::checks::{Advice, Finding};

/// Sends a message without spans, which every collector accepts.
pub(super) fn finding(settings: &otlp::Settings) -> Finding {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let asked = match runtime {
        Ok(runtime) => runtime.block_on(otlp::probe(settings)),
        Err(error) => Err(error.to_string()),
    };
    let (setting, endpoint) = (Cow::Borrowed("endpoint of tracing"), &settings.endpoint);
    match asked {
        Ok(()) => Finding { setting, found: format!("{endpoint}, which accepts spans"), advice: None },
        Err(error) => Finding {
            setting,
            found: format!("{endpoint}, which accepts no spans: {error}"),
            advice: Some(Advice {
                set: "a collector that speaks OTLP over HTTP, usually on port 4318".to_owned(),
                why: LOST,
            }),
        },
    }
}

const LOST: &str = "spans are dropped, and no request waits for them";
