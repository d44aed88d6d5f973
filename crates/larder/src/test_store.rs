//! A simulated remote tier for tests, inside this process. The memory tier in front of it keeps nothing or, with
//! `memory=kept`, everything.

use std::env;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use fleet::leases::LeaseLimits;
use fleet::{Coherence, MemoryUse, StartTier};
use store::backing::double::{Behaviour, Double, DoubleLimits, DoubleServer};
use store::backing::{BreakerOptions, BreakerSettings, Deadlines, Guarded};

/// Variable that enables the simulated tier and sets its behaviour, as in `latency_ms=5,evicting_permille=100`.
const VARIABLE: &str = "LARDER_TEST_STORE";

/// Behaviour of the tier, and the deadline for each of its replies.
struct Asked {
    behaviour: Behaviour,
    deadline: Duration,
    memory_use: MemoryUse,
    /// The tier is unreachable while this file exists.
    dead_while: Option<PathBuf>,
    /// Pause in milliseconds after too many failures.
    reset_ms: u64,
}

pub(crate) fn tier() -> anyhow::Result<Option<StartTier>> {
    let Some(text) = env::var_os(VARIABLE) else { return Ok(None) };
    let text = text.to_str().with_context(|| format!("{VARIABLE} is not text"))?;
    let Asked { behaviour, deadline, memory_use, dead_while, reset_ms } = asked(text)?;
    let double = DoubleServer::new(DoubleLimits::default(), 1).connect(behaviour);
    if let Some(file) = dead_while {
        tokio::spawn(die_while(file, double.clone(), behaviour));
    }
    let deadlines = Deadlines { record: deadline, segment: deadline, log: deadline, release: deadline };
    let options = BreakerOptions { reset_ms, ..BreakerOptions::default() };
    let settings = BreakerSettings::new(options)?;
    let backing = Guarded::new(Box::new(double), deadlines, settings);
    let (name, verification) = ("test".to_owned(), DoubleLimits::default().verification);
    // As long as the deadline, so that tests don't fail on a busy machine.
    let leases = LeaseLimits { time: Duration::from_secs(30), wait_max: Duration::from_secs(30) };
    Ok(Some(StartTier {
        backing: Arc::new(backing),
        memory_use,
        coherence: Coherence::Available,
        name,
        verification,
        leases,
        region: None,
    }))
}

async fn die_while(file: PathBuf, double: Double, otherwise: Behaviour) {
    let dead = Behaviour { unreachable_permille: 1000, ..otherwise };
    loop {
        double.behave(if file.exists() { dead } else { otherwise });
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn asked(text: &str) -> anyhow::Result<Asked> {
    let mut asked = Asked {
        behaviour: Behaviour::default(),
        // Long enough that tests don't fail on a busy machine.
        deadline: Duration::from_secs(10),
        memory_use: MemoryUse::Forgotten,
        dead_while: None,
        reset_ms: BreakerOptions::default().reset_ms,
    };
    for setting in text.split(',') {
        let (name, value) = setting.split_once('=').with_context(|| format!("{VARIABLE}: {setting:?}"))?;
        let number = || value.parse::<u16>().with_context(|| format!("{VARIABLE}: {setting:?}"));
        let behaviour = &mut asked.behaviour;
        match name {
            "latency_ms" => behaviour.latency = Duration::from_millis(number()?.into()),
            "deadline_ms" => asked.deadline = Duration::from_millis(number()?.into()),
            "seed" => behaviour.seed = number()?.into(),
            "unreachable_permille" => behaviour.unreachable_permille = number()?,
            "silent_permille" => behaviour.silent_permille = number()?,
            "evicting_permille" => behaviour.evicting_permille = number()?,
            "contended_keys" => behaviour.contended_keys = value.to_owned().leak(),
            "memory" if value == "kept" => asked.memory_use = MemoryUse::Kept,
            "reset_ms" => asked.reset_ms = number()?.into(),
            "dead_while" => asked.dead_while = Some(value.into()),
            _ => bail!("{VARIABLE}: {name} is not known"),
        }
    }
    Ok(asked)
}
