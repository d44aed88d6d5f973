// Batches of writes by name: writes of the same name run one batch after another, and waiting writes are combined.

interface Batch<T> {
  readonly waiting: T[]
  readonly done: Promise<void>
}

export class Writes<T> {
  readonly #write: (batch: readonly T[]) => Promise<void>
  /** Batches that have not begun yet. */
  readonly #next = new Map<string, Batch<T>>()
  readonly #last = new Map<string, Promise<void>>()

  /** `write` never rejects. It gets the writes added under one name, in order. */
  constructor(write: (batch: readonly T[]) => Promise<void>) {
    this.#write = write
  }

  /** Adds a write; resolves when it is done. */
  add(name: string, one: T): Promise<void> {
    const next = this.#next.get(name)
    if (next === undefined) return this.#begin(name, [one])
    next.waiting.push(one)
    return next.done
  }

  /** Resolves when all writes under this name are done; `undefined` if there are none. */
  of(name: string): Promise<void> | undefined {
    return this.#last.get(name)
  }

  /** Resolves when all writes are done. */
  async all(): Promise<void> {
    await Promise.all(this.#last.values())
  }

  #begin(name: string, waiting: T[]): Promise<void> {
    const turn = async (before: Promise<void> | undefined): Promise<void> => {
      await before
      this.#next.delete(name)
      await this.#write(waiting)
      if (this.#last.get(name) === done) this.#last.delete(name)
    }
    const done = turn(this.#last.get(name))
    this.#next.set(name, { waiting, done })
    this.#last.set(name, done)
    return done
  }
}
