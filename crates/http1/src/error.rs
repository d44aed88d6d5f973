//! Errors of requests, with the status of the response, and errors of responses.

/// The reason why a request head is refused. The connection always closes after the response, because the start of the
/// next request is uncertain.
///
/// [`status`](Self::status) is the status of the response, [`reason`](Self::reason) a stable word for logs and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// RFC 9112 2.2. An LF without a CR before it.
    #[error("a line of the head ends in LF without CR")]
    BareLineFeed,
    /// RFC 9112 2.2. A CR without an LF after it.
    #[error("a CR in the head is not followed by LF")]
    BareCarriageReturn,
    /// RFC 9112 2.2. Whitespace between the request line and the first field line.
    #[error("whitespace before the first field line")]
    WhitespaceBeforeFirstField,
    /// RFC 9112 2.3. The version isn't `HTTP/` and two digits separated by a dot; the name is case-sensitive.
    #[error("the protocol version is malformed")]
    InvalidVersion,
    /// RFC 9112 2.3. A well-formed version that is neither 1.0 nor 1.1.
    #[error("the protocol version is neither HTTP/1.0 nor HTTP/1.1")]
    UnsupportedVersion,
    /// RFC 9112 3. The line isn't three parts separated by single spaces, as in HTTP/0.9.
    #[error("expected method, target and version, separated by single spaces")]
    MalformedRequestLine,
    /// RFC 9112 3.1. The method is not a token.
    #[error("the method is not a token")]
    InvalidMethod,
    /// RFC 9112 3. The method is longer than all implemented ones.
    #[error("the method is too long")]
    MethodTooLong,
    /// RFC 9112 3.2. A byte that is invalid in a target: control, space, `#`, `<`, `>`, non-ASCII; `"` in a query.
    #[error("the request target contains a character that must be percent-encoded")]
    InvalidTarget,
    /// RFC 9112 3. Longer than [`Limits::target_bytes_max`](crate::Limits::target_bytes_max).
    #[error("the request target is too long")]
    TargetTooLong,
    /// RFC 9112 3.2.1 to 3.2.4. A form that isn't allowed for this method.
    #[error("this form of request target is not allowed for this method")]
    TargetFormNotAllowed,
    /// RFC 9112 3.2.2. Absolute-form with a scheme other than http or https.
    #[error("the request target has an unsupported scheme")]
    UnsupportedScheme,
    /// RFC 9112 3.2.2. Absolute-form or authority-form with a malformed authority, or with user information.
    #[error("the authority in the request target is invalid")]
    InvalidTargetAuthority,
    /// RFC 9112 3.2. HTTP/1.1 without Host.
    #[error("there is no Host")]
    MissingHost,
    /// RFC 9112 3.2. More than one Host line.
    #[error("there are several Host lines")]
    SeveralHosts,
    /// RFC 9112 3.2. The value of Host is not `uri-host [ ":" port ]`.
    #[error("the value of Host is invalid")]
    InvalidHost,
    /// RFC 9112 3.3. An empty Host for a target that needs an authority.
    #[error("the value of Host is empty")]
    EmptyHost,
    /// RFC 9112 3.2.2. Target and Host name different authorities.
    #[error("the request target and Host name different authorities")]
    HostMismatch,
    /// RFC 9112 5. No colon in a field line.
    #[error("a field line has no colon")]
    MissingColon,
    /// RFC 9112 5.1. Whitespace between the field name and the colon.
    #[error("whitespace between a field name and its colon")]
    WhitespaceBeforeColon,
    /// RFC 9112 5.1. The field name is not a token.
    #[error("a field name is not a token")]
    InvalidFieldName,
    /// RFC 9112 5.2. A field line that continues the previous one.
    #[error("obsolete line folding")]
    ObsoleteLineFolding,
    /// RFC 9110 5.5. A control byte in a field value.
    #[error("a field value has an invalid byte")]
    InvalidFieldValue,
    /// RFC 9110 5.4. Longer than [`Limits::head_bytes_max`](crate::Limits::head_bytes_max).
    #[error("the header section exceeds `limits.head_bytes_max`")]
    HeadTooLarge,
    /// RFC 9110 5.4. More than [`Limits::fields_max`](crate::Limits::fields_max).
    #[error("the head has too many field lines")]
    TooManyFields,
    /// RFC 9112 6.1. Transfer-Encoding in an HTTP/1.0 message: its framing is faulty.
    #[error("Transfer-Encoding in HTTP/1.0")]
    TransferEncodingInHttp10,
    /// RFC 9112 6.1. The value is empty, has an element that is empty or no token, or has parameters on `chunked`.
    #[error("the value of Transfer-Encoding is malformed")]
    InvalidTransferEncoding,
    /// RFC 9112 6.1. `chunked` applied more than once.
    #[error("chunked is applied more than once")]
    ChunkedRepeated,
    /// RFC 9112 6.3. The last coding of Transfer-Encoding isn't `chunked`, so the end of the body is unknown.
    #[error("Transfer-Encoding must end with chunked")]
    ChunkedNotFinal,
    /// RFC 9112 6.1. A transfer coding before the final `chunked`.
    #[error("a transfer coding is not implemented")]
    UnknownTransferCoding,
    /// RFC 9112 6.2. The value is not one or more digits.
    #[error("the value of Content-Length is malformed")]
    InvalidContentLength,
    /// RFC 9112 6.2. The value does not fit into 64 bits.
    #[error("the value of Content-Length is too large")]
    ContentLengthOverflow,
    /// RFC 9112 6.3. Several Content-Length lines, or a list, even of equal values.
    #[error("there are several Content-Length values")]
    SeveralContentLengths,
    /// RFC 9112 6.3. Both Content-Length and Transfer-Encoding.
    #[error("both Content-Length and Transfer-Encoding")]
    ContentLengthWithTransferEncoding,
    /// RFC 9110 7.6.1. Connection names a field for the origin server or for every recipient.
    #[error("Connection names a field that does not belong to the connection")]
    EndToEndFieldNominated,
    /// RFC 9110 10.1.1. An expectation other than `100-continue`.
    #[error("an expectation other than 100-continue")]
    UnsupportedExpectation,
}

