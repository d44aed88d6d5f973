//! Constant fields of INFO for absent features: replication, scripts, the append-only file. Monitoring tools
//! look them up by name.

/// The constant fields of a section.
pub(super) fn constant_facts(section: &str) -> &'static [(&'static str, &'static str)] {
    match section {
        "Server" => SERVER,
        "Clients" => CLIENTS,
        "Memory" => MEMORY,
        "Persistence" => PERSISTENCE,
        "Stats" => STATS,
        "Replication" => REPLICATION,
        "CPU" => CPU,
        _ => &[],
    }
}

const SERVER: &[(&str, &str)] = &[
    ("monotonic_clock", "POSIX clock_gettime"),
    ("atomicvar_api", "c11-builtin"),
    ("gcc_version", "0.0.0"),
    ("process_supervised", "no"),
    ("config_file", ""),
    ("io_threads_active", "0"),
];

const CLIENTS: &[(&str, &str)] = &[
    ("client_recent_max_input_buffer", "0"),
    ("client_recent_max_output_buffer", "0"),
    ("clients_in_timeout_table", "0"),
];

const MEMORY: &[(&str, &str)] = &[
    ("used_memory_startup", "0"),
    ("used_memory_lua", "0"),
    ("used_memory_lua_human", "0B"),
    ("used_memory_vm_eval", "0"),
    ("used_memory_scripts_eval", "0"),
    ("number_of_cached_scripts", "0"),
    ("number_of_functions", "0"),
    ("number_of_libraries", "0"),
    ("used_memory_vm_functions", "0"),
    ("used_memory_vm_total", "0"),
    ("used_memory_vm_total_human", "0B"),
    ("used_memory_functions", "0"),
    ("used_memory_scripts", "0"),
    ("used_memory_scripts_human", "0B"),
    ("allocator_frag_ratio", "1.00"),
    ("allocator_frag_bytes", "0"),
    ("allocator_rss_ratio", "1.00"),
    ("allocator_rss_bytes", "0"),
    ("rss_overhead_ratio", "1.00"),
    ("rss_overhead_bytes", "0"),
    ("mem_not_counted_for_evict", "0"),
    ("mem_replication_backlog", "0"),
    ("mem_total_replication_buffers", "0"),
    ("mem_clients_slaves", "0"),
    ("mem_cluster_links", "0"),
    ("mem_aof_buffer", "0"),
    ("active_defrag_running", "0"),
    ("lazyfreed_objects", "0"),
];

const PERSISTENCE: &[(&str, &str)] = &[
    ("current_cow_peak", "0"),
    ("current_cow_size", "0"),
    ("current_cow_size_age", "0"),
    ("current_fork_perc", "0.00"),
    ("current_save_keys_processed", "0"),
    ("current_save_keys_total", "0"),
    ("rdb_last_cow_size", "0"),
    ("aof_rewrite_scheduled", "0"),
    ("aof_last_rewrite_time_sec", "-1"),
    ("aof_current_rewrite_time_sec", "-1"),
    ("aof_last_bgrewrite_status", "ok"),
    ("aof_rewrites", "0"),
    ("aof_rewrites_consecutive_failures", "0"),
    ("aof_last_write_status", "ok"),
    ("aof_last_cow_size", "0"),
    ("module_fork_in_progress", "0"),
    ("module_fork_last_cow_size", "0"),
];

const STATS: &[(&str, &str)] = &[
    ("total_net_repl_input_bytes", "0"),
    ("total_net_repl_output_bytes", "0"),
    ("instantaneous_input_repl_kbps", "0.00"),
    ("instantaneous_output_repl_kbps", "0.00"),
    ("sync_full", "0"),
    ("sync_partial_ok", "0"),
    ("sync_partial_err", "0"),
    ("expired_stale_perc", "0.00"),
    ("expired_time_cap_reached_count", "0"),
    ("expire_cycle_cpu_milliseconds", "0"),
    ("total_eviction_exceeded_time", "0"),
    ("current_eviction_exceeded_time", "0"),
    ("migrate_cached_sockets", "0"),
    ("slave_expires_tracked_keys", "0"),
    ("active_defrag_hits", "0"),
    ("active_defrag_misses", "0"),
    ("active_defrag_key_hits", "0"),
    ("active_defrag_key_misses", "0"),
    ("total_active_defrag_time", "0"),
    ("current_active_defrag_time", "0"),
    ("unexpected_error_replies", "0"),
    ("dump_payload_sanitizations", "0"),
    ("io_threaded_reads_processed", "0"),
    ("io_threaded_writes_processed", "0"),
    ("reply_buffer_shrinks", "0"),
    ("reply_buffer_expands", "0"),
];

const REPLICATION: &[(&str, &str)] =
    &[("repl_backlog_size", "0"), ("repl_backlog_first_byte_offset", "0"), ("repl_backlog_histlen", "0")];

const CPU: &[(&str, &str)] =
    &[("used_cpu_sys_main_thread", "0.000000"), ("used_cpu_user_main_thread", "0.000000")];
