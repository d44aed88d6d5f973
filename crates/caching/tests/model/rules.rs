//! The rule keys of a case file, for the model.

use caching::{
    GroupsInvalidated, Heuristic, HeuristicFor, Negotiation, Profile, Rules, StatusMatch, StoredCredentialed,
    StoredErrors, TtlTable,
};
use serde_json::Value;
use testkit::conversation::{self, Case};

/// The rules of a case: those of its profile, with its own changes.
pub(crate) fn of(case: &Case) -> Result<Rules, String> {
    let mut rules = Rules::for_profile(match case.profile {
        conversation::Profile::Safe => Profile::Safe,
        conversation::Profile::Rfc9111 => Profile::Rfc9111,
    });
    for (key, value) in &case.rules {
        set(&mut rules, key, value).ok_or_else(|| format!("the model has no rule {key} = {value}"))?;
    }
    Ok(rules)
}

/// `None` for a key or a value that the model doesn't know.
fn set(rules: &mut Rules, key: &str, value: &Value) -> Option<()> {
    match key {
        "cache" => rules.enabled = value.as_bool()?,
        "honour_request_directives" => rules.honour_request_directives = value.as_bool()?,
        "negotiation" => {
            rules.negotiation = match value.as_str()? {
                "as-sent" => Negotiation::AsSent,
                "normalised" => Negotiation::Normalised,
                "selecting" => Negotiation::Selecting,
                _ => return None,
            }
        }
        "store_set_cookie" => rules.store_set_cookie = value.as_bool()?,
        "groups_invalidated" => {
            rules.groups_invalidated = match value.as_str()? {
                "named" => GroupsInvalidated::Named,
                "shared" => GroupsInvalidated::Shared,
                _ => return None,
            }
        }
        "store_only_with" => rules.store_only_with = Some(value.as_str()?.into()),
        "store_expired" => rules.store_expired = value.as_bool()?,
        "store_post" => rules.store_post = value.as_bool()?,
        "stale_while_revalidate_default" => rules.stale_while_revalidate.default_ms = ms(value)?,
        "stale_while_revalidate_max" => rules.stale_while_revalidate.max_ms = ms(value)?,
        "stale_if_error_default" => rules.stale_if_error.default_ms = ms(value)?,
        "stale_if_error_max" => rules.stale_if_error.max_ms = ms(value)?,
        "stale_if_unreachable" => rules.stale_if_unreachable_ms = ms(value)?,
        "max_stale_max" => rules.max_stale_max_ms = ms(value)?,
        "ttl_override" => rules.override_ttl = table(value)?,
        "ttl_default" => rules.default_ttl = table(value)?,
        "errors_stored" => {
            rules.errors = match value.as_str()? {
                "all" => StoredErrors::All,
                "of-resource" => StoredErrors::OfResource,
                _ => return None,
            }
        }
        "credentials_stored" => {
            rules.credentialed = match value.as_str()? {
                "all" => StoredCredentialed::All,
                "explicit" => StoredCredentialed::Explicit,
                _ => return None,
            }
        }
        "credential_fields" => {
            let names = value.as_array()?.iter().map(Value::as_str);
            rules.credential_fields = names.map(|name| name.map(Into::into)).collect::<Option<_>>()?;
        }
        "targeted_fields" => {
            let names = value.as_array()?.iter().map(Value::as_str);
            rules.targeted_fields = names.map(|name| name.map(Into::into)).collect::<Option<_>>()?;
        }
        "heuristic_percent" if value == 0 => rules.heuristic = None,
        _ => return set_heuristic(rules.heuristic.get_or_insert_default(), key, value),
    }
    Some(())
}

fn set_heuristic(heuristic: &mut Heuristic, key: &str, value: &Value) -> Option<()> {
    match (key, value.as_str()) {
        ("heuristic_percent", _) => heuristic.percent = u8::try_from(value.as_u64()?).ok()?,
        ("heuristic_max", _) => heuristic.max_ms = ms(value)?,
        ("heuristic_requests", Some("all")) => heuristic.requests = HeuristicFor::All,
        ("heuristic_requests", Some("anonymous")) => heuristic.requests = HeuristicFor::Anonymous,
        _ => return None,
    }
    Some(())
}

/// A duration with one unit: `5s`, `2h`.
fn ms(value: &Value) -> Option<u64> {
    let text = value.as_str()?;
    let (digits, unit) = text.split_at(text.find(|character: char| !character.is_ascii_digit())?);
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit_ms)
}

fn table(value: &Value) -> Option<TtlTable> {
    let entry = |(status, ttl): (&String, &Value)| {
        let matcher = match status.as_str() {
            "default" => StatusMatch::Any,
            class if class.ends_with("xx") => StatusMatch::Class(class[..1].parse().ok()?),
            code => StatusMatch::Exact(code.parse().ok()?),
        };
        Some((matcher, ms(ttl)?))
    };
    Some(TtlTable::new(value.as_object()?.iter().map(entry).collect::<Option<Vec<_>>>()?))
}