impl RequestError {
    /// Returns the status code of the response.
    pub const fn status(self) -> u16 {
        match self {
            Self::TargetTooLong => 414,
            Self::UnsupportedExpectation => 417,
            //= RFC 6585 section 5: 431 for large fields
            Self::HeadTooLarge | Self::TooManyFields => 431,
            Self::MethodTooLong | Self::UnknownTransferCoding => 501,
            Self::UnsupportedVersion => 505,
            _ => 400,
        }
    }

    /// All errors, for pages that list them.
    pub const ALL: [Self; 36] = [
        Self::BareLineFeed,
        Self::BareCarriageReturn,
        Self::WhitespaceBeforeFirstField,
        Self::InvalidVersion,
        Self::UnsupportedVersion,
        Self::MalformedRequestLine,
        Self::InvalidMethod,
        Self::MethodTooLong,
        Self::InvalidTarget,
        Self::TargetTooLong,
        Self::TargetFormNotAllowed,
        Self::UnsupportedScheme,
        Self::InvalidTargetAuthority,
        Self::MissingHost,
        Self::SeveralHosts,
        Self::InvalidHost,
        Self::EmptyHost,
        Self::HostMismatch,
        Self::MissingColon,
        Self::WhitespaceBeforeColon,
        Self::InvalidFieldName,
        Self::ObsoleteLineFolding,
        Self::InvalidFieldValue,
        Self::HeadTooLarge,
        Self::TooManyFields,
        Self::TransferEncodingInHttp10,
        Self::InvalidTransferEncoding,
        Self::ChunkedRepeated,
        Self::ChunkedNotFinal,
        Self::UnknownTransferCoding,
        Self::InvalidContentLength,
        Self::ContentLengthOverflow,
        Self::SeveralContentLengths,
        Self::ContentLengthWithTransferEncoding,
        Self::EndToEndFieldNominated,
        Self::UnsupportedExpectation,
    ];

    /// Returns a stable kebab-case word for logs and metrics.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::BareLineFeed => "bare-line-feed",
            Self::BareCarriageReturn => "bare-carriage-return",
            Self::WhitespaceBeforeFirstField => "whitespace-before-first-field",
            Self::InvalidVersion => "invalid-version",
            Self::UnsupportedVersion => "unsupported-version",
            Self::MalformedRequestLine => "malformed-request-line",
            Self::InvalidMethod => "invalid-method",
            Self::MethodTooLong => "method-too-long",
            Self::InvalidTarget => "invalid-target",
            Self::TargetTooLong => "target-too-long",
            Self::TargetFormNotAllowed => "target-form-not-allowed",
            Self::UnsupportedScheme => "unsupported-scheme",
            Self::InvalidTargetAuthority => "invalid-target-authority",
            Self::MissingHost => "missing-host",
            Self::SeveralHosts => "several-hosts",
            Self::InvalidHost => "invalid-host",
            Self::EmptyHost => "empty-host",
            Self::HostMismatch => "host-mismatch",
            Self::MissingColon => "missing-colon",
            Self::WhitespaceBeforeColon => "whitespace-before-colon",
            Self::InvalidFieldName => "invalid-field-name",
            Self::ObsoleteLineFolding => "obsolete-line-folding",
            Self::InvalidFieldValue => "invalid-field-value",
            Self::HeadTooLarge => "head-too-large",
            Self::TooManyFields => "too-many-fields",
            Self::TransferEncodingInHttp10 => "transfer-encoding-in-http10",
            Self::InvalidTransferEncoding => "invalid-transfer-encoding",
            Self::ChunkedRepeated => "chunked-repeated",
            Self::ChunkedNotFinal => "chunked-not-final",
            Self::UnknownTransferCoding => "unknown-transfer-coding",
            Self::InvalidContentLength => "invalid-content-length",
            Self::ContentLengthOverflow => "content-length-overflow",
            Self::SeveralContentLengths => "several-content-lengths",
            Self::ContentLengthWithTransferEncoding => "content-length-with-transfer-encoding",
            Self::EndToEndFieldNominated => "end-to-end-field-nominated",
            Self::UnsupportedExpectation => "unsupported-expectation",
        }
    }
}

