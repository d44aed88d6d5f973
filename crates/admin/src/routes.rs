//! The table of routes, from which the dispatcher and the reference page are made.

use std::fmt::Write;

use hyper::Method;

/// The listeners on which a route answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// The admin listener and the probes listener.
    Probes,
    /// The admin listener alone.
    Admin,
}

/// The action of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Index,
    Explain,
    Live,
    Ready,
    Metrics,
    Purge,
    Reload,
    Upgrade,
}

/// A parameter: a member of the JSON body, or of the query.
#[derive(Debug)]
pub struct Parameter {
    /// The name.
    pub name: &'static str,
    /// The allowed values, and the default.
    pub values: &'static str,
}

/// One row of [`ROUTES`].
#[derive(Debug)]
pub struct Route {
    /// `GET` (answers HEAD too) or `POST`.
    pub method: Method,
    /// The path, compared byte by byte.
    pub path: &'static str,
    /// The listeners on which it answers.
    pub reach: Reach,
    /// A one-line summary for operators.
    pub summary: &'static str,
    /// The parameters. A route with parameters refuses all others.
    pub parameters: &'static [Parameter],
    /// Statuses and their meanings, in addition to the statuses of every route.
    pub answers: &'static [(u16, &'static str)],
    pub(crate) action: Action,
}

