//! Which resource a request is for, and the frame around every exchange: counting, knobs, failing, delay.

mod basic;
mod call;
mod inspect;
mod pages;
mod private;
mod products;
mod websocket;

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use http::{Method, Request, Response, StatusCode, request::Parts};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use tokio::time::sleep;

use super::{
    access_log::AccessLine,
    answer::{Answer, Asked, Finished},
    body::{Broken, OriginBody, Witness},
    connection::Flushes,
    knobs::{Failure, Knobs},
    prefix::Prefix,
    state::State,
};
use call::{Call, target};

/// What an exchange knows besides its request.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) state: Arc<State>,
    pub(crate) peer: SocketAddr,
    pub(crate) flushes: Flushes,
}

/// Answers one request.
///
/// # Errors
/// [`Broken`] when the `fail=drop` knob wants no answer at all.
pub(crate) async fn respond(
    caller: Caller,
    request: Request<Incoming>,
) -> Result<Response<OriginBody>, Broken> {
    let Caller { state, peer, flushes } = caller;
    let (mut head, body) = request.into_parts();
    let url = target(&head);
    let route = Route::below(&state.prefix, head.uri.path());
    if !route.is_about_the_origin() {
        state.counters.count_request(&url, &head.headers);
    }
    let upgrade = head.extensions.remove::<hyper::upgrade::OnUpgrade>();
    let witness = Witness { state: Arc::clone(&state), url: Arc::clone(&url), flushes };
    let finished = match answer(&state, &head, body, &route).await {
        Reply::Drop => {
            state.counters.count_broken(&url);
            return Err(Broken);
        }
        Reply::Finished(finished) => *finished,
    };
    if finished.status == StatusCode::SWITCHING_PROTOCOLS {
        websocket::spawn_echo(upgrade);
    }
    state.metrics.count_request(route.label(), &head.method, finished.status);
    let Parts { method, version, .. } = head;
    state.access_log.write(&AccessLine {
        peer,
        method: &method,
        target: &url,
        version,
        status: finished.status,
    });
    Ok(finished.into_response(witness))
}

enum Reply {
    Finished(Box<Finished>),
    /// Break the connection instead of answering.
    Drop,
}

async fn answer(state: &State, head: &Parts, body: Incoming, route: &Route<'_>) -> Reply {
    let finish = |answer: Answer, knobs: &Knobs| {
        let asked = Asked {
            method: &head.method,
            headers: &head.headers,
            now: SystemTime::now(),
            started_at: state.started_at,
        };
        Reply::Finished(Box::new(answer.finish(knobs, &asked)))
    };
    let plain = Knobs::default();
    let knobs = match Knobs::parse(head.uri.query().unwrap_or_default()) {
        Ok(knobs) => knobs,
        Err(error) => return finish(Answer::bad_knob(&error), &plain),
    };
    let Ok(body) = Limited::new(body, REQUEST_BODY_BYTES_MAX).collect().await else {
        let reason = format!("the request body broke off or has more than {REQUEST_BODY_BYTES_MAX} bytes");
        return finish(Answer::refusal(StatusCode::PAYLOAD_TOO_LARGE, reason), &plain);
    };
    let body = body.to_bytes();
    state.metrics.add_request_body_bytes(body.len());
    sit_out(state, knobs.delay).await;
    match knobs.fail.filter(|fail| state.draws.hit(fail.probability)).map(|fail| fail.with) {
        Some(Failure::Drop) => return Reply::Drop,
        Some(Failure::Status(status)) => {
            return finish(Answer::text(status, "failed by the `fail` knob\n"), &plain);
        }
        None => {}
    }
    let answer = route.answer(&Call { head, body, knobs: &knobs, state });
    finish(answer, &knobs)
}

