// Cache keys and the names of records on the server, built as the Larder gateway builds them.

import { createHash } from 'node:crypto'

/** The target of a request. */
export interface Target {
  readonly scheme: string
  /** In lower case, without a default port. */
  readonly authority: string
  readonly path: string
  /** The part after the first `?`. */
  readonly query: string | undefined
}

const FORMAT = 2
const QUERY_ABSENT = Buffer.of(0)
const QUERY_PRESENT = Buffer.of(1)
const NO_EXTRA = Buffer.of(0)
const SCHEME = /^[a-z][a-z\d+.-]*:\/\//i
const DEFAULT_PORTS: Readonly<Record<string, string>> = { http: '80', https: '443' }

export function targetOf(origin: string, pathAndQuery: string): Target {
  const { scheme, authority } = hostOf(origin)
  const target = normalForm(pathAndQuery)
  const mark = target.indexOf('?')
  const path = mark < 0 ? target : target.slice(0, mark)
  return { scheme, authority, path: path || '/', query: mark < 0 ? undefined : target.slice(mark + 1) }
}

const ESCAPE = /%[0-9a-f]{2}/gi
const UNRESERVED = /^[a-z0-9._~-]$/i
/** The end of a text after which a decoded escape would complete another escape: a stray `%`, possibly with one digit. */
const STRAY = /%[0-9a-f]?$/i

/**
 * The normal form of equivalent targets (RFC 3986 sections 6.2.2.1 and 6.2.2.2): escapes of unreserved characters decoded, all other escapes in upper case.
 * Invalid escapes are not changed.
 */
export function normalForm(target: string): string {
  if (!target.includes('%')) return target
  return target.replace(ESCAPE, (escape, at: number) => {
    const character = String.fromCharCode(parseInt(escape.slice(1), 16))
    if (!UNRESERVED.test(character)) return escape.toUpperCase()
    const completes = /[0-9a-f]/i.test(character) && STRAY.test(target.slice(Math.max(0, at - 2), at))
    return completes ? escape.toUpperCase() : character
  })
}

/**
 * Whether the `Host` field of a request names its origin. Another host may get a different site's page from the same server, and the key has only the origin,
 * so the response is neither stored nor served from the store.
 */
export function isForItsOrigin(origin: string, host: string | string[] | null | undefined): boolean {
  if (host === undefined) return true
  const { scheme, authority } = hostOf(origin)
  return typeof host === 'string' && normalAuthority(scheme, host) === authority
}

type Host = Pick<Target, 'scheme' | 'authority'>

/** Recently used origins. An application has few of them, and all kept responses share these strings. */
const hosts = new Map<string, Host>()
const HOSTS_MAX = 256

function hostOf(origin: string): Host {
  const known = hosts.get(origin)
  if (known !== undefined) return known
  const schemeEnds = origin.indexOf('://')
  const scheme = schemeEnds < 0 ? '' : origin.slice(0, schemeEnds).toLowerCase()
  const rest = schemeEnds < 0 ? origin : origin.slice(schemeEnds + 3)
  const host = { scheme, authority: normalAuthority(scheme, rest.endsWith('/') ? rest.slice(0, -1) : rest) }
  if (hosts.size >= HOSTS_MAX) hosts.clear()
  hosts.set(origin, host)
  return host
}

/** The target of a URL in a purge; `undefined` for text without a scheme. */
export function targetOfUrl(url: string): Target | undefined {
  return SCHEME.test(url) ? targetOfText(url) : undefined
}

/** The target of a URL in a record. It has no scheme if the origin in undici's key has none. */
export function targetOfText(text: string): Target {
  const authorityBegins = SCHEME.exec(text)?.[0].length ?? 0
  const pathBegins = text.slice(authorityBegins).search(/[/?]/)
  const originEnds = pathBegins < 0 ? text.length : authorityBegins + pathBegins
  return targetOf(text.slice(0, originEnds), text.slice(originEnds))
}

export function originOf({ scheme, authority }: Target): string {
  return scheme === '' ? authority : `${scheme}://${authority}`
}

export function pathOf({ path, query }: Target): string {
  return query === undefined ? path : `${path}?${query}`
}

export function urlOf(target: Target): string {
  return originOf(target) + pathOf(target)
}

