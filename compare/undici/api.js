// The API behind the caches: five routes over 501 products. Each computes for a millisecond before it
// answers.

import { createServer } from 'node:http'
import { pathToFileURL } from 'node:url'

const PRODUCTS = 501
const CATEGORIES = ['books', 'garden', 'music', 'tools', 'toys', 'wine']
const USERS = 5
const LISTED = 20
const WORK_MS = 1

/** Words for descriptions, so that bodies vary. */
const WORDS = 'plain sturdy light quiet large small round heavy smooth bright'.split(' ')

const products = Array.from({ length: PRODUCTS }, (_, id) => ({
  id,
  name: `Product ${id}`,
  category: CATEGORIES[id % CATEGORIES.length],
  price: 100 + (id * 37) % 900,
  description: Array.from({ length: 500 }, (_, at) => WORDS[(id * 7 + at * 3 + (at >> 3)) % WORDS.length]).join(' '),
}))

/** 503 paths of the five routes. */
export const PATHS = [
  '/api/products',
  ...CATEGORIES.map((category) => `/api/products/category/${category}`),
  ...Array.from({ length: USERS }, (_, user) => `/api/recommendations/${user}`),
  '/api/stats',
  ...products.slice(0, 490).map(({ id }) => `/api/products/${id}`),
]

function summaries(list) {
  return list.slice(0, LISTED).map(({ id, name, price }) => ({ id, name, price }))
}

/** The answer to a path: lifetime in seconds, tags and body; `undefined` if there is none. */
function answerTo(path) {
  const [kind, first, second] = path.split('/').slice(2)
  if (kind === 'stats') return { maxAge: 900, tags: ['stats'], body: { products: PRODUCTS, categories: CATEGORIES.length } }
  if (kind === 'recommendations') return { maxAge: 60, tags: ['recommendations'], body: summaries(products.slice(Number(first) * LISTED)) }
  if (kind !== 'products') return undefined
  if (first === undefined) return { maxAge: 300, tags: ['products'], body: summaries(products) }
  if (first === 'category') return { maxAge: 300, tags: ['products', `category:${second}`], body: summaries(products.filter(({ category }) => category === second)) }
  const product = products[Number(first)]
  return product && { maxAge: 600, tags: ['products', `product:${first}`], body: product }
}

function work() {
  const end = performance.now() + WORK_MS
  while (performance.now() < end);
}

/** Starts the API, and returns its URL. `PUT /api/products/ID` changes the price of a product. */
export async function startApi(port = 0) {
  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url, 'http://api')
    if (pathname === '/health') return response.end('ok')
    work()
    const answer = answerTo(pathname)
    if (answer === undefined) return response.writeHead(404, { 'cache-control': 'no-store' }).end()
    if (request.method === 'PUT') {
      answer.body.price += 1
      return response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ price: answer.body.price }))
    }
    response.writeHead(200, {
      'content-type': 'application/json',
      'cache-control': `public, max-age=${answer.maxAge}`,
      'cache-tags': answer.tags.join(', '),
      vary: 'x-some-header',
    }).end(JSON.stringify(answer.body))
  })
  await new Promise((resolve, reject) => server.once('error', reject).listen(port, '127.0.0.1', resolve))
  return `http://127.0.0.1:${server.address().port}`
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const url = await startApi(Number(process.env.API_PORT ?? 3000))
  process.once('disconnect', () => process.exit())
  if (process.send) process.send({ url })
  else console.log(`the API listens on ${url}`)
}
