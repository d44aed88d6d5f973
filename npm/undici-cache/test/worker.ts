// A process of an application: sends as many requests at once as it is told, with as many values of a field and to as many URLs, and says what it got.

import { Agent, interceptors, request } from 'undici'
import { larderCache, LarderCacheStore } from '../src/index.js'

const [url, count, options, interceptor = 'bundle', variants = '1', urls = '1'] = process.argv.slice(2) as [string, string, string, string?, string?, string?]
const errors: string[] = []
const store = new LarderCacheStore({ ...JSON.parse(options), errorCallback: (error) => errors.push(error.message) })
// More connections at once than a server accepts are no part of what is tested.
const dispatcher = new Agent({ connections: 100 }).compose(interceptor === 'bundle' ? larderCache({ store, cacheStatus: 'test' }) : interceptors.cache({ store }))

async function get(_: unknown, at: number): Promise<string> {
  const response = await request(`${url}?${at % Number(urls)}`, { dispatcher, headers: { x: String(at % Number(variants)) } })
  return response.body.text()
}

process.once('message', async () => {
  const bodies = await Promise.all(Array.from({ length: Number(count) }, get))
  process.send!({ bodies, errors })
  await store.close()
  await dispatcher.close()
})
await store.get({ origin: 'http://nobody.test', path: '/', method: 'GET', headers: {} })
process.send!('ready')
