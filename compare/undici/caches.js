// The caches to compare, each as a dispatcher for undici, by the values of CACHE_TYPE.

import { Agent, cacheStores, interceptors } from 'undici'
import peer from 'undici-cache-redis'
import { larderCache, LarderCacheStore } from '../../npm/undici-cache/dist/index.js'
import { canonical } from './titles.js'

const TAGS = 'cache-tags'
const LIMITS = { maxSize: 200 << 20, maxCount: 100_000 }

function clientOpts() {
  return { host: '127.0.0.1', port: Number(process.env.REDIS_PORT ?? 6379), keyPrefix: 'bench:' }
}

function peerStore(tracking) {
  return new peer.RedisCacheStore({ clientOpts: clientOpts(), tracking, cacheTagsHeader: TAGS, ...LIMITS })
}

function larderStore(tracking) {
  return new LarderCacheStore({ clientOpts: clientOpts(), tracking, cacheTagsHeader: TAGS, ...LIMITS })
}

/** Caches by CACHE_TYPE; titles.js has the same names. */
export const CACHES = {
  none: {},
  memory: { store: () => new cacheStores.MemoryCacheStore({ maxCount: LIMITS.maxCount, maxSize: LIMITS.maxSize }) },
  'peer-redis-only': { store: () => peerStore(false) },
  'peer-redis-tracking': { store: () => peerStore(true) },
  'redis-only': { store: () => larderStore(false) },
  'redis-tracking': { store: () => larderStore(true) },
  bundle: { store: () => larderStore(true), interceptor: (store) => larderCache({ store }) },
}

export function needsRedis(type) {
  return !['none', 'memory'].includes(type)
}

/** A dispatcher with this cache, and its store if it has one. */
export function openCache(type) {
  const cache = CACHES[canonical(type)]
  if (cache === undefined) throw new Error(`CACHE_TYPE is "${type}": expected redis or one of ${Object.keys(CACHES).join(', ')}`)
  const store = cache.store?.()
  const agent = new Agent({ connections: 50 })
  if (store === undefined) return { dispatcher: agent, store }
  return { dispatcher: agent.compose(cache.interceptor?.(store) ?? interceptors.cache({ store })), store }
}
