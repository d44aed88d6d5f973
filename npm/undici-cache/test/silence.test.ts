// A store that accepts commands and never answers: one request waits for one timeout, and later requests don't wait.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type Server as HttpServer } from 'node:http'
import { after, before, describe, test } from 'node:test'
import { Agent, interceptors, request, type Dispatcher } from 'undici'
import { larderCache, LarderCacheStore } from '../src/index.js'
import { eventually, type Server, startRedis } from './servers.js'

const TIMEOUT_MS = 2000
/** Allowance for a busy machine; less than a second timeout. */
const LATE_MS = 1500

describe('a silent store', () => {
  let server: Server
  let origin: HttpServer
  let [url, paths] = ['', 0]
  before(async () => {
    server = await startRedis()
    origin = createServer((_, response) => response.writeHead(200, { 'cache-control': 'max-age=60' }).end('fresh')).listen(0, '127.0.0.1')
    await once(origin, 'listening')
    url = `http://127.0.0.1:${(origin.address() as { port: number }).port}`
  })
  after(async () => {
    origin.close()
    origin.closeAllConnections()
    await server.stop()
  })

  const took = async (dispatcher: Dispatcher): Promise<number> => {
    const begun = performance.now()
    const { body } = await request(`${url}/${paths += 1}`, { dispatcher })
    assert.equal(await body.text(), 'fresh')
    return performance.now() - begun
  }

  for (const tracking of [true, false]) {
    for (const isNew of [false, true]) {
      for (const bundle of [true, false]) {
        test(`costs one time limit: ${isNew ? 'not connected yet' : 'connected'}, ${bundle ? 'bundled' : 'plain'}, tracking ${tracking}`, async () => {
          const open = (): LarderCacheStore => new LarderCacheStore({ ...server.options, timeout: TIMEOUT_MS, tracking, errorCallback: () => undefined })
          if (isNew) await server.freeze()
          const store = open()
          const dispatcher = new Agent().compose(bundle ? larderCache({ store }) : interceptors.cache({ store }))
          if (!isNew) {
            await took(dispatcher)
            await server.freeze()
          }
          const first = await took(dispatcher)
          assert.ok(first < TIMEOUT_MS + LATE_MS, `${first} ms`)
          for (let more = 0; more < 3; more++) {
            const ms = await took(dispatcher)
            assert.ok(ms < LATE_MS, `${ms} ms for one that follows`)
          }
          server.thaw()
          const path = `/${paths}`
          await eventually(async () => {
            await request(url + path, { dispatcher }).then(({ body }) => body.dump())
            return await store.get({ origin: url, path, method: 'GET', headers: {} }) !== undefined
          }, 'it is used again once it answers')
          await store.close()
          await dispatcher.close()
        })
      }
    }
  }
})
