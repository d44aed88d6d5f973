// The common parts of store and manager: connections, names, the purge log, and the records on the server.

import { EventEmitter } from 'node:events'
import { FormatError } from './bytes.js'
import type { CacheEntry, CacheKey } from './contract.js'
import { asError, StoreUnavailableError, within } from './errors.js'
import { Fleet, hasReached, type Reached } from './fleet.js'
import { Kind } from './frame.js'
import { cacheKeyOf, type Digest, digestOfKey, digestOfResponse, Names, originOf, pathOf, type Target, targetOf, urlOf } from './key.js'
import type { Link, LinkEvents } from './link.js'
import { PurgeLog } from './log.js'
import { clockAheadMsOf, ClusterNodes, type Nodes, SingleNode } from './nodes.js'
import type { CheckedConnection } from './options.js'
import { type Purged, type PurgeRecord, TAGS_MAX } from './purge-record.js'
import { decodeRecord, decodeRecordOf, encodeRecord, type LogCursor, type Response, type StoredRecord, type Variant, VARIANTS_MAX } from './record.js'
import { type Stored, storedOf } from './stored.js'
import { type Put, Tier } from './tier.js'
import { setTimeout } from './timers.js'

/** The location of the responses to a request. */
export interface Place {
  readonly target: Target
  readonly key: Buffer
  readonly digest: Digest
}

/** Methods whose responses undici stores. */
const METHODS = ['GET', 'HEAD', 'OPTIONS', 'TRACE'] as const
const TRIES_MAX = 10
const PAUSE_MS_MAX = 100
const TTL_MS_MAX = 10 * 365 * 24 * 3_600_000

export class SharedStore {
  readonly options: CheckedConnection
  readonly names: Names
  readonly log: PurgeLog
  readonly tier: Tier
  readonly fleet: Fleet
  readonly #nodes: Nodes
  #settling: Promise<void> | undefined