/// Whoever finds no free slot queues; whoever has no delay needs none.
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
    Status(&'a str),
    Bytes(&'a str),
    Stream(&'a str),
    Gzip,
    Users,
    User(&'a str),
    Soap,
    Sse,
    WebSocket,
    PrivateBasic,
    PrivateBearer,
    Echo,
    Metrics,
    Counters,
    CountersReset,
    Products,
    Product(&'a str),
    ProductsOf(&'a str),
    Recommendations(&'a str),
    Stats,
    InvalidateCache,
    Health,
    Unknown,
}

impl<'a> Route<'a> {
    /// Nothing is found outside of the prefix. The prefix itself is the index, with and without a slash.
    fn below(prefix: &Prefix, path: &'a str) -> Self {
        match prefix.strip(path) {
            Some("") if !path.is_empty() => Self::Index,
            Some(path) => Self::of(path),
            None => Self::Unknown,
        }
    }

    fn of(path: &'a str) -> Self {
        let mut segments: Vec<&str> = path.split('/').skip(1).collect();
        // A slash at the end means the same resource; an empty last segment is never a name.
        if segments.len() > 1 {
            segments.pop_if(|last| last.is_empty());
        }
        match segments[..] {
            ["api", ref rest @ ..] => Self::of_api(rest),
            ["private", "basic", ..] => Self::PrivateBasic,
            ["private", "bearer", ..] => Self::PrivateBearer,
            ["echo", ..] => Self::Echo,
            [one] => Self::of_one(one),
            ["items", id] => Self::Item(id),
            ["status", code] => Self::Status(code),
            ["bytes", count] => Self::Bytes(count),
            ["stream", chunks] => Self::Stream(chunks),
            ["users", id] => Self::User(id),
            ["counters", "reset"] => Self::CountersReset,
            _ => Self::Unknown,
        }
    }

    fn of_one(segment: &str) -> Self {
        match segment {
            "" => Self::Index,
            "style.css" => Self::Style,
            "image.svg" => Self::Image,
            "gzip" => Self::Gzip,
            "users" => Self::Users,
            "soap" => Self::Soap,
            "sse" => Self::Sse,
            "ws" => Self::WebSocket,
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
            ["admin", "invalidate-cache"] => Self::InvalidateCache,
            _ => Self::Unknown,
        }
    }

    /// The name in metrics: never with a part that a client chose.
    fn label(self) -> &'static str {
        match self {
            Self::Index => "/",
            Self::Style => "/style.css",
            Self::Image => "/image.svg",
            Self::Item(_) => "/items/:id",
            Self::Status(_) => "/status/:code",
            Self::Bytes(_) => "/bytes/:n",
            Self::Stream(_) => "/stream/:chunks",
            Self::Gzip => "/gzip",
            Self::Users => "/users",
            Self::User(_) => "/users/:id",
            Self::Soap => "/soap",
            Self::Sse => "/sse",
            Self::WebSocket => "/ws",
            Self::PrivateBasic => "/private/basic",
            Self::PrivateBearer => "/private/bearer",
            Self::Echo => "/echo",
            Self::Metrics => "/metrics",
            Self::Counters => "/counters",
            Self::CountersReset => "/counters/reset",
            Self::Products => "/api/products",
            Self::Product(_) => "/api/products/:id",
            Self::ProductsOf(_) => "/api/products/category/:category",
            Self::Recommendations(_) => "/api/recommendations/:userId",
            Self::Stats => "/api/stats",
            Self::InvalidateCache => "/api/admin/invalidate-cache",
            Self::Health => "/health",
            Self::Unknown => "unknown",
        }
    }

    /// Allowed methods; none listed means all.
    fn methods(self) -> &'static [&'static str] {
        match self {
            Self::Echo | Self::Status(_) | Self::Unknown => &[],
            Self::Soap | Self::CountersReset | Self::InvalidateCache => &["POST"],
            Self::Item(_) => &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
            Self::Product(_) => &["GET", "HEAD", "PUT"],
            _ => &["GET", "HEAD"],
        }
    }

    /// Requests about the origin itself are not counted, or reading a counter would change it.
    fn is_about_the_origin(self) -> bool {
        matches!(self, Self::Metrics | Self::Counters | Self::CountersReset)
    }

    fn answer(self, call: &Call<'_>) -> Answer {
        let methods = self.methods();
        if !methods.is_empty() && !methods.contains(&call.head.method.as_str()) {
            return Answer::method_not_allowed(methods);
        }
        match self {
            Self::Index => pages::index(call),
            Self::Style => pages::style(),
            Self::Image => pages::image(),
            Self::Item(id) => basic::item(call, id),
            Self::Status(code) => basic::status(code),
            Self::Bytes(count) => basic::bytes(count),
            Self::Stream(chunks) => basic::stream(chunks),
            Self::Gzip => pages::gzip(call),
            Self::Users => basic::users(),
            Self::User(id) => basic::user(id),
            Self::Soap => basic::soap(call),
            Self::Sse => basic::events(call.knobs),
            Self::WebSocket => websocket::handshake(call.head),
            Self::PrivateBasic => private::basic(call.head),
            Self::PrivateBearer => private::bearer(call.head),
            Self::Echo => inspect::echo(call),
            Self::Metrics => inspect::metrics(call.state),
            Self::Counters => inspect::counters(call),
            Self::CountersReset => inspect::reset_counters(call.state),
            Self::Products => products::list(call),
            Self::Product(id) if call.head.method == Method::PUT => products::update(call, id),
            Self::Product(id) => products::one(call, id),
            Self::ProductsOf(category) => products::of_category(call, category),
            Self::Recommendations(user) => products::recommendations(call, user),
            Self::Stats => products::stats(call),
            Self::InvalidateCache => products::invalidate_cache(call),
            Self::Health => products::health(call),
            Self::Unknown => Answer::refusal(StatusCode::NOT_FOUND, unknown(call.state)),
        }
    }
}

fn unknown(state: &State) -> String {
    format!("no such resource; {}/ lists what there is", state.prefix.as_str())
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
            ("/private/basic", Route::PrivateBasic),
            ("/private/bearer/a/b", Route::PrivateBearer),
            ("/private", Route::Unknown),
            ("/echo/a/b", Route::Echo),
            ("/api/products", Route::Products),
            ("/api/products/5", Route::Product("5")),
            ("/api/products/category/books", Route::ProductsOf("books")),
            ("/counters/reset", Route::CountersReset),
            ("*", Route::Unknown),
        ];
        for (path, expected) in cases {
            assert_eq!(Route::of(path), expected, "{path}");
        }
    }
}