/** The host in lower case without a trailing dot, and the port without leading zeros, omitted if it is the default. */
function normalAuthority(scheme: string, authority: string): string {
  const { host, port } = splitPort(authority)
  const name = host.replace(/\.+$/, '').toLowerCase()
  const digits = port.replace(/^0+(?=\d)/, '')
  return digits === '' || digits === DEFAULT_PORTS[scheme] ? name : `${name}:${digits}`
}

export function splitPort(authority: string): { host: string; port: string } {
  const [, host, port] = /^(.*):(\d*)$/s.exec(authority) ?? []
  const isPort = host !== undefined && (!host.includes(':') || host.endsWith(']'))
  return isPort ? { host, port: port ?? '' } : { host: authority, port: '' }
}

/** The cache key of a request in a site. HEAD has its own key here; the gateway answers HEAD from stored responses to GET. */
export function cacheKeyOf(site: string, target: Target, method: string): Buffer {
  const query = target.query === undefined ? [QUERY_ABSENT] : [QUERY_PRESENT, part(target.query)]
  return Buffer.concat([
    Buffer.of(FORMAT), part(site), part(target.scheme), part(target.authority), part(target.path), ...query, part(method), NO_EXTRA,
  ])
}

/** Bytes preceded by their length, so that adjacent parts can't be confused. */
function part(text: string): Buffer {
  const bytes = Buffer.from(text, 'utf8')
  return Buffer.concat([lengthBytes(bytes.length), bytes])
}

function lengthBytes(length: number): Buffer {
  const bytes: number[] = []
  let left = length
  while (left >= 0x80) {
    bytes.push((left & 0x7f) | 0x80)
    left >>>= 7
  }
  return Buffer.of(...bytes, left)
}

const RECORD = Buffer.from('r')
const APART = Buffer.from('a')
const MEMBER = Buffer.from('i')
const MEMBER_LIST = Buffer.from('m')

/** The first half of the SHA-256 of a record's name, as 32 hexadecimal digits; those of a fleet begin with a mark. */
export type Digest = string

export function digestOfKey(key: Buffer): Digest {
  return digest(Buffer.concat([RECORD, key]))
}

/** Marks the digests of a fleet's records, whose names are different. */
const OF_FLEET = 'fleet:'

/** The digest of the record of a fleet member. */
export function digestOfMember(id: string): Digest {
  return OF_FLEET + digest(Buffer.concat([MEMBER, Buffer.from(id, 'hex')]))
}

/** The digest of the list of fleet members. */
export function digestOfMemberList(): Digest {
  return OF_FLEET + digest(MEMBER_LIST)
}

/** The digest of a response that is stored separately from its record. */
export function digestOfResponse(id: string): Digest {
  return digest(Buffer.concat([APART, Buffer.from(id, 'hex')]))
}

function digest(name: Buffer): Digest {
  return createHash('sha256').update(name).digest().toString('hex', 0, 16)
}

/** The names that one tier uses on a server. */
export class Names {
  readonly log: string
  readonly #record: RegExp

  constructor(readonly prefix: string) {
    this.log = `${prefix}log`
    this.#record = new RegExp(`^${escapeRegExp(prefix)}r:\\{([0-9a-f]{32})\\}$`)
  }

  /** The records of a fleet are in the cluster slot of the log, so that a client that reaches the log reaches them too. */
  record(digest: Digest): string {
    if (digest.startsWith(OF_FLEET)) return `${this.prefix}m:{${this.log}}:${digest.slice(OF_FLEET.length)}`
    return `${this.prefix}r:{${digest}}`
  }

  lease(digest: Digest): string {
    return `${this.prefix}l:{${digest}}`
  }

  segment(fill: string, index: number): string {
    return `${this.prefix}s:{${fill}}:${index}`
  }

  /** The digest in the name of a record; `undefined` for any other name. */
  digestIn(name: string): Digest | undefined {
    return this.#record.exec(name)?.[1]
  }

  /** The SCAN pattern for the names of all records. */
  recordPattern(): string {
    return `${this.prefix.replace(/[\\*?[\]]/g, '\\$&')}r:{*`
  }
}

export function escapeRegExp(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&')
}
