// Request collapsing. Requests of this process for the same response join one flight; among processes, a lease on the record does the same.

import type { CacheKey, GetResult } from './contract.js'
import type { LarderCacheStore, Turn } from './store.js'
import { clearTimeout, setTimeout } from './timers.js'

/** The maximum wait for another request of this process, whose client may leave its body unread. */
const FLIGHT_WAIT_MS = 5000

/** The client of a waiting request. `until` resolves to `undefined` once it has given up. */
export interface Client {
  readonly isGone: boolean
  until<T>(work: Promise<T>): Promise<T | undefined>
}

/** A result, or the flight that has to fetch one. */
export interface Joined {
  readonly result: GetResult | undefined
  readonly flight: Flight | undefined
  readonly hasWaited: boolean
}

type Landing = 'over' | 'gave-up'

/** A request to the origin that other requests wait for. */
export interface Flight {
  /** Ends the flight: the exchange is over, or its response is only for this client. */
  end(landing: Landing): void
}

const NOTHING: Joined = { result: undefined, flight: undefined, hasWaited: true }

export class Flights {
  readonly #store: LarderCacheStore
  readonly #landings = new Map<string, Promise<Landing>>()

  constructor(store: LarderCacheStore) {
    this.#store = store
  }

  /** Joins or begins a flight. If a flight gives up, the next of its waiters replaces it. */
  async join(key: CacheKey, client: Client): Promise<Joined> {
    const text = textOf(key)
    let timer: NodeJS.Timeout | undefined
    const tooLate = new Promise<undefined>((resolve) => { timer = setTimeout(resolve, FLIGHT_WAIT_MS, undefined).unref() })
    try {
      for (let hasWaited = false; ; hasWaited = true) {
        const landing = this.#landings.get(text)
        if (landing === undefined) return await this.#begin(key, text, client, hasWaited)
        const landed = await client.until(Promise.race([landing, tooLate]))
        if (client.isGone) return NOTHING
        if (landed !== 'gave-up') return { ...NOTHING, result: await client.until(this.#lookUp(key)) }
      }
    } finally {
      clearTimeout(timer)
    }
  }

  async #begin(key: CacheKey, text: string, client: Client, hasWaited: boolean): Promise<Joined> {
    const land = this.#takeOff(text)
    const taking = this.#store.takeTurn(key, () => !client.isGone)
    try {
      const turn = await client.until(taking)
      if (turn === undefined) return this.#leave(taking, land)
      const flight = { end: (landing: Landing) => void this.#end(key, turn, landing).finally(() => land(landing)) }
      if (turn.result === undefined) return { result: undefined, flight, hasWaited }
      land('over')
      return { ...NOTHING, result: turn.result }
    } catch (error) {
      land('over')
      throw error
    }
  }

  #takeOff(text: string): (landing: Landing) => void {
    let land = (_landing: Landing): void => undefined
    this.#landings.set(text, new Promise((resolve) => { land = resolve }))
    return (landing) => {
      this.#landings.delete(text)
      land(landing)
    }
  }

  #leave(taking: Promise<Turn>, land: (landing: Landing) => void): Joined {
    taking.then((turn) => turn.release('gave-up')).catch(() => undefined)
    land('gave-up')
    return NOTHING
  }

  async #end(key: CacheKey, turn: Turn, landing: Landing): Promise<void> {
    const written = await this.#store.writtenOf(key)
    await turn.release(written === 'stored' || landing === 'over' ? written : 'gave-up')
  }

  async #lookUp(key: CacheKey): Promise<GetResult | undefined> {
    return this.#store.get(key)
  }
}

function textOf({ origin, path, method, headers }: CacheKey): string {
  return JSON.stringify([method, origin, path, Object.entries(headers ?? {}).sort()])
}
