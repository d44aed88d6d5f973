// Optimistic changes: reads under WATCH, then MULTI and EXEC, so that a change applies only if nothing else has changed the keys it depends on. Changes use
// separate connections. Each change takes two round trips, and so two turns of a possibly busy event loop; waiting changes are therefore batched.

import type { Redis } from 'iovalkey'
import { type Command, end, exec } from './commands.js'
import { asError, isOfNoMaster, StoreTimeoutError, within } from './errors.js'

export interface Change {
  readonly watched: readonly [string, ...string[]]
  readonly reads: readonly Command[]
  /** Returns the commands to send for the values that were read; may be none. */
  readonly decide: (found: unknown[]) => readonly Command[]
}

export interface ChangesSettings {
  readonly connectionsMax: number
  /** Names of the same group may share a transaction. */
  readonly groupOf: (name: string) => unknown
}

interface Waiting extends Change {
  readonly settle: (outcome: Promise<boolean>) => void
}

/** Batch limit, so that the records that a batch reads take at most 4 MiB. */
const TOGETHER_MAX = 64
const WAITING_MAX = 1000

export class Changes {
  readonly #settings: ChangesSettings
  readonly #open: (ended: () => void) => Promise<Redis>
  readonly #timeoutMs: number
  /** Waiting changes by group, oldest first. */
  readonly #waiting = new Map<unknown, Waiting[]>()
  /** Groups with a batch in progress. */
  readonly #busy = new Set<unknown>()
  #waitingCount = 0
  readonly #connections = new Set<Connection>()

  /** `open` creates a connection, and calls `ended` when it has ended. */
  constructor(settings: ChangesSettings, timeoutMs: number, open: (ended: () => void) => Promise<Redis>) {
    this.#settings = settings
    this.#timeoutMs = timeoutMs
    this.#open = open
  }

  /** Whether the queue is so long that optional changes should be skipped. */
  get isFull(): boolean {
    return this.#waitingCount >= WAITING_MAX
  }

  /** Resolves to false if a watched key has changed in between, and to true if there was nothing to do. */
  make(change: Change): Promise<boolean> {
    return new Promise((settle) => {
      const group = this.#settings.groupOf(change.watched[0])
      const queue = this.#waiting.get(group)
      if (queue === undefined) this.#waiting.set(group, [{ ...change, settle }])
      else queue.push({ ...change, settle })
      this.#waitingCount += 1
      // Changes requested in the same tick join the batch.
      queueMicrotask(() => this.#start())
    })
  }

  /** Closes the connections, which fails the changes in progress. */
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

  /** The first group without a batch in progress, with its queue. */
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

  /** Takes the oldest changes, at most one per name: changes of the same name run one after another. */
  #take(group: unknown, queue: readonly Waiting[]): Waiting[] {
    const [batch, rest, seen] = [[] as Waiting[], [] as Waiting[], new Set<string>()]
    for (const waiting of queue) {
      const isNext = batch.length < TOGETHER_MAX && waiting.watched.every((name) => !seen.has(name))
      for (const name of waiting.watched) seen.add(name)
      if (isNext) batch.push(waiting)
      else rest.push(waiting)
    }
    // Appended at the end, so that other groups come first.
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

  /** Retries in halves, so that a failing change doesn't fail the others. */
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
