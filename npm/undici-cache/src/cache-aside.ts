// The cache-aside pattern, for values that are no HTTP responses: get, or load and keep. One load per key across all processes, stale values while one is
// loaded anew, and misses that are remembered. A store that fails costs nothing but the load: one look-up waits for an answer, and those that follow don't.

import { randomBytes } from 'node:crypto'
import { AsideMemory } from './aside-memory.js'
import { Breaker } from './breaker.js'
import { type RedisClientLike, type Send, senderOf } from './client.js'
import { asError, isAnswer, StoreUnavailableError, within } from './errors.js'
import { setImmediate, setTimeout } from './timers.js'

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
  /** How long it is remembered in this process that `load` has thrown, in milliseconds: the error is thrown again without another load. @default 0 */
  errorTtl?: number
  /** Keeps values in this process too. @default they are only in the store */
  memory?: CacheAsideMemory
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

/** Of values that are kept in this process. */
export interface CacheAsideMemory {
  /**
   * How long a value is given without a question, in milliseconds. For so long, this process may give a value that another one has deleted; its own deletions
   * take effect at once.
   */
  ttl: number
  /** @default 10,000 */
  maxCount?: number
  /** Bytes. @default 32 MiB */
  maxSize?: number
}

/** What differs for one value. */
export interface CacheAsideValueOptions {
  /** How long it is fresh, in milliseconds, in the place of the `ttl` of all. */
  ttl?: number
  /** Its tags, beside those that `tags` of all gives it. */
  tags?: readonly string[]
}

export interface CacheAsideWrapOptions<A extends readonly unknown[]> extends CacheAsideValueOptions {
  /** The key of a call. @default the name of the function, and its arguments as JSON */
  key?: (...args: A) => string
}

export interface CacheAsideEvent {
  /** `memory`: from this process. `failed`: an error is thrown again. `away`: the store has not answered before, so it wasn't asked. */
  readonly type: 'memory' | 'failed' | 'hit' | 'stale' | 'negative' | 'miss' | 'away' | 'load' | 'wait' | 'error'
  readonly key: string
}

export interface CacheAside<T> {
  /** The value of a key: the one that is kept, or what `load` gives. What `load` throws is thrown. No two callers get the same object. */
  get(key: string, load: (key: string) => Promise<T | undefined>, options?: CacheAsideValueOptions): Promise<T | undefined>
  /** The values of several keys, by key. `load` gets those that are missing, in as few calls as possible, and gives what it finds. */
  getMany(keys: readonly string[], load: (keys: readonly string[]) => Promise<ReadonlyMap<string, T>>, options?: CacheAsideValueOptions): Promise<Map<string, T>>
  /** Whether a value is kept that `get` would give without a load before. */
  has(key: string): Promise<boolean>
  /** Keeps a value in the place of the one that is kept or being loaded; `undefined` is a miss to remember. Rejects as `delete` does. */
  set(key: string, value: T | undefined, options?: CacheAsideValueOptions): Promise<void>
  /** A function whose results are kept. */
  wrap<A extends readonly unknown[]>(load: (...args: A) => Promise<T | undefined>, options?: CacheAsideWrapOptions<A>): (...args: A) => Promise<T | undefined>
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
  /** How many deletions of this process had begun. */
  readonly begun: number
}

interface Versions {
  readonly version: string | null
  readonly lastDeletion: string | null
  readonly ofTags: readonly (string | null)[]
}

const POLL_MS = 20
/** Errors that are remembered. */
const ERRORS_MAX = 1000
/** Longer than any value stays: a value is valid only while the versions of its tags are there. */
const TAG_TTL_MS = 30 * 24 * 3_600_000
/** Ends the version of a tag that no deletion has made. */
const MADE = ' made'

/** Values that aren't HTTP responses: get, or load and keep, with one load per key across all processes. */
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

/** The version of a tag may be new because a deletion was evicted, so it counts as one if any tag was deleted since the load began. */
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

