// Circuit breaker of a store. A store that hasn't answered is not used again until it answers a probe, so that callers don't wait for it repeatedly.

/** Pause after a failed probe. */
const PAUSE_MS = 250

export class Breaker {
  readonly #probe: () => Promise<unknown>
  #isOpen = false
  #probesFrom = 0

  /** `probe` resolves if the store answers. */
  constructor(probe: () => Promise<unknown>) {
    this.#probe = probe
  }

  get isOpen(): boolean {
    return this.#isOpen
  }

  /** Opens the breaker: the store is away until a probe succeeds. */
  open(): void {
    this.#isOpen = true
  }

  /** Whether the store is away. Starts a probe in the background if one is due, since a timer could outlive the users of the store. */
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
