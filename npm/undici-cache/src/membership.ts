// This process among those that share the store: it says how far it has read the purge log, as gateways do, so that deletions elsewhere wait for it.
// What it keeps is used without a question only while the others wait for it.

import { randomBytes } from 'node:crypto'
import { LIFETIME_MS, VERIFICATION_MS } from './fleet.js'
import { type Member, memberName } from './member-bytes.js'
import type { LogCursor } from './record.js'
import type { SharedStore } from './shared-store.js'
import { clearInterval, clearTimeout, setInterval, setTimeout } from './timers.js'

const TICK_MS = VERIFICATION_MS / 2
/** So often all others are looked at: in between, whether the list still has this process. */
const TICKS_TO_LOOK = 3
const RETRY_MS_MIN = 100

export class Membership {
  readonly #shared: SharedStore
  readonly #id = randomBytes(16).toString('hex')
  readonly #name: string
  readonly #failed: (error: unknown) => void
  readonly #ticking: NodeJS.Timeout
  readonly #settled: Promise<void>
  #settle: () => void = () => undefined
  #ticks = 0
  #failures = 0
  #told: LogCursor | undefined
  #isListed = false
  #isWanted = false
  #isEnded = false
  #running: Promise<void> | undefined
  #retry: NodeJS.Timeout | undefined
  #untilMs = 0

  constructor(shared: SharedStore, name: string, failed: (error: unknown) => void) {
    this.#shared = shared
    this.#name = memberName(name)
    this.#failed = failed
    this.#settled = new Promise((resolve) => { this.#settle = resolve })
    this.#ticking = setInterval(() => this.#tick(), TICK_MS).unref()
  }

  /** Whether the others wait for this process, by its clock: one that was stopped for long goes on without knowing what was purged. */
  isWaitedFor(nowMs: number): boolean {
    return nowMs < this.#untilMs
  }

  /** Waits until this process has tried to become a member, however that ended. */
  settled(): Promise<void> {
    return this.#settled
  }

  /** The log may have grown. */
  logChanged(): void {
    this.#shared.log.suspect()
    this.#keepInStep()
  }

  /** There is another connection: what was told over the one before may be lost. */
  connected(): void {
    this.#told = undefined
    this.logChanged()
  }

  /** Tells the others that nobody is to wait for this process. */
  async leave(): Promise<void> {
    this.#isEnded = true
    clearInterval(this.#ticking)
    clearTimeout(this.#retry)
    this.#untilMs = 0
    await this.#running
    if (this.#isListed) await this.#shared.fleet.leave(this.#as('left'))
  }

  #tick(): void {
    this.#ticks += 1
    this.#told = undefined
    this.#keepInStep()
  }

  #keepInStep(): void {
    if (this.#isEnded || !this.#shared.log.isReachable) return
    this.#isWanted = true
    this.#running ??= this.#run().finally(() => { this.#running = undefined })
  }

  async #run(): Promise<void> {
    while (this.#isWanted && !this.#isEnded) {
      this.#isWanted = false
      try {
        await this.#step()
        this.#failures = 0
      } catch (error) {
        this.#failed(error)
        this.#tryAgain()
      }
      this.#settle()
    }
  }

  /** Of many that begin at once, each has a time of its own. */
  #tryAgain(): void {
    const pauseMs = Math.min(TICK_MS, RETRY_MS_MIN * 2 ** this.#failures)
    this.#failures += 1
    clearTimeout(this.#retry)
    this.#retry = setTimeout(() => this.#keepInStep(), pauseMs * (0.5 + Math.random())).unref()
  }

  async #step(): Promise<void> {
    await this.#shared.settled()
    const isTick = this.#told === undefined
    const askedMs = Date.now()
    if (isTick) await this.#shared.log.look()
    await this.#tell(askedMs)
    if (!this.#isListed) return this.#join()
    if (isTick && (this.#ticks % TICKS_TO_LOOK === 0 || !await this.#shared.fleet.lists(this.#id))) await this.#shared.fleet.enlist(this.#id)
  }

  /** Deletions were complete without this process until now. They stand in the log, so that is read again. */
  async #join(): Promise<void> {
    await this.#shared.fleet.enlist(this.#id)
    this.#isListed = true
    this.#told = undefined
    this.#shared.log.suspect()
    await this.#tell(Date.now())
  }

  /** What was asked for at this time is all that is known: a process that stood still since may have missed what was purged. */
  async #tell(askedMs: number): Promise<void> {
    await this.#shared.log.readOn()
    const read = this.#shared.log.cursor!
    if (this.#told?.id === read.id && this.#told.offset === read.offset) return
    await this.#shared.fleet.say(this.#as(read))
    this.#told = read
    // Before the others stop to wait for it.
    if (this.#isListed) this.#untilMs = askedMs + LIFETIME_MS - VERIFICATION_MS / 2
  }

  #as(read: Member['read']): Member {
    return { id: this.#id, name: this.#name, read }
  }
}
