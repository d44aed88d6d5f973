// The servers that hold the keys: one server, or the masters of a Redis Cluster.

import type { RedisOptions } from 'iovalkey'
import type { ChangesSettings } from './changes.js'
import { StoreUnavailableError } from './errors.js'
import { Link, type LinkEvents, type LinkSettings } from './link.js'
import { clearTimeout, setTimeout } from './timers.js'

export interface NodeAddress {
  readonly host: string
  readonly port: number
}

/** The servers that hold the keys. */
export interface Nodes {
  /** Waits until the servers are known, or known to be unreachable. */
  settled(): Promise<void>
  linkOf(name: string): Link
  links(): Link[]
  /** Finds the servers again, after a reply that keys have moved. */
  moved(): Promise<void>
  close(): void
}

/** How far the clock of the store is ahead. */
export function clockAheadMsOf(nodes: Nodes): number {
  return nodes.links()[0]?.clockAheadMs ?? 0
}

export type NodeSettings = Omit<LinkSettings, 'changes'>

const ON_ONE_SERVER: ChangesSettings = { connectionsMax: 1, groupOf: () => undefined }
/** A transaction in a cluster is limited to one slot. */
const IN_CLUSTER: ChangesSettings = { connectionsMax: 4, groupOf: slotOf }

export class SingleNode implements Nodes {
  readonly #link: Link

  constructor(settings: NodeSettings, events: LinkEvents) {
    this.#link = new Link({ ...settings, changes: ON_ONE_SERVER }, events)
  }

  settled(): Promise<void> {
    return this.#link.settled()
  }

  linkOf(): Link {
    return this.#link
  }

  links(): Link[] {
    return [this.#link]
  }

  moved(): Promise<void> {
    return Promise.resolve()
  }

  close(): void {
    this.#link.close()
  }
}

interface SlotRange {
  readonly first: number
  readonly last: number
  readonly link: Link
}

interface Master {
  readonly first: number
  readonly last: number
  readonly address: NodeAddress
}

const SLOTS = 16_384
const TOPOLOGY_RETRY_MS = 200

export class ClusterNodes implements Nodes {
  readonly #settings: NodeSettings
  readonly #events: LinkEvents
  readonly #seeds: readonly NodeAddress[]
  readonly #links = new Map<string, Link>()
  #ranges: readonly SlotRange[] = []
  #reading: Promise<void> | undefined
  #retry: NodeJS.Timeout | undefined
  #closed = false

  constructor(seeds: readonly NodeAddress[], settings: NodeSettings, events: LinkEvents) {
    if (seeds.length === 0) throw new TypeError('expected cluster to name at least one node')
    this.#seeds = seeds
    this.#settings = settings
    this.#events = events
    void this.moved()
  }

  async settled(): Promise<void> {
    await this.#reading
    await Promise.all(this.links().map((link) => link.settled()))
  }

  linkOf(name: string): Link {
    const slot = slotOf(name)
    const range = this.#ranges.find(({ first, last }) => slot >= first && slot <= last)
    if (range === undefined) throw new StoreUnavailableError('no known node of the cluster holds this key')
    return range.link
  }

  links(): Link[] {
    return [...this.#links.values()]
  }

  moved(): Promise<void> {
    this.#reading ??= this.#readTopology().finally(() => {
      this.#reading = undefined
    })
    return this.#reading
  }

  close(): void {
    this.#closed = true
    clearTimeout(this.#retry)
    for (const link of this.#links.values()) link.close()
  }

  async #readTopology(): Promise<void> {
    for (const seed of [...this.#known(), ...this.#seeds]) {
      const masters = await this.#mastersBy(seed)
      if (this.#closed) return
      if (masters !== undefined) return this.#adopt(masters)
    }
    this.#retry = setTimeout(() => void this.moved(), TOPOLOGY_RETRY_MS).unref()
  }

  #known(): NodeAddress[] {
    return [...this.#links.keys()].map(addressOf)
  }

  /** The masters that a node reports; `undefined` if it doesn't answer. */
  async #mastersBy(seed: NodeAddress): Promise<Master[] | undefined> {
    const known = this.#links.get(nameOf(seed))
    const asked = known ?? new Link(this.#settingsFor(seed, false), SILENT)
    try {
      await asked.settled()
      const [slots] = await asked.ask([['CLUSTER', 'SLOTS']])
      return Array.isArray(slots) && slots.length > 0 ? slots.map((entry) => masterIn(entry, seed)) : undefined
    } catch {
      return undefined
    } finally {
      if (known === undefined) asked.close()
    }
  }

  #adopt(masters: readonly Master[]): void {
    const names = new Set(masters.map(({ address }) => nameOf(address)))
    for (const [name, link] of this.#links) {
      if (names.has(name)) continue
      link.close()
      this.#links.delete(name)
      this.#events.down(link, new StoreUnavailableError(`${name} is no longer a master of the cluster`))
    }
    this.#ranges = masters.map(({ first, last, address }) => ({ first, last, link: this.#linkTo(address) }))
  }

  #linkTo(address: NodeAddress): Link {
    const name = nameOf(address)
    const link = this.#links.get(name) ?? new Link(this.#settingsFor(address, this.#settings.tracking), this.#eventsOf())
    this.#links.set(name, link)
    return link
  }

  /** Reads the topology again if a master is lost, since another may have replaced it. */
  #eventsOf(): LinkEvents {
    const { changed, up, down } = this.#events
    return {
      changed: (names) => changed(names),
      up: (link) => up(link),
      down: (link, reason) => {
        down(link, reason)
        void this.moved()
      },
    }
  }

  #settingsFor({ host, port }: NodeAddress, tracking: boolean): LinkSettings {
    const client = async (): Promise<RedisOptions> => ({ ...await this.#settings.client(), host, port })
    return { ...this.#settings, client, tracking, changes: IN_CLUSTER }
  }
}

const SILENT: LinkEvents = { changed: () => undefined, up: () => undefined, down: () => undefined }

function nameOf({ host, port }: NodeAddress): string {
  return `${host}:${port}`
}

function addressOf(name: string): NodeAddress {
  const colon = name.lastIndexOf(':')
  return { host: name.slice(0, colon), port: Number(name.slice(colon + 1)) }
}

/** The master of a slot range in the reply to CLUSTER SLOTS. A node that doesn't know its own host has the host of the node that was asked. */
function masterIn(entry: unknown, seed: NodeAddress): Master {
  const [first, last, master] = entry as [number, number, [Buffer | null, number]]
  return { first, last, address: { host: String(master[0] ?? '') || seed.host, port: master[1] } }
}

/** The hash slot of a name: of its first hash tag in braces, or else of the whole name. */
export function slotOf(name: string): number {
  const open = name.indexOf('{')
  const close = open < 0 ? -1 : name.indexOf('}', open + 1)
  return crc16(Buffer.from(close > open + 1 ? name.slice(open + 1, close) : name)) % SLOTS
}

function crc16(bytes: Buffer): number {
  let crc = 0
  for (const byte of bytes) {
    crc ^= byte << 8
    for (let bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? ((crc << 1) ^ 0x1021) & 0xffff : (crc << 1) & 0xffff
  }
  return crc
}
