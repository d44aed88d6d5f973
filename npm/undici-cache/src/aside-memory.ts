// In-process values of cacheAside, kept as bytes so that each caller gets its own object.

import type { CacheAsideMemory } from './cache-aside.js'

interface Remembered {
  readonly bytes: Buffer
  readonly tags: readonly string[]
  /** Expiry, by the monotonic clock. */
  readonly endMs: number
}

/** Approximate overhead of an entry, in addition to its key and bytes. */
const OVERHEAD_BYTES = 256

export class AsideMemory {
  readonly #limits: Required<CacheAsideMemory>
  /** In order of use, the most recent at the end. */
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
