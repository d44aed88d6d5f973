// Leases: among all processes that share a store, one at a time requests a response from the origin: docs/internals/coherence.md, "One request for all". The
// process that frees a lease also writes the record, since others wait for a change of it.

import { randomBytes } from 'node:crypto'
import type { Command } from './commands.js'
import { StoreUnavailableError, within } from './errors.js'
import { Kind, RECORD_BYTES_MAX } from './frame.js'
import type { Link } from './link.js'
import { encodeRecord, type Note } from './record.js'
import { decodeAny, type Place, type SharedStore } from './shared-store.js'
import { clearInterval, setInterval } from './timers.js'

const LEASE_MS = 3000
const NOTE_MS = 5000
const POLL_MS = 50
/** Requests that have waited this long ask the origin themselves. */
const WAIT_MS_MAX = 10_000
/** Limit of held leases. Each is released by a change that waits in a queue; more of them would expire before their release. */
const HELD_MAX = 2000
const SCOPE_ALL = 2

/** The outcome of a request to the origin. */
export type Outcome = 'stored' | 'not-stored' | 'gave-up'

export class Turns {
  readonly #shared: SharedStore
  readonly #waiting = new Map<string, Set<() => void>>()
  readonly #held = new Set<Lease>()

  constructor(shared: SharedStore) {
    this.#shared = shared
  }

  /** Whether this process may hold another lease. */
  get hasRoom(): boolean {
    return this.#held.size < HELD_MAX
  }

  /** Wakes the requests that wait for this record. */
  changed(digest: string): void {
    this.#waiting.get(digest)?.forEach((wake) => wake())
  }

