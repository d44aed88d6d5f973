// An application process that sends parallel requests, with the given number of field values and URLs, and prints the results.

import { Agent, interceptors, request } from 'undici'
import { larderCache, LarderCacheStore } from '../src/index.js'

const [url, count, options, interceptor = 'bundle', variants = '1', urls = '1'] = process.argv.slice(2) as [string, string, string, string?, string?, string?]
const errors: string[] = []
const store = new LarderCacheStore({ ...JSON.parse(options), errorCallback: (error) => errors.push(error.message) })
// Limits connections, because a server's accept limit is not under test.
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
