//! Resources that need credentials. The credentials are public knowledge: nothing here protects anything.

use base64::{Engine, engine::general_purpose::STANDARD};
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{StatusCode, request::Parts};
use serde_json::json;

use crate::answer::Answer;

/// `/private/basic/...`: any user whose password is `password`.
pub(super) fn basic(head: &Parts) -> Answer {
    let user = credentials(head, "basic").and_then(|encoded| {
        let decoded = String::from_utf8(STANDARD.decode(encoded).ok()?).ok()?;
        let (user, password) = decoded.split_once(':')?;
        (password == "password" && !user.is_empty()).then(|| user.to_owned())
    });
    answer(head, user, "Basic realm=\"mock origin\", charset=\"UTF-8\"")
}

/// `/private/bearer/...`: `token` is the user "bearer", `token-NAME` is the user NAME.
pub(super) fn bearer(head: &Parts) -> Answer {
    let user = credentials(head, "bearer").and_then(|token| match token.strip_prefix("token")? {
        "" => Some("bearer".to_owned()),
        rest => rest.strip_prefix('-').filter(|name| !name.is_empty()).map(str::to_owned),
    });
    answer(head, user, "Bearer realm=\"mock origin\"")
}

fn credentials<'a>(head: &'a Parts, scheme: &str) -> Option<&'a str> {
    let (given, credentials) = head.headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    given.eq_ignore_ascii_case(scheme).then(|| credentials.trim())
}

fn answer(head: &Parts, user: Option<String>, challenge: &str) -> Answer {
    let Some(user) = user else {
        return Answer::text(StatusCode::UNAUTHORIZED, "credentials needed\n")
            .with(WWW_AUTHENTICATE, challenge);
    };
    // No `private` and no `public`: whether a shared cache may store this follows from Authorization alone.
    Answer::json(StatusCode::OK, &json!({ "user": user, "path": head.uri.path() })).cacheable("max-age=60")
}
