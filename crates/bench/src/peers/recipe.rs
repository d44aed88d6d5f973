//! The known servers, as data: program, configuration and arguments.

use clap::ValueEnum;

/// A server that the comparison can start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Peer {
    /// Reads, and writes fixed bytes: the upper bound.
    Null,
    Larder,
    /// Larder with Redis as its second tier.
    LarderTier,
    Haproxy,
    NginxProxyCache,
    NginxStatic,
    NginxLua,
    Varnish,
    TrafficServer,
    Squid,
    Apache,
}

/// Additional work of a server for each response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shaping {
    None,
    /// Ten more fields in each response.
    Rules,
    Gzip,
    /// A rate limit for each client, too high to be reached.
    Limit,
}

/// How to start a server.
#[derive(Debug)]
pub struct Recipe {
    pub title: &'static str,
    pub program: &'static str,
    /// Arguments, which are split at spaces. Then their placeholders are filled, as in the files.
    pub arguments: &'static str,
    /// Files in the peer's folder: names and contents.
    pub files: &'static [(&'static str, &'static str)],
    /// Value of the placeholder `shaping` in its files. Empty if the server doesn't support the shaping, or none is requested.
    pub shaping: fn(Shaping) -> &'static str,
    /// Folders that must exist.
    pub folders: &'static [&'static str],
    /// Argument that prints the version.
    pub version: &'static str,
}

impl Peer {
    #[must_use]
    pub fn recipe(self) -> &'static Recipe {
        match self {
            Self::Null => &NULL,
            Self::Larder => &LARDER,
            Self::LarderTier => &LARDER_TIER,
            Self::Haproxy => &HAPROXY,
            Self::NginxProxyCache => &NGINX_PROXY_CACHE,
            Self::NginxStatic => &NGINX_STATIC,
            Self::NginxLua => &NGINX_LUA,
            Self::Varnish => &VARNISH,
            Self::TrafficServer => &TRAFFIC_SERVER,
            Self::Squid => &SQUID,
            Self::Apache => &APACHE,
        }
    }

    /// Returns whether the server forwards to an origin. All other servers answer from their configuration.
    #[must_use]
    pub fn is_cache(self) -> bool {
        !matches!(self, Self::Null | Self::NginxStatic)
    }
}

/// Defaults of the recipes.
const PLAIN: Recipe = Recipe {
    title: "",
    program: "",
    arguments: "",
    files: &[],
    shaping: |_| "",
    folders: &[],
    version: "-v",
};

const NULL: Recipe = Recipe {
    title: "null server",
    program: "larder-bench",
    arguments: "null-http --listen {{listen}}",
    version: "--version",
    ..PLAIN
};

const LARDER: Recipe = Recipe {
    title: "Larder",
    program: "{{larder}}",
    arguments: "serve --config {{folder}}/larder.toml",
    files: &[("larder.toml", include_str!("../../peers/larder.toml"))],
    shaping: larder_shaping,
    version: "--version",
    ..PLAIN
};

const LARDER_TIER: Recipe = Recipe { title: "Larder with a shared store", ..LARDER };

const HAPROXY: Recipe = Recipe {
    title: "HAProxy cache",
    program: "haproxy",
    arguments: "-db -f {{folder}}/haproxy.cfg",
    files: &[("haproxy.cfg", include_str!("../../peers/haproxy.cfg"))],
    shaping: haproxy_shaping,
    ..PLAIN
};

const NGINX: Recipe = Recipe {
    program: "nginx",
    arguments: "-c {{folder}}/nginx.conf -p {{folder}} -e {{folder}}/error.log",
    ..PLAIN
};

const NGINX_PROXY_CACHE: Recipe = Recipe {
    title: "nginx proxy_cache",
    files: &[("nginx.conf", include_str!("../../peers/nginx-proxy-cache.conf"))],
    shaping: nginx_shaping,
    ..NGINX
};

const NGINX_STATIC: Recipe = Recipe {
    title: "nginx return, sendfile",
    files: &[("nginx.conf", include_str!("../../peers/nginx-static.conf"))],
    ..NGINX
};

const NGINX_LUA: Recipe = Recipe {
    title: "nginx + Lua dictionary",
    files: &[("nginx.conf", include_str!("../../peers/nginx-lua.conf"))],
    ..NGINX
};

const VARNISH: Recipe = Recipe {
    title: "Varnish",
    program: "varnishd",
    arguments: "-F -j none -n {{folder}}/work -a {{listen}} -f {{folder}}/default.vcl -s malloc,1g -p thread_pools=1 \
                -p timeout_idle=3600 -p thread_pool_min=100",
    files: &[("default.vcl", include_str!("../../peers/varnish.vcl"))],
    version: "-V",
    ..PLAIN
};

const TRAFFIC_SERVER: Recipe = Recipe {
    title: "Traffic Server",
    program: "traffic_server",
    arguments: "--run-root={{folder}}/runroot.yaml",
    files: &[
        ("runroot.yaml", include_str!("../../peers/trafficserver.runroot.yaml")),
        ("records.config", include_str!("../../peers/trafficserver.records.config")),
        ("remap.config", include_str!("../../peers/trafficserver.remap.config")),
        ("ip_allow.yaml", include_str!("../../peers/trafficserver.ip_allow.yaml")),
        ("storage.config", include_str!("../../peers/trafficserver.storage.config")),
    ],
    folders: &["cache"],
    version: "--version",
    ..PLAIN
};

const SQUID: Recipe = Recipe {
    title: "Squid",
    program: "squid",
    arguments: "--foreground -N -n larder{{port}} -f {{folder}}/squid.conf",
    files: &[("squid.conf", include_str!("../../peers/squid.conf"))],
    ..PLAIN
};

const APACHE: Recipe = Recipe {
    title: "Apache mod_cache",
    program: "apache2",
    arguments: "-DFOREGROUND -f {{folder}}/apache.conf",
    files: &[("apache.conf", include_str!("../../peers/apache.conf"))],
    ..PLAIN
};

fn larder_shaping(shaping: Shaping) -> &'static str {
    match shaping {
        Shaping::None => "",
        Shaping::Rules => include_str!("../../peers/larder-rules.toml"),
        Shaping::Gzip => "compress = true\n[site.compression]\ncodings = [\"gzip\"]\n",
        Shaping::Limit => "[site.rate_limit]\nrequests = 1000000\nwindow = \"1s\"\n",
    }
}

fn haproxy_shaping(shaping: Shaping) -> &'static str {
    match shaping {
        Shaping::None => "",
        Shaping::Rules => include_str!("../../peers/haproxy-rules.cfg"),
        Shaping::Gzip => "    compression algo gzip\n    compression type text/plain\n",
        Shaping::Limit => include_str!("../../peers/haproxy-limit.cfg"),
    }
}

fn nginx_shaping(shaping: Shaping) -> &'static str {
    match shaping {
        Shaping::None => "",
        Shaping::Rules => include_str!("../../peers/nginx-rules.conf"),
        // The default level of Larder and zlib; the default of nginx is 1.
        Shaping::Gzip => "gzip on; gzip_types text/plain; gzip_comp_level 6;\n",
        Shaping::Limit => "limit_req zone=clients burst=1000000 nodelay;\n",
    }
}