/// Every route.
pub static ROUTES: &[Route] = &[
    Route {
        method: Method::GET,
        path: "/",
        reach: Reach::Admin,
        summary: "Name, version and the list of routes.",
        parameters: &[],
        answers: &[(
            200,
            "`{\"name\":\"larder\",\"version\":..,\"routes\":[{\"method\",\"path\",\"summary\"}]}`",
        )],
        action: Action::Index,
    },
    Route {
        method: Method::POST,
        path: "/explain",
        reach: Reach::Admin,
        summary: "Sends one request as a client would, and returns every decision made about it. The request is real: it may be \
                  forwarded and stored. Values of `Authorization`, `Cookie` and \
                  `Proxy-Authorization` are never shown.",
        parameters: &[
            Parameter {
                name: "url",
                values: "absolute URL as clients request it, with http or https; required",
            },
            Parameter { name: "method", values: "`GET` (the default) or `HEAD`" },
            Parameter {
                name: "fields",
                values: "header fields of the request in order: `[[\"accept-language\",\"de\"]]`; none by default",
            },
        ],
        answers: &[
            (
                200,
                "`{\"status\":200,\"cache_status\":\"larder; hit; ttl=9\",\"complete\":true,\"findings\":[{\"step\",\"says\",\
                 \"section\",\"values\":[{\"name\",\"value\",\"section\"}]}]}`",
            ),
            (400, "the body can't be read, or `request_invalid`: invalid request"),
            (503, "`busy`: too many explanations are in progress; try again"),
        ],
        action: Action::Explain,
    },
    Route {
        method: Method::GET,
        path: "/live",
        reach: Reach::Probes,
        summary: "Liveness probe.",
        parameters: &[],
        answers: &[(200, "`{\"live\":true}` while the process responds")],
        action: Action::Live,
    },
    Route {
        method: Method::GET,
        path: "/metrics",
        reach: Reach::Probes,
        summary: "All metrics in the Prometheus text format.",
        parameters: &[],
        answers: &[(200, "`text/plain; version=0.0.4`; see the page on metrics")],
        action: Action::Metrics,
    },
    Route {
        method: Method::POST,
        path: "/purge",
        reach: Reach::Admin,
        summary: "Purges one URL with all its variants, everything, or all responses that match tags, a site, a host or a prefix. \
                  Responses still arriving are not reused. See the page on purging.",
        parameters: &[
            Parameter {
                name: "url",
                values: "absolute URL after `rewrite` rules, with http or https; no other selector",
            },
            Parameter {
                name: "tags",
                values: "list of tags within a site or a host; in the query, one `tag` for each",
            },
            Parameter { name: "match", values: "`any` of the tags (the default), or `all`" },
            Parameter { name: "site", values: "name of a site; optional with tags if there is only one" },
            Parameter { name: "host", values: "host name; with a port, only that port" },
            Parameter {
                name: "prefix",
                values: "beginning of URLs: `https://host/path`, `host/path` or a path; compared byte by byte",
            },
            Parameter { name: "everything", values: "`true`: all responses; no other selector" },
            Parameter {
                name: "mode",
                values: "`hard` (removes; the default), `soft` (makes stored responses stale) or `refresh` (the same, and fetches a URL \
                         again at once)",
            },
            Parameter { name: "dry_run", values: "`true`: count, but purge nothing" },
            Parameter {
                name: "wait",
                values: "`all` (waits for the instances of all regions; the default), `near` (of this region) or `none`",
            },
        ],
        answers: &[
            (
                200,
                "`{\"keys_matched\":1,\"responses_purged\":2,\"fills_doomed\":0,\"form\":\"url\",\"id\":\"..\"}`: purged cache keys and stored responses, and arriving \
                 responses that won't be stored. `\"uncounted\":true`: responses are purged when they are looked up, so zeros mean nothing. \
                 `\"refreshes\":1`: a fetch was started. With `\"dry_run\":true`: responses that would be purged; `\"cut\":true` if not all of \
                 memory was searched. `\"keyed_uncounted\":true`: responses stored for the URL under keys with request content (QUERY) \
                 or request fields may be purged too, and aren't counted. With a shared store, \
                 `\"fleet\":{\"complete\":true,\"instances\":[{\"name\",\"id\",\"reached_ms\"}]}`: whether all instances have applied the purge, and \
                 after how long each; without `reached_ms` if it hasn't; with the `store` of `[stores]` that it shares; and \
                 `\"silent_stores\":[..]`, whose servers don't answer; and `\"not_replicated\":[..]`, whose replicas have not confirmed the purge, so that a fail-over may lose it. With \
                 [regions](../operate/regions.md), `\"regions\":[{\"name\",\"complete_ms\"}]` for each other region, or `\"pending\"` with the \
                 reason in place of `complete_ms`; `complete` includes them. `\"warnings\":[\"..\"]`, such as that no site records tags, or none \
                 serves the host. If nothing was stored, zeros; then, and with that warning, `\"sites\":[{\"name\",\"hosts\",\"path_prefix\"}]`",
            ),
            (
                400,
                "a parameter is unreadable, unknown or missing, the URL is invalid, or `site_missing`: a tag needs one of these `sites`",
            ),
            (404, "`site_unknown`: no site has this name or serves this URL; `sites` lists all sites"),
        ],
        action: Action::Purge,
    },
    Route {
        method: Method::GET,
        path: "/ready",
        reach: Reach::Probes,
        summary: "Readiness probe: whether new requests are accepted.",
        parameters: &[],
        answers: &[
            (200, "`{\"ready\":true,\"reasons\":[]}`"),
            (503, "`{\"ready\":false,\"reasons\":[\"starting\"]}`, or `draining`"),
        ],
        action: Action::Ready,
    },
    Route {
        method: Method::POST,
        path: "/reload",
        reach: Reach::Admin,
        summary: "Reloads the configuration, without dropping a connection or the cache.",
        parameters: &[],
        answers: &[
            (
                200,
                "`{\"reloaded\":true,\"warnings\":[..]}`: the new configuration applies, except for the keys in the warnings",
            ),
            (422, "`configuration_refused` with all `problems`; the running configuration stays in use"),
        ],
        action: Action::Reload,
    },
    Route {
        method: Method::POST,
        path: "/upgrade",
        reach: Reach::Admin,
        summary: "Starts the program that is now at this process's path, with the same arguments, and passes it the listening sockets. \
                  Waits until the new process serves; this one then finishes the requests in flight and exits.",
        parameters: &[],
        answers: &[
            (
                200,
                "`{\"process\":4712,\"predecessor\":4711}`: the new process accepts connections, the old one doesn't",
            ),
            (
                409,
                "`upgrade_failed`: the new process did not start, an upgrade is running, this process is stopping, or it serves Redis \
                 clients too; it keeps serving",
            ),
        ],
        action: Action::Upgrade,
    },
];

/// Answers that every route can give: status, code, meaning.
static COMMON_ANSWERS: &[(u16, &str, &str)] = &[
    (400, "..", "the request can't be read; the code says why"),
    (401, "token_missing, token_wrong", "a token is configured: send `Authorization: Bearer ..`"),
    (
        403,
        "browser_request, host_not_loopback",
        "without a token: a POST from a web page, or to another host name",
    ),
    (404, "route_unknown", "no such path on this listener"),
    (405, "method_not_allowed", "see the Allow field"),
    (408, "body_too_slow", "the body did not arrive in time"),
    (413, "body_too_large", "the body is larger than 64 KiB"),
];

