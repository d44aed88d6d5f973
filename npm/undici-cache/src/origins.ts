// How far the logs of other regions have been carried into the log of this one. All readers decide by the records of their own log alone, so several carriers
// at a time do no harm: a record that comes twice is ignored, and a gap is noticed.

import type { Carried } from './carried.js'

/** The effect of a carried record: it was read before, it follows the last one, or earlier purges are unknown. */
export type CarriedEffect = 'known' | 'next' | 'unknown'

/** Limit of logs. A region begins another log when its own is lost. */
const LOGS_MAX = 64

export class Origins {
  /** The ends of the last records by the id of their log, the latest last. */
  readonly #ends = new Map<string, bigint>()

  /** Notes a record, and returns its effect. */
  note(carried: Carried): CarriedEffect {
    const { origin, last } = carried
    const effect = effectOf(carried, this.endIn(origin))
    if (effect === 'known') return effect
    this.#ends.delete(origin)
    this.#ends.set(origin, last.end)
    if (this.#ends.size > LOGS_MAX) this.#ends.delete(this.#ends.keys().next().value!)
    return effect
  }

  /** The position up to which a log has been carried. */
  endIn(origin: string): bigint | undefined {
    return this.#ends.get(origin)
  }

  /** Forgets everything, because the log of this region is read from its beginning. */
  clear(): void {
    this.#ends.clear()
  }
}

function effectOf({ after, last, what }: Carried, known: bigint | undefined): CarriedEffect {
  if (what === 'beginning') return 'unknown'
  // The readable part of this region's log begins here, and no response stored before it is used.
  if (known === undefined) return 'next'
  // A position that is already known is noted again, which keeps its log from being forgotten.
  if (what === 'position' && last.end === known) return 'next'
  if (last.end <= known) return 'known'
  return after > known ? 'unknown' : 'next'
}
