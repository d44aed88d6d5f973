// Management of stored responses outside requests: listings, deletions and events.

import { assertCacheKey, type CacheEntry, type CacheKey } from './contract.js'
import { asError } from './errors.js'
import type { Reached } from './fleet.js'
import { escapeRegExp } from './key.js'
import type { Link } from './link.js'
import { type EntryFilter, type Found, Listings, prefixIn } from './listings.js'
import { checkConnection, type CheckedConnection, type ConnectionOptions } from './options.js'
import type { PurgeRecord } from './purge-record.js'
import { QuietEmitter, SharedStore } from './shared-store.js'
import { clearTimeout, setTimeout } from './timers.js'

export interface LarderCacheManagerOptions extends ConnectionOptions {
  /** Whether `subscribe` may turn on keyspace events by `CONFIG SET`. Managed servers have settings of their own for them. @default true */
  clientConfigKeyspaceEventNotify?: boolean
  /**
   * `'all'`: events and `getDependentEntries` cover all prefixes on the server, and while subscribed, tags deleted under one prefix are deleted under the
   * others too. @default 'own'
   */
  prefixes?: 'own' | 'all'
}

const PURGES = Symbol('purges')
const NEEDED_EVENTS = 'AKE'
const KEY_EVENTS = ['set', 'del', 'expired', 'evicted', 'append'] as const
const AGAIN_MS = 200
/** Limit of records remembered for `delete-entry` events. */
const KNOWN_MAX = 100_000
/** Limit of prefixes, each of which has its own connection. */
const PREFIXES_MAX = 100

/**
 * Lists, deletes and watches stored responses.
 *
 * Events: `add-entry` with an entry, `delete-entry` with `{ id, keyPrefix }`, both after `subscribe`; and `error`.
 */
export class LarderCacheManager extends QuietEmitter {
  readonly #options: CheckedConnection
  readonly #mayConfigure: boolean
  readonly #prefixes: 'own' | 'all'
  readonly #shared: SharedStore
  readonly #listings: Listings
  /** Managers of other prefixes. */
  readonly #others = new Map<string, LarderCacheManager>()
  readonly #known = new Map<string, readonly Found[]>()
  readonly #listening = new Set<() => void>()
  #subscribing: Promise<void> | undefined
  #working: Promise<void> = Promise.resolve()
  /** Deletions of tags that are being repeated under other prefixes. */
  #repeating: Promise<unknown> = Promise.resolve()
  #isListening = false
  #closed = false

