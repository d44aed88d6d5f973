//! INFO: the state of the server in sections.

use std::collections::BTreeSet;
use std::fmt::{Display, Write as _};

use engine::Database;

use super::connection::REDIS_VERSION;
use super::info_constants::constant_facts;
use super::table::Command;
use super::{Call, Outcome};
use crate::endings::Ending;
use crate::reply::Reply;
use crate::statistics::Sum;
use crate::subscriptions::Kind;
use crate::system;

/// The INFO requests that include a section, in addition to those that name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    ByDefault,
    /// `INFO all`.
    InAll,
    /// `INFO everything`.
    InEverything,
}

/// The lines of a section.
struct Lines(String);

type Section = (&'static str, Shown, fn(&Call<'_>, &mut Lines));

const SECTIONS: [Section; 13] = [
    ("Server", Shown::ByDefault, server),
    ("Clients", Shown::ByDefault, clients),
    ("Memory", Shown::ByDefault, memory),
    ("Persistence", Shown::ByDefault, persistence),
    ("Stats", Shown::ByDefault, stats),
    ("Replication", Shown::ByDefault, replication),
    ("CPU", Shown::ByDefault, cpu),
    ("Modules", Shown::InEverything, |_, _| ()),
    ("Commandstats", Shown::InAll, commandstats),
    ("Errorstats", Shown::ByDefault, errorstats),
    ("Latencystats", Shown::InAll, latencystats),
    ("Cluster", Shown::ByDefault, |call, lines| {
        lines.add("cluster_enabled", u8::from(call.shared.cluster.is_some()));
    }),
    ("Keyspace", Shown::ByDefault, keyspace),
];

/// INFO [section ...]
pub(super) fn info(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    // Only known names are kept, because a request may contain a million names.
    let words = SECTIONS.iter().map(|(name, ..)| *name).chain(["all", "default", "everything"]);
    let known = |given: &[u8]| words.clone().find(|word| word.as_bytes().eq_ignore_ascii_case(given));
    let wanted: BTreeSet<_> = call.from(1).filter_map(known).collect();
    let has = |word: &str| wanted.contains(word);
    let is_wanted = |(name, shown, _): &&Section| {
        let by_default = (call.length() == 1 || has("default")) && *shown == Shown::ByDefault;
        let in_all = has("all") && *shown != Shown::InEverything;
        by_default || in_all || has("everything") || has(name)
    };
    let mut lines = Lines(String::new());
    for (name, _, tell) in SECTIONS.iter().filter(is_wanted) {
        let gap = if lines.0.is_empty() { "" } else { "\r\n" };
        // Writing to a `String` can't fail, here and below.
        let _ = write!(lines.0, "{gap}# {name}\r\n");
        tell(call, &mut lines);
        constant_facts(name).iter().for_each(|(name, value)| lines.add(name, value));
    }
    reply.text(&lines.0);
    Ok(())
}

impl Lines {
    fn add(&mut self, name: &str, value: impl Display) {
        let _ = write!(self.0, "{name}:{value}\r\n");
    }

    /// Adds a size as a number and in human-readable form.
    fn bytes(&mut self, name: &str, bytes: u64) {
        self.add(name, bytes);
        self.add(&format!("{name}_human"), human(bytes));
    }
}

fn human(bytes: u64) -> String {
    let units = [(1_u64 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.2}{name}", bytes as f64 / unit as f64),
        None => format!("{bytes}B"),
    }
}

fn server(call: &Call<'_>, lines: &mut Lines) {
    let uptime_s = call.shared.rates.uptime_s(call.now_ms);
    lines.add("redis_version", REDIS_VERSION);
    lines.add("server_name", "larder");
    lines.add("larder_version", &call.shared.version);
    lines.add("redis_git_sha1", "00000000");
    lines.add("redis_git_dirty", 0);
    lines.add("redis_build_id", 0);
    lines.add("redis_mode", call.shared.mode());
    lines.add("os", format_args!("Linux {}", system::release().unwrap_or_default()));
    lines.add("arch_bits", usize::BITS);
    lines.add("multiplexing_api", "epoll");
    lines.add("process_id", std::process::id());
    lines.add("run_id", &call.shared.rates.run_id);
    lines.add("tcp_port", call.session.client.ends.server.port());
    lines.add("server_time_usec", call.now_ms * 1000);
    lines.add("uptime_in_seconds", uptime_s);
    lines.add("uptime_in_days", uptime_s / 86_400);
    let hz = call.shared.choices.of("hz");
    lines.add("hz", &hz);
    lines.add("configured_hz", &hz);
    lines.add("lru_clock", (call.now_ms / 1000) & 0xff_ffff);
    lines.add("executable", system::executable().unwrap_or_default());
    lines.add("workers", call.shared.statistics.len());
}

