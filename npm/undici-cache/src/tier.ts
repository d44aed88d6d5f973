// Records and segments on the server: docs/internals/remote-tier.md.

import { decodeSegment, encodeSegment, type Layout, type Segment } from './body.js'
import type { Change } from './changes.js'
import type { Command } from './commands.js'
import { isMoved } from './errors.js'
import { RECORD_BYTES_MAX, SEGMENT_FRAME_BYTES_MAX } from './frame.js'
import type { Digest, Names } from './key.js'
import type { Link } from './link.js'
import type { PurgeLog } from './log.js'
import type { Nodes } from './nodes.js'

/** A new value for a name. */
export interface Put {
  readonly bytes: Buffer
  readonly ttlMs: number
}

const SEGMENTS_AT_ONCE = 16
const SEGMENT_MARGIN_MS = 10_000

export class Tier {
  readonly #nodes: Nodes
  readonly #names: Names
  readonly #log: PurgeLog

  constructor(nodes: Nodes, names: Names, log: PurgeLog) {
    this.#nodes = nodes
    this.#names = names
    this.#log = log
  }

  /** The bytes of a record. Without tracking, also checks whether the log has grown. */
  async load(digest: Digest): Promise<Buffer | undefined> {
    const name = this.#names.record(digest)
    const read: Command = ['GETRANGE', name, 0, RECORD_BYTES_MAX]
    return bytesIn(await this.#at(name, (link) => link.isTracking ? this.#loadTracked(link, read) : this.#loadUntracked(link, read)))
  }

  /** The bytes of several records, in order. Their changes are not tracked. */
  async loadMany(digests: readonly Digest[]): Promise<(Buffer | undefined)[]> {
    return Promise.all(digests.map((digest) => {
      const name = this.#names.record(digest)
      return this.#at(name, async (link) => bytesIn((await link.ask([['GETRANGE', name, 0, RECORD_BYTES_MAX]]))[0]))
    }))
  }

  async #loadTracked(link: Link, read: Command): Promise<unknown> {
    return (await link.ask([['CLIENT', 'CACHING', 'YES'], read]))[1]
  }

  /** Loads, and checks in the same round trip whether the log has grown. */
  async #loadUntracked(link: Link, read: Command): Promise<unknown> {
    const logLink = this.#nodes.linkOf(this.#log.name)
    const state = this.#log.stateCommands()
    const [answers, ofLog] = logLink === link
      ? await link.ask([read, ...state]).then((all) => [all.slice(0, 1), all.slice(1)] as const)
      : await Promise.all([link.ask([read]), logLink.ask(state)])
    this.#log.noteState(ofLog)
    return answers[0]
  }

  /** Stores a record if there is none. Returns false if there is one. */
  async putWhereNone(digest: Digest, bytes: Buffer, ttlMs: number): Promise<boolean> {
    const name = this.#names.record(digest)
    const [outcome] = await this.#at(name, (link) => link.ask([['SET', name, bytes, 'PX', ttlMs, 'NX']]))
    return outcome !== null
  }

  async put(digest: Digest, bytes: Buffer, ttlMs: number): Promise<void> {
    const name = this.#names.record(digest)
    await this.#at(name, (link) => link.ask([['SET', name, bytes, 'PX', ttlMs]]))
  }

  /** The bytes of a record, and its remaining time to live. */
  async loadWithTtl(digest: Digest): Promise<{ bytes: Buffer | undefined; ttlMs: number }> {
    const name = this.#names.record(digest)
    const [found, ttl] = await this.#at(name, (link) => link.ask([['GETRANGE', name, 0, RECORD_BYTES_MAX], ['PTTL', name]]))
    return { bytes: bytesIn(found), ttlMs: Math.max(0, Number(ttl)) }
  }

  /** Replaces or removes a record that has these bytes. Returns false if its bytes have changed. */
  async replace(digest: Digest, expected: Buffer, put: Put | 'nothing'): Promise<boolean> {
    const name = this.#names.record(digest)
    let isSame = false
    const decide = ([found]: unknown[]): readonly Command[] => {
      isSame = bytesIn(found)?.equals(expected) ?? false
      if (!isSame) return []
      return [put === 'nothing' ? ['UNLINK', name] : ['SET', name, put.bytes, 'PX', put.ttlMs]]
    }
    const change: Change = { watched: [name], reads: [['GETRANGE', name, 0, RECORD_BYTES_MAX]], decide }
    const isDone = await this.#at(name, (link) => link.changeIfRoom(change))
    return isDone && isSame
  }

  async remove(digests: readonly Digest[]): Promise<void> {
    await Promise.all(digests.map((digest) => {
      const name = this.#names.record(digest)
      return this.#at(name, (link) => link.ask([['UNLINK', name]]))
    }))
  }

  /** The bytes of a body in segments; `undefined` if one is missing. */
  async loadBody(layout: Layout, completeBytes: number): Promise<Buffer[] | undefined> {
    const count = Math.ceil(completeBytes / layout.cellBytes)
    if (layout.fragments.length > 0 || layout.runs.length !== 1 || layout.runs[0]?.first !== 0) return undefined
    const pieces: Buffer[] = []
    for (let first = 0; first < count; first += SEGMENTS_AT_ONCE) {
      pieces.push(...await this.#loadSegments(layout.fill, first, Math.min(count, first + SEGMENTS_AT_ONCE)))
    }
    return pieces.reduce((sum, piece) => sum + piece.length, 0) === completeBytes ? pieces : undefined
  }

  async #loadSegments(fill: string, first: number, end: number): Promise<Buffer[]> {
    const indexes = Array.from({ length: end - first }, (_, at) => first + at)
    const commands = indexes.map((index): Command => ['GETRANGE', this.#names.segment(fill, index), 0, SEGMENT_FRAME_BYTES_MAX])
    const answers = await this.#at(this.#names.segment(fill, 0), (link) => link.ask(commands))
    return answers.map(bytesIn).map((bytes, at) => bytes ? decodeSegment(bytes, fill, indexes[at]!).data : EMPTY)
  }

  async putSegments(segments: readonly Segment[], ttlMs: number): Promise<void> {
    for (let first = 0; first < segments.length; first += SEGMENTS_AT_ONCE) {
      const part = segments.slice(first, first + SEGMENTS_AT_ONCE)
      const commands = part.map((segment): Command => [
        'SET', this.#names.segment(segment.fill, segment.index), encodeSegment(segment), 'PX', ttlMs + SEGMENT_MARGIN_MS,
      ])
      await this.#at(this.#names.segment(part[0]!.fill, 0), (link) => link.ask(commands))
    }
  }

  /** Runs `work` on the node of a key, and once more if the key has moved to another node. */
  async #at<T>(name: string, work: (link: Link) => Promise<T>): Promise<T> {
    try {
      return await work(this.#nodes.linkOf(name))
    } catch (error) {
      if (!isMoved(error)) throw error
      await this.#nodes.moved()
      return work(this.#nodes.linkOf(name))
    }
  }
}

const EMPTY = Buffer.alloc(0)

/** The bytes in a reply; `undefined` if it is empty, as GETRANGE answers for a missing key. */
function bytesIn(answer: unknown): Buffer | undefined {
  return Buffer.isBuffer(answer) && answer.length > 0 ? answer : undefined
}
