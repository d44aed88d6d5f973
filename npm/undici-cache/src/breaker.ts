// Whether a store is worth asking. One that has not answered is left alone until it answers a probe, so that nobody waits for it again and again.

/** Between a probe that failed and the next one. */
const PAUSE_MS = 250

export class Breaker {
  readonly #probe: () => Promise<unknown>
  #isOpen = false
  #probesFrom = 0

  /** `probe` is fulfilled if the store answers. */
  constructor(probe: () => Promise<unknown>) {
    this.#probe = probe
  }

  get isOpen(): boolean {
    return this.#isOpen
  }

  /** From now on the store is away. */
  open(): void {
    this.#isOpen = true
  }

  /**
   * Whether the store is away. Asks it behind the caller, who doesn't wait, if a probe is due: there is no timer that outlives what uses the store.
   */
  isAway(): boolean {
    if (this.#isOpen && performance.now() >= this.#probesFrom) void this.#ask()
    return this.#isOpen
  }

  async #ask(): Promise<void> {
    this.#probesFrom = Infinity
    try {
      await this.#probe()
      this.#isOpen = false
      this.#probesFrom = 0
    } catch {
      this.#probesFrom = performance.now() + PAUSE_MS
    }
  }
}