fn clients(call: &Call<'_>, lines: &mut Lines) {
    lines.add("connected_clients", call.shared.clients.count());
    lines.add("cluster_connections", 0);
    lines.add("maxclients", call.shared.limits().clients_max);
    lines.add("tracking_clients", call.shared.interests.tracking.clients());
    lines.add("blocked_clients", call.shared.postponed());
}

fn memory(call: &Call<'_>, lines: &mut Lines) {
    let engine = call.engine();
    let used = engine.used_bytes();
    let resident = system::resident_bytes().unwrap_or(used);
    lines.bytes("used_memory", used);
    lines.bytes("used_memory_rss", resident);
    let peak = call.shared.rates.peak_bytes().max(used);
    let overhead = (call.shared.buffers_bytes() as u64).min(used);
    let percent = |part: u64, all: u64| format!("{:.2}%", part as f64 * 100.0 / all.max(1) as f64);
    lines.bytes("used_memory_peak", peak);
    lines.add("used_memory_peak_perc", percent(used, peak));
    lines.add("used_memory_overhead", overhead);
    lines.add("used_memory_dataset", used - overhead);
    lines.add("used_memory_dataset_perc", percent(used - overhead, used));
    lines.add("allocator_allocated", used);
    lines.add("allocator_active", used);
    lines.add("allocator_resident", resident);
    if let Some(total) = system::total_memory_bytes() {
        lines.bytes("total_system_memory", total);
    }
    lines.bytes("maxmemory", unlimited_as_zero(engine.bytes_max()));
    lines.add("maxmemory_policy", engine.policy().name());
    lines.add("mem_fragmentation_ratio", format_args!("{:.2}", resident as f64 / used.max(1) as f64));
    lines.add("mem_fragmentation_bytes", resident as i64 - used as i64);
    lines.add("mem_clients_normal", call.shared.buffers_bytes());
    lines.add("mem_allocator", "segments");
    lines.add("lazyfree_pending_objects", 0);
}

/// Returns 0 for an unlimited size, as Redis does.
pub(super) fn unlimited_as_zero(bytes: u64) -> u64 {
    if bytes == u64::MAX { 0 } else { bytes }
}

fn persistence(call: &Call<'_>, lines: &mut Lines) {
    match &call.shared.save_file {
        Some(file) => lines.0.push_str(&file.describe(call.shared.changes())),
        None => {
            lines.add("loading", 0);
            lines.add("rdb_changes_since_last_save", call.shared.changes());
            lines.add("rdb_bgsave_in_progress", 0);
            lines.add("rdb_last_save_time", call.shared.rates.began_s(call.now_ms));
            lines.add("rdb_last_bgsave_status", "ok");
            lines.add("rdb_last_bgsave_time_sec", -1);
            lines.add("rdb_current_bgsave_time_sec", -1);
            lines.add("rdb_saves", 0);
            lines.add("rdb_last_load_keys_expired", 0);
            lines.add("rdb_last_load_keys_loaded", 0);
            lines.add("async_loading", 0);
        }
    }
    lines.add("aof_enabled", 0);
    lines.add("aof_rewrite_in_progress", 0);
}

