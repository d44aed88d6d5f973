// Writes by what they change: one after the other, and those that wait for their turn together.

interface Batch<T> {
  readonly waiting: T[]
  readonly done: Promise<void>
}

export class Writes<T> {
  readonly #write: (batch: readonly T[]) => Promise<void>
  /** That has not begun yet. */
  readonly #next = new Map<string, Batch<T>>()
  readonly #last = new Map<string, Promise<void>>()

  /** `write` never rejects. It gets what was added under one name, in its order. */
  constructor(write: (batch: readonly T[]) => Promise<void>) {
    this.#write = write
  }

  /** The answer is fulfilled when it is written. */
  add(name: string, one: T): Promise<void> {
    const next = this.#next.get(name)
    if (next === undefined) return this.#begin(name, [one])
    next.waiting.push(one)
    return next.done
  }

  /** Fulfilled when all that was added under this name is written; `undefined` where nothing is to be. */
  of(name: string): Promise<void> | undefined {
    return this.#last.get(name)
  }

  /** The same of all names. */
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
