// The classes of undici-cache-redis under their own names, with the behaviour that its users and tests see beyond undici's contract.

import type { Writable } from 'node:stream'
import type { CacheKey, CacheValue, GetResult } from './contract.js'
import { EntryWriter } from './entry-writer.js'
import { LarderCacheManager, type LarderCacheManagerOptions } from './manager.js'
import { LarderCacheStore } from './store.js'
import { NO_DIRECTIVES } from './stored.js'

/**
 * `LarderCacheStore` with the behaviour of undici-cache-redis: results have only the properties that were stored, bodies keep their pieces, a copy answers
 * while its replacement is being written, `createWriteStream` always returns a stream, and `delete` and `deleteKeys` also delete responses that have all tags
 * of a deleted one.
 */
export class RedisCacheStore extends LarderCacheStore {
  override get(key: CacheKey): GetResult | Promise<GetResult | undefined> | undefined {
    const found = super.get(key)
    return found instanceof Promise ? found.then(asStored) : asStored(found)
  }

  override createWriteStream(key: CacheKey, value: CacheValue): Writable {
    return super.createWriteStream(key, value) ?? new EntryWriter(0, () => Promise.resolve())
  }

  /** @internal */
  protected override get habits(): 'undici-cache-redis' {
    return 'undici-cache-redis'
  }
}

/** `LarderCacheManager` that covers all prefixes, unless you pass a prefix. */
export class RedisCacheManager extends LarderCacheManager {
  constructor(opts: LarderCacheManagerOptions = {}) {
    super({ prefixes: opts.prefix === undefined && !opts.clientOpts?.keyPrefix ? 'all' : 'own', ...opts })
  }
}

function asStored<T extends GetResult | undefined>(result: T): T {
  if (result === undefined) return result
  const isLeftOut = (name: string, value: unknown): boolean => value === undefined || (name === 'cacheControlDirectives' && value === NO_DIRECTIVES)
  return Object.fromEntries(Object.entries(result).filter(([name, value]) => !isLeftOut(name, value))) as T
}
