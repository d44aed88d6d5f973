// The cache-aside pattern, for values that are no HTTP responses: get, or load and keep. One load per key across all processes, stale values while one is
// loaded anew, and misses that are remembered. A store that fails costs nothing but the load: one look-up waits for an answer, and those that follow don't.

import { randomBytes } from 'node:crypto'
import type { Cluster, Redis } from 'iovalkey'
import { Breaker } from './breaker.js'
import { asError, isAnswer, within } from './errors.js'

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
  /** How long an operation of the store may take, in milliseconds. A store that takes longer is left alone until it answers again. @default 500 */
  timeout?: number
  /** How long a load may take until another process tries, in milliseconds. The value of a much longer load is not kept. @default 5000 */
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
  /** `away`: the store has not answered before, so it wasn't asked. */
  readonly type: 'hit' | 'stale' | 'negative' | 'miss' | 'away' | 'load' | 'wait' | 'error'
  readonly key: string
}

export interface CacheAside<T> {
  /** The value of a key: the one that is kept, or what `load` gives. What `load` throws is thrown. */
  get(key: string, load: (key: string) => Promise<T | undefined>): Promise<T | undefined>
  /** The value of a key is loaded anew, also if it is being loaded. Rejects where the store has not taken it: the value may still be there. */
  delete(key: string): Promise<void>
  /** Values with this tag are loaded anew, also those that are being loaded. Rejects where the store has not taken it. */
  deleteTag(tag: string): Promise<void>
}

interface Kept<T> {
  readonly value: T | undefined
  readonly freshUntil: number
  /** The version that the key had when the load began. */
  readonly version: string
  readonly tags: Readonly<Record<string, string>>
}

interface Loaded<T> {
  readonly value: T | undefined
  /** Whether the key or a tag may have been deleted after the load began. */
  readonly isOutdated: boolean
}

/** Who loads a key: this process, another one, or everybody because the store is away. */
type Lock = 'taken' | 'held' | 'unasked'

/** What the store says when a load begins. */
interface Beginning {
  /** By the clock of the store. */
  readonly startedAt: number
  /** By the monotonic clock of this process, and no later. */
  readonly askedAt: number
  readonly version: string
  /** Differs after each deletion of any tag. */
  readonly lastDeletion: string
}

interface Versions {
  readonly version: string | null
  readonly lastDeletion: string | null
  readonly ofTags: readonly (string | null)[]
}

const POLL_MS = 20
/** Longer than any value stays: a value is valid only while the versions of its tags are there. */
const TAG_TTL_MS = 30 * 24 * 3_600_000
/** Ends the version of a tag that no deletion has made. */
const MADE = ' made'

/** Values that aren't HTTP responses: get, or load and keep, with one load per key across all processes. */
export function cacheAside<T>(client: Redis | Cluster, options: CacheAsideOptions<T>): CacheAside<T> {
  const longest = Math.max(options.ttl + (options.staleWhileRevalidate ?? 0), options.negativeTtl ?? 0)
  if (!(options.ttl > 0 && longest < TAG_TTL_MS)) {
    throw new TypeError(`expected options.ttl, with staleWhileRevalidate, to be above 0 and below 30 days, got ${String(options.ttl)} ms`)
  }
  return new Aside(client, options)
}

function randomVersion(): string {
  return randomBytes(8).toString('hex')
}

/** The version of a tag may be new because a deletion was evicted, so it counts as one if any tag was deleted since the load began. */
function isOutdated({ version, lastDeletion, ofTags }: Versions, beginning: Beginning): boolean {
  const isHarmless = (one: string): boolean => one.endsWith(MADE) && lastDeletion === beginning.lastDeletion
  return version !== beginning.version
    || ofTags.some((one) => one === null || (Number.parseFloat(one) >= beginning.startedAt && !isHarmless(one)))
}

