//! Routes requests to resources, and handles each exchange: counting, knobs, delay.

mod basic;
mod call;
mod products;

use std::{convert::Infallible, sync::Arc, time::Duration};

use http::{Request, Response, StatusCode, request::Parts};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use tokio::time::sleep;

use super::{answer::Answer, body::OriginBody, knobs::Knobs, options::Prefix};
pub(crate) use call::State;
use call::{Call, target};

/// Answers one request.
pub(crate) async fn respond(
    state: Arc<State>,
    request: Request<Incoming>,
) -> Result<Response<OriginBody>, Infallible> {
    let (head, body) = request.into_parts();
    let route = Route::below(&state.prefix, head.uri.path());
    if !route.is_about_the_origin() {
        state.counters.count_request(&target(&head));
    }
    let (answer, knobs) = answer(&state, &head, body, &route).await;
    let response = answer.finish(&knobs, &head);
    state.counters.count_answer(route.label(), &head.method, response.status());
    Ok(response)
}

/// Returns the answer of a route and the knobs that apply to it: none, if it refuses the request.
async fn answer(state: &State, head: &Parts, body: Incoming, route: &Route<'_>) -> (Answer, Knobs) {
    let knobs = match Knobs::parse(head.uri.query().unwrap_or_default()) {
        Ok(knobs) => knobs,
        Err(error) => return (Answer::bad_knob(&error), Knobs::default()),
    };
    let Ok(body) = Limited::new(body, REQUEST_BODY_BYTES_MAX).collect().await else {
        let reason = format!("the request body is incomplete or exceeds {REQUEST_BODY_BYTES_MAX} bytes");
        return (Answer::refusal(StatusCode::PAYLOAD_TOO_LARGE, reason), Knobs::default());
    };
    sit_out(state, knobs.delay).await;
    let answer = route.answer(&Call { head, body: body.to_bytes(), state });
    (answer, knobs)
}

/// Waits for a free slot and then for the delay. A request without delay needs no slot.
async fn sit_out(state: &State, delay: Duration) {
    if !delay.is_zero() {
        let _slot = state.delay_slots.acquire().await;
        sleep(delay).await;
    }
}

/// A resource of the origin, with the variable parts of its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route<'a> {
    Index,
    Style,
    Image,
    Item(&'a str),
    Bytes(&'a str),
    Echo,
    Metrics,
    Counters,
    Products,
    Product(&'a str),
    ProductsOf(&'a str),
    Recommendations(&'a str),
    Stats,
    Health,
    Unknown,
}

impl<'a> Route<'a> {
    /// Finds the resource of a path below the prefix. The prefix itself is the index, with and without a slash.
    fn below(prefix: &Prefix, path: &'a str) -> Self {
        match prefix.strip(path) {
            Some("") if !path.is_empty() => Self::Index,
            Some(path) => Self::of(path),
            None => Self::Unknown,
        }
    }

    fn of(path: &'a str) -> Self {
        let mut segments: Vec<&str> = path.split('/').skip(1).collect();
        // A final slash makes no difference; an empty last segment is never a name.
        if segments.len() > 1 {
            segments.pop_if(|last| last.is_empty());
        }
        match segments[..] {
            ["api", ref rest @ ..] => Self::of_api(rest),
            ["echo", ..] => Self::Echo,
            [one] => Self::of_one(one),
            ["items", id] => Self::Item(id),
            ["bytes", count] => Self::Bytes(count),
            _ => Self::Unknown,
        }
    }

    fn of_one(segment: &str) -> Self {
        match segment {
            "" => Self::Index,
            "style.css" => Self::Style,
            "image.svg" => Self::Image,
            "metrics" => Self::Metrics,
            "counters" => Self::Counters,
            "health" => Self::Health,
            _ => Self::Unknown,
        }
    }

    fn of_api(segments: &[&'a str]) -> Self {
        match *segments {
            ["products"] => Self::Products,
            ["products", "category", category] => Self::ProductsOf(category),
            ["products", id] => Self::Product(id),
            ["recommendations", user] => Self::Recommendations(user),
            ["stats"] => Self::Stats,
            _ => Self::Unknown,
        }
    }

    /// Returns the name in metrics, which never contains a part chosen by a client.
    fn label(self) -> &'static str {
        match self {
            Self::Index => "/",
            Self::Style => "/style.css",
            Self::Image => "/image.svg",
            Self::Item(_) => "/items/:id",
            Self::Bytes(_) => "/bytes/:n",
            Self::Echo => "/echo",
            Self::Metrics => "/metrics",
            Self::Counters => "/counters",
            Self::Products => "/api/products",
            Self::Product(_) => "/api/products/:id",
            Self::ProductsOf(_) => "/api/products/category/:category",
            Self::Recommendations(_) => "/api/recommendations/:userId",
            Self::Stats => "/api/stats",
            Self::Health => "/health",
            Self::Unknown => "unknown",
        }
    }

    /// Returns the allowed methods; an empty list allows all.
    fn methods(self) -> &'static [&'static str] {
        match self {
            Self::Echo | Self::Unknown => &[],
            Self::Item(_) => &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
            _ => &["GET", "HEAD"],
        }
    }

    /// Returns whether the route is about the origin itself. Such requests are not counted, or reading a counter would change it.
    fn is_about_the_origin(self) -> bool {
        matches!(self, Self::Metrics | Self::Counters)
    }

    fn answer(self, call: &Call<'_>) -> Answer {
        let methods = self.methods();
        if !methods.is_empty() && !methods.contains(&call.head.method.as_str()) {
            return Answer::method_not_allowed(methods);
        }
        match self {
            Self::Index => basic::index(call),
            Self::Style => basic::style(),
            Self::Image => basic::image(),
            Self::Item(id) => basic::item(call, id),
            Self::Bytes(count) => basic::bytes(count),
            Self::Echo => basic::echo(call),
            Self::Metrics => basic::metrics(call.state),
            Self::Counters => basic::counters(call),
            Self::Products => products::list(call),
            Self::Product(id) => products::one(call, id),
            Self::ProductsOf(category) => products::of_category(call, category),
            Self::Recommendations(user) => products::recommendations(call, user),
            Self::Stats => products::stats(call),
            Self::Health => products::health(call),
            Self::Unknown => Answer::refusal(StatusCode::NOT_FOUND, unknown(call.state)),
        }
    }
}

fn unknown(state: &State) -> String {
    format!("no such resource; {}/ lists the resources", state.prefix.as_str())
}

const REQUEST_BODY_BYTES_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_select_routes() {
        let cases = [
            ("/", Route::Index),
            ("/items/7", Route::Item("7")),
            ("/items/7/", Route::Item("7")),
            ("/items", Route::Unknown),
            ("/items/7/8", Route::Unknown),
            ("/echo/a/b", Route::Echo),
            ("/api/products", Route::Products),
            ("/api/products/5", Route::Product("5")),
            ("/api/products/category/books", Route::ProductsOf("books")),
            ("*", Route::Unknown),
        ];
        for (path, expected) in cases {
            assert_eq!(Route::of(path), expected, "{path}");
        }
    }
}
