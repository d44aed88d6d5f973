/**
 * A shared cache store for undici, on Redis, Valkey, Redis Cluster or `larder kv`.
 *
 * @packageDocumentation
 */

export { cacheAside, type CacheAside, type CacheAsideEvent, type CacheAsideOptions } from './cache-aside.js'
export type { CacheAsideMemory, CacheAsideValueOptions, CacheAsideWrapOptions } from './cache-aside.js'
export type { IoRedisLike, NodeRedisLike, RedisClientLike } from './client.js'
export type { CacheControlDirectives, CacheEntry, CacheKey, CacheStore, CacheValue, GetResult } from './contract.js'
export { StoreTimeoutError, StoreUnavailableError } from './errors.js'
export type { MemberReach, Reached } from './fleet.js'
export type { EntryFilter } from './listings.js'
export type { NodeAddress } from './nodes.js'
export type { ConnectionOptions, LarderCacheStoreOptions } from './options.js'
export { LarderCacheManager, type LarderCacheManagerOptions } from './manager.js'
export { LarderCacheStore } from './store.js'
export { RedisCacheManager, RedisCacheStore, RedisCacheStore as default } from './redis-cache.js'
export { larderCache, type LarderCacheOptions } from './interceptor.js'
export type { LookUpMessage } from './diagnostics.js'
