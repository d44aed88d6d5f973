// ioredis against the server at SERVER: node ioredis.mjs PART...

import { Cluster, Redis } from 'ioredis'
import { address, equal, fails, restart, run, until } from './script.mjs'

function connect (options = {}, name = 'SERVER') {
  const client = new Redis({ ...address(name), ...options })
  // Failing calls report the error.
  client.on('error', () => {})
  return client
}

const every = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte))
const numbers = count => Array.from({ length: count }, (_, number) => number)

async function handshake () {
  const client = connect({ connectionName: 'ioredis' })
  equal(await client.ping(), 'PONG')
  equal(/ resp=(\d)/.exec(await client.client('INFO'))[1], '3')
  equal(await client.client('GETNAME'), 'ioredis')
  await connect({ db: 5 }).set('other', 'database')
  equal(await client.get('other'), null)
}

async function strings () {
  const client = connect()
  await client.flushall()
  equal(await client.get('missing'), null)
  equal(await client.set('key', 'value'), 'OK')
  equal(await client.set('key', 'other', 'NX'), null)
  equal(await client.set('key', 'other', 'GET'), 'value')
  equal(await client.append('key', '!'), 6)
  equal(await client.getrange('key', -2, -1), 'r!')
  equal([await client.incr('n'), await client.incrby('n', 41), await client.decr('n')], [1, 42, 41])
  equal(await client.incrbyfloat('n', 0.5), '41.5')
  await client.mset({ a: '1', b: '2' })
  equal(await client.mget('a', 'missing', 'b'), ['1', null, '2'])
  equal(await client.getdel('a'), '1')
  equal(await client.exists('a', 'b'), 1)
  equal(await client.del('a', 'b'), 1)
  await fails(client.incr('key'), 'value is not an integer or out of range')
  await fails(client.call('NOPE', 'x'), 'unknown command', 'NOPE')
  await fails(client.call('GET'), "wrong number of arguments for 'get' command")
  equal(await client.get('key'), 'other!')
}

async function expiry () {
  const client = connect()
  await client.set('short', 'x', 'PX', 50)
  const left = await client.pttl('short')
  equal(left >= 0 && left <= 50, true)
  await until('it expires', async () => await client.get('short') === null)
  await client.set('long', 'x', 'EX', 100)
  equal(await client.ttl('long') > 90, true)
  equal(await client.expire('long', 50, 'GT'), 0)
  equal(await client.getex('long', 'PERSIST'), 'x')
  equal(await client.ttl('long'), -1)
}

async function binary () {
  const client = connect()
  await client.set(every, Buffer.from(every).reverse())
  equal(await client.getBuffer(every), Buffer.from(every).reverse())
  await client.set('empty', '')
  equal(await client.get('empty'), '')
  const large = Buffer.concat(Array(8 << 12).fill(every))
  await client.set('large', large)
  equal((await client.getBuffer('large')).equals(large), true)
  equal(await client.strlen('large'), 8 << 20)
  await client.del('large')
}

async function pipeline () {
  const client = connect()
  const pipe = client.pipeline()
  for (const number of numbers(5000)) pipe.set(`pipe-${number}`, String(number)).get(`pipe-${number}`)
  const replies = await pipe.exec()
  equal(replies.filter((_, index) => index % 2 === 1), numbers(5000).map(number => [null, String(number)]))
  const [set, incr, get] = await client.pipeline().set('text', 'x').incr('text').get('text').exec()
  equal([set, incr[0] instanceof Error, get], [[null, 'OK'], true, [null, 'x']])
  const automatic = connect({ enableAutoPipelining: true })
  equal(await Promise.all(numbers(1000).map(number => automatic.get(`pipe-${number}`))), numbers(1000).map(String))
}

async function scan () {
  const client = connect()
  await client.flushall()
  await client.mset(numbers(1000).flatMap(number => [`scan:${number}`, 'x']))
  await client.mset(numbers(50).flatMap(number => [`other:${number}`, 'x']))
  const found = []
  for await (const keys of client.scanStream({ match: 'scan:*', count: 100 })) found.push(...keys)
  equal([...new Set(found)].sort(), numbers(1000).map(number => `scan:${number}`).sort())
}