/** Loads together what is asked for in one turn of the event loop. It waits for nothing else, such as a key that another process loads. */
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
  /** What the store was asked for in vain last. */
  #unanswered: { readonly key: string, readonly tags: readonly string[] } = { key: '', tags: [] }
  readonly #memory: AsideMemory | undefined
  readonly #errors = new Map<string, { readonly error: unknown; readonly endMs: number }>()
  /** How many deletions of this process the store has taken. */
  #deletions = 0
  /** How many have begun: what was asked for before is not remembered. */
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

  /** A new version makes what is there or being loaded invalid, as a deletion does. */
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

  /** A value of the caller's own, from this process. */
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

  /** Without its version, no value of the key is valid, not even one that is being loaded. Without the lock, nobody waits for that load. */
  async delete(key: string): Promise<void> {
    const names = [this.#versionName(key), this.#name(key), this.#lockName(key)]
    try {
      await this.#deletion(key, [], () => Promise.all(names.map((name) => this.#send('UNLINK', name))))
    } finally {
      this.#loads.delete(key)
    }
  }

  /** Values name the version that their tags had, so that nobody has to look for them. */
  async deleteTag(tag: string): Promise<void> {
    await this.#deletion(tag, [tag], async () => {
      const setLast = this.#send('SET', this.#lastDeletionName, randomVersion(), 'PX', TAG_TTL_MS)
      const [time] = await Promise.all([this.#storeTime(tag), setLast])
      await this.#send('SET', this.#tagName(tag), `${time} ${randomVersion()}`, 'PX', TAG_TTL_MS)
    })
  }

  /** Who deletes something is to know that it may still be there. */
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

  /** A caller that joined a load may have asked after the deletion that made the load outdated, so it asks again. */
  async #loadOnce(key: string, load: (key: string) => Promise<T | undefined>, own: CacheAsideValueOptions): Promise<T | undefined> {
    const joined = this.#loads.get(key)
    if (joined === undefined) return (await this.#startLoad(key, load, own)).value
    const { value, isOutdated } = await joined
    return isOutdated ? this.get(key, load, own) : this.#copyOf(value)
  }

  /** As others get it from the store. What has no serialized form is not kept, and all get the same. */
  #copyOf(value: T | undefined): T | undefined {
    if (typeof value !== 'object' || value === null) return value
    const { serialize = JSON.stringify, parse = parseJson } = this.#options
    try {
      return parse(Buffer.from(serialize(value) as string)) as T
    } catch {
      return value
    }
  }

  /** Nobody joins once the value is loaded: it is compared with the deletions before that only. */
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

  /** Of all processes, one loads. */
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
      // Of a load that began while the store was away, only the deletions of this process are known.
      const isOutdated = beginning === undefined ? deletions !== this.#deletions : !await this.#keep(key, value, beginning, own)
      return { value, isOutdated }
    } finally {
      if (lock !== 'unasked') await this.#freeLock(key, token)
    }
  }

  /** Taken too where the store doesn't answer: it may have the lock. */
  async #takeLock(key: string, token: string): Promise<Lock> {
    if (this.#breaker.isOpen) return 'unasked'
    const outcome = await this.#attempt(key, () => this.#text('SET', this.#lockName(key), token, 'PX', this.#loadTimeout, 'NX'), 'failed')
    return outcome === 'failed' || outcome === 'OK' ? 'taken' : 'held'
  }

  /** A store that is away is told too, but not waited for: once it is back, nobody is to wait for a load that has ended. */
  async #freeLock(key: string, token: string): Promise<void> {
    const free = async (): Promise<void> => {
      if (await this.#text('GET', this.#lockName(key)) === token) await this.#send('UNLINK', this.#lockName(key))
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

  /** `undefined` where the store can't be asked: then the value is not kept. */
  async #begin(key: string, own: CacheAsideValueOptions): Promise<Beginning | undefined> {
    const [askedAt, begun] = [performance.now(), this.#begun]
    const [startedAt, version, lastDeletion] = await this.#attempt(key, () => Promise.all([
      this.#storeTime(key),
      this.#ensureVersion(this.#versionName(key), randomVersion(), this.#staysMs(own)),
      this.#ensureVersion(this.#lastDeletionName, randomVersion(), TAG_TTL_MS),
    ])) ?? []
    return startedAt && version && lastDeletion ? { startedAt, askedAt, version, lastDeletion, begun } : undefined
  }

  /** How long a version stays: as long as the load and the value after it. */
  #staysMs({ ttl = this.#options.ttl }: CacheAsideValueOptions): number {
    const { staleWhileRevalidate = 0, negativeTtl = 0 } = this.#options
    return Math.ceil(Math.max(ttl + staleWhileRevalidate, negativeTtl) + this.#loadTimeout)
  }

  /** A store may evict a version. A new one is random, so that values with the old one don't become valid again. */
  async #ensureVersion(name: string, first: string, staysMs: number): Promise<string | null> {
    const [, , version] = await Promise.all([
      this.#send('SET', name, first, 'PX', staysMs, 'NX'), this.#send('PEXPIRE', name, staysMs), this.#text('GET', name),
    ])
    return version
  }

  /** The last deletion is asked for last: no tag was deleted before without a trace in it. */
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

  /** By the clock of the store, which all share; where it won't tell, all take their own. */
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

  /** Whether the store says that nothing was deleted since the load began; otherwise the value is not kept. */
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

  /** What was asked for before a deletion of this process may be what that was to delete. */
  #remember(key: string, bytes: Buffer, tags: readonly string[], begun: number): void {
    if (begun === this.#begun) this.#memory?.keep(key, bytes, tags)
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

  /** Of a cluster, each of the nodes is asked that has a name which a look-up needs. How long its value is makes no difference. */
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
