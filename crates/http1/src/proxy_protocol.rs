//! The PROXY protocol, versions 1 and 2: the addresses that a load balancer sends before the first request.
//!
//! The protocol applies only to listeners that are configured for it. Every connection to them must start with a
//! header: if connections without one were accepted, a client could write the header itself.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A complete header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProxyHeader {
    /// The origin of the connection.
    pub peer: ProxiedPeer,
    /// The transport between client and proxy.
    pub transport: ClientTransport,
    /// The length of the header; the first request starts here.
    pub bytes: usize,
}

/// The origin of a proxied connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProxiedPeer {
    /// The proxy itself (a health check): the addresses of the connection apply.
    Local,
    /// The proxy doesn't know the client, or relays datagrams: the addresses of the connection apply.
    Unknown,
    /// A client over TCP.
    Tcp {
        /// The address of the client.
        source: SocketAddr,
        /// The address that the client connected to.
        destination: SocketAddr,
    },
    /// A client over a Unix socket.
    Unix,
}

/// The proxy's description of the connection between its client and itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClientTransport {
    /// No information, or no TLS.
    Unsaid,
    /// The client used TLS (`PP2_TYPE_SSL` with `PP2_CLIENT_SSL`, version 2 only).
    Tls,
}

/// The reason why the start of a connection is not a PROXY header. The connection closes without a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyProtocolError {
    /// Neither signature.
    #[error("the connection does not start with a PROXY header")]
    MissingSignature,
    /// Version 1: no CRLF within 107 bytes. Version 2: more than [`V2_BYTES_MAX`].
    #[error("the PROXY header is too long")]
    HeaderTooLong,
    /// Version 1: the line isn't six parts separated by single spaces, with a CRLF, or the family is unknown.
    #[error("the PROXY line is malformed")]
    MalformedLine,
    /// Version 1: an address or port that is invalid for the family.
    #[error("an address in the PROXY line is malformed")]
    InvalidAddress,
    /// Version 2: a version other than 2.
    #[error("the PROXY header has an unsupported version")]
    UnsupportedVersion,
    /// Version 2: a command other than LOCAL and PROXY.
    #[error("the PROXY header has an unknown command")]
    UnknownCommand,
    /// Version 2: an address family or transport that is not assigned.
    #[error("the PROXY header has an unknown address family")]
    UnknownFamily,
    /// Version 2: the length is shorter than the addresses of the family.
    #[error("the PROXY header is shorter than its addresses")]
    TruncatedAddresses,
    /// Version 2: an extension that is longer than the rest of the header, or a TLS extension that is too short.
    #[error("the PROXY header has a malformed extension")]
    MalformedExtension,
}

/// Maximum length of a version 2 header in bytes. The specification requires 536; extensions with certificates need
/// more.
pub const V2_BYTES_MAX: usize = 4096;

/// Maximum length of a version 1 line according to the specification, including its CRLF.
const V1_BYTES_MAX: usize = 107;
const V1_SIGNATURE: &[u8] = b"PROXY ";
const V2_SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const V2_FIXED_BYTES: usize = 16;

/// Parses a header of either version at the start of `buf`, or returns `None` while it is incomplete.
///
/// # Errors
///
/// Returns an error if the bytes can't become a valid header.
pub fn parse_proxy_header(buf: &[u8]) -> Result<Option<ProxyHeader>, ProxyProtocolError> {
    if matches_signature(buf, V1_SIGNATURE) {
        return parse_v1(buf);
    }
    if matches_signature(buf, V2_SIGNATURE) {
        return parse_v2(buf);
    }
    Err(ProxyProtocolError::MissingSignature)
}

/// Returns whether `buf` starts with the signature, or is a prefix of it.
fn matches_signature(buf: &[u8], signature: &[u8]) -> bool {
    buf.iter().zip(signature).all(|(byte, expected)| byte == expected)
}

fn parse_v1(buf: &[u8]) -> Result<Option<ProxyHeader>, ProxyProtocolError> {
    let visible = &buf[..buf.len().min(V1_BYTES_MAX)];
    let Some(line_feed) = memchr::memchr(b'\n', visible) else {
        return if buf.len() < V1_BYTES_MAX { Ok(None) } else { Err(ProxyProtocolError::HeaderTooLong) };
    };
    let line = visible[..line_feed].strip_suffix(b"\r").ok_or(ProxyProtocolError::MalformedLine)?;
    let line = core::str::from_utf8(line).map_err(|_| ProxyProtocolError::MalformedLine)?;
    let peer = parse_v1_line(line)?;
    Ok(Some(ProxyHeader { peer, transport: ClientTransport::Unsaid, bytes: line_feed + 1 }))
}

fn parse_v1_line(line: &str) -> Result<ProxiedPeer, ProxyProtocolError> {
    let mut parts = line.split(' ').skip(1);
    let family = parts.next().ok_or(ProxyProtocolError::MalformedLine)?;
    if family == "UNKNOWN" {
        return Ok(ProxiedPeer::Unknown);
    }
    let mut part = || parts.next().ok_or(ProxyProtocolError::MalformedLine);
    let [source, destination, source_port, destination_port] = [part()?, part()?, part()?, part()?];
    if parts.next().is_some() {
        return Err(ProxyProtocolError::MalformedLine);
    }
    let parse_ip = match family {
        "TCP4" => parse_ip_of::<Ipv4Addr>,
        "TCP6" => parse_ip_of::<Ipv6Addr>,
        _ => return Err(ProxyProtocolError::MalformedLine),
    };
    Ok(ProxiedPeer::Tcp {
        source: SocketAddr::new(parse_ip(source)?, parse_port(source_port)?),
        destination: SocketAddr::new(parse_ip(destination)?, parse_port(destination_port)?),
    })
}

