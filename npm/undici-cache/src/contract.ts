// undici's contract of a cache store, in the types that this package promises to keep.

import type { Readable, Writable } from 'node:stream'

export type HeaderMap = Record<string, string | string[]>
export type VaryMap = Record<string, string | string[] | null>

export interface CacheControlDirectives {
  'max-stale'?: number
  'min-fresh'?: number
  'max-age'?: number
  's-maxage'?: number
  'stale-while-revalidate'?: number
  'stale-if-error'?: number
  public?: true
  private?: true | string[]
  'no-store'?: true
  'no-cache'?: true | string[]
  'must-revalidate'?: true
  'proxy-revalidate'?: true
  immutable?: true
  'no-transform'?: true
  'must-understand'?: true
  'only-if-cached'?: true
}

export interface CacheKey {
  origin: string
  method: string
  path: string
  headers?: HeaderMap
  /** What you call the response, in place of an id that is made. */
  id?: string
}

export interface CacheValue {
  statusCode: number
  statusMessage: string
  headers: HeaderMap
  /** Fields that the response was chosen by, with their values in the request; `null` where it had none. */
  vary?: VaryMap
  etag?: string
  cacheControlDirectives?: CacheControlDirectives
  /** Times are milliseconds since 1970. */
  cachedAt: number
  staleAt: number
  deleteAt: number
}

export interface GetResult extends CacheValue {
  cacheControlDirectives: CacheControlDirectives
  body?: Readable | Buffer[]
}

/** What undici's cache interceptor asks of a store. */
export interface CacheStore {
  get(key: CacheKey): GetResult | Promise<GetResult | undefined> | undefined
  createWriteStream(key: CacheKey, value: CacheValue): Writable | undefined
  delete(key: CacheKey): void | Promise<void>
}

/** A stored response as listings and events show it. */
export interface CacheEntry {
  readonly id: string
  readonly keyPrefix: string
  readonly origin: string
  readonly path: string
  readonly method: string
  readonly statusCode: number
  readonly headers: HeaderMap
  readonly cacheTags: string[]
  readonly cachedAt: number
  readonly staleAt: number
  readonly deleteAt: number
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null
}

export function assertCacheKey(key: unknown): asserts key is CacheKey {
  if (!isRecord(key)) throw new TypeError(`expected key to be an object, got ${typeof key}`)
  for (const name of ['origin', 'method', 'path'] as const) {
    if (typeof key[name] !== 'string') throw new TypeError(`expected key.${name} to be a string, got ${typeof key[name]}`)
  }
  if (key['headers'] !== undefined && !isRecord(key['headers'])) {
    throw new TypeError(`expected key.headers to be an object, got ${typeof key['headers']}`)
  }
}

export function assertCacheValue(value: unknown): asserts value is CacheValue {
  if (!isRecord(value)) throw new TypeError(`expected value to be an object, got ${typeof value}`)
  for (const name of ['statusCode', 'cachedAt', 'staleAt', 'deleteAt'] as const) {
    if (typeof value[name] !== 'number') throw new TypeError(`expected value.${name} to be a number, got ${typeof value[name]}`)
  }
  if (typeof value['statusMessage'] !== 'string') {
    throw new TypeError(`expected value.statusMessage to be a string, got ${typeof value['statusMessage']}`)
  }
}
