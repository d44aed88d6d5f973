//! The products API: responses that cost CPU, with lifetimes and tags, about 501 products that are generated
//! once.

use std::{
    hint,
    sync::LazyLock,
    time::{Duration, Instant},
};

use http::StatusCode;
use http::header::{CACHE_CONTROL, HeaderName, VARY};
use serde_json::{Value, json};

use crate::{
    answer::Answer,
    content::{Content, fingerprint, scramble},
};

use super::call::Call;

/// `GET /api/products`.
pub(super) fn list(call: &Call<'_>) -> Answer {
    page(call, &listing(PRODUCTS.iter()), "public, max-age=300", "products")
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
    let chosen = PRODUCTS.iter().filter(|product| product.category == category);
    page(call, &listing(chosen), "public, max-age=300", &format!("products, category:{category}"))
}

/// `GET /api/recommendations/:userId`: ten products, the same for the same user.
pub(super) fn recommendations(call: &Call<'_>, user: &str) -> Answer {
    let seed = fingerprint([user.as_bytes()]);
    let all = &*PRODUCTS;
    let chosen = (0..10).map(|turn| &all[(scramble(seed ^ turn) % all.len() as u64) as usize]);
    page(call, &listing(chosen), "public, max-age=60", "recommendations")
}

/// `GET /api/stats`.
pub(super) fn stats(call: &Call<'_>) -> Answer {
    let count = |category: &str| PRODUCTS.iter().filter(|product| product.category == category).count();
    let by_category: serde_json::Map<String, Value> =
        CATEGORIES.iter().map(|category| ((*category).to_owned(), count(category).into())).collect();
    let value = json!({ "products": PRODUCTS.len(), "by_category": by_category });
    page(call, &value.to_string(), "public, max-age=900", "stats")
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

/// Keeps this thread busy. Measured with the wall clock, because the CPU time of a thread can't be read
/// without unsafe code; on a machine that is not overloaded, the two agree.
fn burn(cpu: Duration) {
    let started = Instant::now();
    let mut work = 0;
    while started.elapsed() < cpu {
        work = (0..64).fold(work, |n, _| hint::black_box(scramble(n)));
    }
}

/// One product, already in its JSON form.
struct Product {
    id: u64,
    category: &'static str,
    json: String,
}

/// The categories; every product has one.
const CATEGORIES: [&str; 5] = ["books", "clothing", "electronics", "home", "toys"];

/// Returns the product with the number in this text, if any.
fn find(id: &str) -> Option<&'static Product> {
    let index = id.parse::<usize>().ok()?.checked_sub(1)?;
    PRODUCTS.get(index)
}

/// All products; their numbers are 1 to 501.
static PRODUCTS: LazyLock<Vec<Product>> = LazyLock::new(|| (1..=PRODUCT_COUNT).map(product).collect());

fn product(id: u64) -> Product {
    let draw = scramble(id);
    let category = CATEGORIES[(id % CATEGORIES.len() as u64) as usize];
    let json = json!({
        "id": id,
        "name": format!("Product {id}"),
        "category": category,
        "price_cents": 500 + draw % 49_500,
        "stock": (draw >> 20) % 200,
        "description": description(id),
    });
    Product { id, category, json: json.to_string() }
}

fn description(id: u64) -> String {
    let mut text = String::new();
    let mut turn = scramble(id);
    while text.len() < DESCRIPTION_BYTES {
        turn = scramble(turn);
        text.push_str(WORDS[(turn % WORDS.len() as u64) as usize]);
        text.push(' ');
    }
    text.truncate(DESCRIPTION_BYTES);
    text
}

const PRODUCT_COUNT: u64 = 501;
const DESCRIPTION_BYTES: usize = 3_500;
const WORDS: [&str; 16] = [
    "warm", "plain", "durable", "every", "room", "gift", "made", "careful", "cotton", "light", "season",
    "friend", "simple", "bright", "carry", "long",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_501_products_of_about_3500_bytes() {
        assert_eq!(PRODUCTS.len(), 501);
        assert!(PRODUCTS.iter().all(|product| (3_500..3_800).contains(&product.json.len())));
        let outside = ["0", "502", "-1", "x", ""].map(find);
        assert!(outside.iter().all(Option::is_none));
        assert_eq!(find("501").map(|product| product.id), Some(501));
    }
}