  constructor(opts: LarderCacheManagerOptions = {}) {
    super()
    const { clientConfigKeyspaceEventNotify = true, prefixes = 'own', ...connection } = opts
    this.#options = checkConnection({ ...connection, errorCallback: opts.errorCallback ?? ((error) => this.tell('error', error)) })
    this.#mayConfigure = clientConfigKeyspaceEventNotify
    this.#prefixes = prefixes
    this.#shared = new SharedStore(this.#options, false, {
      changed: () => undefined,
      up: (link) => this.#connected(link),
      down: (_link, reason) => this.#shared.report(reason),
    }, (purges) => this.tell(PURGES, this.#options.prefix, purges))
    this.#listings = new Listings(this.#shared)
    this.on(PURGES, (prefix: string, purges: readonly PurgeRecord[]) => this.#repeat(prefix, purges))
  }

  /** All usable stored responses. Scans all names on the servers. A `*` in the prefix matches any text. */
  async *entries(filter?: EntryFilter, prefix?: string): AsyncGenerator<CacheEntry> {
    for (const manager of await this.#matching(prefix)) yield* manager.#listings.entries(filter)
  }

  /** Calls `callback` with each of `entries`. */
  async streamEntries(callback: (entry: CacheEntry) => unknown, prefix?: string): Promise<void> {
    for await (const entry of this.entries({}, prefix)) await callback(entry)
  }

  /** The tags of all stored responses. */
  async getTags(prefix?: string): Promise<string[]> {
    const tags = await Promise.all((await this.#matching(prefix)).map((manager) => manager.#listings.tags()))
    return [...new Set(tags.flat())].sort()
  }

  /** The body of a response as text. */
  getResponseById(id: string, prefix?: string): Promise<string | null> {
    return this.#of(prefix).#listings.responseById(id)
  }

  /** The other entries that have all tags of this one. undici-cache-redis deletes them along with it. */
  async getDependentEntries(id: string, prefix?: string): Promise<CacheEntry[]> {
    const tags = (await this.#of(prefix).#listings.find(id))?.entry.cacheTags ?? []
    const entries: CacheEntry[] = []
    if (tags.length === 0) return entries
    for await (const entry of this.entries({ tags }, this.#prefixes === 'all' ? '*' : prefix)) {
      if (entry.id !== id) entries.push(entry)
    }
    return entries
  }

  /** Removes responses by their ids in `entries` and events. */
  deleteIds(ids: readonly string[], prefix?: string): Promise<void> {
    return this.#of(prefix).#listings.deleteIds(ids)
  }

  /** Removes the responses of URLs for all methods. Deletions wait and reject like those of the store. */
  async deleteKeys(keys: readonly Pick<CacheKey, 'origin' | 'path' | 'method'>[], prefix?: string): Promise<Reached> {
    keys.forEach(assertCacheKey)
    return this.#of(prefix).#shared.deleteUrls(keys)
  }

  /** Removes responses with any of these tags; a list within the list means all of its tags. */
  deleteTags(tags: readonly (string | readonly string[])[], prefix?: string): Promise<Reached> {
    return this.#of(prefix).#shared.deleteTags(tags)
  }

  /** Removes responses with this tag, or with all tags of a list. */
  deleteTag(tag: string | readonly string[], prefix?: string): Promise<Reached> {
    return this.deleteTags([tag], prefix)
  }

  /** Starts the events `add-entry` and `delete-entry`. May be called again if it failed. */
  async subscribe(): Promise<void> {
    this.#subscribing ??= this.#subscribe().catch((error: unknown) => {
      this.#subscribing = undefined
      throw error
    })
    return this.#subscribing
  }

  /** Closes all connections. */
  async close(): Promise<void> {
    this.#closed = true
    for (const end of this.#listening) end()
    await this.#working
    this.#shared.close()
    await Promise.all([...this.#others.values()].map((other) => other.close()))
  }

  #connected(link: Link): void {
    if (this.#shared.hasLog(link)) this.#shared.sendPurges().catch((error: unknown) => this.#shared.report(error))
  }

  #of(prefix: string | undefined): LarderCacheManager {
    if (!prefix || prefix === this.#options.prefix) return this
    const known = this.#others.get(prefix)
    if (known !== undefined) return known
    if (this.#others.size >= PREFIXES_MAX) throw new RangeError(`a manager supports at most ${PREFIXES_MAX} prefixes`)
    const other = new LarderCacheManager({ ...this.#openOptions(), prefix })
    for (const event of ['add-entry', 'delete-entry', PURGES]) other.on(event, (...values: unknown[]) => this.tell(event, ...values))
    this.#others.set(prefix, other)
    return other
  }

  /** The managers of the prefixes that a pattern matches, once pending deletions are repeated under all of them. */
  async #matching(prefix: string | undefined): Promise<LarderCacheManager[]> {
    if (!prefix?.includes('*')) return [this.#of(prefix)]
    const pattern = new RegExp(`^${prefix.split('*').map(escapeRegExp).join('.*')}$`, 's')
    const managers = (await this.#listings.prefixes()).filter((one) => pattern.test(one)).map((one) => this.#of(one))
    await Promise.all(managers.map((manager) => manager.#listings.inStep()))
    await this.#repeating
    return managers
  }

  /** Repeats deletions of tags under other prefixes that have older responses with them. A repeated deletion finds none, so the repetition ends. */
  #repeat(prefix: string, purges: readonly PurgeRecord[]): void {
    if (!this.#isListening || this.#prefixes === 'own') return
    const others = [this, ...this.#others.values()].filter((other) => other.#options.prefix !== prefix)
    const repeated = purges.flatMap((purge) => others.filter((other) => other.#hasOlder(purge)).map((other) => other.#shared.repeat(purge)))
    this.#repeating = Promise.all([this.#repeating, ...repeated]).catch((error: unknown) => this.tell('error', asError(error)))
  }

  #hasOlder({ what, at }: PurgeRecord): boolean {
    if (what === 'everything' || 'url' in what || what.selection.tags.length === 0) return false
    const { tags, match } = what.selection
    const takes = (own: readonly string[]): boolean => match === 'all' ? tags.every((tag) => own.includes(tag)) : tags.some((tag) => own.includes(tag))
    const isOlder = ({ stored }: Found): boolean => stored.value.cachedAt + this.#shared.clockAheadMs <= at && takes(stored.tags)
    return [...this.#known.values()].some((found) => found.some(isOlder))
  }

  #openOptions(): LarderCacheManagerOptions {
    const { given, cluster, site, cacheTagsHeader, timeout, errorCallback } = this.#options
    return {
      ...given, site, timeout, errorCallback,
      ...cluster === undefined ? {} : { cluster },
      ...cacheTagsHeader === undefined ? {} : { cacheTagsHeader },
    }
  }

  async #subscribe(): Promise<void> {
    await this.#shared.settled()
    await Promise.all(this.#shared.nodes.links().map((link) => this.#listen(link)))
    for (const manager of await this.#matching(this.#prefixes === 'all' ? '*' : undefined)) await manager.#rememberAll()
    this.#isListening = true
  }

  async #rememberAll(): Promise<void> {
    for await (const found of this.#listings.all()) this.#remember(found.digest, [...this.#known.get(found.digest) ?? [], found])
  }

  async #listen(link: Link): Promise<void> {
    if (this.#mayConfigure) await this.#turnEventsOn(link)
    const channels = KEY_EVENTS.map((event) => `__keyevent@${link.database}__:${event}`)
    const end = await link.listen(channels, (channel, name) => this.#heard(channel, name), () => this.#listenAgain(link, end))
    this.#listening.add(end)
  }

  #listenAgain(link: Link, ended: () => void): void {
    this.#listening.delete(ended)
    if (this.#closed) return
    const pause = (): void => {
      const timer = setTimeout(() => {
        this.#listening.delete(stop)
        this.#listen(link).catch(() => this.#closed || pause())
      }, AGAIN_MS)
      const stop = (): void => clearTimeout(timer)
      this.#listening.add(stop)
    }
    pause()
  }

  async #turnEventsOn(link: Link): Promise<void> {
    const [setting] = await link.ask([['CONFIG', 'GET', 'notify-keyspace-events']])
    const events = String((setting as unknown[])[1] ?? '')
    if (/E/.test(events) && /A/.test(events)) return
    await link.ask([['CONFIG', 'SET', 'notify-keyspace-events', NEEDED_EVENTS]])
  }

  /** Handles one event after another, in the order of arrival. */
  #heard(channel: string, name: string): void {
    this.#working = this.#working.then(() => this.#lookAt(channel, name)).catch((error: unknown) => this.tell('error', asError(error)))
  }

  async #lookAt(channel: string, name: string): Promise<void> {
    const owner = this.#owner(name)
    if (owner !== undefined) await owner.#look(channel, name)
  }

  /** The manager of the prefix in a name, if events of that prefix are reported. */
  #owner(name: string): LarderCacheManager | undefined {
    if (this.#prefixes === 'own') return this
    const prefix = prefixIn(name) ?? (name.endsWith('log') ? name.slice(0, -'log'.length) : undefined)
    if (prefix === undefined || prefix === this.#options.prefix) return this
    return prefixIn(name) === undefined ? this.#others.get(prefix) : this.#of(prefix)
  }

  async #look(channel: string, name: string): Promise<void> {
    if (this.#closed) return
    if (name === this.#shared.names.log) return this.#lookForPurged()
    const digest = this.#shared.names.digestIn(name)
    if (digest === undefined) return
    const isThere = channel.endsWith(':set')
    this.#compare(digest, isThere ? await this.#listings.inRecord(digest) : [])
  }

  async #lookForPurged(): Promise<void> {
    const { log } = this.#shared
    log.suspect()
    await log.readOn()
    for (const [digest, found] of this.#known) {
      const left = found.filter(({ stored }) => log.judge(stored, stored.log) !== 'purged')
      if (left.length < found.length) this.#compare(digest, left)
    }
  }

  #compare(digest: string, found: readonly Found[]): void {
    const before = this.#known.get(digest) ?? []
    this.#remember(digest, found)
    const isIn = (list: readonly Found[], id: string): boolean => list.some((one) => one.entry.id === id)
    for (const { entry } of found) if (!isIn(before, entry.id)) this.tell('add-entry', entry)
    for (const { entry } of before) if (!isIn(found, entry.id)) this.tell('delete-entry', { id: entry.id, keyPrefix: entry.keyPrefix })
  }

  #remember(digest: string, found: readonly Found[]): void {
    this.#known.delete(digest)
    if (found.length > 0) this.#known.set(digest, found)
    if (this.#known.size > KNOWN_MAX) this.#known.delete(this.#known.keys().next().value!)
  }
}