  constructor(
    options: CheckedConnection, tracking: boolean, events: LinkEvents, onPurges: (purges: readonly PurgeRecord[]) => void = () => undefined,
  ) {
    this.options = options
    this.names = new Names(options.prefix)
    const settings = { client: options.settings, tracking, timeoutMs: options.timeout }
    this.#nodes = options.cluster ? new ClusterNodes(options.cluster, settings, events) : new SingleNode(settings, events)
    this.log = new PurgeLog(this.#nodes, this.names, options.site, onPurges)
    this.tier = new Tier(this.#nodes, this.names, this.log)
    this.fleet = new Fleet(this.tier)
  }

  get nodes(): Nodes {
    return this.#nodes
  }

  hasLog(link: Link): boolean {
    return this.#nodes.links().includes(link) && this.#nodes.linkOf(this.names.log) === link
  }

  /** How far the clock of the store is ahead. */
  get clockAheadMs(): number {
    return clockAheadMsOf(this.#nodes)
  }

  /** Waits for the first connections, at most for the timeout. Later callers don't wait for an attempt that took longer. */
  settled(): Promise<void> {
    this.#settling ??= this.#settle()
    return this.#settling
  }

  async #settle(): Promise<void> {
    const settled = this.#nodes.settled().finally(() => { this.#settling = undefined })
    await within(settled, this.options.timeout)
  }

  placeOf({ origin, path, method }: Pick<CacheKey, 'origin' | 'path' | 'method'>): Place {
    const target = targetOf(origin, path)
    const key = cacheKeyOf(this.options.site, target, method)
    return { target, key, digest: digestOfKey(key) }
  }

  /** The places of a URL for all methods. */
  placesOf(origin: string, path: string): Place[] {
    return METHODS.map((method) => this.placeOf({ origin, path, method }))
  }

  /** Decodes a record; `undefined` if the bytes can't be used. */
  decode(place: Pick<Place, 'key'>, bytes: Buffer): StoredRecord | undefined {
    try {
      return decodeRecordOf(place.key, bytes, Kind.Primary)
    } catch (error) {
      if (error instanceof FormatError) return undefined
      throw error
    }
  }

  stored(variant: Variant, response: Response): Stored | undefined {
    return storedOf(variant, response, this.options.cacheTagsHeader, this.clockAheadMs)
  }

  /** The variants of a record, with the separately stored responses that exist loaded. */
  async loadApart(key: Buffer, variants: readonly Variant[]): Promise<Variant[]> {
    const apart = variants.filter(({ response }) => response === undefined)
    const found = await this.tier.loadMany(apart.map(({ id }) => digestOfResponse(id)))
    const loaded = new Map(apart.map(({ id }, at) => [id, found[at] ? variantIn(key, id, found[at]) : undefined] as const))
    return variants.map((variant) => loaded.get(variant.id) ?? variant)
  }

  /** Stores responses, the newest first, next to those of others in the record. They replace those that answer the same requests. */
  async publish(place: Place, own: readonly Variant[], deleteAt: number, hint: 'absent' | 'unknown'): Promise<void> {
    const ttlMs = ttlMsOf(deleteAt)
    if (hint === 'absent' && await this.#publishWhereNone(place, own, ttlMs)) return
    let before: ReadonlySet<string> | undefined
    for (let tries = 0; tries < TRIES_MAX; tries++) {
      const found = await this.tier.loadWithTtl(place.digest)
      const theirs = found.bytes === undefined ? [] : this.#readable(place, found.bytes)
      if (theirs === 'leave') return
      before ??= new Set(theirs.map(({ id }) => id))
      const left = own.filter((variant) => !theirs.some((their) => isInstead(their, variant, before!)))
      if (left.length === 0) return
      const isDone = found.bytes === undefined
        ? await this.#publishWhereNone(place, left, ttlMs)
        : await this.#publishUpon(place, left, { theirs, bytes: found.bytes }, Math.max(ttlMs, found.ttlMs))
      if (isDone) return
      await pauseAfter(tries)
    }
    throw new Error('the record keeps changing: the response is not stored')
  }

  async #publishWhereNone(place: Place, own: readonly Variant[], ttlMs: number): Promise<boolean> {
    return this.tier.putWhereNone(place.digest, await this.#recordOf(place, own, ttlMs), ttlMs)
  }

  async #publishUpon(
    place: Place, own: readonly Variant[], { theirs, bytes }: { readonly theirs: readonly Variant[]; readonly bytes: Buffer }, ttlMs: number,
  ): Promise<boolean> {
    const kept = theirs.filter((their) => own.every((variant) => this.#staysBeside(variant, their)))
    const record = await this.#recordOf(place, [...own, ...kept].slice(0, VARIANTS_MAX), ttlMs)
    return this.tier.replace(place.digest, bytes, { bytes: record, ttlMs })
  }

  /** Encodes a record with the first response inside, and stores the others separately. */
  async #recordOf({ key }: Place, [first, ...others]: readonly Variant[], ttlMs: number): Promise<Buffer> {
    await this.#putApart(key, others, ttlMs)
    const listed = others.map((other) => ({ ...other, response: undefined }))
    return encodeRecord({ key, note: undefined, variants: [first!, ...listed] }, Kind.Primary)
  }

  /** The variants of a record; `'leave'` if a newer version wrote it, which is not to be changed. */
  #readable(place: Place, bytes: Buffer): readonly Variant[] | 'leave' {
    try {
      return decodeRecordOf(place.key, bytes, Kind.Primary).variants
    } catch (error) {
      if (!(error instanceof FormatError)) throw error
      return error.problem === 'version' ? 'leave' : []
    }
  }

  #staysBeside(own: Variant, their: Variant): boolean {
    if (their.id === own.id || isInPlaceOf(own, their)) return false
    if (their.response === undefined) return true
    const stored = this.stored(their, their.response)
    return stored !== undefined && stored.value.deleteAt > Date.now() && this.log.judge(stored, stored.log) !== 'purged'
  }

  async #putApart(key: Buffer, variants: readonly Variant[], ttlMs: number): Promise<void> {
    const inside = variants.filter(({ response }) => response !== undefined)
    await Promise.all(inside.map((variant) => {
      const bytes = encodeRecord({ key, note: undefined, variants: [variant] }, Kind.Response)
      return this.tier.put(digestOfResponse(variant.id), bytes, ttlMs)
    }))
  }

