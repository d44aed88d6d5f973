//! Keys of response compression.

use super::section::*;

section! {
    /// Compression of responses, for sites and rules that set `compress` (docs/operate/compression.md).
    pub(super) COMPRESSION = "site.compression";
    /// Content codings, in order of preference. If a client accepts several with equal weight, the first one here is used.
    codings = List(&Choice(&["zstd", "br", "gzip"])).default("[\"zstd\", \"br\", \"gzip\"]"),
    /// Media types that are compressed.
    ///
    /// By default `text/*`, `application/json`, `application/javascript`, `application/x-javascript`, `application/xml`,
    /// `application/wasm`, `application/graphql`, `application/vnd.ms-fontobject`, `font/otf`, `font/ttf`, `image/bmp`, `image/x-icon`,
    /// `image/vnd.microsoft.icon`, `*/*+json`, `*/*+xml`. Images, videos and archives are compressed already. No pattern matches
    /// `text/event-stream`, because compression would delay its events.
    content_types = List(&Text("media type, such as `text/css`, `text/*`, `*/*+json` or `*/*`"))
        .absent("types of text, listed below"),
    /// Bodies smaller than this are sent uncompressed. A body of unknown length counts as larger.
    ///
    /// A body that fits into one packet doesn't arrive sooner if it is compressed.
    bytes_min = Size(0..=MIB).default("1KiB"),
    /// Level of zstd: a higher level makes bodies smaller and takes more time.
    ///
    /// A stored response is compressed once for each coding. Compressed forms that are already stored keep their level.
    zstd_level = Integer(1..=19).default("3"),
    /// Level of Brotli.
    ///
    /// From level 7 on, compressing a response takes 8 to 32MiB of memory.
    br_level = Integer(0..=11).default("5"),
    /// Level of gzip.
    gzip_level = Integer(1..=9).default("6"),
    /// Whether personal responses are compressed: responses that aren't stored and either answer a request with credentials, or have
    /// `Set-Cookie` or `private`.
    ///
    /// The length of a compressed page shows an eavesdropper how much of it repeats text from the URL, which over many requests reveals a
    /// secret in the page (BREACH). Set this key if such pages have no secrets, or mask their secrets.
    personal = Flag.default("false"),
}
