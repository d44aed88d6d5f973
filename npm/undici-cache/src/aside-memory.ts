// Values of cacheAside in this process, as bytes: whoever asks gets a value of their own.

import type { CacheAsideMemory } from './cache-aside.js'

interface Remembered {
  readonly bytes: Buffer
  readonly tags: readonly string[]
  /** By the monotonic clock. */
  readonly endMs: number
}

/** What one takes beside its bytes, about. */
const OVERHEAD_BYTES = 256

export class AsideMemory {
  readonly #limits: Required<CacheAsideMemory>
  /** The one that was used last is at the end. */
  readonly #byKey = new Map<string, Remembered>()
  #bytes = 0

  constructor({ ttl, maxCount = 10_000, maxSize = 32 << 20 }: CacheAsideMemory) {
    this.#limits = { ttl, maxCount, maxSize }
  }

  get(key: string): Buffer | undefined {
    const found = this.#byKey.get(key)
    if (found === undefined) return undefined
    this.delete(key)
    if (found.endMs <= performance.now()) return undefined
    this.#put(key, found)
    return found.bytes
  }

  keep(key: string, bytes: Buffer, tags: readonly string[]): void {
    this.delete(key)
    this.#put(key, { bytes, tags, endMs: performance.now() + this.#limits.ttl })
    while (this.#byKey.size > this.#limits.maxCount || this.#bytes > this.#limits.maxSize) this.delete(this.#byKey.keys().next().value!)
  }

  delete(key: string): void {
    const found = this.#byKey.get(key)
    if (found !== undefined) this.#bytes -= sizeOf(key, found)
    this.#byKey.delete(key)
  }

  deleteTag(tag: string): void {
    for (const [key, { tags }] of this.#byKey) if (tags.includes(tag)) this.delete(key)
  }

  #put(key: string, remembered: Remembered): void {
    this.#byKey.set(key, remembered)
    this.#bytes += sizeOf(key, remembered)
  }
}

function sizeOf(key: string, { bytes }: Remembered): number {
  return OVERHEAD_BYTES + key.length + bytes.length
}
