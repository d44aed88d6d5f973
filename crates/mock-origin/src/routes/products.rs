//! The products API: pages that cost CPU, with lifetimes and tags.

use std::{
    hint,
    time::{Duration, Instant},
};

use http::StatusCode;
use http::header::{CACHE_CONTROL, HeaderName, VARY};
use serde_json::{Value, json};

use crate::{
    answer::Answer,
    content::{Content, fingerprint, scramble},
    products::{CATEGORIES, Product, find, products},
};

use super::call::Call;

/// `GET /api/products`.
pub(super) fn list(call: &Call<'_>) -> Answer {
    page(call, &listing(products()), "public, max-age=300", "products")
}

/// `GET /api/products/:id`.
pub(super) fn one(call: &Call<'_>, id: &str) -> Answer {
    match find(id) {
        Some(product) => {
            page(call, &product.json, "public, max-age=600", &format!("products, product:{}", product.id))
        }
        None => missing(call),
    }
}

/// `GET /api/products/category/:category`.
pub(super) fn of_category(call: &Call<'_>, category: &str) -> Answer {
    if !CATEGORIES.contains(&category) {
        return missing(call);
    }
    let chosen = products().iter().filter(|product| product.category == category);
    page(call, &listing(chosen), "public, max-age=300", &format!("products, category:{category}"))
}

/// `GET /api/recommendations/:userId`: ten products, the same for the same user.
pub(super) fn recommendations(call: &Call<'_>, user: &str) -> Answer {
    let seed = fingerprint([user.as_bytes()]);
    let all = products();
    let chosen = (0..10).map(|turn| &all[(scramble(seed ^ turn) % all.len() as u64) as usize]);
    page(call, &listing(chosen), "public, max-age=60", "recommendations")
}

/// `GET /api/stats`.
pub(super) fn stats(call: &Call<'_>) -> Answer {
    let count = |category: &str| products().iter().filter(|product| product.category == category).count();
    let by_category: serde_json::Map<String, Value> =
        CATEGORIES.iter().map(|category| ((*category).to_owned(), count(category).into())).collect();
    let value = json!({ "products": products().len(), "by_category": by_category });
    page(call, &value.to_string(), "public, max-age=900", "stats")
}

/// `PUT /api/products/:id`: says what a cache should invalidate; stores nothing.
pub(super) fn update(call: &Call<'_>, id: &str) -> Answer {
    let Some(product) = find(id) else {
        return missing(call);
    };
    if serde_json::from_slice::<Value>(&call.body).is_err() {
        return uncached(call, StatusCode::BAD_REQUEST, &json!({ "error": "the body must be JSON" }));
    }
    let hint = format!("products, product:{}, category:{}", product.id, product.category);
    let answer = uncached(call, StatusCode::OK, &json!({ "id": product.id, "updated": true }));
    answer.with(HeaderName::from_static("x-cache-invalidate"), &hint)
}

/// `POST /api/admin/invalidate-cache`: echoes the body.
pub(super) fn invalidate_cache(call: &Call<'_>) -> Answer {
    let received: Value = match serde_json::from_slice(&call.body) {
        Ok(value) => value,
        Err(_) => String::from_utf8_lossy(&call.body).into(),
    };
    uncached(call, StatusCode::OK, &json!({ "received": received }))
}

/// `GET /health`.
pub(super) fn health(call: &Call<'_>) -> Answer {
    uncached(call, StatusCode::OK, &json!({ "status": "ok" }))
}

fn listing<'a>(chosen: impl IntoIterator<Item = &'a Product>) -> String {
    let chosen: Vec<&str> = chosen.into_iter().map(|product| &*product.json).collect();
    format!("{{\"count\":{},\"products\":[{}]}}", chosen.len(), chosen.join(","))
}

fn page(call: &Call<'_>, json: &str, cache_control: &'static str, tags: &str) -> Answer {
    burn(call.state.cpu);
    Answer::new(StatusCode::OK, "application/json", Content::of(json.to_owned()))
        .cacheable(cache_control)
        .with(HeaderName::from_static("cache-tags"), tags)
        .with(VARY, "x-some-header")
}

fn missing(call: &Call<'_>) -> Answer {
    uncached(call, StatusCode::NOT_FOUND, &json!({ "error": "not found" })).with(CACHE_CONTROL, "no-store")
}

fn uncached(call: &Call<'_>, status: StatusCode, value: &Value) -> Answer {
    burn(call.state.cpu);
    Answer::json(status, value).with(VARY, "x-some-header")
}

/// Keeps this thread busy. Measured by the wall clock: the CPU time of a thread cannot be read without unsafe
/// code, and on a machine that is not overloaded the two agree.
fn burn(cpu: Duration) {
    let started = Instant::now();
    let mut work = 0;
    while started.elapsed() < cpu {
        work = (0..64).fold(work, |n, _| hint::black_box(scramble(n)));
    }
}
