//! Checks whether the shared store is suitable as a tier.

use std::time::Duration;

use store::remote::{ExamineError, Examined, ExaminedPeer, examine, examine_peer};

use super::checks::{Advice, Finding, told};
use crate::config::{PeerSettings, RemoteTier, format_size};

/// Connects and checks the server.
pub(super) fn findings(tier: &RemoteTier) -> Vec<Finding> {
    match wait_for(examine(&tier.server)) {
        Ok(examined) => judge(&examined, tier.deadlines.record),
        Err(error) => vec![unreachable("url of the store", tier, &error, ALONE)],
    }
}

/// Connects to the store of another region, and checks it.
pub(super) fn findings_of_peer(peer: &PeerSettings) -> Vec<Finding> {
    match wait_for(examine_peer(&peer.remote.server)) {
        Ok(examined) => judge_peer(&examined, &peer.name),
        Err(error) => vec![unreachable("url of the region", &peer.remote, &error, UNPURGED)],
    }
}

fn wait_for<T>(examined: impl Future<Output = Result<T, ExamineError>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| told(&error))?.block_on(examined).map_err(|error| told(&error))
}

fn unreachable(setting: &'static str, tier: &RemoteTier, error: &str, why: &'static str) -> Finding {
    Finding {
        setting: setting.into(),
        found: format!("{} ({error})", tier.server.address),
        advice: Some(Advice { set: REACHABLE.to_owned(), why }),
    }
}

fn judge_peer(examined: &ExaminedPeer, name: &str) -> Vec<Finding> {
    let region = match examined.region.as_deref() {
        Some(found) => advised(
            "name of the region",
            found.to_owned(),
            (found != name).then_some(("the name in the region's own configuration", OTHER_REGION)),
        ),
        None => advised("name of the region", "none".to_owned(), Some((RUNNING, NO_CARRIER))),
    };
    let round_trip = format!("{:.2} ms", examined.round_trip.as_secs_f64() * 1e3);
    let of_region = |finding: Finding| Finding {
        setting: finding.setting.replace("the store", "the region's store").into(),
        ..finding
    };
    let permissions = permissions(&Examined { refused: examined.refused.clone(), ..Examined::default() });
    let rest = [examined.is_master.map(role), examined.clock_ahead_ms.map(clock)];
    let rest = rest.into_iter().flatten().chain([good("round trip to the store", round_trip), permissions]);
    std::iter::once(region).chain(rest.map(of_region)).collect()
}

fn judge(examined: &Examined, record_timeout: Duration) -> Vec<Finding> {
    let findings = [
        examined.version.as_ref().map(|version| good("version of the store", version.clone())),
        examined.is_master.map(role),
        Some(round_trip(examined.round_trip, record_timeout)),
        examined.clock_ahead_ms.map(clock),
        examined.memory_bytes_max.map(memory),
        examined.eviction_policy.as_deref().map(|policy| eviction(policy, examined.memory_bytes_max)),
        examined.tracked_keys_max.map(tracked),
        (examined.replicas > 0).then(|| examined.replicas_min.map(replicas_min)).flatten(),
        Some(tracking(examined.tracks)),
        Some(permissions(examined)),
    ];
    findings.into_iter().flatten().collect()
}

fn good(setting: &'static str, found: String) -> Finding {
    Finding { setting: setting.into(), found, advice: None }
}

fn advised(setting: &'static str, found: String, advice: Option<(&str, &'static str)>) -> Finding {
    Finding {
        setting: setting.into(),
        found,
        advice: advice.map(|(set, why)| Advice { set: set.to_owned(), why }),
    }
}

fn role(is_master: bool) -> Finding {
    let found = if is_master { "master" } else { "replica" }.to_owned();
    advised("role of the store", found, (!is_master).then_some(("the URL of the master", REPLICA)))
}

fn round_trip(time: Duration, record_timeout: Duration) -> Finding {
    let found =
        format!("{:.2} ms (record_timeout {} ms)", time.as_secs_f64() * 1e3, record_timeout.as_millis());
    let is_far = time * ROUND_TRIPS > record_timeout;
    advised(
        "round trip to the store",
        found,
        is_far.then_some(("a nearer server, or a longer record_timeout", FAR)),
    )
}

fn clock(ahead_ms: i64) -> Finding {
    let is_off = ahead_ms.unsigned_abs() > CLOCK_MS_MAX;
    let found = format!("{ahead_ms} ms ahead of this machine");
    advised("clock of the store", found, is_off.then_some(("both clocks by NTP", CLOCK)))
}

fn memory(bytes: u64) -> Finding {
    let found = if bytes == 0 { "0 (no limit)".to_owned() } else { format_size(bytes) };
    advised("maxmemory of the store", found, (bytes == 0).then_some((LIMIT, BOUNDLESS)))
}

fn eviction(policy: &str, memory_bytes: Option<u64>) -> Finding {
    let advice = match policy {
        "noeviction" if memory_bytes != Some(0) => Some((VOLATILE, FULL)),
        policy if policy.starts_with("allkeys") => Some((VOLATILE, LOG_EVICTED)),
        _ => None,
    };
    advised("maxmemory-policy of the store", policy.to_owned(), advice)
}

fn tracked(keys: u64) -> Finding {
    let is_few = keys != 0 && keys < TRACKED_MIN;
    advised(
        "tracking-table-max-keys of the store",
        keys.to_string(),
        is_few.then_some(("at least 100000", TABLE)),
    )
}

