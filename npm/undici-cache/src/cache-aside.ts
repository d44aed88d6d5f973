// The cache-aside pattern, for values that are no HTTP responses: get, or load and keep. One load per key across all processes, stale values while one is
// loaded anew, and misses that are remembered. A store that fails costs nothing but the load.

import { randomBytes } from 'node:crypto'
import type { Cluster, Redis } from 'iovalkey'
import { asError, within } from './errors.js'

export interface CacheAsideOptions<T> {
  /** What all names on the server begin with. @default 'aside:' */
  prefix?: string
  /** How long a value is fresh, in milliseconds. */
  ttl: number
  /** A share of `ttl` by which each value may expire sooner, so that values that came together don't go together. @default 0.1 */
  jitter?: number
  /** How much longer a value is given while it is loaded anew, in milliseconds. @default 0 */
  staleWhileRevalidate?: number
  /** How long it is remembered that `load` gave `undefined`, in milliseconds. @default 0 */
  negativeTtl?: number
  /** How long an operation of the store may take, in milliseconds. @default 500 */
  timeout?: number
  /** How long a load may take until another process tries, in milliseconds. @default 5000 */
  loadTimeout?: number
  serialize?: (value: T) => string | Buffer
  parse?: (bytes: Buffer) => T
  /** The tags of a value, to delete by with `deleteTag`. */
  tags?: (key: string, value: T) => readonly string[]
  /** Is told of each look-up, for metrics. */
  onEvent?: (event: CacheAsideEvent) => void
  errorCallback?: (error: Error) => void
}

export interface CacheAsideEvent {
  readonly type: 'hit' | 'stale' | 'negative' | 'miss' | 'load' | 'wait' | 'error'
  readonly key: string
}

export interface CacheAside<T> {
  /** The value of a key: the one that is kept, or what `load` gives. What `load` throws is thrown. */
  get(key: string, load: (key: string) => Promise<T | undefined>): Promise<T | undefined>
  delete(key: string): Promise<void>
  /** Values with this tag are loaded anew. */
  deleteTag(tag: string): Promise<void>
}

interface Kept<T> {
  readonly value: T | undefined
  readonly freshUntil: number
  readonly tags: Readonly<Record<string, string>>
}

const POLL_MS = 20
/** Longer than any value stays, so that a version that was forgotten makes no value good again. */
const TAG_TTL_MS = 30 * 24 * 3_600_000

/** Values that aren't HTTP responses: get, or load and keep, with one load per key across all processes. */
export function cacheAside<T>(client: Redis | Cluster, options: CacheAsideOptions<T>): CacheAside<T> {
  const longest = Math.max(options.ttl + (options.staleWhileRevalidate ?? 0), options.negativeTtl ?? 0)
  if (!(options.ttl > 0 && longest < TAG_TTL_MS)) {
    throw new TypeError(`expected options.ttl, with staleWhileRevalidate, to be above 0 and below 30 days, got ${String(options.ttl)} ms`)
  }
  return new Aside(client, options)
}

class Aside<T> implements CacheAside<T> {
  readonly #client: Redis | Cluster
  readonly #options: CacheAsideOptions<T>
  readonly #prefix: string
  readonly #loads = new Map<string, Promise<T | undefined>>()

  constructor(client: Redis | Cluster, options: CacheAsideOptions<T>) {
    this.#client = client
    this.#options = options
    this.#prefix = options.prefix ?? 'aside:'
  }

  async get(key: string, load: (key: string) => Promise<T | undefined>): Promise<T | undefined> {
    const kept = await this.#read(key)
    if (kept === undefined) {
      this.#tell('miss', key)
      return this.#loadOnce(key, load)
    }
    if (kept.freshUntil > Date.now()) {
      this.#tell(kept.value === undefined ? 'negative' : 'hit', key)
      return kept.value
    }
    this.#tell('stale', key)
    this.#loadOnce(key, load).catch((error: unknown) => this.#failed(key, error))
    return kept.value
  }

  async delete(key: string): Promise<void> {
    await this.#attempt(key, () => this.#client.unlink(this.#name(key)))
  }

  /** Values name the version that their tags had, so that nobody has to look for them. */
  async deleteTag(tag: string): Promise<void> {
    const version = `${await this.#storeTime(tag)} ${randomBytes(8).toString('hex')}`
    await this.#attempt(tag, () => this.#client.set(this.#tagName(tag), version, 'PX', TAG_TTL_MS))
  }

