// The purge log, which all users of a store append to and read: docs/internals/remote-tier.md, "The log".

import { FormatError } from './bytes.js'
import { type Carried, decodeCarried, isCarried } from './carried.js'
import type { Command } from './commands.js'
import { asError, isMoved, isRefusal, StoreUnavailableError } from './errors.js'
import type { Names } from './key.js'
import type { Link } from './link.js'
import {
  continuityOf, decodeLogHeader, decodeLogRecords, encodeLogHeader, encodeLogRecord, lastEndIn, LOG_HEADER_BYTES, LOG_READ_BYTES, type LogHeader, type LogState,
  newLogHeader,
} from './log-bytes.js'
import { clockAheadMsOf, type Nodes } from './nodes.js'
import { Origins } from './origins.js'
import { PurgeIndex, type Subject, type Verdict } from './purge-index.js'
import { decodePurge, encodePurge, newPurge, type Purged, type PurgeRecord } from './purge-record.js'
import type { LogCursor } from './record.js'
import { setTimeout } from './timers.js'

/** If the log is longer than this, the appending process cuts it to half. The rest remains for regions that haven't read it yet. */
const LOG_BYTES_MAX = 8 << 20
/** Limit of purges that wait for a store that is away. */
const UNSENT_MAX = 1000
/** At least half of each read is whole records, so this limit allows for twice the maximum length of the log. */
const READS_MAX = Math.ceil(4 * LOG_BYTES_MAX / LOG_READ_BYTES)
/** Limit of remembered ids of lost logs. */
const LEFT_MAX = 64
const AGAIN_MS = 20

/** The last record that was read. */
interface Last {
  readonly begins: number
  readonly mark: Buffer
}

interface Unsent {
  readonly purge: PurgeRecord
  /** Called with the place after the purge, once it is written. */
  readonly written: (place: LogCursor) => void
}

export class PurgeLog {
  readonly #nodes: Nodes
  readonly #names: Names
  readonly #index: PurgeIndex
  readonly #origins = new Origins()
  readonly #onPurges: (purges: readonly PurgeRecord[]) => void
  #cursor: LogCursor | undefined
  #last: Last | undefined
  /** Ids of previous logs. If a log has one of them again, it was set back. */
  #left: readonly string[] = []
  /** The offset below which purges are unknown to this process. */
  #knownFrom = 0
  #floor = 0
  #isDirty = true
  #reading: Promise<void> | undefined
  #unsent: Unsent[] = []

  constructor(nodes: Nodes, names: Names, site: string, onPurges: (purges: readonly PurgeRecord[]) => void) {
    this.#nodes = nodes
    this.#names = names
    this.#index = new PurgeIndex(site)
    this.#onPurges = onPurges
  }

  /** The place up to which the log was read. */
  get cursor(): LogCursor | undefined {
    return this.#cursor
  }

  /** Whether the log was read to its end, as far as this process knows. */
  get isRead(): boolean {
    return !this.#isDirty && this.#cursor !== undefined
  }

  /** Whether the server that holds the log is connected. */
  get isReachable(): boolean {
    try {
      return this.#link().isUp
    } catch {
      // None of the known nodes of the cluster holds the log.
      return false
    }
  }

  /** Marks the log as possibly changed. */
  suspect(): void {
    this.#isDirty = true
  }

