// Copies of records in this process, each told to be outdated by the server when it changes there. What was not used for the longest time makes room.

import type { Digest } from './key.js'
import type { LogCursor, Response } from './record.js'
import type { Stored } from './stored.js'

/** A response that can answer, with its body. */
export interface Loaded {
  readonly stored: Stored
  readonly body: Buffer[]
  /** Up to where in the purge log it is known to be good. */
  checkedTo: LogCursor | undefined
}

/** One of the responses that a record lists. */
export interface Slot {
  readonly id: string
  readonly nominated: ReadonlyMap<string, string | null>
  /** As the record has it; `undefined`: it lies apart. */
  readonly response: Response | undefined
  /** `undefined`: nobody has asked for it. `null`: it is of no use. */
  loaded: Loaded | null | undefined
}

export interface Copy {
  /** What requests for it have in common: origin, path and method. */
  readonly text: string
  readonly digest: Digest
  /** Those that nominate more fields first, then the newest. */
  readonly slots: readonly Slot[]
  readonly recordBytes: number
}

interface Kept {
  readonly copy: Copy
  readonly bytes: number
  wasUsed: boolean
}

export interface CopiesLimits {
  readonly maxCount: number
  readonly maxSize: number
}

/** What a copy takes beside the bytes of record and bodies, about. */
const OVERHEAD_BYTES = 1024

export class Copies {
  readonly #limits: CopiesLimits
  readonly #byText = new Map<string, Kept>()
  readonly #byDigest = new Map<Digest, Kept>()
  /** All before it have gone, or moved to the end. A new iterator each time would walk over the places of those. */
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
    const kept = this.#byText.get(text)
    if (kept === undefined) return undefined
    kept.wasUsed = true
    return kept.copy
  }

  /** In the place of what is there for the same record. */
  keep(copy: Copy): void {
    this.drop(copy.digest)
    const bytes = bytesOf(copy)
    if (bytes > this.#limits.maxSize || this.#limits.maxCount < 1) return
    const kept = { copy, bytes, wasUsed: false }
    this.#byText.set(copy.text, kept)
    this.#byDigest.set(copy.digest, kept)
    this.#bytes += bytes
    while (this.#byText.size > this.#limits.maxCount || this.#bytes > this.#limits.maxSize) this.#makeRoom()
  }

  drop(digest: Digest): void {
    const kept = this.#byDigest.get(digest)
    if (kept === undefined) return
    this.#byDigest.delete(digest)
    this.#byText.delete(kept.copy.text)
    this.#bytes -= kept.bytes
  }

  clear(): void {
    this.#byText.clear()
    this.#hand = this.#byText.values()
    this.#byDigest.clear()
    this.#bytes = 0
  }

  #oldest(): Kept {
    const next = this.#hand.next()
    if (!next.done) return next.value
    this.#hand = this.#byText.values()
    return this.#hand.next().value!
  }

  /** The oldest goes, or gets a second chance if it was used. */
  #makeRoom(): void {
    const oldest = this.#oldest()
    const { text, digest } = oldest.copy
    if (!oldest.wasUsed) return this.drop(digest)
    oldest.wasUsed = false
    this.#byText.delete(text)
    this.#byText.set(text, oldest)
  }
}

function bytesOf({ slots, recordBytes }: Copy): number {
  const bodies = slots.flatMap(({ loaded }) => loaded?.body ?? [])
  return OVERHEAD_BYTES + recordBytes + bodies.reduce((sum, piece) => sum + piece.length, 0)
}
