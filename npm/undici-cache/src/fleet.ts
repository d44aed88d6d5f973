// Who shares the store, and how far each has read the purge log: docs/internals/coherence.md, "Who shares the tier". Deletions wait for all of them.

import { randomBytes } from 'node:crypto'
import { FormatError } from './bytes.js'
import { StoreUnavailableError, within } from './errors.js'
import { digestOfMember, digestOfMemberList } from './key.js'
import { decodeList, decodeMember, encodeList, encodeMember, type Member, type MemberList, MEMBERS_MAX } from './member-bytes.js'
import type { LogCursor } from './record.js'
import type { Tier } from './tier.js'
import { setTimeout } from './timers.js'

/** One of those that share the store: a gateway, or a process that keeps copies. */
export interface MemberReach {
  readonly id: string
  readonly name: string
  /** After how many milliseconds it had dropped what was deleted; `undefined`: not in time, as far as is known. */
  readonly afterMs: number | undefined
}

/** How far a deletion came among all that share the store. */
export interface Reached {
  /** Whether all have dropped what was deleted. */
  readonly isComplete: boolean
  /** Those that are known, by name. */
  readonly members: readonly MemberReach[]
}

/** T of the design: how long copies are relied upon without a word from the store. */
export const VERIFICATION_MS = 2000
/** Who says nothing for so long is a member no more. */
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
  /** Whether all who live had time to come back to it, in case that it was begun anew. */
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

  /** Tells the others that a member lives, and how far it has read the log. */
  async say(member: Member): Promise<void> {
    await this.#tier.put(digestOfMember(member.id), encodeMember(member), LIFETIME_MS)
  }

  /** Whether the list has a member. */
  async lists(id: string): Promise<boolean> {
    return (await this.#list()).members.includes(id)
  }

  /** Sees to it that a member is in the list, and none that has gone. */
  async enlist(id: string): Promise<void> {
    // Who enters the list meanwhile was not looked for.
    const { members: looked } = await this.#lookAll()
    const gone = new Set(looked.filter((one) => one !== id && !this.#seen.has(one)))
    const members = await this.#change((listed) => {
      const left = listed.filter((one) => !gone.has(one))
      return left.includes(id) || left.length >= MEMBERS_MAX ? left : [...left, id]
    })
    if (!members.includes(id)) throw new StoreUnavailableError(`${MEMBERS_MAX} processes and gateways share the store: there is room for no more`)
  }

  /** A member ends: nobody is to wait for it. */
  async leave(member: Member): Promise<void> {
    await this.say({ ...member, read: 'left' })
    await this.#change((listed) => listed.filter((one) => one !== member.id))
  }

  /** How far all say that they have read, to be asked before they are told something; nothing where the store doesn't answer. */
  async said(timeoutMs: number): Promise<readonly LogCursor[]> {
    this.#looking ??= this.#look().finally(() => { this.#looking = undefined })
    const members = await within(this.#looking, timeoutMs).catch((): Member[] => [])
    return members.flatMap(({ read }) => read === 'left' ? [] : [read])
  }

  /** Waits until all have read the log up to a place, but not for long, and says who has. */
  reach(place: LogCursor): Promise<Reached> {
    return new Promise((resolve) => {
      this.#waiting.add({ place, begunMs: performance.now(), after: new Map(), resolve })
      if (!this.#isWatching) void this.#watch()
    })
  }

  /** Who waits is told what is known. */
  end(): void {
    this.#isEnded = true
    for (const waiter of this.#waiting) this.#serve(waiter, undefined)
  }

  /** One look for all who wait. Who comes while it goes on waits for the next one: its members may be others. */
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

  /** All that share the store, as far as they say so: those of the list, and those that were seen lately. */
  async #look(): Promise<readonly Member[]> {
    await this.#lookAll()
    return [...this.#seen.values()]
  }

  /** Where there is no list, it may be lost: those who live come back to one that is begun, and nobody has to if nobody is there. */
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

  /** What these say, as far as they do. */
  async #load(ids: readonly string[]): Promise<Member[]> {
    const records = await this.#tier.loadMany(ids.map(digestOfMember))
    return records.map((bytes) => bytes && understood(bytes, decodeMember)).filter((member, at): member is Member => member?.id === ids[at])
  }

  /** What can't be read is replaced by the next change. */
  async #list(): Promise<Listed> {
    const { bytes, ttlMs } = await this.#tier.loadWithTtl(LIST)
    const list = bytes && understood(bytes, decodeList)
    const nowMs = performance.now()
    if (list === undefined) {
      this.#known = undefined
      return { id: newListId(), members: [], bytes, isOld: false }
    }
    if (this.#known?.id !== list.id) this.#known = { id: list.id, sinceMs: nowMs }
    // A list that nobody has changed for T was there for T.
    const isOld = nowMs >= this.#known.sinceMs + VERIFICATION_MS || ttlMs <= LIST_TTL_MS - VERIFICATION_MS
    return { ...list, bytes, isOld }
  }

  /** Changes the list, which others change too, and returns it. */
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
    throw new StoreUnavailableError('others change the list of those that share the store all the time')
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

/** Who waits is told at most a quarter too late. */
function pause(elapsedMs: number): Promise<void> {
  const ms = Math.min(PAUSE_MS_MAX, Math.max(PAUSE_MS_MIN, elapsedMs / 4))
  return new Promise((resolve) => setTimeout(resolve, ms))
}
