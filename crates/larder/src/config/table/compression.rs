//! Keys of compression on the way out.

use super::section::*;

section! {
    /// How responses are compressed where `compress` of the site or of a rule says so (docs/operate/compression.md).
    pub(super) COMPRESSION = "site.compression";
    /// Content codings, the preferred one first: it counts where a client gives several the same weight.
    codings = List(&Choice(&["zstd", "br", "gzip"])).default("[\"zstd\", \"br\", \"gzip\"]"),
    /// Media types that are compressed.
    ///
    /// By default `text/*`, `application/json`, `application/javascript`, `application/x-javascript`, `application/xml`, `application/wasm`,
    /// `application/graphql`, `application/vnd.ms-fontobject`, `font/otf`, `font/ttf`, `image/bmp`, `image/x-icon`, `image/vnd.microsoft.icon`,
    /// `*/*+json`, `*/*+xml`. Images, videos and archives are compressed already. No pattern stands for `text/event-stream`: its events would wait
    /// for each other.
    content_types = List(&Text("media type, such as `text/css`, `text/*`, `*/*+json` or `*/*`"))
        .absent("types of text, listed below"),
    /// Smaller bodies are sent as they are. A body whose length is not known counts as larger.
    ///
    /// A body that fits into one packet arrives no sooner when it is smaller.
    bytes_min = Size(0..=MIB).default("1KiB"),
    /// Level of zstd: a higher one makes smaller bodies, and takes more time.
    ///
    /// A stored response is compressed once for each coding. Compressed forms that are already stored keep their level.
    zstd_level = Integer(1..=19).default("3"),
    /// Level of Brotli.
    ///
    /// From 7 on, a response takes 8 to 32MiB while it is compressed.
    br_level = Integer(0..=11).default("5"),
    /// Level of gzip.
    gzip_level = Integer(1..=9).default("6"),
    /// Whether responses are compressed that are for one client alone: not stored, and either to a request with credentials, or with `Set-Cookie` or
    /// `private`.
    ///
    /// The length of a compressed page tells an eavesdropper how much of it repeats what is in the URL, and so, request by request, a secret that
    /// stands in it (BREACH). Set it where such pages have no secrets, or hide them.
    personal = Flag.default("false"),
}
