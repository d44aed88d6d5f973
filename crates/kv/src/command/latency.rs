//! SLOWLOG and LATENCY.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::info::sums;
use super::{Call, Outcome, Refusal};
use crate::repeated;
use crate::reply::Reply;
use crate::slow::Event;
use crate::sparkline;

/// Default count of SLOWLOG GET.
const COUNT: usize = 10;

/// SLOWLOG GET [count]
pub(super) fn slowlog_get(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let count = match call.length() {
        2 => COUNT,
        3 => match call.integer(2).unwrap_or(i64::MIN) {
            -1 => usize::MAX,
            count => usize::try_from(count)
                .map_err(|_| Refusal::Other("ERR count should be greater than or equal to -1"))?,
        },
        _ => return Err(Refusal::Arity("slowlog|get".to_owned())),
    };
    let entries = call.shared.slow.entries(count);
    reply.array(entries.len());
    for entry in entries {
        reply.array(6);
        reply.integer(entry.id as i64);
        reply.integer(entry.at_s as i64);
        reply.integer(entry.took_us as i64);
        reply.array(entry.arguments.len());
        entry.arguments.iter().for_each(|argument| reply.bulk(argument));
        reply.bulk(entry.client.as_bytes());
        reply.bulk(&entry.client_name);
    }
    Ok(())
}

pub(super) fn slowlog_len(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    reply.count(call.shared.slow.length());
    Ok(())
}

pub(super) fn slowlog_reset(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    call.shared.slow.clear();
    reply.ok();
    Ok(())
}

pub(super) fn latest(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let events = call.shared.slow.events();
    reply.array(events.len());
    for (name, event) in events {
        let (at_s, took_ms) = event.samples.back().copied().unwrap_or_default();
        reply.array(4);
        reply.bulk(name.as_bytes());
        [at_s, took_ms, event.max_ms].into_iter().for_each(|number| reply.integer(number as i64));
    }
    Ok(())
}

/// LATENCY HISTORY event
pub(super) fn history(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let samples = event(call).map(|event| event.samples).unwrap_or_default();
    reply.array(samples.len());
    for (at_s, took_ms) in samples {
        reply.array(2);
        reply.integer(at_s as i64);
        reply.integer(took_ms as i64);
    }
    Ok(())
}

fn event(call: &Call<'_>) -> Option<Event> {
    let name = call.argument(2);
    call.shared.slow.events().into_iter().find(|(other, _)| other.as_bytes() == name).map(|(_, event)| event)
}

/// LATENCY RESET [event ...]
pub(super) fn reset(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let names: Vec<&[u8]> = call.from(2).collect();
    reply.count(call.shared.slow.forget(&names));
    Ok(())
}

/// LATENCY GRAPH event
pub(super) fn graph(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let event = event(call).ok_or_else(|| Refusal::NoSamples(repeated::text(call.argument(2))))?;
    let now_s = call.now_ms / 1000;
    let sample = |(at_s, value): &(u64, u64)| {
        let label = sparkline::ago(now_s.saturating_sub(*at_s));
        sparkline::Sample { value: *value, label }
    };
    let samples: Vec<_> = event.samples.iter().map(sample).collect();
    let values = || samples.iter().map(|sample| sample.value);
    let (low, high) = (values().min().unwrap_or_default(), values().max().unwrap_or_default());
    let name = String::from_utf8_lossy(call.argument(2));
    reply.text(&format!(
        "{name} - high {high} ms, low {low} ms (all time high {} ms)\n{}\n{}",
        event.max_ms,
        "-".repeat(80),
        sparkline::draw(&samples),
    ));
    Ok(())
}

pub(super) fn doctor(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let (slow, events) = (&call.shared.slow, call.shared.slow.events());
    let mut text = String::new();
    if slow.monitored_ms() == 0 {
        text.push_str(
            "Latency monitoring is off: set a threshold with CONFIG SET latency-monitor-threshold.\n",
        );
    } else if events.is_empty() {
        let _ = writeln!(text, "No event took {} ms or longer.", slow.monitored_ms());
    }
    for (name, event) in events {
        let count = event.samples.len();
        let mean_ms = event.samples.iter().map(|(_, took_ms)| took_ms).sum::<u64>() / count.max(1) as u64;
        let _ = writeln!(
            text,
            "{name}: {count} samples, {mean_ms} ms on average, {} ms at most. SLOWLOG GET shows the commands.",
            event.max_ms
        );
    }
    reply.text(&text);
    Ok(())
}

/// LATENCY HISTOGRAM [command ...]
pub(super) fn histogram(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let known = |name: &[u8]| call.shared.table.find_with_parts(name).map(|command| command.name);
    let wanted: BTreeSet<_> = call.from(2).filter_map(known).collect();
    let is_wanted = |name: &str| {
        // The name of a container command selects its subcommands.
        let container = name.split('|').next().unwrap_or_default();
        call.length() == 2 || wanted.contains(name) || wanted.contains(container)
    };
    let told: Vec<_> = sums(call).filter(|(command, sum)| sum.calls > 0 && is_wanted(command.name)).collect();
    reply.map(told.len());
    for (command, sum) in told {
        let steps = sum.cumulative_us();
        reply.bulk(command.name.as_bytes());
        reply.map(2);
        reply.bulk(b"calls");
        reply.integer(sum.calls as i64);
        reply.bulk(b"histogram_usec");
        reply.map(steps.len());
        for (at_most_us, calls) in steps {
            reply.integer(at_most_us as i64);
            reply.integer(calls as i64);
        }
    }
    Ok(())
}
