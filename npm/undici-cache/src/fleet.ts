// The members of the fleet, and how far each has read the purge log: docs/internals/coherence.md, "Who shares the tier". Deletions wait for all of them.

import { randomBytes } from 'node:crypto'
import { FormatError } from './bytes.js'
import { StoreUnavailableError, within } from './errors.js'
import { digestOfMember, digestOfMemberList } from './key.js'
import { decodeList, decodeMember, encodeList, encodeMember, type Member, type MemberList, MEMBERS_MAX } from './member-bytes.js'
import type { LogCursor } from './record.js'
import type { Tier } from './tier.js'
import { setTimeout } from './timers.js'

/** A gateway or a process that keeps copies, and the time until it dropped the deleted responses. */
export interface MemberReach {
  readonly id: string
  readonly name: string
  /** Milliseconds until it dropped the deleted responses; `undefined` if it isn't known to have done so in time. */
  readonly afterMs: number | undefined
}

/** The outcome of a deletion in the fleet. */
export interface Reached {
  /** Whether all members have dropped the deleted responses. */
  readonly isComplete: boolean
  /** The known members, by name. */
  readonly members: readonly MemberReach[]
}

/** T in the design: how long copies may be used without an answer from the store. */
export const VERIFICATION_MS = 2000
/** A member that doesn't renew its record for this long is dropped. */
export const LIFETIME_MS = 3 * VERIFICATION_MS
const REACH_MS_MAX = VERIFICATION_MS + 1000
const LIST_TTL_MS = 24 * 3_600_000
const TRIES_MAX = 5
const PAUSE_MS_MIN = 1
const PAUSE_MS_MAX = 50
const LIST = digestOfMemberList()

interface Seen extends Member {
  readonly atMs: number
}

interface Listed extends MemberList {
  readonly bytes: Buffer | undefined
  /** Whether all live members have had time to rejoin the list, in case it was recreated. */
  readonly isOld: boolean
}

interface Waiter {
  readonly place: LogCursor
  readonly begunMs: number
  readonly after: Map<string, number>
  readonly resolve: (reached: Reached) => void
}

export class Fleet {
  readonly #tier: Tier
  readonly #seen = new Map<string, Seen>()
  readonly #waiting = new Set<Waiter>()
  #isWatching = false
  #isEnded = false
  #known: { readonly id: string; readonly sinceMs: number } | undefined
  #looking: Promise<readonly Member[]> | undefined

  constructor(tier: Tier) {
    this.#tier = tier
  }

  /** Writes a member's record, which shows the others that it is alive and how far it has read the log. */
  async say(member: Member): Promise<void> {
    await this.#tier.put(digestOfMember(member.id), encodeMember(member), LIFETIME_MS)
  }

