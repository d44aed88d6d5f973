// The cache-aside pattern, for values that aren't HTTP responses: get a value, or load and keep it. There is one load per key across all processes, stale
// values are served during a reload, and misses are remembered. If the store fails, one look-up waits for the timeout, and the next ones load without waiting.

import { randomBytes } from 'node:crypto'
import { AsideMemory } from './aside-memory.js'
import { Breaker } from './breaker.js'
import { type RedisClientLike, type Send, senderOf } from './client.js'
import { asError, isAnswer, StoreUnavailableError, within } from './errors.js'
import { setImmediate, setTimeout } from './timers.js'

export interface CacheAsideOptions<T> {
  /** The prefix of all names on the server. @default 'aside:' */
  prefix?: string
  /** How long a value is fresh, in milliseconds. */
  ttl: number
  /** The maximum share of `ttl` by which a value expires early, at random, so that values loaded together don't expire together. @default 0.1 */
  jitter?: number
  /** How much longer a stale value is served while it is reloaded, in milliseconds. @default 0 */
  staleWhileRevalidate?: number
  /** How long an `undefined` from `load` is remembered, in milliseconds. @default 0 */
  negativeTtl?: number
  /** How long an error from `load` is remembered in this process, in milliseconds: `get` throws it again without another load. @default 0 */
  errorTtl?: number
  /** Keeps values in the memory of this process too. @default values are kept in the store only */
  memory?: CacheAsideMemory
  /** The timeout of a store operation, in milliseconds. A store that takes longer is not used until it answers again. @default 500 */
  timeout?: number
  /** How long a load may take before another process loads, in milliseconds. The value of a much longer load is not kept. @default 5000 */
  loadTimeout?: number
  serialize?: (value: T) => string | Buffer
  parse?: (bytes: Buffer) => T
  /** The tags of a value, for `deleteTag`. */
  tags?: (key: string, value: T) => readonly string[]
  /** Called for each look-up, for metrics. */
  onEvent?: (event: CacheAsideEvent) => void
  errorCallback?: (error: Error) => void
}

/** Limits for the values kept in this process. */
export interface CacheAsideMemory {
  /**
   * How long a value is served without asking the store, in milliseconds. During this time, this process may serve a value that another process has deleted;
   * its own deletions take effect immediately.
   */
  ttl: number
  /** The maximum number of values. @default 10,000 */
  maxCount?: number
  /** The memory limit in bytes. @default 32 MiB */
  maxSize?: number
}

/** Options for one value. */
export interface CacheAsideValueOptions {
  /** How long the value is fresh, in milliseconds. Overrides the `ttl` of the cache. */
  ttl?: number
  /** Tags in addition to those from the `tags` option of the cache. */
  tags?: readonly string[]
}

export interface CacheAsideWrapOptions<A extends readonly unknown[]> extends CacheAsideValueOptions {
  /** The key of a call. @default the name of the function and its arguments as JSON */
  key?: (...args: A) => string
}

export interface CacheAsideEvent {
  /** `memory`: from this process. `failed`: a remembered error is thrown again. `away`: the store didn't answer earlier, so it wasn't used. */
  readonly type: 'memory' | 'failed' | 'hit' | 'stale' | 'negative' | 'miss' | 'away' | 'load' | 'wait' | 'error'
  readonly key: string
}

export interface CacheAside<T> {
  /** Returns the kept value of a key, or loads and keeps it. Rethrows errors from `load`. Each caller gets its own object. */
  get(key: string, load: (key: string) => Promise<T | undefined>, options?: CacheAsideValueOptions): Promise<T | undefined>
  /** Returns the values of several keys, by key. `load` gets the missing keys, in as few calls as possible, and returns the values it finds. */
  getMany(keys: readonly string[], load: (keys: readonly string[]) => Promise<ReadonlyMap<string, T>>, options?: CacheAsideValueOptions): Promise<Map<string, T>>
  /** Whether `get` would return a value without a load. */
  has(key: string): Promise<boolean>
  /** Keeps a value in place of the one that is kept or being loaded; `undefined` records a miss. Rejects like `delete`. */
  set(key: string, value: T | undefined, options?: CacheAsideValueOptions): Promise<void>
  /** Wraps a function so that its results are kept. */
  wrap<A extends readonly unknown[]>(load: (...args: A) => Promise<T | undefined>, options?: CacheAsideWrapOptions<A>): (...args: A) => Promise<T | undefined>
  /** Deletes the value of a key, even while it is being loaded. Rejects if the store has not accepted the deletion: the value may still be stored. */
  delete(key: string): Promise<void>
  /** Deletes the values with this tag, even while they are being loaded. Rejects if the store has not accepted the deletion. */
  deleteTag(tag: string): Promise<void>
}