  changedAll(): void {
    for (const digest of this.#waiting.keys()) this.changed(digest)
  }

  /** Takes the lease on a key; `undefined` if another process has it. */
  async take(place: Place): Promise<Lease | undefined> {
    const link = this.#linkOf(place)
    const name = this.#shared.names.lease(place.digest)
    const token = randomBytes(16)
    const [outcome] = await link.ask([['SET', name, token, 'PX', LEASE_MS, 'NX']])
    if (outcome === null) return undefined
    const lease = new Lease(this.#shared, link, place, token)
    this.#held.add(lease)
    return lease
  }

  /** Releases a lease, so that others may continue. */
  async release(lease: Lease, outcome: Outcome): Promise<void> {
    try {
      await lease.release(outcome)
    } finally {
      this.#held.delete(lease)
    }
  }

  /** Releases all leases with the outcome `gave-up`. */
  async releaseAll(): Promise<void> {
    await Promise.all([...this.#held].map((lease) => this.release(lease, 'gave-up')))
  }

  /** The deadline of a wait that begins now. */
  get waitsUntil(): number {
    return performance.now() + WAIT_MS_MAX
  }

  /**
   * Waits until the record has changed or the lease has ended. Returns false if waiting is useless: the holder's response is not shared, or the deadline has
   * passed.
   */
  async wait(place: Place, end: number): Promise<boolean> {
    const before = await this.#look(place)
    for (let seen = before; seen.leaseMs > 0 && performance.now() < end; seen = await this.#look(place)) {
      if (seen.isNotShared) return false
      if (!sameBytes(seen.record, before.record)) return true
      await this.#woken(place.digest, seen.leaseMs)
    }
    return performance.now() < end
  }

  async #look(place: Place): Promise<{ record: Buffer | undefined; leaseMs: number; isNotShared: boolean }> {
    const link = this.#linkOf(place)
    const follow: Command[] = link.isTracking ? [['CLIENT', 'CACHING', 'YES']] : []
    const answers = await link.ask([
      ...follow,
      ['GETRANGE', this.#shared.names.record(place.digest), 0, RECORD_BYTES_MAX],
      ['PTTL', this.#shared.names.lease(place.digest)],
    ])
    const [record, leaseMs] = answers.slice(follow.length) as [Buffer, unknown]
    if (typeof leaseMs !== 'number') throw new StoreUnavailableError('the store returned no time to live of a lease')
    return { record, leaseMs, isNotShared: isNotShared(record) }
  }

  /** Waits for a change of the record, at most until the lease ends; without tracking, only until the next poll. */
  async #woken(digest: string, leaseMs: number): Promise<void> {
    const wakers = this.#waiting.get(digest) ?? new Set()
    this.#waiting.set(digest, wakers)
    const limitMs = this.#shared.nodes.links().every((link) => link.isTracking) ? leaseMs : Math.min(leaseMs, POLL_MS)
    let wake = (): void => undefined
    const told = new Promise<void>((resolve) => { wake = resolve })
    wakers.add(wake)
    await within(told, limitMs).catch(() => undefined)
    wakers.delete(wake)
    if (wakers.size === 0) this.#waiting.delete(digest)
  }

  #linkOf({ digest }: Place): Link {
    return this.#shared.nodes.linkOf(this.#shared.names.lease(digest))
  }
}

export class Lease {
  readonly #shared: SharedStore
  readonly #link: Link
  readonly #place: Place
  readonly #token: Buffer
  readonly #renewing: NodeJS.Timeout
  #released: Promise<void> | undefined
  #isBeingRenewed = false

  constructor(shared: SharedStore, link: Link, place: Place, token: Buffer) {
    this.#shared = shared
    this.#link = link
    this.#place = place
    this.#token = token
    this.#renewing = setInterval(() => void this.#renew(), LEASE_MS / 3).unref()
  }

  release(outcome: Outcome): Promise<void> {
    clearInterval(this.#renewing)
    this.#released ??= this.#release(outcome)
    return this.#released
  }

  async #release(outcome: Outcome): Promise<void> {
    const { names } = this.#shared
    const [record, lease] = [names.record(this.#place.digest), names.lease(this.#place.digest)]
    await this.#ifHeld([['GETRANGE', record, 0, RECORD_BYTES_MAX]], (found) => [this.#lastWord(record, found as Buffer, outcome), ['DEL', lease]])
  }

  /** The final write of a holder. Rewrites an existing record, since others wait for a change; otherwise writes a note. */
  #lastWord(record: string, found: Buffer, outcome: Outcome): Command {
    if (found.length > 0 && outcome !== 'not-stored') return ['SET', record, found, 'KEEPTTL']
    const theirs = found.length > 0 ? decodeAny(found) : undefined
    if (theirs !== undefined && theirs.variants.length > 0) return ['SET', record, found, 'KEEPTTL']
    const until = Date.now() + this.#shared.clockAheadMs + NOTE_MS
    const note: Note = { kind: outcome === 'not-stored' ? 'not-shared' : 'gave-up', scope: SCOPE_ALL, until, because: outcome === 'not-stored' ? outcome : '' }
    return ['SET', record, encodeRecord({ key: this.#place.key, note, variants: [] }, Kind.Primary), 'PX', NOTE_MS]
  }

  async #renew(): Promise<void> {
    if (this.#isBeingRenewed) return
    this.#isBeingRenewed = true
    const lease = this.#shared.names.lease(this.#place.digest)
    await this.#ifHeld([], () => [['PEXPIRE', lease, LEASE_MS]]).catch((error: unknown) => this.#shared.report(error))
    this.#isBeingRenewed = false
  }

  async #ifHeld(reads: readonly Command[], decide: (found: unknown) => readonly Command[]): Promise<void> {
    const { names } = this.#shared
    const [record, lease] = [names.record(this.#place.digest), names.lease(this.#place.digest)]
    for (let tries = 0; tries < 3; tries++) {
      const isDone = await this.#link.change({
        watched: [lease, record],
        reads: [['GETRANGE', lease, 0, 15], ...reads],
        decide: ([held, found]) => (held as Buffer).equals(this.#token) ? decide(found) : [],
      })
      if (isDone) return
    }
    throw new StoreUnavailableError('a lease could not be released: it will expire')
  }
}

function sameBytes(one: Buffer | undefined, other: Buffer | undefined): boolean {
  return one === undefined ? other === undefined : other !== undefined && one.equals(other)
}

function isNotShared(bytes: Buffer | undefined): boolean {
  const note = bytes && bytes.length > 0 ? decodeAny(bytes)?.note : undefined
  return note?.kind === 'not-shared'
}
