// The store behind undici's cache interceptor. Hits on copies are answered synchronously; other look-ups take one round trip, and a second one for a body too
// large for its record. Any failure is a miss.

import { randomBytes } from 'node:crypto'
import type { Writable } from 'node:stream'
import { type Body, INLINE_BYTES_MAX, SEGMENT_BYTES_MAX, type Segment } from './body.js'
import { hex16 } from './bytes.js'
import { assertCacheKey, assertCacheValue, type CacheEntry, type CacheKey, type CacheStore, type CacheValue, type GetResult, type VaryMap } from './contract.js'
import { Copies, type Copy, inlineBytesOf, type Loaded, type Slot, type SlotSource } from './copies.js'
import { tellError, tellLookUp, tellWrite } from './diagnostics.js'
import { EntryWriter } from './entry-writer.js'
import { StoreUnavailableError, within } from './errors.js'
import type { Reached } from './fleet.js'
import { isForAll, isForOthersThan } from './for-all.js'
import { mayBeForwarded, mayBePersonal } from './freshness.js'
import type { Digest, Target } from './key.js'
import { isForItsOrigin } from './key.js'
import { Listings, type EntryFilter } from './listings.js'
import type { Link } from './link.js'
import { Membership } from './membership.js'
import { type CheckedStore, checkStore, type LarderCacheStoreOptions } from './options.js'
import { TAGS_MAX } from './purge-record.js'
import type { LogCursor, Variant } from './record.js'
import { isInPlaceOf, type Place, QuietEmitter, SharedStore, ttlMsOf } from './shared-store.js'
import { matches, nominatedIn, variantOf } from './stored.js'
import { setImmediate } from './timers.js'
import { type Lease, type Outcome, Turns } from './turns.js'
import { Writes } from './writes.js'

/** The results of a look-up that a later write depends on. */
interface Asked {
  readonly cursor: LogCursor | undefined
  readonly hint: 'absent' | 'unknown'
}

/** A response to be written. */
interface Pending {
  readonly key: CacheKey
  readonly value: CacheValue
  readonly asked: Asked
  readonly body: readonly Buffer[]
}

interface Made {
  readonly pending: Pending
  readonly variant: Variant
  readonly segments: readonly Segment[]
}

interface Loading {
  readonly copy: Promise<Copy | undefined>
  isOutdated: boolean
}

/** `undefined`: the response has to be loaded first. */
type Answer = { readonly loaded: Loaded; readonly staleSince: number } | 'nothing' | undefined

/** A result from another process, or the turn to fetch one. */
export interface Turn {
  readonly result: GetResult | undefined
  release(outcome: Outcome): Promise<void>
}

const SMALL_CELL_BYTES = 65_536
/** Limit of all bodies that are being written or wait to be written. */
const WRITING_BYTES_MAX = 64 << 20
const CLOSE_MS = 1000

/**
 * A cache store for `interceptors.cache` and `larderCache`.
 *
 * Events: `write` with an entry, after a response is stored.
 */
export class LarderCacheStore extends QuietEmitter implements CacheStore {
  readonly #options: CheckedStore
  readonly #shared: SharedStore
  readonly #copies: Copies
  readonly #loads = new Map<string, Loading>()
  readonly #writes = new Writes<Pending>((batch) => this.#publishAll(batch))
  readonly #asked = new WeakMap<CacheKey, Asked>()
  /** Deletions by URL; those of the same tick are combined. */
  readonly #deleting = new Map<string, Promise<void>>()
  readonly #fills = new Fills()
  readonly #listings: Listings
  readonly #turns: Turns
  /** Set if the process keeps copies. Without copies, deletions needn't wait for it. */
  readonly #membership: Membership | undefined
  #writingBytes = 0
  #closed = false

