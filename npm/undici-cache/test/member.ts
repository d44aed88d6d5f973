// An application process that keeps copies and executes commands: one request per message, one answer each.

import { once } from 'node:events'
import { type CacheKey, LarderCacheStore } from '../src/index.js'

export type Request =
  | { readonly do: 'put' | 'get' | 'delete' | 'watch'; readonly path: string }
  | { readonly do: 'lastFound' }
  | { readonly do: 'deleteTag'; readonly tag: string }
  | { readonly do: 'close' }

const ORIGIN = 'http://shop.test'
const store = new LarderCacheStore({ ...JSON.parse(process.argv[2]!), errorCallback: () => undefined })

async function put(key: CacheKey): Promise<void> {
  const now = Date.now()
  const stream = store.createWriteStream(key, {
    statusCode: 200, statusMessage: 'OK', cachedAt: now, staleAt: now + 600_000, deleteAt: now + 600_000, cacheControlDirectives: { public: true, 'max-age': 600 },
    headers: { 'cache-control': 'public, max-age=600', 'cache-tags': 'page', date: new Date(now).toUTCString() },
  })
  stream!.end(`body of ${key.path}`)
  await once(stream!, 'finish')
}

let [asked, lastFoundMs] = [0, 0]

/** Looks up a key continuously, and notes the time of the last look-up that found it. */
async function watch(key: CacheKey): Promise<void> {
  const begunMs = Date.now()
  asked += 1
  if (await store.get(key) !== undefined) lastFoundMs = Math.max(lastFoundMs, begunMs)
  setTimeout(() => void watch(key), 1)
}

async function answer(request: Request): Promise<unknown> {
  if (request.do === 'deleteTag') return store.deleteTag(request.tag)
  if (request.do === 'close') return store.close()
  if (request.do === 'lastFound') return { lastFoundMs, asked }
  const key: CacheKey = { origin: ORIGIN, path: request.path, method: 'GET', headers: {} }
  if (request.do === 'put') return put(key)
  if (request.do === 'watch') return void [1, 2, 3, 4].forEach(() => void watch(key))
  if (request.do === 'delete') return store.delete(key)
  const before = store.get(key)
  const result = await before
  return result && { body: Buffer.concat(result.body as Buffer[]).toString(), isCopy: !(before instanceof Promise) }
}

process.on('message', (request: Request) => {
  answer(request).then((value) => process.send!({ value }), (error: Error) => process.send!({ error: error.message }))
})
process.once('disconnect', () => process.exit())
process.send!('ready')