  /** Removes one response from a record, if it is there. */
  async removeResponse(digest: Digest, isIt: (variant: Variant) => boolean): Promise<void> {
    for (let tries = 0; tries < TRIES_MAX; tries++) {
      const { bytes, ttlMs } = await this.tier.loadWithTtl(digest)
      const record = bytes && decodeAny(bytes)
      const left = record?.variants.filter((variant) => !isIt(variant))
      if (!bytes || !record || !left || left.length === record.variants.length) return
      const put: Put | 'nothing' = left.length === 0
        ? 'nothing'
        : { bytes: encodeRecord({ ...record, variants: left }, Kind.Primary), ttlMs: Math.max(1, ttlMs) }
      if (await this.tier.replace(digest, bytes, put)) return
      await pauseAfter(tries)
    }
    throw new StoreUnavailableError('the record keeps changing: the response is not deleted')
  }

  /** Removes the responses of URLs for all methods, wherever they are kept. */
  async deleteUrls(keys: readonly Pick<CacheKey, 'origin' | 'path'>[]): Promise<Reached> {
    const places = keys.flatMap(({ origin, path }) => this.placesOf(origin, path))
    const urls = new Set(places.filter(({ target }) => target.scheme !== '').map(({ target }) => urlOf(target)))
    const purged = [...urls].map((url) => ({ url }))
    // The log can only contain whole URLs. A response without a scheme is removed, and the server notifies processes that keep a copy, but none confirms that
    // it has dropped the copy.
    const isAllPurged = places.every(({ target }) => target.scheme !== '')
    const removed = this.#remove(places)
    // A purged response isn't used, even if its removal fails.
    const [reached] = await Promise.all([this.#purge(purged), isAllPurged ? removed.catch(() => undefined) : removed])
    return { ...reached, isComplete: reached.isComplete && isAllPurged }
  }

  async #remove(places: readonly Place[]): Promise<void> {
    await this.#nodes.settled()
    await this.tier.remove(places.map(({ digest }) => digest))
  }

  /** Sends waiting purges, once there is a connection. */
  async sendPurges(): Promise<void> {
    this.log.suspect()
    await this.log.readOn()
  }

  /** Purges by tags within the site; a list within the list means all of its tags. */
  async deleteTags(tags: readonly (string | readonly string[])[]): Promise<Reached> {
    const { site } = this.options
    const lists = tags.filter((tag) => typeof tag !== 'string').map((list) => [...new Set(list)])
    const single = [...new Set([...tags.filter((tag) => typeof tag === 'string'), ...lists.filter(({ length }) => length === 1).flat()])]
    const any = Array.from({ length: Math.ceil(single.length / TAGS_MAX) }, (_, part) => single.slice(part * TAGS_MAX, (part + 1) * TAGS_MAX))
    const all = lists.filter(({ length }) => length > 1)
    return this.#purge([
      ...any.map((some): Purged => ({ selection: { tags: some, match: 'any', site } })),
      ...all.map((some): Purged => ({ selection: { tags: some, match: 'all', site } })),
    ])
  }

  /** Repeats the purge of another prefix, with its original time. */
  async repeat({ what, at }: PurgeRecord): Promise<void> {
    this.log.suspect()
    await this.#nodes.settled()
    await this.log.append(what, at, performance.now() + this.options.timeout)
  }

  /** Rejects if the store has not accepted the purges in time, and sends them later. Otherwise waits until all members of the fleet have read them. */
  async #purge(purges: readonly Purged[]): Promise<Reached> {
    if (purges.length === 0) return { isComplete: true, members: [] }
    // From now on, no response is used without checking the log.
    this.log.suspect()
    // A starting process has no connection yet, and connecting has its own time limit.
    await this.#nodes.settled()
    const { place, isInDoubt } = await within(this.#append(purges), this.options.timeout)
    const reached = await this.fleet.reach(place)
    return isInDoubt ? { ...reached, isComplete: false } : reached
  }

  /** Appends purges. The log is in doubt if it is shorter than a member has already read: then reports that it was read mean nothing. */
  async #append(purges: readonly Purged[]): Promise<{ place: LogCursor; isInDoubt: boolean }> {
    const endMs = performance.now() + this.options.timeout
    const said = await this.fleet.said(this.options.timeout / 2)
    const before = this.log.cursor
    const at = Date.now() + this.clockAheadMs
    const places = await Promise.all(purges.map((what) => this.log.append(what, at, endMs)))
    const place = places.at(-1)!
    return { place, isInDoubt: [...said, ...before ? [before] : []].some((read) => hasReached(read, place)) }
  }

  entryOf(digest: Digest, stored: Stored): CacheEntry {
    return {
      id: stored.customId ?? `${digest}-${stored.id}`,
      keyPrefix: this.options.prefix,
      origin: originOf(stored.target),
      path: pathOf(stored.target),
      method: stored.method,
      statusCode: stored.value.statusCode,
      headers: stored.value.headers,
      cacheTags: [...stored.tags].sort(),
      cachedAt: stored.value.cachedAt,
      staleAt: stored.value.staleAt,
      deleteAt: stored.value.deleteAt,
    }
  }

  report(error: unknown): void {
    try {
      this.options.errorCallback(asError(error))
    } catch {
      // Errors of the application's callback are ignored.
    }
  }

  close(): void {
    this.fleet.end()
    this.#nodes.close()
  }
}

