// Listings of stored responses, for managing the cache. Listings scan all keys on the servers, so they are never on the path of a request.

import type { CacheEntry } from './contract.js'
import type { Link } from './link.js'
import type { Variant } from './record.js'
import { decodeAny, type SharedStore } from './shared-store.js'
import type { Stored } from './stored.js'

export interface EntryFilter {
  id?: string
  origin?: string
  method?: string
  path?: string
  /** Entries with all of these tags. */
  tags?: readonly string[]
}

export interface Found {
  readonly digest: string
  readonly stored: Stored
  readonly entry: CacheEntry
}

const NAMES_AT_ONCE = 100
const ANY_RECORD = '*r:{*'
const OWN_ID = /^([0-9a-f]{32})-([0-9a-f]{32})$/

export class Listings {
  readonly #shared: SharedStore

  constructor(shared: SharedStore) {
    this.#shared = shared
  }

  async *entries(filter: EntryFilter = {}): AsyncGenerator<CacheEntry> {
    for await (const { entry } of this.all()) {
      if (isTaken(entry, filter)) yield entry
    }
  }

  async tags(): Promise<string[]> {
    const tags = new Set<string>()
    for await (const { entry } of this.all()) entry.cacheTags.forEach((tag) => tags.add(tag))
    return [...tags].sort()
  }

  /** The entries of one record. */
  async inRecord(digest: string): Promise<Found[]> {
    await this.#shared.settled()
    await this.#shared.log.readOn()
    return this.#inRecord(digest)
  }

  /** Reads the purge log to its end. */
  async inStep(): Promise<void> {
    await this.#shared.settled()
    await this.#shared.log.look()
    await this.#shared.log.readOn()
  }

  /** All prefixes that have records on the servers. */
  async prefixes(): Promise<string[]> {
    await this.#shared.settled()
    const prefixes = new Set<string>()
    for (const link of this.#shared.nodes.links()) {
      for await (const names of namesOn(link, ANY_RECORD)) {
        for (const prefix of names.map(prefixIn)) if (prefix !== undefined) prefixes.add(prefix)
      }
    }
    return [...prefixes]
  }

  async deleteIds(ids: readonly string[]): Promise<void> {
    for (const id of ids) {
      const found = await this.find(id)
      if (found !== undefined) await this.#shared.removeResponse(found.digest, (variant) => variant.id === found.stored.id)
    }
  }

  /** The body of a response as text; `null` if there is none. */
  async responseById(id: string): Promise<string | null> {
    const found = await this.find(id)
    if (found === undefined) return null
    const { content, completeBytes = 0 } = found.stored.body
    const body = Buffer.isBuffer(content) ? [content] : await this.#shared.tier.loadBody(content, completeBytes)
    return body ? Buffer.concat(body).toString('utf8') : null
  }

  /** Finds an entry by its id. A generated id contains the digest of the record; an id from the application takes a scan. */
  async find(id: string): Promise<Found | undefined> {
    await this.inStep()
    const digest = OWN_ID.exec(id)?.[1]
    if (digest !== undefined) return (await this.#inRecord(digest)).find(({ entry }) => entry.id === id)
    for await (const found of this.all()) {
      if (found.entry.id === id) return found
    }
    return undefined
  }

  async *all(): AsyncGenerator<Found> {
    await this.inStep()
    const { names } = this.#shared
    for (const link of this.#shared.nodes.links()) {
      for await (const some of namesOn(link, names.recordPattern())) {
        const digests = some.map((name) => names.digestIn(name)).filter((digest) => digest !== undefined)
        const found = await Promise.all(digests.map((digest) => this.#inRecord(digest)))
        yield* found.flat()
      }
    }
  }

  async #inRecord(digest: string): Promise<Found[]> {
    const [bytes] = await this.#shared.tier.loadMany([digest])
    const record = bytes && decodeAny(bytes)
    if (record === undefined) return []
    const variants = await this.#shared.loadApart(record.key, record.variants)
    return variants.flatMap((variant) => this.#foundIn(digest, variant))
  }

  #foundIn(digest: string, variant: Variant): Found[] {
    const stored = variant.response && this.#shared.stored(variant, variant.response)
    if (stored === undefined || stored.value.deleteAt <= Date.now()) return []
    if (this.#shared.log.judge(stored, stored.log) === 'purged') return []
    return [{ digest, stored, entry: this.#shared.entryOf(digest, stored) }]
  }
}

async function* namesOn(link: Link, pattern: string): AsyncGenerator<string[]> {
  let cursor = '0'
  do {
    const [answer] = await link.ask([['SCAN', cursor, 'MATCH', pattern, 'COUNT', NAMES_AT_ONCE]])
    const [next, names] = answer as [Buffer, Buffer[]]
    cursor = String(next)
    yield names.map(String)
  } while (cursor !== '0')
}

/** The prefix in the name of a record; `undefined` for any other name. */
export function prefixIn(name: string): string | undefined {
  return /^(.*)r:\{[0-9a-f]{32}\}$/s.exec(name)?.[1]
}

function isTaken(entry: CacheEntry, filter: EntryFilter): boolean {
  const isSame = (name: 'id' | 'origin' | 'method' | 'path'): boolean => filter[name] === undefined || filter[name] === entry[name]
  return isSame('id') && isSame('origin') && isSame('method') && isSame('path')
    && (filter.tags ?? []).every((tag) => entry.cacheTags.includes(tag))
}
