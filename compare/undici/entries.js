// Entries that measurements put into a store through undici's contract, without HTTP.

const ORIGIN = 'http://entries.test'

export function keyOf(path, headers = {}) {
  return { origin: ORIGIN, path, method: 'GET', headers }
}

export async function put(store, key, body, vary = undefined) {
  const now = Date.now()
  const stream = store.createWriteStream(key, {
    statusCode: 200, statusMessage: 'OK',
    headers: { 'content-type': 'application/json', 'cache-control': 'public, max-age=3600', date: new Date(now).toUTCString() },
    cacheControlDirectives: { public: true, 'max-age': 3600 }, vary, cachedAt: now, staleAt: now + 3_600_000, deleteAt: now + 7_200_000,
  })
  const written = new Promise((resolve, reject) => stream.once('close', resolve).once('finish', resolve).once('error', reject))
  stream.end(body)
  await written
}

/** Runs `work` for each number below `count`, at most `atOnce` at a time. */
export async function forEach(count, atOnce, work) {
  let next = 0
  await Promise.all(Array.from({ length: atOnce }, async () => {
    while (next < count) await work(next++)
  }))
}

/** Waits until other processes can see the entry: some stores continue to work after a write. */
export async function untilFound(store, key) {
  while (await store.get(key) === undefined) await new Promise((resolve) => setTimeout(resolve, 5))
}