  /** Whether a member is in the list. */
  async lists(id: string): Promise<boolean> {
    return (await this.#list()).members.includes(id)
  }

  /** Adds a member to the list, and removes members that are gone. */
  async enlist(id: string): Promise<void> {
    // Members that join the list during the look-up stay in it.
    const { members: looked } = await this.#lookAll()
    const gone = new Set(looked.filter((one) => one !== id && !this.#seen.has(one)))
    const members = await this.#change((listed) => {
      const left = listed.filter((one) => !gone.has(one))
      return left.includes(id) || left.length >= MEMBERS_MAX ? left : [...left, id]
    })
    if (!members.includes(id)) throw new StoreUnavailableError(`${MEMBERS_MAX} processes and gateways share the store, which is the limit`)
  }

  /** Removes a member, so that the others don't wait for it. */
  async leave(member: Member): Promise<void> {
    await this.say({ ...member, read: 'left' })
    await this.#change((listed) => listed.filter((one) => one !== member.id))
  }

  /** How far all members have read, for a check before a purge is appended; empty if the store doesn't answer. */
  async said(timeoutMs: number): Promise<readonly LogCursor[]> {
    this.#looking ??= this.#look().finally(() => { this.#looking = undefined })
    const members = await within(this.#looking, timeoutMs).catch((): Member[] => [])
    return members.flatMap(({ read }) => read === 'left' ? [] : [read])
  }

  /** Waits a limited time until all members have read the log up to a place, and reports which have. */
  reach(place: LogCursor): Promise<Reached> {
    return new Promise((resolve) => {
      this.#waiting.add({ place, begunMs: performance.now(), after: new Map(), resolve })
      if (!this.#isWatching) void this.#watch()
    })
  }

  /** Ends all waits with the outcome known so far. */
  end(): void {
    this.#isEnded = true
    for (const waiter of this.#waiting) this.#serve(waiter, undefined)
  }

  /** Looks up the members for all waiters together. A waiter that arrives during a look-up waits for the next one, since the members may have changed. */
  async #watch(): Promise<void> {
    this.#isWatching = true
    while (this.#waiting.size > 0) {
      const waiters = [...this.#waiting]
      const leftMs = waiters[0]!.begunMs + REACH_MS_MAX - performance.now()
      const listed = await within(this.#lookUntilListed(), Math.max(1, leftMs)).catch(() => undefined)
      for (const waiter of waiters) this.#serve(waiter, listed)
      const [youngest] = [...this.#waiting].slice(-1)
      if (youngest !== undefined) await pause(performance.now() - youngest.begunMs)
    }
    this.#isWatching = false
  }

  #serve(waiter: Waiter, listed: Listed | undefined): void {
    const elapsedMs = performance.now() - waiter.begunMs
    this.#forget()
    const members = [...this.#seen.values()]
    for (const { id, read } of members) {
      if (hasReached(read, waiter.place) && !waiter.after.has(id)) waiter.after.set(id, elapsedMs)
    }
    const isComplete = listed?.isOld === true && members.every(({ id }) => waiter.after.has(id))
    if (!isComplete && !this.#isEnded && elapsedMs + PAUSE_MS_MAX < REACH_MS_MAX) return
    this.#waiting.delete(waiter)
    const reaches = members.map(({ id, name }) => ({ id, name, afterMs: waiter.after.get(id) }))
    waiter.resolve({ isComplete, members: reaches.sort((one, other) => one.name.localeCompare(other.name) || one.id.localeCompare(other.id)) })
  }

  /** All known members: those in the list, and those seen recently. */
  async #look(): Promise<readonly Member[]> {
    await this.#lookAll()
    return [...this.#seen.values()]
  }

  /** Looks up all members. A missing list may have been lost, so a new one is written for live members to rejoin. */
  async #lookUntilListed(): Promise<Listed> {
    const listed = await this.#lookAll()
    if (listed.bytes === undefined) await this.#change((members) => members)
    return listed
  }

  async #lookAll(): Promise<Listed> {
    const known = [...this.#seen.keys()]
    const [listed, said] = await Promise.all([this.#list(), this.#load(known)])
    const others = await this.#load(listed.members.filter((id) => !known.includes(id)))
    const atMs = performance.now()
    for (const member of [...said, ...others]) {
      if (member.read === 'left') this.#seen.delete(member.id)
      else this.#seen.set(member.id, { ...member, atMs })
    }
    this.#forget()
    return listed
  }

  #forget(): void {
    const end = performance.now() - LIFETIME_MS
    for (const { id, atMs } of this.#seen.values()) if (atMs < end) this.#seen.delete(id)
  }

  /** The records of these members, without absent and unreadable ones. */
  async #load(ids: readonly string[]): Promise<Member[]> {
    const records = await this.#tier.loadMany(ids.map(digestOfMember))
    return records.map((bytes) => bytes && understood(bytes, decodeMember)).filter((member, at): member is Member => member?.id === ids[at])
  }

  /** The list of members. An unreadable list is replaced by the next change. */
  async #list(): Promise<Listed> {
    const { bytes, ttlMs } = await this.#tier.loadWithTtl(LIST)
    const list = bytes && understood(bytes, decodeList)
    const nowMs = performance.now()
    if (list === undefined) {
      this.#known = undefined
      return { id: newListId(), members: [], bytes, isOld: false }
    }
    if (this.#known?.id !== list.id) this.#known = { id: list.id, sinceMs: nowMs }
    // A list that this process has known for `VERIFICATION_MS` is at least that old.
    const isOld = nowMs >= this.#known.sinceMs + VERIFICATION_MS || ttlMs <= LIST_TTL_MS - VERIFICATION_MS
    return { ...list, bytes, isOld }
  }

  /** Changes the list by compare-and-set, since other members change it too, and returns it. */
  async #change(change: (members: readonly string[]) => readonly string[]): Promise<readonly string[]> {
    for (let tries = 0; tries < TRIES_MAX; tries++) {
      const { id, members, bytes } = await this.#list()
      const changed = change(members)
      const isSame = changed.length === members.length && changed.every((one, at) => one === members[at])
      if (isSame && bytes !== undefined) return members
      const put = { bytes: encodeList({ id, members: changed }), ttlMs: LIST_TTL_MS }
      const isDone = bytes === undefined
        ? await this.#tier.putWhereNone(LIST, put.bytes, put.ttlMs)
        : await this.#tier.replace(LIST, bytes, put)
      if (isDone) return changed
    }
    throw new StoreUnavailableError('the list of processes and gateways that share the store keeps changing')
  }
}

function newListId(): string {
  return randomBytes(20).toString('hex')
}

function understood<T>(bytes: Buffer, decode: (bytes: Buffer) => T): T | undefined {
  try {
    return decode(bytes)
  } catch (error) {
    if (error instanceof FormatError) return undefined
    throw error
  }
}

export function hasReached(read: Member['read'], place: LogCursor): boolean {
  return read !== 'left' && read.id === place.id && read.offset >= place.offset
}

/** Pauses for a quarter of the elapsed time, so that a waiter learns the outcome at most that much late. */
function pause(elapsedMs: number): Promise<void> {
  const ms = Math.min(PAUSE_MS_MAX, Math.max(PAUSE_MS_MIN, elapsedMs / 4))
  return new Promise((resolve) => setTimeout(resolve, ms))
}
