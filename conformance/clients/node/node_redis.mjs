// node-redis against the server at SERVER: node node_redis.mjs PART...

import { createClient, createCluster, RESP_TYPES, WatchError } from 'redis'
import { BasicClientSideCache } from '@redis/client/dist/lib/client/cache.js'
import { address, equal, fails, restart, run, until } from './script.mjs'

async function connect ({ socket, ...options } = {}, name = 'SERVER') {
  const client = createClient({ socket: { ...address(name), ...socket }, ...options })
  // Failing calls report the error.
  client.on('error', () => {})
  return client.connect()
}

const every = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte))
const numbers = count => Array.from({ length: count }, (_, number) => number)

async function handshake () {
  const client = await connect({ name: 'node-redis' })
  equal(await client.ping(), 'PONG')
  equal((await client.clientInfo()).resp, 3)
  equal(await client.clientGetName(), 'node-redis')
  const other = await connect({ database: 5 })
  await other.set('other', 'database')
  equal(await client.get('other'), null)
}

async function strings () {
  const client = await connect()
  await client.flushAll()
  equal(await client.get('missing'), null)
  equal(await client.set('key', 'value'), 'OK')
  equal(await client.set('key', 'other', { condition: 'NX' }), null)
  equal(await client.set('key', 'other', { GET: true }), 'value')
  equal(await client.append('key', '!'), 6)
  equal(await client.getRange('key', -2, -1), 'r!')
  equal([await client.incr('n'), await client.incrBy('n', 41), await client.decr('n')], [1, 42, 41])
  equal(await client.incrByFloat('n', 0.5), '41.5')
  await client.mSet({ a: '1', b: '2' })
  equal(await client.mGet(['a', 'missing', 'b']), ['1', null, '2'])
  equal(await client.getDel('a'), '1')
  equal(await client.exists(['a', 'b']), 1)
  equal(await client.del(['a', 'b']), 1)
  await fails(client.incr('key'), 'value is not an integer or out of range')
  await fails(client.sendCommand(['NOPE', 'x']), 'unknown command', 'NOPE')
  await fails(client.sendCommand(['GET']), "wrong number of arguments for 'get' command")
  equal(await client.get('key'), 'other!')
}

async function expiry () {
  const client = await connect()
  await client.set('short', 'x', { expiration: { type: 'PX', value: 50 } })
  const left = await client.pTTL('short')
  equal(left >= 0 && left <= 50, true)
  await until('it expires', async () => await client.get('short') === null)
  await client.set('long', 'x', { expiration: { type: 'EX', value: 100 } })
  equal(await client.ttl('long') > 90, true)
  equal(await client.expire('long', 50, 'GT'), 0)
  equal(await client.getEx('long', { type: 'PERSIST' }), 'x')
  equal(await client.ttl('long'), -1)
}

async function binary () {
  const client = await connect()
  const bytes = client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer })
  await client.set(every, Buffer.from(every).reverse())
  equal(await bytes.get(every), Buffer.from(every).reverse())
  await client.set('empty', '')
  equal(await client.get('empty'), '')
  const large = Buffer.concat(Array(8 << 12).fill(every))
  await client.set('large', large)
  equal((await bytes.get('large')).equals(large), true)
  equal(await client.strLen('large'), 8 << 20)
  await client.del('large')
}

// Calls in one turn of the event loop are sent together.
async function pipeline () {
  const client = await connect()
  const replies = await Promise.all(numbers(5000).flatMap(number =>
    [client.set(`pipe-${number}`, String(number)), client.get(`pipe-${number}`)]))
  equal(replies.filter((_, index) => index % 2 === 1), numbers(5000).map(String))
  const [set, incr, get] = await Promise.allSettled(
    [client.set('text', 'x'), client.incr('text'), client.get('text')])
  equal([set.value, incr.status, get.value], ['OK', 'rejected', 'x'])
}

async function scan () {
  const client = await connect()
  await client.flushAll()
  await client.mSet(numbers(1000).map(number => [`scan:${number}`, 'x']))
  await client.mSet(numbers(50).map(number => [`other:${number}`, 'x']))
  const found = []
  for await (const keys of client.scanIterator({ MATCH: 'scan:*', COUNT: 100 })) found.push(...keys)
  equal(found.sort(), numbers(1000).map(number => `scan:${number}`).sort())
}

