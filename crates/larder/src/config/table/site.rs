//! Keys of sites and their cache rules.

use cache::settings::LeaderFailure;
use caching::{GroupsInvalidated, HeuristicFor, Negotiation, StoredCredentialed, StoredErrors, TypeMismatch};
use gateway::config::{
    CloseDelimited, InterimResponses, OverrideFields, PreconditionMiss, ServerTiming, UnderscoreFields,
};

use super::answer::{CORS, ERROR_PAGE, MAINTENANCE};
use super::compression::COMPRESSION;
use super::protection::{DEFAULT_RESPONSE, MISS_BUDGET, RULE_RATE_LIMIT, SITE_RATE_LIMIT};
use super::section::*;
use super::transform::TRANSFORM;

section! {
    /// A set of URLs with one origin and one list of cache rules.
    pub(super) SITE = "site";
    /// Unique name; appears in metrics and logs and is a part of every cache key.
    ///
    /// A new name means a cold cache for the site.
    name = Text("name (letters, digits, `-`, `.`, `_`)").required(),
    /// Host names of the site; an empty list means every host.
    ///
    /// `*.example.org` stands for all names below `example.org`, not for `example.org` itself.
    hosts = List(&Text("host name without a port, or `*.` and a host name")).default("[]"),
    /// Only paths below this one belong to the site; `/shop` fits `/shop` and `/shop/a`, not `/shopping`.
    ///
    /// If the site restricts anything (`clients_allowed`, `clients_denied`, `rate_limit`, `request_body_bytes_max`, or a rule that restricts), the
    /// prefix also matches in any other ASCII case, unless another site has exactly that prefix: `/SHOP` must not lead around the restriction.
    path_prefix = Text("path that starts with `/`").default("/"),
    /// Whether `path_prefix` is cut off before a request is forwarded.
    strip_prefix = Flag.default("false"),
    /// Origin of the site: where requests go that the cache can't answer.
    origin = Text("URL of an origin, or the name of an `[[origin]]`").required(),
    /// Where responses of the site are stored.
    ///
    /// In a store of its own a site has memory that no other site fills, and a server that no other site needs. When a restart moves the site,
    /// its stored responses stay where they are: purge them there first if the site may come back.
    store = Text("name of a `[stores.NAME]`, or `default` for `[store]`").default("default").kept(),
    /// Whether bodies of error responses say what went wrong.
    ///
    /// Helpful in development; in production it discloses internals.
    expose_errors = Flag.default("false"),
    /// Log level of this site.
    log_level = one_of::<::tracing::Level>().absent("that of `log.level`"),
    /// Whether responses carry an `X-Cache: HIT|MISS|...` line.
    ///
    /// For tools that look for this line; `Cache-Status` says more and is always there. `HIT`: a fresh stored response. `STALE`: a stale one.
    /// `REVALIDATED`: a stored one that the origin confirmed. `COLLAPSED`: the response to another client's request. `MISS`: from the origin.
    /// `BYPASS`: from the origin, past the cache. `LOCAL`: Larder's own answer, such as a redirect, a preflight, maintenance or a refusal. `ERROR`:
    /// the origin gave no response.
    x_cache = Flag.default("false"),
    /// Whether responses tell in `Server-Timing` how long the store, the origin and the like took.
    ///
    /// `on_request`: to requests with a field `Larder-Timing`, which is not forwarded. Every client that may send it learns where time goes behind the gateway.
    /// `Server-Timing` of the origin stays beside it.
    server_timing = one_of::<ServerTiming>().default("off"),
    /// Which clients get interim responses of the origin (1xx, such as 103 Early Hints) before the response: those of HTTP/2, all, or none.
    ///
    /// Many HTTP/1.1 clients take a 103 for the response, such as Python's `http.client` and older releases of Go and Java. All clients get 100
    /// (Continue), and HTTP/1.0 clients get none of them. Absent under `profile = "rfc9111"`: `all`.
    interim_responses = one_of::<InterimResponses>().default("http2"),
    /// When not empty, only clients with these addresses get answers; all others get 403.
    ///
    /// The client is the peer, or the address that a peer in `trusted_proxies` names; if that peer names none, its own address counts. Applies before
    /// anything else, also to stored responses.
    clients_allowed = NETWORKS.default("[]"),
    /// Clients with these addresses get 403, also if `clients_allowed` has them.
    clients_denied = NETWORKS.default("[]"),
    /// How fast each client may send requests to the site (docs/operate/protection.md).
    rate_limit = Table(&SITE_RATE_LIMIT).absent("no limit"),
    /// Largest content of a request (413), where its rule doesn't say.
    request_body_bytes_max = BODY.absent("that of `limits.body_bytes_max`"),
    /// Whether concurrent requests for one cache key share one forward.
    ///
    /// `fleet`: one forward per key in all instances that share [store.remote]; without that, the same as `process`. `process`: one forward per key
    /// in this process. `off` lets a crowd for a cold URL through to the origin.
    collapse = Choice(&["off", "process", "fleet"]).default("fleet"),
    /// Bounds on waiting for another request's forward.
    collapse_limits = Table(&COLLAPSE_LIMITS).default("{}"),
    /// Time limits towards the origin.
    timeouts = Table(&TIMEOUTS).default("{}"),
    /// Header fields that the origin isn't sent, whoever has written them.
    ///
    /// Taking out `Cookie` makes responses the same for everybody, for sites where they are. It also holds for what trusted proxies say (`Client-Cert`) and
    /// for what Larder itself would write (`X-Forwarded-Proto`), except `Via`, `CDN-Loop`, `Host` and framing. Larder still reads scheme, host, port and
    /// address from the fields of trusted proxies.
    request_fields_hidden = FIELD_NAMES.default("[]"),
    /// When not empty, only these request fields are forwarded.
    ///
    /// It holds for fields of clients and of trusted proxies alike. Larder itself always writes `Host`, framing, `Via`, `CDN-Loop`, `Forwarded`,
    /// `X-Forwarded-For`, `X-Forwarded-Host` and `X-Forwarded-Proto`; list those that the origin must not get in `request_fields_hidden` instead.
    request_fields_forwarded = FIELD_NAMES.default("[]"),
    /// Request fields that are part of the cache key.
    ///
    /// For fields by which the origin chooses an answer without saying so in `Vary`. Each value has a stored response of its own.
    request_fields_keyed = FIELD_NAMES.default("[]"),
    /// Treatment of request fields whose names contain other characters than letters, digits and `-`.
    ///
    /// CGI, WSGI and PHP write `_` for `-` and other characters: `X_Forwarded_Host` and `X.Forwarded.Host` reach them as if they were
    /// `X-Forwarded-Host`. `forward` still takes out names that stand for fields of HTTP or of proxies, and those in `request_fields_hidden` in any
    /// spelling (docs/operate/request-fields.md).
    underscore_fields = one_of::<UnderscoreFields>().default("drop"),
    /// Header fields taken out of all responses of the site.
    ///
    /// They count nevertheless: a response with `Set-Cookie` isn't stored even if this hides it, and hiding it ends every session of the site. To
    /// store pages that set a cookie, remove it from them with a `[[site.transform]]`: `phase = "origin_response"`, their `path` and `remove =
    /// ["Set-Cookie"]`.
    response_fields_hidden = FIELD_NAMES.default("[]"),
    /// Response fields that name tags by which operators purge, beside `Cache-Groups` (RFC 9875), which always does.
    ///
    /// `Cache-Tag` and `Cache-Tags` are lists with commas, `Surrogate-Key` has blanks between tags, and `xkey` both. Responses that are already
    /// stored keep the tags that were read when they were stored.
    /// An empty list reads `Cache-Groups` alone.
    tags = List(&Choice(&["cache-tag", "cache-tags", "surrogate-key", "xkey"]))
        .default("[\"cache-tag\", \"cache-tags\", \"surrogate-key\", \"xkey\"]"),
    /// Whether clients get the fields in `tags`.
    ///
    /// Tags tell how a site is made. Leave it where another cache stands before this one and is purged by them.
    tags_delivered = Flag.default("true"),
    /// Cache rules, in order; the first that matches a request decides.
    ///
    /// A request that matches none is treated as by a rule without keys: by what the response itself says (RFC 9111).
    rule = List(&Table(&RULE)).default("[]"),
    /// Whether responses are compressed on their way out, for clients that accept it (docs/operate/compression.md).
    ///
    /// A stored response is compressed once for each coding, and its compressed forms are kept beside it. Rules may say otherwise.
    compress = Flag.default("false"),
    /// How, and which responses.
    compression = Table(&COMPRESSION).default("{}"),
    /// Which other web origins may read its responses.
    cors = Table(&CORS).absent("what the origin server says"),
    /// Answers 503 in place of the site.
    maintenance = Table(&MAINTENANCE).absent("none"),
    /// Bodies of errors that Larder answers itself.
    error_page = List(&Table(&ERROR_PAGE)).default("[]"),
    /// Transformation rules: what is changed of requests and responses (docs/operate/transform.md).
    transform = List(&Table(&TRANSFORM)).default("[]"),
}