  #loadOnce(key: string, load: (key: string) => Promise<T | undefined>): Promise<T | undefined> {
    const joined = this.#loads.get(key)
    if (joined !== undefined) return joined
    const loading = this.#loadInTurn(key, load).finally(() => this.#loads.delete(key))
    this.#loads.set(key, loading)
    return loading
  }

  /** Of all processes, one loads. */
  async #loadInTurn(key: string, load: (key: string) => Promise<T | undefined>): Promise<T | undefined> {
    const token = randomBytes(16).toString('hex')
    const end = Date.now() + this.#loadTimeout
    while (!await this.#takeLock(key, token)) {
      this.#tell('wait', key)
      const kept = Date.now() < end ? await this.#waitForOther(key) : undefined
      if (kept !== undefined) return kept.value
      if (Date.now() >= end) break
    }
    try {
      this.#tell('load', key)
      const startedAt = await this.#storeTime(key)
      const value = await load(key)
      await this.#keep(key, value, startedAt)
      return value
    } finally {
      await this.#freeLock(key, token)
    }
  }

  /** True too where the store can't be asked: then everybody loads. */
  async #takeLock(key: string, token: string): Promise<boolean> {
    const outcome = await this.#attempt(key, () => this.#client.set(this.#lockName(key), token, 'PX', this.#loadTimeout, 'NX'), 'failed')
    return outcome === 'failed' || outcome === 'OK'
  }

  async #freeLock(key: string, token: string): Promise<void> {
    await this.#attempt(key, async () => {
      if (await this.#client.get(this.#lockName(key)) === token) await this.#client.unlink(this.#lockName(key))
    })
  }

  /** A fresh value; `undefined` where the lock was freed without one. */
  async #waitForOther(key: string): Promise<Kept<T> | undefined> {
    for (;;) {
      await new Promise((resolve) => setTimeout(resolve, POLL_MS))
      const kept = await this.#read(key)
      if (kept !== undefined && kept.freshUntil > Date.now()) return kept
      if (await this.#attempt(key, () => this.#client.exists(this.#lockName(key)), 0) === 0) return undefined
    }
  }

  async #read(key: string): Promise<Kept<T> | undefined> {
    const bytes = await this.#attempt(key, () => this.#client.getBuffer(this.#name(key)))
    const kept = bytes ? this.#decode(key, bytes) : undefined
    if (kept === undefined) return undefined
    const tags = Object.keys(kept.tags)
    const versions = tags.length === 0 ? [] : await this.#tagVersions(key, tags)
    return tags.every((tag, at) => kept.tags[tag] === versions?.[at]) ? kept : undefined
  }

  async #tagVersions(key: string, tags: readonly string[]): Promise<string[] | undefined> {
    return this.#attempt(key, () => Promise.all(tags.map(async (tag) => await this.#client.get(this.#tagName(tag)) ?? '')))
  }

  /** By the clock of the store, which all share. */
  async #storeTime(key: string): Promise<number> {
    const time = await this.#attempt(key, () => this.#client.time())
    return time ? Number(time[0]) * 1000 + Number(time[1]) / 1000 : Date.now()
  }

  /** What a tag was deleted of while it was loaded is not kept. */
  async #keep(key: string, value: T | undefined, startedAt: number): Promise<void> {
    const { ttl, jitter = 0.1, staleWhileRevalidate = 0, negativeTtl = 0 } = this.#options
    const freshMs = value === undefined ? negativeTtl : Math.max(1, ttl * (1 - Math.random() * jitter))
    const tags = value === undefined ? [] : this.#options.tags?.(key, value) ?? []
    const versions = await this.#tagVersions(key, tags)
    if (freshMs <= 0 || versions === undefined || versions.some((version) => Number.parseFloat(version) >= startedAt)) return
    const kept = { value, freshUntil: Date.now() + freshMs, tags: Object.fromEntries(tags.map((tag, at) => [tag, versions[at]!])) }
    const staysMs = Math.ceil(freshMs + (value === undefined ? 0 : staleWhileRevalidate))
    await this.#attempt(key, () => this.#client.set(this.#name(key), this.#encode(kept), 'PX', staysMs))
  }

  /** A line of JSON, and the value behind it. */
  #encode({ value, freshUntil, tags }: Kept<T>): Buffer {
    const { serialize = JSON.stringify } = this.#options
    const head = `${JSON.stringify({ freshUntil, tags, isThere: value !== undefined })}\n`
    return Buffer.concat([Buffer.from(head), value === undefined ? Buffer.alloc(0) : Buffer.from(serialize(value) as string)])
  }

  #decode(key: string, bytes: Buffer): Kept<T> | undefined {
    const { parse = (body: Buffer): T => JSON.parse(body.toString()) as T } = this.#options
    try {
      const ends = bytes.indexOf('\n')
      const { freshUntil, tags, isThere } = JSON.parse(bytes.toString('utf8', 0, ends))
      return { value: isThere ? parse(bytes.subarray(ends + 1)) : undefined, freshUntil, tags }
    } catch (error) {
      this.#failed(key, error)
      return undefined
    }
  }

  async #attempt<R, E = undefined>(key: string, work: () => Promise<R>, otherwise?: E): Promise<R | E> {
    try {
      return await within(work(), this.#options.timeout ?? 500)
    } catch (error) {
      this.#failed(key, error)
      return otherwise as E
    }
  }

  #failed(key: string, error: unknown): void {
    this.#tell('error', key)
    try {
      this.#options.errorCallback?.(asError(error))
    } catch {
      // What the application does with an error is its own affair.
    }
  }

  #tell(type: CacheAsideEvent['type'], key: string): void {
    try {
      this.#options.onEvent?.({ type, key })
    } catch {
      // The same holds for its metrics.
    }
  }

  get #loadTimeout(): number {
    return this.#options.loadTimeout ?? 5000
  }

  #name(key: string): string {
    return `${this.#prefix}v:${key}`
  }

  #lockName(key: string): string {
    return `${this.#prefix}l:${key}`
  }

  #tagName(tag: string): string {
    return `${this.#prefix}t:${tag}`
  }
}