  /** Judges a response that was requested at this place in the log. */
  judge(subject: Subject, place: LogCursor | undefined): Verdict {
    const cursor = this.#cursor
    if (place === undefined || cursor === undefined || place.id !== cursor.id || place.offset < this.#knownFrom) return 'purged'
    return place.offset >= cursor.offset ? 'current' : this.#index.judge(subject, place.offset)
  }

  /** The oldest known place, for a response whose place wasn't noted: the safe choice. */
  get oldestPlace(): LogCursor | undefined {
    return this.#cursor && { id: this.#cursor.id, offset: this.#knownFrom }
  }

  /** Commands that show whether the log has grown or was set back, for stores that aren't notified of changes. */
  stateCommands(): readonly Command[] {
    const state: Command[] = [['STRLEN', this.#names.log], ['GETRANGE', this.#names.log, 0, LOG_HEADER_BYTES - 1]]
    if (this.#last === undefined) return state
    const at = this.#placeOf(this.#last.begins)
    return [...state, ['GETRANGE', this.#names.log, at, at + this.#last.mark.length - 1]]
  }

  #placeOf(offset: number): number {
    return LOG_HEADER_BYTES + offset - this.#floor
  }

  /**
   * The state of the log in the replies to `stateCommands`; `undefined` if there is no log. If the log was trimmed, the mark was read at the wrong offset, and
   * counts as unknown.
   */
  #stateIn([length, header, there]: readonly unknown[]): LogState | undefined {
    const found = Buffer.isBuffer(header) ? decodeLogHeader(header) : undefined
    const isSamePlace = found?.floor === this.#floor
    return found && { ...found, end: found.floor + Number(length) - LOG_HEADER_BYTES, there: isSamePlace ? there as Buffer | undefined : undefined }
  }

  get name(): string {
    return this.#names.log
  }

  /** Checks whether the log has grown, since notifications may have been lost. */
  async look(): Promise<void> {
    this.noteState(await this.#link().ask(this.stateCommands()))
  }

  /** Evaluates the replies to `stateCommands`. */
  noteState(answers: readonly unknown[]): void {
    const [state, cursor] = [this.#stateIn(answers), this.#cursor]
    const isSame = state !== undefined && cursor !== undefined && state.floor === this.#floor && state.end === cursor.offset
    if (!isSame || continuityOf(state, { ...cursor, last: this.#last?.mark }) !== 'whole') this.#isDirty = true
  }

  /** Reads the log to its end. A caller that was notified of a change after the current read began waits for another read. */
  async readOn(): Promise<void> {
    while (!this.isRead) {
      this.#reading ??= this.#read().finally(() => {
        this.#reading = undefined
      })
      await this.#reading
    }
  }

  /**
   * Appends a purge, and returns the position of its end. Retries until `endMs` (by `performance.now()`), then rejects; rejects immediately if the server
   * refuses it. Even then, the purge is written before the log is read the next time.
   */
  async append(what: Purged, at: number, endMs: number): Promise<LogCursor> {
    const written = this.#keepUnsent(newPurge(what, at))
    let isWritten = false
    void written.then(() => { isWritten = true })
    this.#isDirty = true
    while (!isWritten) {
      const error = await this.readOn().catch(asError)
      // If the purge is written but can't be read back, no stored response is used until it can be.
      if (error === undefined || isWritten) break
      if (isRefusal(error) || performance.now() >= endMs) throw error
      await Promise.race([written, new Promise((resolve) => setTimeout(resolve, AGAIN_MS))])
    }
    const place = await written
    await this.#reading?.catch(() => undefined)
    return place
  }

  #keepUnsent(purge: PurgeRecord): Promise<LogCursor> {
    encodePurge(purge)
    return new Promise((written) => {
      this.#unsent.push({ purge, written })
      if (this.#unsent.length <= UNSENT_MAX) return
      const others = this.#unsent
      const all = (place: LogCursor): void => others.forEach((unsent) => unsent.written(place))
      this.#unsent = [{ purge: newPurge('everything', purge.at), written: all }]
    })
  }

  async #read(): Promise<void> {
    try {
      const link = this.#link()
      await this.#sendUnsent(link)
      this.#isDirty = false
      for (let reads = 0; reads < READS_MAX; reads++) {
        if (await this.#readPart(link)) return
      }
      throw new StoreUnavailableError('the purge log grows faster than it can be read')
    } catch (error) {
      this.#isDirty = true
      if (isMoved(error)) void this.#nodes.moved()
      throw error
    }
  }

  async #sendUnsent(link: Link): Promise<void> {
    while (this.#unsent.length > 0) {
      const sent = [...this.#unsent]
      const records = Buffer.concat(sent.map(({ purge }) => encodeLogRecord(encodePurge(purge))))
      const [, length, header] = await link.transaction([
        ['SET', this.#names.log, encodeLogHeader(newLogHeader()), 'NX'],
        ['APPEND', this.#names.log, records],
        ['GETRANGE', this.#names.log, 0, LOG_HEADER_BYTES - 1],
      ])
      const place = endOf(header as Buffer, Number(length))
      this.#unsent = this.#unsent.filter((unsent) => !sent.includes(unsent))
      if (place !== undefined) sent.forEach((unsent) => unsent.written(place))
      if (Number(length) > LOG_BYTES_MAX) await this.#rewrite(link, cutToHalf)
    }
  }

  /** Reads one part; returns whether it reached the end. */
  async #readPart(link: Link): Promise<boolean> {
    if (this.#cursor === undefined) return this.#begin(link)
    const cursor = this.#cursor
    const from = this.#placeOf(cursor.offset)
    const follow: Command[] = link.isTracking ? [['CLIENT', 'CACHING', 'YES']] : []
    const answers = await link.ask([
      ...follow,
      ['GETRANGE', this.#names.log, from, from + LOG_READ_BYTES - 1],
      ...this.stateCommands(),
    ])
    const [read, ...rest] = answers.slice(follow.length) as [Buffer, ...unknown[]]
    const state = this.#stateIn(rest)
    const continuity = state ? continuityOf(state, { ...cursor, last: this.#last?.mark }) : 'lost'
    if (continuity === 'lost') return this.#leave(cursor.id)
    if (continuity === 'trimmed') return this.#restart()
    if (state!.floor !== this.#floor) return this.#moveFloor(state!.floor)
    return this.#apply(link, read, cursor)
  }

  async #begin(link: Link): Promise<false> {
    const header = encodeLogHeader(newLogHeader())
    const [, found] = await link.ask([
      ['SET', this.#names.log, header, 'NX'],
      ['GETRANGE', this.#names.log, 0, LOG_HEADER_BYTES - 1],
    ])
    const begun = Buffer.isBuffer(found) ? decodeLogHeader(found) : undefined
    if (begun === undefined) {
      await this.#rewrite(link, () => [newLogHeader(), Buffer.alloc(0)])
      throw new StoreUnavailableError('the purge log was damaged and has been replaced')
    }
    if (this.#left.includes(begun.id)) {
      await this.#rename(link, begun.id)
      return false
    }
    this.#index.clear()
    this.#origins.clear()
    this.#floor = begun.floor
    this.#knownFrom = begun.floor
    this.#last = undefined
    this.#cursor = { id: begun.id, offset: begun.floor }
    return false
  }

  /** Discards the read place. Purges are unknown: a different log replaced it, it was set back, or an unread part was trimmed. */
  #restart(): false {
    this.#cursor = undefined
    this.#last = undefined
    return false
  }

  #moveFloor(floor: number): false {
    this.#floor = floor
    if (this.#last !== undefined && this.#last.begins < floor) this.#last = undefined
    return false
  }

  #leave(id: string): false {
    this.#left = [...this.#left, id].slice(-LEFT_MAX)
    return this.#restart()
  }

  /** Gives a log that was set back a new id, unless a different log replaced it: it grows again, with other purges at the same places. */
  async #rename(link: Link, id: string): Promise<void> {
    await this.#rewrite(link, (header, records) => header.id === id ? [{ ...newLogHeader(), floor: header.floor }, records] : undefined)
  }

  async #apply(link: Link, read: Buffer, { id, offset }: LogCursor): Promise<boolean> {
    const records = await this.#decode(link, read, offset)
    const purges = records.flatMap(({ bytes, end }) => this.#purgesIn(bytes, end))
    const last = records.at(-1)
    // Copied, so that the larger buffer of the read isn't kept.
    if (last !== undefined) this.#last = { begins: records.at(-2)?.end ?? offset, mark: Buffer.from(last.mark) }
    this.#cursor = { id, offset: last?.end ?? offset }
    if (purges.length > 0) this.#onPurges(purges)
    return read.length < LOG_READ_BYTES
  }

  /** Applies the record that ends at `end`, and returns its purge, if any. */
  #purgesIn(bytes: Buffer, end: number): PurgeRecord[] {
    const record = understood<Carried | PurgeRecord>(bytes, isCarried(bytes) ? decodeCarried : decodePurge)
    const purge = record && 'origin' in record ? this.#purgeOf(record) : record
    if (purge === 'none') return []
    this.#index.add(purge, end)
    return [purge ?? newPurge('everything', this.#now())]
  }

  /** The purge of a carried record; `undefined` if it can't be decoded. */
  #purgeOf(carried: Carried): PurgeRecord | 'none' | undefined {
    const effect = this.#origins.note(carried)
    if (effect === 'unknown') return { ...newPurge('everything', this.#now()), mode: 'soft' }
    if (effect === 'known' || typeof carried.what === 'string') return 'none'
    return understood(carried.what, decodePurge)
  }

  /** The time by the clock of the store, like the times of purges. */
  #now(): number {
    return Date.now() + clockAheadMsOf(this.#nodes)
  }

  async #decode(link: Link, read: Buffer, offset: number): Promise<ReturnType<typeof decodeLogRecords>> {
    try {
      return decodeLogRecords(read, offset)
    } catch (error) {
      await this.#rewrite(link, () => [newLogHeader(), Buffer.alloc(0)])
      throw asError(error)
    }
  }

  /** Replaces the log, unless it changes meanwhile. */
  async #rewrite(link: Link, change: (header: LogHeader, records: Buffer) => [LogHeader, Buffer] | undefined): Promise<void> {
    const log = this.#names.log
    const decide = ([found]: unknown[]): readonly Command[] => {
      const bytes = found as Buffer
      const header = decodeLogHeader(bytes) ?? newLogHeader()
      const changed = change(header, bytes.subarray(LOG_HEADER_BYTES))
      if (changed === undefined) return []
      const [newHeader, records] = changed
      return [['SET', log, Buffer.concat([encodeLogHeader(newHeader), records])]]
    }
    await link.change({ watched: [log], reads: [['GETRANGE', log, 0, -1]], decide })
  }

  #link(): Link {
    return this.#nodes.linkOf(this.#names.log)
  }
}

/** The end of a log of this length; `undefined` if the header is invalid. */
function endOf(header: Buffer, length: number): LogCursor | undefined {
  const found = decodeLogHeader(header)
  return found && { id: found.id, offset: found.floor + length - LOG_HEADER_BYTES }
}

function understood<T>(bytes: Buffer, decode: (bytes: Buffer) => T): T | undefined {
  try {
    return decode(bytes)
  } catch (error) {
    if (error instanceof FormatError) return undefined
    throw error
  }
}

/** Drops whole records from the front, and raises the floor by as many bytes. */
function cutToHalf(header: LogHeader, records: Buffer): [LogHeader, Buffer] {
  const cut = lastEndIn(records, records.length - LOG_BYTES_MAX / 2)
  return [{ ...header, floor: header.floor + cut }, records.subarray(cut)]
}
