//! The 501 products, made once.

use std::sync::LazyLock;

use serde_json::json;

use super::content::scramble;

/// One product, already in its JSON form.
pub(crate) struct Product {
    pub(crate) id: u64,
    pub(crate) category: &'static str,
    pub(crate) json: String,
}

/// The categories; every product has one.
pub(crate) const CATEGORIES: [&str; 5] = ["books", "clothing", "electronics", "home", "toys"];

/// All products; their numbers are 1 to 501.
pub(crate) fn products() -> &'static [Product] {
    &PRODUCTS
}

/// The product with this number, if the text is one.
pub(crate) fn find(id: &str) -> Option<&'static Product> {
    let index = id.parse::<usize>().ok()?.checked_sub(1)?;
    PRODUCTS.get(index)
}

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
        assert_eq!(products().len(), 501);
        assert!(products().iter().all(|product| (3_500..3_800).contains(&product.json.len())));
        let outside = ["0", "502", "-1", "x", ""].map(find);
        assert!(outside.iter().all(Option::is_none));
        assert_eq!(find("501").map(|product| product.id), Some(501));
    }
}