fn stats(call: &Call<'_>, lines: &mut Lines) {
    let (shared, counts) = (call.shared, call.engine().counts());
    let rates = shared.rates.now();
    let total = |count: fn(&crate::statistics::Statistics) -> u64| -> u64 {
        shared.statistics.iter().map(count).sum()
    };
    let (input, output) =
        (total(|worker| worker.input_bytes.get()), total(|worker| worker.output_bytes.get()));
    lines.add("total_connections_received", shared.clients.made());
    lines.add("total_commands_processed", total(|worker| worker.calls()));
    lines.add("instantaneous_ops_per_sec", rates.commands);
    lines.add("total_net_input_bytes", input);
    lines.add("total_net_output_bytes", output);
    lines.add("total_reads_processed", total(|worker| worker.reads.get()));
    lines.add("total_writes_processed", total(|worker| worker.writes.get()));
    lines.add("instantaneous_input_kbps", format_args!("{:.2}", rates.input_bytes as f64 / 1024.0));
    lines.add("instantaneous_output_kbps", format_args!("{:.2}", rates.output_bytes as f64 / 1024.0));
    lines.add("rejected_connections", shared.refused());
    lines.add("expired_keys", counts.expired);
    lines.add("evicted_keys", counts.evicted);
    lines.add("evicted_clients", shared.endings.count(Ending::Buffers));
    lines.add("keyspace_hits", total(|worker| worker.hits.get()));
    lines.add("keyspace_misses", total(|worker| worker.misses.get()));
    let (subscriptions, tracking) = (&shared.interests.subscriptions, &shared.interests.tracking);
    let (keys, items, prefixes) = tracking.counts();
    lines.add("pubsub_channels", subscriptions.count(Kind::Channel));
    lines.add("pubsub_patterns", subscriptions.count(Kind::Pattern));
    lines.add("pubsubshard_channels", subscriptions.count(Kind::Shard));
    lines.add("tracking_total_keys", keys);
    lines.add("tracking_total_items", items);
    lines.add("tracking_total_prefixes", prefixes);
    lines.add("latest_fork_usec", 0);
    lines.add("total_forks", 0);
    lines.add("total_error_replies", shared.errors.all().values().sum::<u64>());
}

fn replication(call: &Call<'_>, lines: &mut Lines) {
    lines.add("role", "master");
    lines.add("connected_slaves", 0);
    lines.add("master_failover_state", "no-failover");
    lines.add("master_replid", &call.shared.rates.run_id);
    lines.add("master_replid2", "0".repeat(40));
    lines.add("master_repl_offset", 0);
    lines.add("second_repl_offset", -1);
    lines.add("repl_backlog_active", 0);
}

fn cpu(_: &Call<'_>, lines: &mut Lines) {
    let time = system::cpu_time_s().unwrap_or_default();
    lines.add("used_cpu_sys", format_args!("{:.6}", time.system));
    lines.add("used_cpu_user", format_args!("{:.6}", time.user));
    lines.add("used_cpu_sys_children", "0.000000");
    lines.add("used_cpu_user_children", "0.000000");
}

/// Statistics of the commands that were called.
pub(super) fn sums<'a>(call: &Call<'a>) -> impl Iterator<Item = (&'static Command, Sum)> + use<'a> {
    let shared = call.shared;
    let commands = shared.table.with_parts().iter().enumerate();
    let sums = commands.map(|(number, command)| (command, Sum::of(shared.statistics.iter(), number)));
    sums.filter(|(_, sum)| !sum.is_empty())
}

fn commandstats(call: &Call<'_>, lines: &mut Lines) {
    for (command, sum) in sums(call) {
        let us = sum.total_us();
        let (calls, rejected, failed) = (sum.calls, sum.rejected, sum.failed);
        let each = us as f64 / calls.max(1) as f64;
        lines.add(
            &format!("cmdstat_{}", command.name),
            format_args!(
                "calls={calls},usec={us},usec_per_call={each:.2},rejected_calls={rejected},failed_calls={failed}"
            ),
        );
    }
}

fn errorstats(call: &Call<'_>, lines: &mut Lines) {
    for (code, count) in call.shared.errors.all() {
        lines.add(&format!("errorstat_{code}"), format_args!("count={count}"));
    }
}

fn latencystats(call: &Call<'_>, lines: &mut Lines) {
    for (command, sum) in sums(call).filter(|(_, sum)| sum.calls > 0) {
        let [half, most, nearly_all] = [50.0, 99.0, 99.9].map(|percent| sum.percentile_us(percent));
        lines.add(
            &format!("latency_percentiles_usec_{}", command.name),
            format_args!("p50={half:.3},p99={most:.3},p99.9={nearly_all:.3}"),
        );
    }
}

fn keyspace(call: &Call<'_>, lines: &mut Lines) {
    let counts = call.engine().counts();
    for chosen in (0..Database::COUNT).filter_map(Database::new) {
        let number = call.shared.databases.of_engine(chosen).number();
        let (keys, expiring) = (counts.keys[number], counts.expiring[number]);
        if keys > 0 {
            let name = format!("db{}", chosen.number());
            lines.add(&name, format_args!("keys={keys},expires={expiring},avg_ttl=0"));
        }
    }
}
