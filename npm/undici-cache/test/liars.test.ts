// Servers with wrong answers: requests neither fail nor wait long, and the process doesn't end.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { test } from 'node:test'
import { Agent, request } from 'undici'
import { larderCache, LarderCacheStore } from '../src/index.js'
import { Origin } from './origin.js'

/** Allowance for a busy machine, with a time limit of 1 s each for connecting and for a command. */
const LATE_MS = 6000

/** The answer to every command. */
const LIES: Readonly<Record<string, string>> = {
  'nothing': '$-1\r\n', 'a number': ':7\r\n', 'OK': '+OK\r\n', 'an error': '-ERR no\r\n', 'an empty list': '*0\r\n', 'no list': '*-1\r\n', 'another protocol': 'HTTP/1.1 400 Bad Request\r\n\r\n',
}

for (const [what, lie] of Object.entries(LIES)) {
  for (const tracking of [true, false]) {
    test(`a server that says ${what}, tracking ${tracking}`, async (t) => {
      const liar = createServer((socket) => {
        socket.on('error', () => undefined).on('data', (data) => {
          for (const _ of data.toString('latin1').matchAll(/\*\d+\r\n\$/g)) socket.write(lie)
        })
      }).listen(0, '127.0.0.1')
      await once(liar, 'listening')
      const origin = new Origin()
      const url = await origin.listen()
      const store = new LarderCacheStore({
        clientOpts: { host: '127.0.0.1', port: (liar.address() as AddressInfo).port }, timeout: 1000, tracking, errorCallback: () => undefined,
      })
      const dispatcher = new Agent().compose(larderCache({ store }))
      t.after(async () => {
        await store.close()
        await dispatcher.close()
        origin.close()
        liar.close()
      })
      for (let round = 0; round < 2; round++) {
        const begunMs = performance.now()
        const bodies = await Promise.all([1, 2, 3].map(async (path) => (await request(`${url}/${path}`, { dispatcher })).body.text()))
        assert.ok(bodies.every((body) => body.startsWith('answer')))
        assert.ok(performance.now() - begunMs < LATE_MS, `${performance.now() - begunMs} ms`)
      }
      await assert.rejects(store.deleteTag('tag'))
    })
  }
}
