// Changes that count only if nothing else has changed what they depend on: read under WATCH, then done by MULTI and EXEC, on connections of their own.
// Each takes two round trips, and so two turns of an event loop that may be busy. Those that wait are therefore done together.

import type { Redis } from 'iovalkey'
import { type Command, end, exec } from './commands.js'
import { asError, isOfNoMaster, StoreTimeoutError, within } from './errors.js'

export interface Change {
  readonly watched: readonly [string, ...string[]]
  readonly reads: readonly Command[]
  /** What to do, by what was read; nothing is fine, too. */
  readonly decide: (found: unknown[]) => readonly Command[]
}

export interface ChangesSettings {
  readonly connectionsMax: number
  /** Changes of one group may share a transaction. */
  readonly groupOf: (name: string) => unknown
}

interface Waiting extends Change {
  readonly settle: (outcome: Promise<boolean>) => void
}

/** The records that these read are 4 MiB at most. */
const TOGETHER_MAX = 64
const WAITING_MAX = 1000

export class Changes {
  readonly #settings: ChangesSettings
  readonly #open: (ended: () => void) => Promise<Redis>
  readonly #timeoutMs: number
  /** By group, in their order. */
  readonly #waiting = new Map<unknown, Waiting[]>()
  /** Groups of which changes are being made. */
  readonly #busy = new Set<unknown>()
  #waitingCount = 0
  readonly #connections = new Set<Connection>()

  /** `open` makes a connection, and tells when that has ended. */
  constructor(settings: ChangesSettings, timeoutMs: number, open: (ended: () => void) => Promise<Redis>) {
    this.#settings = settings
    this.#timeoutMs = timeoutMs
    this.#open = open
  }

  /** So many wait that those which can be left out should be. */
  get isFull(): boolean {
    return this.#waitingCount >= WAITING_MAX
  }

  /** False: something has changed in between. Nothing to do: true. */
  make(change: Change): Promise<boolean> {
    return new Promise((settle) => {
      const group = this.#settings.groupOf(change.watched[0])
      const queue = this.#waiting.get(group)
      if (queue === undefined) this.#waiting.set(group, [{ ...change, settle }])
      else queue.push({ ...change, settle })
      this.#waitingCount += 1
      // What is asked for in the same moment comes along.
      queueMicrotask(() => this.#start())
    })
  }

  /** Ends the connections, and the changes that are being made. */
  drop(): void {
    for (const connection of this.#connections) connection.drop()
  }

  #start(): void {
    const idle = [...this.#connections].find(({ isWorking }) => !isWorking)
    if (idle === undefined && this.#connections.size >= this.#settings.connectionsMax) return
    const group = this.#nextGroup()
    if (group === undefined) return
    const connection = idle ?? new Connection(this.#open, (ended) => this.#connections.delete(ended))
    this.#connections.add(connection)
    void this.#work(connection, group)
  }

  /** The queue of a group of which nothing is being made. */
  #nextGroup(): [group: unknown, queue: readonly Waiting[]] | undefined {
    for (const waiting of this.#waiting) if (!this.#busy.has(waiting[0])) return waiting
    return undefined
  }

  async #work(connection: Connection, first: [group: unknown, queue: readonly Waiting[]]): Promise<void> {
    connection.isWorking = true
    for (let next: typeof first | undefined = first; next !== undefined && !connection.isDropped; next = this.#nextGroup()) {
      const [group, queue] = next
      this.#busy.add(group)
      await this.#perform(connection, this.#take(group, queue))
      this.#busy.delete(group)
    }
    connection.isWorking = false
    this.#start()
  }

  /** The oldest, each name once: changes of one name are made one after the other. */
  #take(group: unknown, queue: readonly Waiting[]): Waiting[] {
    const [batch, rest, seen] = [[] as Waiting[], [] as Waiting[], new Set<string>()]
    for (const waiting of queue) {
      const isNext = batch.length < TOGETHER_MAX && waiting.watched.every((name) => !seen.has(name))
      for (const name of waiting.watched) seen.add(name)
      if (isNext) batch.push(waiting)
      else rest.push(waiting)
    }
    // At the end: other groups come first.
    this.#waiting.delete(group)
    if (rest.length > 0) this.#waiting.set(group, rest)
    this.#waitingCount -= batch.length
    return batch
  }

  async #perform(connection: Connection, batch: readonly Waiting[]): Promise<void> {
    const outcome = await within(connection.make(batch), 2 * this.#timeoutMs).catch(asError)
    const isForAll = outcome === true || outcome instanceof StoreTimeoutError || connection.isDropped
    if (batch.length > 1 && !isForAll) return this.#performHalves(connection, batch)
    if (outcome instanceof Error && (outcome instanceof StoreTimeoutError || isOfNoMaster(outcome))) connection.drop()
    for (const { settle } of batch) settle(outcome instanceof Error ? Promise.reject(outcome) : Promise.resolve(outcome))
  }

  /** One of them fails, which shall be no harm to the others. */
  async #performHalves(connection: Connection, batch: readonly Waiting[]): Promise<void> {
    const middle = batch.length >> 1
    await this.#perform(connection, batch.slice(0, middle))
    await this.#perform(connection, batch.slice(middle))
  }
}

class Connection {
  readonly #opening: Promise<Redis>
  readonly #ended: (connection: Connection) => void
  isWorking = false
  isDropped = false

  constructor(open: (ended: () => void) => Promise<Redis>, ended: (connection: Connection) => void) {
    this.#ended = ended
    this.#opening = open(() => this.drop())
    this.#opening.catch(() => this.drop())
  }

  async make(changes: readonly Change[]): Promise<boolean> {
    const redis = await this.#opening
    redis.stream.ref()
    try {
      return await this.#make(redis, changes)
    } finally {
      redis.stream.unref()
    }
  }

  async #make(redis: Redis, changes: readonly Change[]): Promise<boolean> {
    const reads = changes.flatMap((change) => change.reads)
    const found = (await exec(redis, [['UNWATCH'], ['WATCH', ...namesOf(changes)], ...reads])).slice(2)
    let at = 0
    const commands = changes.flatMap(({ reads: { length }, decide }) => decide(found.slice(at, at += length)))
    if (commands.length === 0) return true
    return Array.isArray((await exec(redis, [['MULTI'], ...commands, ['EXEC']])).at(-1))
  }

  drop(): void {
    this.isDropped = true
    this.#ended(this)
    this.#opening.then(end, () => undefined)
  }
}

function namesOf(changes: readonly Change[]): string[] {
  return changes.flatMap(({ watched }) => watched)
}
