// The freshness of a response that another instance stored, recomputed from the fields it received: RFC 9111, as a shared cache reads it.

import type { CacheControlDirectives, CacheKey, CacheValue } from './contract.js'
import { fieldNames } from './for-all.js'

/** Field values by lower-case name, with the lines of a field joined. */
export type Fields = ReadonlyMap<string, string>

export interface Received {
  readonly status: number
  readonly fields: Fields
  readonly responseTime: number
  readonly requestTime: number
  readonly hadCredentials: boolean
}

export interface Lifetime {
  readonly cachedAt: number
  readonly staleAt: number
  readonly deleteAt: number
}

/** Request fields with credentials. */
export const CREDENTIALS: ReadonlySet<string> = new Set(['authorization', 'cookie', 'proxy-authorization'])
const SECONDS_MAX = 2 ** 31
const YEAR_MS = 365 * 24 * 3_600_000
const HEURISTIC_STATUSES = new Set([200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501])
const SECONDS_DIRECTIVES = new Set(['max-age', 's-maxage', 'max-stale', 'min-fresh', 'stale-while-revalidate', 'stale-if-error'])
const FIELD_DIRECTIVES = new Set(['private', 'no-cache'])
const FLAG_DIRECTIVES = new Set([
  'public', 'private', 'no-store', 'no-cache', 'must-revalidate', 'proxy-revalidate', 'immutable', 'no-transform', 'must-understand',
  'only-if-cached',
])

export function parseCacheControl(value: string | undefined): CacheControlDirectives {
  const directives: Record<string, unknown> = {}
  for (const [, name, quoted, plain] of (value ?? '').matchAll(/([^\s,="]+)\s*(?:=\s*(?:"([^"]*)"|([^\s,]*)))?/g)) {
    addDirective(directives, name!.toLowerCase(), quoted ?? plain)
  }
  return directives as CacheControlDirectives
}

function addDirective(directives: Record<string, unknown>, name: string, argument: string | undefined): void {
  if (SECONDS_DIRECTIVES.has(name)) {
    // If a directive is repeated, the first one counts. An invalid number makes the response stale.
    directives[name] ??= argument !== undefined && /^\d+$/.test(argument) ? Math.min(Number(argument), SECONDS_MAX) : 0
  } else if (FIELD_DIRECTIVES.has(name) && argument !== undefined) {
    if (directives[name] !== true) directives[name] = fieldNames(argument) ?? true
  } else if (FLAG_DIRECTIVES.has(name)) {
    directives[name] = true
  }
}

/** The lifetime of a response; `undefined` if a shared cache would not have stored it. */
export function lifetimeOf(received: Received, directives: CacheControlDirectives): Lifetime | undefined {
  if (!isShareable(received, directives)) return undefined
  const cachedAt = received.responseTime - initialAgeMs(received)
  const fresh = freshMs(received, directives)
  const staleAt = cachedAt + fresh
  const deleteAt = staleAt + Math.max(keptStaleMs(directives), fresh)
  return deleteAt > cachedAt ? { cachedAt, staleAt, deleteAt } : undefined
}

/**
 * Whether a response may be personal although RFC 9111 lets a shared cache store it: its request had credentials, and it states neither a lifetime nor
 * `public`. Many frameworks send user pages this way. The gateway's profile `safe` doesn't store such responses either.
 */
export function mayBePersonal(key: CacheKey, value: CacheValue): boolean {
  const hasCredentials = Object.keys(key.headers ?? {}).some((name) => CREDENTIALS.has(name.toLowerCase()))
  return hasCredentials && value.cacheControlDirectives?.public !== true && !hasLifetime(value)
}

/** Request fields that a fresh response may not satisfy. */
const WANTING_MORE = ['cache-control', 'pragma', 'if-none-match', 'if-modified-since'] as const

/** A response this close to its expiry may be stale by the time undici checks it. */
const SOON_MS = 1000

/** Whether undici may forward a request although this response was found for it. */
export function mayBeForwarded({ headers }: CacheKey, found: CacheValue): boolean {
  if (found.staleAt <= Date.now() + SOON_MS || found.cacheControlDirectives?.['no-cache'] === true || found.headers['set-cookie'] !== undefined) return true
  return headers !== undefined && WANTING_MORE.some((name) => headers[name] !== undefined)
}

function hasLifetime({ headers, cacheControlDirectives: directives = {}, cachedAt }: CacheValue): boolean {
  if (directives['no-cache'] === true) return false
  const seconds = directives['s-maxage'] ?? directives['max-age']
  if (seconds !== undefined) return seconds > 0
  const expires = Object.entries(headers).find(([name]) => name.toLowerCase() === 'expires')?.[1]
  return typeof expires === 'string' && Date.parse(expires) > cachedAt
}

function isShareable({ status, fields, hadCredentials }: Received, directives: CacheControlDirectives): boolean {
  if (directives['no-store'] || directives.private === true || status === 206 || status === 304) return false
  if (fields.has('set-cookie') || fields.get('vary')?.includes('*')) return false
  const isForAll = directives.public || directives['s-maxage'] !== undefined || directives['must-revalidate']
  return !hadCredentials || isForAll === true
}

function initialAgeMs({ fields, responseTime, requestTime }: Received): number {
  const apparent = Math.max(0, responseTime - (dateIn(fields, 'date') ?? responseTime))
  const said = Number(/^\d+$/.exec(fields.get('age') ?? '')?.[0] ?? 0) * 1000 + Math.max(0, responseTime - requestTime)
  return Math.max(apparent >= 1000 ? apparent : 0, fields.has('age') ? said : 0)
}

function freshMs({ status, fields, responseTime }: Received, directives: CacheControlDirectives): number {
  if (directives['no-cache'] === true) return 0
  const seconds = directives['s-maxage'] ?? directives['max-age']
  if (seconds !== undefined) return seconds * 1000
  const date = dateIn(fields, 'date') ?? responseTime
  if (fields.has('expires')) return Math.max(0, (dateIn(fields, 'expires') ?? 0) - date)
  const modified = dateIn(fields, 'last-modified')
  const mayGuess = HEURISTIC_STATUSES.has(status) || directives.public === true
  return modified !== undefined && mayGuess ? Math.max(0, (date - modified) / 10) : 0
}

function keptStaleMs(directives: CacheControlDirectives): number {
  if (directives.immutable) return YEAR_MS
  return 1000 * Math.max(directives['stale-while-revalidate'] ?? 0, directives['stale-if-error'] ?? 0)
}

function dateIn(fields: Fields, name: string): number | undefined {
  const time = Date.parse(fields.get(name) ?? '')
  return Number.isNaN(time) ? undefined : time
}
