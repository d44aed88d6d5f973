//! Keys of compression on the way out.

use super::section::{Kind, MIB, Preset, Reload, Section, row};

pub(super) static COMPRESSION: Section = Section {
    name: "site.compression",
    about: "How responses are compressed where `compress` of the site or of a rule says so (docs/guide/compression.md).",
    options: &[
        row(
            "codings",
            Kind::List(&Kind::Choice(&["zstd", "br", "gzip"])),
            Preset::Is("[\"zstd\", \"br\", \"gzip\"]"),
            Reload::Yes,
            "Content codings, the preferred one first: it counts where a client gives several the same weight.",
            "",
        ),
        row(
            "content_types",
            Kind::List(&Kind::Text("media type, such as `text/css`, `text/*`, `*/*+json` or `*/*`")),
            Preset::Absent("types of text, listed below"),
            Reload::Yes,
            "Media types that are compressed.",
            "By default `text/*`, `application/json`, `application/javascript`, `application/x-javascript`, `application/xml`, `application/wasm`, `application/graphql`, `application/vnd.ms-fontobject`, `font/otf`, `font/ttf`, `image/bmp`, `image/x-icon`, `image/vnd.microsoft.icon`, `*/*+json`, `*/*+xml`. Images, videos and archives are compressed already. No pattern stands for `text/event-stream`: its events would wait for each other.",
        ),
        row(
            "bytes_min",
            Kind::Size { min: 0, max: MIB },
            Preset::Is("\"1KiB\""),
            Reload::Yes,
            "Smaller bodies are sent as they are. A body whose length is not known counts as larger.",
            "What fits into one packet is there no sooner when it is smaller.",
        ),
        row(
            "zstd_level",
            Kind::Integer { min: 1, max: 19 },
            Preset::Is("3"),
            Reload::Yes,
            "Level of zstd: a higher one makes smaller bodies, and takes more time.",
            "A stored response is compressed once for each coding. What is stored already keeps its form.",
        ),
        row(
            "br_level",
            Kind::Integer { min: 0, max: 11 },
            Preset::Is("5"),
            Reload::Yes,
            "Level of Brotli.",
            "From 7 on, a response takes 8 to 32MiB while it is compressed.",
        ),
        row(
            "gzip_level",
            Kind::Integer { min: 1, max: 9 },
            Preset::Is("6"),
            Reload::Yes,
            "Level of gzip.",
            "",
        ),
        row(
            "personal",
            Kind::Flag,
            Preset::Is("false"),
            Reload::Yes,
            "Whether responses are compressed that are for one client alone: not stored, and either to a request with credentials, or with `Set-Cookie` or `private`.",
            "The length of a compressed page tells an eavesdropper how much of it repeats what is in the URL, and so, request by request, a secret that stands in it (BREACH). Set it where such pages have no secrets, or hide them.",
        ),
    ],
};
