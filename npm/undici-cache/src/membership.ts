// The membership of this process in the fleet. The process reports how far it has read the purge log, as gateways do, so that deletions elsewhere wait for it.
// Copies are used without asking the store only while the others wait for this process.

import { randomBytes } from 'node:crypto'
import { LIFETIME_MS, VERIFICATION_MS } from './fleet.js'
import { type Member, memberName } from './member-bytes.js'
import type { LogCursor } from './record.js'
import type { SharedStore } from './shared-store.js'
import { clearInterval, clearTimeout, setInterval, setTimeout } from './timers.js'

const TICK_MS = VERIFICATION_MS / 2
/** Ticks between look-ups of all members; in between, only checks that the list still has this process. */
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

  /** Whether the others wait for this process, by its own clock: a process that was suspended for long resumes without knowing the latest purges. */
  isWaitedFor(nowMs: number): boolean {
    return nowMs < this.#untilMs
  }

  /** Waits for the first attempt to become a member, whatever its outcome. */
  settled(): Promise<void> {
    return this.#settled
  }

  /** Reads the log, which may have grown. */
  logChanged(): void {
    this.#shared.log.suspect()
    this.#keepInStep()
  }

  /** Reports again over a new connection: notifications on the previous one may be lost. */
  connected(): void {
    this.#told = undefined
    this.logChanged()
  }

  /** Tells the others not to wait for this process. */
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

  /** Retries after a random pause, so that processes that begin together spread out. */
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

  /** Joins the fleet. Deletions so far didn't wait for this process. They are in the log, so it is read again. */
  async #join(): Promise<void> {
    await this.#shared.fleet.enlist(this.#id)
    this.#isListed = true
    this.#told = undefined
    this.#shared.log.suspect()
    await this.#tell(Date.now())
  }

  /** Reports how far the log was read at `askedMs`. A process that was suspended since may have missed purges. */
  async #tell(askedMs: number): Promise<void> {
    await this.#shared.log.readOn()
    const read = this.#shared.log.cursor!
    if (this.#told?.id === read.id && this.#told.offset === read.offset) return
    await this.#shared.fleet.say(this.#as(read))
    this.#told = read
    // This time ends before the others stop waiting for this process.
    if (this.#isListed) this.#untilMs = askedMs + LIFETIME_MS - VERIFICATION_MS / 2
  }

  #as(read: Member['read']): Member {
    return { id: this.#id, name: this.#name, read }
  }
}
