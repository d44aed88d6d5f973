// The stream for the body that undici writes. This stream never fails: a response that can't be stored is skipped.

import { Writable } from 'node:stream'

type Done = (error?: Error | null) => void

export class EntryWriter extends Writable {
  readonly #bytesMax: number
  readonly #store: (body: Buffer[] | undefined) => Promise<void>
  #pieces: Buffer[] | undefined = []
  #bytes = 0

  /** `store` gets the body, or `undefined` if it has `bytesMax` bytes or more. */
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

  /** Doesn't report an aborted response as an error: undici would delete the stored response for all clients. */
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
