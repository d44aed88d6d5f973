// Local copies of records. The server reports each record that changes. Copies that weren't used recently are evicted first (CLOCK).

import type { Digest } from './key.js'
import type { LogCursor, Response } from './record.js'
import type { Stored } from './stored.js'

/** A usable response with its body. */
export interface Loaded extends Pick<Stored, 'value' | 'target' | 'tags'> {
  readonly body: readonly Buffer[]
  /** The place in the purge log up to which the response is known to be current. */
  checkedTo: LogCursor | undefined
}

/** One of the responses that a record lists. */
export interface Slot {
  readonly nominated: ReadonlyMap<string, string | null>
  /** The source of the response, dropped once it is loaded to save memory. */
  source: SlotSource | undefined
  /** `undefined`: not loaded yet. `null`: unusable. */
  loaded: Loaded | null | undefined
}

export interface SlotSource {
  readonly id: string
  /** The response in the record; `undefined` if it is stored separately. */
  readonly response: Response | undefined
}

export interface Copy {
  /** The common part of requests for the record: origin, path and method. */
  readonly text: string
  readonly digest: Digest
  /** Slots with more nominated fields first, then the newest. */
  readonly slots: readonly Slot[]
  /** The size of the record without inline bodies. */
  readonly headBytes: number
  /** The memory of the copy, set when it is kept. */
  bytes: number
  wasUsed: boolean
}

export interface CopiesLimits {
  readonly maxCount: number
  readonly maxSize: number
}

/** Approximate overhead of a copy, in addition to its record and bodies. */
const OVERHEAD_BYTES = 1024

export class Copies {
  readonly #limits: CopiesLimits
  readonly #byText = new Map<string, Copy>()
  readonly #byDigest = new Map<Digest, Copy>()
  /** The clock hand: every copy before it has been removed or moved to the end. A new iterator for each eviction would walk over the deleted places again. */
  #hand = this.#byText.values()
  #bytes = 0

  constructor(limits: CopiesLimits) {
    this.#limits = limits
  }

  get count(): number {
    return this.#byText.size
  }

  get bytes(): number {
    return this.#bytes
  }

  get(text: string): Copy | undefined {
    const copy = this.#byText.get(text)
    if (copy !== undefined) copy.wasUsed = true
    return copy
  }

  /** Keeps a copy in place of one of the same record. */
  keep(copy: Copy): void {
    this.drop(copy.digest)
    const bytes = bytesOf(copy)
    if (bytes > this.#limits.maxSize || this.#limits.maxCount < 1) return
    copy.bytes = bytes
    copy.wasUsed = false
    this.#byText.set(copy.text, copy)
    this.#byDigest.set(copy.digest, copy)
    this.#bytes += bytes
    while (this.#byText.size > this.#limits.maxCount || this.#bytes > this.#limits.maxSize) this.#makeRoom()
  }

  drop(digest: Digest): void {
    const copy = this.#byDigest.get(digest)
    if (copy === undefined) return
    this.#byDigest.delete(digest)
    this.#byText.delete(copy.text)
    this.#bytes -= copy.bytes
  }

  clear(): void {
    this.#byText.clear()
    this.#hand = this.#byText.values()
    this.#byDigest.clear()
    this.#bytes = 0
  }

  #oldest(): Copy {
    const next = this.#hand.next()
    if (!next.done) return next.value
    this.#hand = this.#byText.values()
    return this.#hand.next().value!
  }

  /** Evicts the oldest copy, or moves it to the end if it was used. */
  #makeRoom(): void {
    const oldest = this.#oldest()
    const { text, digest } = oldest
    if (!oldest.wasUsed) return this.drop(digest)
    oldest.wasUsed = false
    this.#byText.delete(text)
    this.#byText.set(text, oldest)
  }
}

function bytesOf({ slots, headBytes }: Copy): number {
  return slots.reduce((sum, slot) => sum + bodyBytesOf(slot), OVERHEAD_BYTES + headBytes)
}

function bodyBytesOf({ loaded, source }: Slot): number {
  return loaded ? loaded.body.reduce((sum, piece) => sum + piece.byteLength, 0) : inlineBytesOf(source?.response)
}

export function inlineBytesOf(response: Response | undefined): number {
  const content = response?.body.content
  return Buffer.isBuffer(content) ? content.length : 0
}