  constructor(opts?: LarderCacheStoreOptions) {
    super()
    this.#options = checkStore(opts)
    this.#copies = new Copies(this.#options)
    this.#shared = new SharedStore(this.#options, this.#options.tracking, {
      changed: (names) => this.#changed(names),
      up: (link) => this.#connected(link),
      down: (_link, reason) => this.#lost(reason),
    })
    this.#listings = new Listings(this.#shared)
    this.#turns = new Turns(this.#shared)
    const { tracking, instance } = this.#options
    this.#membership = tracking ? new Membership(this.#shared, instance, (error) => this.#report(error)) : undefined
  }

  /** The number of copies in this process, and their size in bytes. */
  get local(): { readonly count: number; readonly size: number } {
    return { count: this.#copies.count, size: this.#copies.bytes }
  }

  /** The prefix of all names on the server. */
  get prefix(): string {
    return this.#options.prefix
  }

  /** Looks up the response to a request; synchronously if there is a local copy. Any failure is a miss. */
  get(key: CacheKey): GetResult | Promise<GetResult | undefined> | undefined {
    assertCacheKey(key)
    if (this.#closed || !isForItsOrigin(key.origin, key.headers?.host)) return undefined
    const text = textOf(key)
    const now = Date.now()
    const isCurrent = this.habits === 'undici-cache-redis' || this.#writes.of(text) === undefined
    const copy = isCurrent && this.#isInStep(now) ? this.#copies.get(text) : undefined
    const answer = copy && this.#answer(copy, key, now)
    if (answer === undefined) return this.#lookUp(text, key)
    const result = answer === 'nothing' ? undefined : resultOf(answer)
    this.noteAsked(key, result)
    tellLookUp(key, result, 'copy')
    return result
  }

  /**
   * The package whose behaviour applies beyond undici's contract.
   * @internal
   */
  protected get habits(): 'undici' | 'undici-cache-redis' {
    return 'undici'
  }

  /** Whether copies may be used without asking the store. */
  #isInStep(now: number): boolean {
    return this.#shared.log.isRead && this.#membership?.isWaitedFor(now) === true
  }

  /** Stores a response whose body is written to the returned stream; `undefined` if it may not be stored. */
  createWriteStream(key: CacheKey, value: CacheValue): Writable | undefined {
    assertCacheKey(key)
    assertCacheValue(value)
    if (this.#closed || value.cacheControlDirectives?.private === true || value.deleteAt <= Date.now()) return undefined
    if (!isForItsOrigin(key.origin, key.headers?.host)) return undefined
    if (mayBePersonal(key, value) || !isForOthersThan(key, value) || !isForAll(value.headers ?? {}, value.vary)) return undefined
    const asked = this.#asked.get(key) ?? { cursor: this.#shared.log.cursor, hint: 'unknown' }
    const text = textOf(key)
    return new EntryWriter(this.#options.maxEntrySize, (body) => this.#write(text, { key, value, asked }, body))
  }

  /**
   * Removes the responses of a URL for all methods, in all processes and gateways that share the store, and waits until they have done so. Rejects if the store
   * has not accepted the deletion within `timeout`: others may use the responses until it does.
   */
  delete(key: CacheKey): Promise<void> {
    assertCacheKey(key)
    // After an unsafe request, undici deletes each method of a URL separately, in the same tick.
    const url = `${key.origin}\n${key.path}`
    const begun = this.#deleting.get(url)
    if (begun !== undefined) return begun
    const deletion = this.#deletion(async () => void await this.#deleteUrls([key]))
    this.#deleting.set(url, deletion)
    queueMicrotask(() => this.#deleting.delete(url))
    return deletion
  }

  /** Removes only the response that answers this request. Other processes follow as soon as the server notifies them.
   * @internal
   */
  forget(key: CacheKey): Promise<void> {
    const { digest } = this.#shared.placeOf(key)
    this.#outdate(digest)
    return this.#deletion(async () => {
      await this.#shared.removeResponse(digest, ({ nominated }) => matches(nominatedIn(nominated), key.headers))
      this.#outdate(digest)
    })
  }

  /** Removes the responses of several URLs, as `delete` does, and reports which processes and gateways have dropped them. */
  deleteKeys(keys: readonly Pick<CacheKey, 'origin' | 'path' | 'method'>[]): Promise<Reached> {
    keys.forEach(assertCacheKey)
    return this.#deletion(() => this.#deleteUrls(keys))
  }

  /** Removes responses with any of these tags; a list within the list means all of its tags. Waits and rejects like `delete`. */
  deleteTags(tags: readonly (string | readonly string[])[]): Promise<Reached> {
    return this.#deletion(() => this.#shared.deleteTags(tags))
  }

  /** Removes responses with this tag, or with all tags of a list. */
  deleteTag(tag: string | readonly string[]): Promise<Reached> {
    return this.deleteTags([tag])
  }

  /** Removes responses by their ids in `entries` and the event `write`. Rejects if the store has not done so. Doesn't wait for other processes, which follow as
   * soon as the server notifies them.
   */
  deleteIds(ids: readonly string[]): Promise<void> {
    return this.#deletion(() => this.#listings.deleteIds(ids))
  }

  /** All usable stored responses that match the filter. Scans all names on the server. */
  entries(filter?: EntryFilter): AsyncGenerator<CacheEntry> {
    return this.#listings.entries(filter)
  }

  /** The tags of all stored responses. Scans all names on the server. */
  getTags(): Promise<string[]> {
    return this.#listings.tags()
  }

  /** Calls `callback` with each of `entries`. */
  async streamEntries(callback: (entry: CacheEntry) => unknown): Promise<void> {
    for await (const entry of this.entries()) await callback(entry)
  }

  /** The body of a response as text. */
  getResponseById(id: string): Promise<string | null> {
    return this.#listings.responseById(id)
  }

  /** Takes the turn to ask the origin, or returns a result that another process has fetched meanwhile. If the store fails, the request doesn't wait.
   * @internal
   */
  async takeTurn(key: CacheKey, isWanted: () => boolean = () => true): Promise<Turn> {
    const place = this.#shared.placeOf(key)
    const end = this.#turns.waitsUntil
    try {
      while (this.#turns.hasRoom && isWanted()) {
        const lease = await this.#turns.take(place)
        const result = lease === undefined ? await this.#afterOthers(place, key, end) : await this.get(key)
        if (lease === undefined && result === 'not-shared') return { result: undefined, release: () => Promise.resolve() }
        if (result === undefined && lease !== undefined) return { result, release: (outcome) => this.#release(lease, outcome) }
        if (lease !== undefined) await this.#turns.release(lease, 'stored')
        if (result !== undefined && result !== 'not-shared') return { result, release: () => Promise.resolve() }
      }
    } catch (error) {
      this.#report(error)
    }
    return { result: undefined, release: () => Promise.resolve() }
  }

  async #release(lease: Lease, outcome: Outcome): Promise<void> {
    if (!this.#closed) await this.#attempt(() => this.#turns.release(lease, outcome))
  }

  async #afterOthers(place: Place, key: CacheKey, end: number): Promise<GetResult | undefined | 'not-shared'> {
    const isShared = await this.#turns.wait(place, end)
    return isShared ? this.get(key) : 'not-shared'
  }

  /**
   * Waits until the pending writes of this key are done.
   * @internal
   */
  async writtenOf(key: CacheKey): Promise<Outcome> {
    // The stream of the body may end a moment after the response.
    await new Promise((resolve) => setImmediate(resolve))
    const writing = this.#writes.of(textOf(key))
    await writing
    return writing === undefined ? 'not-stored' : 'stored'
  }

  /** Notes a look-up with this key that was answered synchronously. If the request may still be forwarded, its response may be written later.
   * @internal
   */
  noteAsked(key: CacheKey, result: GetResult | undefined): void {
    if (result === undefined || mayBeForwarded(key, result)) this.#asked.set(key, { cursor: this.#shared.log.cursor, hint: 'unknown' })
  }

  /** Waits up to a second for pending writes, and closes all connections. */
  async close(): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    const written = this.#writes.all().then(() => this.#turns.releaseAll())
    await within(Promise.allSettled([written, this.#membership?.leave()]), CLOSE_MS).catch(() => undefined)
    this.#shared.close()
    this.#turns.changedAll()
    this.#copies.clear()
  }

  #report(error: unknown): void {
    if (this.#closed) return
    tellError(error)
    this.#shared.report(error)
  }

  async #attempt(work: () => Promise<unknown>): Promise<void> {
    try {
      await this.#shared.settled()
      await work()
    } catch (error) {
      this.#report(error)
    }
  }

  /** Runs a deletion. The promise rejects for callers that wait for it. undici doesn't wait, so the rejection is handled here too. */
  #deletion<T>(work: () => Promise<T>): Promise<T> {
    const deletion = this.#closed ? Promise.reject(new StoreUnavailableError('the store is closed')) : work()
    deletion.catch((error: unknown) => this.#report(error))
    return deletion
  }

  #changed(names: readonly string[] | undefined): void {
    if (names === undefined) return this.#distrust()
    for (const name of names) {
      const digest = this.#shared.names.digestIn(name)
      if (digest !== undefined) this.#toldOf(digest)
      else if (name === this.#shared.names.log) this.#logChanged()
    }
  }

  #toldOf(digest: Digest): void {
    this.#outdate(digest)
    this.#turns.changed(digest)
  }

  #logChanged(): void {
    this.#shared.log.suspect()
    this.#membership?.logChanged()
  }

  /** Sends waiting purges, and reads those of others before the next look-up. */
  #connected(link: Link): void {
    if (!this.#shared.hasLog(link)) return
    if (this.#membership !== undefined) return this.#membership.connected()
    this.#shared.sendPurges().catch((error: unknown) => this.#report(error))
  }

  #lost(reason: Error): void {
    this.#distrust()
    this.#report(reason)
  }

  /** Discards everything learned through the connections. */
  #distrust(): void {
    this.#shared.log.suspect()
    this.#copies.clear()
    for (const loading of this.#loads.values()) loading.isOutdated = true
    this.#loads.clear()
    this.#turns.changedAll()
  }

  #outdate(digest: Digest): void {
    this.#copies.drop(digest)
    const loading = this.#loads.get(digest)
    if (loading === undefined) return
    loading.isOutdated = true
    this.#loads.delete(digest)
  }

  async #lookUp(text: string, key: CacheKey): Promise<GetResult | undefined> {
    try {
      const result = await this.#find(text, key)
      tellLookUp(key, result, 'store')
      return result
    } catch (error) {
      this.#report(error)
      this.#asked.set(key, { cursor: this.#shared.log.cursor, hint: 'unknown' })
      tellLookUp(key, undefined, 'error')
      return undefined
    }
  }

  async #find(text: string, key: CacheKey): Promise<GetResult | undefined> {
    await this.#writes.of(text)
    await this.#shared.settled()
    const { log } = this.#shared
    await this.#inStep()
    const place = this.#shared.placeOf(key)
    const kept = this.#options.tracking ? this.#copies.get(text) : undefined
    const [copy] = await Promise.all([kept ?? this.#load(text, place), this.#options.tracking ? log.readOn() : undefined])
    await log.readOn()
    this.#asked.set(key, { cursor: log.cursor, hint: copy === undefined ? 'absent' : 'unknown' })
    return copy && this.#resolve(copy, place, key)
  }

  /** Reads the log before copies are used, if the other members don't wait for this process. */
  async #inStep(): Promise<void> {
    const membership = this.#membership
    if (membership === undefined || membership.isWaitedFor(Date.now())) return
    if (this.#shared.log.isReachable) await within(membership.settled(), this.#options.timeout).catch(() => undefined)
    if (!membership.isWaitedFor(Date.now())) this.#shared.log.suspect()
  }

  /**
   * Loads a record once for concurrent look-ups. Without copies, the server doesn't report later purges, so only look-ups of the same turn of the event loop
   * share a load.
   */
  #load(text: string, place: Place): Promise<Copy | undefined> {
    const joined = this.#loads.get(place.digest)
    if (joined !== undefined) return joined.copy
    const loading: Loading = { copy: this.#loadCopy(text, place), isOutdated: false }
    this.#loads.set(place.digest, loading)
    const ended = (copy: Copy | undefined): void => {
      if (this.#loads.get(place.digest) === loading) this.#loads.delete(place.digest)
      if (copy !== undefined && this.#options.tracking && !loading.isOutdated && !this.#closed) this.#copies.keep(copy)
    }
    loading.copy.then(ended, () => ended(undefined))
    if (!this.#options.tracking) process.nextTick(() => this.#loads.delete(place.digest))
    return loading.copy
  }

  async #loadCopy(text: string, place: Place): Promise<Copy | undefined> {
    const bytes = await this.#shared.tier.load(place.digest)
    const record = bytes && this.#shared.decode(place, bytes)
    if (record === undefined || record.variants.length === 0) return undefined
    const slots = inUse(record.variants).map(slotOf).sort((one, other) => other.nominated.size - one.nominated.size)
    const inside = record.variants.reduce((sum, { response }) => sum + inlineBytesOf(response), 0)
    return { text: flat(text), digest: place.digest, slots, headBytes: bytes!.length - inside, bytes: 0, wasUsed: false }
  }

  #answer(copy: Copy, key: CacheKey, now: number): Answer {
    for (const slot of copy.slots) {
      if (slot.loaded === null || !matches(slot.nominated, key.headers)) continue
      if (slot.loaded === undefined) return undefined
      const staleSince = this.#usableFrom(slot.loaded, now)
      if (staleSince !== undefined) return { loaded: slot.loaded, staleSince }
    }
    return 'nothing'
  }

  /** The time since which a purge makes the response stale, `Infinity` if none does; `undefined` if the response is unusable. */
  #usableFrom(loaded: Loaded, now: number): number | undefined {
    if (loaded.value.deleteAt <= now) return undefined
    const { log } = this.#shared
    if (loaded.checkedTo === log.cursor) return Infinity
    const verdict = log.judge(loaded, loaded.checkedTo)
    if (verdict === 'purged') return undefined
    if (verdict !== 'current') return verdict.staleSince - this.#shared.clockAheadMs
    loaded.checkedTo = log.cursor
    return Infinity
  }

  /** The answer to a request. Loads bodies and separately stored responses as needed. */
  async #resolve(copy: Copy, place: Place, key: CacheKey): Promise<GetResult | undefined> {
    for (const slot of copy.slots) {
      if (slot.source !== undefined && matches(slot.nominated, key.headers)) await this.#fillSlot(copy, slot, slot.source, place)
      const answer = this.#answer({ ...copy, slots: [slot] }, key, Date.now())
      if (answer !== undefined && answer !== 'nothing') return resultOf(answer)
    }
    return undefined
  }

  async #fillSlot(copy: Copy, slot: Slot, { id, response }: SlotSource, { key, target }: Place): Promise<void> {
    const nominated = [...slot.nominated]
    const [variant] = response ? [{ nominated, id, response }] : await this.#shared.loadApart(key, [{ nominated: [], id, response }])
    const loaded = variant?.response && await this.#loaded(variant, target)
    slot.loaded = loaded ?? null
    slot.source = undefined
    // The size of the copy has changed, so it is accounted for again.
    if (this.#copies.get(copy.text) === copy) this.#copies.keep(copy)
  }

  async #loaded(variant: Variant, target: Target): Promise<Loaded | undefined> {
    const stored = this.#shared.stored(variant, variant.response!)
    if (stored === undefined) return undefined
    const { content, completeBytes = 0 } = stored.body
    if (completeBytes >= this.#options.maxEntrySize) return undefined
    const found = Buffer.isBuffer(content) ? pieces(content) : await this.#shared.tier.loadBody(content, completeBytes)
    if (found === undefined) return undefined
    const body = stored.pieces.length > 0 ? cut(Buffer.concat(found), stored.pieces) : found
    const { value, tags, log } = stored
    return { value, target, tags, body: this.#options.tracking ? body.map(ownBytes) : body, checkedTo: log }
  }

  #write(text: string, { key, value, asked }: Omit<Pending, 'body'>, body: Buffer[] | undefined): Promise<void> {
    const bytes = body === undefined ? 0 : bytesIn(body)
    if (this.#closed || body === undefined || this.#writingBytes + bytes > WRITING_BYTES_MAX) return Promise.resolve()
    this.#writingBytes += bytes
    return this.#writes.add(text, { key, value, asked, body })
  }

  /** Writes a batch of responses, all of one record. */
  async #publishAll(batch: readonly Pending[]): Promise<void> {
    await this.#attempt(() => this.#publish(batch))
    for (const { body } of batch) this.#writingBytes -= bytesIn(body)
  }

  async #publish(batch: readonly Pending[]): Promise<void> {
    const place = this.#shared.placeOf(batch[0]!.key)
    const made = await Promise.all(batch.map((pending) => this.#variantOf(place, pending)))
    const newest = made.reverse().filter(({ variant }, at) => !made.slice(0, at).some((newer) => isInPlaceOf(newer.variant, variant)))
    const deleteAt = Math.max(...newest.map(({ pending }) => pending.value.deleteAt))
    const hint = newest.some(({ pending }) => pending.asked.hint === 'absent') ? 'absent' : 'unknown'
    this.#outdate(place.digest)
    try {
      await Promise.all(newest.map(({ segments }) => segments.length > 0 && this.#shared.tier.putSegments(segments, ttlMsOf(deleteAt))))
      await this.#shared.publish(place, newest.map(({ variant }) => variant), deleteAt, hint)
    } finally {
      this.#outdate(place.digest)
    }
    for (const { variant } of newest.reverse()) this.#tellWritten(place, variant)
  }

  async #variantOf({ target }: Place, pending: Pending): Promise<Made> {
    const { key, value, asked } = pending
    const log = asked.cursor ?? await this.#oldestPlace()
    const { body, segments } = this.#bodyOf(Buffer.concat(pending.body))
    const { cacheTagsHeader: tagsHeader } = this.#options
    const times = { now: Date.now(), clockAheadMs: this.#shared.clockAheadMs }
    const pieces = this.habits === 'undici-cache-redis' ? pending.body.map(({ length }) => length) : []
    const variant = variantOf({ id: this.#fills.next(), key, target, value, body, pieces, tagsHeader, log, ...times })
    return { pending, variant, segments }
  }

  #tellWritten({ digest }: Place, variant: Variant): void {
    const stored = this.#shared.stored(variant, variant.response!)
    if (stored === undefined) return
    const entry = this.#shared.entryOf(digest, stored)
    tellWrite(entry)
    this.tell('write', entry)
  }

  async #oldestPlace(): Promise<LogCursor | undefined> {
    await this.#shared.log.readOn()
    return this.#shared.log.oldestPlace
  }

  #bodyOf(bytes: Buffer): { body: Body; segments: Segment[] } {
    const state = 'complete'
    const completeBytes = bytes.length
    if (bytes.length <= INLINE_BYTES_MAX) return { body: { state, completeBytes, content: bytes }, segments: [] }
    const fill = this.#fills.next()
    const cellBytes = bytes.length <= SMALL_CELL_BYTES ? SMALL_CELL_BYTES : SEGMENT_BYTES_MAX
    const count = Math.ceil(bytes.length / cellBytes)
    const segments = Array.from({ length: count }, (_, index) => ({
      fill, index, cellBytes, data: bytes.subarray(index * cellBytes, (index + 1) * cellBytes),
    }))
    return { body: { state, completeBytes, content: { fill, cellBytes, runs: [{ first: 0, count }], fragments: [] } }, segments }
  }

  async #deleteUrls(keys: readonly Pick<CacheKey, 'origin' | 'path'>[]): Promise<Reached> {
    const digests = keys.flatMap(({ origin, path }) => this.#shared.placesOf(origin, path)).map(({ digest }) => digest)
    for (const digest of digests) this.#outdate(digest)
    if (this.habits === 'undici') return this.#shared.deleteUrls(keys)
    const found = await Promise.all(digests.map((digest) => this.#listings.inRecord(digest).catch(() => [])))
    const tags = found.flat().map(({ entry }) => entry.cacheTags.slice(0, TAGS_MAX))
    const [urls, tagged] = await Promise.all([this.#shared.deleteUrls(keys), this.#shared.deleteTags(tags)])
    return tags.length === 0 ? urls : { ...tagged, isComplete: urls.isComplete && tagged.isComplete }
  }
}

/** Unique ids of fills. */
class Fills {
  readonly #process = randomBytes(8).toString('hex')
  #sequence = 0n

  next(): string {
    this.#sequence += 1n
    return this.#process + hex16(this.#sequence)
  }
}

function textOf({ origin, path, method }: CacheKey): string {
  return `${method} ${origin}\n${path}`
}

function bytesIn(pieces: readonly Buffer[]): number {
  return pieces.reduce((sum, piece) => sum + piece.length, 0)
}

/** The variants in use. If the newest response nominates fields, the origin sent those without nominated fields before it did so (RFC 9111 section 4.1). */
function inUse(variants: readonly Variant[]): readonly Variant[] {
  const [newest] = variants
  return newest === undefined || newest.nominated.length === 0 ? variants : variants.filter(({ nominated }) => nominated.length > 0)
}

const NONE: ReadonlyMap<string, string | null> = new Map()

function slotOf({ id, nominated, response }: Variant): Slot {
  const source = { id, response }
  if (nominated.length === 0) return { nominated: NONE, source, loaded: undefined }
  const fields = new Map<string, string | null>()
  for (const [name, value] of nominated) {
    const before = fields.get(name)
    fields.set(name, before == null || value === null ? value : `${before}, ${value}`)
  }
  return { nominated: fields, source, loaded: undefined }
}

function pieces(body: Buffer): Buffer[] {
  return body.length === 0 ? [] : [body]
}

/** Splits a body into pieces of these lengths, and the rest. */
function cut(body: Buffer, lengths: readonly number[]): Buffer[] {
  let at = 0
  const cuts = lengths.map((length) => body.subarray(at, at += length))
  return [...cuts, body.subarray(at)].filter(({ length }) => length > 0)
}

/** Flattens a string: V8 keeps a concatenated string as its parts until it is copied. */
function flat(text: string): string {
  return Buffer.from(text).toString()
}

/** Copies a piece unless it fills its buffer: a reply is a slice of a read buffer of up to 64 KiB, which it would keep alive. */
function ownBytes(piece: Buffer): Buffer {
  if (piece.buffer.byteLength < 1.25 * piece.length) return piece
  const own = Buffer.allocUnsafeSlow(piece.length)
  piece.copy(own)
  return own
}

function resultOf({ loaded, staleSince }: Exclude<Answer, 'nothing' | undefined>): GetResult {
  const { value } = loaded
  return {
    statusCode: value.statusCode,
    statusMessage: value.statusMessage,
    headers: { ...value.headers },
    cachedAt: value.cachedAt,
    staleAt: Math.min(value.staleAt, staleSince),
    deleteAt: value.deleteAt,
    cacheControlDirectives: value.cacheControlDirectives,
    etag: value.etag as string,
    vary: value.vary as VaryMap,
    body: loaded.body.slice(),
  }
}