/// Result of looking a method and a path up in the table.
#[derive(Debug)]
pub(crate) enum Lookup {
    Found(&'static Route),
    /// The path exists, for these methods only.
    OtherMethod(String),
    Unknown,
}

/// Finds the route of a method and a path among the routes of a listener.
pub(crate) fn lookup(method: &Method, path: &str, reach: Reach) -> Lookup {
    let here = || {
        let reachable = move |route: &&Route| reach == Reach::Admin || route.reach == Reach::Probes;
        ROUTES.iter().filter(reachable).filter(move |route| route.path == path)
    };
    if let Some(route) = here().find(|route| route.answers_method(method)) {
        return Lookup::Found(route);
    }
    let methods: Vec<_> = here().map(Route::allow).collect();
    if methods.is_empty() { Lookup::Unknown } else { Lookup::OtherMethod(methods.join(", ")) }
}

impl Route {
    //= RFC 9110 section 9.3.2: HEAD is GET without content
    fn answers_method(&self, method: &Method) -> bool {
        self.method == *method || (self.method == Method::GET && *method == Method::HEAD)
    }

    fn allow(&self) -> &'static str {
        if self.method == Method::GET { "GET, HEAD" } else { "POST" }
    }
}

/// The reference page of the admin API, generated from the tables.
pub fn admin_markdown() -> String {
    let mut page = String::from(
        "# Admin API\n\nGenerated from the table in `crates/admin/src/routes.rs`; do not edit.\n\n\
         The admin listener answers HTTP/1.1. With a token, every request needs `Authorization: Bearer ..`;\n\
         without one, it listens on loopback only. The probes listener has no token, and only the routes marked\n\
         *probes*. Answers are JSON unless said otherwise; errors are\n\
         `{\"error\":\"code\",\"message\":\"a sentence\"}`.\n",
    );
    ROUTES.iter().for_each(|route| write_route(&mut page, route));
    page.push_str("\n## Answers of every route\n\n| status | code | when |\n|---|---|---|\n");
    for (status, codes, meaning) in COMMON_ANSWERS {
        // Writing to a String can't fail, here and below.
        let _ = writeln!(page, "| {status} | {codes} | {meaning} |");
    }
    page
}

fn write_route(page: &mut String, route: &Route) {
    let probes = if route.reach == Reach::Probes { " *(probes)*" } else { "" };
    let _ = writeln!(page, "\n## `{} {}`{probes}\n\n{}", route.method, route.path, route.summary);
    if !route.parameters.is_empty() {
        page.push_str(match route.action {
            Action::Explain => "\nParameters are a JSON object in the body.\n",
            _ => "\nParameters are JSON in the body, or percent-encoded in the query, but not both.\n",
        });
        page.push_str("\n| parameter | values |\n|---|---|\n");
    }
    for parameter in route.parameters {
        let _ = writeln!(page, "| `{}` | {} |", parameter.name, parameter.values);
    }
    page.push_str("\n| status | answer |\n|---|---|\n");
    for (status, meaning) in route.answers {
        let _ = writeln!(page, "| {status} | {meaning} |");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_each_route_stands_once() {
        assert!(ROUTES.windows(2).all(|pair| pair[0].path < pair[1].path));
    }

    #[test]
    fn lookups() {
        let check = |method: &Method, path, reach, want: &str| {
            let found = match lookup(method, path, reach) {
                Lookup::Found(route) => route.path.to_owned(),
                Lookup::OtherMethod(allow) => allow,
                Lookup::Unknown => "unknown".to_owned(),
            };
            assert_eq!(found, want, "{method} {path}");
        };
        check(&Method::GET, "/live", Reach::Probes, "/live");
        check(&Method::HEAD, "/metrics", Reach::Admin, "/metrics");
        check(&Method::POST, "/live", Reach::Admin, "GET, HEAD");
        check(&Method::GET, "/purge", Reach::Admin, "POST");
        check(&Method::POST, "/purge", Reach::Probes, "unknown");
        check(&Method::GET, "/live/", Reach::Admin, "unknown");
        check(&Method::GET, "/Live", Reach::Admin, "unknown");
    }

    #[test]
    fn the_page_names_every_route_and_parameter() {
        let page = admin_markdown();
        for route in ROUTES {
            assert!(page.contains(&format!("## `{} {}`", route.method, route.path)));
            assert!(
                route.parameters.iter().all(|parameter| page.contains(&format!("| `{}` |", parameter.name)))
            );
        }
    }
}
