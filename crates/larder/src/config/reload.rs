//! What a reload leaves as it is: the option table says which keys can't change while the process runs.

use super::problem::Problems;
use super::table::Reload;
use super::tree::{Node, Table, Value};

/// Puts the running values of unreloadable keys back into `fresh`, with a warning for each that differs.
pub(super) fn keep_unreloadable(fresh: &mut Table, running: &Table, problems: &mut Problems) {
    let section = fresh.section;
    for option in section.options {
        let before = running.node(option.key);
        let is_wrong = fresh.is_wrong(option.key);
        let after = fresh.entries.iter_mut().find(|(key, _)| *key == option.key).map(|(_, node)| node);
        match (option.reload, before, after) {
            (Reload::Yes, _, _) | (_, None, None) => {}
            (Reload::Inside, Some(before), Some(after)) => keep_inside(after, before, problems),
            (_, Some(before), Some(after)) if before.value.same(&after.value) => {}
            // Not a change, but a mistake, which is reported already; what stands there is its default.
            (_, Some(before), Some(after)) if is_wrong => after.value = before.value.clone(),
            (_, Some(before), Some(after)) => keep(after, before, problems),
            (_, Some(before), None) => {
                if !is_wrong {
                    warn(&fresh.place, before, problems);
                }
                fresh.entries.push((option.key, before.clone()));
            }
            (_, None, Some(after)) => {
                warn(&after.place, after, problems);
                fresh.entries.retain(|(key, _)| *key != option.key);
            }
        }
    }
}

fn keep_inside(after: &mut Node, before: &Node, problems: &mut Problems) {
    match (&mut after.value, &before.value) {
        (Value::Table(after), Value::Table(before)) => keep_unreloadable(after, before, problems),
        (Value::List(after), Value::List(before)) if after.len() == before.len() => {
            for (after, before) in after.iter_mut().zip(before) {
                keep_inside(after, before, problems);
            }
        }
        _ => keep(after, before, problems),
    }
}

fn keep(after: &mut Node, before: &Node, problems: &mut Problems) {
    warn(&after.place, after, problems);
    after.value = before.value.clone();
}

fn warn(place: &super::locate::Place, node: &Node, problems: &mut Problems) {
    problems.warning(
        place,
        &node.path,
        "changed, but a reload can't change it: the running value stays until a restart",
    );
}
