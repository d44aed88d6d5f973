// undici's cache store contract, as types that this package keeps stable.

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
  /** Your own id for the response, instead of a generated one. */
  id?: string
}

export interface CacheValue {
  statusCode: number
  statusMessage: string
  headers: HeaderMap
  /** Request fields that selected the response, with their values; `null` for an absent field. */
  vary?: VaryMap
  etag?: string
  cacheControlDirectives?: CacheControlDirectives
  /** Times in milliseconds since 1970. */
  cachedAt: number
  staleAt: number
  deleteAt: number
}

export interface GetResult extends CacheValue {
  cacheControlDirectives: CacheControlDirectives
  body?: Readable | Buffer[]
}

/** The store interface of undici's cache interceptor. */
export interface CacheStore {
  get(key: CacheKey): GetResult | Promise<GetResult | undefined> | undefined
  createWriteStream(key: CacheKey, value: CacheValue): Writable | undefined
  delete(key: CacheKey): void | Promise<void>
}

/** A stored response, as listings and events report it. */
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