/// The reason why a request body is refused. The connection closes, because the end of the body is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// RFC 9112 7.1. The chunk size is not hexadecimal digits.
    #[error("the chunk size is malformed")]
    InvalidChunkSize,
    /// RFC 9112 7.1. The chunk size has more digits than 64 bits need.
    #[error("the chunk size is too large")]
    ChunkSizeOverflow,
    /// RFC 9112 7.1. The chunk data is not followed by CRLF.
    #[error("the chunk data does not end in CRLF")]
    MissingChunkEnd,
    /// RFC 9112 7.1.1. The syntax of the chunk extension is invalid.
    #[error("a chunk extension is malformed")]
    InvalidChunkExtension,
    /// RFC 9112 7.1.1. Larger than [`Limits::chunk_extension_bytes_max`](crate::Limits::chunk_extension_bytes_max).
    #[error("the chunk extensions are too large")]
    ChunkExtensionTooLarge,
    /// RFC 9112 7.1.2. The syntax of a trailer line is invalid.
    #[error("the trailer section is malformed")]
    InvalidTrailer,
    /// RFC 9112 7.1.2. The section exceeds [`Limits::trailer_bytes_max`](crate::Limits::trailer_bytes_max), or has too
    /// many lines.
    #[error("the trailer section is too large")]
    TrailerTooLarge,
}

impl BodyError {
    /// All errors, for pages that list them.
    pub const ALL: [Self; 7] = [
        Self::InvalidChunkSize,
        Self::ChunkSizeOverflow,
        Self::MissingChunkEnd,
        Self::InvalidChunkExtension,
        Self::ChunkExtensionTooLarge,
        Self::InvalidTrailer,
        Self::TrailerTooLarge,
    ];

    /// Returns the status code of the response, if none was sent yet.
    pub const fn status(self) -> u16 {
        match self {
            Self::TrailerTooLarge => 431,
            _ => 400,
        }
    }

    /// Returns a stable kebab-case word for logs and metrics.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::InvalidChunkSize => "invalid-chunk-size",
            Self::ChunkSizeOverflow => "chunk-size-overflow",
            Self::MissingChunkEnd => "missing-chunk-end",
            Self::InvalidChunkExtension => "invalid-chunk-extension",
            Self::ChunkExtensionTooLarge => "chunk-extension-too-large",
            Self::InvalidTrailer => "invalid-trailer",
            Self::TrailerTooLarge => "trailer-too-large",
        }
    }
}

/// The reason why a response is refused. The connection closes, because the start of the next response is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ResponseError {
    /// RFC 9112 2.3. The version is neither HTTP/1.0 nor HTTP/1.1, but HTTP/0.9, for example.
    #[error("the response does not begin with HTTP/1.0 or HTTP/1.1")]
    InvalidVersion,
    /// RFC 9112 4. The line isn't a version, three digits from 100 on and a reason phrase.
    #[error("the status line is malformed")]
    MalformedStatusLine,
    /// RFC 9112 2.2. A CR without an LF after it.
    #[error("a CR in the head is not followed by LF")]
    BareCarriageReturn,
    /// RFC 9112 5.1. A field name is not a token, or no colon follows it.
    #[error("a field name is not a token")]
    InvalidFieldName,
    /// RFC 9110 5.5. A control byte in a field value.
    #[error("a field value has an invalid byte")]
    InvalidFieldValue,
    /// RFC 9110 5.4. Longer than [`Limits::head_bytes_max`](crate::Limits::head_bytes_max).
    #[error("the head is too large")]
    HeadTooLarge,
    /// RFC 9110 5.4. More than [`Limits::fields_max`](crate::Limits::fields_max).
    #[error("the head has too many field lines")]
    TooManyFields,
    /// RFC 9112 6.1. Transfer-Encoding in an HTTP/1.0 message: its framing is faulty.
    #[error("Transfer-Encoding in HTTP/1.0")]
    TransferEncodingInHttp10,
    /// RFC 9112 6.3. Content-Length is not one or more digits that fit into 64 bits.
    #[error("the value of Content-Length is malformed")]
    InvalidContentLength,
    /// RFC 9112 6.3. Several different values of Content-Length.
    #[error("there are several different Content-Length values")]
    DifferingContentLengths,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_complete_and_codes_are_different() {
        let variants = |name: &str| {
            let (_, rest) =
                include_str!("error.rs").split_once(&format!("pub enum {name} {{")).expect("it is here");
            let (body, _) = rest.split_once("\n}").expect("it ends");
            body.lines().filter(|line| line.trim_end().ends_with(',')).count()
        };
        assert_eq!(variants("RequestError"), RequestError::ALL.len());
        assert_eq!(variants("BodyError"), BodyError::ALL.len());
        let mut codes: Vec<_> = RequestError::ALL.map(RequestError::reason).to_vec();
        codes.extend(BodyError::ALL.map(BodyError::reason));
        let count = codes.len();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), count);
    }
}