interface Kept<T> {
  readonly value: T | undefined
  readonly freshUntil: number
  /** The version of the key when the load began. */
  readonly version: string
  readonly tags: Readonly<Record<string, string>>
}

interface Loaded<T> {
  readonly value: T | undefined
  /** Whether the key or a tag may have been deleted since the load began. */
  readonly isOutdated: boolean
}

/** The lock of a key: taken by this process, held by another one, or not requested because the store is away. */
type Lock = 'taken' | 'held' | 'unasked'

/** The state of the store when a load begins. */
interface Beginning {
  /** By the clock of the store. */
  readonly startedAt: number
  /** By the monotonic clock of this process; not later than `startedAt`. */
  readonly askedAt: number
  readonly version: string
  /** Changes with each deletion of a tag. */
  readonly lastDeletion: string
  /** The number of deletions of this process that had begun. */
  readonly begun: number
}

interface Versions {
  readonly version: string | null
  readonly lastDeletion: string | null
  readonly ofTags: readonly (string | null)[]
}

const POLL_MS = 20
/** Limit of remembered errors. */
const ERRORS_MAX = 1000
/** Longer than any value is kept: a value is valid only while the versions of its tags exist. */
const TAG_TTL_MS = 30 * 24 * 3_600_000
/** Suffix of a tag version that wasn't created by a deletion. */
const MADE = ' made'

/** Creates a cache for values that aren't HTTP responses, with one load per key across all processes. */
export function cacheAside<T>(client: RedisClientLike, options: CacheAsideOptions<T>): CacheAside<T> {
  checkTtl(options, options.ttl)
  return new Aside(client, options)
}

function checkTtl({ staleWhileRevalidate = 0, negativeTtl = 0 }: Pick<CacheAsideOptions<unknown>, 'staleWhileRevalidate' | 'negativeTtl'>, ttl: number): void {
  if (!(ttl > 0 && Math.max(ttl + staleWhileRevalidate, negativeTtl) < TAG_TTL_MS)) {
    throw new TypeError(`expected options.ttl, with staleWhileRevalidate, to be above 0 and below 30 days, got ${String(ttl)} ms`)
  }
}

function randomVersion(): string {
  return randomBytes(8).toString('hex')
}

/**
 * Whether a deletion since the load began makes its value outdated. If any tag was deleted since then, a new tag version also counts as a deletion, because it
 * may replace the evicted version of that deletion.
 */
function isOutdated({ version, lastDeletion, ofTags }: Versions, beginning: Beginning): boolean {
  const isHarmless = (one: string): boolean => one.endsWith(MADE) && lastDeletion === beginning.lastDeletion
  return version !== beginning.version
    || ofTags.some((one) => one === null || (Number.parseFloat(one) >= beginning.startedAt && !isHarmless(one)))
}

function parseJson<T>(bytes: Buffer): T {
  return JSON.parse(bytes.toString()) as T
}

interface Batch<T> {
  readonly keys: string[]
  readonly values: Promise<ReadonlyMap<string, T>>
}

/** Batches the keys requested in one turn of the event loop into one load. Doesn't wait for anything else, such as a key that another process loads. */
class Together<T> {
  readonly #load: (keys: readonly string[]) => Promise<ReadonlyMap<string, T>>
  #next: Batch<T> | undefined

  constructor(load: (keys: readonly string[]) => Promise<ReadonlyMap<string, T>>) {
    this.#load = load
  }

  async load(key: string): Promise<T | undefined> {
    this.#next ??= this.#begin()
    this.#next.keys.push(key)
    return (await this.#next.values).get(key)
  }

  #begin(): Batch<T> {
    const keys: string[] = []
    const turn = new Promise<void>((resolve) => setImmediate(resolve))
    const values = turn.then(() => {
      this.#next = undefined
      return this.#load(keys)
    })
    return { keys, values }
  }
}