section! {
    /// Bounds on waiting for another request's forward. Requests that wait for one forward cost the origin at most one more request if it fails or is
    /// late. Requests whose response can't be shared (private, or stale at once) are forwarded side by side, within `requests_in_flight_max` of the
    /// origin.
    COLLAPSE_LIMITS = "site.collapse_limits";
    /// Longest wait for the response's header section before one waiter forwards again, for content that stands still, and for a turn once a forward has failed.
    ///
    /// The others wait for both, and take the answer that comes first. Each forward ends by the time limits of the site, and there are four at a time
    /// at most. Nobody joins content that has stood still for so long, and it ends if nobody reads it. A waiter that had no turn for so long after a failure gets a stale response, if it may, or 503.
    wait_max = LIMIT.default("10s"),
    /// Waiters per forward; more are forwarded on their own.
    ///
    /// Those are bounded by `requests_in_flight_max` of the origin alone.
    waiters_max = Integer(0..=1_000_000).default("10000"),
    /// How waiters go on when the forward fails, by no response or by a server error (5xx) that is not stored.
    ///
    /// `hand_over`: they go in turn, other clients first and four at a time, and the first response that may be shared is for all: a request that makes the
    /// origin fail fails alone. If no connection can be made, all get the second such failure. `share`: all get the failure, which spares an
    /// origin in trouble, but any client whose request makes the origin fail denies the page to all that wait. They get only the status of a server
    /// error. Where instances share a store (`collapse = "fleet"`), each instance decides for its own waiters.
    on_failure = one_of::<LeaderFailure>().default("hand_over"),
    /// How long a key whose response could not be stored is remembered and not collapsed. Not while a stored response answers, or did less than this
    /// time ago.
    uncacheable_for = Duration(0..=HOUR_MS).default("60s").no_limit(),
}