class Aside<T> implements CacheAside<T> {
  readonly #client: Redis | Cluster
  readonly #options: CacheAsideOptions<T>
  readonly #prefix: string
  readonly #loads = new Map<string, Promise<Loaded<T>>>()
  readonly #breaker = new Breaker(() => this.#probe())
  /** What the store was asked for in vain last. */
  #unanswered: { readonly key: string, readonly tags: readonly string[] } = { key: '', tags: [] }
  /** How many deletions of this process the store has taken. */
  #deletions = 0

  constructor(client: Redis | Cluster, options: CacheAsideOptions<T>) {
    this.#client = client
    this.#options = options
    this.#prefix = options.prefix ?? 'aside:'
  }

  async get(key: string, load: (key: string) => Promise<T | undefined>): Promise<T | undefined> {
    const isAway = this.#breaker.isAway()
    const kept = isAway ? undefined : await this.#read(key)
    if (kept === undefined) {
      this.#tell(isAway ? 'away' : 'miss', key)
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

  /** Without its version, no value of the key is valid, not even one that is being loaded. Without the lock, nobody waits for that load. */
  async delete(key: string): Promise<void> {
    const names = [this.#versionName(key), this.#name(key), this.#lockName(key)]
    try {
      await this.#deletion(key, [], () => Promise.all(names.map((name) => this.#client.unlink(name))))
    } finally {
      this.#loads.delete(key)
    }
  }

  /** Values name the version that their tags had, so that nobody has to look for them. */
  async deleteTag(tag: string): Promise<void> {
    await this.#deletion(tag, [tag], async () => {
      const setLast = this.#client.set(this.#lastDeletionName, randomVersion(), 'PX', TAG_TTL_MS)
      const [time] = await Promise.all([this.#storeTime(tag), setLast])
      await this.#client.set(this.#tagName(tag), `${time} ${randomVersion()}`, 'PX', TAG_TTL_MS)
    })
  }

  /** Who deletes something is to know that it may still be there. */
  async #deletion(key: string, tags: readonly string[], work: () => Promise<unknown>): Promise<void> {
    try {
      await within(work(), this.#timeout)
      this.#deletions += 1
    } catch (error) {
      this.#unavailable(key, tags, error)
      throw error
    }
  }

  /** A caller that joined a load may have asked after the deletion that made the load outdated, so it asks again. */
  async #loadOnce(key: string, load: (key: string) => Promise<T | undefined>): Promise<T | undefined> {
    const joined = this.#loads.get(key)
    if (joined === undefined) return (await this.#startLoad(key, load)).value
    const { value, isOutdated } = await joined
    return isOutdated ? this.get(key, load) : value
  }

  /** Nobody joins once the value is loaded: it is compared with the deletions before that only. */
  #startLoad(key: string, load: (key: string) => Promise<T | undefined>): Promise<Loaded<T>> {
    const leave = (): void => {
      if (this.#loads.get(key) === loading) this.#loads.delete(key)
    }
    const loading = this.#loadInTurn(key, async () => {
      try {
        return await load(key)
      } finally {
        leave()
      }
    }).finally(leave)
    this.#loads.set(key, loading)
    return loading
  }

  /** Of all processes, one loads. */
  async #loadInTurn(key: string, load: () => Promise<T | undefined>): Promise<Loaded<T>> {
    const token = randomBytes(16).toString('hex')
    const end = Date.now() + this.#loadTimeout
    let lock: Lock
    while ((lock = await this.#takeLock(key, token)) === 'held') {
      this.#tell('wait', key)
      const kept = Date.now() < end ? await this.#waitForOther(key) : undefined
      if (kept !== undefined) return { value: kept.value, isOutdated: false }
      if (Date.now() >= end) break
    }
    try {
      this.#tell('load', key)
      const deletions = this.#deletions
      const beginning = await this.#begin(key)
      const value = await load()
      // Of a load that began while the store was away, only the deletions of this process are known.
      const isOutdated = beginning === undefined ? deletions !== this.#deletions : !await this.#keep(key, value, beginning)
      return { value, isOutdated }
    } finally {
      if (lock !== 'unasked') await this.#freeLock(key, token)
    }
  }

  /** Taken too where the store doesn't answer: it may have the lock. */
  async #takeLock(key: string, token: string): Promise<Lock> {
    if (this.#breaker.isOpen) return 'unasked'
    const outcome = await this.#attempt(key, () => this.#client.set(this.#lockName(key), token, 'PX', this.#loadTimeout, 'NX'), 'failed')
    return outcome === 'failed' || outcome === 'OK' ? 'taken' : 'held'
  }

  /** A store that is away is told too, but not waited for: once it is back, nobody is to wait for a load that has ended. */
  async #freeLock(key: string, token: string): Promise<void> {
    const free = async (): Promise<void> => {
      if (await this.#client.get(this.#lockName(key)) === token) await this.#client.unlink(this.#lockName(key))
    }
    if (this.#breaker.isOpen) free().catch(() => undefined)
    else await this.#attempt(key, free)
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
    const [bytes, version] = await this.#attempt(key, () => Promise.all([
      this.#client.getBuffer(this.#name(key)), this.#client.get(this.#versionName(key)),
    ])) ?? []
    const kept = bytes && version ? this.#decode(key, bytes) : undefined
    if (kept === undefined || kept.version !== version) return undefined
    const tags = Object.keys(kept.tags)
    const versions = tags.length === 0 ? [] : await this.#attempt(key, () => Promise.all(tags.map((tag) => this.#client.get(this.#tagName(tag)))), undefined, tags)
    return tags.every((tag, at) => kept.tags[tag] === versions?.[at]) ? kept : undefined
  }

  /** `undefined` where the store can't be asked: then the value is not kept. */
  async #begin(key: string): Promise<Beginning | undefined> {
    const { ttl, staleWhileRevalidate = 0, negativeTtl = 0 } = this.#options
    // As long as the load and the value after it.
    const staysMs = Math.ceil(Math.max(ttl + staleWhileRevalidate, negativeTtl) + this.#loadTimeout)
    const askedAt = performance.now()
    const [startedAt, version, lastDeletion] = await this.#attempt(key, () => Promise.all([
      this.#storeTime(key),
      this.#ensureVersion(this.#versionName(key), randomVersion(), staysMs),
      this.#ensureVersion(this.#lastDeletionName, randomVersion(), TAG_TTL_MS),
    ])) ?? []
    return startedAt && version && lastDeletion ? { startedAt, askedAt, version, lastDeletion } : undefined
  }

  /** A store may evict a version. A new one is random, so that values with the old one don't become valid again. */
  async #ensureVersion(name: string, first: string, staysMs: number): Promise<string | null> {
    const [, , version] = await Promise.all([
      this.#client.set(name, first, 'PX', staysMs, 'NX'), this.#client.pexpire(name, staysMs), this.#client.get(name),
    ])
    return version
  }

  /** The last deletion is asked for last: no tag was deleted before without a trace in it. */
  async #versionsNow(key: string, tags: readonly string[], { startedAt, askedAt }: Beginning): Promise<Versions | undefined> {
    const now = startedAt + performance.now() - askedAt
    return this.#attempt(key, async () => {
      const [ofTags, version, lastDeletion] = await Promise.all([
        Promise.all(tags.map((tag) => this.#ensureVersion(this.#tagName(tag), `${now} ${randomVersion()}${MADE}`, TAG_TTL_MS))),
        this.#client.get(this.#versionName(key)),
        this.#client.get(this.#lastDeletionName),
      ])
      return { version, lastDeletion, ofTags }
    }, undefined, tags)
  }

  /** By the clock of the store, which all share; where it won't tell, all take their own. */
  async #storeTime(key: string): Promise<number> {
    try {
      const [seconds, micros] = await this.#client.time()
      return Number(seconds) * 1000 + Number(micros) / 1000
    } catch (error) {
      if (!isAnswer(error)) throw error
      this.#failed(key, error)
      return Date.now()
    }
  }

  /** Whether the store says that nothing was deleted since the load began; otherwise the value is not kept. */
  async #keep(key: string, value: T | undefined, beginning: Beginning): Promise<boolean> {
    const { ttl, jitter = 0.1, staleWhileRevalidate = 0, negativeTtl = 0 } = this.#options
    const freshMs = value === undefined ? negativeTtl : Math.max(1, ttl * (1 - Math.random() * jitter))
    const tags = value === undefined ? [] : this.#options.tags?.(key, value) ?? []
    const now = await this.#versionsNow(key, tags, beginning)
    if (now === undefined || isOutdated(now, beginning)) return false
    if (freshMs <= 0) return true
    const ofTags = Object.fromEntries(tags.map((tag, at) => [tag, now.ofTags[at]!]))
    const kept = { value, freshUntil: Date.now() + freshMs, version: beginning.version, tags: ofTags }
    const staysMs = Math.ceil(freshMs + (value === undefined ? 0 : staleWhileRevalidate))
    const bytes = this.#encode(key, kept)
    if (bytes !== undefined) await this.#attempt(key, () => this.#client.set(this.#name(key), bytes, 'PX', staysMs))
    return true
  }

  /** A line of JSON, and the value behind it. */
  #encode(key: string, { value, freshUntil, version, tags }: Kept<T>): Buffer | undefined {
    const { serialize = JSON.stringify } = this.#options
    const head = `${JSON.stringify({ freshUntil, version, tags, isThere: value !== undefined })}\n`
    try {
      return Buffer.concat([Buffer.from(head), value === undefined ? Buffer.alloc(0) : Buffer.from(serialize(value) as string)])
    } catch (error) {
      this.#failed(key, error)
      return undefined
    }
  }

  #decode(key: string, bytes: Buffer): Kept<T> | undefined {
    const { parse = (body: Buffer): T => JSON.parse(body.toString()) as T } = this.#options
    try {
      const ends = bytes.indexOf('\n')
      const { freshUntil, version, tags, isThere } = JSON.parse(bytes.toString('utf8', 0, ends))
      return { value: isThere ? parse(bytes.subarray(ends + 1)) : undefined, freshUntil, version, tags }
    } catch (error) {
      this.#failed(key, error)
      return undefined
    }
  }

  /** A store that is away isn't asked. `tags`: those whose names the work needs beside those of the key. */
  async #attempt<R, E = undefined>(key: string, work: () => Promise<R>, otherwise?: E, tags: readonly string[] = []): Promise<R | E> {
    if (this.#breaker.isOpen) return otherwise as E
    try {
      return await within(work(), this.#timeout)
    } catch (error) {
      this.#unavailable(key, tags, error)
      return otherwise as E
    }
  }

  #unavailable(key: string, tags: readonly string[], error: unknown): void {
    if (!isAnswer(error)) {
      this.#unanswered = { key, tags }
      this.#breaker.open()
    }
    this.#failed(key, error)
  }

  /** Of a cluster, each of the nodes is asked that has a name which a look-up needs. How long its value is makes no difference. */
  async #probe(): Promise<void> {
    const { key, tags } = this.#unanswered
    const ofTags = tags.map((tag) => this.#tagName(tag))
    const names = [this.#name(key), this.#versionName(key), this.#lockName(key), this.#lastDeletionName, ...ofTags]
    try {
      await within(Promise.all(names.map((name) => this.#client.exists(name))), this.#timeout)
    } catch (error) {
      this.#failed(key, error)
      if (!isAnswer(error)) throw error
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

  get #timeout(): number {
    return this.#options.timeout ?? 500
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

  #versionName(key: string): string {
    return `${this.#prefix}d:${key}`
  }

  get #lastDeletionName(): string {
    return `${this.#prefix}e`
  }

  #tagName(tag: string): string {
    return `${this.#prefix}t:${tag}`
  }
}
