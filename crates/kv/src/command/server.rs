//! Commands of the server.

use std::fmt::Write as _;

use super::connection::REDIS_VERSION;
use super::{Call, Outcome, Refusal};
use crate::background;
use crate::reply::Reply;
use crate::shared::Shared;
use crate::subscriptions::Kind;

pub(super) fn dbsize(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let keys = call.engine().counts().keys[call.session.database.number()];
    reply.integer(keys as i64);
    Ok(())
}

pub(super) fn flushall(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    check_flush(call)?;
    call.alone()?;
    let watched = call.shared.watched(None, call.now_ms);
    let mut cleared = call.engine().clear();
    // Where there is no thread, it is freed here and now.
    let _ = background::spawn("kv-free", move || while cleared.free_some() {});
    call.shared.flushed(&watched);
    reply.ok();
    Ok(())
}

pub(super) fn flushdb(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    check_flush(call)?;
    call.alone()?;
    let database = call.session.database;
    let watched = call.shared.watched(Some(call.session.chosen), call.now_ms);
    call.engine().shards().for_each(|mut shard| shard.clear_database(database));
    call.shared.flushed(&watched);
    reply.ok();
    Ok(())
}

fn check_flush(call: &Call<'_>) -> Outcome {
    match call.length() {
        1 => Ok(()),
        2 if call.is_word(1, "async") || call.is_word(1, "sync") => Ok(()),
        _ => Err(Refusal::Syntax),
    }
}

pub(super) fn time(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    reply.array(2);
    reply.bulk((call.now_ms / 1000).to_string().as_bytes());
    reply.bulk((call.now_ms % 1000 * 1000).to_string().as_bytes());
    Ok(())
}

pub(super) fn info(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Outcome {
    let wanted: Vec<_> = call.from(1).map(<[u8]>::to_ascii_lowercase).collect();
    let is_all = |name: &Vec<u8>| matches!(name.as_slice(), b"all" | b"default" | b"everything");
    let mut text = String::new();
    for (name, section) in SECTIONS {
        if wanted.is_empty()
            || wanted.iter().any(|wanted| is_all(wanted) || wanted == name.to_ascii_lowercase().as_bytes())
        {
            // Writing to a string cannot fail.
            let _ =
                write!(text, "{}# {name}\r\n{}", if text.is_empty() { "" } else { "\r\n" }, section(call));
        }
    }
    reply.text(&text);
    Ok(())
}

type Section = fn(&Call<'_>) -> String;

const SECTIONS: [(&str, Section); 7] = [
    ("Server", |call| {
        let version = &call.shared.version;
        format!(
            "redis_version:{REDIS_VERSION}\r\nlarder_version:{version}\r\nredis_mode:{}\r\nprocess_id:{}\r\n",
            call.shared.mode(),
            std::process::id()
        )
    }),
    ("Clients", |call| format!("connected_clients:{}\r\n", call.shared.clients.count())),
    ("Memory", |call| {
        let (used, max) = (call.engine().used_bytes(), call.engine().bytes_max());
        format!("used_memory:{used}\r\nmaxmemory:{max}\r\n")
    }),
    ("Persistence", |call| match &call.shared.save_file {
        Some(file) => file.describe(call.shared.changes()),
        None => format!("loading:0\r\nrdb_changes_since_last_save:{}\r\n", call.shared.changes()),
    }),
    ("Stats", |call| {
        let counts = call.engine().counts();
        format!(
            "total_connections_received:{}\r\nrejected_connections:{}\r\nexpired_keys:{}\r\nevicted_keys:{}\r\n",
            call.shared.clients.made(),
            call.shared.refused(),
            counts.expired,
            counts.evicted
        ) + &interests(call.shared)
    }),
    ("Cluster", |call| format!("cluster_enabled:{}\r\n", u8::from(call.shared.cluster.is_some()))),
    ("Keyspace", |call| {
        let counts = call.engine().counts();
        let databases = (0..engine::Database::COUNT).filter_map(engine::Database::new).map(|chosen| {
            let number = call.shared.databases.of_engine(chosen).number();
            (chosen.number(), (counts.keys[number], counts.expiring[number]))
        });
        let used = databases.filter(|(_, (keys, _))| *keys > 0);
        used.map(|(number, (keys, expiring))| {
            format!("db{number}:keys={keys},expires={expiring},avg_ttl=0\r\n")
        })
        .collect()
    }),
];

/// Of subscribers and client-side caches.
fn interests(shared: &Shared) -> String {
    let subscriptions = &shared.interests.subscriptions;
    let (keys, items, prefixes) = shared.interests.tracking.counts();
    format!(
        "pubsub_channels:{}\r\npubsub_patterns:{}\r\npubsubshard_channels:{}\r\ntracking_total_keys:{keys}\r\n\
         tracking_total_items:{items}\r\ntracking_total_prefixes:{prefixes}\r\n",
        subscriptions.count(Kind::Channel),
        subscriptions.count(Kind::Pattern),
        subscriptions.count(Kind::Shard),
    )
}
