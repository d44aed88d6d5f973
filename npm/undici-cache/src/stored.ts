// Conversion between undici's cached responses and records.

import type { Body } from './body.js'
import type { CacheControlDirectives, CacheKey, CacheValue, GetResult, HeaderMap, VaryMap } from './contract.js'
import { isForAll } from './for-all.js'
import { CREDENTIALS, type Fields, lifetimeOf, parseCacheControl } from './freshness.js'
import { type Target, targetOfText, urlOf } from './key.js'
import type { FieldLine, LogCursor, NamedValue, Response, Variant } from './record.js'
import { tagsOf } from './tags.js'

/** undici's conclusions about a response that this package stored, kept in a field that is never sent. */
interface Conclusions {
  readonly at: number
  readonly cachedAt: number
  readonly staleAt: number
  readonly deleteAt: number
  readonly directives?: CacheControlDirectives
  readonly etag?: string
  readonly id?: string
  /** The lengths of the pieces in which the body arrived. */
  readonly pieces?: readonly number[]
  /** The field that lists tags, if one was configured. */
  readonly tagsHeader?: string
}

/** A usable stored response. */
export interface Stored {
  readonly id: string
  /** The id that the application gave, if any. */
  readonly customId: string | undefined
  readonly method: string
  readonly target: Target
  readonly tags: readonly string[]
  readonly nominated: ReadonlyMap<string, string | null>
  readonly value: Omit<GetResult, 'body'>
  readonly log: LogCursor | undefined
  readonly body: Body
  /** Lengths of the pieces in which the body is returned; empty if they don't matter. */
  readonly pieces: readonly number[]
}

export interface Writing {
  readonly id: string
  readonly key: CacheKey
  readonly target: Target
  readonly value: CacheValue
  readonly body: Body
  readonly pieces: readonly number[]
  readonly tagsHeader: string | undefined
  readonly log: LogCursor | undefined
  readonly now: number
  readonly clockAheadMs: number
}

const CONCLUSIONS = 'larder-undici-cache'
/**
 * Imprint of the gateway rules that key, hide or change fields before a response is judged. This package has no such rules, so it can't use a response with an
 * imprint.
 */
const IMPRINT = 'larder-imprint'
const PIECES_MAX = 64
/** The directives of a response that was stored without any. */
export const NO_DIRECTIVES: CacheControlDirectives = {}
const PUBLIC_REQUEST_FIELDS = new Set(['cache-control', 'pragma'])

export function variantOf(writing: Writing): Variant {
  return { nominated: nominatedBy(writing.value.vary), id: writing.id, response: responseOf(writing) }
}

function nominatedBy(vary: CacheValue['vary']): NamedValue[] {
  const names = Object.keys(vary ?? {}).map((name) => name.toLowerCase()).sort()
  return names.map((name) => [name, joined(vary?.[name] ?? null)] as const)
}

function responseOf(writing: Writing): Response {
  const { key, target, value, body, log, now, clockAheadMs } = writing
  const requestFields = Object.keys(key.headers ?? {}).map((name) => name.toLowerCase())
  return {
    status: value.statusCode,
    hadCredentials: requestFields.some((name) => CREDENTIALS.has(name)),
    hadContent: false,
    requestTime: now + clockAheadMs,
    responseTime: now + clockAheadMs,
    storeTime: now + clockAheadMs,
    staleSince: undefined,
    log,
    method: key.method,
    target: urlOf(target),
    reason: value.statusMessage,
    head: linesOf(value.headers),
    judged: judgedLines(writing),
    request: requestFields.map((name) => [name, PUBLIC_REQUEST_FIELDS.has(name) ? joined(key.headers?.[name] ?? null) : null] as const),
    body,
  }
}

function judgedLines({ key, value, pieces, tagsHeader, now, clockAheadMs }: Writing): FieldLine[] {
  const age = Math.floor((now - value.cachedAt) / 1000)
  const conclusions: Conclusions = {
    at: now + clockAheadMs,
    cachedAt: value.cachedAt + clockAheadMs,
    staleAt: value.staleAt + clockAheadMs,
    deleteAt: value.deleteAt + clockAheadMs,
    ...(value.cacheControlDirectives === undefined ? {} : { directives: value.cacheControlDirectives }),
    ...(value.etag === undefined ? {} : { etag: value.etag }),
    ...(key.id === undefined ? {} : { id: key.id }),
    ...(pieces.length > 1 && pieces.length <= PIECES_MAX ? { pieces } : {}),
    ...(tagsHeader === undefined ? {} : { tagsHeader }),
  }
  const own: FieldLine = [CONCLUSIONS, JSON.stringify(conclusions)]
  return age >= 1 ? [['age', String(age)], own] : [own]
}

function linesOf(headers: HeaderMap): FieldLine[] {
  return Object.entries(headers).flatMap(([name, value]) => (Array.isArray(value) ? value : [value]).map((line) => [name, line] as const))
}