async function pubsub () {
  const [client, listener] = [connect(), connect()]
  const received = []
  listener.on('messageBuffer', (channel, message) => received.push(['message', String(channel), message]))
  listener.on('pmessageBuffer', (_, channel, message) => received.push(['pmessage', String(channel), message]))
  listener.on('smessageBuffer', (channel, message) => received.push(['smessage', String(channel), message]))
  equal(await listener.subscribe('news', 'sport'), 2)
  equal(await listener.psubscribe('n*'), 3)
  equal(await listener.ssubscribe('shard'), 1)
  equal(await client.publish('news', every), 2)
  await until('both are there', () => received.length === 2)
  equal(received.sort(), [['message', 'news', every], ['pmessage', 'news', every]])
  equal(await client.spublish('shard', every), 1)
  await until('it is there', () => received.length === 3)
  equal(received[2], ['smessage', 'shard', every])
  equal(await client.pubsub('NUMSUB', 'news', 'sport'), ['news', 1, 'sport', 1])
  equal((await client.pubsub('CHANNELS')).sort(), ['news', 'sport'])
  equal(await client.pubsub('NUMPAT'), 1)
  equal(await listener.unsubscribe('news', 'sport'), 1)
  equal(await listener.punsubscribe('n*'), 0)
  equal(await client.publish('news', 'nobody'), 0)
}

async function transactions () {
  const [client, other] = [connect(), connect()]
  equal(await client.multi().set('t', '1').incr('t').get('t').exec(), [[null, 'OK'], [null, 2], [null, '2']])
  await client.watch('t')
  await other.set('t', '10')
  equal(await client.multi().set('t', '99').exec(), null)
  await client.watch('t')
  equal(await client.multi().set('t', '20').exec(), [[null, 'OK']])
  equal(await other.get('t'), '20')
  await client.multi({ pipeline: false })
  equal(await client.set('t', '99'), 'QUEUED')
  equal(await client.discard(), 'OK')
  equal(await client.get('t'), '20')
  await client.set('text', 'x')
  const [set, incr, get] = await client.multi().set('t', '1').incr('text').get('t').exec()
  equal([set, incr[0] instanceof Error, get], [[null, 'OK'], true, [null, '1']])
  await fails(client.multi().set('t', '2').call('NOPE').exec(), 'discarded because of previous errors')
  equal(await client.get('t'), '1')
}

async function reconnect () {
  const [client, listener] = [connect(), connect()]
  let heard = 0
  listener.on('message', () => { heard += 1 })
  await listener.subscribe('again')
  await client.set('before', 'x')
  await restart()
  await until('it is connected again', () => client.set('after', 'y'))
  equal(await client.get('after'), 'y')
  await until('the subscription is back', async () => await client.publish('again', 'x') === 1 && heard > 0)
}

async function password () {
  equal(await connect({ password: 'secret' }, 'LOCKED').ping(), 'PONG')
  const once = { maxRetriesPerRequest: 0, retryStrategy: null }
  for (const [options, text] of [
    [{ ...once, password: 'wrong' }, 'invalid username-password pair'],
    [once, 'HELLO must be called with the client already authenticated']
  ]) {
    const client = connect({ ...options, lazyConnect: true }, 'LOCKED')
    const told = new Promise(resolve => client.on('error', resolve))
    await fails(client.connect().then(() => client.ping()))
    equal(String(await told).includes(text), true, String(await told))
  }
}

async function cluster () {
  const client = new Cluster([address('CLUSTER')])
  client.on('error', () => {})
  await Promise.all(numbers(300).map(number => client.set(`cluster-${number}`, String(number))))
  equal(await Promise.all(numbers(300).map(number => client.get(`cluster-${number}`))), numbers(300).map(String))
  await client.mset({ '{tag}a': '1', '{tag}b': '2' })
  equal(await client.mget('{tag}a', '{tag}b'), ['1', '2'])
  await fails(client.mget('a', 'b'), "Keys in request don't hash to the same slot")
  equal(client.nodes('master').length, 3)
  client.disconnect()
}

await run({ handshake, strings, expiry, binary, pipeline, scan, pubsub, transactions, reconnect, password, cluster })
