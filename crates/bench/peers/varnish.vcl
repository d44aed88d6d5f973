# Varnish with its built-in rules, which store responses with max-age.
# Fair because: storage is memory, one thread pool, keep-alive without a limit of requests, no log reader runs (the log in shared memory is
# part of how Varnish works and can't be left out).
vcl 4.1;

backend default {
    .host = "{{origin_host}}";
    .port = "{{origin_port}}";
}

sub vcl_recv {
    # Forwarded misses are measured without a look-up in the cache.
    if (req.url ~ "^/forward/") {
        return (pass);
    }
}