/** An emitter whose listeners can't interrupt the emitting code. */
export class QuietEmitter extends EventEmitter {
  protected tell(event: string | symbol, ...values: unknown[]): void {
    try {
      if (event !== 'error' || this.listenerCount('error') > 0) this.emit(event, ...values)
    } catch {
      // An error of a listener isn't an error of the store.
    }
  }
}

/** The time to live on the server of a response that is deleted at `deleteAt`: at least 1 ms, and within the limit of the commands. */
export function ttlMsOf(deleteAt: number): number {
  return Math.min(TTL_MS_MAX, Math.max(1, Math.ceil(deleteAt - Date.now())))
}

/** Pauses for a random time, so that processes that change the same record don't collide again. */
function pauseAfter(tries: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, Math.random() * Math.min(PAUSE_MS_MAX, 2 ** (tries + 1))))
}

/** Whether a newer response replaces an older one: it answers the same requests, or the older one nominates no fields. */
export function isInPlaceOf(newer: Variant, older: Variant): boolean {
  if (older.nominated.length === 0) return true
  return JSON.stringify(newer.nominated) === JSON.stringify(older.nominated)
}

/** Whether another process's response to the same requests makes this one unnecessary: it is newer, or was stored after this write began. */
function isInstead(their: Variant, own: Variant, before: ReadonlySet<string>): boolean {
  return JSON.stringify(their.nominated) === JSON.stringify(own.nominated) && (!before.has(their.id) || isNewer(their, own))
}

/** Whether a response is newer, and was requested when at least the same purges were known. */
function isNewer({ response: their }: Variant, { response: own }: Variant): boolean {
  if (their?.log === undefined || own === undefined) return false
  return their.responseTime > own.responseTime && their.log.id === own.log?.id && their.log.offset >= own.log.offset
}

export function decodeAny(bytes: Buffer): StoredRecord | undefined {
  try {
    return decodeRecord(bytes, Kind.Primary)
  } catch {
    return undefined
  }
}

function variantIn(key: Buffer, id: string, bytes: Buffer): Variant | undefined {
  try {
    return decodeRecordOf(key, bytes, Kind.Response).variants.find((variant) => variant.id === id)
  } catch {
    return undefined
  }
}
