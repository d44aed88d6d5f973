// What the caches are called in tables, by what CACHE_TYPE may say.

export const TITLES = {
  none: 'no cache',
  memory: "undici's memory store",
  'peer-redis-only': 'undici-cache-redis, redis only',
  'peer-redis-tracking': 'undici-cache-redis, tracking',
  'redis-only': '@larder/undici-cache, redis only',
  'redis-tracking': '@larder/undici-cache, tracking',
  bundle: '@larder/undici-cache, tracking, with larderCache',
}

/** undici-cache-redis documents `redis` for what it now calls `redis-tracking`. */
export const canonical = (type) => type === 'redis' ? 'redis-tracking' : type
