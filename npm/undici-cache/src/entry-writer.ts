// The stream that undici writes a body into. It never fails: what can't be stored is not stored.

import { Writable } from 'node:stream'

type Done = (error?: Error | null) => void

export class EntryWriter extends Writable {
  readonly #bytesMax: number
  readonly #store: (body: Buffer[] | undefined) => Promise<void>
  #pieces: Buffer[] | undefined = []
  #bytes = 0

  /** `store` gets the body, or `undefined` where it is larger than `bytesMax`. */
  constructor(bytesMax: number, store: (body: Buffer[] | undefined) => Promise<void>) {
    super()
    this.#bytesMax = bytesMax
    this.#store = store
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: Done): void {
    this.#bytes += chunk.length
    if (this.#bytes >= this.#bytesMax) this.#pieces = undefined
    this.#pieces?.push(chunk)
    done()
  }

  /** A response that breaks off is no error of what is stored: undici would delete that, for everybody. */
  override _destroy(_error: Error | null, done: Done): void {
    this.#pieces = undefined
    done()
  }

  override _final(done: Done): void {
    const pieces = this.#pieces
    this.#pieces = undefined
    this.#store(pieces).then(() => done(), () => done())
  }
}
