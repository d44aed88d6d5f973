// The names of the caches in tables, by CACHE_TYPE.

export const TITLES = {
  none: 'no cache',
  memory: "undici's memory store",
  'peer-redis-only': 'undici-cache-redis, redis only',
  'peer-redis-tracking': 'undici-cache-redis, tracking',
  'redis-only': '@larder/undici-cache, redis only',
  'redis-tracking': '@larder/undici-cache, tracking',
  bundle: '@larder/undici-cache, tracking, with larderCache',
}

/** undici-cache-redis documents `redis` for the type that it now calls `redis-tracking`. */
export const canonical = (type) => type === 'redis' ? 'redis-tracking' : type