fn parse_ip_of<T: core::str::FromStr + Into<IpAddr>>(text: &str) -> Result<IpAddr, ProxyProtocolError> {
    text.parse::<T>().map(Into::into).map_err(|_| ProxyProtocolError::InvalidAddress)
}

/// Parses a decimal number without a sign and without leading zeros.
fn parse_port(text: &str) -> Result<u16, ProxyProtocolError> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if !plain {
        return Err(ProxyProtocolError::InvalidAddress);
    }
    text.parse().map_err(|_| ProxyProtocolError::InvalidAddress)
}

fn parse_v2(buf: &[u8]) -> Result<Option<ProxyHeader>, ProxyProtocolError> {
    let Some((fixed, rest)) = buf.split_first_chunk::<V2_FIXED_BYTES>() else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    let command = Command::parse(fixed[12])?;
    let family = Family::parse(fixed[13])?;
    if V2_FIXED_BYTES + length > V2_BYTES_MAX {
        return Err(ProxyProtocolError::HeaderTooLong);
    }
    let Some(payload) = rest.get(..length) else {
        return Ok(None);
    };
    let (peer, transport) = match command {
        // According to the specification, the rest of a LOCAL header has no meaning.
        Command::Local => (ProxiedPeer::Local, ClientTransport::Unsaid),
        Command::Proxy => family.parse_payload(payload)?,
    };
    Ok(Some(ProxyHeader { peer, transport, bytes: V2_FIXED_BYTES + length }))
}

#[derive(Debug, Clone, Copy)]
enum Command {
    Local,
    Proxy,
}

impl Command {
    const fn parse(byte: u8) -> Result<Self, ProxyProtocolError> {
        match (byte >> 4, byte & 0xf) {
            (2, 0) => Ok(Self::Local),
            (2, 1) => Ok(Self::Proxy),
            (2, _) => Err(ProxyProtocolError::UnknownCommand),
            _ => Err(ProxyProtocolError::UnsupportedVersion),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Family {
    Unspecified,
    TcpV4,
    UdpV4,
    TcpV6,
    UdpV6,
    Unix,
}

impl Family {
    const fn parse(byte: u8) -> Result<Self, ProxyProtocolError> {
        match byte {
            0x00 => Ok(Self::Unspecified),
            0x11 => Ok(Self::TcpV4),
            0x12 => Ok(Self::UdpV4),
            0x21 => Ok(Self::TcpV6),
            0x22 => Ok(Self::UdpV6),
            0x31 | 0x32 => Ok(Self::Unix),
            _ => Err(ProxyProtocolError::UnknownFamily),
        }
    }

    const fn address_bytes(self) -> usize {
        match self {
            Self::Unspecified => 0,
            Self::TcpV4 | Self::UdpV4 => 12,
            Self::TcpV6 | Self::UdpV6 => 36,
            Self::Unix => 216,
        }
    }

    fn parse_payload(self, payload: &[u8]) -> Result<(ProxiedPeer, ClientTransport), ProxyProtocolError> {
        let (addresses, extensions) =
            payload.split_at_checked(self.address_bytes()).ok_or(ProxyProtocolError::TruncatedAddresses)?;
        let peer = match self {
            // According to the specification, the bytes after an unspecified family have no meaning.
            Self::Unspecified => return Ok((ProxiedPeer::Unknown, ClientTransport::Unsaid)),
            Self::TcpV4 => parse_addresses::<4>(addresses),
            Self::TcpV6 => parse_addresses::<16>(addresses),
            Self::UdpV4 | Self::UdpV6 => Some(ProxiedPeer::Unknown),
            Self::Unix => Some(ProxiedPeer::Unix),
        };
        let transport = parse_extensions(extensions)?;
        Ok((peer.ok_or(ProxyProtocolError::TruncatedAddresses)?, transport))
    }
}

/// Parses two addresses of `N` bytes, then two ports.
fn parse_addresses<const N: usize>(bytes: &[u8]) -> Option<ProxiedPeer>
where
    IpAddr: From<[u8; N]>,
{
    let (source, rest) = bytes.split_first_chunk::<N>()?;
    let (destination, ports) = rest.split_first_chunk::<N>()?;
    let (source_port, destination_port) = ports.split_first_chunk::<2>()?;
    let destination_port = destination_port.first_chunk::<2>()?;
    Some(ProxiedPeer::Tcp {
        source: SocketAddr::new((*source).into(), u16::from_be_bytes(*source_port)),
        destination: SocketAddr::new((*destination).into(), u16::from_be_bytes(*destination_port)),
    })
}

/// Parses extensions: one byte of type, two of length, then the value. Skips all extensions except the one about TLS.
fn parse_extensions(mut bytes: &[u8]) -> Result<ClientTransport, ProxyProtocolError> {
    let mut transport = ClientTransport::Unsaid;
    while !bytes.is_empty() {
        let (kind, value, rest) = split_extension(bytes).ok_or(ProxyProtocolError::MalformedExtension)?;
        if kind == TYPE_SSL {
            // The flags, then four bytes about the client's certificate, then nested extensions.
            let flags = value.first_chunk::<5>().ok_or(ProxyProtocolError::MalformedExtension)?[0];
            transport = if flags & CLIENT_SSL == 0 { ClientTransport::Unsaid } else { ClientTransport::Tls };
        }
        bytes = rest;
    }
    Ok(transport)
}

/// `PP2_TYPE_SSL` of the specification.
const TYPE_SSL: u8 = 0x20;
/// `PP2_CLIENT_SSL` of the specification.
const CLIENT_SSL: u8 = 0x01;

fn split_extension(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<3>()?;
    let (value, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([head[1], head[2]])))?;
    Some((head[0], value, rest))
}