section! {
    /// Time limits towards the origin. An exchange that takes longer is answered 504, or its connection is closed if the response has begun.
    TIMEOUTS = "site.timeouts";
    /// Name resolution, connection, TLS handshake and the SETTINGS of HTTP/2 together.
    connect = LIMIT.default("5s"),
    /// From the end of the request to the response's header section.
    first_byte = LIMIT.default("60s"),
    /// Between two pieces of the response's body.
    ///
    /// Streams that are silent for longer need a higher value.
    between_bytes = LIMIT.default("60s"),
    /// The whole exchange.
    ///
    /// It also ends streams, such as Server-Sent Events.
    total = LIMIT.absent("no limit"),
}

section! {
    /// How requests that match are cached, limited and answered. Absent keys leave the decision to the response (RFC 9111).
    RULE = "site.rule";
    /// Name in logs and explanations; unique in its site.
    name = Text("name (letters, digits, `-`, `.`, `_`)").absent("`rule-` and its number"),
    /// Paths that match: one of `exact`, `prefix`, `glob`, `regex`.
    ///
    /// It is compared with the path in normal form (docs/operate/configuration.md#rules), with the site's prefix. A rule that restricts (`cache = false`, `deny`,
    /// `rate_limit`, `miss_budget`, `request_body_bytes_max`, `response_body_bytes_max`, `credential_fields`, `store_only_with`, a `ttl_override` of
    /// zeros) also matches other spellings that many frameworks, such as Express, route to the same page: any ASCII case, a slash at the end, and for
    /// `regex` the path without its query. Other rules match only what is written.
    path = Table(&PATTERN).absent("every path"),
    /// Spellings of paths that are forwarded although origins read them in several ways, such as the `%2F` of `/@scope%2Fname`.
    ///
    /// If a site has rules with `path`, or any site a `path_prefix`, such paths get 400 (`ambiguous-path`) unless the rule that matches them, as they
    /// are written, allows their spelling here. Their responses are never stored, no stored response answers, and `deny` and limits hold for each
    /// reading. A path with two kinds of them is refused all the same (docs/operate/configuration.md#spellings-of-paths).
    spellings_allowed = List(&Choice(&[
        "encoded-slash",
        "backslash",
        "double-encoding",
        "semicolon",
        "empty-segment",
        "dot-segment",
        "control-character",
    ]))
    .default("[]"),
    /// Methods that match; an empty list means every method.
    ///
    /// Only responses to GET and QUERY are stored, whatever stands here, and to POST where `store_post` says so; HEAD is answered from those to GET.
    methods = List(&Text("method, such as `GET` (in capitals)")).default("[]"),
    /// Whether requests that match are refused (403), before anything stored is looked at or the origin is asked.
    ///
    /// The first rule that matches counts, so put it above others. A path that origins may read as one that a rule denies is refused too.
    deny = Flag.default("false"),
    /// Whether responses are stored and reused.
    cache = Flag.default("true"),
    /// Freshness lifetime by status, over what the response says.
    ///
    /// Keys are status codes, classes such as `5xx`, or `default`; the most specific one counts. The lifetime begins when the response arrives: an
    /// `Age` that it brings doesn't shorten it, and clients see both together. `no-store` and `private` still keep a response out.
    ttl_override = TTLS.default("{}"),
    /// Freshness lifetime by status for responses that don't say one.
    ///
    /// Keys, and the beginning of the lifetime, as in `ttl_override`.
    ttl_default = TTLS.default("{}"),
    /// Query parameters left out of the cache key; a name that ends with `*` stands for all that begin so.
    ///
    /// The origin still gets them. For parameters that don't change the response, such as `utm_*`.
    query_ignore = PARAMETERS.default("[]"),
    /// The only query parameters in the cache key; an empty list keeps none.
    ///
    /// Not together with `query_ignore`.
    query_keep = PARAMETERS.absent("all"),
    /// Whether `?b=1&a=2` and `?a=2&b=1` share a stored response.
    query_sort = Flag.default("false"),
    /// Largest body that is stored whole; larger ones are only passed on.
    ///
    /// One body takes at most half of the store's `memory`, whatever this key says, less 256 KiB and about a segment (1 MiB, or a sixteenth of a
    /// small memory): room for what arrives of it.
    object_bytes_max = Size(0..=TIB).default("64MiB"),
    /// Whether a range of something that isn't stored is forwarded, and its 206 stored as a part.
    ///
    /// `false`: the whole is fetched and stored instead, and the range is cut from it. Bytes that were evicted from a stored response are fetched
    /// again in both cases.
    store_parts = Flag.default("true"),
    /// Largest content of a QUERY that takes part in a cache key; with a larger one it is only passed on (RFC 10008).
    ///
    /// The content is read whole before the look-up, and kept with what is stored. `0` passes all QUERY with content on.
    query_content_bytes_max = Size(0..=16 * MIB).default("64KiB"),
    /// Whether responses with `Set-Cookie` may be stored.
    ///
    /// Absent under `profile = "rfc9111"`: `true`. Such a cookie goes to everyone who gets the stored response. Where pages are the same for
    /// everyone, rather remove it from them before they are stored: a `[[site.transform]]` with `phase = "origin_response"`, their `path` and `remove
    /// = ["Set-Cookie"]`.
    store_set_cookie = Flag.default("false"),
    /// Whether a response is stored that is never fresh (`max-age=0`, `Expires` in the past) and has no validator (RFC 9111 section 4.2.4).
    ///
    /// Absent under `profile = "rfc9111"`: `true`. Requests with `max-stale` get it, and others while the origin cannot be reached. Responses with a
    /// validator, or with `stale-if-error`, are stored in any case.
    store_expired = Flag.default("false"),
    /// Whether a 200 to POST with a lifetime and a `Content-Location` that is its own URL answers later GETs (RFC 9110 section 9.3.3).
    ///
    /// Absent under `profile = "rfc9111"`: `true`. The content of the POST is no part of the cache key: what one client posts, all others would get.
    /// A POST itself is never answered from what is stored.
    store_post = Flag.default("false"),
    /// Which groups of stored responses an unsafe request invalidates (RFC 9875): those that `Cache-Group-Invalidation` names, or also those that
    /// what it invalidates belongs to.
    ///
    /// Absent under `profile = "rfc9111"`: `shared`. With that, whoever may send a POST takes everything out of use that shares a group with its URL.
    groups_invalidated = one_of::<GroupsInvalidated>().default("named"),
    /// Whether `Cache-Control` and `Pragma` of requests count.
    ///
    /// `false` keeps clients from going past the cache, for instance with every reload of a page.
    honour_request_directives = Flag.default("true"),
    /// The last share of a lifetime in which a response that is asked for is validated behind the answer, before it is stale; 0 waits until it is.
    ///
    /// Clients get what is stored at once. The share is one of the time for which the response is fresh here. Each response waits for a part of the
    /// first half of that, so that what was stored at once is not validated at once; with more than 90 some would be due as soon as they are stored,
    /// and so with each request. A response that nobody requests in that time expires. After a failure the next attempt waits for half a second. Nothing is
    /// validated ahead that says `immutable`, nor for requests with `only-if-cached`.
    refresh_ahead_percent = Integer(0..=90).default("0").no_limit(),
    /// How long after its expiry a response is still used while it is validated, if it doesn't say (RFC 5861).
    stale_while_revalidate_default = TTL.default("0s").no_limit(),
    /// The same, at most, whatever the response says.
    ///
    /// Absent under `profile = "rfc9111"`: as long as they say.
    stale_while_revalidate_max = TTL.default("1d").no_limit(),
    /// How long after its expiry a response is still used when the origin fails, if it doesn't say (RFC 5861).
    stale_if_error_default = TTL.default("0s").no_limit(),
    /// The same, at most, whatever the response or request says.
    ///
    /// Absent under `profile = "rfc9111"`: as long as they say.
    stale_if_error_max = TTL.default("1d").no_limit(),
    /// How long after its expiry a response is still used when no answer comes from the origin (RFC 9111 section 4.2.4).
    ///
    /// No connection, no answer in time, a connection that closes before the answer, or a full queue in front of the origin. `must-revalidate`,
    /// `proxy-revalidate`, `s-maxage` and `no-cache` forbid it. `"0s"` leaves it to `stale_if_error`.
    stale_if_unreachable = TTL.default("1d").no_limit(),
    /// The longest that a request's `max-stale` is granted.
    ///
    /// Absent under `profile = "rfc9111"`: as long as the request says.
    max_stale_max = TTL.default("1d").no_limit(),
    /// Guesses a missing freshness lifetime as this share of the time since `Last-Modified`; 0 guesses nothing.
    ///
    /// RFC 9111 section 4.2.2 names 10 as usual. Only for 200, 203, 204, 206, 300, 301, 308, 404, 405, 410, 414 and 501, and for responses that say
    /// `public`. Without a guess such responses are validated each time.
    heuristic_percent = Integer(0..=100).default("10").no_limit(),
    /// The longest lifetime that is guessed.
    ///
    /// Absent under `profile = "rfc9111"`: `1d`.
    heuristic_max = TTL.default("1h").no_limit(),
    /// To which requests' responses a lifetime is guessed: those without credentials (`credentials_stored`), or all.
    ///
    /// A personal page that forgets `Cache-Control` is the usual leak. Absent under `profile = "rfc9111"`: `all`.
    heuristic_requests = one_of::<HeuristicFor>().default("anonymous"),
    /// Response fields that count in place of `Cache-Control` and `Expires`, in this order (RFC 9213).
    ///
    /// The first that is there, well-formed and not empty counts. An empty list: only `Cache-Control` does. `Surrogate-Control` may be one of them
    /// (docs/operate/configuration.md#what-the-application-says).
    targeted_fields = FIELD_NAMES.default("[\"CDN-Cache-Control\"]"),
    /// Response field without which nothing is stored, such as `X-Cache-Set`: the application opts in, response by response.
    ///
    /// Empty or `0` is as good as none. Everything else that forbids storing still does, and a lifetime has to come from the response or
    /// `ttl_default`. Don't name the field in `response_fields_hidden`: a 304 is judged without hidden fields.
    store_only_with = Text("header field name").absent("not needed"),
    /// Whether statuses that one request may have caused are stored when they carry a lifetime: 226, 501, 505, 510, and all 4xx but 402, 404, 405,
    /// 409, 410, 414, 418 and 451.
    ///
    /// One client's odd header fields cause these: stored, they break the page for all. A status that `ttl_override` or `ttl_default` names by its
    /// number is stored all the same (`ttl_default = { "403" = "10s" }`). Absent under `profile = "rfc9111"`: `all`.
    errors_stored = one_of::<StoredErrors>().default("of-resource"),
    /// Which responses to requests with credentials are stored: those that say `public` or have a lifetime above zero, from the origin or from
    /// `ttl_override` and `ttl_default`; or all that RFC 9111 permits.
    ///
    /// Credentials are `Authorization`, `Cookie`, the fields for API keys, tokens, users and client certificates in docs/operate/profiles.md, and
    /// `credential_fields`. Absent under `profile = "rfc9111"`: `all`. See docs/operate/profiles.md.
    credentials_stored = one_of::<StoredCredentialed>().default("explicit"),
    /// More request fields that tell whose request it is.
    ///
    /// Name here what your origin knows its users by, such as `X-User` or `X-Client-Certificate`, if it isn't among those of `credentials_stored`.
    credential_fields = FIELD_NAMES.default("[]"),
    /// How `Accept-Encoding` and `Accept-Language` choose among stored responses that vary by them (docs/operate/negotiation.md).
    ///
    /// `normalised`: by what they mean, whatever their case, order and space. `selecting`: also by `Content-Encoding` and `Content-Language`, where
    /// these make the choice certain. Absent under `profile = "rfc9111"`: `selecting`.
    negotiation = one_of::<Negotiation>().default("normalised"),
    /// Treatment of a response without `Content-Length` or chunks, whose body ends with the connection.
    ///
    /// `pass`: it goes to the client that asked and is not stored, because an origin that dies ends it too. `store`: it counts as complete (RFC 9112
    /// section 8), for origins that are trusted and know no better. Absent under `profile = "rfc9111"`: `store`. With TLS a connection that ends
    /// without `close_notify` is broken in either case.
    close_delimited = one_of::<CloseDelimited>().default("pass"),
    /// Content codings that requests are reduced to: others in `Accept-Encoding` are neither compared nor forwarded.
    ///
    /// The origin sees one form for all lists of the same meaning, in this order. List what the origin has, at most 8; `identity` alone asks it for none, and an
    /// empty list reduces nothing. Not with `negotiation = "as-sent"`. Absent under `profile = "rfc9111"`: `[]`.
    codings = List(&Text("content coding, such as `gzip`")).default("[\"zstd\", \"br\", \"gzip\"]"),
    /// Whether responses are compressed on their way out, as `site.compression` says (docs/operate/compression.md).
    compress = Flag.absent("that of the site"),
    /// Which form is fetched for a request with `If-None-Match` or `If-Modified-Since` when nothing is stored: `whole`, so that the response is stored
    /// and the condition evaluated here, or `forward`, so that the origin evaluates it (RFC 9111 section 4.3.2).
    ///
    /// Absent under `profile = "rfc9111"`: `forward`. Then clients that have a copy already bring nothing into the store, and each of their requests
    /// reaches the origin.
    precondition_miss = one_of::<PreconditionMiss>().default("whole"),
    /// How fast each client may send requests that match, beside `site.rate_limit` (docs/operate/protection.md).
    rate_limit = Table(&RULE_RATE_LIMIT).absent("no limit"),
    /// How many requests that match may go to the origin, all clients together (docs/operate/protection.md).
    miss_budget = Table(&MISS_BUDGET).absent("no limit"),
    /// Response to clients when the origin fails and no stored response may be used (docs/operate/protection.md).
    default_response = Table(&DEFAULT_RESPONSE).absent("the failure"),
    /// Largest content of a request that matches (413).
    ///
    /// Up to `limits.body_bytes_max`, which holds for all. A request whose `Content-Length` is larger is refused before the origin sees any of it;
    /// content without a length is cut off.
    request_body_bytes_max = BODY.absent("that of the site"),
    /// Between two reads of the content of a request that matches (408), over `limits.body_read_timeout`.
    ///
    /// For streams of gRPC and long polls whose clients may be silent for long before the response begins (docs/operate/grpc-and-sse.md). Where a path
    /// has several readings, the shortest of their rules counts.
    body_read_timeout = LIMIT.absent("that of `limits.body_read_timeout`"),
    /// Bytes of the content of a request that matches, a second (408), over `limits.body_rate_min`; `0` for any.
    ///
    /// Where a path has several readings, the highest of their rules counts.
    body_rate_min = BODY.absent("that of `limits.body_rate_min`"),
    /// Largest content of a response of the origin; a larger one is answered 502, or broken off where it has begun, and never stored.
    ///
    /// To store less and pass on all, set `object_bytes_max` instead.
    response_body_bytes_max = BODY.absent("any size"),
    /// Treatment of a response whose URL ends like that of a file (`.css`, `.png`, ...) and whose `Content-Type` is another one: a page, say
    /// (cache deception, docs/operate/protection.md).
    ///
    /// `pass`: it goes to the client that asked and is not stored. Absent under `profile = "rfc9111"`: `store`.
    type_mismatch = one_of::<TypeMismatch>().default("pass"),
    /// Treatment of `X-HTTP-Method-Override`, `X-Original-URL` and similar fields where the response may be stored.
    ///
    /// Some frameworks let them replace method, host or target. `drop` takes those that replace host or target out of every other request too, unless
    /// a peer in `trusted_proxies` sends them. `key`: they are forwarded, and part of the cache key. `forward`: they are no part of it, so only for
    /// origins that ignore them. Absent under `profile = "rfc9111"`: `key`.
    override_fields = one_of::<OverrideFields>().default("drop"),
}

section! {
    /// Which paths match: exactly one of these.
    pub(super) PATTERN = "site.rule.path";
    /// The path is this one.
    exact = Text("path that starts with `/`").absent("not compared"),
    /// The path starts with this text.
    prefix = Text("path that starts with `/`").absent("not compared"),
    /// The whole path matches this glob.
    glob = Text("glob: `*` within a segment, `**` across, `?`, `[a-z]`, `{a,b}`").absent("not compared"),
    /// The expression matches anywhere in the path.
    ///
    /// An expression that names a question mark (`\?`, `[?&]`) is compared with path and query; in a transformation rule of phase `origin_response`,
    /// with the path alone. Anybody can add a query to any path, so let such an expression begin with `^[^?]*` if it is for paths: `larder check`
    /// shows a URL that would slip through. Unanchored: write `^` and `$` where you mean them. A rule that restricts ignores case unless the
    /// expression says `(?-i)`. Matching takes time in proportion to the URL, whatever the expression.
    regex = Text("regular expression (syntax of the Rust `regex` crate)").absent("not compared"),
}

const BODY: Kind = Size(0..=TIB);
const TTL: Kind = Duration(0..=3650 * DAY_MS);
const TTLS: Kind = Map(KeyForm::Status, &TTL);
