// A process of an application: sends as many requests at once as it is told, and prints what it got.

import { Agent, request } from 'undici'
import { larderCache, LarderCacheStore } from '../src/index.js'

const [url, count, options] = process.argv.slice(2) as [string, string, string]
const errors: string[] = []
const store = new LarderCacheStore({ ...JSON.parse(options), errorCallback: (error) => errors.push(error.message) })
const dispatcher = new Agent().compose(larderCache({ store, cacheStatus: 'test' }))

async function get(): Promise<string> {
  const response = await request(url, { dispatcher })
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