async function pubsub () {
  const [client, listener] = [await connect(), await connect()]
  const received = []
  const note = (message, channel) => received.push([channel, message])
  await listener.subscribe(['news', 'sport'], note)
  await listener.pSubscribe('n*', (message, channel) => received.push(['pattern', channel, message]))
  await listener.sSubscribe('shard', note)
  equal(await client.publish('news', 'x'), 2)
  await until('both are there', () => received.length === 2)
  equal(received.sort(), [['news', 'x'], ['pattern', 'news', 'x']])
  equal(await client.sPublish('shard', 'piece'), 1)
  await until('it is there', () => received.length === 3)
  equal(received[2], ['shard', 'piece'])
  equal({ ...await client.pubSubNumSub(['news', 'sport']) }, { news: 1, sport: 1 })
  equal((await client.pubSubChannels('*')).sort(), ['news', 'sport'])
  // With RESP3, a subscribed connection accepts every command.
  equal(await listener.set('while', 'subscribed'), 'OK')
  equal(await listener.ping(), 'PONG')
  const bytes = []
  await listener.subscribe('bytes', message => bytes.push(message), true)
  await client.publish('bytes', every)
  await until('bytes are there', () => bytes.length === 1)
  equal(bytes[0], every)
  await listener.unsubscribe()
  await listener.pUnsubscribe()
  await listener.sUnsubscribe()
  equal(await client.publish('news', 'nobody'), 0)
}

async function transactions () {
  const [client, other] = [await connect(), await connect()]
  equal(await client.multi().set('t', '1').incr('t').get('t').exec(), ['OK', 2, '2'])
  await client.watch('t')
  await other.set('t', '10')
  await client.multi().set('t', '99').exec().then(
    () => { throw new Error('a changed key was not noticed') },
    error => equal(error instanceof WatchError, true, String(error)))
  await client.watch('t')
  equal(await client.multi().set('t', '20').exec(), ['OK'])
  equal(await other.get('t'), '20')
  await client.set('text', 'x')
  await client.multi().set('t', '1').incr('text').get('t').exec().then(
    () => { throw new Error('an error in it was not told') },
    error => equal([error.replies[0], error.replies[2], error.errorIndexes], ['OK', '1', [1]]))
  await fails(client.multi().set('t', '2').addCommand(['NOPE']).exec(), 'unknown command')
  equal(await client.get('t'), '1')
}

async function caching () {
  const cache = new BasicClientSideCache({ ttl: 0, maxEntries: 0 })
  const [client, other] = [await connect({ RESP: 3, clientSideCache: cache }), await connect()]
  await other.flushAll()
  await other.set('cached', 'old')
  equal([await client.get('cached'), await client.get('cached')], ['old', 'old'])
  equal([cache.stats().missCount, cache.stats().hitCount], [1, 1])
  await other.set('cached', 'new')
  await until('the change is seen', async () => await client.get('cached') === 'new')
  await other.mSet(numbers(500).map(number => [`many-${number}`, 'x']))
  await Promise.all(numbers(500).map(number => client.get(`many-${number}`)))
  equal(cache.size(), 501)
  await other.set('cached', 'short', { expiration: { type: 'PX', value: 100 } })
  await until('it is read again', async () => await client.get('cached') === 'short')
  await until('expiry is seen', async () => await client.get('cached') === null)
  await other.flushAll()
  await until('a flush is seen', async () =>
    await client.get('many-7') === null && await client.get('many-499') === null)
}

async function reconnect () {
  const [client, listener] = [await connect(), await connect()]
  let heard = 0
  await listener.subscribe('again', () => { heard += 1 })
  await client.set('before', 'x')
  await restart()
  await until('it is connected again', () => client.set('after', 'y'))
  equal(await client.get('after'), 'y')
  await until('the subscription is back', async () => await client.publish('again', 'x') === 1 && heard > 0)
}

async function password () {
  const client = await connect({ password: 'secret' }, 'LOCKED')
  equal(await client.ping(), 'PONG')
  const socket = { reconnectStrategy: false }
  await fails(connect({ password: 'wrong', socket }, 'LOCKED'), 'invalid username-password pair')
  await fails(connect({ socket }, 'LOCKED'), 'HELLO must be called with the client already authenticated')
}

async function cluster () {
  const { host, port } = address('CLUSTER')
  const client = createCluster({ rootNodes: [{ socket: { host, port } }] })
  client.on('error', () => {})
  await client.connect()
  await Promise.all(numbers(300).map(number => client.set(`cluster-${number}`, String(number))))
  equal(await Promise.all(numbers(300).map(number => client.get(`cluster-${number}`))), numbers(300).map(String))
  await client.mSet({ '{tag}a': '1', '{tag}b': '2' })
  equal(await client.mGet(['{tag}a', '{tag}b']), ['1', '2'])
  equal(await client.mGet(['cluster-1', 'cluster-2', 'cluster-3']), ['1', '2', '3'])
  equal(client.masters.length, 3)
  client.destroy()
}

await run({ handshake, strings, expiry, binary, pipeline, scan, pubsub, transactions, caching, reconnect, password, cluster })
