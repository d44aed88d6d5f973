//! Keys that a reload leaves unchanged: the option table defines which can't change at run time.

use super::locate::Place;
use super::problem::Problems;
use super::table::Reload;
use super::tree::{Node, Table, Value};

/// Refuses a file that has lost its `[kv]` table: it is most likely being rewritten, and without its passwords anyone
/// could access the data.
pub(super) fn refuse_lost_kv(fresh: &Table, running: &Table, problems: &mut Problems) {
    if running.given("kv").is_some() && fresh.given("kv").is_none() {
        let message = "missing: the running server uses the `[kv]` table of this file; restart the server to run without one";
        problems.error(&fresh.place, "kv", message);
    }
}

/// Collects the changes that a reload doesn't make, with the step that applies them.
pub(super) struct Unchanged<'a> {
    problems: &'a mut Problems,
    remedy: &'static str,
}

impl<'a> Unchanged<'a> {
    pub(super) fn new(running: &Table, problems: &'a mut Problems) -> Self {
        // A process with Redis clients refuses the upgrade, so only a restart applies the change.
        let has_kv = running.node("kv").is_some();
        Self { problems, remedy: if has_kv { "a restart" } else { "a restart or `larder upgrade`" } }
    }
}

/// Restores in `fresh` the running values of keys that can't be reloaded, with a warning for each difference.
pub(super) fn keep_unreloadable(fresh: &mut Table, running: &Table, unchanged: &mut Unchanged<'_>) {
    let (section, place) = (fresh.section, fresh.place.clone());
    for option in section.options() {
        let before = running.node(option.key);
        let is_wrong = fresh.is_wrong(option.key);
        match (option.reload, before, fresh.node_mut(option.key)) {
            (Reload::Yes, _, _) | (_, None, None) => {}
            // A wrong value isn't a change, and has already been reported; the default replaces it.
            (Reload::Inside | Reload::No, Some(before), Some(after)) if is_wrong => {
                after.value = before.value.clone();
            }
            (Reload::Inside, Some(before), Some(after)) => {
                keep_inside(&place, after, before, unchanged);
            }
            (_, Some(before), Some(after)) if *before == *after => {}
            (_, Some(before), Some(after)) => keep(after, before, unchanged),
            (_, Some(before), None) => {
                if !is_wrong {
                    warn(&place, before, unchanged);
                }
                fresh.entries.push((option.key, before.clone()));
            }
            (_, None, Some(after)) => {
                warn(&after.place, after, unchanged);
                fresh.entries.retain(|(key, _)| *key != option.key);
            }
        }
    }
}

/// Restores the running store of each site that remains. In another store, the site would lose its responses. Responses in the old store
/// would miss purges, and would be used again if the site ever returned to it.
pub(super) fn keep_stores_of_sites(fresh: &mut Table, running: &Table, unchanged: &mut Unchanged<'_>) {
    let Some(Node { value: Value::List(sites), .. }) = fresh.node_mut("site") else { return };
    for site in sites {
        let Value::Table(site) = &mut site.value else { continue };
        let before = running.tables("site").find(|before| before.text("name") == site.text("name"));
        let before = before.and_then(|before| before.node("store"));
        let place = site.given("store").map_or_else(|| site.place.clone(), |node| node.place.clone());
        let Some((before, after)) = before.zip(site.node_mut("store")) else { continue };
        if *before != *after {
            warn(&place, after, unchanged);
            after.value = before.value.clone();
        }
    }
}

/// Restores running values inside a value. `place` is the place of the enclosing table, for keys that no longer exist.
fn keep_inside(place: &Place, after: &mut Node, before: &Node, unchanged: &mut Unchanged<'_>) {
    match (&mut after.value, &before.value) {
        (Value::Table(after), Value::Table(before)) => keep_unreloadable(after, before, unchanged),
        (Value::List(after), Value::List(before)) if after.len() == before.len() => {
            for (after, before) in after.iter_mut().zip(before) {
                keep_inside(place, after, before, unchanged);
            }
        }
        (Value::Map(after), Value::Map(before)) => keep_entries(place, after, before, unchanged),
        _ => keep(after, before, unchanged),
    }
}

fn keep_entries(
    place: &Place,
    after: &mut Vec<(String, Node)>,
    before: &[(String, Node)],
    unchanged: &mut Unchanged<'_>,
) {
    let mut fresh = std::mem::take(after);
    for (name, before) in before {
        let found = fresh.iter().position(|(other, _)| other == name).map(|at| fresh.swap_remove(at));
        let kept = match found {
            Some((_, mut node)) => {
                keep_inside(place, &mut node, before, unchanged);
                node
            }
            None => {
                warn(place, before, unchanged);
                before.clone()
            }
        };
        after.push((name.clone(), kept));
    }
    fresh.iter().for_each(|(_, added)| warn(&added.place, added, unchanged));
}

fn keep(after: &mut Node, before: &Node, unchanged: &mut Unchanged<'_>) {
    warn(&after.place, after, unchanged);
    after.value = before.value.clone();
}

fn warn(place: &Place, node: &Node, unchanged: &mut Unchanged<'_>) {
    let message = format!("changed, but takes effect only after {}", unchanged.remedy);
    unchanged.problems.warning(place, &node.path, message);
}
