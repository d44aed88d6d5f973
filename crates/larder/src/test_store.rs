//! For tests alone: a tier behind memory that lives in this process, beneath a memory that keeps nothing.

use std::env;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use gateway::{MemoryUse, StartTier};
use store::backing::double::{Behaviour, DoubleLimits, DoubleServer};
use store::backing::{BreakerOptions, BreakerSettings, Deadlines, Guarded};

/// Without it there is no tier. What is asked of it, as in `latency_ms=5,evicting_permille=100`.
const VARIABLE: &str = "LARDER_TEST_STORE";

/// How the tier behaves, and how long each of its answers is waited for.
struct Asked {
    behaviour: Behaviour,
    deadline: Duration,
}

pub(crate) fn tier() -> anyhow::Result<Option<StartTier>> {
    let Some(text) = env::var_os(VARIABLE) else { return Ok(None) };
    let text = text.to_str().with_context(|| format!("{VARIABLE} is not text"))?;
    let Asked { behaviour, deadline } = asked(text)?;
    let double = DoubleServer::new(DoubleLimits::default(), 1).connect(behaviour);
    let deadlines = Deadlines { record: deadline, segment: deadline, log: deadline };
    let settings = BreakerSettings::new(BreakerOptions::default())?;
    let backing = Guarded::new(Box::new(double), deadlines, settings);
    Ok(Some(StartTier { backing: Arc::new(backing), memory_use: MemoryUse::Forgotten }))
}

fn asked(text: &str) -> anyhow::Result<Asked> {
    // A busy machine is no reason for a test to fail.
    let mut asked = Asked { behaviour: Behaviour::default(), deadline: Duration::from_secs(10) };
    for setting in text.split(',') {
        let (name, number) = setting.split_once('=').with_context(|| format!("{VARIABLE}: {setting:?}"))?;
        let number: u16 = number.parse().with_context(|| format!("{VARIABLE}: {setting:?}"))?;
        let behaviour = &mut asked.behaviour;
        match name {
            "latency_ms" => behaviour.latency = Duration::from_millis(number.into()),
            "deadline_ms" => asked.deadline = Duration::from_millis(number.into()),
            "seed" => behaviour.seed = number.into(),
            "unreachable_permille" => behaviour.unreachable_permille = number,
            "silent_permille" => behaviour.silent_permille = number,
            "evicting_permille" => behaviour.evicting_permille = number,
            _ => bail!("{VARIABLE}: {name} is not known"),
        }
    }
    Ok(asked)
}