/** Converts a variant whose response is inside its record; `undefined` if this process would not have stored it. */
export function storedOf(variant: Variant, response: Response, tagsHeader: string | undefined, clockAheadMs: number): Stored | undefined {
  if (response.body.state !== 'complete' || !isText(response) || response.judged.some(([name]) => name === IMPRINT)) return undefined
  const headers = headersOf(response.head)
  const received = receivedFields(response)
  const conclusions = conclusionsIn(response)
  const value = conclusions ? concluded(conclusions, clockAheadMs) : judged(response, received, clockAheadMs)
  const nominated = nominatedIn(variant.nominated)
  if (value === undefined || conclusions !== undefined && !isForAll(headers, Object.fromEntries(nominated))) return undefined
  return {
    id: variant.id,
    customId: conclusions?.id,
    method: response.method,
    target: targetOfText(response.target),
    tags: tagsOf(Object.fromEntries(received), tagsHeader, conclusions?.tagsHeader),
    nominated,
    value: {
      statusCode: response.status,
      statusMessage: response.reason ?? '',
      headers,
      cachedAt: value.cachedAt,
      staleAt: value.staleAt,
      deleteAt: value.deleteAt,
      cacheControlDirectives: value.cacheControlDirectives,
      etag: value.etag as string,
      // Without nominated fields, the property is present but `undefined`, as in undici's own stores.
      vary: (nominated.size > 0 ? Object.fromEntries(nominated) : undefined) as VaryMap,
    },
    log: response.log,
    body: response.body,
    pieces: conclusions?.pieces ?? [],
  }
}

type Concluded = Pick<GetResult, 'cachedAt' | 'staleAt' | 'deleteAt' | 'cacheControlDirectives' | 'etag'>

function concluded({ cachedAt, staleAt, deleteAt, directives, etag }: Conclusions, ahead: number): Concluded {
  return {
    cachedAt: cachedAt - ahead,
    staleAt: staleAt - ahead,
    deleteAt: deleteAt - ahead,
    cacheControlDirectives: directives ?? NO_DIRECTIVES,
    etag: etag as string,
  }
}

function judged(response: Response, fields: Fields, ahead: number): Concluded | undefined {
  const directives = parseCacheControl(fields.get('cache-control'))
  const times = { responseTime: response.responseTime - ahead, requestTime: response.requestTime - ahead }
  const lifetime = lifetimeOf({ ...response, ...times, fields }, directives)
  if (lifetime === undefined) return undefined
  const staleAt = Math.min(lifetime.staleAt, response.staleSince === undefined ? Infinity : response.staleSince - ahead)
  const etag = fields.get('etag')
  return { ...lifetime, staleAt, cacheControlDirectives: directives, etag: etag as string }
}

/** The conclusions in a record; void once another instance has freshened the response. */
function conclusionsIn({ judged, responseTime, staleSince }: Response): Conclusions | undefined {
  const line = judged.find(([name]) => name === CONCLUSIONS)
  if (line === undefined || staleSince !== undefined) return undefined
  try {
    const found = JSON.parse(line[1]) as Conclusions
    const { directives = {}, pieces = [] } = found
    const isWhole = [found.cachedAt, found.staleAt, found.deleteAt].every(Number.isFinite) && typeof directives === 'object'
      && Array.isArray(pieces) && pieces.every((length) => Number.isSafeInteger(length) && length >= 0)
      && (found.tagsHeader === undefined || typeof found.tagsHeader === 'string')
    return isWhole && found.at === responseTime ? found : undefined
  } catch {
    return undefined
  }
}

/** The judged lines, and the head lines with other names. */
function receivedFields({ head, judged }: Response): Fields {
  const judgedNames = new Set(judged.map(([name]) => name.toLowerCase()))
  const fields = new Map<string, string>()
  for (const [name, value] of [...judged, ...head.filter(([name]) => !judgedNames.has(name.toLowerCase()))]) {
    const before = fields.get(name.toLowerCase())
    fields.set(name.toLowerCase(), before === undefined ? value : `${before}, ${value}`)
  }
  return fields
}

function headersOf(lines: readonly FieldLine[]): HeaderMap {
  const headers: HeaderMap = {}
  for (const [name, value] of lines) {
    const lower = name.toLowerCase()
    const before = headers[lower]
    headers[lower] = before === undefined ? value : [...(Array.isArray(before) ? before : [before]), value]
  }
  return headers
}

/** The nominated fields of a variant. A field with several lines is listed several times. */
export function nominatedIn(lines: readonly NamedValue[]): Map<string, string | null> {
  const nominated = new Map<string, string | null>()
  for (const [name, value] of lines) {
    const before = nominated.get(name)
    nominated.set(name, before == null || value === null ? value : `${before}, ${value}`)
  }
  return nominated
}

/** Whether all field lines are valid, so that none can become two fields. */
function isText({ head, judged }: Response): boolean {
  return [...head, ...judged].every(([name, value]) => /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(name) && !/[\r\n\0]/.test(value))
}

/** Joins the values of a request field, which may be anything that undici converts to text. */
function joined(value: string | string[] | null): string | null {
  return value === null ? null : Array.isArray(value) ? value.join(', ') : String(value)
}

/** Whether a request has the nominated field values of a response: an absent field matches only an absent one. */
export function matches(nominated: ReadonlyMap<string, string | null>, headers: CacheKey['headers']): boolean {
  for (const [name, value] of nominated) {
    const own = joined(headers?.[name] ?? null)
    if (value === null || own === null ? own !== value : !isSameValue(own, value)) return false
  }
  return true
}

/** Compares field values without the white space around list members, unless a value has quotes. */
function isSameValue(one: string, other: string): boolean {
  return one === other || !one.includes('"') && normal(one) === normal(other)
}

function normal(value: string): string {
  return value.replace(/[\t ]*,[\t ]*/g, ',').replace(/^[\t ]+|[\t ]+$/g, '')
}