class Aside<T> implements CacheAside<T> {
  readonly #send: Send
  readonly #options: CacheAsideOptions<T>
  readonly #prefix: string
  readonly #loads = new Map<string, Promise<Loaded<T>>>()
  readonly #breaker = new Breaker(() => this.#probe())
  /** The key and tags of the last operation that the store didn't answer. */
  #unanswered: { readonly key: string, readonly tags: readonly string[] } = { key: '', tags: [] }
  readonly #memory: AsideMemory | undefined
  readonly #errors = new Map<string, { readonly error: unknown; readonly endMs: number }>()
  /** The number of deletions of this process that the store has accepted. */
  #deletions = 0
  /** The number of deletions that have begun. Values requested earlier are not kept in memory. */
  #begun = 0

  constructor(client: RedisClientLike, options: CacheAsideOptions<T>) {
    this.#send = senderOf(client)
    this.#options = options
    this.#memory = options.memory && new AsideMemory(options.memory)
    this.#prefix = options.prefix ?? 'aside:'
  }

  async get(key: string, load: (key: string) => Promise<T | undefined>, own: CacheAsideValueOptions = {}): Promise<T | undefined> {
    if (own.ttl !== undefined) checkTtl(this.#options, own.ttl)
    const remembered = this.#remembered(key)
    if (remembered !== undefined) return remembered.value
    const isAway = this.#breaker.isAway()
    const kept = isAway ? undefined : await this.#read(key)
    if (kept === undefined) {
      this.#throwAgain(key)
      this.#tell(isAway ? 'away' : 'miss', key)
      return this.#loadOnce(key, load, own)
    }
    if (kept.freshUntil > Date.now()) {
      this.#tell(kept.value === undefined ? 'negative' : 'hit', key)
      return kept.value
    }
    this.#tell('stale', key)
    if (this.#failureOf(key) === undefined) this.#loadOnce(key, load, own).catch((error: unknown) => this.#failed(key, error))
    return kept.value
  }

  async getMany(
    keys: readonly string[], load: (keys: readonly string[]) => Promise<ReadonlyMap<string, T>>, own: CacheAsideValueOptions = {},
  ): Promise<Map<string, T>> {
    const [unique, together] = [[...new Set(keys)], new Together(load)]
    const values = await Promise.all(unique.map((key) => this.get(key, () => together.load(key), own)))
    const found = new Map<string, T>()
    for (const [at, key] of unique.entries()) if (values[at] !== undefined) found.set(key, values[at])
    return found
  }

  async has(key: string): Promise<boolean> {
    const kept = this.#remembered(key) ?? (this.#breaker.isAway() ? undefined : await this.#read(key))
    return kept?.value !== undefined
  }

  wrap<A extends readonly unknown[]>(
    load: (...args: A) => Promise<T | undefined>, { key, ...own }: CacheAsideWrapOptions<A> = {},
  ): (...args: A) => Promise<T | undefined> {
    if (key === undefined && load.name === '') throw new TypeError('expected options.key, or a function with a name')
    return (...args) => this.get(key === undefined ? `${load.name}:${JSON.stringify(args)}` : key(...args), () => load(...args), own)
  }

  /** Like a deletion, a new version invalidates the stored value and one that is being loaded. */
  async set(key: string, value: T | undefined, own: CacheAsideValueOptions = {}): Promise<void> {
    if (own.ttl !== undefined) checkTtl(this.#options, own.ttl)
    try {
      await this.#deletion(key, [], async () => {
        const [version, begun] = [randomVersion(), this.#begun]
        await Promise.all([
          this.#send('SET', this.#versionName(key), version, 'PX', this.#staysMs(own)),
          ...[this.#name(key), this.#lockName(key)].map((name) => this.#send('UNLINK', name)),
        ])
        const askedAt = performance.now()
        const [startedAt, lastDeletion] = await Promise.all([
          this.#storeTime(key), this.#ensureVersion(this.#lastDeletionName, randomVersion(), TAG_TTL_MS),
        ])
        await this.#keep(key, value, { startedAt, askedAt, version, lastDeletion: lastDeletion ?? '', begun }, own)
        if (this.#breaker.isOpen) throw new StoreUnavailableError('the store has not taken the value')
      })
    } finally {
      this.#loads.delete(key)
    }
  }

  /** A fresh value from the memory of this process, as the caller's own object. */
  #remembered(key: string): Kept<T> | undefined {
    const bytes = this.#memory?.get(key)
    const kept = bytes && this.#decode(key, bytes)
    if (kept === undefined || kept.freshUntil <= Date.now()) return undefined
    this.#tell('memory', key)
    return kept
  }

  #throwAgain(key: string): void {
    const failure = this.#failureOf(key)
    if (failure === undefined) return
    this.#tell('failed', key)
    throw failure.error
  }

  #failureOf(key: string): { readonly error: unknown } | undefined {
    const failure = this.#errors.get(key)
    return failure !== undefined && failure.endMs > performance.now() ? failure : undefined
  }

  #rememberError(key: string, error: unknown): void {
    const { errorTtl = 0 } = this.#options
    if (errorTtl <= 0) return
    this.#errors.delete(key)
    this.#errors.set(key, { error, endMs: performance.now() + errorTtl })
    if (this.#errors.size > ERRORS_MAX) this.#errors.delete(this.#errors.keys().next().value!)
  }

  /** Deleting the version invalidates every value of the key, including one that is being loaded. Deleting the lock ends the wait for that load. */
  async delete(key: string): Promise<void> {
    const names = [this.#versionName(key), this.#name(key), this.#lockName(key)]
    try {
      await this.#deletion(key, [], () => Promise.all(names.map((name) => this.#send('UNLINK', name))))
    } finally {
      this.#loads.delete(key)
    }
  }

  /** Values carry the versions of their tags, so a deletion needn't look for them. */
  async deleteTag(tag: string): Promise<void> {
    await this.#deletion(tag, [tag], async () => {
      const setLast = this.#send('SET', this.#lastDeletionName, randomVersion(), 'PX', TAG_TTL_MS)
      const [time] = await Promise.all([this.#storeTime(tag), setLast])
      await this.#send('SET', this.#tagName(tag), `${time} ${randomVersion()}`, 'PX', TAG_TTL_MS)
    })
  }

  /** Runs a deletion. Rejects if the store has not accepted it, since the value may still be stored. */
  async #deletion(key: string, tags: readonly string[], work: () => Promise<unknown>): Promise<void> {
    this.#begun += 1
    for (const tag of tags) this.#memory?.deleteTag(tag)
    if (tags.length === 0) this.#memory?.delete(key)
    if (tags.length === 0) this.#errors.delete(key)
    else this.#errors.clear()
    try {
      await within(work(), this.#timeout)
      this.#deletions += 1
    } catch (error) {
      this.#unavailable(key, tags, error)
      throw error
    }
  }

  /** Joins or starts a load. A caller that joined may have begun after the deletion that made the load outdated, so it tries again. */
  async #loadOnce(key: string, load: (key: string) => Promise<T | undefined>, own: CacheAsideValueOptions): Promise<T | undefined> {
    const joined = this.#loads.get(key)
    if (joined === undefined) return (await this.#startLoad(key, load, own)).value
    const { value, isOutdated } = await joined
    return isOutdated ? this.get(key, load, own) : this.#copyOf(value)
  }

  /** A copy like those that other callers get from the store. A value without a serialized form is not kept, and all callers get the same object. */
  #copyOf(value: T | undefined): T | undefined {
    if (typeof value !== 'object' || value === null) return value
    const { serialize = JSON.stringify, parse = parseJson } = this.#options
    try {
      return parse(Buffer.from(serialize(value) as string)) as T
    } catch {
      return value
    }
  }

  /** Starts a load. Callers can't join once the value is loaded, because only earlier deletions are checked against it. */
  #startLoad(key: string, load: (key: string) => Promise<T | undefined>, own: CacheAsideValueOptions): Promise<Loaded<T>> {
    const leave = (): void => {
      if (this.#loads.get(key) === loading) this.#loads.delete(key)
    }
    const loading = this.#loadInTurn(key, async () => {
      try {
        return await load(key)
      } catch (error) {
        this.#rememberError(key, error)
        throw error
      } finally {
        leave()
      }
    }, own).finally(leave)
    this.#loads.set(key, loading)
    return loading
  }

  /** Loads under the lock of the key: one process loads, the others wait. */
  async #loadInTurn(key: string, load: () => Promise<T | undefined>, own: CacheAsideValueOptions): Promise<Loaded<T>> {
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
      const beginning = await this.#begin(key, own)
      const value = await load()
      // A load that began while the store was away is checked against the deletions of this process only.
      const isOutdated = beginning === undefined ? deletions !== this.#deletions : !await this.#keep(key, value, beginning, own)
      return { value, isOutdated }
    } finally {
      if (lock !== 'unasked') await this.#freeLock(key, token)
    }
  }

  /** Returns `taken` even if the store doesn't answer: it may have set the lock. */
  async #takeLock(key: string, token: string): Promise<Lock> {
    if (this.#breaker.isOpen) return 'unasked'
    const outcome = await this.#attempt(key, () => this.#text('SET', this.#lockName(key), token, 'PX', this.#loadTimeout, 'NX'), 'failed')
    return outcome === 'failed' || outcome === 'OK' ? 'taken' : 'held'
  }

  /** Frees the lock. Also sent, without waiting, to a store that is away, so that no process waits for a finished load once it is back. */
  async #freeLock(key: string, token: string): Promise<void> {
    const free = async (): Promise<void> => {
      if (await this.#text('GET', this.#lockName(key)) === token) await this.#send('UNLINK', this.#lockName(key))
    }
    if (this.#breaker.isOpen) free().catch(() => undefined)
    else await this.#attempt(key, free)
  }

  /** Waits for a fresh value; `undefined` if the lock was freed without one. */
  async #waitForOther(key: string): Promise<Kept<T> | undefined> {
    for (;;) {
      await new Promise((resolve) => setTimeout(resolve, POLL_MS))
      const kept = await this.#read(key)
      if (kept !== undefined && kept.freshUntil > Date.now()) return kept
      if (await this.#attempt(key, () => this.#send('EXISTS', this.#lockName(key)), 0) === 0) return undefined
    }
  }

  async #read(key: string): Promise<Kept<T> | undefined> {
    const begun = this.#begun
    const [bytes, version] = await this.#attempt(key, () => Promise.all([
      this.#send('GET', this.#name(key)) as Promise<Buffer | null>, this.#text('GET', this.#versionName(key)),
    ])) ?? []
    const kept = bytes && version ? this.#decode(key, bytes) : undefined
    if (kept === undefined || kept.version !== version) return undefined
    const tags = Object.keys(kept.tags)
    const versions = tags.length === 0 ? [] : await this.#attempt(key, () => Promise.all(tags.map((tag) => this.#text('GET', this.#tagName(tag)))), undefined, tags)
    if (!tags.every((tag, at) => kept.tags[tag] === versions?.[at])) return undefined
    this.#remember(key, bytes!, tags, begun)
    return kept
  }

  /** Reads the state of the store before a load; `undefined` if the store is away, in which case the value is not kept. */
  async #begin(key: string, own: CacheAsideValueOptions): Promise<Beginning | undefined> {
    const [askedAt, begun] = [performance.now(), this.#begun]
    const [startedAt, version, lastDeletion] = await this.#attempt(key, () => Promise.all([
      this.#storeTime(key),
      this.#ensureVersion(this.#versionName(key), randomVersion(), this.#staysMs(own)),
      this.#ensureVersion(this.#lastDeletionName, randomVersion(), TAG_TTL_MS),
    ])) ?? []
    return startedAt && version && lastDeletion ? { startedAt, askedAt, version, lastDeletion, begun } : undefined
  }

  /** How long a version is kept: as long as the load and the value after it. */
  #staysMs({ ttl = this.#options.ttl }: CacheAsideValueOptions): number {
    const { staleWhileRevalidate = 0, negativeTtl = 0 } = this.#options
    return Math.ceil(Math.max(ttl + staleWhileRevalidate, negativeTtl) + this.#loadTimeout)
  }

  /** Sets a version if there is none, and returns the current one. Versions are random, so that values with an evicted version don't become valid again. */
  async #ensureVersion(name: string, first: string, staysMs: number): Promise<string | null> {
    const [, , version] = await Promise.all([
      this.#send('SET', name, first, 'PX', staysMs, 'NX'), this.#send('PEXPIRE', name, staysMs), this.#text('GET', name),
    ])
    return version
  }

  /** Reads the current versions. The last deletion is read last, so that it shows every tag deletion before the other reads. */
  async #versionsNow(key: string, tags: readonly string[], { startedAt, askedAt }: Beginning): Promise<Versions | undefined> {
    const now = startedAt + performance.now() - askedAt
    return this.#attempt(key, async () => {
      const [ofTags, version, lastDeletion] = await Promise.all([
        Promise.all(tags.map((tag) => this.#ensureVersion(this.#tagName(tag), `${now} ${randomVersion()}${MADE}`, TAG_TTL_MS))),
        this.#text('GET', this.#versionName(key)),
        this.#text('GET', this.#lastDeletionName),
      ])
      return { version, lastDeletion, ofTags }
    }, undefined, tags)
  }

  /** The time by the clock of the store, which all processes share; the local time if the store refuses TIME. */
  async #storeTime(key: string): Promise<number> {
    try {
      const [seconds, micros] = await this.#send('TIME') as [Buffer, Buffer]
      return Number(seconds) * 1000 + Number(micros) / 1000
    } catch (error) {
      if (!isAnswer(error)) throw error
      this.#failed(key, error)
      return Date.now()
    }
  }

  /** Keeps a value if the store confirms that nothing was deleted since the load began. Returns whether it confirmed that. */
  async #keep(key: string, value: T | undefined, beginning: Beginning, own: CacheAsideValueOptions): Promise<boolean> {
    const { jitter = 0.1, staleWhileRevalidate = 0, negativeTtl = 0 } = this.#options
    const { ttl = this.#options.ttl } = own
    const freshMs = value === undefined ? negativeTtl : Math.max(1, ttl * (1 - Math.random() * jitter))
    const tags = value === undefined ? [] : [...new Set([...this.#options.tags?.(key, value) ?? [], ...own.tags ?? []])]
    const now = await this.#versionsNow(key, tags, beginning)
    if (now === undefined || isOutdated(now, beginning)) return false
    if (freshMs <= 0) return true
    const ofTags = Object.fromEntries(tags.map((tag, at) => [tag, now.ofTags[at]!]))
    const kept = { value, freshUntil: Date.now() + freshMs, version: beginning.version, tags: ofTags }
    const staysMs = Math.ceil(freshMs + (value === undefined ? 0 : staleWhileRevalidate))
    const bytes = this.#encode(key, kept)
    if (bytes !== undefined) this.#remember(key, bytes, tags, beginning.begun)
    if (bytes !== undefined) await this.#attempt(key, () => this.#send('SET', this.#name(key), bytes, 'PX', staysMs))
    return true
  }

  /** Skips a value requested before a deletion of this process, which may have deleted it. */
  #remember(key: string, bytes: Buffer, tags: readonly string[], begun: number): void {
    if (begun === this.#begun) this.#memory?.keep(key, bytes, tags)
  }

  /** A line of JSON, followed by the value. */
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
    const { parse = parseJson<T> } = this.#options
    try {
      const ends = bytes.indexOf('\n')
      const { freshUntil, version, tags, isThere } = JSON.parse(bytes.toString('utf8', 0, ends))
      return { value: isThere ? parse(bytes.subarray(ends + 1)) : undefined, freshUntil, version, tags }
    } catch (error) {
      this.#failed(key, error)
      return undefined
    }
  }

  /** Runs a store operation; returns `otherwise` if the store is away or fails. `tags` are those whose names it needs in addition to those of the key. */
  async #attempt<R, E = undefined>(key: string, work: () => Promise<R>, otherwise?: E, tags: readonly string[] = []): Promise<R | E> {
    if (this.#breaker.isOpen) return otherwise as E
    try {
      return await within(work(), this.#timeout)
    } catch (error) {
      this.#unavailable(key, tags, error)
      return otherwise as E
    }
  }

  async #text(command: string, ...args: (string | number)[]): Promise<string | null> {
    const answer = await this.#send(command, ...args)
    return answer === null ? null : String(answer)
  }

  #unavailable(key: string, tags: readonly string[], error: unknown): void {
    if (!isAnswer(error)) {
      this.#unanswered = { key, tags }
      this.#breaker.open()
    }
    this.#failed(key, error)
  }

  /** Checks every name that a look-up needs, and so, in a cluster, each node that holds one. EXISTS costs the same for values of any length. */
  async #probe(): Promise<void> {
    const { key, tags } = this.#unanswered
    const ofTags = tags.map((tag) => this.#tagName(tag))
    const names = [this.#name(key), this.#versionName(key), this.#lockName(key), this.#lastDeletionName, ...ofTags]
    try {
      await within(Promise.all(names.map((name) => this.#send('EXISTS', name))), this.#timeout)
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
      // Errors of the application's callback are ignored.
    }
  }

  #tell(type: CacheAsideEvent['type'], key: string): void {
    try {
      this.#options.onEvent?.({ type, key })
    } catch {
      // Errors of the application's callback are ignored.
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