fn tracking(tracks: bool) -> Finding {
    let found = if tracks { "yes" } else { "no" }.to_owned();
    let set = "a server with RESP3 and CLIENT TRACKING: Redis 6, Valkey, larder kv";
    advised("CLIENT TRACKING of the store", found, (!tracks).then_some((set, DEAF)))
}

fn replicas_min(least: u64) -> Finding {
    let advice = (least == 0).then_some(("1 or more, with `min-replicas-max-lag 10`", CUT_OFF));
    advised("min-replicas-to-write of the store", least.to_string(), advice)
}

fn permissions(Examined { refused, replicas, .. }: &Examined) -> Finding {
    let found = if refused.is_empty() {
        "all required commands".to_owned()
    } else {
        format!("without {}", refused.join(", "))
    };
    let is_needed = |command: &str| !OPTIONAL.contains(&command) && (command != "WAIT" || *replicas > 0);
    let needed = refused.iter().any(|command| is_needed(command));
    advised(
        "permissions of the user of the store",
        found,
        needed.then_some(("these commands (ACL SETUSER)", NEEDED)),
    )
}

/// Commands that the checks use, but that the gateway doesn't need.
const OPTIONAL: [&str; 2] = ["ROLE", "TIME"];
/// Minimum number of round trips that must fit into `record_timeout`. An operation takes two, and the first one on
/// a connection takes five to seven.
const ROUND_TRIPS: u32 = 10;
const CLOCK_MS_MAX: u64 = 1_000;
const TRACKED_MIN: u64 = 100_000;
const LIMIT: &str = "a limit below the memory of its machine, and `maxmemory-policy volatile-lfu` with it";
const VOLATILE: &str = "volatile-lfu or volatile-lru";

const REACHABLE: &str = "the URL of a server that answers and accepts the user, password and database; with `rediss://`, `ca_file` and `client_certificate`, too";
const ALONE: &str =
    "without a shared store each instance caches on its own, and the origin answers each instance separately";
const REPLICA: &str = "a replica accepts no writes, so it is not used";
const FAR: &str =
    "a miss that waits longer than record_timeout goes to the origin, as if the store were empty";
const CLOCK: &str = "responses count as older, or younger, than they are";
const BOUNDLESS: &str = "the cache grows until the machine runs out of memory";
const FULL: &str = "a full server that evicts nothing refuses every write, including those of purges";
const LOG_EVICTED: &str =
    "the purge log has no TTL and could be evicted; everything stored before would then be validated";
const TABLE: &str = "copies in memory beyond this limit are read again before their next use";
const CUT_OFF: &str =
    "a master that is cut off from its replicas goes on accepting writes and purges, which a fail-over loses";
const DEAF: &str = "instances don't notice changes by others";
const NEEDED: &str = "without them operations fail";
const UNPURGED: &str =
    "purges of that region apply here once it is reached, and until then purges here are pending there";
const OTHER_REGION: &str = "purges of a region with another name are not followed";
const RUNNING: &str =
    "`[region]` in the configuration of an instance that runs in the region, and `prefix` here as there";
const NO_CARRIER: &str = "a region without a running instance confirms no purges";

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    fn fit() -> Examined {
        Examined {
            version: Some("redis 7.0.15".to_owned()),
            is_master: Some(true),
            round_trip: Duration::from_micros(200),
            clock_ahead_ms: Some(3),
            memory_bytes_max: Some(1 << 30),
            eviction_policy: Some("volatile-lfu".to_owned()),
            tracked_keys_max: Some(1_000_000),
            replicas: 1,
            replicas_min: Some(1),
            tracks: true,
            refused: Vec::new(),
        }
    }

    fn advised(examined: &Examined) -> Vec<Cow<'static, str>> {
        let findings = judge(examined, Duration::from_millis(50));
        findings
            .into_iter()
            .filter(|finding| finding.advice.is_some())
            .map(|finding| finding.setting)
            .collect()
    }

    #[test]
    fn a_fit_server_needs_no_advice() {
        assert_eq!(advised(&fit()), Vec::<Cow<'_, str>>::new());
        assert_eq!(judge(&fit(), Duration::from_millis(50)).len(), 10);
        let silent = Examined {
            version: None,
            is_master: None,
            clock_ahead_ms: None,
            memory_bytes_max: None,
            eviction_policy: None,
            tracked_keys_max: None,
            replicas: 0,
            replicas_min: None,
            refused: vec!["ROLE", "TIME", "WAIT"],
            ..fit()
        };
        assert_eq!(advised(&silent), Vec::<Cow<'_, str>>::new());
    }

    #[test]
    fn each_weakness_is_told_alone() {
        #[track_caller]
        fn check(change: impl Fn(&mut Examined), setting: &str) {
            let mut examined = fit();
            change(&mut examined);
            let advised = advised(&examined);
            assert!(advised.len() == 1 && advised[0].contains(setting), "{setting}: {advised:?}");
        }
        check(|server| server.is_master = Some(false), "role");
        check(|server| server.round_trip = Duration::from_millis(6), "round trip");
        check(|server| server.clock_ahead_ms = Some(-1500), "clock");
        check(|server| server.memory_bytes_max = Some(0), "maxmemory of");
        check(|server| server.eviction_policy = Some("noeviction".to_owned()), "policy");
        check(|server| server.eviction_policy = Some("allkeys-lru".to_owned()), "policy");
        check(|server| server.tracked_keys_max = Some(1000), "tracking-table");
        check(|server| server.replicas_min = Some(0), "min-replicas-to-write");
        check(|server| server.tracks = false, "TRACKING");
        check(|server| server.refused = vec!["ROLE", "APPEND"], "permissions");
        check(|server| server.refused = vec!["WAIT"], "permissions");
    }
}
