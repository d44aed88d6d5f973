// What is stored, for those who manage it. Listings go through all names on the servers: never on the path of a request.

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
  /** Entries that have all of these. */
  tags?: readonly string[]
}

export interface Found {
  readonly digest: string
  readonly stored: Stored
  readonly entry: CacheEntry
}

const NAMES_AT_ONCE = 100
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

  /** Those of one record. */
  async inRecord(digest: string): Promise<Found[]> {
    await this.#shared.log.readOn()
    return this.#inRecord(digest)
  }

  /** Entries that have all tags of this one, and are not it; none where it has none. */
  async dependentOn(id: string): Promise<CacheEntry[]> {
    const tags = (await this.#find(id))?.entry.cacheTags ?? []
    const entries: CacheEntry[] = []
    if (tags.length === 0) return entries
    for await (const entry of this.entries({ tags })) {
      if (entry.id !== id) entries.push(entry)
    }
    return entries
  }

  async deleteIds(ids: readonly string[]): Promise<void> {
    for (const id of ids) {
      const found = await this.#find(id)
      if (found !== undefined) await this.#shared.removeResponse(found.digest, (variant) => variant.id === found.stored.id)
    }
  }

  /** Its body as text; `null` where there is none. */
  async responseById(id: string): Promise<string | null> {
    const found = await this.#find(id)
    if (found === undefined) return null
    const { content, completeBytes = 0 } = found.stored.body
    const body = Buffer.isBuffer(content) ? [content] : await this.#shared.tier.loadBody(content, completeBytes)
    return body ? Buffer.concat(body).toString('utf8') : null
  }

  /** The id says where it lies, unless its owner gave it. */
  async #find(id: string): Promise<Found | undefined> {
    await this.#shared.settled()
    await this.#shared.log.readOn()
    const digest = OWN_ID.exec(id)?.[1]
    if (digest !== undefined) return (await this.#inRecord(digest)).find(({ entry }) => entry.id === id)
    for await (const found of this.all()) {
      if (found.entry.id === id) return found
    }
    return undefined
  }

  async *all(): AsyncGenerator<Found> {
    await this.#shared.settled()
    await this.#shared.log.readOn()
    for (const link of this.#shared.nodes.links()) {
      for await (const digests of this.#digestsOn(link)) {
        const found = await Promise.all(digests.map((digest) => this.#inRecord(digest)))
        yield* found.flat()
      }
    }
  }

  async *#digestsOn(link: Link): AsyncGenerator<string[]> {
    let cursor = '0'
    do {
      const [answer] = await link.ask([['SCAN', cursor, 'MATCH', this.#shared.names.recordPattern(), 'COUNT', NAMES_AT_ONCE]])
      const [next, names] = answer as [Buffer, Buffer[]]
      cursor = String(next)
      yield names.map((name) => this.#shared.names.digestIn(String(name))).filter((digest) => digest !== undefined)
    } while (cursor !== '0')
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

function isTaken(entry: CacheEntry, filter: EntryFilter): boolean {
  const isSame = (name: 'id' | 'origin' | 'method' | 'path'): boolean => filter[name] === undefined || filter[name] === entry[name]
  return isSame('id') && isSame('origin') && isSame('method') && isSame('path')
    && (filter.tags ?? []).every((tag) => entry.cacheTags.includes(tag))
}
